//! HTTP/3 towards servers (`proxy_http_version 3`): one Tidegate behind another.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use support::client::Client;
use support::origin::{Origin, Talk};
use support::{Site, free_port, wait};

struct Pair {
    origin: Site,
    front: Site,
    quic: u16,
    port: u16,
}

fn pair(behind: &str) -> Pair {
    pair_with("", behind)
}

/// [`pair`] with directives of the origin's main context.
fn pair_with(main: &str, behind: &str) -> Pair {
    let (quic, port) = (free_port(), free_port());
    let origin = Site::new("", "");
    let certificate = origin.certify();
    let root = origin.path("html").display().to_string();
    origin.configure(
        &format!("daemon off; {main}"),
        &format!(
            "http {{ ssl_certificate a.crt; ssl_certificate_key a.key; root {root}; client_max_body_size 10m;
                server {{ listen 127.0.0.1:{quic} quic; {behind} }} }}"
        ),
    );
    let front = Site::new("", "");
    front.write("conf/ca.crt", &certificate);
    Pair { origin, front, quic, port }
}

impl Pair {
    fn configure_front(&self, locations: &str) {
        let (quic, port) = (self.quic, self.port);
        self.front.configure(
            "daemon off; worker_processes 1;",
            &format!(
                "http {{ upstream u {{ server 127.0.0.1:{quic}; keepalive 4; }} client_max_body_size 10m;
                    proxy_http_version 3; proxy_ssl_name localhost; proxy_ssl_server_name on;
                    proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.crt;
                    server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass https://u; }} {locations} }} }}"
            ),
        );
    }
}

fn ask(port: u16, request: &str) -> (u16, String) {
    Client::connect(port).and_then(|mut client| client.ask(request)).expect("an answer")
}

fn get(port: u16, path: &str) -> (u16, String) {
    ask(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

#[test]
fn requests_of_all_kinds_share_a_connection() {
    let pair = pair(
        "location / { return 200 \"$server_protocol $request_method $request_uri $http_x_own $connection\"; }
         location /file { } location /gone { return 204; } location /late { echo_sleep 0.3; echo -n late; }
         location /echo { client_body_buffer_size 1m; echo_read_request_body; echo_request_body; }",
    );
    let file: String = (0..300_000).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    pair.origin.write("html/file", &file);
    pair.configure_front("proxy_set_header X-Own own; location /unbuffered/ { proxy_pass https://u/; proxy_buffering off; proxy_request_buffering off; }");
    let origin = pair.origin.start();
    let front = pair.front.start();
    let (status, first) = get(pair.port, "/a?b=c");
    let (shown, number) = first.rsplit_once(' ').expect("words");
    assert_eq!((status, shown), (200, "HTTP/3.0 GET /a?b=c own"));
    let clients: Vec<_> = (0..20)
        .map(|n| {
            let (port, file) = (pair.port, file.clone());
            thread::spawn(move || match n % 5 {
                0 => assert!(get(port, "/file") == (200, file), "a download"),
                1 => assert_eq!(get(port, "/late"), (200, "late".into())),
                2 => {
                    let head = format!("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", file.len());
                    assert!(ask(port, &(head + &file)) == (200, file), "a body and its echo");
                }
                3 => {
                    let chunk = format!("{:x}\r\n{file}\r\n0\r\n\r\n", file.len());
                    let head = "POST /unbuffered/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
                    assert!(ask(port, &(head.to_string() + &chunk)) == (200, file), "a streamed body");
                }
                _ => assert_eq!(get(port, "/gone").0, 204),
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("a client"));
    let mut head = String::new();
    let mut client = TcpStream::connect(("127.0.0.1", pair.port)).expect("connected");
    client.write_all(b"HEAD /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("sent");
    client.read_to_string(&mut head).expect("a head");
    assert!(head.contains("Content-Length: 300000") && head.ends_with("\r\n\r\n"), "{head}");
    let (_, last) = get(pair.port, "/");
    assert_eq!(last.rsplit_once(' ').map(|(_, number)| number), Some(number), "one connection for all of them");
    front.quit();
    origin.quit();
    pair.front.assert_no_alerts();
    pair.origin.assert_no_alerts();
}

#[test]
fn an_origin_that_goes_finishes_its_requests_and_the_next_one_is_found() {
    let pair = pair("location / { return 200 ok; } location /file { limit_rate 200k; }");
    pair.origin.write("html/file", &"x".repeat(150_000));
    pair.configure_front("location /to { proxy_pass https://u/; }");
    let front = pair.front.start();
    // A closed port answers at once.
    assert_eq!(get(pair.port, "/").0, 502);
    pair.front.wait_for_log("connect() failed (111: Connection refused) while connecting to upstream", 1);
    let origin = pair.origin.start();
    support::wait("the origin", || match get(pair.port, "/") {
        (200, _) => Ok(()),
        (status, _) => Err(status),
    });
    let port = pair.port;
    let mut slow = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    slow.write_all(b"GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("sent");
    let mut seen = vec![0; 1000];
    slow.read_exact(&mut seen).expect("a beginning");
    origin.quit();
    slow.read_to_end(&mut seen).expect("the rest");
    assert!(seen.ends_with(b"x") && seen.len() > 150_000, "{} bytes", seen.len());
    let origin = pair.origin.start();
    support::wait("the new origin", || match get(pair.port, "/") {
        (200, _) => Ok(()),
        (status, _) => Err(status),
    });
    origin.quit();
    front.quit();
    pair.front.assert_no_alerts();
}

#[test]
fn certificates_are_verified() {
    let pair = pair("location / { return 200 ok; }");
    pair.configure_front("location /other { proxy_pass https://u/; proxy_ssl_name other; }");
    let (origin, front) = (pair.origin.start(), pair.front.start());
    support::wait("the origin", || match get(pair.port, "/") {
        (200, _) => Ok(()),
        (status, _) => Err(status),
    });
    assert_eq!(get(pair.port, "/other").0, 502);
    pair.front.wait_for_log("while SSL handshaking to upstream", 1);
    front.quit();
    origin.quit();
}

#[test]
fn plain_urls_are_refused() {
    let site = Site::new(
        "",
        "http { server { listen 127.0.0.1:1; location / { proxy_http_version 3; proxy_pass http://127.0.0.1:2; } } }",
    );
    let output = site.run(&["-t"]);
    let words = support::text(&output.stderr);
    assert!(!output.status.success() && words.contains("needs \"https://\""), "{words}");
}

#[test]
fn a_process_that_ends_closes_its_connections() {
    let plain = free_port();
    // Only the close of the other side ends these connections in time.
    let pair = pair(&format!(
        "keepalive_timeout 1h; return 200 \"$server_protocol\"; }}
         server {{ listen 127.0.0.1:{plain}; location / {{ stub_status; }}"
    ));
    pair.configure_front(&format!(
        "location /checked {{ proxy_pass https://checked; health_check mandatory interval=20ms keepalive_time=1h; }} }}
         upstream checked {{ zone checked 64k; server 127.0.0.1:{}; ",
        pair.quic
    ));
    let (origin, front) = (pair.origin.start(), pair.front.start());
    wait("a healthy server", || match get(pair.port, "/checked") {
        (200, _) => Ok(()),
        (status, body) => Err(format!("{status} {body}")),
    });
    assert_eq!(get(pair.port, "/"), (200, "HTTP/3.0".into()));
    let active = |count: usize| {
        wait(&format!("{count} connections"), || match get(plain, "/") {
            (200, page) if page.starts_with(&format!("Active connections: {count} ")) => Ok(()),
            (status, body) => Err(format!("{status} {body}")),
        });
    };
    // Of health checks, of each group, and the one that asks.
    active(4);
    front.quit();
    active(1);
    origin.quit();
    pair.origin.assert_no_alerts();
}

#[test]
fn a_request_that_fails_over_a_kept_connection_is_sent_as_often_as_the_configuration_says() {
    for (next, method, is_retried) in [
        // The origin resets the stream, which is an invalid head.
        ("", "GET", false),
        ("proxy_next_upstream off;", "GET", false),
        ("proxy_next_upstream invalid_header;", "GET", true),
        ("proxy_next_upstream invalid_header;", "POST", false),
        ("proxy_next_upstream invalid_header non_idempotent;", "POST", true),
    ] {
        // The origin passes the second request on and ends before its answer.
        let held = Origin::new(|mut talk: Talk<'_>| talk.hang());
        let location = format!("location /held {{ proxy_pass http://127.0.0.1:{}; }}", held.port);
        let site = pair_with("worker_shutdown_timeout 1ms;", &format!("location / {{ return 200 one; }} {location}"));
        let spare = pair("return 200 spare;");
        let (port, first, second) = (site.port, site.quic, spare.quic);
        site.front.configure(
            "daemon off; worker_processes 1;",
            &format!(
                "http {{ log_format tries '$upstream_addr|$upstream_status|$status'; access_log logs/access.log tries;
                    upstream u {{ server 127.0.0.1:{first}; server 127.0.0.1:{second} backup; keepalive 4; }}
                    server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass https://u; proxy_http_version 3; {next} }} }} }}"
            ),
        );
        let (origin, other) = (site.origin.start(), spare.origin.start());
        let front = site.front.start();
        let first_answer = get(port, "/");
        let body = if method == "POST" { "Content-Length: 4\r\n\r\nbody" } else { "\r\n" };
        let request = format!("{method} /held HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{body}");
        let asked = thread::spawn(move || ask(port, &request).0);
        wait("the held request", || if held.connections() == 1 { Ok(()) } else { Err(held.connections()) });
        origin.quit();
        let status = if is_retried { 200 } else { 502 };
        assert_eq!((first_answer, asked.join().expect("an answer")), ((200, "one".into()), status), "{next} {method}");
        front.quit();
        other.quit();
        let wanted = match is_retried {
            true => format!("127.0.0.1:{first}, 127.0.0.1:{second}|502, 200|200"),
            false => format!("127.0.0.1:{first}|502|502"),
        };
        let log = site.front.read("logs/access.log");
        assert_eq!(log.lines().last(), Some(wanted.as_str()), "{next} {method}: {log}\n{}", site.front.log());
        site.front.assert_no_alerts();
    }
}
