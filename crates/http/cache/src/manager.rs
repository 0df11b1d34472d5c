//! Evicts entries: unused for `inactive`, or the oldest beyond `max_size`, the zone's keys or below `min_free`. Works
//! in batches and returns the pause.

use crate::loader::Say;
use crate::purge::{self, SweepResult};
use crate::zone::{EvictOutcome, Limits, Zone};
use base::clock;
use observe::Severity;
use std::sync::atomic::Ordering;
use std::time::Duration;

const REST_SECONDS: i64 = 10;

pub fn manage_zone(zone: &Zone, limits: &Limits, say: Say<'_>) -> Duration {
    clock::update();
    let began = clock::now();
    let mut files = 0;
    let pause = Duration::from_millis(limits.manager.sleep_ms);
    let mut enough = || {
        files += 1;
        clock::update();
        files >= limits.manager.files || clock::now().millis_since(began) >= limits.manager.threshold_ms
    };
    let told = |failed: Option<(std::path::PathBuf, std::io::Error)>| {
        if let Some((path, e)) = failed {
            // Other processes may remove files of a cache.
            let level = if e.kind() == std::io::ErrorKind::NotFound { Severity::Info } else { Severity::Crit };
            say(level, &format!("unlink() \"{}\" failed {}", path.display(), observe::os_error(&e)));
        }
    };
    let rest = loop {
        let now = clock::unix_seconds();
        match zone.evict(now) {
            EvictOutcome::One(failed) => told(failed),
            EvictOutcome::Empty => break Duration::from_secs(REST_SECONDS as u64),
            EvictOutcome::Later(at) => break Duration::from_secs((at - now).clamp(1, REST_SECONDS) as u64),
            EvictOutcome::Busy => break Duration::from_secs(1),
        }
        if enough() {
            return pause;
        }
    };
    loop {
        let over = zone.size.load(Ordering::Relaxed) >= limits.max_size
            || zone.count.load(Ordering::Relaxed) >= zone.watermark.load(Ordering::Relaxed);
        let crowded = || limits.min_free > 0 && free(zone).is_some_and(|free| free <= limits.min_free);
        if !over && !crowded() {
            return rest;
        }
        match zone.evict_oldest() {
            EvictOutcome::One(failed) => told(failed),
            EvictOutcome::Busy => return Duration::from_secs(1),
            EvictOutcome::Empty | EvictOutcome::Later(_) => return rest,
        }
        if enough() {
            return pause;
        }
    }
}

fn free(zone: &Zone) -> Option<u64> {
    let facts = rustix::fs::statvfs(zone.root()).ok()?;
    Some(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Of `purger=on`.
#[derive(Debug, Default)]
pub struct Purger {
    shard: usize,
    left: Vec<crate::Hash>,
    /// Newest purge that the end of the pass completes.
    newest: u64,
    busy: bool,
    /// A purged file had to stay: the pass completes no purge.
    incomplete: bool,
}

/// Time between passes of the purger while fetches hold them up.
const WAIT_FOR_FETCHES: Duration = Duration::from_secs(1);

impl Purger {
    pub fn work(&mut self, zone: &Zone, limits: &Limits, say: Say<'_>) -> Option<Duration> {
        let pace = limits.purger?;
        if !self.busy {
            if zone.purges.is_empty() || zone.cold.load(Ordering::Relaxed) {
                return None;
            }
            clock::update();
            let newest = zone.purges.settled();
            if !zone.purges.any_until(newest) {
                // Requests remove the entries that they find; files wait for the fetches in progress.
                return Some(WAIT_FOR_FETCHES);
            }
            *self = Purger { busy: true, newest, ..Purger::default() };
        }
        let began = clock::now();
        let mut files = 0;
        loop {
            let Some(hash) = self.left.pop() else {
                match zone.keys(self.shard) {
                    Some(keys) => {
                        self.left = keys;
                        self.shard += 1;
                        continue;
                    }
                    None => break,
                }
            };
            if purge::sweep_entry(zone, &hash) == SweepResult::Busy {
                self.incomplete = true;
            }
            files += 1;
            clock::update();
            if files >= pace.files || clock::now().millis_since(began) >= pace.threshold_ms {
                return Some(Duration::from_millis(pace.sleep_ms));
            }
        }
        self.busy = false;
        if self.incomplete {
            return Some(WAIT_FOR_FETCHES);
        }
        told(zone, zone.purges.forget_until(self.newest), say);
        (!zone.purges.is_empty()).then_some(WAIT_FOR_FETCHES)
    }
}

/// Without a purger: forgets wildcards older than any entry that they match.
pub fn forget_old(zone: &Zone, limits: &Limits, loaded_ms: u64, say: Say<'_>) {
    if zone.purges.is_empty() || zone.cold.load(Ordering::Relaxed) {
        return;
    }
    let span = (limits.inactive_sec.max(0) as u64).saturating_add(3 * REST_SECONDS as u64).saturating_mul(1000);
    let now = clock::unix_millis();
    // Loaded entries are as old as the process.
    if now > loaded_ms.saturating_add(span) {
        told(zone, zone.purges.forget(now - span), say);
    }
}

fn told(zone: &Zone, result: std::io::Result<()>, say: Say<'_>) {
    if let Err(e) = result {
        let path = zone.root().join(purge::FILE);
        say(Severity::Crit, &format!("writing \"{}\" failed {}", path.display(), observe::os_error(&e)));
    }
}
