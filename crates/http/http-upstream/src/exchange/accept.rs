//! Accepts a response head: the response is passed on, replaced, or left for a try at the next server.

use super::body::{ReadAhead, ReceivedBody, Trailers, UpstreamBody};
use super::conf::{IgnoreHeaders, PassConf};
use super::conversation::{Io, log_said};
use super::failure::{TryFailure, status_bit};
use super::upstream_exchange::UpstreamExchange;
use super::{PassPlan, body, headless, response, storage};
use crate::balancing;
use crate::caching;
use crate::target::UpstreamTarget;
use crate::upgraded::{BUFFER_BYTES, UpgradedTunnel};
use crate::upstream_state::{self, UpstreamState};
use base::clock;
use bytes::Bytes;
use http_engine::{Flow, Request, ResponseBody, trace_id};
use http_types::{BodyLength, Known, Method};
use observe::Severity;
use runtime::budget;
use std::sync::Arc;
use std::time::Duration;
use upstream::{ClientStream, Event, PeerLease, ReceivedHead, ResponseStart};

/// A response head with its connection, and the start of the try.
pub struct AnsweredHead {
    /// The head.
    pub begun: ResponseStart,
    /// The connection.
    pub io: Box<Io>,
    /// Start of the try.
    pub started: clock::Instant,
}

/// Accepts a head as the response. Fails if another server is to be tried.
pub fn accept_head(
    exchange: &UpstreamExchange,
    r: &mut Request,
    answered: AnsweredHead,
    mut active: PeerLease,
) -> Result<Flow, TryFailure> {
    let (plan, target) = (&exchange.plan, &exchange.target());
    let AnsweredHead { begun, mut io, started } = answered;
    let ResponseStart { answer, length, .. } = &begun;
    let time = clock::now().since(started);
    note_head(r, target, &begun, &mut active, time);
    let ReceivedHead { head, buf } = &**answer;
    if io.is_cut_short() && !plan.protocol.goes_both_ways() {
        r.reply.set_keep_alive(false);
    }
    // If no other server may be tried, the response is passed on and does not count against its server.
    if exchange.may_retry(r, status_bit(head.status), Some(head.status)) {
        // nginx does not count 403 and 404 as failures of a server, and a status of `proxy_retry` is no reason to leave it.
        if matches!(head.status, 403 | 404) || status_bit(head.status) & plan.conf.next_upstream.0 == 0 {
            active.passed_on();
            keep_if_bodiless(r, io, *length, &active);
        } else {
            balancing::count_failure(r, &mut active, target.uri());
        }
        return Err(TryFailure::Status(head.status));
    }
    if let Some(flow) = storage::answer_stale(plan, r, status_bit(head.status)) {
        keep_if_bodiless(r, io, *length, &active);
        return Ok(flow);
    }
    balancing::bind_client(target.named, r, &mut active);
    if let Some(flow) = storage::answer_revalidated(plan, r, head, buf) {
        if at_once(r, &mut io.stream, &Trailers::Dropped).is_ok() {
            io.stream.finish(&active.group().keepalive);
        }
        return Ok(flow);
    }
    storage::judge_response(plan, r, head, buf);
    if let Some(flow) = response::take_head(plan, r, head, buf) {
        storage::note_intercepted(r, &flow);
        keep_if_bodiless(r, io, *length, &active);
        return Ok(flow);
    }
    storage::dress_response(r, head, buf);
    if headless::is_headless(head) {
        headless::pass_headless(r, active.peer(), target);
    }
    if head.status == 101 {
        return upgrade(&plan.conf, r, io, active);
    }
    Ok(pass_body(plan, r, AnsweredHead { begun, io, started }, active, time))
}

/// Notes the head in the request's log variables and in the server's state.
fn note_head(
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    begun: &ResponseStart,
    active: &mut PeerLease,
    time: Duration,
) {
    let status = begun.answer.head.status;
    if let Some(state) = UpstreamState::of(r) {
        state.answer = Some(begun.answer.clone());
        state.uri = target.uri.cloned();
        if let Some(one) = state.tries.last_mut() {
            one.status = status;
            one.header_time = Some(time);
        }
    }
    r.accounting.set_action(Some(upstream_state::OVER));
    let trace = trace_id::may_be_known(r).then_some(|| trace_id::known_trace(r));
    active.answered(status, time.as_micros() as u64, trace);
    active.header(time.as_millis() as u64);
    balancing::judge_peer(r, active, matches!(status, 500 | 502..=504));
}

/// Returns the connection to its pool if the replaced response has no body, as nginx does (`u->keepalive` of
/// `process_header`).
fn keep_if_bodiless(r: &mut Request, mut io: Box<Io>, length: BodyLength, active: &PeerLease) {
    if matches!(length, BodyLength::None | BodyLength::Exact(0))
        && at_once(r, &mut io.stream, &Trailers::Dropped).is_ok()
    {
        io.stream.finish(&active.group().keepalive);
    }
}

/// Connects client and server directly after a 101.
fn upgrade(conf: &PassConf, r: &mut Request, io: Box<Io>, active: PeerLease) -> Result<Flow, TryFailure> {
    r.reply.set_keep_alive(false);
    // An upgrade needs the client's `Upgrade` field, and a subrequest has no connection to offer.
    if r.is_subrequest() || r.header(Known::Upgrade).is_none() {
        return Ok(Flow::Content(ResponseBody::Empty));
    }
    let Some((stream, from_server)) = io.stream.into_stream() else { return Err(TryFailure::InvalidHeader) };
    r.reply.set_tunnel(Box::new(UpgradedTunnel {
        stream,
        from_server,
        idle: conf.read_timeout,
        stalled: conf.send_timeout,
        buffer: BUFFER_BYTES,
        active,
    }));
    Ok(Flow::Content(ResponseBody::Empty))
}

/// Passes the body on: at once if all of it has arrived, otherwise piece by piece, and into the cache if it is stored.
fn pass_body(plan: &Arc<PassPlan>, r: &mut Request, answered: AnsweredHead, active: PeerLease, time: Duration) -> Flow {
    let AnsweredHead { begun: ResponseStart { answer, head_bytes, length, behind }, mut io, started } = answered;
    let ReceivedHead { head, buf } = &*answer;
    let conf = &plan.conf;
    r.out.set_content_length(declared_length(r, &answer, length));
    let buffering = is_buffered(conf, &answer);
    // Unbuffered responses are not stored, as in nginx.
    let head_text = buf.get(..head_bytes).unwrap_or_default();
    let recipe =
        if buffering && !headless::is_headless(head) { storage::store_target(plan, r, head, head_text) } else { None };
    // A response to HEAD that is not stored ends with its head, even if `proxy_method` has asked for a body.
    let is_ended = recipe.is_none() && r.head.method == Method::Head && !headless::is_headless(head);
    let is_read = length != BodyLength::None && !is_ended;
    if let Some(one) = UpstreamState::last(r).filter(|_| is_read) {
        one.response_length = behind as u64;
    }
    let trailers = trailers(plan, length);
    let rate = if buffering && length != BodyLength::None {
        conf.limit_rate.as_ref().map_or(0, |rate| rate.get(r))
    } else {
        0
    };
    let mut first = ReceivedBody::default();
    // (nginx serves a single range at most of upstream responses: they take the long way.)
    let may_be_here = match length {
        BodyLength::Exact(n) => n <= behind as u64,
        BodyLength::None => true,
        // The end is told apart from the body: by a chunk, a record or the end of a stream.
        BodyLength::Chunked | BodyLength::UntilClose => behind > 0 && !matches!(trailers, Trailers::Passed(_)),
    };
    if recipe.is_none() && r.is_head() && matches!(length, BodyLength::Exact(1..)) {
        // (For protocols without HEAD.) The body is not read, so that the connection cannot be reused.
        return Flow::Content(ResponseBody::Empty);
    }
    if !buffering && (r.loc().core.rate_limited || r.reply.limit_rate().is_some()) {
        // As in nginx, `limit_rate` does not apply to unbuffered responses.
        r.reply.set_limit_rate(Some(0));
    }
    if recipe.is_none() && may_be_here && rate == 0 && !r.out.allows_ranges() {
        match at_once(r, &mut io.stream, &trailers) {
            Ok(body) => {
                if let Some(one) = UpstreamState::last(r) {
                    one.whole_time = Some(time);
                }
                r.out.set_length_undeclared(matches!(length, BodyLength::Chunked | BodyLength::UntilClose));
                io.stream.finish(&active.group().keepalive);
                return Flow::Content(if body.is_empty() { ResponseBody::Empty } else { ResponseBody::Bytes(body) });
            }
            Err(received) => first = received,
        }
    }
    let memory = conf.buffers.count * conf.buffers.size + conf.buffer_size;
    let ahead = (buffering && recipe.is_none()).then(|| ReadAhead::new(plan.clone(), memory));
    let mut body = UpstreamBody::new(io, active, first, conf.read_timeout, started, ahead);
    body.limit_rate(rate, behind as u64);
    if recipe.is_none() && plan.storing.is_none() && !conf.ignore_client_abort {
        body.watch_client(r.incoming.watch().cloned());
    }
    if plan.protocol.goes_both_ways() {
        body.send_on();
    }
    if !buffering {
        body.flush_pauses();
    }
    trailers.expect(r);
    body.set_trailers(trailers);
    let body = Box::new(body);
    if let Some(recipe) = recipe
        && let Some(temp_path) = &conf.temp_path
    {
        let expected = match length {
            BodyLength::Exact(n) => Some(n),
            BodyLength::None => Some(0),
            _ => None,
        };
        let write_size = conf.temp_file_write_size;
        return Flow::Content(caching::fill(r, recipe, body, expected, memory, temp_path, write_size));
    }
    Flow::Content(ResponseBody::Source(body))
}

/// Returns the length that the response to the client declares.
fn declared_length(r: &Request, answer: &ReceivedHead, length: BodyLength) -> Option<u64> {
    let ReceivedHead { head, buf } = answer;
    match length {
        BodyLength::Exact(n) => Some(n),
        BodyLength::None if r.is_head() || head.status == 304 => {
            let value = head.fields.first(Known::ContentLength)?.of(buf);
            std::str::from_utf8(value).ok()?.trim().parse().ok()
        }
        _ => None,
    }
}

/// Tells whether the response is buffered: by the server's `X-Accel-Buffering`, or by the configuration.
fn is_buffered(conf: &PassConf, answer: &ReceivedHead) -> bool {
    if conf.ignore_headers.has(IgnoreHeaders::BUFFERING) {
        return conf.buffering;
    }
    match answer.head.fields.first(Known::XAccelBuffering).map(|value| value.of(&answer.buf)) {
        Some(value) if value.eq_ignore_ascii_case(b"no") => false,
        Some(value) if value.eq_ignore_ascii_case(b"yes") => true,
        _ => conf.buffering,
    }
}

/// As in nginx, chunked bodies keep trailers only if these are passed on.
fn trailers(plan: &Arc<PassPlan>, length: BodyLength) -> Trailers {
    let is_multiplexed = plan.protocol.multiplexes();
    if plan.conf.pass_trailers && (is_multiplexed || length == BodyLength::Chunked) {
        Trailers::Passed(plan.clone())
    } else if is_multiplexed {
        Trailers::Kept
    } else {
        Trailers::Dropped
    }
}

/// Returns the body if all of it came with its head; otherwise the bytes so far, as an error.
fn at_once(r: &mut Request, stream: &mut ClientStream, trailers: &Trailers) -> Result<Bytes, ReceivedBody> {
    let mut all = Bytes::new();
    loop {
        match stream.buffered() {
            Ok(Some(Event::Body(more))) if all.is_empty() => all = more,
            Ok(Some(Event::Body(more))) => all = [all, more].concat().into(),
            Ok(Some(Event::Stderr(words))) => {
                log_said(r, &words, "reading");
                if !budget::is_left() {
                    return Err(ReceivedBody { bytes: all, wrong: None });
                }
            }
            Ok(Some(Event::End(end))) => {
                if let Some(words) = end.excess.filter(|_| !r.is_head()) {
                    body::log_body(r, Severity::Warn, words);
                }
                if !end.trailers.is_empty() {
                    trailers.expect(r);
                    trailers.take(r, &end.trailers);
                }
                return Ok(all);
            }
            Ok(_) => return Err(ReceivedBody { bytes: all, wrong: None }),
            Err(wrong) => return Err(ReceivedBody { bytes: all, wrong: Some(wrong) }),
        }
    }
}
