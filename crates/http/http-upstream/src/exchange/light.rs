//! Plain requests and responses over an idle connection: one buffer out, one read in, lines unchanged. Other cases
//! continue in `conversation.rs`.

use super::conversation::{self, Io, PeerContext};
use super::failure::{self, TryFailure};
use super::{Announce, PassPlan};
use crate::balancing;
use crate::target::UpstreamTarget;
use crate::upstream_state::{self, UpstreamState};
use base::clock::{self, Instant};
use bytes::Bytes;
use http_engine::order::FilterOrder;
use http_engine::{Request, ResponseBody, Str, trace_id};
use http_types::{Known, Method};
use std::cell::{Cell, RefCell};
use std::io;
use std::task::{Context, Poll};
use upstream::{PeerLease, PooledConnection, RequestFacts, Serial, pool};
use wire_h1::{RelayHead, RelayMemory, RelayRules, relay_response};

/// Bytes per read; larger responses take the general path.
const READ_BYTES: usize = 8 * 1024;

/// Locations of a thread whose last heads are kept.
const MEMORIES: usize = 8;

thread_local! {
    static INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// Lines of earlier heads, by location.
    static HEADS: RefCell<[RelayMemory; MEMORIES]> = RefCell::default();
}

/// A request on the short path. [`Light::begin`], [`Light::poll`] until ready, [`Light::finish`]; dropped, it closes
/// its connection.
pub struct Light {
    connection: Box<PooledConnection>,
    /// The announced length of the body is correct.
    honest: bool,
}

/// Result of the short path.
pub enum LightStep {
    /// The head is in `Request::out`; this is the body.
    Whole(ResponseBody),
    /// Continues on the general path.
    General(Box<Io>),
    /// The try has failed; its line is logged.
    Failed(TryFailure),
}

/// Tells whether requests of a location may take this path; [`is_for`] tells it of a request.
pub fn is_possible(plan: &PassPlan) -> bool {
    let conf = &plan.conf;
    plan.protocol.relays().is_some()
        && plan.caching.is_none()
        && plan.storing.is_none()
        && plan.hidden.has(Known::Server, b"")
        && plan.hidden.has(Known::Date, b"")
        && !conf.force_ranges
        && !conf.intercept_errors
        && conf.retry.is_none()
        && conf.limit_rate.is_none()
}

/// Tells whether a request may take this path: no filter, transform or variable reads its response's fields.
pub fn is_for(r: &Request) -> bool {
    let filters = &r.loc().filters;
    !r.plan().asks_for_fields
        && r.head.method != Method::Head
        && !r.is_subrequest()
        && !r.progress.is_post_action()
        && r.trace().is_none()
        && r.loc().transform.is_none()
        && r.loc().late_transform.is_none()
        && r.loc().guard.is_none()
        && !r.loc().core.rate_limited
        && filters.iter().all(|(order, _)| matches!(order, FilterOrder::NotModified | FilterOrder::Range))
}

impl Light {
    /// Writes the request. `Err`: the general path continues, because the socket did not take all of it, or responds with this status.
    pub fn begin(
        plan: &PassPlan,
        r: &mut Request,
        target: &UpstreamTarget<'_>,
        announce: Announce,
        mut connection: Box<PooledConnection>,
    ) -> Result<Light, Result<Box<Io>, u16>> {
        let mut out = conversation::spare_buffer();
        let honest = plan.protocol.write(plan, r, target, announce, &mut out).map_err(Err);
        let asked = RequestFacts { method: r.head.method, head_max: plan.conf.buffer_size as usize, chunked: false };
        let one = UpstreamState::show(r);
        let honest = honest?;
        connection.begin(&asked, &out);
        let sent = connection.try_write(&out).unwrap_or(0);
        if let Some(one) = one {
            one.sent = true;
            one.transferred(sent as u64, 0);
        }
        if sent < out.len() {
            // The error of a failed write is dropped: a later write or read of the general path meets the broken
            // connection.
            let stream = Serial::resume(connection, out, sent, Vec::new());
            return Err(Ok(conversation::resume_stream(plan, stream, honest)));
        }
        conversation::set_spare(out);
        Ok(Light { connection, honest })
    }

    /// Waits for the response; `Pending` keeps the state.
    pub fn poll(&mut self, plan: &PassPlan, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, io::Error>> {
        loop {
            let mut input = INPUT.take();
            input.clear();
            input.reserve(READ_BYTES);
            match self.connection.try_read(&mut input) {
                Ok(_) => return Poll::Ready(Ok(input)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => INPUT.set(input),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    INPUT.set(input);
                    match self.connection.poll_readable(cx, plan.conf.read_timeout) {
                        Poll::Ready(true) => {}
                        Poll::Ready(false) => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Converts the received bytes to the response, if all of it has arrived and its head can be passed on as lines;
    /// otherwise the general path continues with them.
    pub fn finish(
        self,
        r: &mut Request,
        plan: &PassPlan,
        target: &UpstreamTarget<'_>,
        lease: &mut PeerLease,
        started: Instant,
        got: Result<Vec<u8>, io::Error>,
    ) -> LightStep {
        let input = match got {
            Ok(input) => input,
            Err(e) => {
                let context = PeerContext { plan, target, peer: lease.peer() };
                return LightStep::Failed(conversation::read_failure(r, &context, &e));
            }
        };
        if let Some(one) = UpstreamState::last(r) {
            one.transferred(0, input.len() as u64);
        }
        let rules = RelayRules {
            id: plan.own_scope.number() as u64,
            hidden: &plan.hidden,
            cookies: plan.protocol.relays() == Some(true),
            head_max: plan.conf.buffer_size as usize,
        };
        let head = HEADS.with_borrow_mut(|heads| {
            let memory = heads.get_mut(plan.own_scope.number() % MEMORIES)?;
            relay_response(&input, &rules, memory, r.out.lines_mut())
        });
        let head = head.filter(|head| failure::status_bit(head.status) == 0);
        let Some(head) = head else {
            r.out.lines_mut().clear();
            let stream = Serial::resume(self.connection, Vec::new(), 0, input);
            return LightStep::General(conversation::resume_stream(plan, stream, self.honest));
        };
        answered(r, target, lease, started, &head, input.len());
        balancing::bind_client(target.named, r, lease);
        let body = take(r, &head, &input);
        if self.honest && head.keep_alive {
            pool::give_back(self.connection, &lease.group().keepalive);
        }
        INPUT.set(input);
        LightStep::Whole(body)
    }
}

fn answered(
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    lease: &mut PeerLease,
    started: Instant,
    head: &RelayHead,
    received: usize,
) {
    let now = clock::now();
    let time = now.since(started);
    if let Some(state) = UpstreamState::of(r) {
        state.uri = target.uri.cloned();
        if let Some(one) = state.tries.last_mut() {
            one.status = head.status;
            one.header_time = Some(time);
            one.whole_time = Some(time);
            one.response_length = (received - head.consumed) as u64;
        }
    }
    r.accounting.set_action(Some(upstream_state::OVER));
    lease.answered(
        head.status,
        now.micros_since(started),
        trace_id::may_be_known(r).then_some(|| trace_id::known_trace(r)),
    );
    lease.header(now.millis_since(started));
    balancing::judge_peer(r, lease, false);
}

/// Fills `Request::out`, except its lines.
fn take(r: &mut Request, head: &RelayHead, input: &[u8]) -> ResponseBody {
    let text = r.out.take_text(input.get(..head.consumed).unwrap_or_default());
    r.out.set_status(head.status);
    r.out.set_status_line(Some(Str::Part(text.clone(), head.status_line)));
    if !head.content_type.is_empty() {
        r.out.set_content_type(Str::Part(text, head.content_type));
    }
    r.out.set_content_length(Some(head.length));
    // The server has evaluated the conditions.
    r.reply.ignore_conditions(true);
    match input.get(head.consumed..) {
        Some(body) if !body.is_empty() => ResponseBody::Bytes(Bytes::copy_from_slice(body)),
        _ => ResponseBody::Empty,
    }
}
