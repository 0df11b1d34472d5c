//! Background tasks of a configuration, on the control thread: name resolution, health checks.

use crate::conf::Config;
use observe::ErrorLog;
use runtime::task::{JoinHandle, JoinSet};
use session_engine::background::{Background, LocalFuture};
use std::sync::Arc;
use std::time::Duration;

/// How long the first requests wait for what should be settled before them.
pub const START_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum wait at a reload, while the old configuration still serves.
pub const RELOAD_PATIENCE: Duration = Duration::from_millis(200);

/// The tasks of the configuration that serves.
#[derive(Default)]
pub struct Tasks(Vec<JoinHandle<()>>);

/// An area's plan, and what goes on beside it.
struct Area<'a, P>(&'a Arc<P>, &'a [Arc<dyn Background<P>>]);

impl<P: 'static> Area<'_, P> {
    fn prepare(&self) -> Vec<LocalFuture<()>> {
        self.1.iter().map(|work| work.clone().prepare(self.0.clone())).collect()
    }
    fn unsettled(&self) -> Vec<String> {
        self.1.iter().flat_map(|work| work.unsettled(self.0)).collect()
    }
    fn finish(&self, limit: Duration) -> Vec<LocalFuture<()>> {
        self.1.iter().filter_map(|work| work.clone().finish(limit)).collect()
    }
    fn run(&self, log: &Arc<ErrorLog>) -> Vec<LocalFuture<()>> {
        self.1.iter().map(|work| work.clone().run(Arc::downgrade(self.0), log.clone())).collect()
    }
}

/// Finishes the work of a configuration at the end of the process.
pub async fn finish(config: &Config, limit: Duration) {
    let mut all = JoinSet::new();
    for one in ask(config, |area| area.finish(limit), |area| area.finish(limit)) {
        all.spawn_local(one);
    }
    while all.join_next().await.is_some() {}
}

/// Asks both areas.
fn ask<T>(
    config: &Config,
    http: impl Fn(Area<'_, http_engine::HttpPlan>) -> Vec<T>,
    stream: impl Fn(Area<'_, stream_features::StreamPlan>) -> Vec<T>,
) -> Vec<T> {
    let mut all = config.http.as_ref().map(|plan| http(Area(plan, &plan.background))).unwrap_or_default();
    all.extend(config.stream.iter().flat_map(|plan| stream(Area(plan, &plan.background))));
    all
}

/// Settles what can be settled in so much time.
pub async fn prepare(config: &Config, patience: Duration) {
    let work = ask(config, |area| area.prepare(), |area| area.prepare());
    if work.is_empty() {
        return;
    }
    let mut all = JoinSet::new();
    for one in work {
        all.spawn_local(one);
    }
    // Unfinished tasks are dropped.
    let _ = runtime::time::timeout(patience, async { while all.join_next().await.is_some() {} }).await;
}

/// For `-t`: tries to settle everything, and says what a start would leave unsettled.
pub fn settle(config: &Config) -> Vec<String> {
    if runtime::run(prepare(config, START_PATIENCE)).is_err() {
        return Vec::new();
    }
    ask(config, |area| area.unsettled(), |area| area.unsettled())
}

impl Tasks {
    /// Ends the old configuration's tasks and begins this one's.
    pub fn replace(&mut self, config: &Config) {
        self.stop();
        let log = &config.error_log;
        let work = ask(config, |area| area.run(log), |area| area.run(log));
        self.0 = work.into_iter().map(runtime::task::spawn_local).collect();
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
