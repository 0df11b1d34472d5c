//! Tests of tags and their purges, with entries of a zone.

use super::*;
use crate::manager::{self, Purger};
use crate::zone::{Limits, Pace};
use crate::{CacheRoot, EntryDraft, Hash, Meta, Zone};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const NOW: i64 = 1_000_000;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let root = std::env::temp_dir().join(format!("tidegate-tags-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        Folder(root)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tag(n: usize) -> TagHash {
    TagHash::of(n.to_string().as_bytes())
}

fn only(n: usize) -> EntryTags {
    EntryTags::Listed([tag(n)].into())
}

#[test]
fn tags_are_separated_by_commas_and_spaces() {
    let words: Vec<&[u8]> = tag_words(b" a,b\tc ,, d e-f:1").collect();
    assert_eq!(words, [&b"a"[..], b"b", b"c", b"d", b"e-f:1"]);
    assert_eq!(EntryTags::of(["b a", "a,b", ""]), EntryTags::of(["a b"]));
    assert_ne!(EntryTags::of(["a"]), EntryTags::of(["A"]));
    assert!(EntryTags::of([" , "]).is_empty() && !EntryTags::TooMany.is_empty());
}

#[test]
fn more_tags_or_longer_ones_than_the_bounds_are_matched_by_every_purge() {
    let text = |count: usize| (0..count).map(|n| format!("{n},")).collect::<String>();
    assert!(matches!(EntryTags::of([text(TAGS_MAX)]), EntryTags::Listed(tags) if tags.len() == TAGS_MAX));
    assert_eq!(EntryTags::of([text(TAGS_MAX + 1)]), EntryTags::TooMany);
    assert!(matches!(EntryTags::of(["x".repeat(TAG_BYTES_MAX)]), EntryTags::Listed(_)));
    assert_eq!(EntryTags::of(["x".repeat(TAG_BYTES_MAX + 1)]), EntryTags::TooMany);

    let folder = Folder::new("bounds");
    let mut purges = TagPurges::load(&folder.0);
    assert!(!purges.cover(&EntryTags::TooMany, 0), "without a purge it stays");
    purges.add(&[tag(1)], 100, 1).expect("saved");
    assert!(purges.cover(&EntryTags::TooMany, 100) && !purges.cover(&EntryTags::TooMany, 101));
    assert!(!purges.cover(&EntryTags::default(), 0), "an entry without tags");
}

#[test]
fn a_purge_means_entries_with_its_tag_that_were_stored_before_also_after_a_restart() {
    let folder = Folder::new("restart");
    let mut purges = TagPurges::load(&folder.0);
    purges.add(&[tag(1), tag(2)], 100, 1).expect("saved");
    purges.add(&[tag(1)], 200, 2).expect("saved");
    purges.add(&[tag(1)], 150, 3).expect("saved");
    let check = |purges: &TagPurges| {
        assert!(purges.cover(&only(1), 200) && !purges.cover(&only(1), 201), "the latest time counts");
        assert!(purges.cover(&only(2), 100) && !purges.cover(&only(2), 101));
        assert!(!purges.cover(&only(3), 0));
        assert!(purges.cover(&EntryTags::of(["3 2"]), 100), "one of several tags");
        assert!(purges.know(tag(1), 200) && !purges.know(tag(1), 201) && !purges.know(tag(3), 0));
    };
    check(&purges);
    let mut again = TagPurges::load(&folder.0);
    check(&again);
    assert_eq!((again.len(), again.newest_ms()), (2, 200));

    // A line that was cut, and foreign ones.
    let mut text = fs::read(folder.0.join(FILE)).expect("the file");
    text.extend_from_slice(b"\nno line\n5 \xff\n300 00000000000000");
    fs::write(folder.0.join(FILE), text).expect("written");
    let mut cut = TagPurges::load(&folder.0);
    check(&cut);
    cut.add(&[tag(4)], 400, 4).expect("saved");
    assert!(TagPurges::load(&folder.0).cover(&only(4), 400), "not behind the line that was cut");

    again.retain(|before_ms, _| before_ms > 100).expect("saved");
    assert_eq!(again.len(), 1);
    again.retain(|_, number| number > 0).expect("saved");
    assert!(again.is_empty() && TagPurges::load(&folder.0).is_empty() && !folder.0.join(FILE).exists());
}

#[test]
fn purges_beyond_the_bound_become_one_of_all_entries_with_tags() {
    let folder = Folder::new("floor");
    let mut purges = TagPurges::load(&folder.0);
    for n in 0..=TAG_PURGES_MAX {
        purges.add(&[tag(n)], 1_000 + n as u64, n as u64 + 1).expect("saved");
    }
    for purges in [purges, TagPurges::load(&folder.0)] {
        assert_eq!(purges.len(), TAG_PURGES_MAX - TAG_PURGES_MAX / 8);
        let oldest = 1_000 + (TAG_PURGES_MAX / 8) as u64;
        assert!(purges.cover(&only(0), 1_000), "none is forgotten");
        assert!(purges.cover(&only(usize::MAX), oldest) && !purges.cover(&only(usize::MAX), oldest + 1));
        assert!(purges.cover(&only(TAG_PURGES_MAX), 1_000 + TAG_PURGES_MAX as u64));
        assert!(!purges.cover(&EntryTags::default(), 0));
        assert!(purges.any_until(TAG_PURGES_MAX as u64 + 1));
    }
    // The file is written anew before it has more than twice the lines.
    let mut purges = TagPurges::load(&folder.0);
    for n in 0..3 * TAG_PURGES_MAX {
        purges.add(&[tag(TAG_PURGES_MAX)], 100_000 + n as u64, 1).expect("saved");
    }
    let lines = fs::read(folder.0.join(FILE)).expect("the file").iter().filter(|byte| **byte == b'\n').count();
    assert!(lines <= 2 * TAG_PURGES_MAX, "{lines}");
}

fn put(zone: &Arc<Zone>, key: &str, tags: &str, stored_ms: u64) -> Hash {
    let hash = Hash::of(key.as_bytes());
    let (ticket, _) = zone.enter(hash, 1, NOW);
    let path = zone.place.path(&hash);
    let (file, temp) = store::create_beside(&path).expect("a file");
    let meta = Meta { status: 200, valid_sec: NOW + 60, stored_ms, tags: EntryTags::of([tags]), ..Meta::default() };
    let head = meta.encode(key.as_bytes(), b"HTTP/1.1 200 OK\r\n\r\n", 4);
    let mut draft = EntryDraft::new(file, temp, head.len(), 4096);
    draft.write(b"body").expect("written");
    let placed = draft.place(&head, &path).expect("placed");
    let stored = store::open_entry(&path, &hash, Some(key.as_bytes())).expect("stored");
    ticket.stored(placed.disk_size, Some(Arc::new(stored)));
    hash
}

#[test]
fn entries_in_memory_are_compared_once_for_a_purge_and_the_purger_removes_files() {
    let folder = Folder::new("zone");
    let place = CacheRoot { root: folder.0.clone(), levels: vec![1] };
    let zone = Arc::new(Zone::new("tags", place, 1 << 20));
    zone.cold.store(false, Ordering::Relaxed);
    zone.set_memory(16 << 20, 64);
    let (news, both, plain) = (put(&zone, "1", "news", 5), put(&zone, "2", "sports news", 5), put(&zone, "3", "", 5));
    let sports = put(&zone, "4", "sports", 5);
    let is_hit = |hash: &Hash| zone.hot(hash, NOW).map(|stored| zone.purges.hit_by_tag(&stored));
    assert!([news, both, plain, sports].iter().all(|hash| is_hit(hash) == Some(false)));
    zone.purges.add_tags(&[TagHash::of(b"news")], 10).expect("noted");
    for _ in 0..2 {
        assert_eq!([news, both, plain, sports].map(|hash| is_hit(&hash)), [true, true, false, false].map(Some));
    }
    let compared = zone.hot(&sports, NOW).map(|stored| stored.compared_tags.load(Ordering::Relaxed));
    assert_eq!(compared, Some(1), "later requests take no lock");
    // A later entry stays.
    let later = put(&zone, "1", "news", zone.purges.stamp(10));
    assert_eq!(is_hit(&later), Some(false));
    // Another server's purge.
    zone.purges.add_tag_until(TagHash::of(b"sports"), 5).expect("noted");
    assert_eq!([later, both, plain, sports].map(|hash| is_hit(&hash)), [false, true, false, true].map(Some));

    let pace = Pace { files: 100, threshold_ms: 10_000, sleep_ms: 1 };
    let limits =
        Limits { inactive_sec: 600, max_size: u64::MAX, min_free: 0, manager: pace, loader: pace, purger: Some(pace) };
    assert_eq!(Purger::default().work(&zone, &limits, &|_, text| panic!("{text}")), None);
    assert!(zone.purges.is_empty() && zone.purges.tags_listed() == 0);
    let there = [later, both, plain, sports].map(|hash| zone.place.path(&hash).exists());
    assert_eq!(there, [true, false, true, false]);

    // Without a purger the purge is forgotten when no entry of before can be left.
    zone.purges.add_tags(&[TagHash::of(b"x")], 10).expect("noted");
    let limits = Limits { purger: None, ..limits };
    manager::forget_old(&zone, &limits, 0, &|_, text| panic!("{text}"));
    assert!(zone.purges.is_empty());
}
