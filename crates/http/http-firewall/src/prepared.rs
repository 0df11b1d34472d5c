//! Compiles the patterns that ordinary requests need, on the pool, when a configuration begins to serve.

use conf_schema::Cx;
use http_engine::{Background, HttpPlan, LocalFuture};
use observe::ErrorLog;
use std::sync::{Arc, Weak};
use waf::RuleSet;

/// The sets of a configuration that blocks use; each stands once.
#[derive(Default)]
struct UsedSets(Vec<Arc<RuleSet>>);

/// Notes a set that a block uses.
pub(crate) fn note_set(cx: &mut Cx, rules: &Arc<RuleSet>) {
    let sets = &mut cx.get::<UsedSets>().0;
    if !sets.iter().any(|known| Arc::ptr_eq(known, rules)) {
        sets.push(rules.clone());
    }
}

/// Returns the work for the noted sets, if there are any.
pub(crate) fn plan_preparation(cx: &mut Cx) -> Option<Arc<dyn Background<HttpPlan>>> {
    let sets = std::mem::take(&mut cx.get::<UsedSets>().0);
    (!sets.is_empty()).then(|| Arc::new(Preparation(sets)) as Arc<dyn Background<HttpPlan>>)
}

/// The work of the control thread.
struct Preparation(Vec<Arc<RuleSet>>);

impl Background<HttpPlan> for Preparation {
    fn run(self: Arc<Self>, _: Weak<HttpPlan>, _: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let Some(pool) = net::pool::find_pool(net::pool::DEFAULT) else { return };
            for rules in self.0.clone() {
                // With a full queue, requests compile what they need themselves.
                // On a thread that ends: the allocator of one that stays would keep the memory of earlier configurations.
                let prepare = move |_: &net::pool::ResultInterest<'_>| {
                    let thread = std::thread::Builder::new().name("pool patterns".into());
                    let begun = thread.spawn(move || waf::prepare_patterns(&rules));
                    let _ = begun.map(std::thread::JoinHandle::join);
                };
                if let Ok(done) = pool.run_long(prepare) {
                    let _ = done.await;
                }
            }
        })
    }
}
