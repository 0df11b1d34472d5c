//! `error_log ... format=json`: every line is an object, whatever clients send.

use crate::support;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use support::otlp::{Kind, Receiver};
use support::{Site, free_port, text, wait};

fn objects(log: &str) -> Vec<Value> {
    let object = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let all: Vec<Value> = log.lines().map(object).collect();
    for one in &all {
        for name in ["time", "level", "message"] {
            assert!(one[name].is_string(), "{name}: {one}");
        }
        assert!(one["pid"].is_u64() && one["tid"].is_u64(), "{one}");
    }
    all
}

fn send(port: u16, request: &[u8]) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.write_all(request).expect("sent");
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn every_line_is_an_object() {
    let (receiver, port, stream_port) = (Receiver::start(Kind::Grpc), free_port(), free_port());
    // The message of the long path is cut, its line is not.
    let syslog = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    syslog.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
    let syslog_port = syslog.local_addr().expect("an address").port();
    let rest = format!(
        "http {{ access_log off; otel_exporter {{ endpoint 127.0.0.1:{}; interval 1ms; }}
            error_log logs/json.log info format=json; error_log logs/text.log info;
            error_log syslog:server=127.0.0.1:{syslog_port},nohostname error format=json;
            error_log memory:64k debug format=json; error_log logs/nginx.log info json;
            server {{ listen 127.0.0.1:{port}; server_name localhost; add_header X-Id $request_id;
                otel_trace on; if ($request_id = x) {{ return 400; }}
                location / {{ root html; }} location /down {{ proxy_pass http://127.0.0.1:1/; }} }} }}
        stream {{ error_log logs/stream.log info format=json;
            server {{ listen 127.0.0.1:{stream_port}; proxy_pass 127.0.0.1:1; }} }}",
        receiver.port
    );
    let site = Site::new("daemon off; error_log logs/main.log debug format=json;", &rest);
    let running = site.start();
    let missing: &[u8] =
        b"GET /no\"\\%0a%1b%00x/%ff\xc3\x28 HTTP/1.1\r\nHost: localhost\r\nReferer: \xe2\x80\xa8\"\t\\\r\n\
        Connection: close\r\n\r\n";
    send(port, missing);
    send(port, b"GET /a%1b%ff HTTP/1.1\r\nHost: localhost\r\nReferer: \xff\"\\\x09\r\nConnection: close\r\n\r\n");
    send(port, b"GET /down HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    send(port, b"\x16\x03\x01\0\"\\ malformed\r\n\r\n");
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "%22%5c%01".repeat(800));
    send(port, long.as_bytes());
    send(stream_port, b"x");
    wait("the lines", || {
        let lines = site.read("logs/json.log").matches("failed (2: No such file").count();
        let streams = site.read("logs/stream.log").matches("connect() failed").count();
        let long = site.read("logs/json.log").matches("\"request\":\"GET /%22%5c").count();
        if lines == 1 && long == 1 && streams == 1 { Ok(()) } else { Err(format!("{lines} {streams}")) }
    });
    let mut packet = [0; 16 << 10];
    let n = syslog.recv(&mut packet).expect("a message");
    let message = text(&packet[..n]);
    let (_, object) = message.split_once(": ").expect("a tag");
    assert_eq!(objects(object).len(), 1);
    running.quit();
    let all = objects(&site.read("logs/json.log"));
    let with = |words: &str, path: &str| {
        let found = all.iter().find(|one| {
            let has = |name: &str, part: &str| one[name].as_str().is_some_and(|text| text.contains(part));
            has("message", words) && has("request", path)
        });
        found.unwrap_or_else(|| panic!("{words}: {all:#?}"))
    };
    let one = with("No such file", "GET /a%1b%ff ");
    assert_eq!((one["client"].as_str(), one["server"].as_str()), (Some("127.0.0.1"), Some("localhost")));
    assert_eq!((one["level"].as_str(), one["host"].as_str()), (Some("error"), Some("localhost")));
    assert_eq!(one["referrer"].as_str(), Some("\u{fffd}\"\\\t"));
    assert!(one["connection"].is_u64() && one["request_id"].as_str().is_some_and(|id| id.len() == 32), "{one}");
    // The message names the file, with its control character.
    assert!(one["message"].as_str().is_some_and(|text| text.contains("/html/a\u{1b}\u{fffd}\"")), "{one}");
    let lines = site.read("logs/nginx.log");
    let named: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let one = named.iter().find(|one| one["request"] == "GET /down HTTP/1.1").expect("a line of the request");
    let members = ["level", "msg", "client", "server", "upstream", "host", "errtext"].map(|name| one[name].as_str());
    let words = "connect() failed while connecting to upstream";
    let want = ["error", words, "127.0.0.1", "localhost", "http://127.0.0.1:1/", "localhost", "Connection refused"];
    assert_eq!(members, want.map(Some), "{one}");
    assert!(one["cnum"].is_u64() && one["errno"] == 111 && one["timestamp"].is_string(), "{one}");
    assert!(named.iter().any(|one| one["truncated"] == 1), "the long path");
    let one = with("connect() failed", "GET /down ");
    assert_eq!(one["upstream"].as_str(), Some("http://127.0.0.1:1/"));
    // The trace's id is that of the span.
    let ids: Vec<String> = receiver.spans(3).into_iter().map(|span| span.trace_id).collect();
    assert!(ids.iter().any(|id| one["trace_id"].as_str() == Some(id)), "{one} {ids:?}");
    let streams = objects(&site.read("logs/stream.log"));
    let failed = streams.iter().find(|one| one["message"].as_str().is_some_and(|m| m.contains("connect() failed")));
    let failed = failed.unwrap_or_else(|| panic!("{streams:#?}"));
    assert_eq!(failed["client"].as_str(), Some("127.0.0.1"));
    assert_eq!(failed["server"].as_str(), Some(format!("127.0.0.1:{stream_port}").as_str()));
    assert!(objects(&site.read("logs/main.log")).len() > 3);
    // Lines of text stay as they are.
    let lines = site.read("logs/text.log");
    let line = lines.lines().find(|line| line.contains("/a%1b%ff ")).unwrap_or_else(|| panic!("{lines}"));
    assert!(
        line.contains(
            ", client: 127.0.0.1, server: localhost, request: \"GET /a%1b%ff HTTP/1.1\", host: \"localhost\""
        ),
        "{line}"
    );
    assert!(!lines.contains("request_id") && !lines.contains("trace_id"));
}

#[test]
fn unknown_formats_are_refused() {
    for (place, more) in [("", "http {}"), ("http", ""), ("stream", "")] {
        let line = "error_log logs/x.log info format=xml;";
        let site = match place {
            "" => Site::new(line, more),
            area => Site::new("", &format!("{area} {{ {line} }}")),
        };
        let output = site.run(&["-t", "--explain"]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("unknown log format \"xml\""), "{said}");
        assert!(said.contains("nginx.conf:") && said.contains("format=json"), "{said}");
    }
}
