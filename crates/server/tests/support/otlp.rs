//! A receiver of OTLP traces: gRPC over HTTP/2, in cleartext or over TLS, and HTTP/protobuf. It reads frames and messages by
//! itself, with the numbers of RFC 9113 and of the `.proto` files.

use super::http2::{DATA, GOAWAY, HEADERS, PING, SETTINGS, WINDOW_UPDATE, frame};
use http_types::ListLimits;
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use wire_h2::PREFACE;
use wire_h2::hpack::{Decoder, Encoder};

const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Number(i64),
    List(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Span {
    pub trace_id: String,
    pub span_id: String,
    /// Empty without a parent.
    pub parent_id: String,
    pub state: String,
    pub name: String,
    pub kind: u64,
    pub start: u64,
    pub end: u64,
    pub attributes: BTreeMap<String, Value>,
    pub status: u64,
    pub flags: u64,
}

impl Span {
    /// Returns an attribute, which exists.
    pub fn get(&self, name: &str) -> &Value {
        self.attributes.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Value::Text(text) => text,
            other => panic!("{name} is {other:?}"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Export {
    pub path: String,
    pub fields: Vec<(String, String)>,
    pub resource: BTreeMap<String, Value>,
    pub scope: (String, String),
    pub spans: Vec<Span>,
}

impl Export {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

#[derive(Clone, Debug)]
pub enum Reply {
    /// HTTP status with header fields.
    Http(u16, &'static str),
    /// gRPC status in trailers only.
    Grpc(u32, &'static str),
    /// A partial success.
    Rejected(u8, &'static str),
    /// Closes the connection without an answer.
    Close,
    /// Never answers.
    Hang,
}

#[derive(Default)]
struct State {
    exports: Vec<Export>,
    /// For the next requests; then success.
    replies: VecDeque<Reply>,
    refused: usize,
}

struct Inner {
    state: Mutex<State>,
    came: Condvar,
    over: AtomicBool,
    connections: AtomicUsize,
}

/// Ends on drop.
pub struct Receiver {
    pub port: u16,
    inner: Arc<Inner>,
    accept: Option<JoinHandle<()>>,
}

#[derive(Clone)]
pub enum Kind {
    Grpc,
    GrpcTls(Arc<rustls::ServerConfig>),
    Http,
}

impl Receiver {
    pub fn start(kind: Kind) -> Receiver {
        Receiver::on(TcpListener::bind(("127.0.0.1", testkit::free_port())).expect("a port"), kind)
    }
    pub fn on(listener: TcpListener, kind: Kind) -> Receiver {
        let port = listener.local_addr().expect("an address").port();
        // Also ends `accept`.
        socket2::SockRef::from(&listener).set_read_timeout(Some(LOOK)).expect("a timeout");
        let inner = Arc::new(Inner {
            state: Mutex::default(),
            came: Condvar::new(),
            over: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let its = inner.clone();
        let accept = std::thread::spawn(move || {
            let mut threads: Vec<JoinHandle<()>> = Vec::new();
            while !its.over.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else { continue };
                its.connections.fetch_add(1, Ordering::Relaxed);
                stream.set_nodelay(true).expect("an option");
                stream.set_read_timeout(Some(LOOK)).expect("a timeout");
                let (inner, kind) = (its.clone(), kind.clone());
                threads.push(std::thread::spawn(move || match kind {
                    Kind::Http => http(Bytes::new(stream, &inner)).unwrap_or(()),
                    Kind::Grpc => grpc(Bytes::new(stream, &inner)).unwrap_or(()),
                    Kind::GrpcTls(config) => {
                        let mut session = rustls::ServerConnection::new(config).expect("a session");
                        let mut stream = stream;
                        while session.is_handshaking() && !inner.over.load(Ordering::Relaxed) {
                            match session.complete_io(&mut stream) {
                                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                                Err(_) => return,
                                Ok(_) => {}
                            }
                        }
                        assert_eq!(session.alpn_protocol(), Some(&b"h2"[..]));
                        grpc(Bytes::new(rustls::StreamOwned::new(session, stream), &inner)).unwrap_or(());
                    }
                }));
            }
            drop(listener);
            for thread in threads {
                thread.join().expect("a connection of the receiver");
            }
        });
        Receiver { port, inner, accept: Some(accept) }
    }
    pub fn reply(&self, reply: Reply) {
        self.inner.state.lock().expect("state").replies.push_back(reply);
    }
    pub fn connections(&self) -> usize {
        self.inner.connections.load(Ordering::Relaxed)
    }
    /// Answered with an error.
    pub fn refused(&self) -> usize {
        self.inner.state.lock().expect("state").refused
    }
    pub fn is_empty(&self) -> bool {
        self.inner.state.lock().expect("state").exports.is_empty()
    }
    fn wait(&self, what: &str, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.inner.state.lock().expect("state");
        let (state, waited) =
            self.inner.came.wait_timeout_while(state, PATIENCE, |state| !holds(state)).expect("state");
        assert!(!waited.timed_out(), "waited in vain for {what}; came: {:#?}", state.exports);
        state
    }
    /// Waits until so many requests were answered with an error.
    pub fn wait_refused(&self, n: usize) {
        drop(self.wait("refused requests", |state| state.refused >= n));
    }
    /// Waits for a number of spans. Returns the exports.
    pub fn exports(&self, spans: usize) -> Vec<Export> {
        let enough = |state: &State| state.exports.iter().map(|one| one.spans.len()).sum::<usize>() >= spans;
        std::mem::take(&mut self.wait(&format!("{spans} spans"), enough).exports)
    }
    /// [`Receiver::exports`] as spans, exactly so many.
    pub fn spans(&self, n: usize) -> Vec<Span> {
        let spans: Vec<Span> = self.exports(n).into_iter().flat_map(|one| one.spans).collect();
        assert_eq!(spans.len(), n, "{spans:#?}");
        spans
    }
    pub fn span(&self) -> Span {
        self.spans(1).remove(0)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.inner.over.store(true, Ordering::Relaxed);
        if let Some(accept) = self.accept.take() {
            let ended = accept.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the receiver failed");
        }
    }
}

/// A connection, read until the receiver's end.
struct Bytes<'a, S> {
    stream: S,
    inner: &'a Inner,
    buf: Vec<u8>,
}

impl<'a, S: Read + Write> Bytes<'a, S> {
    fn new(stream: S, inner: &'a Inner) -> Self {
        Bytes { stream, inner, buf: Vec::new() }
    }
    fn more(&mut self) -> Option<()> {
        let mut buf = [0; 16 * 1024];
        while !self.inner.over.load(Ordering::Relaxed) {
            match self.stream.read(&mut buf) {
                Ok(0) => return None,
                Ok(n) => {
                    self.buf.extend_from_slice(&buf[..n]);
                    return Some(());
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return None,
            }
        }
        None
    }
    fn take(&mut self, n: usize) -> Option<Vec<u8>> {
        while self.buf.len() < n {
            self.more()?;
        }
        Some(self.buf.drain(..n).collect())
    }
    fn send(&mut self, bytes: &[u8]) -> Option<()> {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).ok()
    }
    /// The answer to a request. An export counts only if it succeeds.
    fn came(&self, export: Export) -> Option<Reply> {
        let mut state = self.inner.state.lock().expect("state");
        let reply = state.replies.pop_front();
        match reply {
            None | Some(Reply::Rejected(..)) => state.exports.push(export),
            Some(_) => state.refused += 1,
        }
        self.inner.came.notify_all();
        reply
    }
}

fn partial(n: u8, words: &str) -> Vec<u8> {
    let inner = [&[0x08, n, 0x12, words.len() as u8], words.as_bytes()].concat();
    [&[0x0a, inner.len() as u8], inner.as_slice()].concat()
}

fn http<S: Read + Write>(mut bytes: Bytes<'_, S>) -> Option<()> {
    loop {
        let end = loop {
            match bytes.buf.windows(4).position(|w| w == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => bytes.more()?,
            }
        };
        let head = String::from_utf8(bytes.take(end)?).expect("a head");
        let mut lines = head.trim_end().split("\r\n");
        let line = lines.next().expect("a line");
        let path = line.strip_prefix("POST ").and_then(|rest| rest.strip_suffix(" HTTP/1.1")).expect(line);
        let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_string(), value.to_string()));
        let mut export = Export { path: path.into(), fields: lines.filter_map(pair).collect(), ..Export::default() };
        let length = export.field("content-length").and_then(|n| n.parse().ok()).expect("a length");
        assert_eq!(export.field("content-type"), Some("application/x-protobuf"));
        read_export(&bytes.take(length)?, &mut export);
        let (status, fields, body) = match bytes.came(export) {
            None => (200, "", Vec::new()),
            Some(Reply::Rejected(n, words)) => (200, "", partial(n, words)),
            Some(Reply::Http(status, fields)) => (status, fields, Vec::new()),
            Some(Reply::Close) => return None,
            Some(Reply::Hang) => return hang(&mut bytes),
            Some(Reply::Grpc(..)) => panic!("this is HTTP"),
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/x-protobuf\r\n{fields}Content-Length: {}\r\n\r\n",
            body.len()
        );
        bytes.send(&[head.as_bytes(), &body].concat())?;
    }
}

fn hang<S: Read + Write>(bytes: &mut Bytes<'_, S>) -> Option<()> {
    loop {
        bytes.more()?;
    }
}

fn grpc<S: Read + Write>(mut bytes: Bytes<'_, S>) -> Option<()> {
    assert_eq!(bytes.take(PREFACE.len())?, PREFACE);
    bytes.send(&frame(SETTINGS, 0, 0, &[]))?;
    let limits = ListLimits { bytes_max: 64 << 10, fields_max: 100, field_max: 16 << 10 };
    let mut decoder = Decoder::default();
    let mut streams: BTreeMap<u32, (Export, Vec<u8>)> = BTreeMap::new();
    loop {
        let head = bytes.take(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let payload = bytes.take(length)?;
        match kind {
            HEADERS => {
                assert_eq!(flags & 4, 4, "one block");
                let list = decoder.decode(&payload, &limits).expect("a block");
                let text = |text: &[u8]| String::from_utf8(text.to_vec()).expect("text");
                let fields: Vec<(String, String)> = list.iter().map(|(n, v)| (text(n), text(v))).collect();
                let mut export = Export { fields, ..Export::default() };
                assert_eq!(export.field(":method"), Some("POST"));
                for (name, want) in [("te", "trailers"), ("content-type", "application/grpc")] {
                    assert_eq!(export.field(name), Some(want), "{name}");
                }
                export.path = export.field(":path").expect("a path").into();
                streams.insert(stream, (export, Vec::new()));
            }
            DATA => {
                let (_, body) = streams.get_mut(&stream).expect("a stream");
                body.extend_from_slice(&payload);
                if length > 0 {
                    let more = (length as u32).to_be_bytes();
                    bytes
                        .send(&[frame(WINDOW_UPDATE, 0, 0, &more), frame(WINDOW_UPDATE, 0, stream, &more)].concat())?;
                }
                if flags & 1 == 0 {
                    continue;
                }
                let (mut export, body) = streams.remove(&stream).expect("a stream");
                let (prefix, message) = body.split_at(5);
                assert_eq!(prefix[0], 0, "not compressed");
                let announced = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
                assert_eq!(announced, message.len());
                read_export(message, &mut export);
                answer(&mut bytes, stream, export)?;
            }
            SETTINGS if flags & 1 == 0 => bytes.send(&frame(SETTINGS, 1, 0, &[]))?,
            PING if flags & 1 == 0 => bytes.send(&frame(PING, 1, 0, &payload))?,
            GOAWAY => return None,
            _ => {}
        }
    }
}

fn answer<S: Read + Write>(bytes: &mut Bytes<'_, S>, stream: u32, export: Export) -> Option<()> {
    let block = |fields: &[(&str, &str)]| {
        let mut out = Vec::new();
        let mut encoder = Encoder::stateless();
        for (name, value) in fields {
            encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
        }
        out
    };
    let body = match bytes.came(export) {
        None => Vec::new(),
        Some(Reply::Rejected(n, words)) => partial(n, words),
        Some(Reply::Grpc(status, words)) => {
            let status = status.to_string();
            let fields = [(":status", "200"), ("grpc-status", &status), ("grpc-message", words)];
            return bytes.send(&frame(HEADERS, 5, stream, &block(&fields)));
        }
        Some(Reply::Http(status, _)) => {
            return bytes.send(&frame(HEADERS, 5, stream, &block(&[(":status", &status.to_string())])));
        }
        Some(Reply::Close) => return None,
        Some(Reply::Hang) => return hang(bytes),
    };
    let message = [&[0], &(body.len() as u32).to_be_bytes()[..], &body].concat();
    let head = block(&[(":status", "200"), ("content-type", "application/grpc")]);
    let trailers = block(&[("grpc-status", "0")]);
    let frames =
        [frame(HEADERS, 4, stream, &head), frame(DATA, 0, stream, &message), frame(HEADERS, 5, stream, &trailers)];
    bytes.send(&frames.concat())
}

/// A field of a message: its number, and a number or octets.
enum Field<'a> {
    Number(u64),
    Octets(&'a [u8]),
}

impl<'a> Field<'a> {
    fn octets(&self) -> &'a [u8] {
        match self {
            Field::Octets(octets) => octets,
            Field::Number(n) => panic!("{n} is no message"),
        }
    }
    fn number(&self) -> u64 {
        match self {
            Field::Number(n) => *n,
            Field::Octets(octets) => panic!("{octets:?} is no number"),
        }
    }
    fn text(&self) -> String {
        String::from_utf8(self.octets().to_vec()).expect("UTF-8, which proto3 demands")
    }
    fn hex(&self) -> String {
        self.octets().iter().map(|octet| format!("{octet:02x}")).collect()
    }
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (octet, rest) = message.split_first().expect("a number");
        *message = rest;
        value |= u64::from(octet & 127) << shift;
        if octet & 128 == 0 {
            break;
        }
    }
    value
}

fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut all = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let mut fixed = |n: usize| {
            let (octets, rest) = message.split_at(n);
            message = rest;
            octets
        };
        let field = match key & 7 {
            1 => Field::Number(u64::from_le_bytes(fixed(8).try_into().expect("8"))),
            5 => Field::Number(u32::from_le_bytes(fixed(4).try_into().expect("4")).into()),
            0 => Field::Number(varint(&mut message)),
            2 => {
                let length = varint(&mut message) as usize;
                let (octets, rest) = message.split_at(length);
                message = rest;
                Field::Octets(octets)
            }
            other => panic!("wire type {other}"),
        };
        all.push((key >> 3, field));
    }
    all
}

fn read_value(message: &[u8]) -> Value {
    match fields(message).as_slice() {
        [(1, text)] => Value::Text(text.text()),
        [(3, number)] => Value::Number(number.number() as i64),
        [(5, list)] => {
            let text = |value: Value| match value {
                Value::Text(text) => text,
                other => panic!("{other:?} in a list"),
            };
            Value::List(fields(list.octets()).iter().map(|(_, value)| text(read_value(value.octets()))).collect())
        }
        // An empty string, and 0, have no octets in a message, but they have in a oneof.
        other => panic!("a value of {} fields", other.len()),
    }
}

fn read_attribute(message: &[u8]) -> (String, Value) {
    let all = fields(message);
    let find = |number: u64| &all.iter().find(|(n, _)| *n == number).expect("key and value").1;
    (find(1).text(), read_value(find(2).octets()))
}

fn read_span(message: &[u8]) -> Span {
    let mut span = Span::default();
    for (number, field) in fields(message) {
        match number {
            1 => span.trace_id = field.hex(),
            2 => span.span_id = field.hex(),
            3 => span.state = field.text(),
            4 => span.parent_id = field.hex(),
            5 => span.name = field.text(),
            6 => span.kind = field.number(),
            7 => span.start = field.number(),
            8 => span.end = field.number(),
            9 => {
                let (name, value) = read_attribute(field.octets());
                assert_eq!(span.attributes.insert(name.clone(), value), None, "{name} twice");
            }
            15 => {
                for (number, field) in fields(field.octets()) {
                    if number == 3 {
                        span.status = field.number();
                    }
                }
            }
            16 => span.flags = field.number(),
            other => panic!("field {other} of a span"),
        }
    }
    assert!(span.start > 1_500_000_000_000_000_000 && span.end >= span.start, "{span:?}");
    assert_eq!((span.trace_id.len(), span.span_id.len()), (32, 16));
    span
}

/// Reads an `ExportTraceServiceRequest`.
fn read_export(message: &[u8], export: &mut Export) {
    for (_, resource_spans) in fields(message) {
        for (number, part) in fields(resource_spans.octets()) {
            match number {
                1 => export.resource.extend(fields(part.octets()).iter().map(|(_, row)| read_attribute(row.octets()))),
                2 => {
                    for (number, part) in fields(part.octets()) {
                        match number {
                            1 => {
                                let words: Vec<String> = fields(part.octets()).iter().map(|(_, f)| f.text()).collect();
                                export.scope = (words[0].clone(), words[1].clone());
                            }
                            2 => export.spans.push(read_span(part.octets())),
                            other => panic!("field {other} of scope spans"),
                        }
                    }
                }
                other => panic!("field {other} of resource spans"),
            }
        }
    }
}
