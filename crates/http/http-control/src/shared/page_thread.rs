//! The thread that makes pages about many zones or keys, so that no worker is held up by their number.

use http_engine::{Flow, Request};
use net::pool::{Pool, PoolSpec};
use std::sync::{Arc, OnceLock};

/// Requests that wait for the thread at most; more get 503.
const WAITING_MAX: usize = 64;

/// Pool of one thread, which starts with the first request and ends when there are none.
fn pool() -> &'static Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(PoolSpec::control("metrics", WAITING_MAX)))
}

/// Makes a page on the thread, in the order of requests, and answers with it.
pub fn answer(
    make: impl FnOnce() -> String + Send + 'static,
    respond: impl FnOnce(&mut Request, String) -> Flow + 'static,
) -> Flow {
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let made = match pool().run(make) {
                Ok(work) => work.await.map_err(|_| 500),
                Err(_) => Err(503),
            };
            let flow = match made {
                Ok(text) => respond(&mut r, text),
                Err(status) => Flow::Status(status),
            };
            (r, flow)
        })
    }))
}
