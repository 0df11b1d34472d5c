//! Passes a request to servers, one after the other until one responds.

use super::accept::{Answered, accept};
use super::body::{self, CLIENT_LEFT, Received, Trailers};
use super::conf::NextUpstream;
use super::conversation::{Io, PeerContext, read_head, said, send_request};
use super::failure::{self, Failure, Outgoing, note, note_at};
use super::target::UpstreamTarget;
use super::{PassPlan, quic, storage};
use crate::balancing::{self, PeerSelection, SelectionState};
use crate::body_store::{self};
use crate::caching;
use crate::hosts::NoTarget;
use crate::ntlm;
use crate::tls::Wanted;
use crate::upstream_state::{self, Try, UpstreamState, shown_url};
use base::clock;
use bytes::Bytes;
use http_engine::{Flow, Request, RequestBody};
use http_types::{BodyLength, Method};
use metrics::process;
use observe::{Level, os};
use runtime::budget;
use session_engine::unopened;
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tls::TlsError;
use tls::verify::Verdict;
use upstream::{
    ClientStream, Connection, Event, H2Lease, HandshakeError, Options, Peer, PeerLease, Pooled, Scope, Stream, mux,
    pool,
};

/// A try that started in place (`direct.rs`) and continues in [`run`].
pub struct Resumed {
    pub selection: SelectionState,
    pub lease: PeerLease,
    /// The request target; see [`super::target::OriginUri`].
    pub uri: Option<Rc<[u8]>>,
    pub outgoing: Outgoing,
    pub started: clock::Instant,
    pub at: ResumedAt,
}

pub enum ResumedAt {
    /// Without an idle connection: connects. The try was counted when it began.
    Connect(clock::Instant),
    /// After an interim response: waits for the final one.
    Interim(Box<Io>, Rc<upstream::ReceivedHead>, usize, clock::Instant),
    /// The server failed, which was counted: another one may be tried.
    Failed(Failure),
}

/// Passes a request on and returns the response; stops when the client disconnects.
pub async fn run(plan: &Arc<PassPlan>, r: &mut Request, resumed: Option<Box<Resumed>>) -> Flow {
    let watch = r.incoming.watch.clone().filter(|_| !plan.conf.ignore_client_abort);
    // Responses to be stored are fetched without a client, too.
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

pub fn client_gone(r: &mut Request) -> Flow {
    let mut action = "connecting to upstream";
    if let Some(one) = UpstreamState::last(r) {
        one.response_time = Some(clock::now().since(one.started));
        if one.connect_time.is_some() {
            action = "sending request to upstream";
        }
    }
    r.accounting.action = Some(action);
    if !r.incoming.watch.as_ref().is_some_and(|watch| watch.is_cut()) {
        r.log(Level::Info, format_args!("{CLIENT_LEFT}"));
    }
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
    // A stored response is served even if its server no longer resolves.
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
    // Boxed: otherwise every task would contain and move it.
    Box::pin(servers(plan, r, &target, &outgoing, selection, clock::now(), None)).await
}

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
    if let Some(state) = UpstreamState::of(r) {
        state.uri = target.uri.clone();
    }
    loop {
        let mut active = match lease.take() {
            Some(lease) => Some(lease),
            None => selection.next().await,
        };
        if active.is_none() {
            return no_server(plan, r, target);
        }
        let streamed = matches!(outgoing, Outgoing::Streamed(_));
        let on = Continuation { plan, selection: &selection, started, streamed };
        let tried = attempt(&on, r, target, &mut active, outgoing, at.take()).await;
        if let Err(FailedTry { is_of_connection: true, .. }) = tried {
            selection.allow_another();
            if streamed && let Some(one) = UpstreamState::last(r) {
                // A part of the body may have been taken from the client.
                one.sent = true;
            }
        }
        let on = Continuation { plan, selection: &selection, started, streamed };
        match tried.map_err(|failed| failed.why) {
            Ok(flow) => return flow,
            Err(Failure::Final(status)) => return Flow::Status(status),
            // `accept` has checked that another server may be tried.
            Err(Failure::Status(_)) => {}
            Err(Failure::Unprocessed) => {
                // Counts as not sent.
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

/// Responds when no server of the group is available (any more).
pub fn no_server(plan: &Arc<PassPlan>, r: &mut Request, target: &UpstreamTarget<'_>) -> Flow {
    let name = &target.named.group.name;
    let url = shown_url(target.origin.scheme(), name, target.uri());
    r.log_of(Level::Error, format_args!("no live upstreams while connecting to upstream"), Some(&url));
    if let Some(state) = UpstreamState::of(r) {
        state.push(Try::without_server(name, clock::now()));
    }
    storage::failed(plan, r, NextUpstream::ERROR.0, 502)
}

pub fn nowhere(r: &Request, no: &NoTarget) -> Flow {
    r.log(Level::Error, format_args!("{}", no.words));
    Flow::Status(no.status)
}

pub struct Continuation<'a> {
    pub plan: &'a Arc<PassPlan>,
    pub selection: &'a PeerSelection<'a>,
    pub started: clock::Instant,
    /// The body is streamed, so that it can be sent only once.
    pub streamed: bool,
}

impl Continuation<'_> {
    /// Requires a remaining server: otherwise the last response stands.
    pub fn may(&self, r: &mut Request, bit: u32) -> bool {
        let conf = &self.plan.conf;
        let next = conf.next_upstream;
        let (asked, extra, tries) = (self.selection.asked(), self.selection.extra(), conf.next_upstream_tries);
        let time = conf.next_upstream_timeout;
        let sent = UpstreamState::last(r).is_some_and(|one| one.sent);
        bit & next.0 != 0
            && !next.has(NextUpstream::OFF)
            && asked < self.selection.tries() + extra
            && (tries == 0 || (asked as u64) < tries + extra as u64)
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
        // A request without a body gets no empty one, which another location would announce.
        if !matches!(r.incoming.body, RequestBody::None) {
            let _ = body_store::read(r).await?;
        }
        return Ok(Outgoing::Nothing);
    }
    let length = r.incoming.body_length.unwrap_or(BodyLength::None);
    let may_stream = plan.protocol.may_stream(length);
    if matches!(r.incoming.body, RequestBody::Unread(_)) && !conf.request_buffering && may_stream {
        // A body that came with the head needs no wait, and can be sent again.
        let here = body_store::read_if_here(r).await?;
        return Ok(here.map_or(Outgoing::Streamed(length), Outgoing::Stored));
    }
    if matches!(r.incoming.body, RequestBody::None) && body_store::kept(r).is_none() {
        if length == BodyLength::Exact(0) {
            r.incoming.body_bytes = Some(Bytes::new());
        }
        // `Content-Length: 0` is passed unchanged.
        return Ok(if length == BodyLength::Exact(0) { Outgoing::Text(Vec::new()) } else { Outgoing::Nothing });
    }
    body_store::read(r).await.map(Outgoing::Stored)
}

/// Makes one try. On success the response body takes over the lease. Passed by reference: an owned argument is stored
/// twice in the future.
async fn attempt(
    on: &Continuation<'_>,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    active: &mut Option<PeerLease>,
    outgoing: &Outgoing,
    at: Option<ResumedAt>,
) -> Result<Flow, FailedTry> {
    let Some(peer) = active.as_ref().map(|active| active.peer().clone()) else { return Err(Failure::Error.into()) };
    let at = match at {
        Some(ResumedAt::Failed(why)) => return Err(why.into()),
        at => at,
    };
    if at.is_none() {
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
            flow.map_err(FailedTry::from)
        }
        Err(failed) => {
            if let Some(active) = active {
                count_failure(r, active, target, &failed.why);
            }
            Err(failed)
        }
    }
}

/// Counts a failed try against its server, except for [`Failure::Final`].
pub fn count_failure(r: &mut Request, lease: &mut PeerLease, target: &UpstreamTarget<'_>, why: &Failure) {
    let is_final = matches!(why, Failure::Final(_));
    if let Some(one) = UpstreamState::last(r) {
        let started = one.started;
        one.response_time.get_or_insert_with(|| clock::now().since(started));
        if is_final {
            one.status = 0;
        }
    }
    if is_final {
        return;
    }
    balancing::failed(r, lease, target.uri());
    if matches!(why, Failure::Timeout) {
        failure::log_timeout(r, lease.peer(), target);
    }
    balancing::judge(r, lease, true);
}

pub fn ended(r: &mut Request, flow: &Result<Flow, Failure>, started: clock::Instant) {
    if matches!(flow, Ok(Flow::Content(_))) {
        return;
    }
    if let Some(one) = UpstreamState::last(r) {
        one.response_time = Some(clock::now().since(started));
    }
}

async fn ask(
    plan: &Arc<PassPlan>,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    peer: &Arc<Peer>,
    outgoing: &Outgoing,
    at: Option<ResumedAt>,
) -> Result<Answered, FailedTry> {
    let group = &target.named.group;
    let mut scope = plan.scope(group);
    if !plan.protocol.multiplexes() {
        scope = ntlm::narrow(scope, group, r, peer);
    }
    let mut over = None;
    let started = match at {
        None | Some(ResumedAt::Failed(_)) => {
            let started = begin_try(r, peer);
            if let Some(conditions) = &plan.conf.allow_upstream
                && !conditions.all_true(r)
            {
                return Err(denied(plan, r, target, peer).into());
            }
            started
        }
        Some(ResumedAt::Connect(started)) => started,
        Some(ResumedAt::Interim(mut io, answer, bytes, started)) => {
            let peer_context = PeerContext { plan, target, peer };
            let begun = Box::pin(read_head(&mut io, r, &peer_context, Some((answer, bytes)))).await;
            over = Some(begun.map(|begun| (begun, io)));
            started
        }
    };
    let wanted = match wanted(plan, r, target, peer) {
        Ok(wanted) => wanted,
        Err(why) => {
            note(r, peer, target, &why, "connecting to");
            return Err(Failure::Final(500).into());
        }
    };
    if let Some(wanted) = &wanted {
        // Reuses only connections with equal TLS settings and names.
        scope = scope.narrowed(wanted.scope(), plan.own_scope);
    }
    let (result, fresh) = match over {
        Some(over) => (over, true),
        None => {
            let kept = match plan.protocol.multiplexes() {
                false => pool::take(group, &peer.spec.address, scope).map(Connection::Serial),
                true if plan.protocol.over_quic() => {
                    mux::h3::take(group, &peer.spec.address, scope).map(Connection::Mux)
                }
                true => mux::h2::take(group, &peer.spec.address, scope).map(Connection::Mux),
            };
            let fresh = kept.is_none();
            let connection = match kept {
                Some(connection) => connection,
                // (Boxed: connecting is rare, and would enlarge the future of every request.)
                None => Box::pin(connect(plan, r, target, peer, scope, wanted.as_deref())).await?,
            };
            connected(plan, r, started, fresh);
            (send_request(plan, r, target, peer, outgoing, connection).await, fresh)
        }
    };
    result.map(|(begun, io)| Answered { begun, io, started }).map_err(|why| {
        if let Some(one) = UpstreamState::last(r) {
            one.status = why.status();
            one.response_time = Some(clock::now().since(started));
        }
        FailedTry { is_of_connection: !fresh && note_broken_connection(r, &why), why }
    })
}

/// A failure, and whether the server may have been closing the kept connection.
struct FailedTry {
    why: Failure,
    is_of_connection: bool,
}

impl From<Failure> for FailedTry {
    fn from(why: Failure) -> FailedTry {
        FailedTry { why, is_of_connection: false }
    }
}

/// Returns `true` if a try over a kept connection failed because of the connection: another one follows, if
/// `proxy_next_upstream` permits (nginx: `u->peer.cached`). Notes a request of which no byte was written as not sent.
pub fn note_broken_connection(r: &mut Request, why: &Failure) -> bool {
    let is_broken = matches!(why, Failure::Error | Failure::Unprocessed);
    if is_broken
        && let Some(one) = UpstreamState::last(r)
        && one.bytes_sent == 0
    {
        one.sent = false;
    }
    is_broken
}

/// Notes a try of a server; returns its start.
pub fn begin_try(r: &mut Request, peer: &Arc<Peer>) -> clock::Instant {
    let started = clock::now();
    let span = r.begin_try();
    if let Some(state) = UpstreamState::of(r) {
        state.push(Try { span, ..Try::of(peer, started) });
        state.answer = None;
    }
    started
}

/// Logs that the conditions of `proxy_allow_upstream` and the like exclude a server.
fn denied(plan: &PassPlan, r: &mut Request, target: &UpstreamTarget<'_>, peer: &Peer) -> Failure {
    let words = format!("access to upstream denied by \"{}_allow_upstream\"", plan.conf.prefix);
    note(r, peer, target, &words, "connecting to");
    if let Some(one) = UpstreamState::last(r) {
        (one.status, one.response_time) = (Failure::Denied.status(), Some(Duration::ZERO));
    }
    Failure::Denied
}

/// Notes the time to a connection; kept connections do not count in the metric. Until the request is written, variables
/// do not show the server, unless requests are dynamic: nginx writes the request before it selects a server.
pub fn connected(plan: &PassPlan, r: &mut Request, started: clock::Instant, fresh: bool) {
    if fresh {
        process::UPSTREAM_CONNECT.note(clock::now().micros_since(started));
    }
    UpstreamState::connected(r, started, !plan.conf.request_dynamic);
}

async fn connect(
    plan: &PassPlan,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    peer: &Peer,
    scope: Scope,
    wanted: Option<&Wanted>,
) -> Result<Connection, Failure> {
    if plan.protocol.over_quic() {
        return quic::connect(plan, r, target, peer, scope, wanted).await;
    }
    let options = options(plan, r);
    let connecting = Stream::connect(&peer.spec.address, &options);
    let mut stream = match runtime::time::timeout(plan.conf.connect_timeout, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return Err(not_connected(r, peer, target, &options, &e)),
        Err(_) => return Err(failure::timed_out(r, target, "connecting to")),
    };
    if let Some(wanted) = wanted {
        handshake(plan, r, target, peer, &mut stream, wanted).await?;
    }
    let (group, address) = (&target.named.group, peer.spec.address.clone());
    Ok(match plan.protocol.codec() {
        Some(codec) => Connection::Serial(Pooled::new(stream, codec, group, address, scope)),
        None => Connection::Mux(Box::new(H2Lease::new(stream, group, address, scope))),
    })
}

pub fn options(plan: &PassPlan, r: &mut Request) -> Options {
    let conf = &plan.conf;
    let (from, transparent) = upstream_state::local_address(r, &conf.bind, conf.bind_dynamic);
    Options {
        from,
        transparent,
        keepalive: conf.socket_keepalive,
        receive_buffer: conf.receive_buffer,
        send_buffer: conf.send_buffer,
    }
}

pub fn not_connected(
    r: &mut Request,
    peer: &Peer,
    target: &UpstreamTarget<'_>,
    options: &Options,
    e: &std::io::Error,
) -> Failure {
    if let Some((level, words)) = unopened(e) {
        note_at(level, r, peer, target, &words, "connecting to");
        if let Some(one) = UpstreamState::last(r) {
            one.has_no_socket = true;
        }
        return Failure::Final(500);
    }
    let refused = options.transparent && e.kind() == std::io::ErrorKind::PermissionDenied;
    let level = if upstream::is_usual(e) { Level::Error } else { Level::Crit };
    let words = format!("{} failed {}", upstream::connect_call(peer, e), os(e));
    let failed = note_at(level, r, peer, target, &words, "connecting to");
    if refused { Failure::Final(500) } else { failed }
}

/// Returns the TLS requirements of a connection; `None`: cleartext.
pub fn wanted(
    plan: &PassPlan,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    peer: &Peer,
) -> Result<Option<Box<Wanted>>, String> {
    let Some(tls) = plan.tls.as_ref().filter(|_| target.origin.tls) else { return Ok(None) };
    tls.wanted(r, &target.origin.host, peer.spec.address.to_string()).map(|wanted| Some(Box::new(wanted)))
}

/// Performs the TLS handshake (nginx: `ngx_http_upstream_ssl_init_connection`).
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
        Ok(Err(HandshakeError::Io(e))) => format!("peer closed connection in SSL handshake {}", os(&e)),
        Ok(Err(HandshakeError::Tls(TlsError::Verify(Verdict::HOST)))) => {
            format!("upstream SSL certificate does not match \"{}\"", wanted.name())
        }
        Ok(Err(HandshakeError::Tls(TlsError::Verify(verdict)))) => {
            format!("upstream SSL certificate verify error: ({}:{})", verdict.0, verdict.reason())
        }
        Ok(Err(HandshakeError::Tls(why))) => format!("SSL_do_handshake() failed (SSL: {why})"),
        Err(_) => return Err(failure::timed_out(r, target, DOING)),
    };
    Err(note(r, peer, target, &words, DOING))
}

fn is_idempotent(r: &Request) -> bool {
    !matches!(r.head.method, Method::Post | Method::Lock | Method::Patch)
}

/// Returns the body if all of it came with its head; otherwise the bytes so far, as an error.
pub fn at_once(r: &mut Request, stream: &mut ClientStream, trailers: &Trailers) -> Result<Bytes, Received> {
    let mut all = Bytes::new();
    loop {
        match stream.buffered() {
            Ok(Some(Event::Body(more))) if all.is_empty() => all = more,
            Ok(Some(Event::Body(more))) => all = [all, more].concat().into(),
            Ok(Some(Event::Stderr(words))) => {
                said(r, &words, "reading");
                if !budget::is_left() {
                    return Err(Received { bytes: all, wrong: None });
                }
            }
            Ok(Some(Event::End(end))) => {
                if let Some(words) = end.excess.filter(|_| !r.is_head()) {
                    body::say(r, Level::Warn, words);
                }
                if !end.trailers.is_empty() {
                    trailers.expect(r);
                    trailers.take(r, &end.trailers);
                }
                return Ok(all);
            }
            Ok(_) => return Err(Received { bytes: all, wrong: None }),
            Err(wrong) => return Err(Received { bytes: all, wrong: Some(wrong) }),
        }
    }
}
