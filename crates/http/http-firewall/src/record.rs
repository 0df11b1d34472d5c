//! Phase 5, the audit log and the metrics, at the end of a request.

use crate::state::{FirewallState, log_matches};
use http_engine::firewall_findings::{FirewallFinding, add_finding};
use http_engine::{Logger, Request};
use waf::{Transaction, Verdict};

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
        let is_denied = *transaction.verdict() != Verdict::Pass;
        if is_denied {
            metrics::process::FIREWALL_DENIED.up();
        }
        add_rules(r, transaction, is_denied);
        if let Some(audit) = &state.firewall.audit
            && transaction.is_audited()
        {
            audit.write(r, transaction);
        }
    }
}

/// Counts the request for the rules that matched.
fn add_rules(r: &Request, transaction: &Transaction, is_denied: bool) {
    let found = transaction.matches().iter().filter(|found| found.logged || found.denied.is_some());
    let rules: Vec<(u64, &str)> = found.map(|found| (found.id, found.message.as_str())).collect();
    if rules.is_empty() {
        return;
    }
    let finding = FirewallFinding {
        at_ms: base::clock::unix_millis(),
        method: String::from_utf8_lossy(r.head.method_span.of(&r.buf)).into_owned(),
        path: String::from_utf8_lossy(r.target.path()).into_owned(),
        status: r.out.status(),
        is_denied,
        rules: Vec::new(),
    };
    add_finding(finding, &rules);
}
