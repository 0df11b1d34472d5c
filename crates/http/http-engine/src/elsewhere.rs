//! Judges a path that a request names beside its own, such as the destination of COPY, by the location of that path.

use crate::order::{HandlerOrder, Phase};
use crate::path::{CanonicalPath, FilePath};
use crate::plan::{HttpPlan, Location};
use crate::route::{self, Route};
use crate::values::Satisfy;
use crate::{Flow, Handler, Request};
use std::sync::Arc;

/// Tells whether the location of another path keeps the client from it: `internal`, `allow` and `deny`, `limit_except` for
/// the request's method, or its file guard for `file`. Credentials are not checked: those rules of the other location
/// that need more than the client's address have no effect here. Logs a refusal.
pub fn is_denied(r: &mut Request, path: &CanonicalPath, file: &FilePath) -> bool {
    let plan = r.plan_rc();
    let (own, captures) = (r.scope.location, r.target.captures.clone());
    let own_path = std::mem::replace(&mut r.target.path, path.clone());
    let found = route::find_route(r);
    r.target.path = own_path;
    let is_denied = match found {
        Err(_) => true,
        Ok(route) => {
            let other = place_of(&plan, r, route);
            other != own && is_denied_by(&plan, r, other, file)
        }
    };
    (r.scope.location, r.target.captures) = (own, captures);
    is_denied
}

fn place_of(plan: &HttpPlan, r: &Request, route: Route) -> usize {
    let found = match route {
        Route::Server => plan.srv(r.scope.server).location,
        Route::Location(location) | Route::Slash(location) => location,
    };
    match &plan.loc(found).limit_except {
        Some(limit) if limit.allowed & (1 << (r.target.method as u32)) == 0 => limit.location,
        _ => found,
    }
}

fn is_denied_by(plan: &HttpPlan, r: &mut Request, other: usize, file: &FilePath) -> bool {
    r.scope.location = other;
    let location = plan.loc(other);
    if location.internal {
        return true;
    }
    // With `satisfy any`, credentials may admit a client whose address is denied.
    let is_final = location.core.conf.satisfy == Satisfy::All || location.access.len() == 1;
    let rules = access_rules(location).filter(|_| is_final);
    if rules.is_some_and(|rules| matches!(rules.run(r), Flow::Status(_))) {
        return true;
    }
    location.file_guard.clone().is_some_and(|guard| !guard.admits(r, file))
}

/// Returns the handler of `allow` and `deny`.
fn access_rules(location: &Location) -> Option<Arc<dyn Handler>> {
    let mut orders = location.orders.iter().filter(|order| order.phase() == Phase::Access);
    location.access.get(orders.position(|order| *order == HandlerOrder::Access)?).cloned()
}
