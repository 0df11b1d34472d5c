//! One question to one server, and whether its answer is right.

use super::Round;
use super::matching::{Match, plain};
use base::clock;
use bytes::Bytes;
use http_engine::path::CanonicalPath;
use http_engine::{Begun, Connection, HttpPlan, ListenerRef, Request};
use http_types::{BodyLength, Method, ResponseHead, Span};
use http_upstream::probing::{Prober, Probing};
use http_upstream::upstream_state::{Try, UpstreamState};
use observe::os;
use runtime::time::timeout;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use upstream::{Address, Answer, Options, Peer, Stream};
use wire_h1::{ChunkedDecoder, HeadLimits, HeadParser, Progress, ResponseParser, Role};

/// What is looked at of a body.
const BODY_MAX: usize = 256 * 1024;
/// Interim responses before the one that counts.
const INTERIM_MAX: usize = 100;

/// A connection that is kept between probes (`keepalive_time`).
pub struct Kept {
    stream: Stream,
    opened: clock::Instant,
}

/// Whether the server is well; else why not.
pub async fn once(round: &Round, peer: &Arc<Peer>, kept: &mut Option<Kept>) -> Result<(), String> {
    let Some(plan) = round.plan.upgrade() else { return Ok(()) };
    let location = plan.locations.get(round.location);
    let Some(Probing(prober)) = location.and_then(|l| l.ext::<Probing>()).cloned() else { return Ok(()) };
    let mut r = request(plan, round.location, &round.check.uri, &round.group.name);
    let old = kept.take().filter(|k| {
        let age = clock::now().millis_since(k.opened);
        round.check.keepalive_ms.is_some_and(|most| age < most)
    });
    let reused = old.is_some();
    match ask(round, peer, &*prober, &mut r, old, kept).await {
        // The server may have closed it meanwhile: a new connection decides.
        Err(_) if reused => ask(round, peer, &*prober, &mut r, None, kept).await,
        done => done,
    }
}

/// A request of nobody's, for what the location adds to requests.
fn request(plan: Arc<HttpPlan>, location: usize, uri: &str, group: &str) -> Box<Request> {
    let mut r = Box::<Request>::default();
    r.server = plan.locations.get(location).map_or(0, |location| location.server);
    // Servers want a host: the server's own name, or the group's where it has none.
    let name = plan.servers.get(r.server).map_or_else(String::new, |s| String::from_utf8_lossy(&s.name).into_owned());
    let host = if name.is_empty() || name.starts_with(['~', '*']) { group.to_string() } else { name };
    r.host = host.to_ascii_lowercase().into_bytes();
    r.location = location;
    r.plan = Some(Rc::new(plan));
    r.started = clock::now();
    r.buf = format!("GET {uri} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    let bytes = r.buf.clone();
    // It is right by construction; an empty head would do no harm.
    let _ = HeadParser::default().parse(&bytes, &HeadLimits::default(), &mut r.head);
    r.path = CanonicalPath::made(uri.split('?').next().unwrap_or_default().into()).unwrap_or_default();
    let nowhere = Rc::new(net::listen::Address::Unix("".into()));
    r.connection = Some(Rc::new(Connection {
        number: 0,
        peer: None,
        local: nowhere.clone(),
        listener: ListenerRef::new(nowhere),
        requests: Cell::new(1),
        nodelay: Cell::new(true),
        started: clock::now(),
        proxy: None,
        socket: None,
        tls: None,
        begun: Begun::default(),
    }));
    r
}

async fn ask(
    round: &Round,
    peer: &Arc<Peer>,
    prober: &dyn Prober,
    r: &mut Request,
    old: Option<Kept>,
    kept: &mut Option<Kept>,
) -> Result<(), String> {
    let times = prober.timeouts();
    let connection = match old {
        Some(kept) => kept,
        None => {
            let address = match (&peer.spec.address, round.check.port) {
                (Address::Ip(ip), Some(port)) => Address::Ip(SocketAddr::new(ip.ip(), port)),
                (address, _) => address.clone(),
            };
            let connected = timeout(times.connect, Stream::connect(&address, &Options::default())).await;
            let connected = connected.map_err(|_| "connecting timed out")?;
            let mut stream = connected.map_err(|e| format!("connect() failed {}", os(&e)))?;
            if let Some(wanted) = prober.tls(r, address.to_string())? {
                let tls = wanted.stream().map_err(|why| why.to_string())?;
                let shaken =
                    timeout(times.connect, stream.handshake(tls)).await.map_err(|_| "the SSL handshake timed out")?;
                shaken.map_err(|why| format!("SSL_do_handshake() failed: {why}"))?;
            }
            clock::update();
            Kept { stream, opened: clock::now() }
        }
    };
    let close = round.check.keepalive_ms.is_none();
    let bytes = prober.request(r, &round.check.uri, close);
    let sent = timeout(times.send, connection.stream.write_all(&bytes)).await.map_err(|_| "sending timed out")?;
    sent.map_err(|e| format!("send() failed {}", os(&e)))?;

    let mut reader = Reader { stream: &connection.stream, buf: Vec::with_capacity(4096), wait: times.read, taken: 0 };
    let head = reader.head(prober.head_max()).await?;
    match &round.matching {
        None => plain(head.status)?,
        Some(matching) => {
            let text = |span: Span| span.of(&reader.buf).to_vec();
            let fields: Vec<_> = head.fields.all.iter().map(|f| (text(f.name), text(f.value))).collect();
            matching.head(head.status, &fields)?;
            note(r, peer, head.clone(), Bytes::copy_from_slice(&reader.buf));
            matching.required(r)?;
        }
    }
    let length = wire_h1::response_body(&head, &reader.buf, Method::Get).map_err(|e| e.upstream_message())?;
    let reusable = wire_h1::response_keep_alive(&head, &reader.buf);
    let wants_body = round.matching.as_deref().is_some_and(Match::wants_body);
    if !wants_body && (close || !reusable) {
        return Ok(());
    }
    let taken = reader.taken;
    reader.buf.drain(..taken);
    let (body, ended) = reader.body(length).await?;
    if let Some(matching) = &round.matching {
        matching.body(&body)?;
    }
    if !close && reusable && ended {
        *kept = Some(connection);
    }
    Ok(())
}

/// What `$upstream_*` variables say in `require`.
fn note(r: &mut Request, peer: &Peer, head: ResponseHead, buf: Bytes) {
    if let Some(state) = UpstreamState::of(r) {
        state.tries.clear();
        state.tries.push(Try { status: head.status, ..Try::new(peer.text.clone(), clock::now()) });
        state.answer = Some(Rc::new(Answer { head, buf }));
    }
}

struct Reader<'a> {
    stream: &'a Stream,
    buf: Vec<u8>,
    wait: std::time::Duration,
    /// What of `buf` the head took.
    taken: usize,
}

impl Reader<'_> {
    /// Some more bytes; 0 at the end.
    async fn more(&mut self) -> Result<usize, String> {
        self.buf.reserve(16 * 1024);
        let read = timeout(self.wait, self.stream.read_buf(&mut self.buf)).await;
        read.map_err(|_| "receiving timed out")?.map_err(|e| format!("recv() failed {}", os(&e)))
    }

    async fn head(&mut self, max: usize) -> Result<ResponseHead, String> {
        let limits = HeadLimits {
            line_max: max,
            field_max: max,
            total_max: max,
            fields_max: 1000,
            underscores: true,
            ignore_invalid: true,
        };
        let (mut head, mut parser, mut interim) = (ResponseHead::default(), ResponseParser::default(), 0);
        loop {
            if !self.buf.is_empty() {
                match parser.parse(&self.buf, &limits, &mut head) {
                    Ok(Progress::Done { consumed }) if (100..200).contains(&head.status) && head.status != 101 => {
                        interim += 1;
                        if interim > INTERIM_MAX {
                            return Err("too many interim responses".into());
                        }
                        self.buf.drain(..consumed);
                        (head, parser) = (ResponseHead::default(), ResponseParser::default());
                        continue;
                    }
                    Ok(Progress::Done { consumed }) => {
                        self.taken = consumed;
                        return Ok(head);
                    }
                    Ok(Progress::Partial) => {}
                    Err(_) => return Err("an invalid response".into()),
                }
            }
            if self.more().await? == 0 {
                return Err("the connection was closed before the response".into());
            }
        }
    }

    /// The first of a body, and whether that is all of it.
    async fn body(&mut self, length: BodyLength) -> Result<(Vec<u8>, bool), String> {
        let mut body = Vec::new();
        let mut decoder = ChunkedDecoder::new(Role::Client);
        loop {
            let mut ended = false;
            match length {
                BodyLength::None => return Ok((body, self.buf.is_empty())),
                BodyLength::Exact(n) => {
                    body.append(&mut self.buf);
                    ended = body.len() as u64 >= n;
                    if body.len() as u64 > n {
                        return Err("more than was announced".into());
                    }
                }
                BodyLength::UntilClose => body.append(&mut self.buf),
                BodyLength::Chunked => {
                    let mut at = 0;
                    while at < self.buf.len() && !ended {
                        let left = self.buf.get(at..).unwrap_or_default();
                        let decoded = decoder.decode(left).map_err(|e| e.message())?;
                        body.extend_from_slice(left.get(decoded.data).unwrap_or_default());
                        at += decoded.consumed;
                        ended = decoded.done;
                    }
                    self.buf.drain(..at);
                    if ended && !self.buf.is_empty() {
                        return Err("more than was announced".into());
                    }
                }
            }
            if ended || body.len() >= BODY_MAX {
                body.truncate(BODY_MAX);
                return Ok((body, ended));
            }
            if self.more().await? == 0 {
                return match length {
                    BodyLength::UntilClose => Ok((body, false)),
                    _ => Err("the connection was closed within the body".into()),
                };
            }
        }
    }
}
