//! Servers without a status line (HTTP/0.9): their bytes reach HTTP/1 clients unchanged, as with nginx. Log lines equal
//! nginx's except for the cache, which nginx fills from such a response, and the connection, which nginx keeps.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::origin::Origin;
use support::{Site, free_port};

const TEXT: &str = "raw text\n";

fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut came = Vec::new();
    stream.read_to_end(&mut came).expect("an end");
    String::from_utf8(came).expect("text")
}

fn holds(environment: &[(&str, &str)]) {
    let origin = Origin::new(|mut talk| {
        let Some(request) = talk.request() else { return };
        let parts: &[&[u8]] = match request.split(' ').nth(1) {
            Some("/cut") => &[b"HT", b"ML"],
            Some("/status") => &[b"HTTP/1.1 2x0 OK\r\n\r\n"],
            Some("/begun") => &[b"HT"],
            _ => &[TEXT.as_bytes()],
        };
        for part in parts {
            talk.send(part);
        }
    });
    let port = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{
                log_format said '$uri $status $upstream_status $body_bytes_sent $bytes_sent $upstream_response_length $server_protocol';
                access_log logs/said.log said;
                proxy_cache_path cache keys_zone=z:1m;
                upstream one {{ server 127.0.0.1:{0}; keepalive 4; }}
                server {{
                    listen 127.0.0.1:{port};
                    gzip_types *; gzip_min_length 1; sub_filter_types *;
                    location / {{ proxy_pass http://one; add_header X-Own 1 always; expires 1h; }}
                    location /old/ {{ proxy_pass http://one/; proxy_http_version 1.0; }}
                    location /flowing/ {{ proxy_pass http://one/; proxy_buffering off; }}
                    location /zipped/ {{ proxy_pass http://one/; gzip on; }}
                    location /changed/ {{ proxy_pass http://one/; sub_filter raw RAW; }}
                    location /pages/ {{ proxy_pass http://one/; proxy_intercept_errors on; error_page 502 =200 /none; }}
                    location /next/ {{ proxy_pass http://one/; proxy_next_upstream error timeout invalid_header; }}
                    location /kept/ {{ proxy_pass http://one/; proxy_cache z; proxy_cache_valid any 1m; }}
                    location /stored/ {{ proxy_pass http://one/; proxy_store on; }}
                    location /page/ {{ ssi on; ssi_types *; default_type text/html; return 200 'a<!--#include virtual=\"/x\" -->b'; }}
                }}
            }}",
            origin.port
        ),
    );
    let mut command = site.command(&[]);
    command.envs(environment.iter().copied());
    let mut child = command.spawn().expect("started");
    support::wait("a listener", || TcpStream::connect(("127.0.0.1", port)));
    let get = |uri: &str, fields: &str| ask(port, &format!("GET {uri} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    for uri in
        ["/a", "/a", "/old/a", "/flowing/a", "/zipped/a", "/pages/a", "/next/a", "/kept/a", "/kept/a", "/stored/a"]
    {
        assert_eq!(get(uri, "Accept-Encoding: gzip\r\n"), TEXT, "{uri} {environment:?}");
    }
    assert_eq!(get("/changed/a", ""), "RAW text\n");
    assert_eq!(get("/cut", ""), "HTML");
    assert_eq!(get("/status", ""), "HTTP/1.1 2x0 OK\r\n\r\n");
    assert_eq!(get("/ranges", "Range: bytes=0-2\r\n"), TEXT);
    assert_eq!(ask(port, "GET /none\r\n"), TEXT);
    assert_eq!(ask(port, "HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n"), "");
    assert!(get("/begun", "Connection: close\r\n").starts_with("HTTP/1.1 502 "));
    // Only the main request has a head, and needs one.
    let page = get("/page/", "Connection: close\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains(TEXT), "{page}");
    site.wait_for_log("upstream sent no valid HTTP/1.0 header while reading response header from upstream", 1);
    support::signal(child.id(), "QUIT");
    assert!(child.wait().expect("an end").success());
    let said = site.read("logs/said.log");
    for line in [
        "/a 009 200 9 9 9 HTTP/1.1",
        "/old/a 009 200 9 9 9 HTTP/1.1",
        "/flowing/a 009 200 9 9 9 HTTP/1.1",
        "/zipped/a 009 200 9 9 9 HTTP/1.1",
        "/kept/a 009 - 9 9 9 HTTP/1.1",
        "/changed/a 009 200 9 9 9 HTTP/1.1",
        "/cut 009 200 4 4 4 HTTP/1.1",
        "/none 009 200 9 9 9 -",
        "/head 009 200 0 0 9 HTTP/1.1",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\n{said}");
    }
    assert_eq!(said.lines().count(), 18, "{said}");
    assert!(!site.path("html/stored").exists(), "stored");
    site.assert_no_alerts();
}

#[test]
fn a_response_without_a_status_line_is_passed_on_as_it_is() {
    holds(&[]);
    holds(&[("TIDEGATE_EXCHANGE", "task")]);
}
