//! Probes one server and judges its response.

use super::matching::{Match, plain};
use super::{Round, grpc};
use base::clock;
use bytes::Bytes;
use http_client::{Failure, H2Connection, Limits, Reader, Step, send};
use http_engine::path::CanonicalPath;
use http_engine::{Connection, HttpPlan, ListenerRef, PartialHead, Request};
use http_types::{Method, ResponseHead, Span};
use http_upstream::probing::{Prober, Probing};
use http_upstream::upstream_state::{Try, UpstreamState};
use runtime::time::timeout;
use session_engine::checks::ProbeFailure;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use upstream::{Options, Peer, ReceivedHead, Stream};
use wire_h1::{HeadLimits, HeadParser};

const BODY_MAX: usize = 256 * 1024;

/// An idle connection of `keepalive_time`.
pub struct Kept {
    connection: Connected,
    opened: clock::Instant,
}

enum Connected {
    Http(Stream),
    Grpc(Box<H2Connection>),
}

pub async fn once(round: &Round, peer: &Arc<Peer>, kept: &mut Option<Kept>) -> Result<(), ProbeFailure> {
    let Some(plan) = round.plan.upgrade() else { return Ok(()) };
    let location = plan.locations.get(round.location);
    let Some(Probing(prober)) = location.and_then(|l| l.ext::<Probing>()).cloned() else { return Ok(()) };
    let line = match round.check.grpc {
        Some(_) => grpc::LINE.into(),
        None => format!("GET {} HTTP/1.1", round.uri()),
    };
    let mut r = request(plan, round.location, &line, &round.group.name);
    let old = kept.take().filter(|k| {
        let age = clock::now().millis_since(k.opened);
        round.check.keepalive_ms.is_some_and(|most| age < most)
    });
    let reused = old.is_some();
    match ask(round, peer, &*prober, &mut r, old, kept).await {
        // The server may have closed the kept connection: a new one decides.
        Err(_) if reused => ask(round, peer, &*prober, &mut r, None, kept).await,
        done => done,
    }
}

/// Creates a request without a client, for the request fields of the location.
fn request(plan: Arc<HttpPlan>, location: usize, line: &str, group: &str) -> Box<Request> {
    let mut r = Box::<Request>::default();
    r.scope.server = plan.locations.get(location).map_or(0, |location| location.server);
    // `Host`: the server's name, or the group's.
    let name =
        plan.servers.get(r.scope.server).map_or_else(String::new, |s| String::from_utf8_lossy(&s.name).into_owned());
    let host = if name.is_empty() || name.starts_with(['~', '*']) { group.to_string() } else { name };
    r.target.host = host.to_ascii_lowercase().into_bytes();
    r.scope.location = location;
    r.scope.plan = Some(Rc::new(plan));
    r.accounting.started = clock::now();
    let (line, fields) = line.split_once("\r\n").unwrap_or((line, ""));
    r.buf = format!("{line}\r\nHost: {host}\r\n{fields}\r\n").into_bytes();
    let bytes = r.buf.clone();
    // Always valid; an empty head would be harmless.
    let _ = HeadParser::default().parse(&bytes, &HeadLimits::default(), &mut r.head);
    let path = r.head.path.of(&bytes).into();
    r.target.path = CanonicalPath::made(path).unwrap_or_default();
    let nowhere = Rc::new(net::Address::Unix("".into()));
    r.scope.connection = Some(Rc::new(Connection {
        number: 0,
        peer: None,
        local: nowhere.clone(),
        listener: ListenerRef::new(nowhere),
        requests: Cell::new(1),
        nodelay: Cell::new(true),
        pipelining: http_engine::Pipelining::default(),
        started: clock::now(),
        proxy: None,
        socket: None,
        tls: None,
        begun: PartialHead::default(),
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
) -> Result<(), ProbeFailure> {
    let mut connection = match old {
        Some(kept) => kept,
        None => open(round, peer, prober, r).await?,
    };
    let reusable = match &mut connection.connection {
        Connected::Http(stream) => exchange(round, peer, prober, r, stream).await?,
        Connected::Grpc(h2) => {
            let block = prober.request(r, "", false);
            let service = round.check.grpc.clone().unwrap_or_default();
            // For sending and the whole response.
            let judged = timeout(prober.timeouts().read, grpc::call(h2, &block, &service)).await;
            judged.map_err(|_| Failure::TimedOut(Step::Receive))??;
            round.check.keepalive_ms.is_some() && h2.settle().await
        }
    };
    if reusable {
        *kept = Some(connection);
    }
    Ok(())
}

/// Connects to a server.
async fn open(round: &Round, peer: &Peer, prober: &dyn Prober, r: &mut Request) -> Result<Kept, ProbeFailure> {
    let times = prober.timeouts();
    let address = round.check.schedule.address(peer);
    let connected = timeout(times.connect, Stream::connect(&address, &Options::default())).await;
    let connected = connected.map_err(|_| Failure::TimedOut(Step::Connect))?;
    let mut stream = connected.map_err(|e| Failure::Io(Step::Connect, e))?;
    if let Some(wanted) = prober.tls(r, address.to_string())? {
        let tls = wanted.stream().map_err(|why| why.to_string())?;
        let shaken = timeout(times.connect, stream.handshake(tls)).await;
        shaken.map_err(|_| Failure::TimedOut(Step::Handshake))?.map_err(Failure::Handshake)?;
    }
    clock::update();
    let connection = match round.check.grpc {
        Some(_) => Connected::Grpc(Box::new(H2Connection::new(stream))),
        None => Connected::Http(stream),
    };
    Ok(Kept { connection, opened: clock::now() })
}

/// Sends a request over HTTP/1.1 and judges the response. Returns `true` if the connection can be kept.
async fn exchange(
    round: &Round,
    peer: &Arc<Peer>,
    prober: &dyn Prober,
    r: &mut Request,
    stream: &Stream,
) -> Result<bool, ProbeFailure> {
    let times = prober.timeouts();
    let close = round.check.keepalive_ms.is_none();
    let bytes = prober.request(r, round.uri(), close);
    send(stream, &bytes, times.send).await?;

    let limits = Limits { head: prober.head_max(), body: BODY_MAX, idle: times.read };
    // For the whole response: a server that sends it octet by octet is judged, too.
    let judged = timeout(times.read, judge(round, peer, r, stream, limits, close)).await;
    Ok(judged.map_err(|_| Failure::TimedOut(Step::Receive))??)
}

/// Reads and judges a response. Returns `true` if its connection can be kept.
async fn judge(
    round: &Round,
    peer: &Arc<Peer>,
    r: &mut Request,
    stream: &Stream,
    limits: Limits,
    close: bool,
) -> Result<bool, String> {
    let mut reader = Reader::new(stream, Method::Get, limits);
    let (head, bytes) = reader.head().await?;
    match &round.matching {
        None => plain(head.status)?,
        Some(matching) => {
            let text = |span: Span| span.of(&bytes).to_vec();
            let fields: Vec<_> = head.fields.all.iter().map(|f| (text(f.name), text(f.value))).collect();
            matching.head(head.status, &fields)?;
            note(r, peer, head, bytes.into());
            matching.required(r)?;
        }
    }
    let reusable = !close && reader.keep_alive();
    let wants_body = round.matching.as_deref().is_some_and(Match::wants_body);
    if !wants_body && !reusable {
        return Ok(false);
    }
    let (body, ended) = reader.body().await?;
    if let Some(matching) = &round.matching {
        matching.body(&body)?;
    }
    Ok(reusable && reader.keep_alive() && ended)
}

fn note(r: &mut Request, peer: &Arc<Peer>, head: ResponseHead, buf: Bytes) {
    if let Some(state) = UpstreamState::of(r) {
        state.tries.clear();
        state.tries.push(Try { status: head.status, ..Try::of(peer, clock::now()) });
        state.answer = Some(Rc::new(ReceivedHead { head, buf }));
    }
}
