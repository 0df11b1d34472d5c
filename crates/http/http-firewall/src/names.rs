//! Names of `@rbl`, which a transaction waits for: the location's `resolver` is asked.

use crate::state::FirewallState;
use crate::work::{run_here, run_pooled};
use http_engine::{Flow, Request};
use http_upstream::resolving::ResolveRules;
use waf::Verdict;

/// Returns whether the transaction waits for names.
pub(crate) fn wants_names(r: &Request) -> bool {
    let state = r.ext::<FirewallState>();
    let transaction = state.and_then(|state| state.transaction.as_ref());
    transaction.is_some_and(|transaction| !transaction.wanted_names().is_empty())
}

/// Asks for the names that the transaction waits for, and goes on with its phase until it waits no more. Names that cannot be
/// resolved, and all without a resolver, are not listed. `pooled`: the phase has run on the pool. Fails with the answer if
/// the pool has no room.
pub(crate) async fn finish_phase(r: &mut Request, verdict: Verdict, pooled: bool) -> Result<Verdict, Flow> {
    let mut verdict = verdict;
    loop {
        let state = r.ext::<FirewallState>();
        let transaction = state.and_then(|state| state.transaction.as_ref());
        let wanted = transaction.map(|transaction| transaction.wanted_names().to_vec()).unwrap_or_default();
        if wanted.is_empty() {
            return Ok(verdict);
        }
        if let Some(ResolveRules { resolver, timeout }) = r.loc().ext::<ResolveRules>().cloned() {
            for name in &wanted {
                let found = resolver.resolve(name, timeout).await.ok();
                let answer = found.and_then(|addresses| addresses.first().copied());
                if let Some(transaction) = r.ext_mut::<FirewallState>().and_then(|state| state.transaction.as_mut()) {
                    transaction.answer_name(name, answer);
                }
            }
        }
        verdict = match pooled {
            true => run_pooled(r, |transaction| Ok(transaction.resume())).await?,
            false => run_here(r, |transaction| transaction.resume()),
        };
    }
}
