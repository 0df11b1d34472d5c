//! Health checks that several servers share (`health_check ... sync`): a probe that a server has passed elsewhere replaces this
//! node's next one.
//!
//! Failures are not shared: a node whose own network is broken excludes servers for itself alone. A node that hears of no passed
//! probe, because the server fails or the store is gone, probes itself.

use crate::checks::Schedule;
use arc_swap::ArcSwapOption;
use area::shared_store::{StoreSlot, space_name};
use net::Address;
use observe::ErrorLog;
use shared_store::{LocalMap, LocalValue, MapReplica, StoreAgent};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Part of the interval for which a passed probe of another node replaces an own one, as a percentage: below a whole one, so
/// that nodes which begin together do not wait for each other.
const FRESH_PERCENT: u32 = 75;

/// `sync` of a check, as its line has it.
#[derive(Clone, Debug)]
pub struct CheckSharing {
    slot: StoreSlot,
    area: &'static str,
}

impl CheckSharing {
    pub fn new(slot: StoreSlot, area: &'static str) -> CheckSharing {
        CheckSharing { slot, area }
    }

    /// Tells whether there is a store. Call after the whole configuration was read.
    pub fn has_store(&self) -> bool {
        self.slot.settings().is_some()
    }
}

/// Passed probes of a group's servers, by one check.
pub struct SharedPasses {
    table: Arc<PassTable>,
    active: ArcSwapOption<ActivePasses>,
    interval: Duration,
    lifetime_millis: u64,
}

struct ActivePasses {
    replica: Arc<MapReplica>,
    /// Keeps the connection.
    _agent: Arc<StoreAgent>,
}

impl SharedPasses {
    /// Begins to share the probes of a check. `None` without `sync` or a store.
    pub fn begin(schedule: &Schedule, group: &str, log: &Arc<ErrorLog>) -> Option<SharedPasses> {
        let sharing = schedule.sharing.as_ref()?;
        let agent = sharing.slot.agent(log)?;
        let name = format!("{group} {}", schedule.id);
        let table = area::zones::zone_state("shared checks", &name, 0, sharing.area.as_bytes(), PassTable::default);
        let replica = agent.share_map(&format!("checks:{}:{}", sharing.area, space_name(&name)), table.clone());
        let active = ArcSwapOption::from_pointee(ActivePasses { replica, _agent: agent });
        let lifetime_millis = schedule.interval_ms.saturating_add(schedule.jitter_ms);
        Some(SharedPasses { table, active, interval: Duration::from_millis(schedule.interval_ms), lifetime_millis })
    }

    /// Tells whether a probe of the server at an address has lately been passed on another node. A UNIX socket's server is
    /// this node's own.
    pub fn has_passed_elsewhere(&self, address: &Address) -> bool {
        let fresh = self.interval * FRESH_PERCENT / 100;
        let Some(key) = key_of(address) else { return false };
        self.table.passes().get(&key).and_then(|pass| pass.heard).is_some_and(|heard| heard.elapsed() < fresh)
    }

    /// Tells the other nodes that a server has passed this node's probe.
    pub fn tell_pass(&self, address: &Address) {
        let (Some(key), Some(active)) = (key_of(address), self.active.load_full()) else { return };
        let now = base::clock::unix_millis();
        let end = now.saturating_add(self.lifetime_millis);
        let note = || {
            let mut passes = self.table.passes();
            passes.retain(|_, pass| pass.end > now);
            passes.insert(key.clone(), CheckPass { end, heard: None });
            Ok::<_, ()>(())
        };
        let _ = active.replica.change_key(&key, now, note);
    }
}

fn key_of(address: &Address) -> Option<Vec<u8>> {
    match address {
        Address::Ip(address) => Some(address.to_string().into_bytes()),
        Address::Unix(_) => None,
    }
}

struct CheckPass {
    /// Milliseconds since 1970.
    end: u64,
    /// When it came from another node.
    heard: Option<Instant>,
}

/// The last passed probe of each server.
#[derive(Default)]
struct PassTable(Mutex<HashMap<Vec<u8>, CheckPass>>);

impl PassTable {
    fn passes(&self) -> MutexGuard<'_, HashMap<Vec<u8>, CheckPass>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalMap for PassTable {
    fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
        self.passes().get(key).map(|pass| (Vec::new(), Some(pass.end)))
    }

    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool {
        let mut passes = self.passes();
        match (value, expires) {
            (Some(_), Some(end)) => drop(passes.insert(key.to_vec(), CheckPass { end, heard: Some(Instant::now()) })),
            _ => drop(passes.remove(key)),
        }
        true
    }

    fn local_keys(&self) -> Vec<Vec<u8>> {
        self.passes().keys().cloned().collect()
    }

    fn local_identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(interval: Duration) -> SharedPasses {
        SharedPasses { table: Arc::default(), active: ArcSwapOption::empty(), interval, lifetime_millis: 1 }
    }

    #[test]
    fn a_pass_of_another_node_counts_for_less_than_an_interval() {
        let address = Address::Ip(([192, 0, 2, 1], 80).into());
        let (long, none) = (passes(Duration::from_secs(3600)), passes(Duration::ZERO));
        for passes in [&long, &none] {
            assert!(!passes.has_passed_elsewhere(&address));
            assert!(passes.table.apply_value(b"192.0.2.1:80", Some(b""), Some(u64::MAX)));
        }
        assert!(long.has_passed_elsewhere(&address) && !none.has_passed_elsewhere(&address));
        assert!(!long.has_passed_elsewhere(&Address::Unix("/192.0.2.1:80".into())));
        // An ended record, and an own pass.
        assert!(long.table.apply_value(b"192.0.2.1:80", None, None));
        assert!(!long.has_passed_elsewhere(&address));
        long.table.passes().insert(b"192.0.2.1:80".to_vec(), CheckPass { end: u64::MAX, heard: None });
        assert!(!long.has_passed_elsewhere(&address));
    }
}
