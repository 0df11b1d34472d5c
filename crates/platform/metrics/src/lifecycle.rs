//! Loaded configurations and restarted processes. A forked worker process inherits the master's numbers, and both count
//! reloads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

static LOADS: AtomicU64 = AtomicU64::new(0);
static LOADED_AT: AtomicU64 = AtomicU64::new(0);
static BEGAN_AT: AtomicU64 = AtomicU64::new(0);
static RELOADS_FAILED: AtomicU64 = AtomicU64::new(0);
/// When the last reload failed; 0: the last one succeeded, or there was none.
static RELOAD_FAILED_AT: AtomicU64 = AtomicU64::new(0);
static RESPAWNED: AtomicU64 = AtomicU64::new(0);
/// Value of `RESPAWNED` at its last reset.
static RESPAWNED_BEFORE: AtomicU64 = AtomicU64::new(0);
static KEY_PROCESSES_RESPAWNED: AtomicU64 = AtomicU64::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);
static RECORD: Mutex<VecDeque<LoadRecord>> = Mutex::new(VecDeque::new());

const RECORDS_MAX: usize = 20;
/// In bytes.
const REASON_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    /// Configurations that served, the present one included.
    pub loads: u64,
    /// In milliseconds since 1970.
    pub loaded_at: u64,
    /// Reloads that failed: the present configuration stayed.
    pub reloads_failed: u64,
    /// In milliseconds since 1970; 0: the last reload succeeded, or there was none.
    pub reload_failed_at: u64,
    /// Worker processes that ended abnormally and were replaced, since the last reset.
    pub respawned: u64,
    /// As `respawned`, whatever was reset.
    pub respawned_ever: u64,
    /// Key processes that ended or hung and were replaced.
    pub key_processes_respawned: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadRecord {
    /// In milliseconds since 1970.
    pub at: u64,
    /// Number of the configuration, or why it was refused.
    pub result: Result<u64, String>,
}

fn records() -> MutexGuard<'static, VecDeque<LoadRecord>> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(record: LoadRecord) {
    let mut all = records();
    if all.len() >= RECORDS_MAX {
        all.pop_front();
    }
    all.push_back(record);
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
            key_processes_respawned: KEY_PROCESSES_RESPAWNED.load(Ordering::Relaxed),
        }
    }
    /// `now` in milliseconds since 1970.
    pub fn note_load(now: u64) {
        let number = LOADS.fetch_add(1, Ordering::Relaxed) + 1;
        LOADED_AT.store(now, Ordering::Relaxed);
        RELOAD_FAILED_AT.store(0, Ordering::Relaxed);
        note(LoadRecord { at: now, result: Ok(number) });
    }
    /// Notes that a reload failed and the present configuration stays; `now` in milliseconds since 1970. Long reasons are cut.
    pub fn note_refused(now: u64, why: &str) {
        RELOADS_FAILED.fetch_add(1, Ordering::Relaxed);
        RELOAD_FAILED_AT.store(now, Ordering::Relaxed);
        let mut end = why.len().min(REASON_BYTES_MAX);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        note(LoadRecord { at: now, result: Err(why.get(..end).unwrap_or_default().to_string()) });
    }
    /// Oldest first.
    pub fn record() -> Vec<LoadRecord> {
        records().iter().cloned().collect()
    }
    /// Notes that the process shuts down: streams without an end should end.
    pub fn note_ending() {
        ENDING.store(true, Ordering::Relaxed);
    }
    pub fn is_ending() -> bool {
        ENDING.load(Ordering::Relaxed)
    }
    /// `now` in milliseconds since 1970.
    pub fn note_begin(now: u64) {
        BEGAN_AT.store(now, Ordering::Relaxed);
    }
    /// In milliseconds since 1970.
    pub fn began_at() -> u64 {
        match BEGAN_AT.load(Ordering::Relaxed) {
            0 => {
                let now = unix_millis();
                BEGAN_AT.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(now)
            }
            began => began,
        }
    }
    pub fn note_respawn() {
        RESPAWNED.fetch_add(1, Ordering::Relaxed);
    }
    pub fn note_key_process_respawn() {
        KEY_PROCESSES_RESPAWNED.fetch_add(1, Ordering::Relaxed);
    }
    /// Takes over the master's number of replaced key processes, in a worker process.
    pub fn set_key_processes_respawned(number: u64) {
        KEY_PROCESSES_RESPAWNED.store(number, Ordering::Relaxed);
    }
    pub fn reset_respawned() {
        RESPAWNED_BEFORE.store(RESPAWNED.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Reads the clock: milliseconds since 1970. For rare use.
pub(crate) fn unix_millis() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_bounded() {
        for at in 0..100 {
            Lifecycle::note_refused(at, &"é".repeat(REASON_BYTES_MAX));
        }
        let all = Lifecycle::record();
        assert_eq!(all.len(), RECORDS_MAX);
        let last = all.last().expect("a record");
        assert_eq!(last.at, 99);
        assert_eq!(last.result.as_ref().map_err(String::len), Err(REASON_BYTES_MAX));
    }
}
