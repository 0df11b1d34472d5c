//! This node's part of a shared map: versions of a local zone's pairs, and the changes that the store does not have yet.

use crate::record::{MapRecord, NodeClock, Version};
use crate::state::MapState;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Time for which a removal is remembered, if the removed pair had no end. A node that was away for longer drops pairs
/// that the store does not have.
pub const REMOVAL_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A value with the time of its end, in milliseconds since 1970.
pub type LocalValue = (Vec<u8>, Option<u64>);

/// A zone of this process whose pairs are shared. Calls come from the agent's thread, and from within
/// [`MapReplica::change_key`]; they must not wait.
pub trait LocalMap: Send + Sync {
    /// Returns a pair's value.
    fn local_value(&self, key: &[u8]) -> Option<LocalValue>;

    /// Sets a pair to another node's value, or removes it. Returns `false` if there is no room for it.
    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool;

    /// Returns all keys. Called when the zone is shared, which may have pairs of a state file, and when all are removed.
    fn local_keys(&self) -> Vec<Vec<u8>>;

    /// Returns keys of pairs that have changed beside [`MapReplica::change_key`], for zones that change often: asked before records
    /// are sent, after [`MapReplica::announce_changes`] and every few seconds. `now` is in milliseconds since 1970.
    fn changed_keys(&self, now: u64) -> Vec<Vec<u8>> {
        let _ = now;
        Vec::new()
    }

    /// Returns a number that distinguishes zones which live at the same time: a reload may make another one of the same name.
    fn local_identity(&self) -> usize;
}

/// See the module. Changes of other nodes are applied one at a time, in the order of their versions for each key.
pub struct MapReplica {
    space: String,
    clock: Arc<NodeClock>,
    local: Arc<dyn LocalMap>,
    state: Mutex<ReplicaState>,
    wake: Arc<Notify>,
}

#[derive(Default)]
struct ReplicaState {
    held: HashMap<Vec<u8>, HeldVersion>,
    /// Keys to send, with the version that was sent last if that was not acknowledged.
    pending: BTreeMap<Vec<u8>, ()>,
    /// When the replica was last known to be equal to the store, in milliseconds since 1970.
    equal_at: Option<u64>,
}

#[derive(Clone, Copy)]
struct HeldVersion {
    version: Version,
    expires: Option<u64>,
    is_removed: bool,
}

impl MapReplica {
    pub(crate) fn new(
        space: &str,
        local: Arc<dyn LocalMap>,
        clock: Arc<NodeClock>,
        wake: Arc<Notify>,
        now: u64,
    ) -> MapReplica {
        let replica = MapReplica { space: space.to_owned(), clock, local, state: Mutex::default(), wake };
        let mut state = replica.state();
        for key in replica.local.local_keys() {
            let expires = replica.local.local_value(&key).and_then(|(_, expires)| expires);
            // Older than each change that any node makes from now on.
            let version = Version { time: 1, count: 0, node: replica.clock.node() };
            state.held.insert(key.clone(), HeldVersion { version, expires, is_removed: false });
            state.pending.insert(key, ());
        }
        state.equal_at = Some(now);
        drop(state);
        replica
    }

    fn state(&self) -> MutexGuard<'_, ReplicaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_of(&self, local: &dyn LocalMap) -> bool {
        self.local.local_identity() == local.local_identity()
    }

    /// Name of the map in the store.
    pub fn space(&self) -> &str {
        &self.space
    }

    /// Changes the pair of a key in the local zone, and tells the other nodes. Nothing is told if the closure returns an
    /// error. `now` is in milliseconds since 1970.
    ///
    /// # Errors
    /// Those of the closure.
    pub fn change_key<T, E>(&self, key: &[u8], now: u64, change: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let mut state = self.state();
        let before = self.local.local_value(key).and_then(|(_, expires)| expires);
        let result = change()?;
        self.note_change(&mut state, key, before, now);
        drop(state);
        self.wake.notify_one();
        Ok(result)
    }

    /// Removes all pairs of the local zone by a closure, and tells the other nodes.
    pub fn change_all(&self, now: u64, change: impl FnOnce()) {
        let mut state = self.state();
        let keys = self.local.local_keys();
        let before: Vec<_> =
            keys.iter().map(|key| self.local.local_value(key).and_then(|(_, expires)| expires)).collect();
        change();
        for (key, before) in
            keys.iter().chain(&self.local.local_keys()).zip(before.into_iter().chain(std::iter::repeat(None)))
        {
            self.note_change(&mut state, key, before, now);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Lets the agent's thread ask for [`LocalMap::changed_keys`] soon.
    pub fn announce_changes(&self) {
        self.wake.notify_one();
    }

    /// Notes the changes of [`LocalMap::changed_keys`].
    pub(crate) fn gather_changes(&self, now: u64) {
        let keys = self.local.changed_keys(now);
        if keys.is_empty() {
            return;
        }
        let mut state = self.state();
        for key in keys {
            self.note_change(&mut state, &key, None, now);
        }
    }

    fn note_change(&self, state: &mut ReplicaState, key: &[u8], before: Option<u64>, now: u64) {
        let (is_removed, expires) = match self.local.local_value(key) {
            Some((_, expires)) => (false, expires),
            // Older records of the key end with the pair, if it had an end.
            None => (true, before.or(Some(now.saturating_add(REMOVAL_LIFETIME.as_millis() as u64)))),
        };
        let version = self.clock.next_version(now);
        state.held.insert(key.to_vec(), HeldVersion { version, expires, is_removed });
        state.pending.insert(key.to_vec(), ());
    }

    /// Takes over a record of the store, if it is newer. Returns [`AppliedRecord`].
    pub(crate) fn apply_record(&self, record: &MapRecord, now: u64) -> AppliedRecord {
        let mut state = self.state();
        self.apply_to(&mut state, record, now)
    }

    fn apply_to(&self, state: &mut ReplicaState, record: &MapRecord, now: u64) -> AppliedRecord {
        self.clock.note_version(record.version, now);
        if let Some(held) = state.held.get(&record.key) {
            if held.version > record.version {
                state.pending.insert(record.key.clone(), ());
                return AppliedRecord::Older;
            }
            if held.version == record.version {
                state.pending.remove(&record.key);
                return AppliedRecord::Older;
            }
        }
        let has_expired = record.expires.is_some_and(|end| end <= now);
        let value = record.value.as_deref().filter(|_| !has_expired);
        let has_room = self.local.apply_value(&record.key, value, record.expires);
        let is_removed = value.is_none() || !has_room;
        let held = HeldVersion { version: record.version, expires: record.expires, is_removed };
        state.pending.remove(&record.key);
        match has_expired {
            true => state.held.remove(&record.key),
            false => state.held.insert(record.key.clone(), held),
        };
        if has_room { AppliedRecord::Taken } else { AppliedRecord::NoRoom }
    }

    /// Compares the whole map with the store's records: takes over records that are newer there, and sends those that are newer here.
    /// Returns the numbers of records that were taken over and that had no room.
    pub(crate) fn compare_all(&self, records: &[MapRecord], now: u64) -> (u64, u64) {
        let mut state = self.state();
        let lifetime = REMOVAL_LIFETIME.as_millis() as u64;
        let was_away = state.equal_at.is_none_or(|at| now.saturating_sub(at) > lifetime);
        let (mut taken, mut refused) = (0, 0);
        for record in records {
            match self.apply_to(&mut state, record, now) {
                AppliedRecord::Taken => taken += 1,
                AppliedRecord::NoRoom => refused += 1,
                AppliedRecord::Older => {}
            }
        }
        let there: std::collections::HashSet<&[u8]> = records.iter().map(|record| record.key.as_slice()).collect();
        let missing: Vec<(Vec<u8>, HeldVersion)> = state
            .held
            .iter()
            .filter(|(key, _)| !there.contains(key.as_slice()))
            .map(|(key, held)| (key.clone(), *held))
            .collect();
        for (key, held) in missing {
            let is_old = state.equal_at.is_some_and(|at| held.version.time <= at);
            if was_away && is_old {
                // Its removal is forgotten already.
                self.local.apply_value(&key, None, None);
                state.held.remove(&key);
                state.pending.remove(&key);
            } else {
                state.pending.insert(key, ());
            }
        }
        (taken, refused)
    }

    /// Notes that the replica and the store were equal at a time, in milliseconds since 1970.
    pub(crate) fn note_equal(&self, now: u64) {
        self.state().equal_at = Some(now);
    }

    /// Returns changes that the store does not have, at most a number.
    pub(crate) fn pending_records(&self, number: usize) -> Vec<MapRecord> {
        let state = self.state();
        let keys = state.pending.keys().take(number);
        keys.filter_map(|key| {
            let held = state.held.get(key)?;
            let value = if held.is_removed { None } else { self.local.local_value(key) };
            let expires = value.as_ref().map_or(held.expires, |(_, expires)| *expires);
            let value = value.map(|(value, _)| value);
            Some(MapRecord { key: key.clone(), value, version: held.version, expires })
        })
        .collect()
    }

    /// Notes that the store has records, or newer ones.
    pub(crate) fn acknowledge(&self, records: &[MapRecord]) {
        let mut state = self.state();
        for record in records {
            if state.held.get(&record.key).is_none_or(|held| held.version <= record.version) {
                state.pending.remove(&record.key);
            }
        }
    }

    pub(crate) fn map_state(&self) -> MapState {
        let state = self.state();
        MapState { space: self.space.clone(), records: state.held.len() as u64, pending: state.pending.len() as u64 }
    }

    pub(crate) fn pending_number(&self) -> usize {
        self.state().pending.len()
    }

    /// Forgets versions of pairs and removals that have ended.
    pub(crate) fn forget_ended(&self, now: u64) {
        let state = &mut *self.state();
        let ReplicaState { held, pending, .. } = state;
        held.retain(|key, held| {
            let has_ended = held.expires.is_some_and(|end| end <= now);
            if has_ended {
                pending.remove(key);
            }
            !has_ended
        });
    }
}

/// Result of [`MapReplica::apply_record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppliedRecord {
    Taken,
    /// The local one is as new, or newer.
    Older,
    /// The zone is full: the pair is not there.
    NoRoom,
}
