//! Work that would hold up a thread's other connections: files and directories of any size.

use http_engine::{Request, unless_gone};
use net::pool::{Overflow, ResultInterest};
use observe::Severity;

/// Runs a job on a thread of the pool `default`, or at once without a pool. Returns `None` for a full queue, which is
/// logged, and for a job that panicked.
pub async fn run_pooled<T: Send + 'static>(r: &Request, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let Some(pool) = net::pool::find_pool(net::pool::DEFAULT) else { return Some(job()) };
    finished(r, pool.run(job)).await
}

/// [`run_pooled`] for a long computation, which ends with its request at the next step.
pub async fn run_long<T: Send + 'static>(
    r: &Request,
    job: impl FnOnce(&ResultInterest<'_>) -> T + Send + 'static,
) -> Option<T> {
    let Some(pool) = net::pool::find_pool(net::pool::DEFAULT) else { return Some(job(&ResultInterest::ALWAYS)) };
    let watch = r.incoming.watch().cloned();
    unless_gone(watch, finished(r, pool.run_long(job))).await.flatten()
}

async fn finished<T>(r: &Request, started: Result<tokio::sync::oneshot::Receiver<T>, Overflow>) -> Option<T> {
    match started {
        Ok(waiting) => waiting.await.ok(),
        Err(Overflow { waiting }) => {
            let name = net::pool::DEFAULT;
            r.log(Severity::Error, format_args!("thread pool \"{name}\" queue overflow: {waiting} tasks waiting"));
            None
        }
    }
}
