//! Work that would hold up a thread's other connections: files and directories of any size.

use http_engine::Request;
use observe::Level;

/// Runs a job on a thread of the pool `default`, or at once without a pool. Returns `None` for a full queue, which is
/// logged, and for a job that panicked.
pub async fn run<T: Send + 'static>(r: &Request, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let name = net::pool::DEFAULT;
    let Some(pool) = net::pool::named(name) else { return Some(job()) };
    match pool.run(job) {
        Ok(waiting) => waiting.await.ok(),
        Err(full) => {
            let waiting = full.waiting;
            r.log(Level::Error, format_args!("thread pool \"{name}\" queue overflow: {waiting} tasks waiting"));
            None
        }
    }
}
