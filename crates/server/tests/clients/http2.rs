//! HTTP/2 over real sockets: curl, the cost of floods, and independence of slow streams.

use crate::support;

use std::io::{Read, Write};
use std::process::Command;
use support::http2::{CONTINUATION, Client, DATA, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame};
use support::origin::{Origin, ok};
use support::{Site, free_port, private_kb, text};
fn site(port: u16, more: &str) -> Site {
    let conf = format!(
        "http {{ http2 on; {more} server {{ listen 127.0.0.1:{port}; root html; location /hello {{ return 200 hello; }} }} }}"
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    std::fs::write(site.path("html/big"), vec![b'x'; 3_000_000]).expect("a file");
    site
}

#[test]
fn a_stream_without_a_window_holds_up_no_other() {
    let port = free_port();
    let site = site(port, "");
    let running = site.start();
    let mut client = Client::connect(port);
    // The stream may have one octet; the connection's own window is opened.
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]));
    client.send(&frame(WINDOW_UPDATE, 0, 0, &1_000_000u32.to_be_bytes()));
    client.ask(1, "/big");
    client.ask(3, "/hello");
    client.send(&frame(WINDOW_UPDATE, 0, 3, &100u32.to_be_bytes()));
    assert_eq!(client.answer(3), ("200".into(), b"hello".to_vec()));
    // Other connections are not affected.
    let mut other = Client::connect(port);
    other.ask(1, "/hello");
    assert_eq!(other.answer(1), ("200".into(), b"hello".to_vec()));
    drop((client, other));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn frames_are_as_long_as_the_configuration_says() {
    const BODY_BYTES: usize = 100_000;
    // The response of a request that waits is sent in the same frames.
    for waits in ["", "auth_request /hello;"] {
        let lengths = frame_lengths(BODY_BYTES, &format!("http2_chunk_size 30k; {waits}"));
        assert_eq!(lengths, [30 * 1024, 30 * 1024, 30 * 1024, BODY_BYTES - 90 * 1024], "{waits}");
    }
}

/// Returns the lengths of the DATA frames with a file of so many octets.
fn frame_lengths(length: usize, more: &str) -> Vec<usize> {
    let port = free_port();
    let site = site(port, more);
    std::fs::write(site.path("html/some"), vec![b'x'; length]).expect("a file");
    let running = site.start();
    let mut client = Client::connect(port);
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 15, 0, 0, 0, 5, 0, 0, 0xff, 0xff]));
    client.send(&frame(WINDOW_UPDATE, 0, 0, &1_000_000u32.to_be_bytes()));
    client.ask(1, "/some");
    let mut lengths = Vec::new();
    while lengths.iter().sum::<usize>() < length {
        let (kind, _, _, payload) = client.next().expect("a frame");
        if kind == DATA {
            lengths.push(payload.len());
        }
    }
    drop(client);
    running.quit();
    site.assert_no_alerts();
    lengths
}

/// nginx: `ngx_http_writer`, `ngx_http_v2_close_stream`.
#[test]
fn a_stream_that_its_client_does_not_read_times_out() {
    const PROTOCOL_ERROR: u32 = 1;
    let port = free_port();
    let site = site(port, "send_timeout 50ms;");
    let running = site.start();
    let mut client = Client::connect(port);
    client.ask(1, "/big");
    let reset = std::iter::from_fn(|| client.next()).find(|(kind, ..)| *kind == RST_STREAM).expect("a reset");
    assert_eq!((reset.2, reset.3), (1, PROTOCOL_ERROR.to_be_bytes().to_vec()));
    site.wait_for_log(
        "client timed out (110: Connection timed out) while sending response to client, client: 127.0.0.1",
        1,
    );
    drop(client);
    running.quit();
}

#[test]
fn floods_end_their_connection_and_cost_little() {
    let port = free_port();
    let site = site(port, "keepalive_requests 1000000;");
    let running = site.start();
    let mut honest = Client::connect(port);
    honest.ask(1, "/hello");
    assert_eq!(honest.answer(1).0, "200");
    let before = private_kb(running.worker());
    const CALM: u32 = 11;
    let floods: [(&str, fn(&mut Client) -> Vec<u8>, u32); 8] = [
        (
            "rapid reset",
            |c| {
                let mut out = Vec::new();
                for n in 0..2000u32 {
                    let block = c.block("/big", &[]);
                    out.extend(frame(HEADERS, 5, 2 * n + 1, &block));
                    out.extend(frame(RST_STREAM, 0, 2 * n + 1, &8u32.to_be_bytes()));
                }
                out
            },
            CALM,
        ),
        // The client makes the server reset them: MadeYouReset.
        (
            "resets of ours",
            |c| {
                let mut out = Vec::new();
                for n in 0..2000u32 {
                    let block = c.block("/big", &[]);
                    out.extend(frame(HEADERS, 5, 2 * n + 1, &block));
                    out.extend(frame(WINDOW_UPDATE, 0, 2 * n + 1, &0u32.to_be_bytes()));
                }
                out
            },
            CALM,
        ),
        ("pings", |_| frame(PING, 0, 0, &[0; 8]).repeat(20_000), CALM),
        ("settings", |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 1, 0]).repeat(20_000), CALM),
        (
            "empty data",
            |c| {
                let block = c.block("/hello", &[]);
                [frame(HEADERS, 4, 1, &block), frame(DATA, 0, 1, &[]).repeat(20_000)].concat()
            },
            CALM,
        ),
        (
            "continuations",
            |c| {
                let block = c.block("/hello", &[]);
                [frame(HEADERS, 1, 1, &block), frame(CONTINUATION, 0, 1, &[0x86; 16_000]).repeat(1000)].concat()
            },
            CALM,
        ),
        (
            "a header bomb",
            |c| {
                // One large entry of the table, named 16,000 times.
                let mut block = c.block("/hello", &[("x-bomb", &"b".repeat(1900))]);
                block.extend([0xbe; 14_000]);
                frame(HEADERS, 5, 1, &block)
            },
            CALM,
        ),
        ("a window beyond its limit", |_| frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()), 3),
    ];
    for (name, flood, code) in floods {
        let mut client = Client::connect(port);
        let bytes = flood(&mut client);
        // The server may finish first.
        let _ = client.stream.write_all(&bytes);
        let seen = client.goaway();
        assert!(seen == code || seen == u32::MAX, "{name}: {seen}");
        honest.send(&frame(PING, 0, 0, &[7; 8]));
        while honest.next().expect("others go on").0 != PING {}
    }
    let more = private_kb(running.worker()).saturating_sub(before);
    assert!(more < 8 * 1024, "{more} KB more than before");
    drop(honest);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_cancelled_upload_is_logged_with_its_octets() {
    let port = free_port();
    let conf = format!(
        "http {{ http2 on; log_format own '$status $request_length'; access_log logs/own.log own;
        server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:1; }} }} }}"
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    let mut client = Client::connect(port);
    let block = client.block("/", &[]);
    client.send(&[frame(HEADERS, 4, 1, &block), frame(DATA, 0, 1, b"0123456789")].concat());
    // The server opens the window when it reads the body.
    while client.next().is_some_and(|(kind, _, stream, _)| (kind, stream) != (WINDOW_UPDATE, 1)) {}
    client.send(&frame(RST_STREAM, 0, 1, &8u32.to_be_bytes()));
    client.send(&frame(PING, 0, 0, b"12345678"));
    while client.next().is_some_and(|(kind, ..)| kind != PING) {}
    drop(client);
    running.quit();
    assert_eq!(site.read("logs/own.log"), format!("499 {}\n", block.len() + 10));
}

#[test]
fn cookies_and_ignored_fields_are_no_header_lines() {
    let port = free_port();
    let site = site(port, "max_headers 2;");
    let running = site.start();
    let mut client = Client::connect(port);
    let cases: [(&[(&str, &str)], &str); 3] = [
        (&[("cookie", "a=b"), ("x-a", "a"), ("x-b", "b")], "200"),
        (&[("x.dot", "d"), ("x-a", "a"), ("x-b", "b")], "200"),
        (&[("x-a", "a"), ("x-b", "b"), ("x-c", "c")], "400"),
    ];
    for (stream, (fields, status)) in (1..).step_by(2).zip(cases) {
        let block = client.block("/hello", fields);
        client.send(&frame(HEADERS, 5, stream, &block));
        assert_eq!(client.answer(stream).0, status, "{fields:?}");
    }
    drop(client);
    running.quit();
    site.assert_no_alerts();
}

/// RFC 9113, 8.2.1; nginx refuses such hosts, too.
#[test]
fn a_host_with_white_space_around_it_is_refused() {
    let port = free_port();
    let site = site(port, "");
    let running = site.start();
    let mut client = Client::connect(port);
    let usual = [(":method", "GET"), (":scheme", "http"), (":path", "/hello")];
    let cases = [
        ((":authority", "a"), "200"),
        ((":authority", " a"), "400"),
        ((":authority", "a "), "400"),
        ((":authority", "\ta"), "400"),
        (("host", "a\t"), "400"),
        (("host", " a"), "400"),
    ];
    for (stream, (host, status)) in (1..).step_by(2).zip(cases) {
        let mut block = Vec::new();
        for (name, value) in usual.into_iter().chain([host]) {
            // A literal without indexing (RFC 7541, 6.2.2).
            block.extend([&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat());
        }
        client.send(&frame(HEADERS, 5, stream, &block));
        assert_eq!(client.answer(stream).0, status, "{host:?}");
    }
    drop(client);
    running.quit();
    site.assert_no_alerts();
}

/// Answers one request with a header block.
fn answer_one(listener: &std::net::TcpListener, block: &[u8]) {
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).expect("a preface");
    let mut head = [0; 9];
    while head[3] != HEADERS {
        stream.read_exact(&mut head).expect("a frame");
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).expect("a payload");
    }
    stream.write_all(&[frame(SETTINGS, 0, 0, &[]), frame(HEADERS, 5, 1, block)].concat()).expect("sent");
    // Until the proxy closes.
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn a_server_of_http_2_without_server_and_date_gets_ours() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let behind = listener.local_addr().expect("an address").port();
    let port = free_port();
    let conf = format!(
        "http {{ server {{ listen 127.0.0.1:{port}; location / {{ proxy_http_version 2; proxy_pass http://127.0.0.1:{behind};
        proxy_pass_header Server; proxy_pass_header Date; }} }} }}"
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    // The static `:status: 204`, and a `content-type`, which responses without a reason phrase lose.
    let server = std::thread::spawn(move || answer_one(&listener, b"\x89\x0f\x10\x08text/css"));
    let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected");
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("an answer");
    let answer = text(&answer);
    assert!(answer.starts_with("HTTP/1.1 204 No Content\r\n") && answer.contains("\r\nServer: "), "{answer}");
    assert!(answer.contains("\r\nDate: ") && !answer.contains("text/css"), "{answer}");
    running.quit();
    server.join().expect("a server");
}

#[test]
fn curl_gets_what_http_1_gives() {
    if Command::new("curl").arg("--version").output().is_ok_and(|o| !support::text(&o.stdout).contains("HTTP2")) {
        eprintln!("curl without HTTP/2: not tested");
        return;
    }
    let (port, origin) = (free_port(), free_port());
    let conf = format!(
        "http {{ http2 on; client_max_body_size 10m; server {{ listen 127.0.0.1:{port}; root html;
         location /proxied/ {{ proxy_pass http://127.0.0.1:{origin}/; }} location /echo {{ proxy_pass http://127.0.0.1:{origin}; }} }}
         server {{ listen 127.0.0.1:{origin}; root html; location /echo {{ return 200 \"$request_method $content_length $http_cookie\"; }} }} }}"
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let big: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(site.path("html/big"), &big).expect("a file");
    let running = site.start();
    let curl = |arguments: &[&str]| {
        let output =
            Command::new("curl").args(["-s", "--max-time", "20", "--http2-prior-knowledge"]).args(arguments).output();
        output.expect("curl runs").stdout
    };
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    for path in ["/big", "/proxied/big"] {
        assert!(curl(&[&url(path)]) == big, "{path}");
    }
    assert!(curl(&["-r", "1000-1999", &url("/big")]) == big[1000..2000]);
    let file = format!("@{}", site.path("html/big").display());
    assert_eq!(support::text(&curl(&["--data-binary", &file, &url("/echo")])), "POST 3000000 ");
    assert_eq!(support::text(&curl(&["-H", "Cookie: a=1", "-H", "Cookie: b=2", &url("/echo")])), "GET  a=1; b=2");
    let head = support::text(&curl(&["-I", &url("/none")]));
    assert!(head.starts_with("HTTP/2 404"), "{head}");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_request_of_http_1_asks_for_http_2() {
    let (port, origin) = (free_port(), Origin::answering(|head| ok(&head.to_ascii_lowercase())));
    let conf = format!(
        "http {{ http2 on; access_log logs/a.log; server {{ listen 127.0.0.1:{port}; http2_upgrade on; server_name on; root html;
            location /pass {{ proxy_pass http://127.0.0.1:{}; proxy_set_header Upgrade $http_upgrade; }} }}
         server {{ listen 127.0.0.1:{port}; server_name off; return 200 $http_upgrade; }} }}",
        origin.port
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    std::fs::write(site.path("html/big"), vec![b'x'; 300_000]).expect("a file");
    let running = site.start();
    let curl = |path: &str, host: &str| {
        let url = format!("http://127.0.0.1:{port}{path}");
        let got = Command::new("curl")
            .args(["-s", "--http2", "-m", "20", "-w", "\\n%{http_code} %{http_version} %{size_download}", "-H"])
            .args([&format!("Host: {host}"), &url])
            .output()
            .expect("curl");
        text(&got.stdout)
    };
    assert!(curl("/big", "on").ends_with("\n200 2 300000"));
    let passed = curl("/pass", "on");
    assert!(passed.contains("get /pass http/1.1\r\n") && passed.contains("\n200 2 "), "{passed}");
    assert!(!passed.contains("upgrade") && !passed.contains("http2-settings"), "{passed}");
    // Where it is not on, it is a request like others.
    assert_eq!(curl("/", "off"), "h2c\n200 1.1 3");
    // Settings that cannot be are refused as they are in a frame: an initial window of 2^31 here.
    let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let head = "GET / HTTP/1.1\r\nHost: on\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AASAAAAA\r\n\r\n";
    client.write_all(head.as_bytes()).expect("sent");
    let mut got = Vec::new();
    let _ = client.shutdown(std::net::Shutdown::Write);
    client.read_to_end(&mut got).expect("an answer");
    assert!(got.starts_with(b"HTTP/1.1 101 ") && got.ends_with(&[0, 0, 0, 3]), "{got:?}");
    running.quit();
    site.assert_no_alerts();
}
