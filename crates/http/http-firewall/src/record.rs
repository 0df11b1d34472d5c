//! Phase 5, the audit log and the metrics, at the end of a request.

use crate::state::{FirewallState, log_matches};
use http_engine::{Logger, Request};
use waf::Verdict;

/// Ends the transaction of a request, wherever the request ends.
pub(crate) struct TransactionLog;

impl Logger for TransactionLog {
    fn log(&self, r: &mut Request) {
        if r.is_subrequest() || !r.has_extensions() {
            return;
        }
        let status = r.out.status();
        let Some(state) = r.ext_mut::<FirewallState>() else { return };
        // A thread of the pool has it still: the client has left.
        let Some(transaction) = &mut state.transaction else { return };
        transaction.set_status(status);
        transaction.log();
        log_matches(r);
        let Some(state) = r.take_ext::<FirewallState>() else { return };
        let Some(transaction) = &state.transaction else { return };
        if *transaction.verdict() != Verdict::Pass {
            metrics::process::FIREWALL_DENIED.up();
        }
        if let Some(audit) = &state.firewall.audit
            && transaction.is_audited()
        {
            audit.write(r, transaction);
        }
    }
}
