//! Phases 1 and 2: the request's head in the rewrite phase, its body before limits and access checks.

use crate::state::{BlockFirewall, FirewallState, answer};
use crate::work::{BODY_IN_LOOP_MAX, HEAD_IN_LOOP_MAX, run_here, run_pooled};
use http_engine::trace::StepKind;
use http_engine::{Flow, Handler, HandlerOrder, Request, body_memory};
use http_upstream::body_store::{self, BodyStore};
use observe::Severity;
use std::rc::Rc;
use std::sync::Arc;
use waf::EngineState;

/// Copies of a body that an evaluation makes: its own, arguments, and files.
const BODY_COPIES: u64 = 3;

/// Phase 1.
pub(crate) struct HeadInspection(pub(crate) Arc<BlockFirewall>);

impl Handler for HeadInspection {
    fn run(&self, r: &mut Request) -> Flow {
        if r.is_subrequest() || r.ext::<FirewallState>().is_some() {
            return Flow::Declined;
        }
        if r.trace().is_some() {
            let words = describe(&self.0);
            r.note(StepKind::Check(HandlerOrder::FirewallHead), r.loc().at, |_| words);
            if r.is_rehearsal() {
                return Flow::Declined;
            }
        }
        let state = FirewallState::begin(&self.0, r);
        if state.transaction.as_ref().is_some_and(|transaction| transaction.is_off()) {
            return Flow::Declined;
        }
        metrics::process::FIREWALL_TRANSACTIONS.up();
        r.keep(state);
        if r.buf.len() <= HEAD_IN_LOOP_MAX {
            let verdict = run_here(r, |transaction| transaction.request_headers());
            return answer(r, verdict, 1);
        }
        Flow::Later(Box::new(|mut r| {
            Box::pin(async move {
                let flow = match run_pooled(&mut r, |transaction| transaction.request_headers()).await {
                    Ok(verdict) => answer(&mut r, verdict, 1),
                    Err(flow) => flow,
                };
                (r, flow)
            })
        }))
    }
}

/// Describes the rules for `explain`.
fn describe(firewall: &BlockFirewall) -> String {
    let settings = &firewall.rules.settings;
    let engine = match settings.engine {
        EngineState::On => "on",
        EngineState::DetectionOnly => "detection only",
        EngineState::Off => "off",
    };
    let rules = firewall.rules.rules().count();
    let on = |is_on: bool| if is_on { "inspected" } else { "not inspected" };
    format!(
        "engine {engine}, {rules} rules, bodies of requests {}, of responses {}; rules of {}",
        on(settings.request_body_access),
        on(settings.response_body_access),
        firewall.files.join(", "),
    )
}

/// Phase 2.
pub(crate) struct BodyInspection;

impl Handler for BodyInspection {
    fn run(&self, r: &mut Request) -> Flow {
        if r.is_subrequest() || r.is_rehearsal() {
            return Flow::Declined;
        }
        let Some(state) = r.ext_mut::<FirewallState>() else { return Flow::Declined };
        if state.has_body || state.is_answered {
            return Flow::Declined;
        }
        state.has_body = true;
        let wants = state.transaction.as_ref().is_some_and(|transaction| transaction.wants_request_body());
        let is_here = !r.incoming.is_body_unread() && body_store::stored_body(r).is_none();
        let has_body = wants && !is_here;
        if !has_body && r.buf.len() <= HEAD_IN_LOOP_MAX {
            let verdict = run_here(r, |transaction| transaction.request_body(b""));
            return answer(r, verdict, 2);
        }
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let flow = match has_body {
                    true => inspect_body(&mut r).await,
                    false => match run_pooled(&mut r, |transaction| transaction.request_body(b"")).await {
                        Ok(verdict) => answer(&mut r, verdict, 2),
                        Err(flow) => flow,
                    },
                };
                (r, flow)
            })
        }))
    }
}

/// Reads the body and evaluates it. Handlers behind this one find it in the request.
async fn inspect_body(r: &mut Request) -> Flow {
    let store = match body_store::read_body(r).await {
        Ok(store) => store,
        Err(status) => return Flow::Status(status),
    };
    // One byte beyond the limit tells the engine that the body is longer.
    let limit = r.ext::<FirewallState>().map_or(0, |state| state.firewall.rules.settings.request_body_limit);
    let wanted = store.len().min(limit.saturating_add(1));
    match body_memory::reserve_memory(r, wanted.saturating_mul(BODY_COPIES)).await {
        Ok(memory) => {
            if let Some(state) = r.ext_mut::<FirewallState>() {
                state.memory = Some(memory);
            }
        }
        Err(none) => return Flow::Status(none.status()),
    }
    let Some(body) = read_bytes(r, &store, wanted) else { return Flow::Status(500) };
    let done = match body.len() <= BODY_IN_LOOP_MAX && r.buf.len() <= HEAD_IN_LOOP_MAX {
        true => Ok(run_here(r, |transaction| transaction.request_body(&body))),
        false => run_pooled(r, move |transaction| transaction.request_body(&body)).await,
    };
    match done {
        Ok(verdict) => answer(r, verdict, 2),
        Err(flow) => flow,
    }
}

/// The first bytes of a body, from memory or its file; `None` if the file cannot be read, which is logged.
fn read_bytes(r: &Request, store: &Rc<BodyStore>, wanted: u64) -> Option<bytes::Bytes> {
    let most = usize::try_from(wanted).unwrap_or(usize::MAX);
    if let Some(whole) = store.shared() {
        return Some(whole.slice(..whole.len().min(most)));
    }
    let mut all = Vec::with_capacity(most);
    while (all.len() as u64) < wanted {
        match store.read_at(all.len() as u64) {
            Ok(bytes) if bytes.is_empty() => break,
            Ok(bytes) => all.extend_from_slice(&bytes),
            Err(error) => {
                let shown = observe::os_error(&error);
                r.log(Severity::Crit, format_args!("ModSecurity: reading the request's body failed {shown}"));
                return None;
            }
        }
    }
    all.truncate(most);
    Some(all.into())
}
