//! What a configuration has to do beside its requests, as tasks of the control thread: names, probes of servers.

use crate::conf::Config;
use runtime::task::{JoinHandle, JoinSet};
use std::sync::Arc;
use std::time::Duration;

/// How long the first requests wait for what should be settled before them.
pub const START_PATIENCE: Duration = Duration::from_secs(2);
/// The same at a reload, when the old configuration goes on serving meanwhile.
pub const RELOAD_PATIENCE: Duration = Duration::from_millis(200);

/// The tasks of the configuration that serves.
#[derive(Default)]
pub struct Tasks(Vec<JoinHandle<()>>);

/// Settles what can be settled in so much time.
pub async fn prepare(config: &Config, patience: Duration) {
    let Some(plan) = config.http.as_ref().filter(|plan| !plan.background.is_empty()) else { return };
    let mut all = JoinSet::new();
    for work in &plan.background {
        all.spawn_local(work.clone().prepare(plan.clone()));
    }
    // What is not settled by then is dropped.
    let _ = runtime::time::timeout(patience, async { while all.join_next().await.is_some() {} }).await;
}

/// For `-t`: tries to settle everything, and says what a start would leave unsettled.
pub fn settle(config: &Config) -> Vec<String> {
    let Some(plan) = config.http.as_ref().filter(|plan| !plan.background.is_empty()) else { return Vec::new() };
    if runtime::run(prepare(config, START_PATIENCE)).is_err() {
        return Vec::new();
    }
    plan.background.iter().flat_map(|work| work.unsettled(plan)).collect()
}

impl Tasks {
    /// Ends the old configuration's tasks and begins this one's.
    pub fn replace(&mut self, config: &Config) {
        for task in self.0.drain(..) {
            task.abort();
        }
        let Some(plan) = &config.http else { return };
        let start = |work: &Arc<dyn http_engine::Background<http_engine::HttpPlan>>| {
            let run = work.clone().run(Arc::downgrade(plan), config.error_log.clone());
            runtime::task::spawn_local(run)
        };
        self.0 = plan.background.iter().map(start).collect();
    }
}
