//! The thread that makes pages about many zones or keys, so that no worker is held up by their number.

use bytes::Bytes;
use http_engine::{Flow, Request, body_memory};
use net::pool::{Pool, PoolSpec};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Requests that wait for the thread at most; more get 503.
const WAITING_MAX: usize = 64;

/// Pool of one thread, which starts with the first request and ends when there are none.
fn pool() -> &'static Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(PoolSpec::control("metrics", WAITING_MAX)))
}

/// Size of the largest page so far, which each one is expected to have; the start is a guess.
static LARGEST_BYTES: AtomicU64 = AtomicU64::new(64 << 10);

/// Makes a page on the thread, in the order of requests, and answers with it: as soon as there is memory for it
/// (`generated_body_memory`).
pub fn answer_later(
    make: impl FnOnce() -> String + Send + 'static,
    respond: impl FnOnce(&mut Request, Bytes) -> Flow + 'static,
) -> Flow {
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let flow = match page(&r, make).await {
                Ok(text) => respond(&mut r, text),
                Err(status) => Flow::Status(status),
            };
            (r, flow)
        })
    }))
}

async fn page(r: &Request, make: impl FnOnce() -> String + Send + 'static) -> Result<Bytes, u16> {
    let mut make = Some(make);
    loop {
        let expected = LARGEST_BYTES.load(Ordering::Relaxed);
        let memory = body_memory::reserve_memory(r, expected).await.map_err(|none| none.status())?;
        let Some(now) = make.take() else {
            base::bug!("a page is made twice");
            return Err(500);
        };
        let job = move || match LARGEST_BYTES.load(Ordering::Relaxed) > expected {
            // A page before this one was larger: this one waits for as much memory.
            true => Err(now),
            false => {
                let text = now();
                LARGEST_BYTES.fetch_max(text.len() as u64, Ordering::Relaxed);
                Ok(text)
            }
        };
        // 503: the queue is full. A page that panicked has said so.
        match pool().run(job).map_err(|_| 503u16)?.await.map_err(|_| 500u16)? {
            Ok(text) => return Ok(memory.hold(text.into_bytes().into_boxed_slice())),
            Err(later) => make = Some(later),
        }
    }
}
