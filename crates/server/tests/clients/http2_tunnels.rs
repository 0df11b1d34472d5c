//! WebSockets in streams of HTTP/2, and the order in which streams are sent.

use crate::support;

use support::http2::{Client, DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame};
use support::origin::Origin;
use support::{Site, free_port};

const CONNECT_ERROR: u32 = 10;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
const PRIORITY_UPDATE: u8 = 16;

fn websocket(client: &mut Client, stream: u32, path: &str, protocol: &str) {
    let mut block = Vec::new();
    client.encoder.begin(&mut block);
    let fields = [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
        ("sec-websocket-version", "13"),
    ];
    for (name, value) in fields {
        client.encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    client.send(&frame(HEADERS, 4, stream, &block));
}

/// Reads the next frame of a stream, and its header.
fn next(client: &mut Client, stream: u32) -> (u8, u8, Vec<u8>, Vec<(String, String)>) {
    let limits = http_types::ListLimits { bytes_max: 65_536, fields_max: 100, field_max: 65_536 };
    loop {
        let (kind, flags, id, payload) = client.next().expect("a frame");
        let mut fields = Vec::new();
        if kind == HEADERS {
            let list = client.decoder.decode(&payload, &limits).expect("a block");
            fields.extend(list.iter().map(|(n, v)| (support::text(n), support::text(v))));
        }
        if id == stream && (kind == HEADERS || kind == DATA || kind == RST_STREAM) {
            return (kind, flags, payload, fields);
        }
    }
}

#[test]
fn a_websocket_is_a_stream_to_the_client_and_an_upgrade_to_the_server() {
    // Sends the request head back, then echoes; closes on request.
    let origin = Origin::new(|mut talk| {
        let Some(head) = talk.request() else { return };
        if head.starts_with("GET /refused") {
            talk.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
            return;
        }
        if head.starts_with("GET /plain") {
            talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            return;
        }
        let lower = head.to_ascii_lowercase();
        let is_upgrade = head.starts_with("GET /ws HTTP/1.1\r\n")
            && lower.contains("\r\nupgrade: websocket\r\n")
            && lower.contains("\r\nconnection: upgrade\r\n")
            && lower.contains("\r\nsec-websocket-version: 13\r\n")
            && lower.lines().any(|line| line.starts_with("sec-websocket-key: ") && line.len() == 19 + 24);
        let answer = if is_upgrade { "first" } else { "wrong" };
        talk.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\nX-A: b\r\n\r\n",
        );
        talk.send(answer.as_bytes());
        while let Some(bytes) = talk.some() {
            if bytes == b"end" {
                return;
            }
            talk.send(&bytes);
        }
    });
    let (port, off) = (free_port(), free_port());
    let conf = format!(
        "http {{ http2 on; log_format l '$request $status $body_bytes_sent'; access_log logs/l.log l;
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{}; proxy_http_version 1.1;
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection; }} }}
         server {{ listen 127.0.0.1:{off}; http2_websockets off; return 200 off; }} }}",
        origin.port
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    let mut client = Client::connect(port);
    // It is offered, unless it is off.
    let offers = |client: &mut Client| {
        let (kind, _, _, payload) = client.next().expect("settings");
        assert_eq!(kind, SETTINGS);
        payload.chunks(6).any(|s| s[..2] == ENABLE_CONNECT_PROTOCOL.to_be_bytes() && s[2..] == [0, 0, 0, 1])
    };
    assert!(offers(&mut client));
    let mut other = Client::connect(off);
    assert!(!offers(&mut other));
    websocket(&mut other, 1, "/ws", "websocket");
    assert_eq!(other.answer(1).0, "400");
    drop(other);
    websocket(&mut client, 1, "/ws", "websocket");
    let (kind, flags, _, fields) = next(&mut client, 1);
    assert_eq!((kind, flags & 1), (HEADERS, 0));
    let value = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    assert_eq!((value(":status"), value("x-a")), (Some("200"), Some("b")));
    assert_eq!((value("upgrade"), value("connection"), value("sec-websocket-accept")), (None, None, None));
    assert_eq!(next(&mut client, 1).2, b"first");
    client.send(&frame(DATA, 0, 1, b"hello"));
    assert_eq!(next(&mut client, 1).2, b"hello");
    client.ask(3, "/plain");
    assert_eq!(client.answer(3), ("200".into(), b"ok".to_vec()));
    client.send(&frame(DATA, 0, 1, b"end"));
    let (kind, flags, payload, _) = next(&mut client, 1);
    assert_eq!((kind, flags & 1, payload.len()), (DATA, 1, 0), "the server's end is the stream's");
    // A refused tunnel gets a response; a response other than 2xx is no tunnel; other protocols are unknown.
    websocket(&mut client, 5, "/refused", "websocket");
    assert_eq!(client.answer(5), ("403".into(), b"no".to_vec()));
    websocket(&mut client, 7, "/plain", "websocket");
    let (kind, _, payload, _) = next(&mut client, 7);
    assert_eq!((kind, payload), (RST_STREAM, CONNECT_ERROR.to_be_bytes().to_vec()));
    websocket(&mut client, 9, "/ws", "connect-udp");
    assert_eq!(client.answer(9).0, "501");
    // One that the client leaves ends at the server, too.
    websocket(&mut client, 11, "/ws", "websocket");
    assert_eq!(next(&mut client, 11).0, HEADERS);
    client.send(&frame(RST_STREAM, 0, 11, &8u32.to_be_bytes()));
    drop(client);
    running.quit();
    let log = site.read("logs/l.log");
    assert!(log.contains("GET /ws HTTP/2.0 200 10\n"), "{log}");
    site.assert_no_alerts();
}

/// RFC 8441, 5: END_STREAM is a FIN. Browsers send it with their Close frame; later bytes of the server still arrive.
#[test]
fn a_client_that_has_ended_its_side_hears_the_server() {
    let origin = Origin::new(|mut talk| {
        if talk.request().is_none() {
            return;
        }
        talk.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
        let mut heard = Vec::new();
        // Until the client's end, which is passed on.
        while let Some(bytes) = talk.some() {
            heard.extend_from_slice(&bytes);
        }
        talk.send(&[b"heard ", &heard[..]].concat());
    });
    let port = free_port();
    let conf = format!(
        "http {{ http2 on; server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{};
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection; }} }} }}",
        origin.port
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    let mut client = Client::connect(port);
    websocket(&mut client, 1, "/ws", "websocket");
    assert_eq!(next(&mut client, 1).0, HEADERS);
    client.send(&frame(DATA, 1, 1, b"close"));
    let (kind, _, payload, _) = next(&mut client, 1);
    assert_eq!((kind, payload), (DATA, b"heard close".to_vec()));
    let (kind, flags, payload, _) = next(&mut client, 1);
    assert_eq!((kind, flags & 1, payload.len()), (DATA, 1, 0), "its end is the stream's, and nothing is reset");
    drop(client);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn urgent_streams_are_sent_first() {
    let port = free_port();
    let conf = format!("http {{ http2 on; server {{ listen 127.0.0.1:{port}; root html; }} }}");
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    std::fs::write(site.path("html/big"), vec![b'x'; 200_000]).expect("a file");
    let running = site.start();
    // The streams share the connection's window, in order of priority.
    let order = |fields: [&str; 3], update: Option<(u32, &str)>| {
        let mut client = Client::connect(port);
        client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0x7f, 0xff, 0xff]));
        for (n, field) in fields.iter().enumerate() {
            let more = [("priority", *field)];
            let block = client.block("/big", if field.is_empty() { &[] } else { &more });
            client.send(&frame(HEADERS, 5, 2 * n as u32 + 1, &block));
        }
        if let Some((stream, field)) = update {
            client.send(&frame(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes(), field.as_bytes()].concat()));
        }
        // All three have begun, and the first window is used up.
        let (mut heads, mut first) = (0, 65_535);
        while heads < 3 || first > 0 {
            let (kind, _, _, payload) = client.next().expect("a frame");
            heads += usize::from(kind == HEADERS);
            first -= if kind == DATA { payload.len() } else { 0 };
        }
        client.send(&frame(WINDOW_UPDATE, 0, 0, &600_000u32.to_be_bytes()));
        let mut ended = Vec::new();
        while ended.len() < 3 {
            let (kind, flags, id, _) = client.next().expect("a frame");
            if kind == DATA && flags & 1 == 1 {
                ended.push(id);
            }
        }
        ended
    };
    assert_eq!(order(["u=5", "u=3", "u=1"], None), [5, 3, 1]);
    assert_eq!(order(["u=6", "", "u=5"], None), [3, 5, 1]);
    assert_eq!(order(["u=5", "u=3", "u=1"], Some((1, "u=0"))), [1, 5, 3]);
    running.quit();
    site.assert_no_alerts();
}
