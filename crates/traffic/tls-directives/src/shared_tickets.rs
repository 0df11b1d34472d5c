//! Ticket keys of all nodes of a `shared_store` (`ssl_session_ticket_key sync`): a session of one node is resumed on the
//! others.
//!
//! Each interval has a key, which the first node makes that finds none, before the interval begins. All nodes have the one that
//! won by then. A node without the store goes on with the last key. The store has the keys encrypted.

use area::shared_secret::SharedSecret;
use shared_store::{LocalMap, LocalValue, MapReplica, StoreAgent};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tls::TicketKeys;

/// Milliseconds for which a key encrypts.
const INTERVAL_MILLIS: u64 = 3_600_000;
/// Milliseconds before an interval in which its key is made.
const AHEAD_MILLIS: u64 = INTERVAL_MILLIS / 4;
/// Milliseconds behind an interval in which its key decrypts; a longer `ssl_session_timeout` has no effect on tickets.
const LIFETIME_MILLIS: u64 = 24 * INTERVAL_MILLIS;
/// Bytes of a key (AES-256).
const KEY_BYTES: usize = 80;
/// Name of the map in the store.
const SPACE: &str = "tickets";

/// The keys of a process.
pub struct SharedTickets {
    keys: Arc<TicketKeys>,
    table: Mutex<KeyTable>,
    /// While a configuration serves with a store.
    sharing: OnceLock<Arc<MapReplica>>,
}

#[derive(Default)]
struct KeyTable {
    secret: Option<Arc<SharedSecret>>,
    /// By the number of the interval.
    keys: BTreeMap<u64, Vec<u8>>,
    /// Own keys that another node's have replaced: there may be tickets.
    replaced: BTreeMap<u64, Vec<u8>>,
    /// The interval whose key encrypts.
    current: Option<u64>,
}

impl SharedTickets {
    /// Keys of this process until the store has told others.
    pub fn new() -> SharedTickets {
        SharedTickets { keys: Arc::new(TicketKeys::automatic()), table: Mutex::default(), sharing: OnceLock::new() }
    }

    /// The keys for settings of servers.
    pub fn keys(&self) -> &Arc<TicketKeys> {
        &self.keys
    }

    /// Begins to share the keys. Without a secret there is nothing to share.
    pub fn begin_sharing(self: &Arc<Self>, agent: &Arc<StoreAgent>, secret: Arc<SharedSecret>) {
        self.table().secret = Some(secret);
        let _ = self.sharing.set(agent.share_map(SPACE, self.clone()));
    }

    fn table(&self) -> MutexGuard<'_, KeyTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the keys over to handshakes, that of the interval first.
    fn install(&self, table: &mut KeyTable, now: u64) {
        let interval = now / INTERVAL_MILLIS;
        let Some(current) = table.keys.range(..=interval).next_back().or(table.keys.iter().next()) else { return };
        let current = *current.0;
        table.current = Some(current);
        let first = table.keys.get(&current).into_iter();
        let others = table.keys.iter().rev().filter(|(number, _)| **number != current).map(|(_, key)| key);
        let all: Vec<&[u8]> = first.chain(others).chain(table.replaced.values()).map(Vec::as_slice).collect();
        self.keys.replace(&all);
    }
}

impl Default for SharedTickets {
    fn default() -> Self {
        SharedTickets::new()
    }
}

fn interval_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

fn end_of(interval: u64) -> u64 {
    interval.saturating_add(1).saturating_mul(INTERVAL_MILLIS).saturating_add(LIFETIME_MILLIS)
}

impl LocalMap for SharedTickets {
    fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
        let interval = interval_of(key)?;
        let table = self.table();
        let sealed = table.secret.as_ref()?.seal(table.keys.get(&interval)?, key)?;
        Some((sealed, Some(end_of(interval))))
    }

    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, _: Option<u64>) -> bool {
        // Another program's data has no place here, nor has a key of another secret.
        let Some(interval) = interval_of(key) else { return false };
        let now = base::clock::unix_millis();
        let table = &mut *self.table();
        let Some(value) = value else {
            table.keys.remove(&interval);
            return true;
        };
        let opened = table.secret.as_ref().and_then(|secret| secret.open(value, key));
        let Some(opened) = opened.filter(|opened| opened.len() == KEY_BYTES) else { return false };
        if let Some(before) = table.keys.insert(interval, opened) {
            table.replaced.insert(interval, before);
        }
        self.install(table, now);
        true
    }

    fn local_keys(&self) -> Vec<Vec<u8>> {
        self.table().keys.keys().map(|interval| interval.to_be_bytes().to_vec()).collect()
    }

    fn local_identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn changed_keys(&self, now: u64) -> Vec<Vec<u8>> {
        let table = &mut *self.table();
        let (interval, next) = (now / INTERVAL_MILLIS, now.saturating_add(AHEAD_MILLIS) / INTERVAL_MILLIS);
        let mut told = Vec::new();
        for number in interval..=next {
            if table.keys.contains_key(&number) {
                continue;
            }
            let mut key = vec![0; KEY_BYTES];
            net::random::fill(&mut key);
            table.keys.insert(number, key);
            told.push(number.to_be_bytes().to_vec());
        }
        table.keys.retain(|number, _| end_of(*number) > now);
        table.replaced.retain(|number, _| end_of(*number) > now);
        if !told.is_empty() || table.current != Some(interval) {
            self.install(table, now);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 500_000 * INTERVAL_MILLIS;

    fn tickets(secret: &str) -> SharedTickets {
        let tickets = SharedTickets::new();
        tickets.table().secret = SharedSecret::derived(secret.as_bytes(), "t", &[]).map(Arc::new);
        tickets
    }

    #[test]
    fn an_interval_has_one_key_which_is_made_ahead() {
        let (one, two) = (tickets("secret"), tickets("secret"));
        let told = one.changed_keys(NOW);
        assert_eq!(told, [500_000_u64.to_be_bytes()]);
        assert!(one.changed_keys(NOW + 1).is_empty());
        let (value, end) = one.local_value(&told[0]).expect("a record");
        assert_eq!(end, Some(NOW + 25 * INTERVAL_MILLIS));
        assert!(two.apply_value(&told[0], Some(&value), end));
        assert!(two.changed_keys(NOW + 2).is_empty(), "there is one");
        assert_eq!(one.table().keys, two.table().keys);
        assert_eq!(one.changed_keys(NOW + INTERVAL_MILLIS - 1), [500_001_u64.to_be_bytes()]);
        assert_eq!(one.table().current, Some(500_000));
        assert!(one.changed_keys(NOW + INTERVAL_MILLIS).is_empty());
        assert_eq!(one.table().current, Some(500_001));
    }

    #[test]
    fn replaced_keys_decrypt_and_old_ones_are_forgotten() {
        let (one, two) = (tickets("secret"), tickets("secret"));
        let told = one.changed_keys(NOW);
        two.changed_keys(NOW);
        let own = two.table().keys.clone();
        let (value, end) = one.local_value(&told[0]).expect("a record");
        assert!(two.apply_value(&told[0], Some(&value), end));
        assert_eq!(two.table().replaced, own);
        two.changed_keys(NOW + 26 * INTERVAL_MILLIS);
        assert!(two.table().replaced.is_empty());
        assert!(!two.table().keys.contains_key(&500_000));
    }

    #[test]
    fn the_store_has_no_key_that_can_be_read() {
        let one = tickets("secret");
        let told = one.changed_keys(NOW);
        let key = one.table().keys[&500_000].clone();
        let (value, end) = one.local_value(&told[0]).expect("a record");
        assert!(!value.windows(16).any(|part| part == &key[..16]));
        assert!(!tickets("another").apply_value(&told[0], Some(&value), end));
        assert!(!one.apply_value(&500_001_u64.to_be_bytes(), Some(&value), end), "bound to its interval");
    }
}
