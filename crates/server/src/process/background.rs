//! Background tasks of a configuration, on the control thread: name resolution, health checks.

use crate::conf::Config;
use runtime::task::{JoinHandle, JoinSet};
use session_engine::area::{AreaPlan, Work};
use std::time::Duration;

/// How long the first requests wait for what should be settled before them.
pub const START_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum wait at a reload, while the old configuration still serves.
pub const RELOAD_PATIENCE: Duration = Duration::from_millis(200);

/// The tasks of the configuration that serves.
#[derive(Default)]
pub struct Tasks(Vec<JoinHandle<()>>);

/// The work of all areas.
fn work(config: &Config) -> Vec<Box<dyn Work>> {
    config.areas().into_iter().flat_map(AreaPlan::work).collect()
}

/// Finishes the work of a configuration at the end of the process.
pub async fn finish(config: &Config, limit: Duration) {
    let mut all = JoinSet::new();
    for one in work(config).iter().filter_map(|work| work.finish(limit)) {
        all.spawn_local(one);
    }
    while all.join_next().await.is_some() {}
}

/// Settles what can be settled in so much time.
pub async fn prepare(config: &Config, patience: Duration) {
    let work = work(config);
    if work.is_empty() {
        return;
    }
    let mut all = JoinSet::new();
    for one in &work {
        all.spawn_local(one.prepare());
    }
    // Unfinished tasks are dropped.
    let _ = runtime::time::timeout(patience, async { while all.join_next().await.is_some() {} }).await;
}

/// For `-t`: tries to settle everything, and says what a start would leave unsettled.
pub fn settle(config: &Config) -> Vec<String> {
    if runtime::run(prepare(config, START_PATIENCE)).is_err() {
        return Vec::new();
    }
    work(config).iter().flat_map(|work| work.unsettled()).collect()
}

impl Tasks {
    /// Ends the old configuration's tasks and begins this one's.
    pub fn replace(&mut self, config: &Config) {
        self.stop();
        let log = &config.error_log;
        self.0 = work(config).iter().map(|work| runtime::task::spawn_local(work.run(log))).collect();
    }
    fn stop(&mut self) {
        for task in self.0.drain(..) {
            task.abort();
        }
    }
}

/// Tasks may have something to write at their end (state files of key-value zones).
impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop();
    }
}
