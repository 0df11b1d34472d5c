//! Passes a request on without a task in the common case: fixed group, no request body, nothing to store. Driven by the
//! server's socket; other cases continue in `run.rs`.

use super::accept::{Answered, accept};
use super::conversation::{self, HeadStep, Io, PeerContext};
use super::failure::{self, Failure, Outgoing};
use super::light::{self, Light, LightStep};
use super::run::{self, Continuation, Resumed, ResumedAt};
use super::target::UpstreamTarget;
use super::{Announce, PassPlan, TASK_BYTES_MAX};
use crate::balancing::{PeerSelection, SelectionState};
use crate::body_store;
use crate::caching::{CacheRequest, CacheState};
use crate::upstream_state::UpstreamState;
use base::clock::{self, Instant};
use bytes::Bytes;
use http_engine::{Exchange, Flow, Request, RequestBody};
use http_types::BodyLength;
use metrics::process;
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use upstream::{Connecting, Connection, IdleTimer, Options, PeerLease, Pooled, pool};

pub struct Direct {
    plan: Arc<PassPlan>,
    stage: Stage,
}

enum Stage {
    Begin,
    Connecting(Box<Attempt>, Box<(Connecting, IdleTimer, Options)>),
    /// Sent; the response is expected in one piece.
    Light(Box<Attempt>, Light),
    Asked(Box<Attempt>, Box<Io>),
    Over,
}

struct Attempt {
    lease: PeerLease,
    selection: SelectionState,
    uri: Option<Rc<[u8]>>,
    outgoing: Outgoing,
    started: Instant,
    /// The connection was opened for this request.
    fresh: bool,
}

/// Tells whether a location's requests may be passed on in place; [`is_for`] checks the request.
pub fn is_possible(plan: &PassPlan) -> bool {
    let queues = plan.target.fixed().is_none_or(|(named, _)| {
        // Bound connections (`ntlm`) are rare.
        named.group.extras.queue.is_some() || named.group.keepalive.ntlm
    });
    let stores = plan.caching.is_some() || plan.storing.is_some();
    let asks_first = plan.conf.allow_upstream.is_some();
    !queues && !stores && !asks_first && !plan.protocol.multiplexes() && plan.conf.set_body.is_none()
}

/// Tells whether the request has no body, neither unread nor stored.
pub fn is_for(r: &Request) -> bool {
    matches!(r.incoming.body, RequestBody::None)
        && matches!(r.incoming.body_length, None | Some(BodyLength::None | BodyLength::Exact(0)))
        && body_store::kept(r).is_none()
}

/// Reports that a plan without a fixed target has a direct exchange, which the plan's choice of an exchange excludes; returns the
/// response's status.
#[cold]
fn not_fixed() -> u16 {
    base::bug!("a direct exchange without a fixed target");
    500
}

impl Direct {
    pub fn new(plan: &Arc<PassPlan>) -> Box<Direct> {
        Box::new(Direct { plan: plan.clone(), stage: Stage::Begin })
    }

    /// Selects a server, and sends over an idle connection. `Err`: the exchange's answer.
    fn begin(&self, r: &mut Request) -> Result<Stage, Flow> {
        let plan = &self.plan;
        let place = plan.target.place(r).map_err(|no| run::nowhere(r, &no))?;
        let Some((named, origin)) = plan.target.fixed() else { return Err(Flow::Status(not_fixed())) };
        if r.has_extensions() {
            // Left by an earlier location.
            r.take_ext::<CacheRequest>();
            r.take_ext::<CacheState>();
        }
        if let Some(state) = UpstreamState::of(r) {
            state.begin();
            state.origin = Some(place.origin);
        }
        let outgoing = match r.incoming.body_length {
            Some(BodyLength::Exact(0)) if plan.conf.pass_request_body => {
                r.incoming.body_bytes = Some(Bytes::new());
                // `Content-Length: 0` is passed unchanged.
                Outgoing::Text(Vec::new())
            }
            _ => Outgoing::Nothing,
        };
        let target = UpstreamTarget { named: Cow::Borrowed(named), origin: Cow::Borrowed(origin), uri: place.uri };
        let mut selection = PeerSelection::new(named, r);
        let started = clock::now();
        let Some(lease) = selection.first() else { return Err(run::no_server(plan, r, &target)) };
        let selection = selection.into_state();
        let mut attempt =
            Box::new(Attempt { lease, selection, uri: target.uri.clone(), outgoing, started, fresh: false });
        process::UPSTREAM_REQUESTS.up();
        let peer = attempt.lease.peer();
        run::begin_try(r, peer);
        let scope = plan.scope(&named.group);
        let kept = match run::wanted(plan, r, &target, peer) {
            Ok(None) => pool::take(&named.group, &peer.spec.address, scope),
            Ok(Some(wanted)) => {
                match pool::take(&named.group, &peer.spec.address, scope.narrowed(wanted.scope(), plan.own_scope)) {
                    Some(kept) => Some(kept),
                    None => return Err(self.escalate(attempt, ResumedAt::Connect(started))),
                }
            }
            Err(_) => return Err(self.escalate(attempt, ResumedAt::Connect(started))),
        };
        match kept {
            Some(kept) => self.ask(r, attempt, &target, kept),
            None => {
                attempt.fresh = true;
                let options = run::options(plan, r);
                match Connecting::begin(&attempt.lease.peer().spec.address, &options) {
                    Ok(connecting) => {
                        Ok(Stage::Connecting(attempt, Box::new((connecting, IdleTimer::default(), options))))
                    }
                    Err(e) => {
                        let why = run::not_connected(r, attempt.lease.peer(), &target, &options, &e);
                        Err(self.failed(r, attempt, why))
                    }
                }
            }
        }
    }

    fn ask(
        &self,
        r: &mut Request,
        attempt: Box<Attempt>,
        target: &UpstreamTarget<'_>,
        connection: Box<Pooled>,
    ) -> Result<Stage, Flow> {
        run::connected(&self.plan, r, attempt.started, attempt.fresh);
        if self.plan.light && light::is_for(r) {
            let announce = match attempt.outgoing {
                Outgoing::Nothing => Announce::Nothing,
                _ => Announce::Length(0),
            };
            return match Light::begin(&self.plan, r, target, announce, connection) {
                Ok(light) => Ok(Stage::Light(attempt, light)),
                Err(Ok(io)) => Ok(Stage::Asked(attempt, io)),
                Err(Err(status)) => Err(self.failed(r, attempt, Failure::Final(status))),
            };
        }
        match conversation::begin(&self.plan, r, target, &attempt.outgoing, Connection::Serial(connection)) {
            Ok(io) => {
                io.begun(r);
                Ok(Stage::Asked(attempt, io))
            }
            Err(why) => Err(self.failed(r, attempt, why)),
        }
    }

    /// Proceeds until it must wait; the stage is `Over` meanwhile.
    fn proceed(&mut self, r: &mut Request, cx: &mut Context<'_>) -> Poll<Flow> {
        loop {
            let (next, flow) = match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Begin => (self.begin(r), None),
                Stage::Connecting(attempt, mut making) => match self.connect(r, &attempt, &mut making, cx) {
                    Poll::Pending => {
                        self.stage = Stage::Connecting(attempt, making);
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(why)) => (Err(self.failed(r, attempt, why)), None),
                    Poll::Ready(Ok(connection)) => {
                        let Some(target) = self.target(&attempt) else { return Poll::Ready(Flow::Status(not_fixed())) };
                        (self.ask(r, attempt, &target, connection), None)
                    }
                },
                Stage::Light(mut attempt, mut light) => match light.poll(&self.plan, cx) {
                    Poll::Pending => {
                        self.stage = Stage::Light(attempt, light);
                        return Poll::Pending;
                    }
                    Poll::Ready(got) => match self.light(r, &mut attempt, light, got) {
                        LightStep::Whole(body) => return Poll::Ready(Flow::Content(body)),
                        LightStep::General(io) => (Ok(Stage::Asked(attempt, io)), None),
                        LightStep::Failed(why) => (Err(self.failed(r, attempt, why)), None),
                    },
                },
                Stage::Asked(attempt, mut io) => {
                    let polled = match self.target(&attempt) {
                        Some(target) => {
                            let peer_context =
                                PeerContext { plan: &self.plan, target: &target, peer: attempt.lease.peer() };
                            io.poll_head(r, &peer_context, cx)
                        }
                        None => return Poll::Ready(Flow::Status(not_fixed())),
                    };
                    match polled {
                        Poll::Pending => {
                            self.stage = Stage::Asked(attempt, io);
                            return Poll::Pending;
                        }
                        Poll::Ready(step) => (Ok(Stage::Over), Some(self.finish(r, attempt, io, step))),
                    }
                }
                Stage::Over => {
                    base::bug!("an exchange is polled after its end");
                    return Poll::Ready(Flow::Status(500));
                }
            };
            match (next, flow) {
                (_, Some(flow)) | (Err(flow), None) => return Poll::Ready(flow),
                (Ok(stage), None) => self.stage = stage,
            }
        }
    }

    fn target<'a>(&'a self, attempt: &Attempt) -> Option<UpstreamTarget<'a>> {
        let (named, origin) = self.plan.target.fixed()?;
        Some(UpstreamTarget { named: Cow::Borrowed(named), origin: Cow::Borrowed(origin), uri: attempt.uri.clone() })
    }

    /// Builds the response from the bytes read, or passes them to the general path.
    fn light(
        &self,
        r: &mut Request,
        attempt: &mut Attempt,
        light: Light,
        got: Result<Vec<u8>, std::io::Error>,
    ) -> LightStep {
        let (Some((named, _)), Some(target)) = (self.plan.target.fixed(), self.target(attempt)) else {
            return LightStep::Failed(Failure::Final(not_fixed()));
        };
        let peer = attempt.lease.peer().clone();
        let peer_context = PeerContext { plan: &self.plan, target: &target, peer: &peer };
        let rules = named.rules.as_deref();
        light.finish(r, &peer_context, rules, &mut attempt.lease, attempt.started, got)
    }

    fn connect(
        &self,
        r: &mut Request,
        attempt: &Attempt,
        making: &mut (Connecting, IdleTimer, Options),
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<Pooled>, Failure>> {
        let (connecting, timer, options) = making;
        let (plan, peer) = (&self.plan, attempt.lease.peer());
        let Some(target) = self.target(attempt) else { return Poll::Ready(Err(Failure::Final(not_fixed()))) };
        match connecting.poll(cx) {
            Poll::Ready(Ok(stream)) => {
                let Some(codec) = plan.protocol.codec() else {
                    base::bug!("a direct exchange of a protocol without a codec");
                    return Poll::Ready(Err(Failure::Final(500)));
                };
                let group = &target.named.group;
                Poll::Ready(Ok(Pooled::new(stream, codec, group, peer.spec.address.clone(), plan.scope(group))))
            }
            Poll::Ready(Err(e)) => Poll::Ready(Err(run::not_connected(r, peer, &target, options, &e))),
            Poll::Pending if timer.poll_over(cx, plan.conf.connect_timeout) => {
                Poll::Ready(Err(failure::timed_out(r, &target, "connecting to")))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Handles a failed try.
    fn failed(&self, r: &mut Request, mut attempt: Box<Attempt>, why: Failure) -> Flow {
        if !attempt.fresh && run::note_broken_connection(r, &why) {
            attempt.selection.allow_another();
        }
        if let Some(one) = UpstreamState::last(r) {
            one.status = why.status();
        }
        // Counted now: the continuing task may never run.
        if let Some(target) = self.target(&attempt) {
            run::count_failure(r, &mut attempt.lease, &target, &why);
        }
        self.escalate(attempt, ResumedAt::Failed(why))
    }

    fn escalate(&self, attempt: Box<Attempt>, at: ResumedAt) -> Flow {
        let Attempt { lease, selection, uri, outgoing, started, .. } = *attempt;
        let (plan, resumed) = (self.plan.clone(), Box::new(Resumed { selection, lease, uri, outgoing, started, at }));
        Flow::Later(Box::new(move |mut r| {
            let task = async move {
                let flow = run::run(&plan, &mut r, Some(resumed)).await;
                (r, flow)
            };
            debug_assert!(size_of_val(&task) <= TASK_BYTES_MAX, "{} bytes", size_of_val(&task));
            Box::pin(task)
        }))
    }

    fn finish(&self, r: &mut Request, attempt: Box<Attempt>, io: Box<Io>, step: HeadStep) -> Flow {
        let started = attempt.started;
        let begun = match step {
            HeadStep::Head(begun) => begun,
            HeadStep::Interim(answer, bytes) => {
                return self.escalate(attempt, ResumedAt::Interim(io, answer, bytes, started));
            }
            HeadStep::Failed(why) => return self.failed(r, attempt, why),
        };
        let Some((named, _)) = self.plan.target.fixed() else { return Flow::Status(not_fixed()) };
        let Some(target) = self.target(&attempt) else { return Flow::Status(not_fixed()) };
        let Attempt { lease, selection, uri, outgoing, fresh, .. } = *attempt;
        let selection = PeerSelection::resume(named, selection);
        let on = Continuation { plan: &self.plan, selection: &selection, started, streamed: false };
        let mut lease = Some(lease);
        let flow = accept(&on, r, &target, Answered { begun, io, started }, &mut lease);
        run::ended(r, &flow, started);
        match (flow, lease) {
            (Ok(flow), _) => flow,
            (Err(why), Some(lease)) => {
                let selection = selection.into_state();
                let attempt = Attempt { lease, selection, uri, outgoing, started, fresh };
                self.escalate(Box::new(attempt), ResumedAt::Failed(why))
            }
            (Err(why), None) => Flow::Status(why.status()),
        }
    }
}

impl Exchange for Direct {
    fn poll(&mut self, r: &mut Request, cx: &mut Context<'_>) -> Poll<Flow> {
        self.proceed(r, cx)
    }
    fn client_gone(&mut self, r: &mut Request) -> Option<Flow> {
        if self.plan.conf.ignore_client_abort {
            return None;
        }
        if let Stage::Connecting(attempt, _) | Stage::Light(attempt, _) | Stage::Asked(attempt, _) = &self.stage
            && let Some(state) = UpstreamState::of(r)
        {
            state.uri = attempt.uri.clone();
        }
        self.stage = Stage::Over;
        Some(run::client_gone(r))
    }
    fn recycle(self: Box<Self>) {}
}
