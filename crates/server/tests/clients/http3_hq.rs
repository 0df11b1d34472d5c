//! HTTP/0.9 over QUIC (`http3_hq`): a request line a stream, answered by a body.

use crate::support;

use bytes::BytesMut;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event, StreamEvent,
    StreamId, VarInt,
};
use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::http3::{Client, config, crypto_of};
use support::{Site, free_port};

/// Maximum wait of a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client that writes and reads octets of streams.
struct Raw {
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    quic: Connection,
    connected: bool,
    lost: Option<String>,
    /// Octets of streams, and `true` once the server has ended them; resets have their code.
    read: HashMap<StreamId, (Vec<u8>, bool)>,
    resets: HashMap<StreamId, u64>,
    /// Streams that the server has opened.
    opened: usize,
}

impl Raw {
    fn connect(port: u16, name: &str, protocols: &[&str]) -> Raw {
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let config = ClientConfig::new(crypto_of(protocols));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout");
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let to = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let (handle, quic) = endpoint.connect(Instant::now(), config, to, name).expect("a connection");
        let (read, resets) = (HashMap::new(), HashMap::new());
        let mut raw = Raw { socket, endpoint, handle, quic, connected: false, lost: None, read, resets, opened: 0 };
        raw.until("the handshake's end", |raw| raw.connected || raw.lost.is_some());
        raw
    }

    fn send(&mut self) {
        loop {
            let mut buf = Vec::new();
            while let Some(event) = self.quic.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.quic.handle_event(event);
                }
            }
            let Some(transmit) = self.quic.poll_transmit(Instant::now(), 1, &mut buf) else { return };
            let _ = self.socket.send_to(&buf[..transmit.size], transmit.destination);
        }
    }

    fn step(&mut self) {
        self.send();
        let mut buf = [0; 65_536];
        if let Ok((n, from)) = self.socket.recv_from(&mut buf) {
            let event =
                self.endpoint.handle(Instant::now(), from, None, None, BytesMut::from(&buf[..n]), &mut Vec::new());
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.quic.handle_event(event);
            }
        }
        if self.quic.poll_timeout().is_some_and(|at| at <= Instant::now()) {
            self.quic.handle_timeout(Instant::now());
        }
        while let Some(event) = self.quic.poll() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason.to_string()),
                Event::Stream(StreamEvent::Opened { .. }) => self.opened += 1,
                Event::Stream(StreamEvent::Readable { id }) => self.take(id),
                _ => {}
            }
        }
        self.send();
    }
    fn take(&mut self, id: StreamId) {
        let mut stream = self.quic.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return };
        let (bytes, ended) = self.read.entry(id).or_default();
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
                Ok(None) => {
                    *ended = true;
                    break;
                }
                Err(quinn_proto::ReadError::Reset(code)) => {
                    self.resets.insert(id, code.into_inner());
                    break;
                }
                Err(_) => break,
            }
        }
        let _ = chunks.finalize();
    }
    fn until(&mut self, what: &str, holds: impl Fn(&Raw) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < end, "waited for {what}; lost: {:?}", self.lost);
            self.step();
        }
    }

    /// Opens a stream with these octets.
    fn open(&mut self, bytes: &str, end: bool) -> StreamId {
        let id = self.quic.streams().open(Dir::Bi).expect("a stream");
        assert_eq!(self.quic.send_stream(id).write(bytes.as_bytes()), Ok(bytes.len()));
        if end {
            self.quic.send_stream(id).finish().expect("an open stream");
        }
        id
    }
    fn answer(&mut self, id: StreamId) -> Vec<u8> {
        self.until("an answer", |raw| raw.read.get(&id).is_some_and(|(_, ended)| *ended) || raw.lost.is_some());
        self.read.get(&id).map(|(bytes, _)| bytes.clone()).unwrap_or_default()
    }
    fn ask(&mut self, line: &str) -> String {
        let id = self.open(line, true);
        String::from_utf8_lossy(&self.answer(id)).into_owned()
    }
}

fn site(http: &str) -> Site {
    let site = Site::new("", "");
    site.certify();
    let tls = "ssl_certificate a.crt; ssl_certificate_key a.key;";
    site.configure("daemon off; error_log logs/error.log info;", &format!("http {{ {tls} {http} }}"));
    site
}

#[test]
fn a_line_is_answered_by_a_body() {
    let port = free_port();
    let site = site(&format!(
        "http3_hq on; client_header_timeout 4s; large_client_header_buffers 4 2k;
        log_format l '$http3|$request|$server_protocol|$status|$body_bytes_sent'; access_log logs/access.log l;
        server {{ listen 127.0.0.1:{port} quic; server_name localhost; root html; add_header x-y z;
            location / {{ return 200 \"$http3 $request_method $uri $args $host\"; }}
            location /file {{ }} location /empty {{ return 204; }}
            location /proxied {{ proxy_pass http://127.0.0.1:1; error_page 502 =200 @own; }}
            location @own {{ return 200 own; }} }}
        server {{ listen 127.0.0.1:{port} quic; server_name off; http3_hq off; return 200 no; }}"
    ));
    let body: Vec<u8> = (0..700_000).map(|at| (at % 251) as u8).collect();
    std::fs::write(site.path("html/file"), &body).expect("written");
    let running = site.start();

    let mut client = Raw::connect(port, "localhost", &["hq-interop"]);
    assert_eq!(client.ask("GET /a?b=c\r\n"), "hq GET /a b=c localhost");
    assert_eq!(client.ask("GET /%61\n"), "hq GET /a  localhost", "a line may end with LF alone");
    // Streams beside each other, one of them without an end of the client's side, and a line in pieces.
    let file = client.open("GET /file\r\n", false);
    let pieces = client.open("GET /pie", false);
    let empty = client.open("GET /empty\r\n", true);
    assert!(client.answer(file) == body);
    assert_eq!(client.answer(empty), b"");
    client.quic.send_stream(pieces).write(b"ces\r").expect("written");
    client.step();
    client.quic.send_stream(pieces).write(b"\nGET /more\r\n").expect("written");
    assert_eq!(client.answer(pieces), b"hq GET /pieces  localhost");
    assert_eq!(client.ask("GET /proxied\r\n"), "own");
    // Requests that HTTP/0.9 does not have.
    for line in ["POST /a\r\n", "GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n", "GET\r\n", "\r\n", "GET a\r\n", "\0\n"] {
        assert!(client.ask(line).contains("400 Bad Request"), "{line:?}");
    }
    assert!(client.ask(&format!("GET /{}\r\n", "a".repeat(5000))).contains("414 Request-URI Too Large"));
    // A line without an end is no request.
    let cut = client.open("GET /cut", true);
    client.until("a reset", |client| client.resets.contains_key(&cut));
    // No SETTINGS, no QPACK.
    assert_eq!(client.opened, 0);
    assert_eq!(client.lost, None);
    let late = client.open("GET /late", false);
    client.until("the end of a late line", |client| client.resets.contains_key(&late));
    client.quic.close(Instant::now(), VarInt::from_u32(0), BytesMut::new().freeze());
    client.send();

    // Clients of HTTP/3 are served beside it, and the server's order decides.
    let mut both = Client::connect(port, "localhost", &config());
    let stream = both.get_when_connected("/a");
    assert_eq!(both.answer(stream).text(), "h3 GET /a  localhost");
    both.close();
    let server_prefers = Raw::connect(port, "localhost", &["hq-interop", "h3"]);
    let protocol = server_prefers.quic.crypto_session().handshake_data().expect("data");
    let protocol = protocol.downcast::<quinn_proto::crypto::rustls::HandshakeData>().expect("rustls's").protocol;
    assert_eq!(protocol.as_deref(), Some(&b"h3"[..]));
    // A server without the protocol refuses the handshake.
    let refused = Raw::connect(port, "off", &["hq-interop"]);
    assert!(refused.lost.as_ref().is_some_and(|why| why.contains("120")), "{:?}", refused.lost);

    running.quit();
    let log = std::fs::read_to_string(site.path("logs/access.log")).expect("a log");
    assert!(log.contains("hq|GET /a?b=c|-|200|23\n"), "{log}");
    assert!(log.contains("hq|GET /file|-|200|700000\n"), "{log}");
    site.assert_no_alerts();
}

#[test]
fn http3_may_be_off() {
    let port = free_port();
    let site =
        site(&format!("server {{ listen 127.0.0.1:{port} quic; http3 off; http3_hq on; return 200 \"$http3\"; }}"));
    let running = site.start();
    let mut client = Raw::connect(port, "localhost", &["h3", "hq-interop"]);
    assert_eq!(client.ask("GET /\r\n"), "hq");
    // Streams of one direction belong to HTTP/3.
    let id = client.quic.streams().open(Dir::Uni).expect("a stream");
    client.quic.send_stream(id).write(&[0]).expect("written");
    client.until("the connection's end", |client| client.lost.is_some());
    assert!(client.lost.as_ref().is_some_and(|why| why.contains("stream error")), "{:?}", client.lost);
    let refused = Raw::connect(port, "localhost", &["h3"]);
    assert!(refused.lost.is_some());
    running.quit();
    site.assert_no_alerts();
}
