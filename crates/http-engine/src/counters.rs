//! Counters of the process (`stub_status`). Every thread writes its own; whoever asks sums them.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// One thread's counters; only that thread writes them.
#[derive(Debug, Default)]
pub struct Counters {
    pub accepted: AtomicU64,
    pub handled: AtomicU64,
    pub requests: AtomicU64,
    pub active: AtomicU64,
    pub reading: AtomicU64,
    pub writing: AtomicU64,
}

static ALL: Mutex<Vec<Arc<Counters>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: OnceCell<Arc<Counters>> = const { OnceCell::new() };
}

/// Runs with this thread's counters.
#[inline]
pub fn own<R>(f: impl FnOnce(&Counters) -> R) -> R {
    OWN.with(|own| {
        f(own.get_or_init(|| {
            let counters = Arc::new(Counters::default());
            if let Ok(mut all) = ALL.lock() {
                all.push(counters.clone());
            }
            counters
        }))
    })
}

/// Adds one. Only the owning thread may: a plain load and store, nothing is locked.
#[inline]
pub fn up(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Takes one away.
#[inline]
pub fn down(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
}

/// The sum over all threads of one counter.
pub fn sum(which: impl Fn(&Counters) -> &AtomicU64) -> u64 {
    ALL.lock().map_or(0, |all| all.iter().map(|c| which(c).load(Ordering::Relaxed)).fold(0, u64::wrapping_add))
}
