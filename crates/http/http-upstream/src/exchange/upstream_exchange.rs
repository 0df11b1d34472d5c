//! Passes a request to servers, one after the other until one responds: selects, connects, sends, reads the head. Polled in place by
//! the client's connection while nothing else is to be waited for, otherwise by the request's task (`task.rs`).

use super::accept::{AnsweredHead, accept_head};
use super::conf::NextUpstream;
use super::connect::{self, ConnectState};
use super::conversation::{self, HeadStep, Io, PeerContext};
use super::failure::{self, OutgoingState, TryFailure};
use super::light::{self, Light, LightStep};
use super::{PassPlan, early_hints, storage, task};
use crate::balancing::PeerSelection;
use crate::body_store;
use crate::caching::{CacheRequest, CacheState};
use crate::ntlm;
use crate::target::{BoundTarget, UpstreamTarget};
use crate::upstream_state::{Try, UpstreamState};
use base::clock::{self, Instant};
use bytes::Bytes;
use http_engine::{Exchange, Flow, LocalFuture, Request, exchange};
use http_types::{BodyLength, Method, Version};
use metrics::process;
use observe::Severity;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use upstream::{Connection, IdleTimer, PeerLease, ReceivedHead, ResponseStart, mux, pool};

/// Tries of one request. Polled by [`UpstreamExchange::poll_response`]; dropped, it closes the connection of the
/// current try.
pub struct UpstreamExchange {
    /// The location's plan.
    pub plan: Arc<PassPlan>,
    /// Group and origin.
    pub place: Arc<BoundTarget>,
    /// The request target; see [`crate::target::OriginUri`].
    uri: Option<Rc<[u8]>>,
    outgoing: OutgoingState,
    selection: PeerSelection,
    started: Instant,
    /// Further tries so far that `proxy_retry` counts.
    retries: u64,
    limits: Option<Box<TimeLimits>>,
    /// Polled by the client's connection, which writes no interim responses meanwhile.
    in_place: bool,
    step: ExchangeStep,
}

/// Timers of `proxy_request_timeout` and `proxy_try_timeout`.
#[derive(Default)]
struct TimeLimits {
    request: IdleTimer,
    attempt: IdleTimer,
}

/// A try of one server.
struct Attempt {
    lease: PeerLease,
    started: Instant,
    /// The connection has served other requests.
    is_kept: bool,
    /// Bytes of all interim responses.
    interim_total: u64,
    /// Of an interim response, for the client.
    interim_left: Bytes,
}

enum ExchangeStep {
    Select,
    /// Waits before a further try.
    Backoff(Box<IdleTimer>),
    /// Waits for a server of a group with a queue.
    Queue(LocalFuture<(PeerSelection, Option<PeerLease>)>),
    Connect(Box<Attempt>, Box<ConnectState>),
    /// Sent; the response is expected in one piece.
    Light(Box<Attempt>, Light),
    Head(Box<Attempt>, Box<Io>),
    /// Writes an interim response to the client.
    Interim(Box<Attempt>, Box<Io>),
    Over,
}

enum ExchangeProgress {
    Next(ExchangeStep),
    Done(Flow),
}

enum OpenedTry {
    Kept(Connection),
    New(Box<ConnectState>),
}

/// Tells whether a location's requests may be passed on in place; [`is_bodiless`] checks the request.
pub fn is_possible_in_place(plan: &PassPlan) -> bool {
    let queues = plan.target.fixed().is_none_or(|place| {
        // Bound connections (`ntlm`) are rare.
        place.named.group.extras.queue.is_some() || place.named.group.keepalive.ntlm
    });
    let stores = plan.caching.is_some() || plan.storing.is_some();
    !queues && !stores && !plan.protocol.multiplexes() && plan.conf.set_body.is_none()
}

/// Tells whether the request has no body, neither unread nor stored.
fn is_bodiless(r: &Request) -> bool {
    !r.incoming.has_body()
        && matches!(r.incoming.body_length(), None | Some(BodyLength::None | BodyLength::Exact(0)))
        && body_store::stored_body(r).is_none()
}

impl UpstreamExchange {
    /// Begins without a try. `in_place`: polled by the client's connection instead of a task.
    pub fn new(
        plan: Arc<PassPlan>,
        place: Arc<BoundTarget>,
        uri: Option<Rc<[u8]>>,
        outgoing: OutgoingState,
        in_place: bool,
        r: &mut Request,
    ) -> UpstreamExchange {
        let selection = PeerSelection::new(&place.named, r);
        let started = clock::now();
        let (conf, step) = (&plan.conf, ExchangeStep::Select);
        let limits = (conf.request_timeout + conf.try_timeout > Duration::ZERO).then(Box::default);
        UpstreamExchange { plan, place, uri, outgoing, selection, started, retries: 0, limits, in_place, step }
    }

    /// Begins a request whose servers are known. `None`: it has a body, and needs a task.
    pub fn in_place(plan: &Arc<PassPlan>, r: &mut Request) -> Option<Flow> {
        let place = plan.target.fixed().filter(|_| is_bodiless(r))?;
        let uri = match task::find_origin(plan, r) {
            Ok(found) => found.uri,
            Err(flow) => return Some(flow),
        };
        if r.has_extensions() {
            // Left by an earlier location.
            r.take_ext::<CacheRequest>();
            r.take_ext::<CacheState>();
        }
        let outgoing = task::no_body(plan, r);
        let exchange = UpstreamExchange::new(plan.clone(), place.clone(), uri, outgoing, true, r);
        Some(Flow::Exchange(Box::new(InPlace(Some(exchange)))))
    }

    /// Returns group, origin and request target.
    pub fn target(&self) -> UpstreamTarget<'_> {
        UpstreamTarget { named: &self.place.named, origin: &self.place.origin, uri: self.uri.as_ref() }
    }

    /// Tells whether the body is streamed, so that it can be sent only once.
    fn streams(&self) -> bool {
        matches!(self.outgoing, OutgoingState::Streamed(_))
    }

    /// Proceeds as far as possible. `Ready`: the response, and the last poll. Whether the client is there is the caller's to watch.
    pub fn poll_response(&mut self, r: &mut Request, cx: &mut Context<'_>) -> Poll<Flow> {
        loop {
            let progress = match std::mem::replace(&mut self.step, ExchangeStep::Over) {
                ExchangeStep::Select => self.select(r, cx),
                ExchangeStep::Backoff(mut timer) => {
                    let backoff = self.plan.conf.retry.as_ref().map_or(Duration::ZERO, |rule| rule.backoff);
                    match timer.poll_over(cx, backoff) {
                        true => ExchangeProgress::Next(ExchangeStep::Select),
                        false => ready!(self.pending(r, cx, ExchangeStep::Backoff(timer))),
                    }
                }
                ExchangeStep::Queue(mut queue) => match queue.as_mut().poll(cx) {
                    Poll::Pending => ready!(self.pending(r, cx, ExchangeStep::Queue(queue))),
                    Poll::Ready((selection, lease)) => {
                        self.selection = selection;
                        self.begin(r, cx, lease)
                    }
                },
                ExchangeStep::Connect(attempt, mut state) => {
                    match state.poll(r, &self.context(&self.target(), &attempt), cx) {
                        Poll::Pending => ready!(self.pending(r, cx, ExchangeStep::Connect(attempt, state))),
                        Poll::Ready(Ok(connection)) => self.send(r, cx, attempt, connection),
                        Poll::Ready(Err(why)) => self.failed(r, *attempt, why),
                    }
                }
                ExchangeStep::Light(mut attempt, mut light) => match light.poll(&self.plan, cx) {
                    Poll::Pending => ready!(self.pending(r, cx, ExchangeStep::Light(attempt, light))),
                    Poll::Ready(got) => {
                        let started = attempt.started;
                        match light.finish(r, &self.plan, &self.target(), &mut attempt.lease, started, got) {
                            LightStep::Whole(body) => ExchangeProgress::Done(Flow::Content(body)),
                            LightStep::General(io) => ExchangeProgress::Next(ExchangeStep::Head(attempt, io)),
                            LightStep::Failed(why) => self.failed(r, *attempt, why),
                        }
                    }
                },
                ExchangeStep::Head(attempt, mut io) => {
                    let step = io.poll_head(r, &self.context(&self.target(), &attempt), cx);
                    match step {
                        Poll::Pending => ready!(self.pending(r, cx, ExchangeStep::Head(attempt, io))),
                        Poll::Ready(HeadStep::Head(begun)) => self.accept_head(r, *attempt, io, begun),
                        Poll::Ready(HeadStep::Interim(answer, bytes)) => self.interim(r, attempt, io, &answer, bytes),
                        Poll::Ready(HeadStep::Failed(why)) => self.failed(r, *attempt, why),
                    }
                }
                ExchangeStep::Interim(mut attempt, io) => {
                    if self.in_place || early_hints::poll_write(r, &mut attempt.interim_left, cx).is_pending() {
                        ready!(self.pending(r, cx, ExchangeStep::Interim(attempt, io)))
                    } else {
                        ExchangeProgress::Next(ExchangeStep::Head(attempt, io))
                    }
                }
                ExchangeStep::Over => {
                    base::bug!("an exchange is polled after its end");
                    return Poll::Ready(Flow::Status(500));
                }
            };
            match progress {
                ExchangeProgress::Next(step) => self.step = step,
                ExchangeProgress::Done(flow) => return Poll::Ready(flow),
            }
        }
    }

    /// Waits in a step, unless the time of the try or of the request is over.
    fn pending(&mut self, r: &mut Request, cx: &mut Context<'_>, step: ExchangeStep) -> Poll<ExchangeProgress> {
        if self.limits.is_some()
            && let Some(is_request) = self.poll_limits(cx)
        {
            return Poll::Ready(self.time_is_over(r, step, is_request));
        }
        self.step = step;
        Poll::Pending
    }

    /// Returns `Some` if a time is over; `true`: that of the request.
    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Option<bool> {
        let (limits, conf) = (self.limits.as_mut()?, &self.plan.conf);
        let is_over = |timer: &mut IdleTimer, time: Duration, cx: &mut _| !time.is_zero() && timer.poll_over(cx, time);
        if is_over(&mut limits.request, conf.request_timeout, cx) {
            return Some(true);
        }
        is_over(&mut limits.attempt, conf.try_timeout, cx).then_some(false)
    }

    fn time_is_over(&mut self, r: &mut Request, step: ExchangeStep, is_request: bool) -> ExchangeProgress {
        let (attempt, doing) = match step {
            ExchangeStep::Connect(attempt, _) => (attempt, "connecting to"),
            ExchangeStep::Light(attempt, _) | ExchangeStep::Head(attempt, _) | ExchangeStep::Interim(attempt, _) => {
                (attempt, "reading response header from")
            }
            // Between two tries, only the request's time counts.
            waiting if !is_request => return ExchangeProgress::Next(waiting),
            _ => {
                let words = failure::TIMED_OUT;
                r.log(Severity::Error, format_args!("{words} while waiting for a server of the upstream"));
                return ExchangeProgress::Done(storage::answer_failure(&self.plan, r, NextUpstream::TIMEOUT.0, 504));
            }
        };
        let why = failure::timed_out(r, &self.target(), doing);
        if !is_request {
            return self.failed(r, *attempt, why);
        }
        self.count_failure(r, *attempt, &why);
        ExchangeProgress::Done(storage::answer_failure(&self.plan, r, why.bit(), why.status()))
    }

    fn context<'a>(&'a self, target: &'a UpstreamTarget<'a>, attempt: &'a Attempt) -> PeerContext<'a> {
        PeerContext { plan: &self.plan, target, peer: attempt.lease.peer() }
    }

    fn select(&mut self, r: &mut Request, cx: &mut Context<'_>) -> ExchangeProgress {
        let group = &self.place.named.group;
        if group.extras.queue.is_none() {
            let lease = self.selection.choose(group);
            return self.begin(r, cx, lease);
        }
        let group = group.clone();
        let mut selection = std::mem::replace(&mut self.selection, PeerSelection::any(&group));
        ExchangeProgress::Next(ExchangeStep::Queue(Box::pin(async move {
            let lease = selection.next(&group).await;
            (selection, lease)
        })))
    }

    /// Begins a try: sends over an idle connection, or connects.
    fn begin(&mut self, r: &mut Request, cx: &mut Context<'_>, lease: Option<PeerLease>) -> ExchangeProgress {
        let Some(lease) = lease else { return ExchangeProgress::Done(task::no_server(&self.plan, r, &self.target())) };
        process::UPSTREAM_REQUESTS.up();
        if self.selection.asked() > 1 || self.retries > 0 {
            process::UPSTREAM_RETRIES.up();
        }
        if let Some(limits) = &mut self.limits {
            limits.attempt.renew();
        }
        let started = clock::now();
        let span = r.begin_try();
        if let Some(state) = UpstreamState::of(r) {
            state.push(Try { span, ..Try::of(lease.peer(), started) });
            state.answer = None;
        }
        let attempt = Attempt { lease, started, is_kept: false, interim_total: 0, interim_left: Bytes::new() };
        let mut attempt = Box::new(attempt);
        match self.open(r, &attempt) {
            Ok(OpenedTry::Kept(connection)) => {
                attempt.is_kept = true;
                self.send(r, cx, attempt, connection)
            }
            Ok(OpenedTry::New(state)) => ExchangeProgress::Next(ExchangeStep::Connect(attempt, state)),
            Err(why) => self.failed(r, *attempt, why),
        }
    }

    fn open(&self, r: &mut Request, attempt: &Attempt) -> Result<OpenedTry, TryFailure> {
        let (plan, target, peer) = (&self.plan, self.target(), attempt.lease.peer());
        if let Some(conditions) = &plan.conf.allow_upstream
            && !conditions.all_true(r)
        {
            return Err(failure::log_denied(plan, r, &target, peer));
        }
        let group = &target.named.group;
        let mut scope = plan.scope(group);
        if !plan.protocol.multiplexes() {
            scope = ntlm::narrow_scope(scope, group, r, peer);
        }
        let wanted = connect::tls_request(plan, r, &target, peer)?;
        if let Some(wanted) = &wanted {
            // Reuses only connections with equal TLS settings and names.
            scope = scope.narrowed(wanted.scope(), plan.own_scope);
        }
        let address = &peer.spec.address;
        let kept = match plan.protocol.multiplexes() {
            false => pool::take_idle(group, address, scope).map(Connection::Serial),
            true if plan.protocol.over_quic() => mux::h3::take_stream(group, address, scope).map(Connection::Mux),
            true => mux::h2::take_stream(group, address, scope).map(Connection::Mux),
        };
        match kept {
            Some(connection) => Ok(OpenedTry::Kept(connection)),
            None => {
                let context = self.context(&target, attempt);
                Ok(OpenedTry::New(Box::new(ConnectState::begin(r, &context, scope, wanted)?)))
            }
        }
    }

    fn send(
        &mut self,
        r: &mut Request,
        cx: &mut Context<'_>,
        attempt: Box<Attempt>,
        connection: Connection,
    ) -> ExchangeProgress {
        let (plan, target) = (&self.plan, self.target());
        // Kept connections do not count.
        if !attempt.is_kept {
            process::UPSTREAM_CONNECT.note(clock::now().micros_since(attempt.started));
        }
        // Until the request is written, variables do not show the server, unless requests are dynamic: nginx writes the request before
        // it selects a server.
        UpstreamState::connected(r, attempt.started, !plan.conf.request_dynamic);
        let begun = match (connection, self.outgoing.bodiless()) {
            (Connection::Serial(connection), Some(announce)) if plan.light && light::is_for(r) => {
                match Light::begin(plan, r, &target, announce, connection) {
                    Ok(light) => return ExchangeProgress::Next(ExchangeStep::Light(attempt, light)),
                    Err(general) => general.map_err(TryFailure::Final),
                }
            }
            (connection, _) => {
                let context = self.context(&target, &attempt);
                conversation::begin_try(r, &context, &self.outgoing, connection, cx)
            }
        };
        match begun {
            Ok(io) => ExchangeProgress::Next(ExchangeStep::Head(attempt, io)),
            Err(why) => self.failed(r, *attempt, why),
        }
    }

    fn interim(
        &mut self,
        r: &mut Request,
        mut attempt: Box<Attempt>,
        io: Box<Io>,
        answer: &ReceivedHead,
        bytes: usize,
    ) -> ExchangeProgress {
        let head = &answer.head;
        if head.status == 103 && head.version < Version::Http11 {
            let words = b"upstream sent HTTP/1.0 response with early hints";
            conversation::log_said(r, words, "reading response header from");
            return self.failed(r, *attempt, TryFailure::InvalidHeader);
        }
        if head.status == 100 {
            return ExchangeProgress::Next(ExchangeStep::Head(attempt, io));
        }
        attempt.interim_total += bytes as u64;
        match early_hints::interim_response(&self.plan, r, head, &answer.buf, attempt.interim_total) {
            Some(response) => {
                attempt.interim_left = response;
                ExchangeProgress::Next(ExchangeStep::Interim(attempt, io))
            }
            None => ExchangeProgress::Next(ExchangeStep::Head(attempt, io)),
        }
    }

    fn accept_head(
        &mut self,
        r: &mut Request,
        attempt: Attempt,
        io: Box<Io>,
        begun: ResponseStart,
    ) -> ExchangeProgress {
        let Attempt { lease, started, .. } = attempt;
        let accepted = accept_head(self, r, AnsweredHead { begun, io, started }, lease);
        if !matches!(accepted, Ok(Flow::Content(_)))
            && let Some(one) = UpstreamState::last(r)
        {
            one.response_time = Some(clock::now().since(started));
        }
        accepted.map_or_else(|why| self.after_failure(r, why), ExchangeProgress::Done)
    }

    /// Ends a failed try; another one may follow.
    fn failed(&mut self, r: &mut Request, attempt: Attempt, why: TryFailure) -> ExchangeProgress {
        if attempt.is_kept && failure::note_broken_connection(r, &why) {
            self.selection.allow_another();
            if self.streams()
                && let Some(one) = UpstreamState::last(r)
            {
                // A part of the body may have been taken from the client.
                one.sent = true;
            }
        }
        self.count_failure(r, attempt, &why);
        self.after_failure(r, why)
    }

    /// Counts a failed try against its server.
    fn count_failure(&self, r: &mut Request, mut attempt: Attempt, why: &TryFailure) {
        if let Some(one) = UpstreamState::last(r) {
            one.status = why.status();
        }
        failure::count_failure(r, &mut attempt.lease, &self.target(), why);
    }

    fn after_failure(&mut self, r: &mut Request, why: TryFailure) -> ExchangeProgress {
        let (bit, status) = (why.bit(), why.status());
        match why {
            TryFailure::Final(status) => return ExchangeProgress::Done(Flow::Status(status)),
            // `accept` has checked that another server may be tried.
            TryFailure::Status(_) => return self.try_again(),
            TryFailure::Unprocessed => {
                if let Some(one) = UpstreamState::last(r) {
                    one.sent = self.streams();
                }
            }
            _ => {}
        }
        match self.may_retry(r, bit, None) {
            true => self.try_again(),
            false => ExchangeProgress::Done(storage::answer_failure(&self.plan, r, bit, status)),
        }
    }

    /// Tells whether another try may follow a failure (`proxy_next_upstream`, `proxy_retry`). `status`: of a response. Requires a
    /// remaining server, unless servers are tried repeatedly: otherwise the last response stands.
    pub fn may_retry(&self, r: &mut Request, bit: u32, status: Option<u16>) -> bool {
        let conf = &self.plan.conf;
        let next = conf.next_upstream;
        let (asked, extra, tries) = (self.selection.asked(), self.selection.extra(), conf.next_upstream_tries);
        let time = conf.next_upstream_timeout;
        let sent = UpstreamState::last(r).is_some_and(|one| one.sent);
        let is_failure = bit & next.0 != 0 && !next.has(NextUpstream::OFF);
        let is_left = match &conf.retry {
            None => {
                is_failure
                    && asked < self.selection.tries() + extra
                    && (tries == 0 || (asked as u64) < tries + extra as u64)
            }
            Some(rule) => {
                (is_failure || status.is_some_and(|status| rule.has(status)))
                    && self.retries < rule.attempts + extra as u64
            }
        };
        is_left
            && !(sent && self.streams())
            && (!sent || is_idempotent(r) || next.has(NextUpstream::NON_IDEMPOTENT))
            && (time == 0 || clock::now().millis_since(self.started) < time)
            && self.selection.may_retry(&self.place.named.group, r)
    }

    /// Begins a further try, which [`UpstreamExchange::may_retry`] has permitted.
    fn try_again(&mut self) -> ExchangeProgress {
        let Some(rule) = &self.plan.conf.retry else { return ExchangeProgress::Next(ExchangeStep::Select) };
        self.retries += 1;
        if self.selection.asked() >= self.selection.tries() {
            self.selection.begin_round(&self.place.named.group);
        }
        ExchangeProgress::Next(match rule.backoff.is_zero() {
            true => ExchangeStep::Select,
            false => ExchangeStep::Backoff(Box::default()),
        })
    }
}

fn is_idempotent(r: &Request) -> bool {
    !matches!(r.head.method, Method::Post | Method::Lock | Method::Patch)
}

/// `None`: a task continues.
struct InPlace(Option<UpstreamExchange>);

impl Exchange for InPlace {
    fn poll(&mut self, r: &mut Request, cx: &mut Context<'_>) -> Poll<Flow> {
        let Some(exchange) = &mut self.0 else {
            base::bug!("an exchange is polled after its end");
            return Poll::Ready(Flow::Status(500));
        };
        let polled = exchange.poll_response(r, cx);
        if exchange.in_place
            && matches!(exchange.step, ExchangeStep::Interim(..))
            && let Some(exchange) = self.0.take()
        {
            let rest = InPlace(Some(UpstreamExchange { in_place: false, ..exchange }));
            return Poll::Ready(Flow::Later(exchange::later_exchange(Box::new(rest))));
        }
        polled
    }
    fn client_gone(&mut self, r: &mut Request) -> Option<Flow> {
        let exchange = self.0.take_if(|exchange| !exchange.plan.conf.ignore_client_abort)?;
        if let Some(state) = UpstreamState::of(r) {
            state.uri = exchange.uri;
        }
        Some(task::client_gone(r))
    }
}
