//! Evaluation in the loop or on a thread of the pool.

use crate::state::FirewallState;
use http_engine::{Flow, Request};
use net::pool::Overflow;
use observe::Severity;
use std::io;
use waf::{Transaction, Verdict};

/// Bytes of a request's head that are evaluated in the loop: some hundreds of microseconds with CRS
/// (docs/decisions/0168).
pub(crate) const HEAD_IN_LOOP_MAX: usize = 4 * 1024;
/// Bytes of a body that are evaluated in the loop.
pub(crate) const BODY_IN_LOOP_MAX: usize = 256;

/// Runs a phase at once.
pub(crate) fn run_here(r: &mut Request, work: impl FnOnce(&mut Transaction) -> Verdict) -> Verdict {
    let state = r.ext_mut::<FirewallState>();
    match state.and_then(|state| state.transaction.as_mut()) {
        Some(transaction) => work(transaction),
        None => Verdict::Pass,
    }
}

/// Runs a phase on a thread of the pool `default`. A client that leaves does not end it: its request is logged with the
/// matches. Fails with the answer if the pool has no room, if the engine failed, or if `work` did, which is logged: the
/// request is not let through.
pub(crate) async fn run_pooled(
    r: &mut Request,
    work: impl FnOnce(&mut Transaction) -> io::Result<Verdict> + Send + 'static,
) -> Result<Verdict, Flow> {
    let taken = r.ext_mut::<FirewallState>().and_then(|state| state.transaction.take());
    let Some(mut transaction) = taken else { return Ok(Verdict::Pass) };
    let Some(pool) = net::pool::find_pool(net::pool::DEFAULT) else {
        let verdict = work(&mut transaction);
        return give_back(r, transaction, verdict);
    };
    let started = pool.run_long(move |_| {
        let verdict = work(&mut transaction);
        (transaction, verdict)
    });
    match started {
        Ok(waiting) => match waiting.await {
            Ok((transaction, verdict)) => give_back(r, transaction, verdict),
            Err(_) => {
                r.log(Severity::Crit, format_args!("ModSecurity: the inspection of the request failed"));
                Err(Flow::Status(500))
            }
        },
        Err(Overflow { waiting }) => {
            let name = net::pool::DEFAULT;
            r.log(Severity::Error, format_args!("thread pool \"{name}\" queue overflow: {waiting} tasks waiting"));
            Err(Flow::Status(503))
        }
    }
}

/// Returns the transaction to its request. Fails if the work did.
fn give_back(r: &mut Request, transaction: Box<Transaction>, verdict: io::Result<Verdict>) -> Result<Verdict, Flow> {
    if let Some(state) = r.ext_mut::<FirewallState>() {
        state.transaction = Some(transaction);
    }
    verdict.map_err(|error| {
        let shown = observe::os_error(&error);
        r.log(Severity::Crit, format_args!("ModSecurity: reading the request's body failed {shown}"));
        Flow::Status(500)
    })
}
