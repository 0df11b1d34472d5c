//! What goes on beside the sessions of a plan.

use observe::ErrorLog;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

/// A future of one thread.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Work that belongs to a configuration and not to a session: names that are asked for again, servers that are probed. It
/// runs on the control thread, where nothing may block. `P` is the area's plan.
pub trait Background<P>: Send + Sync {
    /// Settles what sessions should find settled when the plan begins to serve; given up when it takes too long.
    fn prepare(self: Arc<Self>, plan: Arc<P>) -> LocalFuture<()> {
        let _ = plan;
        Box::pin(async {})
    }
    /// What is still not settled, in words for the operator.
    fn unsettled(&self, plan: &P) -> Vec<String> {
        let _ = plan;
        Vec::new()
    }
    /// Runs while the plan serves; dropped when another takes its place. The plan is held weakly across waits, so that a
    /// replaced one goes.
    fn run(self: Arc<Self>, plan: Weak<P>, log: Arc<ErrorLog>) -> LocalFuture<()>;
}
