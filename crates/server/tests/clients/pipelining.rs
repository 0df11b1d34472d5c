//! Pipelined requests whose first response does not fit into the socket buffer.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::{Site, free_port};

#[test]
fn requests_behind_a_partial_answer_are_answered() {
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

fn connect(port: u16) -> TcpStream {
    let client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    client
}

/// Reads responses until `times` of them have their body's last octets.
fn read_until(client: &mut TcpStream, last: &str, times: usize) -> String {
    let (mut got, mut buffer) = (String::new(), [0; 4096]);
    while got.matches(last).count() < times {
        let n = client.read(&mut buffer).expect("a response");
        assert!(n > 0, "closed after {got}");
        got.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    got
}

#[test]
fn the_variable_tells_requests_behind_others() {
    let port = free_port();
    let http = format!(
        "http {{ add_header X-Pipe \"$pipe\"; server {{ listen 127.0.0.1:{port}; location /status {{ return 200 status; }}
            location /passed {{ proxy_pass http://127.0.0.1:{port}/status; proxy_hide_header X-Pipe; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    for path in ["/status", "/passed"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        for cut in [0, 5, request.len()] {
            let mut client = connect(port);
            client.write_all(format!("{request}{}", &request[..cut]).as_bytes()).expect("written");
            let mut got = read_until(&mut client, "\r\n\r\nstatus", if cut == request.len() { 2 } else { 1 });
            let rest = format!("{}{request}", &request[cut..]);
            let left = if cut == request.len() { 1 } else { 2 };
            client.write_all(rest.as_bytes()).expect("written");
            got += &read_until(&mut client, "\r\n\r\nstatus", left);
            let pipes: String = got.lines().filter_map(|line| line.strip_prefix("X-Pipe: ")).collect();
            let expected = match cut {
                0 => "..p",
                5 => ".pp",
                _ => ".p.",
            };
            assert_eq!(pipes, expected, "{path}, {cut} octets of the second request");
        }
    }
    running.quit();
}

/// nginx: `c->pipeline`. A close with requests in transit would reset the connection, and destroy responses.
#[test]
fn a_client_that_sends_ahead_is_not_reset() {
    let port = free_port();
    let http = format!(
        "http {{ keepalive_requests 3; lingering_timeout 1h; lingering_time 1h; server {{ listen 127.0.0.1:{port};
            location /status {{ return 200 status; }} location /task {{ return 200 status; post_action /status; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    for path in ["/status", "/task"] {
        let mut client = connect(port);
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(request.repeat(3).as_bytes()).expect("written");
        let mut got = String::new();
        client.read_to_string(&mut got).expect("the end of the responses");
        assert_eq!(got.matches("\r\n\r\nstatus").count(), 3, "{got}");
        for _ in 0..3 {
            client.write_all(request.as_bytes()).expect("the server still reads");
        }
    }
    running.signal("TERM");
}
