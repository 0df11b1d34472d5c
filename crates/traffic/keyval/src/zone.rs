//! A zone: pairs by key, the rules of matching, the limit of its memory, and expiry.

use crate::address::Network;
use crate::state_file;
use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Bytes of a zone that a pair takes besides its key and value: the pair, its place in a table and in the order of expiry.
pub const ENTRY_BYTES: u64 = 192;
/// Additional bytes of a pair in a zone of type `ip` or `prefix`.
const INDEX_BYTES: u64 = 64;
/// In bytes, of a key or a value.
pub const VALUE_BYTES_MAX: usize = 65_535;
/// Pairs of a table in a full zone of short pairs: a change copies so many references.
const TABLE_PAIRS: u64 = 32;
const TABLES_MAX: u64 = 1 << 16;

/// `type=`: the rule by which a search key matches the key of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyMatch {
    #[default]
    String,
    /// The search key is an address or a network within the pair's; the smallest such network wins.
    Ip,
    /// The pair's key is a prefix of the search key; the longest one wins.
    Prefix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A pair with this key exists; for [`KeyvalZone::fill`], any pair.
    Exists,
    Missing,
    Full,
    /// Key or value are longer than [`VALUE_BYTES_MAX`], or the pair is larger than the zone.
    TooLarge,
    /// The key is no address or network, in a zone of type `ip`.
    BadKey,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::Exists => "key already exists",
            Refusal::Missing => "key not found",
            Refusal::Full => "no memory in the zone",
            Refusal::TooLarge => "key or value is too large",
            Refusal::BadKey => "invalid key format",
        })
    }
}

impl std::error::Error for Refusal {}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyvalPair {
    pub key: Box<str>,
    pub value: Box<str>,
    /// Milliseconds since 1970 when the pair is removed.
    pub expires: Option<u64>,
}

impl KeyvalPair {
    pub fn new(key: &str, value: &str, expires: Option<u64>) -> KeyvalPair {
        KeyvalPair { key: key.into(), value: value.into(), expires }
    }
}

/// `None` keeps the present value.
#[derive(Clone, Copy, Debug, Default)]
pub struct PairChange<'a> {
    pub value: Option<&'a str>,
    /// Since 1970.
    pub expires: Option<u64>,
}

struct Entry {
    pair: KeyvalPair,
    /// A key of type `ip`, without regard to its spelling.
    network: Option<Box<[u8; 18]>>,
    /// Distinguishes pairs with equal times of expiry.
    number: u64,
}

impl Entry {
    /// Returns the identity of the key: its bytes, or those of its network.
    fn id(&self) -> &[u8] {
        match &self.network {
            Some(network) => &network[..],
            None => self.pair.key.as_bytes(),
        }
    }
    fn alive(&self, now: u64) -> bool {
        self.pair.expires.is_none_or(|at| now < at)
    }
}

/// Pairs sorted by hash.
type Slots = Vec<(u64, Arc<Entry>)>;

/// See the crate's documentation.
pub struct KeyvalZone {
    matching: KeyMatch,
    bytes_max: u64,
    hasher: RandomState,
    /// A power of two of tables, selected by the low bits of the hash.
    tables: Box<[ArcSwap<Slots>]>,
    /// Lengths of existing keys (`Prefix`), or families and prefix lengths of networks (`Ip`), longest first.
    classes: ArcSwap<Vec<u32>>,
    totals: Mutex<Totals>,
    changes: AtomicU64,
    changed: Notify,
    saved: Mutex<Option<SavedState>>,
}

/// The state file that has the zone's pairs, up to a number of changes.
struct SavedState {
    path: PathBuf,
    changes: u64,
}

/// Accounts of the pairs, for changes.
#[derive(Default)]
struct Totals {
    bytes: u64,
    pairs: usize,
    next_number: u64,
    by_class: BTreeMap<u32, u64>,
    expiring: BTreeMap<(u64, u64), Arc<Entry>>,
}

impl KeyvalZone {
    /// In bytes.
    pub fn new(bytes_max: u64, matching: KeyMatch) -> KeyvalZone {
        let tables = (bytes_max / ENTRY_BYTES / TABLE_PAIRS).clamp(1, TABLES_MAX).next_power_of_two();
        KeyvalZone {
            matching,
            bytes_max,
            hasher: RandomState::new(),
            tables: (0..tables).map(|_| ArcSwap::default()).collect(),
            classes: ArcSwap::default(),
            totals: Mutex::default(),
            changes: AtomicU64::new(0),
            changed: Notify::new(),
            saved: Mutex::default(),
        }
    }
    pub fn matching(&self) -> KeyMatch {
        self.matching
    }

    /// Finds the pair that matches a search key, and passes its value to `then`. Takes no lock.
    pub fn find<R>(&self, search: &[u8], now: u64, then: impl FnOnce(&str) -> R) -> Option<R> {
        match self.matching {
            KeyMatch::String => self.look_up(search, now, then),
            KeyMatch::Prefix => {
                let classes = self.classes.load();
                let mut prefixes = classes.iter().filter_map(|length| search.get(..*length as usize));
                let id = prefixes.find(|id| self.look_up(id, now, |_| ()).is_some())?;
                self.look_up(id, now, then)
            }
            KeyMatch::Ip => {
                let network = Network::parse(search)?;
                let classes = self.classes.load();
                let fits = |class: &&u32| (**class > 0xff) == network.v6 && **class as u8 <= network.length;
                let mut ids = classes.iter().filter(fits).map(|class| network.within(*class as u8).id());
                let id = ids.find(|id| self.look_up(id, now, |_| ()).is_some())?;
                self.look_up(&id, now, then)
            }
        }
    }

    fn table(&self, hash: u64) -> Option<&ArcSwap<Slots>> {
        self.tables.get(hash as usize & (self.tables.len() - 1))
    }

    fn look_up<R>(&self, id: &[u8], now: u64, then: impl FnOnce(&str) -> R) -> Option<R> {
        let hash = self.hasher.hash_one(id);
        let slots = self.table(hash)?.load();
        let (_, entry) = slots.get(place(&slots, hash, id).ok()?)?;
        entry.alive(now).then(|| then(&entry.pair.value))
    }

    pub fn get(&self, key: &str, now: u64) -> Option<KeyvalPair> {
        let network = self.network(key).ok()?;
        let id = network.as_ref().map_or(key.as_bytes(), |network| &network[..]);
        let hash = self.hasher.hash_one(id);
        let slots = self.table(hash)?.load();
        let (_, entry) = slots.get(place(&slots, hash, id).ok()?)?;
        entry.alive(now).then(|| entry.pair.clone())
    }

    /// Sorted by key. Changes made meanwhile may be among them or not.
    pub fn list(&self, now: u64) -> Vec<KeyvalPair> {
        let mut all = Vec::new();
        for table in &self.tables {
            all.extend(table.load().iter().filter(|(_, e)| e.alive(now)).map(|(_, entry)| entry.pair.clone()));
        }
        all.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// Adds a pair.
    ///
    /// # Errors
    /// [`Refusal::Exists`], `Full`, `TooLarge`, `BadKey`.
    pub fn add(&self, pair: KeyvalPair, now: u64) -> Result<(), Refusal> {
        let mut totals = self.totals();
        self.sweep_locked(&mut totals, now);
        self.insert(&mut totals, pair, now)?;
        self.note_change();
        Ok(())
    }

    /// Adds several pairs to an empty zone: all or none.
    ///
    /// # Errors
    /// As [`KeyvalZone::add`]; [`Refusal::Exists`] also if the zone has any pair.
    pub fn fill(&self, pairs: Vec<KeyvalPair>, now: u64) -> Result<(), Refusal> {
        let mut totals = self.totals();
        self.sweep_locked(&mut totals, now);
        if totals.pairs > 0 {
            return Err(Refusal::Exists);
        }
        for pair in pairs {
            if let Err(refusal) = self.insert(&mut totals, pair, now) {
                self.empty(&mut totals);
                return Err(refusal);
            }
        }
        self.note_change();
        Ok(())
    }

    /// Changes the value or the time of expiry of a pair.
    ///
    /// # Errors
    /// [`Refusal::Missing`], `Full`, `TooLarge`, `BadKey`.
    pub fn change(&self, key: &str, change: PairChange<'_>, now: u64) -> Result<(), Refusal> {
        let mut totals = self.totals();
        self.sweep_locked(&mut totals, now);
        let Some(old) = self.take_key(&mut totals, key)? else { return Err(Refusal::Missing) };
        let mut pair = old.pair.clone();
        if let Some(value) = change.value {
            pair.value = value.into();
        }
        pair.expires = change.expires.or(pair.expires);
        if let Err(refusal) = self.insert(&mut totals, pair, now) {
            // The old pair fits, as it did before.
            let _ = self.insert(&mut totals, old.pair.clone(), now);
            return Err(refusal);
        }
        self.note_change();
        Ok(())
    }

    /// Removes a pair.
    ///
    /// # Errors
    /// [`Refusal::Missing`], `BadKey`.
    pub fn remove(&self, key: &str, now: u64) -> Result<(), Refusal> {
        let mut totals = self.totals();
        self.sweep_locked(&mut totals, now);
        self.take_key(&mut totals, key)?.ok_or(Refusal::Missing)?;
        self.note_change();
        Ok(())
    }

    /// Sets a pair, whether there is one with its key or not.
    ///
    /// # Errors
    /// [`Refusal::Full`], `TooLarge`, `BadKey`; an old pair with the key is removed then.
    pub fn set(&self, pair: KeyvalPair, now: u64) -> Result<(), Refusal> {
        let mut totals = self.totals();
        self.sweep_locked(&mut totals, now);
        self.take_key(&mut totals, &pair.key)?;
        let result = self.insert(&mut totals, pair, now);
        self.note_change();
        result
    }

    pub fn clear(&self) {
        let mut totals = self.totals();
        self.empty(&mut totals);
        self.note_change();
    }

    /// Removes expired pairs. Returns the next time of expiry.
    pub fn sweep(&self, now: u64) -> Option<u64> {
        let mut totals = self.totals();
        if self.sweep_locked(&mut totals, now) {
            self.note_change();
        }
        totals.expiring.first_key_value().map(|((at, _), _)| *at)
    }

    /// Bytes in use and the number of pairs, expired ones included.
    pub fn usage(&self) -> (u64, usize) {
        let totals = self.totals();
        (totals.bytes, totals.pairs)
    }

    /// In bytes.
    pub fn size(&self) -> u64 {
        self.bytes_max
    }
    /// Grows with every change.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
    /// Waits for a change after `seen`, a number of [`KeyvalZone::changes`].
    pub async fn changed_since(&self, seen: u64) {
        loop {
            let changed = self.changed.notified();
            if self.changes() != seen {
                return;
            }
            changed.await;
        }
    }

    /// Reads the pairs of a state file, given as text, unless the zone has pairs or was read before.
    ///
    /// # Errors
    /// The pairs do not fit the zone.
    pub fn load<E: From<Refusal>>(
        &self,
        path: &Path,
        now: u64,
        read: impl FnOnce() -> Result<Vec<KeyvalPair>, E>,
    ) -> Result<(), E> {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        if saved.is_none() && self.usage().1 == 0 {
            self.fill(read()?, now)?;
            *saved = Some(SavedState { path: path.to_path_buf(), changes: self.changes() });
        }
        Ok(())
    }
    /// Tells whether the file has all changes up to this number.
    pub fn is_saved(&self, path: &Path, changes: u64) -> bool {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.as_ref().is_some_and(|saved| saved.path == path && saved.changes >= changes)
    }
    /// Writes all pairs to the file. Blocks; simultaneous calls take turns.
    ///
    /// # Errors
    /// See [`state_file::replace_file`].
    pub fn save(&self, path: &Path, now: u64) -> Result<(), (&'static str, std::io::Error)> {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        // Later changes may be in the list, too, and are written again.
        let changes = self.changes();
        state_file::replace_file(path, &state_file::format_state(&self.list(now)))?;
        *saved = Some(SavedState { path: path.to_path_buf(), changes });
        Ok(())
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }
    fn network(&self, key: &str) -> Result<Option<Box<[u8; 18]>>, Refusal> {
        match self.matching {
            KeyMatch::Ip => {
                let network = Network::parse(key.as_bytes()).ok_or(Refusal::BadKey)?;
                Ok(Some(Box::new(network.id())))
            }
            _ => Ok(None),
        }
    }
    fn class(&self, id: &[u8]) -> Option<u32> {
        match self.matching {
            KeyMatch::String => None,
            KeyMatch::Prefix => Some(id.len() as u32),
            KeyMatch::Ip => Some(u32::from(*id.first()?) << 8 | u32::from(*id.get(1)?)),
        }
    }
    fn cost(&self, pair: &KeyvalPair) -> u64 {
        let index = if self.matching == KeyMatch::String { 0 } else { INDEX_BYTES };
        let text = |text: &str| (text.len() as u64).next_multiple_of(16);
        ENTRY_BYTES + index + text(&pair.key) + text(&pair.value)
    }

    fn insert(&self, totals: &mut Totals, pair: KeyvalPair, now: u64) -> Result<(), Refusal> {
        let cost = self.cost(&pair);
        if pair.key.len() > VALUE_BYTES_MAX || pair.value.len() > VALUE_BYTES_MAX || cost > self.bytes_max {
            return Err(Refusal::TooLarge);
        }
        let entry = Entry { network: self.network(&pair.key)?, pair, number: totals.next_number };
        let (pair, id) = (&entry.pair, entry.id());
        let hash = self.hasher.hash_one(id);
        let table = self.table(hash).ok_or(Refusal::Full)?;
        let slots = table.load_full();
        let Err(at) = place(&slots, hash, id) else { return Err(Refusal::Exists) };
        if pair.expires.is_some_and(|at| at <= now) {
            return Ok(());
        }
        if totals.bytes + cost > self.bytes_max {
            return Err(Refusal::Full);
        }
        totals.next_number += 1;
        let entry = Arc::new(entry);
        totals.bytes += cost;
        totals.pairs += 1;
        if let Some(expires) = entry.pair.expires {
            totals.expiring.insert((expires, entry.number), entry.clone());
        }
        let mut copy = Vec::with_capacity(slots.len() + 1);
        copy.extend_from_slice(&slots);
        let class = self.class(entry.id());
        copy.insert(at, (hash, entry));
        table.store(Arc::new(copy));
        if let Some(class) = class {
            let count = totals.by_class.entry(class).or_default();
            *count += 1;
            if *count == 1 {
                self.publish_classes(totals);
            }
        }
        Ok(())
    }

    fn take_key(&self, totals: &mut Totals, key: &str) -> Result<Option<Arc<Entry>>, Refusal> {
        let network = self.network(key)?;
        Ok(self.take(totals, network.as_ref().map_or(key.as_bytes(), |network| &network[..])))
    }

    fn take(&self, totals: &mut Totals, id: &[u8]) -> Option<Arc<Entry>> {
        let hash = self.hasher.hash_one(id);
        let table = self.table(hash)?;
        let mut copy = Vec::clone(&table.load());
        let (_, entry) = copy.remove(place(&copy, hash, id).ok()?);
        table.store(Arc::new(copy));
        totals.bytes -= self.cost(&entry.pair);
        totals.pairs -= 1;
        if let Some(expires) = entry.pair.expires {
            totals.expiring.remove(&(expires, entry.number));
        }
        if let Some(class) = self.class(id)
            && let Some(count) = totals.by_class.get_mut(&class)
        {
            *count -= 1;
            if *count == 0 {
                totals.by_class.remove(&class);
                self.publish_classes(totals);
            }
        }
        Some(entry)
    }

    fn publish_classes(&self, totals: &Totals) {
        self.classes.store(Arc::new(totals.by_class.keys().rev().copied().collect()));
    }

    fn empty(&self, totals: &mut Totals) {
        for table in &self.tables {
            table.store(Arc::default());
        }
        *totals = Totals { next_number: totals.next_number, ..Totals::default() };
        self.publish_classes(totals);
    }

    /// Returns `true` if a pair was removed.
    fn sweep_locked(&self, totals: &mut Totals, now: u64) -> bool {
        let mut swept = false;
        while let Some(((at, _), entry)) = totals.expiring.first_key_value()
            && *at <= now
        {
            let entry = entry.clone();
            swept |= self.take(totals, entry.id()).is_some();
        }
        swept
    }
}

/// Finds the index of a key, or where to insert it.
fn place(slots: &Slots, hash: u64, id: &[u8]) -> Result<usize, usize> {
    let start = slots.partition_point(|(other, _)| *other < hash);
    let equal = slots.get(start..).unwrap_or_default().iter().take_while(|(other, _)| *other == hash);
    match equal.enumerate().find(|(_, (_, entry))| entry.id() == id) {
        Some((offset, _)) => Ok(start + offset),
        None => Err(start),
    }
}

impl std::fmt::Debug for KeyvalZone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, pairs) = self.usage();
        write!(f, "Zone({:?}, {pairs} pairs, {bytes} of {} bytes)", self.matching, self.bytes_max)
    }
}
