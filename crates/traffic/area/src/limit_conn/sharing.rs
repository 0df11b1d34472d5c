//! Counts of all nodes of a `shared_store` (`limit_conn_zone ... sync`).
//!
//! Each node tells the others its counts: a record for each key, which the agent's thread sends when the count of a key
//! has changed. Sessions that begin and end in between cause no record. A node that is gone is not counted any more.

use shared_store::{LocalMap, LocalValue, MapReplica, StoreAgent, StoreLoss};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Milliseconds for which a count is believed; half of it passes before a node repeats one that has not changed.
const LIFETIME_MILLIS: u64 = 120_000;
/// Milliseconds between two looks for counts to repeat and to forget.
const SWEEP_MILLIS: u64 = 5_000;
/// Bytes of the node's number before the key.
const NODE_BYTES: usize = 8;

/// The counts of a zone on all nodes.
pub(super) struct SharedCounts {
    /// Ends with the last configuration that has it, while sessions of before may still be counted.
    agent: Weak<StoreAgent>,
    replica: Arc<MapReplica>,
    table: Arc<CountTable>,
}

impl SharedCounts {
    /// Returns the counts of a zone; `kept` are those of the configuration before, which stay if the store does.
    pub(super) fn begin(
        agent: &Arc<StoreAgent>,
        space: &str,
        entries_max: usize,
        kept: Option<Arc<SharedCounts>>,
    ) -> Arc<SharedCounts> {
        if let Some(kept) = kept.filter(|kept| kept.agent.ptr_eq(&Arc::downgrade(agent))) {
            return kept;
        }
        let table = Arc::new(CountTable { node: agent.node(), entries_max, state: Mutex::default() });
        let replica = agent.share_map(space, table.clone());
        Arc::new(SharedCounts { agent: Arc::downgrade(agent), replica, table })
    }

    /// Returns how many sessions of a key this node may have now, of `most` of all nodes.
    pub(super) fn places(&self, key: &[u8], most: u32) -> u32 {
        let Some(agent) = self.agent.upgrade() else { return most };
        if !agent.is_connected() {
            return match agent.loss() {
                StoreLoss::Local => (most / u32::try_from(agent.nodes()).unwrap_or(u32::MAX).max(1)).max(1),
                StoreLoss::Open => most,
                StoreLoss::Deny => 0,
            };
        }
        let now = base::clock::unix_millis();
        let state = self.table.state();
        let Some(peers) = state.peers.get(key) else { return most };
        let living = peers.iter().filter(|peer| peer.expires > now && agent.node_lives(peer.node));
        most.saturating_sub(living.map(|peer| peer.count).sum())
    }

    /// Notes the number of a key's sessions on this node.
    pub(super) fn note(&self, key: &[u8], count: u32) {
        if self.table.note(key, count) {
            self.replica.announce_changes();
        }
    }
}

struct CountTable {
    node: u64,
    entries_max: usize,
    state: Mutex<TableState>,
}

#[derive(Default)]
struct TableState {
    own: HashMap<Box<[u8]>, OwnCount>,
    /// Keys of `own` whose counts are to be looked at.
    changed: HashSet<Box<[u8]>>,
    peers: HashMap<Box<[u8]>, Vec<PeerCount>>,
    swept_at: u64,
}

/// Sessions of a key on this node.
#[derive(Default)]
struct OwnCount {
    count: u32,
    announced: u32,
    /// Of the record; 0 before the first one.
    expires: u64,
}

/// Sessions of a key on another node.
struct PeerCount {
    node: u64,
    count: u32,
    expires: u64,
}

impl CountTable {
    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the agent has to look. Without the store, which the agent waits for, nothing remains of sessions that
    /// begin and end.
    fn note(&self, key: &[u8], count: u32) -> bool {
        let state = &mut *self.state();
        if count == 0 && state.own.get(key).is_none_or(|own| own.expires == 0) {
            state.own.remove(key);
            state.changed.remove(key);
            return false;
        }
        match state.own.get_mut(key) {
            Some(own) => own.count = count,
            None => drop(state.own.insert(key.into(), OwnCount { count, ..OwnCount::default() })),
        }
        !state.changed.contains(key) && state.changed.insert(key.into())
    }

    fn record_key(&self, key: &[u8]) -> Vec<u8> {
        [&self.node.to_be_bytes(), key].concat()
    }
}

/// Splits a record's key into the node's number and the key.
fn split_key(key: &[u8]) -> Option<(u64, &[u8])> {
    let (node, key) = key.split_first_chunk::<NODE_BYTES>()?;
    Some((u64::from_be_bytes(*node), key))
}

impl LocalMap for CountTable {
    fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
        let (node, key) = split_key(key)?;
        let state = self.state();
        let (count, expires) = if node == self.node {
            let own = state.own.get(key).filter(|own| own.expires > 0)?;
            (own.announced, own.expires)
        } else {
            let peer = state.peers.get(key)?.iter().find(|peer| peer.node == node)?;
            (peer.count, peer.expires)
        };
        Some((count.to_be_bytes().to_vec(), Some(expires)))
    }

    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool {
        // Another program's data has no place here.
        let Some((node, key)) = split_key(key) else { return false };
        if node == self.node {
            return true;
        }
        let count = match value.map(<[u8; 4]>::try_from) {
            None => 0,
            Some(Ok(count)) => u32::from_be_bytes(count),
            Some(Err(_)) => return false,
        };
        let state = &mut *self.state();
        if count == 0 {
            if let Some(peers) = state.peers.get_mut(key) {
                peers.retain(|peer| peer.node != node);
                if peers.is_empty() {
                    state.peers.remove(key);
                }
            }
            return true;
        }
        if state.peers.len() >= self.entries_max && !state.peers.contains_key(key) {
            return false;
        }
        let peers = state.peers.entry(key.into()).or_default();
        let told = PeerCount { node, count, expires: expires.unwrap_or(u64::MAX) };
        match peers.iter_mut().find(|peer| peer.node == node) {
            Some(peer) => *peer = told,
            None => peers.push(told),
        }
        true
    }

    /// Records of earlier configurations have ended.
    fn local_keys(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn local_identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn changed_keys(&self, now: u64) -> Vec<Vec<u8>> {
        let state = &mut *self.state();
        let mut told = Vec::new();
        for key in std::mem::take(&mut state.changed) {
            let Some(own) = state.own.get_mut(&key) else { continue };
            if own.count != own.announced {
                (own.announced, own.expires) = (own.count, now.saturating_add(LIFETIME_MILLIS));
                told.push(self.record_key(&key));
            } else if own.count == 0 && own.expires <= now {
                state.own.remove(&key);
            }
        }
        if now.saturating_sub(state.swept_at) >= SWEEP_MILLIS {
            state.swept_at = now;
            state.own.retain(|key, own| {
                if own.announced > 0 && own.expires < now.saturating_add(LIFETIME_MILLIS / 2) {
                    own.expires = now.saturating_add(LIFETIME_MILLIS);
                    told.push(self.record_key(key));
                }
                own.count > 0 || own.expires > now
            });
            state.peers.retain(|_, peers| {
                peers.retain(|peer| peer.expires > now);
                !peers.is_empty()
            });
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn table() -> CountTable {
        CountTable { node: 1, entries_max: 2, state: Mutex::default() }
    }

    fn key(node: u64, key: &[u8]) -> Vec<u8> {
        [&node.to_be_bytes(), key].concat()
    }

    #[test]
    fn counts_are_told_when_they_have_changed() {
        let table = table();
        assert!(table.note(b"a", 1));
        assert!(!table.note(b"a", 2), "the agent knows");
        assert_eq!(table.changed_keys(NOW), [key(1, b"a")]);
        assert_eq!(table.local_value(&key(1, b"a")), Some((vec![0, 0, 0, 2], Some(NOW + LIFETIME_MILLIS))));
        assert!(table.changed_keys(NOW).is_empty());
        table.note(b"a", 3);
        table.note(b"a", 2);
        assert!(table.changed_keys(NOW + 1).is_empty(), "a session that has come and gone");
        table.note(b"a", 0);
        assert_eq!(table.changed_keys(NOW + 2), [key(1, b"a")]);
        assert_eq!(table.local_value(&key(1, b"a")).map(|(count, _)| count), Some(vec![0; 4]));
    }

    #[test]
    fn short_sessions_are_not_told_and_leave_nothing() {
        let table = table();
        table.note(b"a", 1);
        table.note(b"a", 0);
        assert!(table.state().own.is_empty() && table.state().changed.is_empty(), "also before the agent has looked");
        assert!(table.changed_keys(NOW).is_empty());
    }

    #[test]
    fn long_sessions_are_told_again_and_old_counts_are_forgotten() {
        let table = table();
        table.note(b"a", 1);
        table.changed_keys(NOW);
        assert!(table.changed_keys(NOW + LIFETIME_MILLIS / 2 - SWEEP_MILLIS).is_empty());
        let later = NOW + LIFETIME_MILLIS / 2 + 1;
        assert_eq!(table.changed_keys(later), [key(1, b"a")]);
        table.note(b"a", 0);
        table.changed_keys(later);
        assert!(table.changed_keys(later + LIFETIME_MILLIS - 1).is_empty());
        assert_eq!(table.state().own.len(), 1, "the others have to hear of the end");
        table.changed_keys(later + LIFETIME_MILLIS + SWEEP_MILLIS);
        assert!(table.state().own.is_empty());
    }

    #[test]
    fn counts_of_other_nodes_are_bounded_and_end() {
        let table = table();
        let set = |node, name: &[u8], count: u32| {
            table.apply_value(&key(node, name), Some(&count.to_be_bytes()), Some(NOW + 10))
        };
        assert!(set(2, b"a", 3) && set(3, b"a", 4) && set(2, b"b", 1));
        assert!(!set(2, b"c", 1), "the zone is full");
        assert!(set(1, b"a", 9), "this node knows its own count");
        let counts = |name: &[u8]| table.state().peers.get(name).map(|all| all.iter().map(|peer| peer.count).sum());
        assert_eq!((counts(b"a"), counts(b"b")), (Some(7_u32), Some(1)));
        assert!(set(3, b"a", 0) && table.apply_value(&key(2, b"b"), None, None));
        assert_eq!((counts(b"a"), counts(b"b")), (Some(3), None));
        assert!(!table.apply_value(b"short", Some(b"x"), None) && !table.apply_value(&key(2, b"a"), Some(b"x"), None));
        table.changed_keys(NOW + 10);
        assert_eq!(counts(b"a"), None);
    }
}
