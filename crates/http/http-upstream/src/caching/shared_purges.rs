//! Purges of a cache on all servers of a `shared_store` (`proxy_cache_path ... sync`), also on one that was away.
//!
//! A purge is a record of a shared map: the purged key, `*` at its end for a prefix, and when it was purged. Purges of tags
//! have a map of their own. A server that gets the record drops the matching entries that it has stored until then.

use super::paths::hurry_managers;
use area::shared_store::{StoreSlot, space_name};
use cache::{TagHash, Zone};
use observe::ErrorLog;
use shared_store::{LocalMap, LocalValue, MapReplica, StoreAgent};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Time for which a purge reaches servers that were away.
const LIFETIME_MILLIS: u64 = 7 * 24 * 60 * 60 * 1000;
/// Clocks of servers differ at most by this, or an outdated entry stays.
const SKEW_MILLIS: u64 = 5_000;
/// Purges of a kind that are kept for servers that are away; the oldest are dropped first.
const PURGES_MAX: usize = 10_000;

/// Purges of a cache.
pub struct SharedPurges {
    slot: StoreSlot,
    /// Name of the zone in the store.
    space: String,
    keys: Arc<PurgeTable>,
    tags: Arc<PurgeTable>,
    /// Since a configuration with the cache serves.
    active: OnceLock<ActivePurges>,
}

struct ActivePurges {
    keys: Arc<MapReplica>,
    tags: Arc<MapReplica>,
    /// Keeps the connection.
    _agent: Arc<StoreAgent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PurgeKind {
    /// Keys, and prefixes with `*`.
    Key,
    Tag,
}

impl SharedPurges {
    /// `id` distinguishes zones of one name. The purges outlive a reload, as the zone does.
    pub fn new(slot: StoreSlot, zone: &Arc<Zone>, id: &[u8]) -> SharedPurges {
        let table = |state: &'static str, kind| {
            let make = || PurgeTable { zone: zone.clone(), kind, purges: Mutex::default() };
            crate::zones::zone_state(state, &zone.name, 0, id, make)
        };
        let keys = table("cache purges", PurgeKind::Key);
        let tags = table("cache purges of tags", PurgeKind::Tag);
        SharedPurges { slot, space: space_name(&zone.name), keys, tags, active: OnceLock::new() }
    }

    /// Begins to tell and to hear purges, if there is a store.
    pub fn begin_sharing(&self, log: &Arc<ErrorLog>) {
        if self.active.get().is_some() {
            return;
        }
        let Some(agent) = self.slot.agent(log) else { return };
        let keys = agent.share_map(&format!("purges:{}", self.space), self.keys.clone());
        let tags = agent.share_map(&format!("purged-tags:{}", self.space), self.tags.clone());
        let _ = self.active.set(ActivePurges { keys, tags, _agent: agent });
    }

    /// Tells the other servers of a purge that was made here, of a key or of a prefix with `*`.
    pub fn tell(&self, key: &[u8], now: u64) {
        if let Some(active) = self.active.get() {
            tell_one(&active.keys, &self.keys, key, now);
        }
    }

    /// Tells the other servers of a purge of a tag that was made here.
    pub fn tell_tag(&self, tag: &[u8], now: u64) {
        if let Some(active) = self.active.get() {
            tell_one(&active.tags, &self.tags, tag, now);
        }
    }
}

fn tell_one(replica: &MapReplica, table: &PurgeTable, key: &[u8], now: u64) {
    let note = || {
        table.note(key, now, now + LIFETIME_MILLIS);
        Ok::<_, ()>(())
    };
    let _ = replica.change_key(key, now, note);
}

/// Purges that are not too old, for servers that were away.
struct PurgeTable {
    zone: Arc<Zone>,
    kind: PurgeKind,
    purges: Mutex<PurgeLists>,
}

#[derive(Default)]
struct PurgeLists {
    by_key: HashMap<Vec<u8>, (u64, u64)>,
    /// Keys by the end of their records.
    by_end: BTreeMap<(u64, Vec<u8>), ()>,
}

impl PurgeTable {
    fn purges(&self) -> MutexGuard<'_, PurgeLists> {
        self.purges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: &[u8], at: u64, end: u64) {
        let mut purges = self.purges();
        if let Some((_, old)) = purges.by_key.insert(key.to_vec(), (at, end)) {
            purges.by_end.remove(&(old, key.to_vec()));
        }
        purges.by_end.insert((end, key.to_vec()), ());
        while purges.by_end.first_key_value().is_some_and(|((end, _), ())| *end <= at)
            || purges.by_end.len() > PURGES_MAX
        {
            let Some(((_, key), ())) = purges.by_end.pop_first() else { break };
            purges.by_key.remove(&key);
        }
    }
}

impl LocalMap for PurgeTable {
    fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
        let purges = self.purges();
        purges.by_key.get(key).map(|(at, end)| (at.to_string().into_bytes(), Some(*end)))
    }

    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool {
        // A record that ends is no purge that is taken back.
        let Some(at) = value.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok()) else { return true };
        self.note(key, at, expires.unwrap_or(at.saturating_add(LIFETIME_MILLIS)));
        let before_ms = at.saturating_add(SKEW_MILLIS);
        let noted = match self.kind {
            PurgeKind::Tag => self.zone.purges.add_tag_until(TagHash::of(key), before_ms),
            PurgeKind::Key => {
                let (prefix, is_exact) = key.strip_suffix(b"*").map_or((key, true), |prefix| (prefix, false));
                let noted = self.zone.purges.add_until(prefix, is_exact, before_ms);
                self.zone.cool_purged();
                noted
            }
        };
        hurry_managers();
        // It is in force, but would not outlive a restart: another comparison brings it again.
        let _ = noted;
        true
    }

    fn local_keys(&self) -> Vec<Vec<u8>> {
        self.purges().by_key.keys().cloned().collect()
    }

    fn local_identity(&self) -> usize {
        Arc::as_ptr(&self.zone).addr()
    }
}
