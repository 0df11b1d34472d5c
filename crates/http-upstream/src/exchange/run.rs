//! One request to as many servers as it takes.

use super::body::{self, Ahead, UpstreamBody};
use super::conf::{IgnoreHeaders, NextUpstream};
use super::conversation::{Io, Trial, read_head, said, send_request};
use super::target::UpstreamTarget;
use super::{PassPlan, response, storage};
use crate::balancing::{self, PeerSelection, SelectionState};
use crate::binding::BindTo;
use crate::body_store::{self, BodyStore};
use crate::caching;
use crate::hosts::NoTarget;
use crate::tls::Wanted;
use crate::upgraded::{BUFFER_BYTES, Upgraded};
use crate::upstream_state::{self, Try, UpstreamState, shown_url};
use base::clock;
use bytes::Bytes;
use http_engine::{Body, Flow, Request, RequestBody};
use http_types::{BodyLength, Method};
use metrics::process;
use observe::{Level, os};
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tls::TlsError;
use tls::verify::Verdict;
use upstream::{
    Begun, ClientStream, Connection, Event, HandshakeError, Mux, Options, Peer, PeerLease, Pooled, Stream, mux, pool,
};

/// What went wrong with one server.
#[derive(Debug)]
pub enum Failure {
    /// Connecting, sending or receiving failed, or the server closed too early.
    Error,
    Timeout,
    InvalidHeader,
    /// It answered with a status that counts as a failure.
    Status(u16),
    /// The server has done nothing about it, and says so: another may be asked, whatever was asked for.
    Unprocessed,
    /// Nothing that another server could mend: the request ends with this.
    Final(u16),
}

impl Failure {
    fn bit(&self) -> u32 {
        match self {
            Failure::Error | Failure::Unprocessed => NextUpstream::ERROR.0,
            Failure::Timeout => NextUpstream::TIMEOUT.0,
            Failure::InvalidHeader => NextUpstream::INVALID_HEADER.0,
            Failure::Status(status) => status_bit(*status),
            Failure::Final(_) => 0,
        }
    }
    pub fn status(&self) -> u16 {
        match self {
            Failure::Error | Failure::Unprocessed | Failure::InvalidHeader => 502,
            Failure::Timeout => 504,
            Failure::Status(status) | Failure::Final(status) => *status,
        }
    }
}

pub fn status_bit(status: u16) -> u32 {
    match status {
        500 => NextUpstream::HTTP_500.0,
        502 => NextUpstream::HTTP_502.0,
        503 => NextUpstream::HTTP_503.0,
        504 => NextUpstream::HTTP_504.0,
        403 => NextUpstream::HTTP_403.0,
        404 => NextUpstream::HTTP_404.0,
        429 => NextUpstream::HTTP_429.0,
        _ => 0,
    }
}

/// The body as it will be sent.
pub enum Outgoing {
    Nothing,
    Text(Vec<u8>),
    Stored(Rc<BodyStore>),
    /// `proxy_request_buffering off`: passed on as it comes; it can be sent once.
    Streamed(BodyLength),
}

/// A try that was begun in place (`direct.rs`) and wants more than that: where `run` goes on.
pub struct Resumed {
    pub selection: SelectionState,
    pub lease: PeerLease,
    /// The request target; see [`super::target::Place`].
    pub uri: Option<Rc<[u8]>>,
    pub outgoing: Outgoing,
    /// When the first server was asked.
    pub started: clock::Instant,
    pub at: ResumedAt,
}

/// What has become of the try so far.
pub enum ResumedAt {
    /// No idle connection was there: one is to be made.
    Connect,
    /// An interim response has come; the rest is awaited.
    Interim(Box<Io>, Rc<upstream::Answer>, usize, clock::Instant),
    /// A kept connection had ended: nothing came back over it.
    Stale(Failure, clock::Instant),
    /// The server has failed, and that was counted: another one may be asked.
    Failed(Failure),
}

/// Passes a request on and comes back with the response; given up when the client goes away.
pub async fn run(plan: &Arc<PassPlan>, r: &mut Request, resumed: Option<Box<Resumed>>) -> Flow {
    let watch = r.watch.clone().filter(|_| !plan.conf.ignore_client_abort);
    // What is to be stored is fetched even when nobody waits for it.
    let alone = Cell::new(plan.storing.is_some());
    let gone = async {
        match &watch {
            Some(watch) => std::future::poll_fn(|cx| watch.poll_gone(cx)).await,
            None => std::future::pending().await,
        }
        if alone.get() {
            std::future::pending().await
        }
    };
    let flow = tokio::select! {
        biased;
        flow = pass(plan, r, &alone, resumed) => Some(flow),
        () = gone => None,
    };
    caching::finish(r);
    match flow {
        Some(flow) => flow,
        None => client_gone(r),
    }
}

/// The client has gone, and nothing is fetched without it.
pub fn client_gone(r: &mut Request) -> Flow {
    if let Some(one) = UpstreamState::last(r) {
        one.response_ms = Some(clock::now().millis_since(one.started));
    }
    r.action = Some(upstream_state::OVER);
    r.log(Level::Info, format_args!("client prematurely closed connection"));
    Flow::Status(499)
}

async fn pass(plan: &Arc<PassPlan>, r: &mut Request, alone: &Cell<bool>, resumed: Option<Box<Resumed>>) -> Flow {
    if let (Some(resumed), Some((named, origin))) = (resumed, plan.target.fixed()) {
        let Resumed { selection, lease, uri, outgoing, started, at } = *resumed;
        let target = UpstreamTarget { named: Cow::Borrowed(named), origin: Cow::Borrowed(origin), uri };
        let selection = PeerSelection::resume(named, selection);
        return Box::pin(servers(plan, r, &target, &outgoing, selection, started, Some((lease, at)))).await;
    }
    let place = match plan.target.place(r) {
        Ok(place) => place,
        Err(no) => return nowhere(r, &no),
    };
    if let Some(state) = UpstreamState::of(r) {
        state.begin();
        state.origin = Some(place.origin.clone());
    }
    let outgoing = match outgoing(plan, r).await {
        Ok(outgoing) => outgoing,
        Err(status) => return Flow::Status(status),
    };
    // What is stored is given even where its server has no address any more.
    if let Some(flow) = storage::begin(plan, r, &place, alone).await {
        return flow;
    }
    let target = match plan.target.target(r, place).await {
        Ok(target) => target,
        Err(no) => {
            nowhere(r, &no);
            return storage::failed(plan, r, NextUpstream::ERROR.0, no.status);
        }
    };
    let selection = PeerSelection::new(&target.named, r);
    // Boxed: its size would be moved with every task.
    Box::pin(servers(plan, r, &target, &outgoing, selection, clock::now(), None)).await
}

/// Asks one server after the other.
async fn servers(
    plan: &Arc<PassPlan>,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    outgoing: &Outgoing,
    mut selection: PeerSelection<'_>,
    started: clock::Instant,
    resumed: Option<(PeerLease, ResumedAt)>,
) -> Flow {
    let (mut lease, mut at) = resumed.unzip();
    loop {
        let mut active = match lease.take() {
            Some(lease) => Some(lease),
            None => selection.next().await,
        };
        if active.is_none() {
            return no_server(plan, r, target);
        }
        let on = GoOn { plan, selection: &selection, started, streamed: matches!(outgoing, Outgoing::Streamed(_)) };
        match attempt(&on, r, target, &mut active, outgoing, at.take()).await {
            Ok(flow) => return flow,
            Err(Failure::Final(status)) => return Flow::Status(status),
            // Asked before the answer was let go.
            Err(Failure::Status(_)) => {}
            Err(Failure::Unprocessed) => {
                // As if it had never been sent.
                if let Some(one) = UpstreamState::last(r) {
                    one.sent = matches!(outgoing, Outgoing::Streamed(_));
                }
                if !on.may(r, NextUpstream::ERROR.0) {
                    return storage::failed(plan, r, NextUpstream::ERROR.0, 502);
                }
            }
            Err(why) if on.may(r, why.bit()) => {}
            Err(why) => return storage::failed(plan, r, why.bit(), why.status()),
        }
    }
}

/// No server of the group may be asked (any more).
pub fn no_server(plan: &Arc<PassPlan>, r: &mut Request, target: &UpstreamTarget<'_>) -> Flow {
    let name = &target.named.group.name;
    let url = shown_url(target.origin.scheme(), name, target.uri());
    r.log_of(Level::Error, format_args!("no live upstreams while connecting to upstream"), Some(&url));
    if let Some(state) = UpstreamState::of(r) {
        state.push(Try { status: 502, response_ms: Some(0), ..Try::new(name.as_str().into(), clock::now()) });
    }
    storage::failed(plan, r, NextUpstream::ERROR.0, 502)
}

pub fn nowhere(r: &Request, no: &NoTarget) -> Flow {
    r.log(Level::Error, format_args!("{}", no.words));
    Flow::Status(no.status)
}

/// Whether another server may be asked (nginx: `ngx_http_upstream_next`, `ngx_http_upstream_test_next`).
pub struct GoOn<'a> {
    pub plan: &'a Arc<PassPlan>,
    pub selection: &'a PeerSelection<'a>,
    pub started: clock::Instant,
    /// The body is passed on as it comes: it can be sent once.
    pub streamed: bool,
}

impl GoOn<'_> {
    /// As long as servers are left: the last answer stands where nobody else could be asked.
    fn may(&self, r: &mut Request, bit: u32) -> bool {
        let conf = &self.plan.conf;
        let next = conf.next_upstream;
        let (asked, tries) = (self.selection.asked(), conf.next_upstream_tries);
        let time = conf.next_upstream_timeout;
        let sent = UpstreamState::last(r).is_some_and(|one| one.sent);
        bit & next.0 != 0
            && !next.has(NextUpstream::OFF)
            && asked < self.selection.tries()
            && (tries == 0 || (asked as u64) < tries)
            && !(sent && self.streamed)
            && (!sent || is_idempotent(r) || next.has(NextUpstream::NON_IDEMPOTENT))
            && (time == 0 || clock::now().millis_since(self.started) < time)
            && self.selection.may_retry(r)
    }
}

async fn outgoing(plan: &PassPlan, r: &mut Request) -> Result<Outgoing, u16> {
    let conf = &plan.conf;
    if let Some(text) = &conf.set_body {
        let _ = body_store::read(r).await?;
        return Ok(Outgoing::Text(text.eval(r)));
    }
    if !conf.pass_request_body {
        // A request without a body is not given an empty one, which another location would announce.
        if !matches!(r.body, RequestBody::None) {
            let _ = body_store::read(r).await?;
        }
        return Ok(Outgoing::Nothing);
    }
    let length = r.body_length.unwrap_or(BodyLength::None);
    let may_stream = plan.protocol.may_stream(length);
    if matches!(r.body, RequestBody::Unread(_)) && !conf.request_buffering && may_stream {
        // A body that has come along with the head is not waited for, and can be sent again.
        let here = body_store::read_if_here(r).await?;
        return Ok(here.map_or(Outgoing::Streamed(length), Outgoing::Stored));
    }
    if matches!(r.body, RequestBody::None) && body_store::kept(r).is_none() {
        if length == BodyLength::Exact(0) {
            r.body_bytes = Some(Bytes::new());
        }
        // `Content-Length: 0` is passed on as it is.
        return Ok(if length == BodyLength::Exact(0) { Outgoing::Text(Vec::new()) } else { Outgoing::Nothing });
    }
    body_store::read(r).await.map(Outgoing::Stored)
}

/// `active` is given up to whoever reads the answer; it stays where there is none (by reference: an argument takes its place in a task
/// twice).
async fn attempt(
    on: &GoOn<'_>,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    active: &mut Option<PeerLease>,
    outgoing: &Outgoing,
    at: Option<ResumedAt>,
) -> Result<Flow, Failure> {
    let Some(peer) = active.as_ref().map(|active| active.peer().clone()) else { return Err(Failure::Error) };
    let at = match at {
        Some(ResumedAt::Failed(why)) => return Err(why),
        at => at,
    };
    if matches!(at, None | Some(ResumedAt::Connect)) {
        process::UPSTREAM_REQUESTS.up();
        if on.selection.asked() > 1 {
            process::UPSTREAM_RETRIES.up();
        }
    }
    match ask(on.plan, r, target, &peer, outgoing, at).await {
        Ok(answer) => {
            let started = answer.started;
            let flow = accept(on, r, target, answer, active);
            ended(r, &flow, started);
            flow
        }
        Err(why) => {
            if let Some(active) = active {
                count_failure(r, active, target, &why);
            }
            Err(why)
        }
    }
}

/// Counts a failed try against its server, unless the request ends without a word from it.
pub fn count_failure(r: &mut Request, lease: &mut PeerLease, target: &UpstreamTarget<'_>, why: &Failure) {
    if matches!(why, Failure::Final(_)) {
        return;
    }
    if let Some(one) = UpstreamState::last(r) {
        let started = one.started;
        one.response_ms.get_or_insert_with(|| clock::now().millis_since(started));
    }
    balancing::failed(r, lease, target.uri());
    balancing::judge(r, lease, true);
}

/// Notes the end of a response that has no body of its own.
pub fn ended(r: &mut Request, flow: &Result<Flow, Failure>, started: clock::Instant) {
    if matches!(flow, Ok(Flow::Content(_))) {
        return;
    }
    if let Some(one) = UpstreamState::last(r) {
        one.response_ms = Some(clock::now().millis_since(started));
    }
}

/// A head that has come, what its connection is about, and when the try began.
pub struct Answered {
    pub begun: Begun,
    pub io: Box<Io>,
    pub started: clock::Instant,
}

/// Sends the request to one server and waits for the head of its answer.
async fn ask(
    plan: &Arc<PassPlan>,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    peer: &Arc<Peer>,
    outgoing: &Outgoing,
    at: Option<ResumedAt>,
) -> Result<Answered, Failure> {
    let group = &target.named.group;
    let mut scope = plan.scope(group);
    let mut over = None;
    let started = match at {
        None | Some(ResumedAt::Connect | ResumedAt::Failed(_)) => {
            let started = clock::now();
            if let Some(state) = UpstreamState::of(r) {
                state.push(Try::new(peer.text.clone(), started));
                state.answer = None;
            }
            started
        }
        Some(ResumedAt::Stale(why, started)) => {
            over = Some((Err((why, true)), 0, false));
            started
        }
        Some(ResumedAt::Interim(mut io, answer, bytes, started)) => {
            let trial = Trial { plan, target, peer };
            let begun = Box::pin(read_head(&mut io, r, &trial, Some((answer, bytes)))).await;
            over = Some((begun.map(|begun| (begun, io)), 0, true));
            started
        }
    };
    let wanted = match wanted(plan, r, target, peer) {
        Ok(wanted) => wanted,
        Err(why) => {
            note(r, peer, target, &why, "SSL handshaking to");
            return Err(Failure::Final(500));
        }
    };
    if let Some(wanted) = &wanted {
        // Connections under other rules, or to other names, are not this one's.
        scope ^= wanted.scope();
    }
    // A kept connection may have been closed by its server this very moment: then a new one is tried at once, if the
    // request may be sent twice.
    loop {
        let (result, sent, fresh) = match over.take() {
            Some(over) => over,
            None => {
                let kept = match plan.protocol.multiplexes() {
                    false => pool::take(group, &peer.spec.address, scope).map(Connection::Serial),
                    true => mux::take(group, &peer.spec.address, scope).map(Connection::Mux),
                };
                let fresh = kept.is_none();
                let connection = match kept {
                    Some(connection) => connection,
                    // (Boxed: connecting is rare, and would enlarge the future of every request.)
                    None => Box::pin(connect(plan, r, target, peer, scope, wanted.as_deref())).await?,
                };
                let sent = UpstreamState::last(r).map_or(0, |one| one.bytes_sent);
                connected(r, started, fresh);
                (send_request(plan, r, target, peer, outgoing, connection).await, sent, fresh)
            }
        };
        match result {
            Ok((begun, io)) => return Ok(Answered { begun, io, started }),
            Err((Failure::Unprocessed, _)) if !fresh && !matches!(outgoing, Outgoing::Streamed(_)) => {}
            Err((Failure::Error, true))
                if !fresh
                    && (is_idempotent(r) || UpstreamState::last(r).is_some_and(|one| one.bytes_sent == sent))
                    && !matches!(outgoing, Outgoing::Streamed(_)) => {}
            Err((why, nothing)) => {
                let ms = clock::now().millis_since(started);
                if matches!(why, Failure::Error) && nothing && !fresh {
                    note(r, peer, target, "upstream prematurely closed connection", "reading response header from");
                }
                if let Some(one) = UpstreamState::last(r) {
                    one.status = why.status();
                    one.response_ms = Some(ms);
                }
                return Err(why);
            }
        }
    }
}

/// Notes how long a try has waited for its connection; kept ones have no time of connecting.
pub fn connected(r: &mut Request, started: clock::Instant, fresh: bool) {
    if fresh {
        process::UPSTREAM_CONNECT.note(clock::now().micros_since(started));
    }
    if let Some(one) = UpstreamState::last(r) {
        one.connect_ms = Some(clock::now().millis_since(started));
    }
}

async fn connect(
    plan: &PassPlan,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    peer: &Peer,
    scope: usize,
    wanted: Option<&Wanted>,
) -> Result<Connection, Failure> {
    let options = options(plan, r);
    let connecting = Stream::connect(&peer.spec.address, &options);
    let mut stream = match runtime::time::timeout(plan.conf.connect_timeout, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return Err(not_connected(r, peer, target, &options, &e)),
        Err(_) => {
            note(r, peer, target, TIMED_OUT, "connecting to");
            return Err(Failure::Timeout);
        }
    };
    if let Some(wanted) = wanted {
        handshake(plan, r, target, peer, &mut stream, wanted).await?;
    }
    let (group, address) = (&target.named.group, peer.spec.address.clone());
    Ok(match plan.protocol.codec() {
        Some(codec) => Connection::Serial(Pooled::new(stream, codec, group, address, scope)),
        None => Connection::Mux(Mux::new(stream, group, address, scope)),
    })
}

/// nginx's words for a server that is too slow.
pub const TIMED_OUT: &str = "upstream timed out (110: Connection timed out)";

/// How connections of a location are made.
pub fn options(plan: &PassPlan, r: &mut Request) -> Options {
    let conf = &plan.conf;
    let (from, transparent) = BindTo::of(&conf.bind, r);
    Options {
        from,
        transparent,
        keepalive: conf.socket_keepalive,
        receive_buffer: conf.receive_buffer,
        send_buffer: conf.send_buffer,
    }
}

/// Logs why there is no connection.
pub fn not_connected(
    r: &mut Request,
    peer: &Peer,
    target: &UpstreamTarget<'_>,
    options: &Options,
    e: &std::io::Error,
) -> Failure {
    let refused = options.transparent && e.kind() == std::io::ErrorKind::PermissionDenied;
    let to = match &peer.spec.address {
        upstream::Address::Ip(_) if !is_immediate(e) => String::new(),
        _ => format!(" to {}", peer.text),
    };
    let level = if is_usual(e) { Level::Error } else { Level::Crit };
    let words = format!("connect(){to} failed {}", os(e));
    let failed = note_at(level, r, peer, target, &words, "connecting to");
    if refused { Failure::Final(500) } else { failed }
}

/// What a connection must be like when it is one over TLS.
pub fn wanted(
    plan: &PassPlan,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    peer: &Peer,
) -> Result<Option<Box<Wanted>>, String> {
    let Some(tls) = plan.tls.as_ref().filter(|_| target.origin.tls) else { return Ok(None) };
    tls.wanted(r, &target.origin.host, peer.spec.address.to_string()).map(|wanted| Some(Box::new(wanted)))
}

/// The handshake (nginx: `ngx_http_upstream_ssl_init_connection`).
async fn handshake(
    plan: &PassPlan,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    peer: &Peer,
    stream: &mut Stream,
    wanted: &Wanted,
) -> Result<(), Failure> {
    const DOING: &str = "SSL handshaking to";
    let tls = wanted
        .stream()
        .map_err(|why| note(r, peer, target, &format!("SSL_do_handshake() failed (SSL: {why})"), DOING))?;
    let words = match runtime::time::timeout(plan.conf.connect_timeout, stream.handshake(tls)).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(HandshakeError::Closed)) => "peer closed connection in SSL handshake".into(),
        Ok(Err(HandshakeError::Io(e))) => format!("SSL_do_handshake() failed {}", os(&e)),
        Ok(Err(HandshakeError::Tls(TlsError::Verify(Verdict::HOST)))) => {
            format!("upstream SSL certificate does not match \"{}\"", wanted.name())
        }
        Ok(Err(HandshakeError::Tls(TlsError::Verify(verdict)))) => {
            format!("upstream SSL certificate verify error: ({}:{})", verdict.0, verdict.reason())
        }
        Ok(Err(HandshakeError::Tls(why))) => format!("SSL_do_handshake() failed (SSL: {why})"),
        Err(_) => {
            note(r, peer, target, TIMED_OUT, DOING);
            return Err(Failure::Timeout);
        }
    };
    Err(note(r, peer, target, &words, DOING))
}

fn is_idempotent(r: &Request) -> bool {
    !matches!(r.head.method, Method::Post | Method::Lock | Method::Patch)
}

/// The system call itself fails like this, before any network is asked: nginx then names the address.
fn is_immediate(e: &std::io::Error) -> bool {
    const ERRORS: &[i32] =
        &[libc::EINVAL, libc::ENETUNREACH, libc::EADDRNOTAVAIL, libc::EAFNOSUPPORT, libc::EACCES, libc::EPERM];
    e.raw_os_error().is_some_and(|code| ERRORS.contains(&code))
}

/// Whether a server that is down, or a network, fails like this; anything else is of more interest (nginx:
/// `ngx_event_connect_peer`).
fn is_usual(e: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    matches!(
        e.kind(),
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::WouldBlock
            | Kind::NetworkDown
            | Kind::NetworkUnreachable
            | Kind::HostUnreachable
            | Kind::TimedOut
    )
}

/// Logs a failure with nginx's facts.
pub fn note(r: &mut Request, peer: &Peer, target: &UpstreamTarget<'_>, words: &str, doing: &str) -> Failure {
    note_at(Level::Error, r, peer, target, words, doing)
}

fn note_at(
    level: Level,
    r: &mut Request,
    peer: &Peer,
    target: &UpstreamTarget<'_>,
    words: &str,
    doing: &str,
) -> Failure {
    let url = shown_url(target.origin.scheme(), &peer.text, target.uri());
    r.log_of(level, format_args!("{words} while {doing} upstream"), Some(&url));
    r.action = Some(upstream_state::OVER);
    if let Some(state) = UpstreamState::of(r) {
        state.uri = target.uri.clone();
    }
    if let Some(one) = UpstreamState::last(r) {
        one.status = 502;
    }
    Failure::Error
}

/// The body, when all of it has come along with its head; else what has come of it.
fn at_once(r: &mut Request, stream: &mut ClientStream) -> Result<Bytes, Bytes> {
    let mut all = Bytes::new();
    loop {
        match stream.buffered() {
            Ok(Some(Event::Body(more))) if all.is_empty() => all = more,
            Ok(Some(Event::Body(more))) => all = [all, more].concat().into(),
            Ok(Some(Event::Said(words))) => said(r, &words, "reading"),
            Ok(Some(Event::End(end))) => {
                if let Some(words) = end.excess {
                    // (The connection is not used again: its codec knows.)
                    body::say(r, Level::Warn, words);
                }
                return Ok(all);
            }
            // (What is wrong is said again to whoever reads on.)
            _ => return Err(all),
        }
    }
}

/// A head has come: it is the answer, or the next server is asked, with the lease handed back.
pub fn accept(
    on: &GoOn<'_>,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    answer: Answered,
    lease: &mut Option<PeerLease>,
) -> Result<Flow, Failure> {
    let Some(mut active) = lease.take() else { return Err(Failure::Error) };
    let (plan, selection) = (on.plan, on.selection);
    let Answered { begun: Begun { answer, head_bytes, length, behind }, mut io, started } = answer;
    let ms = clock::now().millis_since(started);
    if let Some(state) = UpstreamState::of(r) {
        state.answer = Some(answer.clone());
        state.uri = target.uri.clone();
        if let Some(one) = state.tries.last_mut() {
            one.status = answer.head.status;
            one.header_ms = Some(ms);
        }
    }
    r.action = Some(upstream_state::OVER);
    let upstream::Answer { head, buf } = &*answer;
    active.answered(head.status, clock::now().micros_since(started));
    active.header(ms);
    balancing::judge(r, &active, matches!(head.status, 500 | 502..=504));
    let conf = &plan.conf;
    let sends_on = plan.protocol.goes_both_ways();
    if io.is_cut_short() && !sends_on {
        // What the client still sends is nobody's.
        r.keep_alive = false;
    }
    // An answer that nobody else can better is passed on, and does not count against its server.
    if on.may(r, status_bit(head.status)) {
        // 403 and 404 are answers like others: they do not make a server a failing one.
        if matches!(head.status, 403 | 404) {
            active.passed_on();
        } else {
            balancing::failed(r, &mut active, target.uri());
        }
        *lease = Some(active);
        return Err(Failure::Status(head.status));
    }
    if let Some(flow) = storage::instead(plan, r, status_bit(head.status)) {
        return Ok(flow);
    }
    selection.answered(r, &mut active);
    if let Some(flow) = storage::revalidated(plan, r, head, buf) {
        // The connection goes back to the others.
        if at_once(r, &mut io.stream).is_ok() {
            io.stream.finish(&active.group().keepalive);
        }
        return Ok(flow);
    }
    storage::judged(plan, r, head, buf);
    if let Some(flow) = response::take(plan, r, head, buf) {
        storage::intercepted(r, &flow);
        return Ok(flow);
    }
    storage::dress(r, head, buf);
    if head.status == 101 {
        r.keep_alive = false;
        // Only the client itself can have its connection turned into something else, and must have asked for it.
        if r.is_subrequest() || r.header(http_types::Known::Upgrade).is_none() {
            return Ok(Flow::Content(Body::Empty));
        }
        let Some((stream, from_server)) = io.stream.into_stream() else { return Err(Failure::InvalidHeader) };
        r.tunnel = Some(Box::new(Upgraded {
            stream,
            from_server,
            idle: conf.read_timeout,
            stalled: conf.send_timeout,
            buffer: BUFFER_BYTES,
            active,
        }));
        return Ok(Flow::Content(Body::Empty));
    }
    r.out.content_length = match length {
        BodyLength::Exact(n) => Some(n),
        BodyLength::None if r.is_head() || head.status == 304 => head
            .fields
            .first(http_types::Known::ContentLength)
            .and_then(|v| std::str::from_utf8(v.of(buf)).ok().and_then(|s| s.trim().parse().ok())),
        _ => None,
    };
    let ignored = conf.ignore_headers.has(IgnoreHeaders::BUFFERING);
    let said = head.fields.first(http_types::Known::XAccelBuffering).map(|v| v.of(buf).to_ascii_lowercase());
    let buffering = match said.as_deref() {
        Some(b"no") if !ignored => false,
        Some(b"yes") if !ignored => true,
        _ => conf.buffering,
    };
    if let Some(one) = UpstreamState::last(r).filter(|_| length != BodyLength::None) {
        one.response_length = behind as u64;
    }
    // What is not buffered is not stored, as in nginx.
    let head_text = buf.get(..head_bytes).unwrap_or_default();
    let recipe = if buffering { storage::recipe(plan, r, head, head_text) } else { None };
    let trailers = conf.pass_trailers && (length == BodyLength::Chunked || plan.protocol.multiplexes());
    let rate = if buffering { conf.limit_rate.as_ref().map_or(0, |rate| rate.get(r)) } else { 0 };
    let mut first = Bytes::new();
    // (What comes from a server is cut into one range at most, as in nginx: such bodies take the long way.)
    let short = matches!(length, BodyLength::Exact(n) if n <= behind as u64);
    if recipe.is_none() && r.is_head() && matches!(length, BodyLength::Exact(1..)) {
        // (A protocol without HEAD.) What nobody wants is not read, and the connection is of no more use.
        return Ok(Flow::Content(Body::Empty));
    }
    if recipe.is_none() && (short || length == BodyLength::None) && rate == 0 && !r.out.ranges_allowed {
        match at_once(r, &mut io.stream) {
            // All of it is here: the server is free for the next request.
            Ok(body) => {
                if let Some(one) = UpstreamState::last(r) {
                    one.whole_ms = Some(ms);
                }
                io.stream.finish(&active.group().keepalive);
                return Ok(Flow::Content(if body.is_empty() { Body::Empty } else { Body::Bytes(body) }));
            }
            Err(some) => first = some,
        }
    }
    let memory = conf.buffers.count * conf.buffers.size + conf.buffer_size;
    let ahead = (buffering && recipe.is_none()).then(|| Ahead::new(plan.clone(), memory));
    let mut body = UpstreamBody::new(io, active, first, conf.read_timeout, started, ahead);
    body.limit_rate(rate, behind as u64);
    if sends_on {
        body.send_on();
    }
    if trailers {
        r.expect_trailers = true;
        body.pass_trailers(plan.clone());
    }
    if let Some(recipe) = recipe
        && let Some(temp_path) = &conf.temp_path
    {
        let expected = match length {
            BodyLength::Exact(n) => Some(n),
            BodyLength::None => Some(0),
            _ => None,
        };
        let body = Box::new(body);
        let write_size = conf.temp_file_write_size;
        return Ok(Flow::Content(caching::fill(r, recipe, body, expected, memory, temp_path, write_size)));
    }
    Ok(Flow::Content(Body::Source(Box::new(body))))
}
