//! Loaded configurations and restarted processes. A forked worker process inherits the master's numbers, and both count
//! reloads.

use std::sync::atomic::{AtomicU64, Ordering};

static LOADS: AtomicU64 = AtomicU64::new(0);
static LOADED_AT: AtomicU64 = AtomicU64::new(0);
static RESPAWNED: AtomicU64 = AtomicU64::new(0);
/// Value of `RESPAWNED` at its last reset.
static RESPAWNED_BEFORE: AtomicU64 = AtomicU64::new(0);

/// The server's life so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    /// Configurations that served, the present one included.
    pub loads: u64,
    /// When the present one was loaded, in milliseconds since 1970.
    pub loaded_at: u64,
    /// Worker processes that ended abnormally and were replaced, since the last reset.
    pub respawned: u64,
}

impl Lifecycle {
    pub fn now() -> Lifecycle {
        let respawned = RESPAWNED.load(Ordering::Relaxed);
        Lifecycle {
            loads: LOADS.load(Ordering::Relaxed),
            loaded_at: LOADED_AT.load(Ordering::Relaxed),
            respawned: respawned.saturating_sub(RESPAWNED_BEFORE.load(Ordering::Relaxed)),
        }
    }
    /// Notes that a configuration serves; `now` in milliseconds since 1970.
    pub fn note_load(now: u64) {
        LOADS.fetch_add(1, Ordering::Relaxed);
        LOADED_AT.store(now, Ordering::Relaxed);
    }
    /// Notes in the master that a worker process ended abnormally.
    pub fn note_respawn() {
        RESPAWNED.fetch_add(1, Ordering::Relaxed);
    }
    pub fn reset_respawned() {
        RESPAWNED_BEFORE.store(RESPAWNED.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
