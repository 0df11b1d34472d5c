//! Order of messages between client and server: answers before the body, interim responses.

use crate::support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;
use support::client::read_until;
use support::{Site, free_port};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server that takes one connection.
fn origin(act: impl FnOnce(TcpStream) + Send + 'static) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        act(stream);
    });
    (port, thread)
}

fn site(port: u16, to: u16, more: &str) -> Site {
    let http = format!(
        "http {{ client_body_temp_path body; proxy_temp_path proxy;
            server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{to}; {more} }} }} }}"
    );
    Site::new("daemon off;", &http)
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream
}

#[test]
fn an_answer_that_comes_before_the_body_is_passed_on_at_once() {
    let (to, thread) = origin(|mut stream| {
        let asked = read_until(&mut stream, "first");
        assert!(asked.contains("Content-Length: 100000\r\n"), "{asked}");
        // An interim answer does not end the sending.
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").expect("written");
        if !asked.contains("second") {
            read_until(&mut stream, "second");
        }
        stream.write_all(b"HTTP/1.1 413 Too Much\r\nContent-Length: 4\r\n\r\nstop").expect("written");
        // The connection cannot be used again: it is closed.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    });
    let port = free_port();
    let site = site(port, to, "proxy_request_buffering off;");
    let running = site.start();
    let mut client = connect(port);
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nfirst").expect("written");
    client.write_all(b"second").expect("written");
    let answer = read_until(&mut client, "stop");
    assert!(
        answer.starts_with("HTTP/1.1 413 Too Much\r\n") && answer.contains("\r\nConnection: close\r\n"),
        "{answer}"
    );
    drop(client);
    thread.join().expect("the origin's view");
    running.quit();
}

#[test]
fn early_hints_go_to_clients_that_know_them() {
    for (version, condition, want) in [("1.1", "$arg_hints", true), ("1.1", "0", false), ("1.0", "1", false)] {
        let (to, thread) = origin(|mut stream| {
            read_until(&mut stream, "\r\n\r\n");
            let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nServer: hidden\r\n\r\n";
            stream.write_all(format!("{hints}{hints}").as_bytes()).expect("written");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody").expect("written");
        });
        let port = free_port();
        let site = site(port, to, &format!("early_hints {condition};"));
        let running = site.start();
        let mut client = connect(port);
        let request = format!("GET /?hints=1 HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).expect("written");
        let answer = read_until(&mut client, "body");
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
        assert_eq!(answer.starts_with(&format!("{hints}{hints}HTTP/1.1 200 OK\r\n")), want, "{version}: {answer}");
        assert_eq!(answer.starts_with("HTTP/1.1 200 OK\r\n"), !want, "{version}: {answer}");
        thread.join().expect("the origin's view");
        running.quit();
    }
}

#[test]
fn an_upgrade_that_nobody_asked_for_is_none() {
    let (to, thread) = origin(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        stream.write_all(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nraw").expect("written");
    });
    let port = free_port();
    let site = site(port, to, "");
    let running = site.start();
    let mut client = connect(port);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("written");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("readable");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 101 ") && !answer.contains("raw"), "{answer}");
    thread.join().expect("the origin's view");
    running.quit();
}

#[test]
fn bytes_of_a_computed_uri_stay_as_they_are() {
    let (to, thread) = origin(|mut stream| {
        let mut got = Vec::new();
        let mut buffer = [0; 4096];
        while !got.windows(4).any(|w| w == b"\r\n\r\n") {
            let n = stream.read(&mut buffer).expect("readable");
            assert!(n > 0, "ended early");
            got.extend_from_slice(&buffer[..n]);
        }
        assert!(got.starts_with(b"GET /x/\xff\x80a HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&got));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("written");
    });
    let port = free_port();
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{to}/x$request_uri; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let mut client = connect(port);
    client.write_all(b"GET /\xff\x80a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("written");
    read_until(&mut client, "ok");
    thread.join().expect("the origin's view");
    running.quit();
}

#[test]
fn bytes_of_a_tunnel_are_counted() {
    const HEAD: &str = "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";
    let (to, thread) = origin(|mut stream| {
        let asked = read_until(&mut stream, "\r\n\r\n");
        stream.write_all(HEAD.as_bytes()).expect("written");
        if !asked.ends_with("12345") {
            read_until(&mut stream, "12345");
        }
        stream.write_all(b"123456789").expect("written");
    });
    let port = free_port();
    let http = format!(
        "http {{ log_format z '$upstream_bytes_sent $upstream_bytes_received'; access_log logs/z.log z;
            server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{to};
                proxy_set_header Upgrade x; proxy_set_header Connection upgrade; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let mut client = connect(port);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n").expect("written");
    read_until(&mut client, "\r\n\r\n");
    client.write_all(b"12345").expect("written");
    read_until(&mut client, "123456789");
    drop(client);
    thread.join().expect("the origin's view");
    let request = format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{to}\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
    let line = support::wait("the line", || site.read("logs/z.log").lines().next().map(str::to_string).ok_or("none"));
    assert_eq!(line, format!("{} {}", request.len() + 5, HEAD.len() + 9));
    running.quit();
}

/// Four requests on one connection: a body that is not announced must not be sent, or it would be parsed as the next
/// request.
#[test]
fn a_body_that_is_not_passed_on_is_not_announced() {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (to, thread) = origin(|mut stream| {
        let mut all = String::new();
        for _ in 0..4 {
            all.push_str(&read_until(&mut stream, "\r\n\r\n"));
            stream.write_all(ANSWER).expect("written");
        }
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("the end");
        assert_eq!(rest, "");
        assert_eq!(
            all,
            "POST /len HTTP/1.1\r\nHost: x\r\nX-Last: 1\r\n\r\nPOST /chunked HTTP/1.1\r\nHost: x\r\nX-Last: 1\r\n\r\n\
             PUT /expect HTTP/1.1\r\nHost: x\r\nX-Last: 1\r\n\r\nPOST /set HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\
             X-Last: 1\r\n\r\n"
        );
    });
    let port = free_port();
    let http = format!(
        "http {{ upstream u {{ server 127.0.0.1:{to}; keepalive 1; }} proxy_pass_request_body off;
            server {{ listen 127.0.0.1:{port}; proxy_set_header Host x;
              location / {{ proxy_pass http://u; }}
              location /set {{ proxy_set_header Host x; proxy_set_header Content-Length 0; proxy_pass http://u; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    for head in [
        "POST /len HTTP/1.1\r\nContent-Length: 5\r\n",
        "POST /chunked HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
        "PUT /expect HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n",
        "POST /set HTTP/1.1\r\nContent-Length: 5\r\n",
    ] {
        let body = if head.contains("chunked") { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" };
        let mut client = connect(port);
        write!(client, "{head}Host: a\r\nX-Last: 1\r\nConnection: close\r\n\r\n{body}").expect("written");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    }
    running.quit();
    thread.join().expect("the origin's view");
}

#[test]
fn a_body_above_two_pages_is_buffered_to_a_file() {
    let answer = |mut stream: TcpStream| {
        read_until(&mut stream, "end");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").expect("written");
    };
    // An announced body may exceed the buffer by a quarter.
    for (length, is_filed) in [(10_000, false), (12_000, true)] {
        let (to, thread) = origin(answer);
        let port = free_port();
        let site = site(port, to, "");
        let running = site.start();
        let mut client = connect(port);
        let body = format!("{}end", "x".repeat(length - 3));
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        client.write_all((head + &body).as_bytes()).expect("written");
        read_until(&mut client, "ok");
        thread.join().expect("the server");
        assert_eq!(site.log().contains("a client request body is buffered to a temporary file"), is_filed, "{length}");
        running.quit();
    }
}
