//! Probes one server and judges its response.

use super::matching::accept_status;
use super::{Round, grpc, stream};
use base::clock;
use http_client::{ClientFailure, ClientStep, H2Connection, Limits, Reader, send_request};
use http_engine::path::CanonicalPath;
use http_engine::{ClientConnection, HttpPlan, ListenerRef, PartialHead, Request};
use http_types::Span;
use http_upstream::probing::{ProbeBody, Prober};
use http_upstream::upstream_state::{Try, UpstreamState};
use runtime::time::with_timeout;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use transport::Stream;
use upstream::mux::Lease;
use upstream::{ConnectError, H2Lease, H3Lease, Peer, ReceivedHead, RequestFacts};
use upstream_directives::checks::ProbeFailure;
use wire_h1::{HeadLimits, HeadParser};

/// Bytes of a body that conditions see.
pub const BODY_MAX: usize = 256 * 1024;

/// An idle connection of `keepalive_time`.
pub struct IdleConnection {
    connection: ProbeConnection,
    opened: clock::Instant,
}

enum ProbeConnection {
    Http(Stream),
    Grpc(Box<H2Connection>),
    /// HTTP/2 and HTTP/3.
    Mux(Box<dyn Lease>),
}

impl IdleConnection {
    fn new(connection: ProbeConnection) -> IdleConnection {
        clock::update();
        IdleConnection { connection, opened: clock::now() }
    }
}

pub async fn probe_once(
    round: &Round,
    peer: &Arc<Peer>,
    kept: &mut Option<IdleConnection>,
) -> Result<(), ProbeFailure> {
    let Some(plan) = round.plan.upgrade() else { return Ok(()) };
    let location = plan.locations.get(round.location);
    let Some(ProbeBody(prober)) = location.and_then(|l| l.ext::<ProbeBody>()).cloned() else { return Ok(()) };
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
    let server = plan.locations.get(location).map_or(0, |location| location.server);
    r.select_server(server);
    // `Host`: the server's name, or the group's.
    let name = plan.servers.get(server).map_or_else(String::new, |s| String::from_utf8_lossy(&s.name).into_owned());
    let host = if name.is_empty() || name.starts_with(['~', '*']) { group.to_string() } else { name };
    r.target.set_host(host.to_ascii_lowercase().into_bytes());
    r.select_location(location);
    let (line, fields) = line.split_once("\r\n").unwrap_or((line, ""));
    r.buf = format!("{line}\r\nHost: {host}\r\n{fields}\r\n").into_bytes();
    let bytes = r.buf.clone();
    // Always valid; an empty head would be harmless.
    let _ = HeadParser::default().parse(&bytes, &HeadLimits::default(), &mut r.head);
    let path = r.head.path.of(&bytes).into();
    r.target.set_path(CanonicalPath::made(path).unwrap_or_default());
    let nowhere = Rc::new(net::Address::Unix("".into()));
    let connection = Rc::new(ClientConnection {
        number: 0,
        peer: None,
        local: nowhere.clone(),
        listener: ListenerRef::new(nowhere),
        requests: Cell::new(1),
        nodelay: Cell::new(true),
        pipelining: http_engine::PipelineState::default(),
        started: clock::now(),
        proxy: None,
        socket: None,
        tls: None,
        begun: PartialHead::default(),
    });
    r.begin(Rc::new(plan), connection, clock::now());
    r
}

async fn ask(
    round: &Round,
    peer: &Arc<Peer>,
    prober: &dyn Prober,
    r: &mut Request,
    old: Option<IdleConnection>,
    kept: &mut Option<IdleConnection>,
) -> Result<(), ProbeFailure> {
    let mut connection = match old {
        Some(kept) => kept,
        None => open(round, peer, prober, r).await?,
    };
    // For the whole response: a server that sends it octet by octet is judged, too. Over HTTP/2 and HTTP/3, for the request as well.
    let most = prober.timeouts().read;
    let late = |_| ClientFailure::TimedOut(ClientStep::Receive);
    let reusable = match &mut connection.connection {
        ProbeConnection::Http(stream) => {
            let close = round.check.keepalive_ms.is_none();
            let method = prober.method(r);
            let bytes = prober.request(r, round.uri(), close);
            send_request(stream, &bytes, prober.timeouts().send).await?;
            let limits = Limits { head: prober.head_max(), body: BODY_MAX, idle: most };
            let reader = Reader::new(stream, method, limits);
            with_timeout(most, judge(round, peer, r, reader, close)).await.map_err(late)??
        }
        ProbeConnection::Grpc(h2) => {
            let block = prober.request(r, "", false);
            let service = round.check.grpc.clone().unwrap_or_default();
            with_timeout(most, grpc::call_health(h2, &block, &service)).await.map_err(late)??;
            round.check.keepalive_ms.is_some() && h2.settle().await
        }
        ProbeConnection::Mux(lease) => {
            let asked = RequestFacts { method: prober.method(r), head_max: prober.head_max(), chunked: false };
            let block = prober.request(r, round.uri(), false);
            let stream = lease.share().ok_or(ClientFailure::Closed)?.begin(&asked, block);
            with_timeout(most, stream::judge_stream(round, peer, r, stream)).await.map_err(late)??;
            round.check.keepalive_ms.is_some()
        }
    };
    if reusable {
        *kept = Some(connection);
    }
    Ok(())
}

/// Connects to a server.
async fn open(
    round: &Round,
    peer: &Peer,
    prober: &dyn Prober,
    r: &mut Request,
) -> Result<IdleConnection, ProbeFailure> {
    let times = prober.timeouts();
    let address = round.check.schedule.address(peer);
    let options = prober.options(r);
    let wanted = prober.tls(r, address.to_string())?;
    let late = |_| ClientFailure::TimedOut(ClientStep::Connect);
    if prober.over_quic() {
        let crypto = wanted.ok_or("HTTP/3 needs an https URL".to_string())?.quic();
        let connecting = H3Lease::alone(crypto.map_err(|why| why.to_string())?, &options, &address);
        let lease = with_timeout(times.connect, connecting).await.map_err(late)?.map_err(|why| match why {
            ConnectError::Io(e) => ClientFailure::Io(ClientStep::Connect, e).into(),
            ConnectError::Handshake(why) => ProbeFailure::Server(format!("QUIC handshake failed ({why})")),
        })?;
        return Ok(IdleConnection::new(ProbeConnection::Mux(Box::new(lease))));
    }
    let connected = with_timeout(times.connect, Stream::connect(&address, &options)).await.map_err(late)?;
    let mut stream = connected.map_err(|e| ClientFailure::Io(ClientStep::Connect, e))?;
    if let Some(wanted) = wanted {
        let tls = wanted.stream().map_err(|why| why.to_string())?;
        let shaken = with_timeout(times.connect, stream.handshake(tls)).await;
        shaken.map_err(|_| ClientFailure::TimedOut(ClientStep::Handshake))?.map_err(ClientFailure::Handshake)?;
    }
    Ok(IdleConnection::new(match round.check.grpc {
        Some(_) => ProbeConnection::Grpc(Box::new(H2Connection::new(stream))),
        None if prober.multiplexes() => ProbeConnection::Mux(Box::new(H2Lease::alone(stream, address))),
        None => ProbeConnection::Http(stream),
    }))
}

/// Reads and judges a response over HTTP/1. Returns `true` if its connection can be kept.
async fn judge(
    round: &Round,
    peer: &Arc<Peer>,
    r: &mut Request,
    mut reader: Reader<'_>,
    close: bool,
) -> Result<bool, String> {
    let (head, bytes) = reader.head().await?;
    judge_head(round, peer, r, Rc::new(ReceivedHead { head, buf: bytes.into() }))?;
    let reusable = !close && reader.keep_alive();
    if !round.wants_body() && !reusable {
        return Ok(false);
    }
    let (body, ended) = reader.body().await?;
    round.judge_body(&body)?;
    Ok(reusable && reader.keep_alive() && ended)
}

pub fn judge_head(round: &Round, peer: &Arc<Peer>, r: &mut Request, answer: Rc<ReceivedHead>) -> Result<(), String> {
    let ReceivedHead { head, buf } = &*answer;
    let Some(matching) = &round.matching else { return accept_status(head.status) };
    let text = |span: Span| span.of(buf).to_vec();
    let fields: Vec<_> = head.fields.all.iter().map(|f| (text(f.name), text(f.value))).collect();
    matching.head(head.status, &fields)?;
    if let Some(state) = UpstreamState::of(r) {
        state.tries.clear();
        state.tries.push(Try { status: head.status, ..Try::of(peer, clock::now()) });
        state.answer = Some(answer);
    }
    matching.required(r)
}
