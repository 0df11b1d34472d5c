//! Collections that outlive a transaction: `IP`, `SESSION`, `USER`, `GLOBAL`, `RESOURCE`.

use hashbrown::HashMap;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// A kind of collection that outlives transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LastingCollection {
    Global,
    Ip,
    Resource,
    Session,
    User,
}

/// A change of one variable of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChange {
    Set(Vec<u8>),
    /// Adds to the number of the variable; a missing variable counts as 0.
    Add(i64),
    Remove,
    /// Removes the variable in so many seconds.
    ExpireIn(u64),
}

/// Collections of all transactions. The engine calls the methods while it evaluates rules; they must not block.
///
/// `key` names one collection of the kind (the argument of `initcol`), `name` a variable in lower case. `now` is the
/// time in milliseconds by the caller's clock.
pub trait CollectionStore: Send + Sync {
    /// Returns the value of a variable.
    fn get(&self, kind: LastingCollection, key: &[u8], name: &[u8], now: u64) -> Option<Vec<u8>>;
    /// Returns all variables of a collection.
    fn list(&self, kind: LastingCollection, key: &[u8], now: u64) -> Vec<(Vec<u8>, Vec<u8>)>;
    /// Changes a variable. A store that is full forgets the collection that was changed longest ago.
    fn change(&self, kind: LastingCollection, key: &[u8], name: &[u8], change: StoreChange, now: u64);
}

/// Bytes of a [`MemoryStore`] by default.
pub const STORE_BYTES_MAX: usize = 16 << 20;
/// Seconds without a change after which a collection is forgotten, unless `SecCollectionTimeout` says otherwise.
pub const COLLECTION_TIMEOUT: u64 = 3600;
/// Bytes that an entry costs beyond its text.
const ENTRY_BYTES: usize = 96;

#[derive(Debug)]
struct StoredVariable {
    value: Vec<u8>,
    /// Milliseconds; `u64::MAX` for none.
    expires: u64,
}

#[derive(Debug, Default)]
struct StoredCollection {
    variables: HashMap<Box<[u8]>, StoredVariable>,
    bytes: usize,
    changed: u64,
    /// Position in the order of changes: only the newest entry of the queue counts.
    turn: u64,
}

type CollectionKey = (LastingCollection, Box<[u8]>);

#[derive(Debug, Default)]
struct Shelf {
    collections: HashMap<CollectionKey, StoredCollection>,
    /// Collections in the order of their changes, with outdated entries.
    order: VecDeque<(CollectionKey, u64)>,
    bytes: usize,
    turns: u64,
}

/// A store in the memory of a process, bounded in bytes.
#[derive(Debug)]
pub struct MemoryStore {
    shelf: Mutex<Shelf>,
    bytes_max: usize,
    timeout: u64,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new(STORE_BYTES_MAX, COLLECTION_TIMEOUT)
    }
}

impl MemoryStore {
    /// Makes a store of `bytes_max` bytes, which forgets a collection `timeout` seconds after its last change.
    pub fn new(bytes_max: usize, timeout: u64) -> MemoryStore {
        MemoryStore { shelf: Mutex::default(), bytes_max, timeout: timeout.saturating_mul(1000) }
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn forget(&mut self, key: &CollectionKey) {
        if let Some(collection) = self.collections.remove(key) {
            self.bytes = self.bytes.saturating_sub(collection.bytes);
        }
    }
    /// Forgets expired collections, and the oldest until `bytes_max` suffice.
    fn make_room(&mut self, bytes_max: usize, timeout: u64, now: u64) {
        while let Some((key, turn)) = self.order.front() {
            let collection = self.collections.get(key).filter(|collection| collection.turn == *turn);
            let outdated = collection.is_none();
            let expired = collection.is_some_and(|collection| collection.changed.saturating_add(timeout) <= now);
            if !(outdated || expired || self.bytes > bytes_max) {
                break;
            }
            if let Some((key, _)) = self.order.pop_front()
                && !outdated
            {
                self.forget(&key);
            }
        }
    }
}

impl CollectionStore for MemoryStore {
    fn get(&self, kind: LastingCollection, key: &[u8], name: &[u8], now: u64) -> Option<Vec<u8>> {
        let shelf = self.lock();
        let collection = shelf.collections.get(&(kind, Box::from(key)))?;
        let variable = collection.variables.get(name)?;
        let lives = variable.expires > now && collection.changed.saturating_add(self.timeout) > now;
        lives.then(|| variable.value.clone())
    }

    fn list(&self, kind: LastingCollection, key: &[u8], now: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let shelf = self.lock();
        let collection = shelf.collections.get(&(kind, Box::from(key)));
        let collection = collection.filter(|collection| collection.changed.saturating_add(self.timeout) > now);
        let live = collection.into_iter().flat_map(|collection| &collection.variables);
        let live = live.filter(|(_, variable)| variable.expires > now);
        let mut all: Vec<_> = live.map(|(name, variable)| (name.to_vec(), variable.value.clone())).collect();
        all.sort_unstable();
        all
    }

    fn change(&self, kind: LastingCollection, key: &[u8], name: &[u8], change: StoreChange, now: u64) {
        let mut shelf = self.lock();
        let shelf = &mut *shelf;
        let full_key: CollectionKey = (kind, Box::from(key));
        let expired = shelf.collections.get(&full_key).is_some_and(|c| c.changed.saturating_add(self.timeout) <= now);
        if expired {
            shelf.forget(&full_key);
        }
        shelf.turns += 1;
        let turn = shelf.turns;
        let collection = shelf.collections.entry(full_key.clone()).or_default();
        let before = collection.bytes;
        if before == 0 {
            collection.bytes = key.len() + 2 * ENTRY_BYTES;
        }
        collection.changed = now;
        collection.turn = turn;
        let old = collection.variables.remove(name);
        let old_bytes = old.as_ref().map_or(0, |old| name.len() + old.value.len() + ENTRY_BYTES);
        let live = old.filter(|variable| variable.expires > now);
        let expires = live.as_ref().map_or(u64::MAX, |live| live.expires);
        let new = match change {
            StoreChange::Remove => None,
            StoreChange::ExpireIn(seconds) => {
                let expires = now.saturating_add(seconds.saturating_mul(1000));
                live.map(|live| StoredVariable { expires, ..live })
            }
            StoreChange::Set(value) => Some(StoredVariable { value, expires }),
            StoreChange::Add(amount) => {
                let old = live.map_or(0, |live| crate::number::leading_integer(&live.value));
                Some(StoredVariable { value: old.saturating_add(amount).to_string().into_bytes(), expires })
            }
        };
        collection.bytes = collection.bytes.saturating_sub(old_bytes);
        if let Some(new) = new {
            collection.bytes += name.len() + new.value.len() + ENTRY_BYTES;
            collection.variables.insert(Box::from(name), new);
        }
        shelf.bytes = (shelf.bytes + collection.bytes).saturating_sub(before);
        shelf.order.push_back((full_key, turn));
        shelf.make_room(self.bytes_max, self.timeout, now);
        // The queue holds one current entry for each collection; the rest is outdated.
        if shelf.order.len() > 2 * shelf.collections.len() + 64 {
            let collections = &shelf.collections;
            shelf.order.retain(|(key, turn)| collections.get(key).is_some_and(|found| found.turn == *turn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(store: &MemoryStore, key: &str, amount: i64, now: u64) {
        store.change(LastingCollection::Ip, key.as_bytes(), b"n", StoreChange::Add(amount), now);
    }

    #[test]
    fn a_variable_is_added_to_and_expires() {
        let store = MemoryStore::new(1 << 20, 100);
        add(&store, "a", 2, 0);
        add(&store, "a", 3, 0);
        assert_eq!(store.get(LastingCollection::Ip, b"a", b"n", 0).as_deref(), Some(&b"5"[..]));
        assert_eq!(store.get(LastingCollection::Session, b"a", b"n", 0), None);
        store.change(LastingCollection::Ip, b"a", b"n", StoreChange::ExpireIn(10), 0);
        assert_eq!(store.get(LastingCollection::Ip, b"a", b"n", 9_999).as_deref(), Some(&b"5"[..]));
        assert_eq!(store.get(LastingCollection::Ip, b"a", b"n", 10_000), None);
    }

    #[test]
    fn a_collection_is_forgotten_after_the_timeout() {
        let store = MemoryStore::new(1 << 20, 100);
        add(&store, "a", 1, 0);
        assert_eq!(store.list(LastingCollection::Ip, b"a", 99_999).len(), 1);
        assert_eq!(store.list(LastingCollection::Ip, b"a", 100_000).len(), 0);
    }

    #[test]
    fn a_full_store_forgets_the_oldest_collection() {
        let store = MemoryStore::new(10_000, 100);
        for n in 0..1000 {
            add(&store, &format!("client {n}"), 1, n);
        }
        assert_eq!(store.get(LastingCollection::Ip, b"client 0", b"n", 1000), None);
        assert_eq!(store.get(LastingCollection::Ip, b"client 999", b"n", 1000).as_deref(), Some(&b"1"[..]));
        let shelf = store.lock();
        assert!(shelf.bytes <= 10_000, "{}", shelf.bytes);
        assert!(shelf.collections.len() < 40 && shelf.order.len() < 200);
    }

    #[test]
    fn removal_returns_the_bytes() {
        let store = MemoryStore::new(1 << 20, 100);
        add(&store, "a", 1, 0);
        let before = store.lock().bytes;
        store.change(LastingCollection::Ip, b"a", b"m", StoreChange::Set(vec![b'x'; 500]), 0);
        store.change(LastingCollection::Ip, b"a", b"m", StoreChange::ExpireIn(5), 0);
        store.change(LastingCollection::Ip, b"a", b"m", StoreChange::Remove, 0);
        assert_eq!(store.lock().bytes, before);
    }
}
