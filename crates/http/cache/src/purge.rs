//! Purging by wildcard and by tag (`tags.rs`): prefixes or tags, and times. Matching files are removed by the next request, the
//! purger, or inactivity. The lists are stored in the cache's directory, so that purges survive a restart.

use crate::entry::Meta;
use crate::key::Hash;
use crate::store::{self, EntryError, StoredEntry};
use crate::tags::{TagHash, TagPurges};
use crate::zone::Zone;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// File of the list; no entry can have this name.
pub const FILE: &str = ".purged";
/// Maximum number of wildcards; beyond, the oldest two merge into their common prefix.
const RECORDS_MAX: usize = 1000;

/// A wildcard, or a key with possible variants.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PurgeRecord {
    prefix: Box<[u8]>,
    /// Matches the whole key only.
    exact: bool,
    /// Matches entries stored before this time.
    before_ms: u64,
    number: u64,
}

impl PurgeRecord {
    /// Returns a purge of all that two purges mean, and of more: their common prefix.
    fn with(&self, other: &PurgeRecord) -> PurgeRecord {
        let common = self.prefix.iter().zip(&other.prefix).take_while(|(a, b)| a == b).count();
        PurgeRecord {
            prefix: self.prefix[..common].into(),
            exact: false,
            before_ms: self.before_ms.max(other.before_ms),
            number: self.number.max(other.number),
        }
    }
    fn means(&self, key: &[u8]) -> bool {
        if self.exact { *key == *self.prefix } else { key.starts_with(&self.prefix) }
    }
}

#[derive(Debug)]
struct PurgeLists {
    keys: Vec<PurgeRecord>,
    tags: TagPurges,
}

#[derive(Debug)]
pub struct Purges {
    /// A wildcard or a key is listed.
    any: AtomicBool,
    /// A tag is listed.
    any_tag: AtomicBool,
    /// Purges of tags, of which an entry in memory notes the last one that it was compared with; 0: none was ever listed.
    tag_count: AtomicU64,
    file: PathBuf,
    lists: Mutex<PurgeLists>,
    last_ms: AtomicU64,
    /// Latest time given to an entry: threads' clocks differ, and a purge must cover all entries requested before it.
    given_ms: AtomicU64,
    count: AtomicU64,
    /// Fetches in progress: the newest purge when they began, and their number.
    fetches: Mutex<BTreeMap<u64, usize>>,
}

/// Fetch in progress. Purges that are newer than its start stay listed until its response is stored or dropped.
#[derive(Debug)]
pub struct Fetch {
    zone: Arc<Zone>,
    began: u64,
}

impl Fetch {
    pub fn new(zone: &Arc<Zone>) -> Fetch {
        let mut fetches = zone.purges.fetches();
        // Under the lock: `settled` finds this fetch, or it begins after the purges that `settled` returns.
        let began = zone.purges.count.load(Ordering::Relaxed);
        *fetches.entry(began).or_default() += 1;
        drop(fetches);
        Fetch { zone: zone.clone(), began }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let mut fetches = self.zone.purges.fetches();
        if let Entry::Occupied(mut entry) = fetches.entry(self.began) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

impl Purges {
    /// Loads the purges that an earlier process has stored.
    pub fn new(root: &Path) -> Purges {
        let file = root.join(FILE);
        let mut records = Vec::new();
        for line in fs::read(&file).unwrap_or_default().split(|c| *c == b'\n') {
            let Some(space) = line.iter().position(|c| *c == b' ') else { continue };
            let time = std::str::from_utf8(&line[..space]).ok().and_then(|t| t.parse().ok());
            let (text, exact) = line[space + 1..].strip_suffix(b"*").map_or((&line[space + 1..], true), |t| (t, false));
            if let (Some(before_ms), Some(prefix)) = (time, unescape(text)) {
                records.push(PurgeRecord { prefix, exact, before_ms, number: 0 });
            }
        }
        let tags = TagPurges::load(root);
        let last = records.iter().map(|record| record.before_ms).max().unwrap_or(0).max(tags.newest_ms());
        Purges {
            any: AtomicBool::new(!records.is_empty()),
            any_tag: AtomicBool::new(!tags.is_empty()),
            tag_count: AtomicU64::new(u64::from(!tags.is_empty())),
            file,
            lists: Mutex::new(PurgeLists { keys: records, tags }),
            last_ms: AtomicU64::new(last),
            given_ms: AtomicU64::new(0),
            count: AtomicU64::new(0),
            fetches: Mutex::default(),
        }
    }
    /// Time for an entry that is requested now: later than all earlier purges, even if the clock steps back.
    pub fn stamp(&self, now_ms: u64) -> u64 {
        let given = now_ms.max(self.last_ms.load(Ordering::Relaxed).saturating_add(1));
        // At most one thread a millisecond writes the shared cache line.
        if self.given_ms.load(Ordering::Relaxed) < given {
            self.given_ms.fetch_max(given, Ordering::Relaxed);
        }
        given
    }
    pub fn hit(&self, stored: &StoredEntry) -> bool {
        self.hit_by_tag(stored) || self.covers(&stored.key, stored.meta.stored_ms)
    }
    /// Tells whether a purge of a tag means an entry. Keys and prefixes are not compared: [`Zone::cool_purged`] removes their
    /// entries from the memory. Each entry is compared once for a purge, later calls take no lock.
    pub fn hit_by_tag(&self, stored: &StoredEntry) -> bool {
        if stored.meta.tags.is_empty() || !self.any_tag.load(Ordering::Acquire) {
            return false;
        }
        let newest = self.tag_count.load(Ordering::Acquire);
        if stored.compared_tags.load(Ordering::Relaxed) == newest {
            return false;
        }
        let is_purged = self.lock().tags.cover(&stored.meta.tags, stored.meta.stored_ms);
        if !is_purged {
            stored.compared_tags.store(newest, Ordering::Relaxed);
        }
        is_purged
    }
    pub fn covers(&self, key: &[u8], stored_ms: u64) -> bool {
        self.any.load(Ordering::Relaxed)
            && self.lock().keys.iter().any(|record| stored_ms <= record.before_ms && record.means(key))
    }
    /// Tells whether an entry that was read from its file is purged.
    pub fn cover_entry(&self, key: &[u8], meta: &Meta) -> bool {
        self.covers(key, meta.stored_ms)
            || (self.any_tag.load(Ordering::Acquire) && self.lock().tags.cover(&meta.tags, meta.stored_ms))
    }
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed) && !self.any_tag.load(Ordering::Relaxed)
    }
    /// Number of purged tags that are listed.
    pub fn tags_listed(&self) -> usize {
        self.lock().tags.len()
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, PurgeLists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn fetches(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, usize>> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Purges a key, or all keys with a prefix. Fails when the list cannot be written: purged entries would return
    /// after a restart.
    pub fn add(&self, prefix: &[u8], exact: bool, now_ms: u64) -> io::Result<()> {
        let mut lists = self.lock();
        let (before_ms, number) = self.begin_purge(now_ms);
        let records = &mut lists.keys;
        let new = PurgeRecord { prefix: prefix.into(), exact, before_ms, number };
        records.retain(|known| !new.means(&known.prefix) || (exact && !known.exact));
        records.push(new);
        if records.len() > RECORDS_MAX {
            let (first, second) = (records.remove(0), records.remove(0));
            records.push(first.with(&second));
        }
        self.any.store(true, Ordering::Relaxed);
        self.save(records)
    }
    /// Returns time and number of a purge that is made now. Under the lock of the lists.
    fn begin_purge(&self, now_ms: u64) -> (u64, u64) {
        let before_ms = self.stamp(now_ms).max(self.given_ms.load(Ordering::Relaxed));
        self.last_ms.store(before_ms, Ordering::Relaxed);
        (before_ms, self.count.fetch_add(1, Ordering::Relaxed) + 1)
    }
    /// Purges all entries that have one of these tags. `now_ms`: milliseconds since 1970.
    ///
    /// # Errors
    /// As [`Purges::add`]; the purge is in force nevertheless.
    pub fn add_tags(&self, tags: &[TagHash], now_ms: u64) -> io::Result<()> {
        let mut lists = self.lock();
        let (before_ms, number) = self.begin_purge(now_ms);
        let added = lists.tags.add(tags, before_ms, number);
        self.announce_tags();
        added
    }
    /// Purges the entries with a tag that were stored until a time, in milliseconds since 1970: for a purge that another server
    /// has made.
    ///
    /// # Errors
    /// As [`Purges::add_tags`].
    pub fn add_tag_until(&self, tag: TagHash, before_ms: u64) -> io::Result<()> {
        let mut lists = self.lock();
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if lists.tags.know(tag, before_ms) {
            return Ok(());
        }
        let added = lists.tags.add(&[tag], before_ms, number);
        self.announce_tags();
        added
    }
    /// Lets entries in memory be compared again. Under the lock of the lists, which have the purge.
    fn announce_tags(&self) {
        self.any_tag.store(true, Ordering::Release);
        self.tag_count.fetch_add(1, Ordering::Release);
    }
    /// Purges entries that were stored until a time, in milliseconds since 1970: for a purge that another server has made.
    /// Later entries stay. Fails as [`Purges::add`].
    pub fn add_until(&self, prefix: &[u8], exact: bool, before_ms: u64) -> io::Result<()> {
        let mut lists = self.lock();
        let records = &mut lists.keys;
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let new = PurgeRecord { prefix: prefix.into(), exact, before_ms, number };
        let is_known =
            |known: &PurgeRecord| known.before_ms >= before_ms && known.means(prefix) && (!known.exact || exact);
        if records.iter().any(is_known) {
            return Ok(());
        }
        records.push(new);
        if records.len() > RECORDS_MAX {
            let first = records.remove(0);
            let second = records.remove(0);
            records.push(first.with(&second));
        }
        self.any.store(true, Ordering::Relaxed);
        self.save(records)
    }
    /// Purges since the start of the process.
    pub fn newest(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
    /// Number of the newest purge that no fetch in progress began before. A later one must stay listed: such a fetch
    /// may store an outdated response after the purger's pass.
    pub fn settled(&self) -> u64 {
        // Under the lock: numbered purges are in the lists.
        let _lists = self.lock();
        let newest = self.count.load(Ordering::Relaxed);
        self.fetches().keys().next().map_or(newest, |oldest| newest.min(*oldest))
    }
    /// Tells whether a purge up to this one is listed.
    pub fn any_until(&self, number: u64) -> bool {
        let lists = self.lock();
        lists.keys.iter().any(|record| record.number <= number) || lists.tags.any_until(number)
    }
    /// Forgets purges before a time of which no entry can be left.
    pub fn forget(&self, before_ms: u64) -> io::Result<()> {
        self.retain(|time, _| time > before_ms)
    }
    /// Forgets purges up to one, after every entry was checked. By number, since threads' clocks differ.
    pub fn forget_until(&self, number: u64) -> io::Result<()> {
        self.retain(|_, listed| listed > number)
    }
    /// Keeps the purges that a predicate over time and number wants.
    fn retain(&self, is_wanted: impl Fn(u64, u64) -> bool) -> io::Result<()> {
        let mut lists = self.lock();
        let retained = lists.tags.retain(&is_wanted);
        self.any_tag.store(!lists.tags.is_empty(), Ordering::Release);
        let records = &mut lists.keys;
        let count = records.len();
        records.retain(|record| is_wanted(record.before_ms, record.number));
        if records.len() == count {
            return retained;
        }
        self.any.store(!records.is_empty(), Ordering::Relaxed);
        self.save(records).and(retained)
    }
    fn save(&self, records: &[PurgeRecord]) -> io::Result<()> {
        if records.is_empty() {
            return match fs::remove_file(&self.file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            };
        }
        let mut text = Vec::new();
        for record in records {
            text.extend_from_slice(format!("{} ", record.before_ms).as_bytes());
            escape(&record.prefix, &mut text);
            text.extend_from_slice(if record.exact { b"\n" } else { b"*\n" });
        }
        if let Some(folder) = self.file.parent() {
            store::make_folders(folder)?;
        }
        let temp = self.file.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
        file.write_all(&text)?;
        fs::rename(&temp, &self.file)
    }
}

fn escape(text: &[u8], out: &mut Vec<u8>) {
    for c in text {
        match c {
            b'!'..=b'~' if !matches!(c, b'%' | b'*') => out.push(*c),
            c => out.extend_from_slice(format!("%{c:02X}").as_bytes()),
        }
    }
}

fn unescape(text: &[u8]) -> Option<Box<[u8]>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((c, after)) = rest.split_first() {
        if *c == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            out.push(*c);
            rest = after;
        }
    }
    Some(out.into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepResult {
    Kept,
    Removed,
    /// Purged, but a request is fetching its successor, which must not be removed in its place.
    Busy,
}

/// Removes an entry that was purged or is invalid.
pub fn sweep_entry(zone: &Zone, hash: &Hash) -> SweepResult {
    let path = zone.place.path(hash);
    let unwanted = || match store::key_and_meta(&path) {
        Ok((key, meta)) => zone.purges.cover_entry(&key, &meta),
        Err(EntryError::Io(_) | EntryError::Missing) => false,
        Err(EntryError::Wrong(_)) => true,
    };
    // Most entries stay: they are read without the lock first.
    if unwanted() { zone.remove_if(hash, unwanted) } else { SweepResult::Kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_outlive_the_process() {
        let root = std::env::temp_dir().join(format!("tidegate-purges-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let purges = Purges::new(&root);
        assert!(purges.is_empty() && !purges.covers(b"a", 0));
        purges.add(b"http://a/x* %\n", false, 100).expect("saved");
        purges.add(b"http://b/", false, 200).expect("saved");
        for purges in [purges, Purges::new(&root)] {
            assert!(purges.covers(b"http://a/x* %\nmore", 100) && !purges.covers(b"http://a/x* %\nmore", 101));
            assert!(purges.covers(b"http://b/", 150) && !purges.covers(b"http://c/", 50));
        }
        let purges = Purges::new(&root);
        let asked = purges.stamp(200);
        purges.add(b"http://e", true, 200).expect("saved");
        assert!(asked > 200 && purges.covers(b"http://e", asked), "of the same millisecond");
        let asked = purges.stamp(250);
        purges.add(b"http://e", true, 210).expect("saved");
        assert!(purges.covers(b"http://e", asked), "by a thread whose clock is ahead");
        let purges = Purges::new(&root);
        purges.forget(100).expect("saved");
        assert!(!purges.covers(b"http://a/x* %\nmore", 50) && purges.covers(b"http://b/y", 50));
        purges.add(b"http://d", true, 90).expect("saved");
        assert!(Purges::new(&root).covers(b"http://d", 90) && !Purges::new(&root).covers(b"http://d/", 90));
        purges.add(b"", false, 300).expect("saved");
        assert!(purges.covers(b"anything", 300));
        purges.forget(300).expect("saved");
        assert!(Purges::new(&root).is_empty());
        // A pass that began before a purge does not cover it, whatever the clocks say.
        purges.add(b"x", true, 500).expect("saved");
        let began = purges.settled();
        purges.add(b"y", true, 400).expect("saved");
        purges.forget_until(began).expect("saved");
        assert!(!purges.covers(b"x", 1) && purges.covers(b"y", 1));
        purges.forget_until(purges.settled()).expect("saved");
        for n in 0..RECORDS_MAX + 5 {
            purges.add(format!("k{n}").as_bytes(), true, n as u64).expect("saved");
        }
        assert!(
            purges.lock().keys.len() <= RECORDS_MAX && purges.covers(b"k0", 0),
            "bounded, and nothing is forgotten"
        );
        fs::remove_dir_all(&root).expect("clean up");
    }

    #[test]
    fn purges_of_other_servers_leave_what_was_stored_later() {
        let root = std::env::temp_dir().join(format!("tidegate-purges-until-{}", std::process::id()));
        let purges = Purges::new(&root);
        purges.add_until(b"http://a/", false, 1_000).expect("saved");
        purges.add_until(b"http://b", true, 2_000).expect("saved");
        let newest = purges.newest();
        for (key, stored_ms, is_purged) in [
            (&b"http://a/x"[..], 1_000, true),
            (b"http://a/x", 1_001, false),
            (b"http://b", 2_000, true),
            (b"http://b", 2_001, false),
            (b"http://b/x", 1, false),
        ] {
            assert_eq!(purges.covers(key, stored_ms), is_purged, "{}", String::from_utf8_lossy(key));
        }
        assert_eq!(purges.stamp(5), 5, "the local clock is left alone");
        // Told again after a loss of the connection.
        purges.add_until(b"http://b", true, 2_000).expect("saved");
        purges.add_until(b"http://a/x", true, 900).expect("saved");
        assert_eq!(purges.lock().keys.len(), 2);
        assert!(purges.newest() > newest);
        assert!(Purges::new(&root).covers(b"http://a/x", 1_000), "it outlives a restart");
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
