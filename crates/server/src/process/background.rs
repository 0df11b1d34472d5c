//! Background tasks of a configuration, on the control thread: name resolution, health checks.

use crate::conf::Config;
use area::plan::{AreaPlan, Work};
use runtime::task::{JoinHandle, JoinSet};
use shared_store::StoreAgent;
use std::sync::Arc;
use std::time::Duration;

/// Maximum wait of the first requests for name resolution and the like.
pub const START_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum wait at a reload, while the old configuration still serves.
pub const RELOAD_PATIENCE: Duration = Duration::from_millis(200);

/// Tasks of the configuration that serves.
#[derive(Default)]
pub struct Tasks {
    running: Vec<JoinHandle<()>>,
    /// Connection of `shared_store`, which zones share.
    _store: Option<Arc<StoreAgent>>,
}

fn work(config: &Config) -> Vec<Box<dyn Work>> {
    config.areas().into_iter().flat_map(AreaPlan::work).collect()
}

/// Finishes the tasks of a configuration when the process ends.
pub async fn finish_tasks(config: &Config, limit: Duration) {
    let mut all = JoinSet::new();
    for one in work(config).iter().filter_map(|work| work.finish(limit)) {
        all.spawn_local(one);
    }
    while all.join_next().await.is_some() {}
}

/// Runs the initial work (name resolution) within a time limit.
pub async fn prepare_tasks(config: &Config, patience: Duration) {
    let work = work(config);
    if work.is_empty() {
        return;
    }
    let mut all = JoinSet::new();
    for one in &work {
        all.spawn_local(one.prepare());
    }
    // Unfinished tasks are dropped.
    let _ = runtime::time::with_timeout(patience, async { while all.join_next().await.is_some() {} }).await;
}

/// For `-t`: runs the initial work, and warns about parts that a start would not finish.
pub fn settle_tasks(config: &Config) -> Vec<String> {
    if runtime::run_future(prepare_tasks(config, START_PATIENCE)).is_err() {
        return Vec::new();
    }
    work(config).iter().flat_map(|work| work.unsettled()).collect()
}

impl Tasks {
    pub fn replace(&mut self, config: &Config) {
        let log = &config.error_log;
        // The one before ends behind it, if it has other settings.
        let store = config.core.shared_store.start(log);
        self.stop();
        self._store = store;
        self.running = work(config).iter().map(|work| runtime::task::spawn_local(work.run(log))).collect();
    }
    fn stop(&mut self) {
        for task in self.running.drain(..) {
            task.abort();
        }
    }
}

/// At their end tasks may write state files of key-value zones.
impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop();
    }
}
