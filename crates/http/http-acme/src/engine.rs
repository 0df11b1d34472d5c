//! Certificates as background work of a plan: loads stored ones before it serves, then orders and renews on the control thread.
//!
//! A certificate serves until its last second, whatever fails. `scheduler.rs` runs the orders.

use super::demand::OnDemand;
use super::issuer::{Issuer, SignerSource};
use super::issuer_client::issue_locally;
use super::job::order_of;
use super::order::OrderedCertificate;
use super::scheduler::Scheduler;
use super::shared_issuer::SharedIssuer;
use super::state::{IssuerFolder, file_stem};
use super::{certificates, client};
use acme::IssuedChain;
use http_engine::{Background, HttpPlan, LocalFuture};
use observe::{ErrorLog, Severity};
use std::path::Path;
use std::sync::{Arc, Weak};

/// See the module's documentation.
pub struct Engine;

/// Returns all orders of a plan, each once.
pub fn plan_orders(plan: &HttpPlan) -> Vec<&OrderedCertificate> {
    let mut all: Vec<&OrderedCertificate> = Vec::new();
    let mut known = std::collections::HashSet::new();
    let servers =
        plan.servers.iter().filter_map(|server| plan.locations.get(server.location)?.ext::<OrderedCertificate>());
    for ordered in servers.chain(client::client_orders(plan)) {
        if known.insert(Arc::as_ptr(&ordered.certificate)) {
            all.push(ordered);
        }
    }
    all
}

/// Returns the kinds of names on demand of a plan, each once.
pub fn plan_demands(plan: &HttpPlan) -> Vec<Arc<OnDemand>> {
    let mut all: Vec<Arc<OnDemand>> = Vec::new();
    let servers = plan.servers.iter().filter_map(|server| plan.locations.get(server.location));
    for demand in servers.filter_map(|location| location.ext::<Arc<OnDemand>>()) {
        if !all.iter().any(|known| known.id() == demand.id()) {
            all.push(Arc::clone(demand));
        }
    }
    all
}

/// Returns the initial certificate; `true`: a placeholder.
fn first(ordered: &OrderedCertificate) -> Option<(IssuedChain, bool)> {
    let issuer = ordered.issuers.first()?;
    let folder = issuer.state_path.clone().map(IssuerFolder);
    let stem = file_stem(&ordered.identifiers, ordered.key);
    base::clock::update();
    let now = base::clock::unix_seconds();
    // Another local one is made at once; the others serve until they are renewed.
    let usable = |stored: &IssuedChain| !issuer.is_local() || stored.check(&ordered.identifiers, now).is_ok();
    if let Some(stored) = folder.as_ref().and_then(|folder| folder.certificate(&stem)).filter(usable) {
        return Some((stored, false));
    }
    // Of Angie, whose folder it may have been, or for other names: serves until there is a new one.
    if issuer.timing.is_some()
        && let Some(found) = folder.as_ref().and_then(IssuerFolder::foreign)
    {
        return Some((found, false));
    }
    if let SignerSource::Local(life) = issuer.source
        && let Ok(made) = issue_locally(issuer, folder.as_ref(), &order_of(ordered, issuer, None), life)
    {
        // Without room the control thread stores it later.
        let is_stored = folder.is_none_or(|folder| folder.store(&stem, &made).is_ok());
        ordered.certificate.set_unsaved(!is_stored);
        return Some((made, false));
    }
    Some((acme::placeholder_certificate(&ordered.identifiers).ok()?, true))
}

/// Issuers of a plan, kept with it for those that are shared: a server may answer challenges of an issuer from which it
/// orders nothing.
pub struct SharedIssuers(pub Vec<Arc<Issuer>>);

impl SharedIssuers {
    fn all(&self) -> impl Iterator<Item = &Arc<SharedIssuer>> {
        self.0.iter().filter_map(|issuer| issuer.shared.as_ref())
    }
}

/// Begins to share the issuers with `sync`, and the certificates that this server has.
fn share(plan: &HttpPlan, orders: &[&OrderedCertificate], log: &Arc<ErrorLog>) {
    for ordered in orders {
        let shared = ordered.issuers.first().and_then(|issuer| issuer.shared.as_ref());
        if let (Some(shared), Some(leaf)) = (shared, ordered.certificate.leaf())
            && let Some(issued) = ordered.certificate.texts()
        {
            shared.add_known(&file_stem(&ordered.identifiers, ordered.key), &issued, &leaf);
        }
    }
    plan.ext::<SharedIssuers>().into_iter().flat_map(SharedIssuers::all).for_each(|issuer| issuer.begin_sharing(log));
}

impl Background<HttpPlan> for Engine {
    /// Loads stored certificates and makes local ones, so that the first handshakes have them; the others get a placeholder.
    fn prepare(self: Arc<Self>, plan: Arc<HttpPlan>) -> LocalFuture<()> {
        Box::pin(async move {
            client::load_stored(&plan);
            for ordered in plan_orders(&plan) {
                if ordered.certificate.is_set() {
                    continue;
                }
                if let Some((certificate, is_placeholder)) = first(ordered) {
                    let _ = ordered.certificate.set(&certificate, is_placeholder);
                }
            }
        })
    }

    fn unsettled(&self, plan: &HttpPlan) -> Vec<String> {
        let shared = plan.ext::<SharedIssuers>();
        shared.into_iter().flat_map(SharedIssuers::all).filter_map(|issuer| issuer.sharing_complaint()).collect()
    }

    fn run(self: Arc<Self>, plan: Weak<HttpPlan>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let scheduler = {
                let weak = plan;
                let Some(plan) = weak.upgrade() else { return };
                certificates::forget_unused();
                let orders = plan_orders(&plan);
                for ordered in orders.iter().filter(|ordered| ordered.certificate.unsaved().is_some()) {
                    let path = ordered.issuers.first().and_then(|issuer| issuer.state_path.as_deref());
                    let (path, name) = (path.unwrap_or(Path::new("")).display(), ordered.identifiers.first());
                    let name = name.map(ToString::to_string).unwrap_or_default();
                    let words = format_args!("the certificate for \"{name}\" is not stored: {path} cannot be written");
                    log.log(Severity::Error, 0, words);
                }
                share(&plan, &orders, &log);
                Scheduler::new(&orders, plan_demands(&plan), &weak, &log)
            };
            scheduler.run().await;
        })
    }
}
