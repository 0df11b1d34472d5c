//! What a configuration has to do beside its requests, as tasks of the control thread: names, probes of servers.

use crate::conf::Config;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

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
    let all = plan.background.iter().map(|work| tokio::task::spawn_local(work.clone().prepare(plan.clone())));
    let all: Vec<_> = all.collect();
    let aborts: Vec<_> = all.iter().map(JoinHandle::abort_handle).collect();
    let together = async {
        for one in all {
            let _ = one.await;
        }
    };
    if tokio::time::timeout(patience, together).await.is_err() {
        aborts.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// For `-t`: tries to settle everything, and says what a start would leave unsettled.
pub fn settle(config: &Config) -> Vec<String> {
    let Some(plan) = config.http.as_ref().filter(|plan| !plan.background.is_empty()) else { return Vec::new() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    tokio::task::LocalSet::new().block_on(&runtime, prepare(config, START_PATIENCE));
    runtime.shutdown_background();
    plan.background.iter().flat_map(|work| work.unsettled(plan)).collect()
}

impl Tasks {
    /// Ends the old configuration's tasks and begins this one's; call it within a `LocalSet`.
    pub fn replace(&mut self, config: &Config) {
        for task in self.0.drain(..) {
            task.abort();
        }
        let Some(plan) = &config.http else { return };
        let start = |work: &Arc<dyn http_engine::Background>| {
            let run = work.clone().run(Arc::downgrade(plan), config.error_log.clone());
            tokio::task::spawn_local(run)
        };
        self.0 = plan.background.iter().map(start).collect();
    }
}
