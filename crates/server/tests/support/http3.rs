//! A client of HTTP/3 over a real socket: `wire-h3`'s, driven step by step.

use super::Site;
use bytes::BytesMut;
use http_types::TakenLines;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, TransportConfig};
use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire_h3::client::{Client as Core, ClientEvent, ClientLimits};

/// Maximum wait of a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server over QUIC with one worker thread and `worker_connections`; `more` is part of its server block. `/` answers with "ok",
/// `/status` with the number of connections.
pub fn site(port: u16, connections: usize, more: &str) -> Site {
    let site = Site::new("", "");
    site.certify();
    site.write(
        "conf/nginx.conf",
        &format!(
            "error_log logs/error.log crit; daemon off; worker_processes 1; events {{ worker_connections {connections}; }}
            http {{ ssl_certificate a.crt; ssl_certificate_key a.key; access_log off;
                server {{ listen 127.0.0.1:{port} quic; {more}
                    location / {{ return 200 ok; }} location /status {{ stub_status; }} }} }}"
        ),
    );
    site
}

/// A response, possibly incomplete.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    pub whole: bool,
    pub reset: Option<u64>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub struct Client {
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    core: Core,
    pub answers: HashMap<u64, Answer>,
    pub connected: Option<bool>,
    pub goaway: Option<u64>,
    pub lost: Option<String>,
    /// Datagrams of a Retry and other answers are counted by their first octet.
    pub retried: bool,
}

/// Accepts any certificate; connections with one configuration resume each other's sessions.
pub fn config() -> ClientConfig {
    with(crypto())
}

/// Its ClientHello takes two datagrams, as those of browsers.
pub fn config_of_two_datagrams() -> ClientConfig {
    let others = (0..8).map(|at| vec![b'a' + at; 200]);
    with(crypto_of(others.chain([b"h3".to_vec()]).collect()))
}

fn with(crypto: Arc<QuicClientConfig>) -> ClientConfig {
    let mut config = ClientConfig::new(crypto);
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(None);
    config.transport_config(Arc::new(transport));
    config
}

pub fn crypto() -> Arc<QuicClientConfig> {
    crypto_of(vec![b"h3".to_vec()])
}

/// A handshake that offers these protocols.
pub fn crypto_of(protocols: Vec<Vec<u8>>) -> Arc<QuicClientConfig> {
    Arc::new(QuicClientConfig::try_from(tls_of(protocols)).expect("AES-128-GCM"))
}

/// TLS 1.3 without verification.
pub fn tls_of(protocols: Vec<Vec<u8>>) -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut crypto = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Believing))
        .with_no_client_auth();
    crypto.alpn_protocols = protocols;
    crypto.enable_early_data = true;
    crypto
}

fn bind(ip: &str) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout");
    socket
}

impl Client {
    pub fn connect(port: u16, name: &str, config: &ClientConfig) -> Client {
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let to = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let (handle, quic) = endpoint.connect(Instant::now(), config.clone(), to, name).expect("a connection");
        let core = Core::new(quic, ClientLimits::default());
        Client {
            socket: bind("127.0.0.1"),
            endpoint,
            handle,
            core,
            answers: HashMap::new(),
            connected: None,
            goaway: None,
            lost: None,
            retried: false,
        }
    }
    /// True when the connection could send requests before its handshake.
    pub fn has_early(&mut self) -> bool {
        self.core.quic().has_0rtt()
    }
    /// Simulates another port of the client.
    pub fn move_on(&mut self) {
        self.move_to("127.0.0.1");
    }
    /// Simulates another address of the client.
    pub fn move_to(&mut self, ip: &str) {
        self.socket = bind(ip);
    }
    pub fn ask(&mut self, fields: &[(&str, &str)], body: Option<&[u8]>) -> u64 {
        let mut lines = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let stream = self.core.open(&mut lines, body.is_none()).expect("a free stream");
        if let Some(body) = body {
            let mut at = 0;
            while at < body.len() {
                at += self.core.send_body(stream, &body[at..], false);
                self.step();
            }
            self.core.send_body(stream, b"", true);
        }
        stream
    }
    pub fn get(&mut self, host: &str, path: &str) -> u64 {
        self.ask(&[(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", path)], None)
    }
    /// A request as soon as the handshake has ended.
    pub fn get_when_connected(&mut self, path: &str) -> u64 {
        self.until("the handshake", |client| client.connected.is_some());
        self.get("localhost", path)
    }
    /// Sends packets of full size with meaningless octets on request streams.
    pub fn fill(&mut self, octets: usize) {
        let mut left = octets;
        while left > 0 {
            let quic = self.core.quic();
            let Some(id) = quic.streams().open(quinn_proto::Dir::Bi) else { return };
            left -= quic.send_stream(id).write(&vec![0; left.min(60_000)]).unwrap_or(0);
            self.step();
        }
    }
    /// Opens a stream and writes octets of the test's own to it.
    pub fn open(&mut self, dir: quinn_proto::Dir, octets: &[u8], end: bool) -> u64 {
        self.try_open(dir, octets, end).expect("a free stream")
    }
    /// As [`Client::open`]; `None` without a free stream.
    pub fn try_open(&mut self, dir: quinn_proto::Dir, octets: &[u8], end: bool) -> Option<u64> {
        let id = self.core.quic().streams().open(dir)?;
        self.write(id.into(), octets, end);
        Some(id.into())
    }
    /// Writes octets of the test's own to a stream, as far as the server takes them. Returns their number.
    pub fn write(&mut self, stream: u64, octets: &[u8], end: bool) -> usize {
        let id = quinn_proto::VarInt::from_u64(stream).expect("a stream").into();
        let mut quic = self.core.quic().send_stream(id);
        let written = quic.write(octets).unwrap_or(0);
        if end && written == octets.len() {
            quic.finish().expect("an open stream");
        }
        written
    }
    /// Sends a datagram of the test's own from the connection's address.
    pub fn send_datagram(&self, port: u16, octets: &[u8]) {
        self.socket.send_to(octets, ("127.0.0.1", port)).expect("sent");
    }
    pub fn cancel(&mut self, stream: u64) {
        self.core.cancel(stream);
        self.step();
    }
    pub fn close(&mut self) {
        self.core.close(Instant::now());
        self.send();
    }

    fn send(&mut self) {
        loop {
            let mut buf = Vec::new();
            while let Some(event) = self.core.quic().poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.core.quic().handle_event(event);
                }
            }
            let Some(transmit) = self.core.quic().poll_transmit(Instant::now(), 1, &mut buf) else { return };
            let _ = self.socket.send_to(&buf[..transmit.size], transmit.destination);
        }
    }

    /// Sends what waits, and receives nothing.
    pub fn send_alone(&mut self) {
        self.send();
    }

    /// Sends, receives for a moment, and handles the received datagrams.
    pub fn step(&mut self) {
        self.send();
        let mut buf = [0; 65_536];
        while let Ok((n, from)) = self.socket.recv_from(&mut buf) {
            // A long header of the type Retry.
            self.retried |= buf[0] & 0xf0 == 0xf0;
            let mut reply = Vec::new();
            let bytes = BytesMut::from(&buf[..n]);
            let event = self.endpoint.handle(Instant::now(), from, None, None, bytes, &mut reply);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.core.quic().handle_event(event);
            }
            self.take_in();
            self.send();
        }
        if self.core.quic().poll_timeout().is_some_and(|at| at <= Instant::now()) {
            self.core.quic().handle_timeout(Instant::now());
        }
        self.take_in();
    }

    fn take_in(&mut self) {
        self.core.drive();
        assert_eq!(self.core.failure(), None);
        while let Some(event) = self.core.poll_event() {
            match event {
                ClientEvent::Connected { early_accepted } => self.connected = Some(early_accepted),
                ClientEvent::Head { stream, status, list, .. } if status >= 200 => {
                    let answer = self.answers.entry(stream).or_default();
                    (answer.status, answer.fields) = (status, texts(&list));
                }
                ClientEvent::Body(stream) => loop {
                    let answer = self.answers.entry(stream).or_default();
                    match self.core.take_body(stream) {
                        TakenLines::Bytes(bytes) => answer.body.extend_from_slice(&bytes),
                        TakenLines::End => {
                            answer.whole = true;
                            break;
                        }
                        _ => break,
                    }
                },
                ClientEvent::Trailers { stream, list } => {
                    self.answers.entry(stream).or_default().trailers = texts(&list);
                }
                ClientEvent::Reset { stream, code } => self.answers.entry(stream).or_default().reset = Some(code),
                ClientEvent::Goaway(id) => self.goaway = Some(id),
                ClientEvent::Lost(why) => self.lost = Some(why),
                _ => {}
            }
        }
    }

    /// As [`Client::step`], without waiting for a datagram.
    pub fn poke(&mut self) {
        self.socket.set_nonblocking(true).expect("a socket");
        self.step();
        self.socket.set_nonblocking(false).expect("a socket");
    }

    /// Runs until a condition is met.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Client) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < end, "waited for {what}; lost: {:?}", self.lost);
            self.step();
        }
    }
    pub fn answer(&mut self, stream: u64) -> Answer {
        self.until("an answer", |client| {
            client.answers.get(&stream).is_some_and(|answer| answer.whole || answer.reset.is_some())
                || client.lost.is_some()
        });
        self.answers.get(&stream).cloned().unwrap_or_else(|| panic!("no answer; lost: {:?}", self.lost))
    }
}

fn texts(list: &http_types::List) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    list.iter().map(|(name, value)| (text(name), text(value))).collect()
}

/// Accepts every certificate.
#[derive(Debug)]
pub struct Believing;

impl rustls::client::danger::ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
