//! Background work of a plan.

use observe::ErrorLog;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Work of a plan beside sessions (name resolution, health checks), on the control thread, where nothing may block.
pub trait Background<P>: Send + Sync {
    /// Prepares a plan before it serves, up to a time limit.
    fn prepare(self: Arc<Self>, plan: Arc<P>) -> LocalFuture<()> {
        let _ = plan;
        Box::pin(async {})
    }
    fn unsettled(&self, plan: &P) -> Vec<String> {
        let _ = plan;
        Vec::new()
    }
    /// Runs while the plan serves. Holds the plan weakly across waits, so that a replaced one is freed.
    fn run(self: Arc<Self>, plan: Weak<P>, log: Arc<ErrorLog>) -> LocalFuture<()>;
    /// Finishes at the end of the process, after the last session, within a time.
    fn finish(self: Arc<Self>, limit: Duration) -> Option<LocalFuture<()>> {
        let _ = limit;
        None
    }
}
