//! Counts of failed logins, which `auth_basic`, `auth_jwt` and `auth_request` note and `auth_failure_limit` limits.

use http_engine::values::Satisfy;
use http_engine::{Request, Template};
use session_engine::bucket::{Buckets, Rate};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Longest key in bytes, as for `limit_req`.
pub const KEY_BYTES_MAX: usize = 65_535;

/// `auth_failure_limit` of a location.
pub struct FailureLimit {
    pub zone: String,
    pub key: Template,
    pub rate: Rate,
    /// Thousandths of a failure.
    pub burst: u64,
    pub buckets: Arc<Buckets>,
}

impl FailureLimit {
    /// Returns the request's key; `None` if it is empty or too long.
    pub fn key(&self, r: &mut Request) -> Option<Vec<u8>> {
        Some(self.key.eval(r)).filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX)
    }
}

/// The location where credentials of the request were wrong, while another check may admit it (`satisfy any`).
struct Pending(Cell<Option<usize>>);

/// Notes that credentials of the request were wrong. Requests without credentials are no failures. With `satisfy any` the failure counts
/// when no check has admitted the request.
pub fn note(r: &mut Request) {
    match r.loc().core.conf.satisfy {
        Satisfy::Any => r.share(Rc::new(Pending(Cell::new(Some(r.scope.location))))),
        Satisfy::All => count(r),
    }
}

/// Counts the failure of a request that no check has admitted.
pub fn count_pending(r: &mut Request) {
    let pending: Option<Rc<Pending>> = r.shared();
    if pending.is_some_and(|pending| pending.0.take() == Some(r.scope.location)) {
        count(r);
    }
}

fn count(r: &mut Request) {
    let plan = r.plan_rc();
    let Some(limit) = plan.loc(r.scope.location).ext::<FailureLimit>() else { return };
    if let Some(key) = limit.key(r) {
        let _ = limit.buckets.ask(&key, limit.rate, u64::MAX, base::clock::now().0 / 1000, true);
    }
}
