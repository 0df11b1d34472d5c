//! Loaded configurations and restarted processes. A forked worker process inherits the master's numbers, and both count
//! reloads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

static LOADS: AtomicU64 = AtomicU64::new(0);
static LOADED_AT: AtomicU64 = AtomicU64::new(0);
/// When the counters of the process began.
static BEGAN_AT: AtomicU64 = AtomicU64::new(0);
static RELOADS_FAILED: AtomicU64 = AtomicU64::new(0);
/// When the last reload failed; 0: the last one succeeded, or there was none.
static RELOAD_FAILED_AT: AtomicU64 = AtomicU64::new(0);
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
    /// Reloads that failed: the present configuration stayed.
    pub reloads_failed: u64,
    /// When the last reload failed, in milliseconds since 1970; 0: the last one succeeded, or there was none.
    pub reload_failed_at: u64,
    /// Worker processes that ended abnormally and were replaced, since the last reset.
    pub respawned: u64,
    /// As `respawned`, whatever was reset.
    pub respawned_ever: u64,
}

impl Lifecycle {
    pub fn now() -> Lifecycle {
        let respawned = RESPAWNED.load(Ordering::Relaxed);
        Lifecycle {
            loads: LOADS.load(Ordering::Relaxed),
            loaded_at: LOADED_AT.load(Ordering::Relaxed),
            reloads_failed: RELOADS_FAILED.load(Ordering::Relaxed),
            reload_failed_at: RELOAD_FAILED_AT.load(Ordering::Relaxed),
            respawned: respawned.saturating_sub(RESPAWNED_BEFORE.load(Ordering::Relaxed)),
            respawned_ever: respawned,
        }
    }
    /// Notes that a configuration serves; `now` in milliseconds since 1970.
    pub fn note_load(now: u64) {
        LOADS.fetch_add(1, Ordering::Relaxed);
        LOADED_AT.store(now, Ordering::Relaxed);
        RELOAD_FAILED_AT.store(0, Ordering::Relaxed);
    }
    /// Notes that a reload failed; `now` in milliseconds since 1970.
    pub fn note_failed_reload(now: u64) {
        RELOADS_FAILED.fetch_add(1, Ordering::Relaxed);
        RELOAD_FAILED_AT.store(now, Ordering::Relaxed);
    }
    /// Notes that this process begins to count; `now` in milliseconds since 1970.
    pub fn note_begin(now: u64) {
        BEGAN_AT.store(now, Ordering::Relaxed);
    }
    /// Returns when the counters of this process began, in milliseconds since 1970.
    pub fn began_at() -> u64 {
        match BEGAN_AT.load(Ordering::Relaxed) {
            0 => {
                let now = unix_millis();
                BEGAN_AT.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(now)
            }
            began => began,
        }
    }
    /// Notes in the master that a worker process ended abnormally.
    pub fn note_respawn() {
        RESPAWNED.fetch_add(1, Ordering::Relaxed);
    }
    pub fn reset_respawned() {
        RESPAWNED_BEFORE.store(RESPAWNED.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Reads the clock: milliseconds since 1970. For rare use.
pub(crate) fn unix_millis() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
