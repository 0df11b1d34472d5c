//! A zone: the index shared by all threads, and the rules for reading, fetching and writing entries (nginx:
//! `ngx_http_file_cache.c`). Times are arguments.

use crate::index::{Oldest, Shard};
use crate::key::Hash;
use crate::purge::{Purges, SweepResult};
use crate::store::{self, Content, Leftover, StoredEntry};
use crate::variants::Variants;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

const SHARDS: usize = 16;
/// Memory per key and per zone in nginx, so that capacities are equal.
const NODE_BYTES: u64 = 128;
const BOOKS_BYTES: u64 = 2 * 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRoot {
    pub root: PathBuf,
    pub levels: Vec<u8>,
}

impl CacheRoot {
    pub fn path(&self, hash: &Hash) -> PathBuf {
        hash.path(&self.root, &self.levels)
    }
}

/// Limits that a reload may change without a new index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub inactive_sec: i64,
    pub max_size: u64,
    /// Bytes of the file system to keep free.
    pub min_free: u64,
    pub manager: Pace,
    pub loader: Pace,
    pub purger: Option<Pace>,
}

/// Batch of background work: files, milliseconds of work, milliseconds of pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub files: u64,
    pub threshold_ms: u64,
    pub sleep_ms: u64,
}

#[derive(Debug)]
pub struct Zone {
    pub name: String,
    pub place: CacheRoot,
    shards: Box<[Mutex<Shard>]>,
    pub capacity: usize,
    pub count: AtomicUsize,
    /// Number of keys above which the manager evicts (nginx: `sh->watermark`).
    pub watermark: AtomicUsize,
    pub size: AtomicU64,
    /// The loader has not finished: unknown keys may have files.
    pub cold: AtomicBool,
    pub loading: AtomicBool,
    inactive_sec: AtomicI64,
    limits: Mutex<Option<Limits>>,
    turn: AtomicUsize,
    /// Memory bytes for hot entries, divided evenly among the shards.
    hot_max: AtomicU64,
    /// Open files of hot entries with long bodies, divided likewise.
    files_max: AtomicU64,
    pub purges: Purges,
    pub variants: Variants,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    Error(u16),
    Exists,
    /// Absent, and may be stored.
    Wanted,
    Scarce,
    Full,
}

#[derive(Debug)]
pub enum Lock {
    Mine,
    /// Another request fetches: wait for the notification, or until this time in milliseconds.
    Theirs(Arc<Notify>, u64),
}

impl Zone {
    pub fn new(name: &str, place: CacheRoot, bytes: u64) -> Zone {
        let capacity = (bytes.saturating_sub(BOOKS_BYTES) / NODE_BYTES).max(16) as usize;
        Zone {
            name: name.into(),
            purges: Purges::new(&place.root),
            variants: Variants::new(&place.root, capacity),
            place,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            capacity,
            count: AtomicUsize::new(0),
            watermark: AtomicUsize::new(usize::MAX),
            size: AtomicU64::new(0),
            cold: AtomicBool::new(true),
            loading: AtomicBool::new(false),
            inactive_sec: AtomicI64::new(600),
            limits: Mutex::new(None),
            turn: AtomicUsize::new(0),
            hot_max: AtomicU64::new(0),
            files_max: AtomicU64::new(0),
        }
    }
    pub fn set_limits(&self, limits: Limits) {
        self.inactive_sec.store(limits.inactive_sec, Ordering::Relaxed);
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = Some(limits);
    }
    pub fn limits(&self) -> Option<Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    pub fn inactive_sec(&self) -> i64 {
        self.inactive_sec.load(Ordering::Relaxed)
    }
    pub fn set_memory(&self, bytes: u64, files: u64) {
        self.hot_max.store(bytes, Ordering::Relaxed);
        self.files_max.store(files, Ordering::Relaxed);
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            self.make_room(&mut shard, 0, 0);
        }
    }
    pub fn memory(&self) -> u64 {
        self.shards.iter().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).hot_bytes).sum()
    }
    fn shard(&self, hash: &Hash) -> MutexGuard<'_, Shard> {
        let at = usize::from(hash.0[15]) % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts as a use.
    pub fn hot(&self, hash: &Hash, now: i64) -> Option<Arc<StoredEntry>> {
        let mut shard = self.shard(hash);
        let node = shard.touch(hash)?;
        let stored = node.hot.clone()?;
        node.uses = node.uses.saturating_add(1);
        node.expire = now + self.inactive_sec();
        Some(stored)
    }
    pub fn keep_hot(&self, stored: Arc<StoredEntry>) {
        let mut shard = self.shard(&stored.hash);
        if shard.get(&stored.hash).is_some_and(|node| node.exists && !node.purged) {
            self.promote(&mut shard, stored, true);
        }
    }
    /// `evict`: may evict others, which an entry requested only once does not.
    fn promote(&self, shard: &mut Shard, stored: Arc<StoredEntry>, evict: bool) {
        let (hash, cost) = (stored.hash, stored.cost());
        shard.demote(&hash);
        let share = self.hot_max.load(Ordering::Relaxed) / SHARDS as u64;
        let file = u64::from(matches!(stored.content, Content::File(_)));
        if file > self.files_max.load(Ordering::Relaxed) / SHARDS as u64 {
            return;
        }
        if cost <= share && (evict || shard.hot_bytes + cost <= share) && !self.purges.hit(&stored) {
            self.make_room(shard, cost, file);
            shard.promote(&hash, stored);
        }
    }
    fn make_room(&self, shard: &mut Shard, cost: u64, file: u64) {
        let share = self.hot_max.load(Ordering::Relaxed) / SHARDS as u64;
        let files = self.files_max.load(Ordering::Relaxed) / SHARDS as u64;
        while shard.hot_files + file > files {
            let Some(oldest) = shard.oldest_hot_file() else { break };
            shard.demote(&oldest);
        }
        while shard.hot_bytes + cost > share {
            let Some(oldest) = shard.oldest_hot() else { break };
            shard.demote(&oldest);
        }
    }
    pub fn demote(&self, hash: &Hash) {
        self.shard(hash).demote(hash);
    }
    pub fn cool_purged(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for hash in shard.keys(true) {
                if shard.get(&hash).and_then(|n| n.hot.as_ref()).is_some_and(|stored| self.purges.hit(stored)) {
                    shard.demote(&hash);
                }
            }
        }
    }

    pub fn enter(self: &Arc<Self>, hash: Hash, min_uses: u32, now: i64) -> (Ticket, EntryState) {
        let mut ticket = Ticket {
            zone: self.clone(),
            hash,
            min_uses,
            counted: false,
            updating: false,
            lock_until: 0,
            background: false,
            error: None,
        };
        let seen = ticket.look(now);
        (ticket, seen)
    }

    fn look(&self, hash: &Hash, min_uses: u32, first: bool, now: i64) -> (EntryState, bool) {
        let mut shard = self.shard(hash);
        let expire = now + self.inactive_sec();
        if let Some(node) = shard.touch(hash) {
            node.expire = expire;
            if first {
                node.uses = node.uses.saturating_add(1);
                node.count += 1;
            }
            if node.error != 0 {
                if node.error_until >= now {
                    return (EntryState::Error(node.error), true);
                }
                (node.error, node.error_until, node.exists) = (0, 0, false);
                let size = std::mem::take(&mut node.size);
                self.size.fetch_sub(size, Ordering::Relaxed);
                return (self.unknown(min_uses), true);
            }
            let seen = if node.exists {
                EntryState::Exists
            } else if node.uses >= min_uses {
                EntryState::Wanted
            } else {
                EntryState::Scarce
            };
            return (seen, true);
        }
        drop(shard);
        if !self.room_for_one() {
            return (EntryState::Full, false);
        }
        let mut shard = self.shard(hash);
        self.count.fetch_add(usize::from(shard.get(hash).is_none()), Ordering::Relaxed);
        let node = if shard.get(hash).is_some() { shard.touch(hash) } else { shard.insert(*hash) };
        if let Some(node) = node {
            node.expire = expire;
            node.uses = node.uses.saturating_add(1);
            node.count += 1;
        }
        (self.unknown(min_uses), true)
    }
    fn unknown(&self, min_uses: u32) -> EntryState {
        match (self.cold.load(Ordering::Relaxed), min_uses > 1) {
            // The loader may not have seen its file yet.
            (true, _) => EntryState::Exists,
            (false, true) => EntryState::Scarce,
            (false, false) => EntryState::Wanted,
        }
    }
    fn room_for_one(&self) -> bool {
        if self.count.load(Ordering::Relaxed) < self.capacity {
            return true;
        }
        let count = self.count.load(Ordering::Relaxed);
        self.watermark.store(count - count / 8, Ordering::Relaxed);
        (0..EVICT_TRIES_MAX).any(|_| matches!(self.evict_oldest(), EvictOutcome::One(_)))
            || self.count.load(Ordering::Relaxed) < self.capacity
    }

    pub fn evict_oldest(&self) -> EvictOutcome {
        self.evict(i64::MAX)
    }
    /// Evicts the entry whose `inactive` time ends first, unless it ends after `limit` (Unix seconds).
    pub fn evict(&self, limit: i64) -> EvictOutcome {
        // Times are in seconds: rotates the shards, for equal ones.
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let (mut oldest, mut busy) = (None, false);
        for n in 0..SHARDS {
            let at = first.wrapping_add(n) % SHARDS;
            let mut shard = self.shards[at].lock().unwrap_or_else(PoisonError::into_inner);
            match shard.oldest(BUSY_MAX) {
                Oldest::None => {}
                Oldest::Busy => busy = true,
                Oldest::Free(hash, expire) => {
                    if oldest.is_none_or(|(_, earliest)| expire < earliest) {
                        oldest = Some((hash, expire));
                    }
                }
            }
        }
        match oldest {
            None if busy => EvictOutcome::Busy,
            None => EvictOutcome::Empty,
            Some((_, expire)) if expire > limit => EvictOutcome::Later(expire),
            Some((hash, _)) => {
                let mut shard = self.shard(&hash);
                if shard.get(&hash).is_some_and(|node| node.count > 0) {
                    // A request has started to use the entry in the meantime.
                    return EvictOutcome::Busy;
                }
                let out = self.take_out(&mut shard, &hash);
                drop(shard);
                EvictOutcome::One(match out {
                    Some((path, Err(e))) => Some((path, e)),
                    // Drops a long file's remainder outside of the lock.
                    Some((_, Ok(_))) | None => None,
                })
            }
        }
    }
    /// Removes a node and unlinks its file under the lock, so that both disappear together.
    fn take_out(&self, shard: &mut Shard, hash: &Hash) -> Option<(PathBuf, std::io::Result<Leftover>)> {
        let node = shard.remove(hash)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.size.fetch_sub(node.size, Ordering::Relaxed);
        if !node.exists {
            return None;
        }
        let path = self.place.path(hash);
        let left = store::unlink_file(&path, node.size);
        Some((path, left))
    }
    /// Removes an entry under the lock if it is still `unwanted` and no request is fetching it.
    pub fn remove_if(&self, hash: &Hash, unwanted: impl FnOnce() -> bool) -> SweepResult {
        let mut shard = self.shard(hash);
        if shard.get(hash).is_some_and(|node| node.count > 0) {
            return SweepResult::Busy;
        }
        if !unwanted() {
            return SweepResult::Kept;
        }
        let left = match self.take_out(&mut shard, hash) {
            Some((_, left)) => left,
            // The index does not know the file yet.
            None => store::unlink_file(&self.place.path(hash), 0),
        };
        drop(shard);
        // Drops a long file's remainder outside of the lock.
        drop(left);
        SweepResult::Removed
    }
    /// Returns `false` for an absent entry. A fetch in progress will not be stored.
    pub fn remove(&self, hash: &Hash) -> bool {
        self.take_away(hash, true)
    }
    /// Removes an entry and its variants, whose keys are unknown here. `Ok(false)` if absent; fails when the purge of
    /// the variants cannot be recorded.
    pub fn purge_key(&self, main: &Hash, key: &[u8], now_ms: u64) -> std::io::Result<bool> {
        let removed = self.remove(main);
        if !self.variants.has(main) {
            return Ok(removed);
        }
        self.purges.add(key, true, now_ms)?;
        self.cool_purged();
        Ok(removed)
    }
    /// Removes an entry that is about to be fetched.
    pub fn discard(&self, hash: &Hash) -> bool {
        self.take_away(hash, false)
    }
    fn take_away(&self, hash: &Hash, purge: bool) -> bool {
        let mut shard = self.shard(hash);
        let path = self.place.path(hash);
        shard.demote(hash);
        let size = shard.get(hash).map_or(0, |node| std::mem::take(&mut node.size));
        self.size.fetch_sub(size, Ordering::Relaxed);
        let known = match shard.get(hash) {
            Some(node) if node.count > 0 => {
                (node.error, node.error_until) = (0, 0);
                node.purged |= purge;
                std::mem::replace(&mut node.exists, false)
            }
            Some(node) => {
                let existed = node.exists || node.error != 0;
                shard.remove(hash);
                self.count.fetch_sub(1, Ordering::Relaxed);
                existed
            }
            None => false,
        };
        let left = store::unlink_file(&path, size);
        drop(shard);
        known || left.is_ok()
    }
    /// Returns the key hashes of a shard, for the purger.
    pub fn keys(&self, shard: usize) -> Option<Vec<Hash>> {
        let shard = self.shards.get(shard)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner).keys(false))
    }
    /// Adds a file found by the loader. `false`: the zone is full.
    pub fn add(&self, hash: Hash, size: u64, now: i64) -> bool {
        let expire = now + self.inactive_sec();
        let mut shard = self.shard(&hash);
        if let Some(node) = shard.touch(&hash) {
            node.expire = expire;
            return true;
        }
        if self.count.load(Ordering::Relaxed) >= self.capacity {
            let count = self.count.load(Ordering::Relaxed);
            self.watermark.store(count - count / 8, Ordering::Relaxed);
            return false;
        }
        if let Some(node) = shard.insert(hash) {
            (node.uses, node.exists, node.size, node.expire) = (1, true, size, expire);
            self.size.fetch_add(size, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        true
    }
    /// Checks that an entry in memory is still the file's; otherwise forgets it.
    pub fn recheck(&self, stored: &StoredEntry, now: i64) -> bool {
        if stored.looked.swap(now, Ordering::Relaxed) == now {
            return true;
        }
        if stored.still_there(&self.place.path(&stored.hash)) {
            return true;
        }
        self.shard(&stored.hash).demote(&stored.hash);
        false
    }
    pub fn root(&self) -> &Path {
        &self.place.root
    }
}

/// Busy entries of a shard that an eviction passes over.
const BUSY_MAX: u32 = 20;
const EVICT_TRIES_MAX: u32 = 3;

#[derive(Debug)]
pub enum EvictOutcome {
    One(Option<(PathBuf, std::io::Error)>),
    Empty,
    /// The oldest entry may stay until this time.
    Later(i64),
    /// All candidates are busy.
    Busy,
}

#[derive(Debug)]
pub struct Ticket {
    zone: Arc<Zone>,
    pub hash: Hash,
    min_uses: u32,
    counted: bool,
    pub updating: bool,
    lock_until: u64,
    pub background: bool,
    /// Error to cache: status and end.
    error: Option<(u16, i64)>,
}

impl Ticket {
    pub fn zone(&self) -> &Arc<Zone> {
        &self.zone
    }
    /// Looks the key up; the first time counts as a use.
    pub fn look(&mut self, now: i64) -> EntryState {
        let (seen, counted) = self.zone.look(&self.hash, self.min_uses, !self.counted, now);
        self.counted |= counted;
        seen
    }
    /// Requests the right to fetch an absent entry (`proxy_cache_lock`).
    pub fn lock(&mut self, now_ms: u64, age_ms: u64) -> Lock {
        let mut shard = self.zone.shard(&self.hash);
        let Some(node) = shard.get(&self.hash) else { return Lock::Mine };
        if node.updating && node.lock_until > now_ms {
            let waiters = node.waiters.get_or_insert_with(Arc::default).clone();
            return Lock::Theirs(waiters, node.lock_until);
        }
        node.updating = true;
        node.lock_until = now_ms.saturating_add(age_ms);
        self.lock_until = node.lock_until;
        drop(shard);
        self.updating = true;
        Lock::Mine
    }
    /// Requests the right to renew a stale entry; `false` if another request has it.
    pub fn renew(&mut self) -> bool {
        let mut shard = self.zone.shard(&self.hash);
        let Some(node) = shard.get(&self.hash) else { return true };
        if node.updating {
            return self.updating;
        }
        node.updating = true;
        self.lock_until = node.lock_until;
        drop(shard);
        self.updating = true;
        true
    }
    /// Adds a file that the index did not know.
    pub fn found(&self, stored: &StoredEntry) {
        let mut shard = self.zone.shard(&self.hash);
        if let Some(node) = shard.get(&self.hash)
            && !node.exists
            && !node.purged
        {
            (node.exists, node.size) = (true, stored.disk_size);
            self.zone.size.fetch_add(stored.disk_size, Ordering::Relaxed);
        }
    }
    /// Records that the file is missing or unusable.
    pub fn lost(&self) {
        let mut shard = self.zone.shard(&self.hash);
        shard.demote(&self.hash);
        if let Some(node) = shard.get(&self.hash) {
            node.exists = false;
            let size = std::mem::take(&mut node.size);
            self.zone.size.fetch_sub(size, Ordering::Relaxed);
        }
    }
    /// Switches to a variant's key, or back.
    pub fn switch(&mut self, hash: Hash, now: i64) -> EntryState {
        self.leave();
        (self.hash, self.counted, self.updating, self.lock_until) = (hash, false, false, 0);
        self.look(now)
    }
    pub fn stored(mut self, disk_size: u64, hot: Option<Arc<StoredEntry>>) {
        let zone = self.zone.clone();
        let mut shard = zone.shard(&self.hash);
        if shard.get(&self.hash).is_some_and(|node| node.purged) {
            let _ = std::fs::remove_file(zone.place.path(&self.hash));
            drop(shard);
            return;
        }
        if let Some(node) = shard.get(&self.hash) {
            let before = std::mem::replace(&mut node.size, disk_size);
            zone.size.fetch_add(disk_size, Ordering::Relaxed);
            zone.size.fetch_sub(before, Ordering::Relaxed);
            (node.exists, node.error, node.error_until) = (true, 0, 0);
            (node.updating, node.lock_until) = (false, 0);
            node.count = node.count.saturating_sub(u32::from(self.counted));
            wake(&mut node.waiters);
        }
        shard.demote(&self.hash);
        if let Some(hot) = hot {
            zone.promote(&mut shard, hot, false);
        }
        (self.counted, self.updating) = (false, false);
    }
    pub fn failed(&mut self, status: u16, until: i64) {
        self.error = Some((status, until));
    }
    fn leave(&mut self) {
        if !self.counted && !self.updating {
            return;
        }
        let zone = self.zone.clone();
        let mut shard = zone.shard(&self.hash);
        let Some(node) = shard.get(&self.hash) else { return };
        node.count = node.count.saturating_sub(u32::from(self.counted));
        node.purged &= node.count > 0;
        if self.updating && node.lock_until == self.lock_until {
            node.updating = false;
            wake(&mut node.waiters);
        }
        if let Some((status, until)) = self.error.take() {
            (node.error, node.error_until) = (status, until);
        } else if !node.exists
            && node.error == 0
            && node.count == 0
            && self.min_uses == 1
            && shard.remove(&self.hash).is_some()
        {
            zone.count.fetch_sub(1, Ordering::Relaxed);
        }
        (self.counted, self.updating) = (false, false);
    }
}

fn wake(waiters: &mut Option<Arc<Notify>>) {
    if let Some(waiters) = waiters.take() {
        waiters.notify_waiters();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
#[path = "zone_tests.rs"]
mod tests;
