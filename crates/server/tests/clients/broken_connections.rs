//! Connections that fail below the protocols: nginx's lines about them, and the statuses of attempts.

use crate::support;

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;
use support::client::{Client, get, read_until};
use support::origin::Origin;
use support::{Site, free_port, mail, wait};

const MAIN: &str = "daemon off; worker_processes 1;";
const RESET: &str = "recv() failed (104: Connection reset by peer)";

fn connect(port: u16) -> TcpStream {
    let stream = wait("a connection", || TcpStream::connect(("127.0.0.1", port)));
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream
}

/// Ends with RST instead of FIN.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("lingers");
}

/// Greets with a word, and resets the connection when something arrives.
fn fickle() -> Origin {
    Origin::new(|mut talk| {
        talk.send(b"hello");
        talk.some();
        talk.reset();
    })
}

/// Waits for a line of the error log, which must have this level.
fn expect_line(site: &Site, level: &str, words: &str) {
    site.wait_for_log(words, 1);
    let level = format!("[{level}]");
    assert!(site.log().lines().any(|line| line.contains(&level) && line.contains(words)), "{}", site.log());
}

#[test]
fn resets_of_both_sides_of_a_session_are_logged() {
    let (origin, port) = (fickle(), free_port());
    let server = format!("server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{}; }}", origin.port);
    let site = Site::new(MAIN, &format!("stream {{ {server} }}"));
    let running = site.start();
    let mut client = connect(port);
    read_until(&mut client, "hello");
    client.write_all(b"x").expect("sent");
    let _ = client.read(&mut [0; 16]);
    let of_server = format!(
        "{RESET} while proxying and reading from upstream, client: 127.0.0.1, server: 127.0.0.1:{port}, \
         upstream: \"127.0.0.1:{}\", bytes from/to client:1/5, bytes from/to upstream:5/1",
        origin.port
    );
    expect_line(&site, "error", &of_server);
    site.wait_for_log("upstream disconnected, bytes from/to client:1/5", 1);
    let mut client = connect(port);
    read_until(&mut client, "hello");
    reset(client);
    let of_client = format!("{RESET} while proxying and reading from client, client: 127.0.0.1");
    expect_line(&site, "info", &of_client);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn resets_of_an_upgraded_connection_are_logged() {
    const HEAD: &str = "HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";
    let origin = Origin::new(|mut talk| {
        talk.request();
        talk.send(format!("{HEAD}hello").as_bytes());
        talk.some();
        talk.reset();
    });
    let port = free_port();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ log_format l '$upstream_bytes_received'; access_log logs/l.log l;
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{};
                 proxy_set_header Upgrade x; proxy_set_header Connection upgrade; }} }} }}",
            origin.port
        ),
    );
    let running = site.start();
    for path in ["/server", "/client"] {
        let mut client = connect(port);
        write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n").expect("sent");
        read_until(&mut client, "hello");
        if path == "/client" {
            reset(client);
        } else {
            client.write_all(b"x").expect("sent");
            let _ = client.read(&mut [0; 16]);
        }
        let upstream = format!("upstream: \"http://127.0.0.1:{}{path}\"", origin.port);
        site.wait_for_log(&upstream, 1);
        let log = site.log();
        let line = log.lines().find(|line| line.contains(&upstream)).expect("a line");
        let level = if path == "/client" { "[info]" } else { "[error]" };
        assert!(
            line.contains(level) && line.contains(&format!("{RESET} while proxying upgraded connection")),
            "{line}"
        );
    }
    // Bytes that came with the head count once.
    let line = format!("{}\n", HEAD.len() + 5);
    wait("lines", || (site.read("logs/l.log") == line.repeat(2)).then_some(()).ok_or_else(|| site.read("logs/l.log")));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_reset_during_a_response_is_logged() {
    let port = free_port();
    let site = Site::new(MAIN, &format!("http {{ server {{ listen 127.0.0.1:{port}; root html; }} }}"));
    // More than the buffers of both sockets.
    site.write("html/big", &"x".repeat(32 << 20));
    let running = site.start();
    let mut client = connect(port);
    write!(client, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    read_until(&mut client, "200 OK");
    reset(client);
    expect_line(&site, "info", "client prematurely closed connection");
    expect_line(&site, "info", "while sending response to client");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_reset_of_a_mail_server_is_logged() {
    let pop3 = mail::server(|mut reader| {
        for answer in ["+OK ready", "+OK", "+OK in"] {
            mail::say(&mut reader, &format!("{answer}\r\n"));
            mail::line(&mut reader);
        }
        reset(reader.into_inner());
    });
    let (auth, _) = mail::auth(move |_| mail::pass_to(pop3, ""));
    let port = free_port();
    let server = format!("server {{ listen 127.0.0.1:{port}; protocol pop3; }}");
    let site = Site::new(MAIN, &format!("mail {{ auth_http 127.0.0.1:{auth}/; {server} }}"));
    let running = site.start();
    let mut client = mail::Client::greeted(port);
    assert_eq!(client.ask("USER user"), "+OK");
    assert_eq!(client.ask("PASS secret"), "+OK in");
    client.send("LIST\r\n");
    let words = format!("{RESET} while proxying and reading from upstream, client: 127.0.0.1");
    expect_line(&site, "error", &words);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_socket_that_does_not_exist_is_critical() {
    let port = free_port();
    let site = Site::new(MAIN, "");
    let socket = site.path("none");
    let socket = socket.display();
    site.configure(MAIN, &format!("stream {{ server {{ listen 127.0.0.1:{port}; proxy_pass unix:{socket}; }} }}"));
    let running = site.start();
    let _ = connect(port).read(&mut [0; 16]);
    let words =
        format!("connect() to unix:{socket} failed (2: No such file or directory) while connecting to upstream");
    expect_line(&site, "crit", &words);
    running.quit();
}

#[test]
fn handshakes_that_servers_do_not_finish_have_statuses_of_their_kind() {
    let silent = Origin::new(|mut talk| while talk.some().is_some() {});
    let fickle = Origin::new(|mut talk| {
        talk.some();
        talk.reset();
    });
    let port = free_port();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ log_format l '$status $upstream_status'; access_log logs/l.log l; proxy_connect_timeout 50ms;
             upstream two {{ server 127.0.0.1:{silent}; server 127.0.0.1:{silent}; }}
             upstream mixed {{ server 127.0.0.1:{silent}; server 127.0.0.1:{fickle}; }}
             server {{ listen 127.0.0.1:{port};
                location /two {{ proxy_pass https://two; }} location /mixed {{ proxy_pass https://mixed; }} }} }}",
            silent = silent.port,
            fickle = fickle.port
        ),
    );
    let running = site.start();
    let ask = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        Client::connect(port).and_then(|mut client| client.ask(&request)).expect("a response").0
    };
    assert_eq!((ask("/two"), ask("/mixed")), (504, 502));
    let lines = "504 504, 504\n502 504, 502\n";
    wait("lines", || (site.read("logs/l.log") == lines).then_some(()).ok_or_else(|| site.read("logs/l.log")));
    let log = site.log();
    assert_eq!(
        log.matches("upstream server temporarily disabled while SSL handshaking to upstream").count(),
        4,
        "{log}"
    );
    // As in nginx, the lines of a timeout are in this order.
    let at = |words: &str| log.find(words).expect(words);
    assert!(at("upstream server temporarily disabled") < at("upstream timed out"), "{log}");
    let words =
        "peer closed connection in SSL handshake (104: Connection reset by peer) while SSL handshaking to upstream";
    assert!(log.contains(words), "{log}");
    running.quit();
    site.assert_no_alerts();
}

/// Ways of a request: in place, and as a task, which a variable requires.
#[test]
fn a_client_that_leaves_a_silent_server_leaves_the_url_in_the_log() {
    let (heard, requests) = std::sync::mpsc::channel();
    let heard = std::sync::Mutex::new(heard);
    let origin = Origin::new(move |mut talk| {
        while let Some(bytes) = talk.some() {
            let _ = heard.lock().expect("a lock").send(bytes);
        }
    });
    let until = |end: &[u8]| {
        let mut all = Vec::new();
        while !all.ends_with(end) {
            all.extend(requests.recv().expect("a request"));
        }
    };
    let port = free_port();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{to}; }}
             location /task {{ set $to 127.0.0.1:{to}; proxy_pass http://$to; }}
             location /body {{ proxy_pass http://127.0.0.1:{to}; proxy_request_buffering off; }} }} }}",
            to = origin.port
        ),
    );
    let running = site.start();
    for path in ["/place/a?b=1", "/task/a?b=1"] {
        let mut client = connect(port);
        write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        until(b"\r\n\r\n");
        drop(client);
        site.wait_for_log(
            &format!(
                "so upstream connection is closed too while sending request to upstream, client: 127.0.0.1, server: , \
                 request: \"GET {path} HTTP/1.1\", upstream: \"http://127.0.0.1:{}{path}\"",
                origin.port
            ),
            1,
        );
    }
    let mut client = connect(port);
    write!(client, "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12").expect("sent");
    until(b"\r\n\r\n12");
    drop(client);
    site.wait_for_log(
        &format!(
            "client prematurely closed connection while sending request to upstream, client: 127.0.0.1, server: , \
             request: \"POST /body HTTP/1.1\", upstream: \"http://127.0.0.1:{}/body\"",
            origin.port
        ),
        1,
    );
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_datagram_server_without_responses_is_disabled() {
    let (port, web) = (free_port(), free_port());
    let (dead, live) = (UdpSocket::bind("127.0.0.1:0").expect("bind"), UdpSocket::bind("127.0.0.1:0").expect("bind"));
    let at = |socket: &UdpSocket| socket.local_addr().expect("address").port();
    let site = Site::new(
        MAIN,
        &format!(
            "stream {{ upstream u {{ server 127.0.0.1:{}; server 127.0.0.1:{} backup; }}
             server {{ listen 127.0.0.1:{port} udp; proxy_pass u; proxy_responses 1; proxy_timeout 20ms; }} }}
             http {{ server {{ listen 127.0.0.1:{web}; return 200 here; }} }}",
            at(&dead),
            at(&live)
        ),
    );
    let running = site.start();
    assert_eq!(get(web).expect("a response").0, 200);
    let client = UdpSocket::bind("127.0.0.1:0").expect("bind");
    client.send_to(b"one", ("127.0.0.1", port)).expect("sent");
    site.wait_for_log("upstream server temporarily disabled while proxying connection, udp client: 127.0.0.1", 1);
    client.send_to(b"two", ("127.0.0.1", port)).expect("sent");
    live.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut buf = [0; 16];
    let (n, _) = live.recv_from(&mut buf).expect("a datagram");
    assert_eq!(&buf[..n], b"two");
    running.quit();
    site.assert_no_alerts();
}
