//! A server and a client in one thread, over a network that loses, repeats and reorders datagrams under a virtual clock.

#![allow(dead_code, reason = "each test uses a part of it")]

use bytes::BytesMut;
use http_types::{Event, StreamMux, TakenLines};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event as QuicEvent,
    ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wire_h3::client::{Client, ClientEvent, ClientLimits};
use wire_h3::{Limits, Server};

/// The network's faults, in thousandths of datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub seed: u64,
    pub loss: u64,
    pub twice: u64,
    /// Of these, some come up to 40 ms late and behind others.
    pub late: u64,
}

pub use testkit::Random;

/// One end of a connection.
pub trait End {
    fn quic(&mut self) -> &mut Connection;
    fn drive(&mut self, now: Instant);
}

impl End for Server {
    fn quic(&mut self) -> &mut Connection {
        Server::quic(self)
    }
    fn drive(&mut self, now: Instant) {
        Server::drive(self);
        if self.failure().is_some() {
            self.close(now);
        }
    }
}

impl End for Client {
    fn quic(&mut self) -> &mut Connection {
        Client::quic(self)
    }
    fn drive(&mut self, now: Instant) {
        Client::drive(self);
        if self.failure().is_some() {
            self.close(now);
        }
    }
}

/// A client that writes octets to streams itself.
pub struct Raw {
    quic: Connection,
    pub connected: bool,
    pub lost: Option<String>,
    /// Octets of streams that came, and whether those have ended.
    pub read: HashMap<u64, (Vec<u8>, bool)>,
    pub resets: HashMap<u64, u64>,
    /// Nothing is read: the server's windows stay shut.
    pub deaf: bool,
}

impl Raw {
    /// Opens a stream and writes to it.
    pub fn open(&mut self, dir: Dir, bytes: &[u8], end: bool) -> Option<StreamId> {
        let id = self.quic.streams().open(dir)?;
        self.write(id, bytes, end);
        Some(id)
    }
    pub fn write(&mut self, id: StreamId, bytes: &[u8], end: bool) -> usize {
        let n = self.quic.send_stream(id).write(bytes).unwrap_or(0);
        if end && n == bytes.len() {
            let _ = self.quic.send_stream(id).finish();
        }
        n
    }
    /// Resets the client's side alone.
    pub fn reset_sending(&mut self, id: StreamId) {
        let _ = self.quic.send_stream(id).reset(VarInt::from_u32(0x10c));
    }
    pub fn reset(&mut self, id: StreamId) {
        self.reset_sending(id);
        if id.dir() == Dir::Bi {
            let _ = self.quic.recv_stream(id).stop(VarInt::from_u32(0x10c));
        }
    }
    fn take(&mut self, id: StreamId) {
        let mut stream = self.quic.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => self.read.entry(id.into()).or_default().0.extend_from_slice(&chunk.bytes),
                Ok(None) => self.read.entry(id.into()).or_default().1 = true,
                Err(quinn_proto::ReadError::Reset(code)) => {
                    self.resets.insert(id.into(), code.into_inner());
                    break;
                }
                Err(_) => break,
            }
            if self.read.get(&u64::from(id)).is_some_and(|(_, end)| *end) {
                break;
            }
        }
        let _ = chunks.finalize();
    }
}

impl End for Raw {
    fn quic(&mut self) -> &mut Connection {
        &mut self.quic
    }
    fn drive(&mut self, _: Instant) {
        while let Some(event) = self.quic.poll() {
            match event {
                QuicEvent::Connected => self.connected = true,
                QuicEvent::ConnectionLost { reason } => self.lost = Some(reason.to_string()),
                QuicEvent::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = self.quic.streams().accept(dir) {
                        self.take(id);
                    }
                }
                QuicEvent::Stream(StreamEvent::Readable { id }) if !self.deaf || id.dir() == Dir::Uni => self.take(id),
                _ => {}
            }
        }
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).expect("a certificate");
        Identity { certificate: made.cert.der().clone(), key: made.signing_key.serialize_der() }
    })
}

fn server_config(limits: &Limits) -> ServerConfig {
    let identity = identity();
    let key = PrivateKeyDer::try_from(identity.key.clone()).expect("a key");
    let mut crypto = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], key)
        .expect("a certificate that fits its key");
    crypto.alpn_protocols = vec![b"h3".to_vec()];
    crypto.max_early_data_size = u32::MAX;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(crypto).expect("AES-128-GCM")));
    config.transport = Arc::new(limits.transport());
    config
}

/// A client's configuration: connections that share one resume each other's sessions.
pub fn client_config(transport: TransportConfig) -> ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity().certificate.clone()).expect("a root");
    let mut crypto = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    crypto.alpn_protocols = vec![b"h3".to_vec()];
    crypto.enable_early_data = true;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(crypto).expect("AES-128-GCM")));
    config.transport_config(Arc::new(transport));
    config
}

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Server,
    Client,
}

pub struct Pair<C: End> {
    pub now: Instant,
    pub begin: Instant,
    pub faults: Faults,
    random: Random,
    server_endpoint: Endpoint,
    client_endpoint: Endpoint,
    server_handle: Option<ConnectionHandle>,
    client_handle: ConnectionHandle,
    limits: Limits,
    pub server: Option<Server>,
    pub client: C,
    wire: BTreeMap<(Instant, u64), (To, Vec<u8>)>,
    order: u64,
    pub datagrams: u64,
    pub client_address: SocketAddr,
}

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 443);
const LATENCY: Duration = Duration::from_millis(10);

/// Outlives a connection: the server's endpoint, with its tickets, and the client's configuration.
pub struct World {
    endpoint: Endpoint,
    config: ClientConfig,
    begin: Instant,
}

impl World {
    pub fn new(limits: &Limits) -> World {
        World::with_transport(limits, TransportConfig::default())
    }
    pub fn with_transport(limits: &Limits, transport: TransportConfig) -> World {
        let endpoint = Endpoint::new(Arc::new(endpoint_config(1)), Some(Arc::new(server_config(limits))), true, None);
        World { endpoint, config: client_config(transport), begin: Instant::now() }
    }
    pub fn with_config(self, config: ClientConfig) -> World {
        World { config, ..self }
    }
    pub fn client(self, limits: Limits, faults: Faults) -> Pair<Client> {
        Pair::begin(self, limits, faults, |quic| Client::new(quic, ClientLimits::default()))
    }
    pub fn raw(self, limits: Limits) -> Pair<Raw> {
        let raw = |quic| Raw {
            quic,
            connected: false,
            lost: None,
            read: HashMap::new(),
            resets: HashMap::new(),
            deaf: false,
        };
        let mut pair = Pair::begin(self, limits, Faults::default(), raw);
        pair.run(|_, client| client.connected);
        pair
    }
}

fn endpoint_config(seed: u8) -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.rng_seed(Some([seed; 32]));
    config
}

impl<C: End> Pair<C> {
    fn begin(world: World, limits: Limits, faults: Faults, make: impl FnOnce(Connection) -> C) -> Pair<C> {
        let mut client_endpoint = Endpoint::new(Arc::new(endpoint_config(2)), None, true, None);
        let now = world.begin;
        let (client_handle, quic) =
            client_endpoint.connect(now, world.config.clone(), SERVER, "localhost").expect("a connection");
        Pair {
            now,
            begin: now,
            faults,
            random: Random::new(faults.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            server_endpoint: world.endpoint,
            client_endpoint,
            server_handle: None,
            client_handle,
            limits,
            server: None,
            client: make(quic),
            wire: BTreeMap::new(),
            order: 0,
            datagrams: 0,
            client_address: SocketAddr::from(([127, 0, 0, 1], 50_000)),
        }
    }

    fn send(&mut self, to: To, bytes: &[u8], segment: usize) {
        for datagram in bytes.chunks(segment.max(1)) {
            self.datagrams += 1;
            if self.random.below(1000) < self.faults.loss {
                continue;
            }
            let copies = 1 + u64::from(self.random.below(1000) < self.faults.twice);
            for _ in 0..copies {
                let late = self.random.below(1000) < self.faults.late;
                let extra = if late { self.random.below(40) } else { 0 };
                self.order += 1;
                let due = self.now + LATENCY + Duration::from_millis(extra);
                self.wire.insert((due, self.order), (to, datagram.to_vec()));
            }
        }
    }

    fn receive(&mut self, to: To, bytes: &[u8]) {
        let mut reply = Vec::new();
        let (endpoint, from) = match to {
            To::Server => (&mut self.server_endpoint, self.client_address),
            To::Client => (&mut self.client_endpoint, SERVER),
        };
        match endpoint.handle(self.now, from, None, None, BytesMut::from(bytes), &mut reply) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => match to {
                To::Server if self.server_handle == Some(handle) => {
                    if let Some(server) = &mut self.server {
                        server.quic().handle_event(event);
                    }
                }
                To::Client if self.client_handle == handle => self.client.quic().handle_event(event),
                _ => {}
            },
            Some(DatagramEvent::NewConnection(incoming)) => {
                let (handle, quic) = endpoint.accept(incoming, self.now, &mut reply, None).expect("accepted");
                self.server_handle = Some(handle);
                self.server = Some(Server::new(quic, self.limits));
            }
            Some(DatagramEvent::Response(transmit)) => {
                let back = if to == To::Server { To::Client } else { To::Server };
                reply.truncate(transmit.size);
                self.send(back, &reply, reply.len());
            }
            None => {}
        }
    }

    fn flush(&mut self, of: To) {
        loop {
            let mut buf = Vec::new();
            let (end, endpoint, handle): (&mut dyn End, _, _) = match of {
                To::Server => match (&mut self.server, self.server_handle) {
                    (Some(server), Some(handle)) => (server, &mut self.server_endpoint, handle),
                    _ => return,
                },
                To::Client => (&mut self.client, &mut self.client_endpoint, self.client_handle),
            };
            while let Some(event) = end.quic().poll_endpoint_events() {
                if let Some(event) = endpoint.handle_event(handle, event) {
                    end.quic().handle_event(event);
                }
            }
            let Some(transmit) = end.quic().poll_transmit(self.now, 10, &mut buf) else { return };
            buf.truncate(transmit.size);
            let to = if of == To::Server { To::Client } else { To::Server };
            self.send(to, &buf, transmit.segment_size.unwrap_or(transmit.size));
        }
    }

    /// Delivers due datagrams, runs timers and both endpoints, then advances the clock to the next event. `false`: no
    /// event is left.
    pub fn step(&mut self, until: Option<Instant>, act: &mut dyn FnMut(&mut Server, &mut C)) -> bool {
        while let Some(((due, order), _)) = self.wire.first_key_value() {
            let key = (*due, *order);
            if key.0 > self.now {
                break;
            }
            if let Some((to, bytes)) = self.wire.remove(&key) {
                self.receive(to, &bytes);
            }
        }
        let due = |quic: &mut Connection, now| quic.poll_timeout().is_some_and(|at| at <= now);
        if due(self.client.quic(), self.now) {
            self.client.quic().handle_timeout(self.now);
        }
        self.client.drive(self.now);
        if let Some(server) = &mut self.server {
            if due(server.quic(), self.now) {
                server.quic().handle_timeout(self.now);
            }
            End::drive(server, self.now);
            act(server, &mut self.client);
            if server.failure().is_some() {
                server.close(self.now);
            }
        }
        self.flush(To::Server);
        self.flush(To::Client);
        let next = [
            self.wire.first_key_value().map(|((due, _), _)| *due),
            self.client.quic().poll_timeout(),
            self.server.as_mut().and_then(|server| server.quic().poll_timeout()),
        ];
        match next.into_iter().flatten().min() {
            Some(at) if until.is_none_or(|until| at < until) => {
                self.now = self.now.max(at);
                true
            }
            _ => false,
        }
    }

    /// Runs until `act` says that it is done.
    pub fn run(&mut self, mut act: impl FnMut(&mut Server, &mut C) -> bool) {
        let mut done = false;
        for _ in 0..200_000 {
            let more = self.step(None, &mut |server, client| done = act(server, client));
            if done {
                return;
            }
            assert!(more, "nothing is to come, and the test is not done");
        }
        panic!("no end after 200,000 moments, {:?}", self.now - self.begin);
    }

    /// Runs for so long, whatever happens.
    pub fn run_for(&mut self, span: Duration, mut act: impl FnMut(&mut Server, &mut C)) {
        let end = self.now + span;
        while self.step(Some(end), &mut act) {}
        self.now = end;
    }

    /// Ends the connection without a word, and keeps what outlives it.
    pub fn into_world(self, config: ClientConfig) -> World {
        World { endpoint: self.server_endpoint, config, begin: self.now }
    }
}

/// A request of a test, and its answer.
#[derive(Default)]
pub struct Answer {
    pub status: u16,
    pub interim: Vec<u16>,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    pub done: bool,
    pub reset: Option<u64>,
}

fn texts(list: &http_types::List) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    list.iter().map(|(name, value)| (text(name), text(value))).collect()
}

/// Collects a client's events.
#[derive(Default)]
pub struct Answers {
    pub of: HashMap<u64, Answer>,
    pub connected: Option<bool>,
    pub settings: Option<wire_h3::Settings>,
    pub goaway: Option<u64>,
    pub lost: Option<String>,
    /// In which order answers were whole.
    pub order: Vec<u64>,
}

impl Answers {
    pub fn take(&mut self, client: &mut Client) {
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Head { stream, status, list, .. } => {
                    let answer = self.of.entry(stream).or_default();
                    if status < 200 {
                        answer.interim.push(status);
                    } else {
                        assert_eq!(answer.status, 0, "two heads");
                        answer.status = status;
                        answer.fields = texts(&list);
                    }
                }
                ClientEvent::Body(stream) => loop {
                    match client.take_body(stream) {
                        TakenLines::Bytes(bytes) => self.of.entry(stream).or_default().body.extend_from_slice(&bytes),
                        TakenLines::Later => break,
                        TakenLines::End => {
                            self.of.entry(stream).or_default().done = true;
                            self.order.push(stream);
                            break;
                        }
                        TakenLines::Broken | TakenLines::Gone => break,
                    }
                },
                ClientEvent::Trailers { stream, list } => {
                    self.of.entry(stream).or_default().trailers = texts(&list);
                }
                ClientEvent::Reset { stream, code } => self.of.entry(stream).or_default().reset = Some(code),
                ClientEvent::Connected { early_accepted } => self.connected = Some(early_accepted),
                ClientEvent::Settings(settings) => self.settings = Some(settings),
                ClientEvent::Goaway(id) => self.goaway = Some(id),
                ClientEvent::Lost(why) => self.lost = Some(why),
                ClientEvent::Capacity(_) => {}
            }
        }
    }
}

/// A server application that echoes each request's body after a head with the request's path.
#[derive(Default)]
pub struct Echo {
    pub open: BTreeMap<u64, Exchange>,
    pub heads: u64,
    pub early: u64,
    pub resets: u64,
    /// Octets of an answer for `/N`; others are echoed.
    pub refuses: bool,
}

#[derive(Default)]
pub struct Exchange {
    out: Vec<u8>,
    at: usize,
    whole: bool,
    trailers: bool,
}

pub fn lines<'a>(fields: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

impl Echo {
    pub fn act(&mut self, server: &mut Server) {
        while let Some(event) = server.poll_event() {
            match event {
                Event::Head { stream, list, message, .. } => {
                    self.heads += 1;
                    self.early += u64::from(server.is_early());
                    let Ok(message) = message else {
                        StreamMux::send_head(server, stream, 400, &mut lines(&[]), true);
                        StreamMux::finish(server, stream);
                        continue;
                    };
                    let path = String::from_utf8_lossy(message.path.of(&list.arena)).into_owned();
                    let mut exchange = Exchange::default();
                    if let Some(length) = path.strip_prefix("/size/").and_then(|n| n.parse::<usize>().ok()) {
                        exchange.out = (0..length).map(|at| (at % 251) as u8).collect();
                        exchange.whole = true;
                    }
                    exchange.trailers = path == "/trailers";
                    if path == "/early-hints" {
                        StreamMux::send_interim(server, stream, 103, &mut lines(&[("link", "</a>")]));
                    }
                    let all = [("x-path", path.as_str()), ("server", "test"), ("content-type", "text/plain")];
                    StreamMux::send_head(server, stream, 200, &mut lines(&all), false);
                    self.open.insert(stream, exchange);
                }
                Event::Reset(stream) => {
                    self.resets += 1;
                    self.open.remove(&stream);
                }
                Event::Body(_) | Event::Capacity(_) | Event::Goaway => {}
            }
        }
        let all: Vec<u64> = self.open.keys().copied().collect();
        for stream in all {
            let Some(exchange) = self.open.get_mut(&stream) else { continue };
            while !exchange.whole {
                match StreamMux::take_body(server, stream) {
                    TakenLines::Bytes(bytes) => exchange.out.extend_from_slice(&bytes),
                    TakenLines::Later => break,
                    _ => exchange.whole = true,
                }
            }
            if StreamMux::capacity(server, stream).is_none_or(|room| room == 0) {
                continue;
            }
            let end = exchange.whole && !exchange.trailers;
            exchange.at += StreamMux::send_body(server, stream, &exchange.out[exchange.at..], 16_384, end).taken;
            if exchange.whole && exchange.at == exchange.out.len() {
                if exchange.trailers {
                    StreamMux::send_trailers(server, stream, &mut lines(&[("x-sum", "1")]));
                }
                StreamMux::finish(server, stream);
                self.open.remove(&stream);
            }
        }
    }
}

pub fn get(path: &str) -> [(&str, &str); 4] {
    [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
}
