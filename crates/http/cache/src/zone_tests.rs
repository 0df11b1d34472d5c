//! Tests of the index as requests and the manager use it.

use super::*;
use crate::manager;
use crate::purge::Fetch;
use crate::store::{self, Content};
use crate::{EntryDraft, Meta};
use std::fs;

const NOW: i64 = 1_000_000;
const PACE: Pace = Pace { files: 100, threshold_ms: 10_000, sleep_ms: 1 };

fn zone(name: &str, bytes: u64) -> Arc<Zone> {
    let root = std::env::temp_dir().join(format!("tidegate-zone-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let zone = Zone::new(name, CacheRoot { root, levels: vec![1] }, bytes);
    zone.cold.store(false, Ordering::Relaxed);
    zone.set_memory(16 << 20, 64);
    Arc::new(zone)
}

fn limits() -> Limits {
    Limits { inactive_sec: 600, max_size: u64::MAX, min_free: 0, manager: PACE, loader: PACE, purger: None }
}

fn put(zone: &Arc<Zone>, key: &str, body: &[u8], now: i64) -> Hash {
    let hash = Hash::of(key.as_bytes());
    let (ticket, _) = zone.enter(hash, 1, now);
    let path = zone.place.path(&hash);
    let (file, temp) = store::create_beside(&path).expect("a file");
    let meta = Meta { status: 200, valid_sec: now + 60, last_modified: -1, stored_ms: 5, ..Meta::default() };
    let head = meta.encode(key.as_bytes(), b"HTTP/1.1 200 OK\r\n\r\n", body.len() as u64);
    let mut draft = EntryDraft::new(file, temp, head.len(), 4096);
    draft.write(body).expect("written");
    let placed = draft.place(&head, &path).expect("placed");
    ticket.stored(placed.disk_size, None);
    hash
}

fn clean(zone: &Zone) {
    let _ = fs::remove_dir_all(zone.root());
}

#[test]
fn the_oldest_goes_first_and_its_file_with_it() {
    let zone = zone("oldest", 1 << 20);
    let hashes: Vec<Hash> = (0..40).map(|n| put(&zone, &format!("k{n}"), b"body", NOW + n)).collect();
    assert_eq!(zone.count.load(Ordering::Relaxed), 40);
    drop(zone.enter(hashes[0], 1, NOW + 100));
    for hash in &hashes[1..20] {
        assert!(matches!(zone.evict_oldest(), EvictOutcome::One(None)));
        assert!(!zone.place.path(hash).exists());
    }
    assert!(zone.place.path(&hashes[0]).exists() && zone.place.path(&hashes[20]).exists());
    let (ticket, _) = zone.enter(hashes[20], 1, NOW);
    assert!(matches!(zone.evict_oldest(), EvictOutcome::One(None)));
    assert!(zone.place.path(&hashes[20]).exists() && !zone.place.path(&hashes[21]).exists());
    drop(ticket);
    clean(&zone);
}

#[test]
fn the_manager_keeps_within_its_limits() {
    let zone = zone("limits", 1 << 20);
    base::clock::update();
    let now = base::clock::unix_seconds();
    for n in 0..10 {
        put(&zone, &format!("old{n}"), b"body", now - 1000);
    }
    for n in 0..10 {
        put(&zone, &format!("new{n}"), b"body", now);
    }
    let mut told = Vec::new();
    let told = Mutex::new(&mut told);
    let say = |_: observe::Severity, text: &str| told.lock().expect("no panic").push(text.to_string());
    manager::manage_zone(&zone, &limits(), &say);
    assert_eq!(zone.count.load(Ordering::Relaxed), 10, "what was not used for so long is gone");
    let each = zone.size.load(Ordering::Relaxed) / 10;
    manager::manage_zone(&zone, &Limits { max_size: 4 * each, ..limits() }, &say);
    assert!(zone.size.load(Ordering::Relaxed) < 4 * each && zone.count.load(Ordering::Relaxed) == 3);
    manager::manage_zone(&zone, &Limits { max_size: 0, manager: Pace { files: 1, ..PACE }, ..limits() }, &say);
    assert_eq!(zone.count.load(Ordering::Relaxed), 2);
    manager::manage_zone(&zone, &Limits { min_free: u64::MAX, ..limits() }, &say);
    assert_eq!(zone.count.load(Ordering::Relaxed), 0);
    assert_eq!(zone.size.load(Ordering::Relaxed), 0);
    // A missing file must not stop the manager.
    let hash = put(&zone, "gone", b"body", now);
    fs::remove_file(zone.place.path(&hash)).expect("removed");
    manager::manage_zone(&zone, &Limits { max_size: 0, ..limits() }, &say);
    assert_eq!(zone.count.load(Ordering::Relaxed), 0);
    clean(&zone);
}

#[test]
fn a_full_zone_makes_room() {
    let zone = zone("full", 3 * 4096);
    let capacity = zone.capacity as i64;
    for n in 0..3 * capacity {
        put(&zone, &format!("k{n}"), b"body", NOW + n);
        assert!(zone.count.load(Ordering::Relaxed) <= zone.capacity);
    }
    assert!(zone.watermark.load(Ordering::Relaxed) < zone.capacity);
    let held: Vec<Ticket> = (0..capacity).map(|n| zone.enter(Hash::of(&n.to_le_bytes()), 1, NOW).0).collect();
    assert_eq!(zone.enter(Hash::of(b"one more"), 1, NOW).1, EntryState::Full);
    drop(held);
    assert_eq!(zone.enter(Hash::of(b"one more"), 1, NOW).1, EntryState::Wanted);
    clean(&zone);
}

#[test]
fn uses_are_counted_before_anything_is_stored() {
    let zone = zone("uses", 1 << 20);
    let hash = Hash::of(b"k");
    let look = || zone.enter(hash, 3, NOW).1;
    assert_eq!([look(), look(), look()], [EntryState::Scarce, EntryState::Scarce, EntryState::Wanted]);
    clean(&zone);
}

#[test]
fn errors_are_remembered_for_their_time() {
    let zone = zone("errors", 1 << 20);
    let hash = Hash::of(b"k");
    let (mut ticket, seen) = zone.enter(hash, 1, NOW);
    assert_eq!(seen, EntryState::Wanted);
    ticket.failed(502, NOW + 10);
    drop(ticket);
    assert_eq!(zone.enter(hash, 1, NOW + 10).1, EntryState::Error(502));
    assert_eq!(zone.enter(hash, 1, NOW + 11).1, EntryState::Wanted);
    assert_eq!(zone.count.load(Ordering::Relaxed), 0, "what came to nothing is forgotten");
    clean(&zone);
}

#[test]
fn one_fetches_and_the_others_wait() {
    let zone = zone("lock", 1 << 20);
    let hash = Hash::of(b"k");
    let (mut first, _) = zone.enter(hash, 1, NOW);
    let (mut second, _) = zone.enter(hash, 1, NOW);
    assert!(matches!(first.lock(1000, 5000), Lock::Mine));
    assert!(matches!(second.lock(1000, 5000), Lock::Theirs(_, 6000)));
    // On a timeout the next request fetches; the first one's end must not release that right.
    assert!(matches!(second.lock(6000, 5000), Lock::Mine));
    drop(first);
    let (mut third, _) = zone.enter(hash, 1, NOW);
    assert!(matches!(third.lock(6500, 5000), Lock::Theirs(_, 11_000)));
    drop(second);
    assert!(matches!(third.lock(6500, 5000), Lock::Mine));
    drop(third);
    let hash = put(&zone, "stale", b"body", NOW);
    let (mut first, seen) = zone.enter(hash, 1, NOW);
    let (mut second, _) = zone.enter(hash, 1, NOW);
    assert_eq!((seen, first.renew(), second.renew()), (EntryState::Exists, true, false));
    drop(first);
    assert!(second.renew());
    clean(&zone);
}

#[test]
fn entries_purged_during_a_fetch_are_not_stored() {
    let zone = zone("purged", 1 << 20);
    let hash = put(&zone, "k", b"old", NOW);
    let (ticket, _) = zone.enter(hash, 1, NOW);
    assert!(zone.remove(&hash));
    let path = zone.place.path(&hash);
    fs::write(&path, "what the fetch brings").expect("written");
    ticket.stored(4096, None);
    assert!(!path.exists() && zone.count.load(Ordering::Relaxed) == 0 && zone.size.load(Ordering::Relaxed) == 0);
    put(&zone, "k", b"new", NOW);
    assert_eq!(zone.enter(hash, 1, NOW).1, EntryState::Exists);
    let (ticket, _) = zone.enter(hash, 1, NOW);
    assert!(zone.discard(&hash));
    ticket.stored(4096, None);
    assert_eq!(zone.enter(hash, 1, NOW).1, EntryState::Exists);
    clean(&zone);
}

#[test]
fn a_purge_is_listed_until_the_fetches_that_began_before_it_end() {
    let zone = zone("fetches", 1 << 20);
    let limits = Limits { purger: Some(PACE), ..limits() };
    let pass = |purger: &mut manager::Purger| purger.work(&zone, &limits, &|_, text| panic!("{text}"));
    let mut purger = manager::Purger::default();
    assert_eq!(pass(&mut purger), None, "nothing to do");

    let (before, key) = (Fetch::new(&zone), Hash::of(b"k1"));
    put(&zone, "k2", b"body", NOW);
    zone.purges.add(b"k", false, 10).expect("noted");
    let after = Fetch::new(&zone);
    assert!(pass(&mut purger).is_some() && zone.purges.covers(b"k1", 5));
    // The response of the older fetch arrives: requests and the purger treat it as purged.
    assert_eq!(put(&zone, "k1", b"body", NOW), key);
    drop(before);
    assert!(pass(&mut purger).is_none() && zone.purges.is_empty());
    assert!(!zone.place.path(&key).exists() && !zone.place.path(&Hash::of(b"k2")).exists());
    drop(after);
    clean(&zone);
}

#[test]
fn the_purger_spares_the_successor_of_a_purged_entry() {
    let zone = zone("successor", 1 << 20);
    let limits = Limits { purger: Some(PACE), ..limits() };
    let pass = |purger: &mut manager::Purger| purger.work(&zone, &limits, &|_, text| panic!("{text}"));
    let mut purger = manager::Purger::default();
    let hash = put(&zone, "k", b"old", NOW);
    zone.purges.add(b"k", false, 10).expect("noted");
    let (ticket, _) = zone.enter(hash, 1, NOW);
    assert!(pass(&mut purger).is_some() && !zone.purges.is_empty(), "its fetch is under way");
    let path = zone.place.path(&hash);
    ticket.stored(4096, None);
    assert!(pass(&mut purger).is_none() && zone.purges.is_empty() && !path.exists());
    clean(&zone);
}

#[test]
fn memory_is_bounded_and_follows_the_files() {
    let zone = zone("memory", 1 << 20);
    zone.set_memory(16 * 100_000, 64);
    for n in 0..500 {
        let key = format!("k{n}");
        let hash = put(&zone, &key, &[b'x'; 10_000], NOW);
        let stored = store::open_entry(&zone.place.path(&hash), &hash, Some(key.as_bytes())).expect("stored");
        assert!(matches!(&stored.content, Content::Memory(body) if body.len() == 10_000));
        zone.keep_hot(Arc::new(stored));
    }
    assert!(zone.memory() <= 16 * 100_000 && zone.memory() > 8 * 100_000);
    let hash = Hash::of(b"k499");
    let hot = zone.hot(&hash, NOW).expect("the last one is hot");
    fs::remove_file(zone.place.path(&hash)).expect("removed");
    assert!(!zone.recheck(&hot, NOW) && zone.hot(&hash, NOW).is_none(), "a file that is gone is noticed");
    let hash = Hash::of(b"k498");
    assert!(zone.hot(&hash, NOW).is_some() && zone.remove(&hash) && zone.hot(&hash, NOW).is_none());
    zone.purges.add(b"k49", false, 5).expect("noted");
    zone.cool_purged();
    assert!(zone.hot(&Hash::of(b"k497"), NOW).is_none() && zone.hot(&Hash::of(b"k489"), NOW).is_some());
    zone.set_memory(0, 0);
    assert_eq!(zone.memory(), 0);
    clean(&zone);
}

#[test]
fn files_that_are_no_entries_are_told_from_those_that_are() {
    let zone = zone("foreign", 1 << 20);
    let hash = put(&zone, "k", b"body", NOW);
    let path = zone.place.path(&hash);
    let good = fs::read(&path).expect("a file");
    let open = || store::open_entry(&path, &hash, Some(b"k"));
    assert!(open().is_ok());
    assert!(matches!(
        store::open_entry(&path, &hash, Some(b"other")),
        Err(store::EntryError::Wrong("has md5 collision"))
    ));
    for cut in 0..good.len() {
        fs::write(&path, &good[..cut]).expect("written");
        assert!(open().is_err(), "{cut} bytes of it");
    }
    fs::write(&path, [&good[..], b"x"].concat()).expect("written");
    assert!(matches!(open(), Err(store::EntryError::Wrong("is truncated"))), "longer than it says");
    fs::write(&path, b"\x05\0\0\0\0\0\0\0 nginx's own files are of another kind".repeat(10)).expect("written");
    assert!(matches!(open(), Err(store::EntryError::Wrong("version mismatch"))));
    fs::remove_file(&path).expect("removed");
    assert!(matches!(open(), Err(store::EntryError::Missing)));
    fs::create_dir(&path).expect("a folder");
    assert!(matches!(open(), Err(store::EntryError::Wrong("is not a file"))));
    clean(&zone);
}

#[test]
fn the_loader_finds_what_is_there() {
    let before = zone("load", 1 << 20);
    base::clock::update();
    let hashes: Vec<Hash> = (0..20).map(|n| put(&before, &format!("k{n}"), b"body", NOW)).collect();
    let root = before.root().to_path_buf();
    fs::write(root.join("README"), "not ours").expect("written");
    fs::write(before.place.path(&hashes[0]).with_extension("0000000001"), "unfinished").expect("written");
    fs::write(before.place.path(&hashes[1]), "short").expect("written");
    let misplaced = root.join(hashes[2].hex());
    fs::write(&misplaced, [b'x'; 500]).expect("written");
    let zone = Zone::new("again", before.place.clone(), 1 << 20);
    let mut told = Vec::new();
    let told = Mutex::new(&mut told);
    crate::loader::load_zone(&zone, &limits(), &|_, text| told.lock().expect("no panic").push(text.to_string()));
    assert_eq!(zone.count.load(Ordering::Relaxed), 19);
    assert!(!zone.cold.load(Ordering::Relaxed) && zone.size.load(Ordering::Relaxed) > 0);
    assert!(root.join("README").exists() && misplaced.exists(), "what is not ours is left alone");
    let told = told.into_inner().expect("no panic").join("\n");
    assert!(told.contains("README\" is no cache file") && told.contains("is too small"), "{told}");
    clean(&zone);
}

#[test]
fn a_head_is_renewed_in_place_unless_the_file_is_another() {
    let zone = zone("renew", 1 << 20);
    let hash = put(&zone, "k", b"body", NOW);
    let path = zone.place.path(&hash);
    let stored = store::open_entry(&path, &hash, Some(b"k")).expect("stored");
    let meta = Meta { valid_sec: NOW + 1000, ..stored.meta.clone() };
    assert!(store::refresh_entry(&path, &stored, &meta).expect("written"));
    assert_eq!(store::open_entry(&path, &hash, Some(b"k")).expect("stored").meta, meta);
    let head = b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n";
    store::rewrite_entry(&path, &stored, &meta, head).expect("written");
    let again = store::open_entry(&path, &hash, Some(b"k")).expect("stored");
    assert_eq!((&again.head[..], again.body_len), (&head[..], 4));
    assert!(!store::refresh_entry(&path, &stored, &meta).expect("looked at"), "another file by now");
    clean(&zone);
}

#[test]
fn a_draft_that_is_dropped_leaves_nothing() {
    let zone = zone("draft", 1 << 20);
    let path = zone.place.path(&Hash::of(b"k"));
    let (file, temp) = store::create_beside(&path).expect("a file");
    let mut draft = EntryDraft::new(file, temp.clone(), 10, 16);
    draft.write(&[b'x'; 100]).expect("written");
    assert!(temp.exists() && draft.flushed() == 100);
    drop(draft);
    assert!(!temp.exists() && !path.exists());
    clean(&zone);
}

#[test]
fn the_loader_rests_after_some_files() {
    let before = zone("pace", 1 << 20);
    for n in 0..20 {
        put(&before, &format!("k{n}"), b"body", NOW);
    }
    let paces = [
        (Pace { files: 3, threshold_ms: u64::MAX, sleep_ms: 3_600_000 }, 3),
        (Pace { files: u64::MAX, threshold_ms: 0, sleep_ms: 3_600_000 }, 1),
    ];
    for (loader, wanted) in paces {
        let zone = Arc::new(Zone::new("again", before.place.clone(), 1 << 20));
        let (at_work, limits) = (zone.clone(), Limits { loader, ..limits() });
        // Pauses for an hour, which the process does not await.
        std::thread::spawn(move || crate::loader::load_zone(&at_work, &limits, &|_, _| {}));
        while zone.count.load(Ordering::Relaxed) < wanted {
            std::thread::yield_now();
        }
        assert!(zone.count.load(Ordering::Relaxed) == wanted && zone.cold.load(Ordering::Relaxed), "{loader:?}");
    }
    clean(&before);
}

#[test]
fn long_bodies_keep_their_files_open_within_bounds() {
    let zone = zone("open", 1 << 20);
    zone.set_memory(16 << 20, 16);
    let length = store::HOT_BODY_MAX as usize + 1;
    // Keys of one shard share a file.
    let keys: Vec<String> =
        (0..).map(|n| format!("k{n}")).filter(|key| Hash::of(key.as_bytes()).0[15] % 16 == 7).take(3).collect();
    let keep = |key: &str, length: usize| {
        let hash = put(&zone, key, &vec![b'x'; length], NOW);
        let stored = store::open_entry(&zone.place.path(&hash), &hash, Some(key.as_bytes())).expect("stored");
        zone.keep_hot(Arc::new(stored));
        hash
    };
    let small = keep(&keys[0], 10);
    let (first, second) = (keep(&keys[1], length), keep(&keys[2], length));
    assert!(zone.hot(&first, NOW).is_none(), "the older one has made room");
    let hot = zone.hot(&second, NOW).expect("hot");
    assert!(matches!(hot.content, Content::File(_)) && zone.hot(&small, NOW).is_some(), "memory is another matter");
    assert!(zone.remove(&second) && zone.hot(&second, NOW).is_none());
    keep(&keys[1], length);
    assert!(zone.hot(&first, NOW).is_some(), "there is room again");
    zone.set_memory(16 << 20, 0);
    assert!(zone.hot(&first, NOW).is_none() && zone.hot(&small, NOW).is_some());
    keep(&keys[1], length);
    assert!(zone.hot(&first, NOW).is_none());
    clean(&zone);
}

#[test]
fn a_long_file_loses_its_name_first() {
    let zone = zone("long", 1 << 20);
    let hash = put(&zone, "k", &vec![b'x'; 2 << 20], NOW);
    let path = zone.place.path(&hash);
    let folder = path.parent().expect("a folder").to_path_buf();
    let count = || fs::read_dir(&folder).expect("the folder").count();
    let left = store::unlink_file(&path, 2 << 20).expect("renamed");
    assert!(!path.exists() && count() == 1);
    drop(left);
    assert_eq!(count(), 0);
    let before = zone.size.load(Ordering::Relaxed);
    assert!(zone.remove(&hash) && before > zone.size.load(Ordering::Relaxed));
    for _ in 0..2 {
        let hash = put(&zone, "k", &vec![b'x'; 2 << 20], NOW);
        assert!(
            zone.remove(&hash) && count() == 0 && zone.size.load(Ordering::Relaxed) == 0,
            "what is purged does not count"
        );
        put(&zone, "k", &vec![b'x'; 2 << 20], NOW);
        assert!(matches!(zone.evict_oldest(), EvictOutcome::One(None)) && count() == 0);
    }
    assert!(store::unlink_file(&path, 2 << 20).is_err() && store::unlink_file(&path, 0).is_err());
    clean(&zone);
}
