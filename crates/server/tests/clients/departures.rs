//! Clients that leave while a server is silent, and times in log lines.

use crate::support;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::client::{Client, read_until};
use support::http2::{self, RST_STREAM, frame};
use support::{Site, free_port, wait};

const PATIENCE: Duration = Duration::from_secs(20);
const LEFT: &str =
    "epoll_wait() reported that client prematurely closed connection, so upstream connection is closed too";

/// A server that sends `answer` on each connection, and then waits for its end. Reports the bytes of both reads: those of
/// the request, and none at the end.
fn origin(answer: &'static str) -> (u16, Receiver<Result<usize, ErrorKind>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let (ended, ends) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, ended) = (stream.expect("a connection"), ended.clone());
            std::thread::spawn(move || {
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                let mut buffer = [0; 4096];
                let _ = ended.send(stream.read(&mut buffer).map_err(|e| e.kind()));
                stream.write_all(answer.as_bytes()).expect("written");
                let _ = ended.send(stream.read(&mut buffer).map_err(|e| e.kind()));
            });
        }
    });
    (port, ends)
}

fn assert_asked_and_left(reads: &Receiver<Result<usize, ErrorKind>>, site: &Site) {
    assert!(matches!(reads.recv(), Ok(Ok(1..))), "{}", site.log());
    assert_eq!(reads.recv(), Ok(Ok(0)), "{}", site.log());
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn site(port: u16, more: &str, format: &str) -> Site {
    let conf = format!(
        "http {{ http2 on; log_format own '{format}'; access_log logs/own.log own;
            server {{ listen 127.0.0.1:{port}; root html; {more} }} }}"
    );
    Site::new("daemon off; worker_processes 1;", &conf)
}

/// Waits for the lines of the access log.
fn lines(site: &Site, count: usize) -> Vec<String> {
    wait(&format!("{count} lines"), || {
        let text = site.read("logs/own.log");
        if text.lines().count() >= count { Ok(text.lines().map(String::from).collect()) } else { Err(text) }
    })
}

#[test]
fn a_client_that_leaves_during_a_silent_response_ends_the_connection_to_its_server() {
    let (to, reads) = origin("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    let port = free_port();
    let more = format!(
        "location / {{ proxy_pass http://127.0.0.1:{to}; }}
         location /now {{ proxy_pass http://127.0.0.1:{to}; proxy_buffering off; }}"
    );
    let site = site(port, &more, "$status $upstream_status");
    let running = site.start();
    for (index, path) in ["/", "/now"].into_iter().enumerate() {
        let mut client = connect(port);
        write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        read_until(&mut client, "abc");
        drop(client);
        assert_asked_and_left(&reads, &site);
        site.wait_for_log(&format!("{LEFT} while reading upstream"), index + 1);
    }
    // A stream that the client resets; its connection stays.
    let mut client = http2::Client::connect(port);
    client.ask(1, "/");
    while client.next().is_some_and(|(kind, _, _, payload)| (kind, payload.as_slice()) != (http2::DATA, b"abc")) {}
    client.send(&frame(RST_STREAM, 0, 1, &8u32.to_be_bytes()));
    assert_asked_and_left(&reads, &site);
    assert_eq!(lines(&site, 3), ["200 200"; 3]);
    drop(client);
    running.quit();
}

#[test]
fn with_ignore_client_abort_the_server_of_a_client_that_leaves_may_finish() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let to = listener.local_addr().expect("address").port();
    let port = free_port();
    let more = format!("location / {{ proxy_pass http://127.0.0.1:{to}; proxy_ignore_client_abort on; }}");
    let site = site(port, &more, "$upstream_response_length");
    let running = site.start();
    let mut client = connect(port);
    write!(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let (mut server, _) = listener.accept().expect("a connection");
    read_until(&mut server, "\r\n\r\n");
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc").expect("written");
    read_until(&mut client, "abc");
    drop(client);
    // A later request of another client shows that the worker has seen the end.
    let other = write!(connect(port), "GET /other HTTP/1.0\r\n\r\n");
    other.expect("sent");
    let _ = listener.accept().expect("a connection");
    server.write_all(b"def").expect("written");
    wait("the line", || {
        let text = site.read("logs/own.log");
        if text.contains("6\n") { Ok(()) } else { Err(text) }
    });
    assert!(!site.log().contains(&format!("{LEFT} while reading upstream")), "{}", site.log());
    running.signal("TERM");
}

#[test]
fn a_client_that_leaves_while_its_credentials_are_asked_for_or_refused_has_status_499() {
    let (to, reads) = origin("");
    let port = free_port();
    let more = format!(
        "location /asked {{ auth_request /auth; }} location = /auth {{ proxy_pass http://127.0.0.1:{to}; }}
         location /refused {{ auth_basic here; auth_basic_user_file html/none; auth_delay 1h; }}"
    );
    let site = site(port, &more, "$uri $status");
    site.write("html/none", "");
    let running = site.start();
    let mut client = connect(port);
    write!(client, "GET /asked HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    assert!(matches!(reads.recv(), Ok(Ok(1..))), "{}", site.log());
    drop(client);
    assert_eq!(reads.recv(), Ok(Ok(0)));
    assert_eq!(lines(&site, 1), ["/asked 499"]);
    let mut client = connect(port);
    write!(client, "GET /refused HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    site.wait_for_log("delaying unauthorized request, client", 1);
    drop(client);
    assert_eq!(lines(&site, 2)[1], "/refused 499");
    running.quit();
}

/// Over HTTP/2 the pauses of closed connections would be limited by nothing.
#[test]
fn a_client_that_leaves_ends_the_pauses_of_echo() {
    let port = free_port();
    let site = site(port, "location / { echo first; echo_sleep 3600; echo late; }", "$uri $status");
    let running = site.start();
    let mut client = connect(port);
    client.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    read_until(&mut client, "first\n");
    drop(client);
    assert_eq!(lines(&site, 1), ["/1 200"]);
    let mut client = http2::Client::connect(port);
    client.ask(1, "/2");
    while !matches!(client.next(), Some((http2::DATA, ..))) {}
    client.send(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    assert_eq!(lines(&site, 2)[1], "/2 200");
    client.ask(3, "/3");
    while !matches!(client.next(), Some((http2::DATA, ..))) {}
    drop(client);
    assert_eq!(lines(&site, 3)[2], "/3 200");
    running.quit();
}

#[test]
fn times_of_requests_that_time_out_are_logged() {
    let (to, reads) = origin("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    // Connects, and answers nothing.
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let silent = listener.local_addr().expect("address").port();
    let port = free_port();
    let more = format!(
        "client_header_timeout 200ms;
         location / {{ proxy_pass http://127.0.0.1:{to}; proxy_read_timeout 200ms; }}
         location /body {{
             proxy_pass http://127.0.0.1:{silent}; proxy_request_buffering off; proxy_http_version 1.1; client_body_timeout 200ms;
         }}"
    );
    let site = site(port, &more, "$status $request_time $upstream_response_time $upstream_status");
    let running = site.start();
    let mut client = connect(port);
    write!(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    client.read_to_end(&mut Vec::new()).expect("the end");
    assert_asked_and_left(&reads, &site);
    let mut client = connect(port);
    write!(client, "GET / HT").expect("sent");
    client.read_to_end(&mut Vec::new()).expect("the end");
    let mut client = connect(port);
    write!(client, "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").expect("sent");
    client.read_to_end(&mut Vec::new()).expect("the end");
    let lines = lines(&site, 3);
    let seconds = |line: &str, at: usize| line.split(' ').nth(at).and_then(|word| word.parse::<f64>().ok());
    // The server's silence, and the time since the first byte of the head.
    assert!(seconds(&lines[0], 2).is_some_and(|time| time >= 0.19), "{lines:?}");
    assert!(lines[1].starts_with("408 ") && seconds(&lines[1], 1).is_some_and(|time| time >= 0.19), "{lines:?}");
    // The server is not to blame for the client's body.
    assert!(lines[2].starts_with("408 ") && lines[2].ends_with(" -"), "{lines:?}");
    site.wait_for_log("client timed out (110: Connection timed out) while reading client request line", 1);
    running.quit();
}

#[test]
fn a_head_in_two_parts_counts_for_the_time_of_its_request() {
    let (to, _reads) = origin("");
    let port = free_port();
    let more = format!(
        "location / {{ return 200 ok; }}
         location /slow {{ proxy_pass http://127.0.0.1:{to}; proxy_read_timeout 200ms; }}"
    );
    let site = site(port, &more, "$uri $request_time");
    let running = site.start();
    let mut client = connect(port);
    client.write_all(b"GET / HTTP/1.1\r\n").expect("sent");
    // A timeout of the server lies between the parts.
    let mut other = connect(port);
    other.write_all(b"GET /slow HTTP/1.0\r\n\r\n").expect("sent");
    other.read_to_end(&mut Vec::new()).expect("504");
    client.write_all(b"Host: a\r\nConnection: close\r\n\r\n").expect("sent");
    client.read_to_end(&mut Vec::new()).expect("the end");
    let lines = lines(&site, 2);
    let time = lines.iter().find_map(|line| line.strip_prefix("/ ")).and_then(|time| time.parse::<f64>().ok());
    assert!(time.is_some_and(|time| time >= 0.19), "{lines:?}");
    running.quit();
}

#[test]
fn pipelined_requests_and_streams_have_their_own_numbers() {
    let port = free_port();
    let site = site(port, "location / { return 200 ok; }", "$uri $connection_requests");
    let running = site.start();
    let mut client = connect(port);
    let all: String = (1..=3).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.write_all(all.as_bytes()).expect("sent");
    assert_eq!(lines(&site, 3), ["/1 1", "/2 2", "/3 3"]);
    let mut client = http2::Client::connect(port);
    let blocks: Vec<_> = [(1, "/a"), (3, "/b")].map(|(id, path)| (id, client.block(path, &[]))).into();
    let both: Vec<u8> = blocks.iter().flat_map(|(id, block)| frame(http2::HEADERS, 5, *id, block)).collect();
    client.send(&both);
    let mut streams = lines(&site, 5).split_off(3);
    streams.sort();
    assert_eq!(streams, ["/a 1", "/b 2"]);
    drop(client);
    running.quit();
}

#[test]
fn a_request_counts_from_its_first_byte() {
    let port = free_port();
    let more = "client_header_timeout 200ms; location / { return 200 ok; }";
    let site = site(port, more, "$status $connection_requests");
    let running = site.start();
    let mut client = connect(port);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT").expect("sent");
    client.read_to_end(&mut Vec::new()).expect("the end");
    assert_eq!(lines(&site, 2), ["200 1", "408 2"]);
    running.quit();
}

#[test]
fn a_socket_that_cannot_be_bound_has_no_server_in_the_log() {
    let (to, _reads) = origin("");
    let port = free_port();
    let more = format!(
        "location /bind {{ proxy_bind 192.0.2.1; proxy_pass http://127.0.0.1:{to}; }}
         location /key {{
             proxy_ssl_certificate $arg_none/c; proxy_ssl_certificate_key $arg_none/k; proxy_pass https://127.0.0.1:{to};
         }}"
    );
    let site = site(port, &more, "$status [$upstream_addr] $upstream_status $upstream_response_time");
    let running = site.start();
    for path in ["/bind", "/key"] {
        let mut client = connect(port);
        write!(client, "GET {path} HTTP/1.0\r\n\r\n").expect("sent");
        client.read_to_end(&mut Vec::new()).expect("500");
    }
    let lines = lines(&site, 2);
    assert!(lines[0].starts_with("500 [] - 0."), "{lines:?}");
    assert!(lines[1].starts_with(&format!("500 [127.0.0.1:{to}] - 0.")), "{lines:?}");
    site.wait_for_log("while connecting to upstream", 2);
    running.quit();
}

#[test]
fn unbuffered_responses_have_no_rate() {
    let (to, _reads) = origin("HTTP/1.1 200 OK\r\nX-Accel-Limit-Rate: 1\r\nContent-Length: 3\r\n\r\nabc");
    let port = free_port();
    let more = format!("location / {{ proxy_pass http://127.0.0.1:{to}; proxy_buffering off; limit_rate 1; }}");
    let site = site(port, &more, "$status");
    let running = site.start();
    let mut client = connect(port);
    write!(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let n = client.read(&mut [0; 4096]).expect("readable");
    assert!(n > 1, "the first second had the one byte of its rate");
    running.signal("TERM");
}

#[test]
fn a_reset_after_a_timeout_is_for_unfinished_requests() {
    let port = free_port();
    let more = "reset_timedout_connection on; keepalive_timeout 50ms; client_header_timeout 50ms;
        location / { return 200 ok; }
        location /refused { lingering_timeout 50ms; return 403; }
        location /own { reset_timedout_connection off; client_body_timeout 50ms; proxy_pass http://127.0.0.1:1; }";
    let site = site(port, more, "$status");
    let running = site.start();
    let mut rest = Vec::new();
    // Idle after a request, and without a byte.
    let mut client = connect(port);
    write!(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    client.read_to_end(&mut rest).expect("a normal end");
    connect(port).read_to_end(&mut rest).expect("a normal end");
    let mut client = connect(port);
    write!(client, "GET / HT").expect("sent");
    let ended = client.read_to_end(&mut rest).map_err(|e| e.kind());
    assert_eq!(ended, Err(ErrorKind::ConnectionReset));
    // The response precedes the request's body.
    let mut client = connect(port);
    write!(client, "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").expect("sent");
    let ended = client.read_to_end(&mut rest).map_err(|e| e.kind());
    assert_eq!(ended, Err(ErrorKind::ConnectionReset));
    // The location's value applies once there is one.
    let mut client = connect(port);
    write!(client, "POST /own HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").expect("sent");
    client.read_to_end(&mut rest).expect("a normal end");
    running.quit();
}

#[test]
fn without_temporary_files_a_slow_client_causes_none() {
    const SIZE: usize = 8 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let to = listener.local_addr().expect("address").port();
    let port = free_port();
    let more = format!(
        "location / {{ proxy_pass http://127.0.0.1:{to}; proxy_max_temp_file_size 0; }} location /ping {{ return 200 ok; }}"
    );
    let site = site(port, &more, "$status $body_bytes_sent");
    let running = site.start();
    let mut client = connect(port);
    write!(client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let (mut server, _) = listener.accept().expect("a connection");
    read_until(&mut server, "\r\n\r\n");
    let sending = std::thread::spawn(move || {
        write!(server, "HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").expect("written");
        server.write_all(&vec![b'x'; SIZE]).expect("written");
    });
    client.peek(&mut [0]).expect("a response");
    // The worker reads ahead of the client meanwhile.
    let mut other = Client::connect(port).expect("connected");
    for _ in 0..50 {
        assert_eq!(other.ask("GET /ping HTTP/1.1\r\nHost: a\r\n\r\n"), Ok((200, "ok".into())));
    }
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("the response");
    assert!(all.len() > SIZE && all.ends_with(b"x"), "{}", all.len());
    sending.join().expect("sent");
    assert!(!site.log().contains("temporary file"), "{}", site.log());
    drop(other);
    running.quit();
}
