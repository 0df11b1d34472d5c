//! Pipelined requests whose first response does not fit into the socket buffer.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::{Site, free_port};

#[test]
fn what_follows_an_answer_that_is_written_in_parts_is_answered() {
    let port = free_port();
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port} sndbuf=4k;
            location /status {{ return 200 status; }}
            location /passed {{ proxy_pass http://127.0.0.1:{port}/status; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    site.write("html/large", &"x".repeat(60_000));
    let running = site.start();
    // Further requests: an answer from memory, one that waits, one with a body, a head in two parts.
    let plain = "GET /status HTTP/1.1\r\nHost: a\r\n\r\n";
    let waits = "GET /passed HTTP/1.1\r\nHost: a\r\n\r\n";
    let body = "POST /status HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok";
    for next in [plain, waits, body] {
        for cut in [next.len(), 5] {
            let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
            client.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
            // The first read brings the file into memory.
            let large = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
            client.write_all(format!("{large}{}", &next[..cut]).as_bytes()).expect("written");
            let mut got = vec![0; 60_000];
            client.read_exact(&mut got).expect("the first answer");
            client.write_all(&next.as_bytes()[cut..]).expect("written");
            let mut rest = Vec::new();
            let mut buffer = [0; 4096];
            while !rest.ends_with(b"status") {
                let n = client.read(&mut buffer).expect("the second answer");
                assert!(n > 0, "closed before {next}");
                rest.extend_from_slice(&buffer[..n]);
            }
        }
    }
    running.quit();
}
