//! Phases 1 and 2: the request's head in the rewrite phase, its body before limits and access checks.

use crate::names::{finish_phase, wants_names};
use crate::services;
use crate::state::{BlockFirewall, FirewallState, answer};
use crate::work::{BODY_IN_LOOP_MAX, HEAD_IN_LOOP_MAX, run_here, run_pooled};
use http_engine::trace::StepKind;
use http_engine::{Flow, Handler, HandlerOrder, Request, body_memory};
use http_upstream::body_store;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use waf::{EngineState, Verdict};

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
        }
        let state = match r.is_rehearsal() {
            true => FirewallState::begin(&self.0, &services::rehearsal_services(&self.0.services), r),
            false => FirewallState::begin(&self.0, &self.0.services, r),
        };
        if state.transaction.as_ref().is_some_and(|transaction| transaction.is_off()) {
            return Flow::Declined;
        }
        r.keep(state);
        if r.is_rehearsal() {
            return rehearse_head(r);
        }
        metrics::process::FIREWALL_TRANSACTIONS.up();
        if r.buf.len() <= HEAD_IN_LOOP_MAX {
            let verdict = run_here(r, |transaction| transaction.request_headers());
            return answer_here(r, verdict, 1);
        }
        Flow::Later(Box::new(|mut r| {
            Box::pin(async move {
                let done = run_pooled(&mut r, |transaction| Ok(transaction.request_headers())).await;
                let flow = answer_later(&mut r, done, 1, true).await;
                (r, flow)
            })
        }))
    }
}

/// Answers a phase that has run in the loop; one that waits for names goes on later.
fn answer_here(r: &mut Request, verdict: Verdict, phase: u8) -> Flow {
    if !wants_names(r) {
        return answer(r, verdict, phase);
    }
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let flow = answer_later(&mut r, Ok(verdict), phase, false).await;
            (r, flow)
        })
    }))
}

/// Answers a phase when it waits for no names; `pooled`: it has run on the pool.
async fn answer_later(r: &mut Request, done: Result<Verdict, Flow>, phase: u8, pooled: bool) -> Flow {
    let done = match done {
        Ok(verdict) => finish_phase(r, verdict, pooled).await,
        failed => failed,
    };
    match done {
        Ok(verdict) => answer(r, verdict, phase),
        Err(flow) => flow,
    }
}

/// Runs phase 1 of a rehearsed request, with collections of its own. Its matches become steps of the trace.
fn rehearse_head(r: &mut Request) -> Flow {
    let verdict = run_here(r, |transaction| transaction.request_headers());
    note_matches(r);
    answer(r, verdict, 1)
}

/// Matches of a rehearsed request that become steps.
const NOTED_MATCHES_MAX: usize = 50;

/// Notes the matches since the last call.
fn note_matches(r: &mut Request) {
    let Some(state) = r.ext_mut::<FirewallState>() else { return };
    let Some(transaction) = &state.transaction else { return };
    let all = transaction.matches();
    let new = all.get(state.logged..).unwrap_or_default().iter().filter(|found| found.logged || found.denied.is_some());
    let words: Vec<String> = new
        .map(|found| match found.denied {
            Some(status) => {
                format!("rule {} denies with {status} (phase {}): {}", found.id, found.phase, found.message)
            }
            None => format!("rule {} matches (phase {}): {}", found.id, found.phase, found.message),
        })
        .collect();
    state.logged = all.len();
    for words in words.into_iter().take(NOTED_MATCHES_MAX) {
        r.note(StepKind::Check(HandlerOrder::FirewallHead), r.loc().at, |_| words);
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
        if r.is_subrequest() {
            return Flow::Declined;
        }
        let Some(state) = r.ext_mut::<FirewallState>() else { return Flow::Declined };
        if state.has_body || state.is_answered {
            return Flow::Declined;
        }
        state.has_body = true;
        if r.is_rehearsal() {
            let verdict = run_here(r, |transaction| transaction.request_body(b""));
            note_matches(r);
            return answer(r, verdict, 2);
        }
        let Some(state) = r.ext_mut::<FirewallState>() else { return Flow::Declined };
        let wants = state.transaction.as_ref().is_some_and(|transaction| transaction.wants_request_body());
        let is_here = !r.incoming.is_body_unread() && body_store::stored_body(r).is_none();
        let has_body = wants && !is_here;
        if !has_body && r.buf.len() <= HEAD_IN_LOOP_MAX {
            let verdict = run_here(r, |transaction| transaction.request_body(b""));
            return answer_here(r, verdict, 2);
        }
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let (done, pooled) = match has_body {
                    true => inspect_body(&mut r).await,
                    false => (run_pooled(&mut r, |transaction| Ok(transaction.request_body(b""))).await, true),
                };
                let flow = answer_later(&mut r, done, 2, pooled).await;
                (r, flow)
            })
        }))
    }
}

/// Reads the body and evaluates it. Handlers behind this one find it in the request. The flag tells whether the pool has
/// evaluated it.
async fn inspect_body(r: &mut Request) -> (Result<Verdict, Flow>, bool) {
    if let Some(transaction) = r.ext_mut::<FirewallState>().and_then(|state| state.transaction.as_mut()) {
        transaction.release_spare_memory();
    }
    let store = match body_store::read_body(r).await {
        Ok(store) => store,
        Err(status) => return (Err(Flow::Status(status)), false),
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
        Err(none) => return (Err(Flow::Status(none.status())), false),
    }
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    match store.shared() {
        Some(body) => {
            let body = body.slice(..body.len().min(wanted));
            match body.len() <= BODY_IN_LOOP_MAX && r.buf.len() <= HEAD_IN_LOOP_MAX {
                true => (Ok(run_here(r, |transaction| transaction.request_body(&body))), false),
                false => (run_pooled(r, move |transaction| Ok(transaction.request_body(&body))).await, true),
            }
        }
        // The file is read by the thread of the pool.
        None => {
            let file = store.clone_file();
            (run_pooled(r, move |transaction| Ok(transaction.request_body(&read_start(&file?, wanted)?))).await, true)
        }
    }
}

/// Reads the first bytes of a file. Blocks for the disk.
fn read_start(file: &File, wanted: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; wanted];
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}
