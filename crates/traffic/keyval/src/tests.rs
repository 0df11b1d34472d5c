//! Tests of zones and state files.

use crate::{ENTRY_BYTES, KeyMatch, KeyvalPair, KeyvalZone, PairChange, Refusal, VALUE_BYTES_MAX, state_file};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const NOW: u64 = 1_700_000_000_000;

fn pair(key: &str, value: &str) -> KeyvalPair {
    KeyvalPair::new(key, value, None)
}

fn found(zone: &KeyvalZone, search: &str) -> Option<String> {
    zone.find(search.as_bytes(), NOW, str::to_string)
}

#[test]
fn pairs_are_added_changed_and_removed() {
    let zone = KeyvalZone::new(32_768, KeyMatch::String);
    assert_eq!(zone.add(pair("a", "1"), NOW), Ok(()));
    assert_eq!(zone.add(pair("a", "2"), NOW), Err(Refusal::Exists));
    assert_eq!(found(&zone, "a").as_deref(), Some("1"));
    assert_eq!((found(&zone, "A"), found(&zone, "aa"), found(&zone, "")), (None, None, None));
    assert_eq!(zone.change("a", PairChange { value: Some("3"), ..PairChange::default() }, NOW), Ok(()));
    assert_eq!(zone.change("b", PairChange { value: Some("3"), ..PairChange::default() }, NOW), Err(Refusal::Missing));
    assert_eq!(zone.get("a", NOW), Some(pair("a", "3")));
    assert_eq!(zone.remove("a", NOW), Ok(()));
    assert_eq!(zone.remove("a", NOW), Err(Refusal::Missing));
    assert_eq!((zone.get("a", NOW), zone.usage()), (None, (0, 0)));
    assert_eq!((zone.set(pair("a", "4"), NOW), zone.set(pair("a", "5"), NOW)), (Ok(()), Ok(())));
    assert_eq!(zone.list(NOW), [pair("a", "5")]);
    assert_eq!(zone.set(pair("a", &"x".repeat(VALUE_BYTES_MAX + 1)), NOW), Err(Refusal::TooLarge));
    assert_eq!((zone.get("a", NOW), zone.usage()), (None, (0, 0)), "an old value does not stay for a new one");
}

#[test]
fn several_pairs_enter_an_empty_zone_together_or_not_at_all() {
    let zone = KeyvalZone::new(32_768, KeyMatch::String);
    let twice = vec![pair("a", "1"), pair("b", "2"), pair("a", "3")];
    assert_eq!(zone.fill(twice, NOW), Err(Refusal::Exists));
    assert_eq!((zone.list(NOW), zone.usage()), (vec![], (0, 0)));
    assert_eq!(zone.fill(vec![pair("b", "2"), pair("a", "1")], NOW), Ok(()));
    assert_eq!(zone.list(NOW), [pair("a", "1"), pair("b", "2")]);
    assert_eq!(zone.fill(vec![pair("c", "3")], NOW), Err(Refusal::Exists));
    zone.clear();
    assert_eq!((zone.list(NOW), zone.usage(), found(&zone, "a")), (vec![], (0, 0), None));
}

#[test]
fn the_size_is_a_limit() {
    let zone = KeyvalZone::new(32_768, KeyMatch::String);
    let count = (0..).take_while(|i| zone.add(pair(&format!("{i}"), "v"), NOW).is_ok()).count() as u64;
    assert_eq!(count, 32_768 / (ENTRY_BYTES + 32));
    assert_eq!(zone.add(pair("more", "v"), NOW), Err(Refusal::Full));
    let longer = PairChange { value: Some("longer than sixteen bytes"), ..PairChange::default() };
    let (before, spare) = (zone.usage(), 32_768 - zone.usage().0);
    assert!(spare < 16 || zone.change("0", longer, NOW).is_ok());
    let long = "x".repeat(2_000);
    assert_eq!(zone.change("1", PairChange { value: Some(&long), ..PairChange::default() }, NOW), Err(Refusal::Full));
    assert_eq!(found(&zone, "1").as_deref(), Some("v"), "a refused change leaves the pair");
    assert_eq!(zone.usage().1, before.1);
    zone.remove("0", NOW).expect("is there");
    assert_eq!(zone.add(pair("more", "v"), NOW), Ok(()), "room was made");
    let huge = "x".repeat(VALUE_BYTES_MAX + 1);
    let large = KeyvalZone::new(1 << 20, KeyMatch::String);
    assert_eq!(large.add(pair("k", &huge), NOW), Err(Refusal::TooLarge));
    assert_eq!(large.add(pair(&huge, "v"), NOW), Err(Refusal::TooLarge));
    assert_eq!(zone.add(pair("k", &huge[..40_000]), NOW), Err(Refusal::TooLarge), "larger than the zone");
}

#[test]
fn pairs_expire() {
    let zone = KeyvalZone::new(32_768, KeyMatch::Prefix);
    zone.add(KeyvalPair::new("a", "1", Some(NOW + 10)), NOW).expect("new");
    zone.add(KeyvalPair::new("ab", "2", Some(NOW + 20)), NOW).expect("new");
    let at = |now: u64| zone.find(b"abc", now, str::to_string);
    assert_eq!((at(NOW).as_deref(), at(NOW + 20)), (Some("2"), None));
    assert_eq!(zone.list(NOW + 10).len(), 1);
    assert_eq!(zone.sweep(NOW + 9), Some(NOW + 10));
    assert_eq!((zone.sweep(NOW + 10), zone.usage().1), (Some(NOW + 20), 1));
    let later = PairChange { expires: Some(NOW + 90), ..PairChange::default() };
    assert_eq!(zone.change("a", later, NOW + 10), Err(Refusal::Missing));
    assert_eq!(zone.change("ab", later, NOW + 10), Ok(()));
    assert_eq!(zone.sweep(NOW + 20), Some(NOW + 90));
    assert_eq!(zone.get("ab", NOW + 20), Some(KeyvalPair::new("ab", "2", Some(NOW + 90))));
    assert_eq!((zone.sweep(NOW + 90), zone.usage()), (None, (0, 0)));
    assert_eq!(zone.add(KeyvalPair::new("past", "", Some(NOW)), NOW), Ok(()));
    assert_eq!(zone.usage(), (0, 0), "expired before it came");
    zone.add(KeyvalPair::new("x", "1", Some(NOW + 1)), NOW).expect("new");
    assert_eq!(zone.add(KeyvalPair::new("x", "2", None), NOW + 1), Ok(()), "an expired pair is none");
}

#[test]
fn the_longest_prefix_wins() {
    let zone = KeyvalZone::new(65_536, KeyMatch::Prefix);
    for (key, value) in [("/", "root"), ("/a", "a"), ("/a/b", "ab"), ("/ü", "u")] {
        zone.add(pair(key, value), NOW).expect("new");
    }
    for (search, value) in
        [("/a/b/c", Some("ab")), ("/a/c", Some("a")), ("/x", Some("root")), ("/ü/", Some("u")), ("x", None), ("", None)]
    {
        assert_eq!(found(&zone, search).as_deref(), value, "{search}");
    }
    zone.remove("/a", NOW).expect("is there");
    assert_eq!(found(&zone, "/a/c").as_deref(), Some("root"));
    zone.add(pair("", "all"), NOW).expect("new");
    assert_eq!(found(&zone, "x").as_deref(), Some("all"), "the empty key is a prefix of all");
}

#[test]
fn the_smallest_network_wins() {
    let zone = KeyvalZone::new(65_536, KeyMatch::Ip);
    for (key, value) in
        [("10.0.0.0/8", "ten"), ("10.1.0.0/16", "site"), ("10.1.2.3", "host"), ("2001:db8::/32", "six"), ("::1", "lo")]
    {
        zone.add(pair(key, value), NOW).expect("new");
    }
    assert_eq!(zone.add(pair("10.9.9.9/8", "again"), NOW), Err(Refusal::Exists));
    assert_eq!(zone.add(pair("10.0.0.300", "x"), NOW), Err(Refusal::BadKey));
    for (search, value) in [
        ("10.1.2.3", Some("host")),
        ("10.1.2.4", Some("site")),
        ("10.2.0.1", Some("ten")),
        ("11.0.0.1", None),
        ("10.1.0.0/24", Some("site")),
        ("10.0.0.0/7", None),
        ("::ffff:10.1.2.3", Some("host")),
        ("2001:db8::1", Some("six")),
        ("::1", Some("lo")),
        ("::2", None),
        ("no address", None),
    ] {
        assert_eq!(found(&zone, search).as_deref(), value, "{search}");
    }
    assert_eq!(zone.get("10.0.0.0/8", NOW).map(|p| p.value), Some("ten".into()));
}

#[test]
fn readers_and_writers_meet() {
    let zone = Arc::new(KeyvalZone::new(1 << 20, KeyMatch::Prefix));
    zone.add(pair("always", "here"), NOW).expect("new");
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (zone, stop) = (zone.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(found(&zone, "always there").as_deref(), Some("here"));
                }
            })
        })
        .collect();
    for round in 0..2_000 {
        let key = format!("{:0width$}", round, width = 4 + round % 13);
        zone.add(pair(&key, "v"), NOW).expect("new");
        if round % 2 == 0 {
            zone.remove(&key, NOW).expect("is there");
        }
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().expect("a reader found its pair every time");
    }
    assert_eq!((zone.usage().1, zone.changes()), (1_001, 3_001));
}

#[test]
fn state_files_are_read_back() {
    let pairs = vec![pair("a", "1"), pair("quote\" \\ \n\u{1}", "ü\u{2028}"), pair("", "")];
    let text = state_file::format_state(&pairs);
    let mut read = state_file::parse_state(&text, None, NOW).expect("our own");
    read.sort_by_key(|pair| pairs.iter().position(|p| p.key == pair.key));
    assert_eq!(read, pairs);
    let timed = vec![KeyvalPair::new("a", "1", Some(NOW + 5))];
    assert_eq!(state_file::parse_state(&state_file::format_state(&timed), Some(100), NOW), Ok(timed.clone()));
    assert_eq!(
        state_file::parse_state(&state_file::format_state(&timed), None, NOW),
        Ok(vec![pair("a", "1")]),
        "the timeout is gone"
    );
    assert_eq!(
        state_file::parse_state(b"{\"a\":\"1\"}", Some(100), NOW),
        Ok(vec![KeyvalPair::new("a", "1", Some(NOW + 100))]),
        "the timeout is new"
    );
    for (text, none) in
        [("", true), (" \n", true), ("{}", true), ("[]", false), ("{\"a\":1}", false), ("{\"a\"", false)]
    {
        assert_eq!(state_file::parse_state(text.as_bytes(), None, NOW).is_ok_and(|p| p.is_empty()), none, "{text}");
    }
    for wrong in ["{\"a\":{\"value\":1}}", "{\"a\":{\"expire\":1}}", "{\"a\":{\"value\":\"\",\"expire\":-1}}", "\u{0}"]
    {
        assert!(state_file::parse_state(wrong.as_bytes(), None, NOW).is_err(), "{wrong}");
    }
}

#[test]
fn a_state_file_is_replaced_whole() {
    let folder = std::env::temp_dir().join(format!("tidegate-keyval-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("one.keyval");
    let zone = KeyvalZone::new(32_768, KeyMatch::String);
    zone.add(pair("a", "1"), NOW).expect("new");
    zone.save(&path, NOW).expect("written");
    assert!(zone.is_saved(&path, zone.changes()) && !zone.is_saved(&folder, 0));
    zone.add(pair("b", "2"), NOW).expect("new");
    assert!(!zone.is_saved(&path, zone.changes()));
    zone.save(&path, NOW).expect("written again");
    assert_eq!(std::fs::read_dir(&folder).expect("listed").count(), 1, "no temporary file is left");
    // The first replacement by a process removes what killed ones left.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let file = |name: &str, is_old: bool| {
        let file = std::fs::File::create(folder.join(name)).expect("created");
        if is_old {
            file.set_modified(old).expect("an earlier time");
        }
    };
    let others =
        ["two.keyval", "two.keyval.1.x.tmp", "two.keyval.1.2.3.tmp", "two.keyval.1..tmp", "x.two.keyval.1.2.tmp"];
    others.iter().for_each(|name| file(name, true));
    file("two.keyval.1.2.tmp", true);
    file("two.keyval.1.3.tmp", false);
    state_file::replace_file(&folder.join("two.keyval"), b"{}").expect("replaced");
    assert!(!folder.join("two.keyval.1.2.tmp").exists());
    assert!(folder.join("two.keyval.1.3.tmp").exists(), "another process may be writing it");
    assert!(others.iter().all(|name| folder.join(name).exists()));
    let again = KeyvalZone::new(32_768, KeyMatch::String);
    let read =
        || Ok::<_, Refusal>(state_file::parse_state(&std::fs::read(&path).expect("read"), None, NOW).expect("parsed"));
    again.load(&path, NOW, read).expect("fits");
    assert_eq!(again.list(NOW), zone.list(NOW));
    assert!(again.is_saved(&path, again.changes()), "there is nothing to write");
    again.remove("a", NOW).expect("is there");
    again.load(&path, NOW, || -> Result<_, Refusal> { panic!("the zone outlives a reload") }).expect("nothing to do");
    let (call, _) = state_file::replace_file(&folder.join("none/such"), b"{}").expect_err("no folder");
    assert_eq!(call, "open");
    let (call, _) = state_file::replace_file(&folder, b"{}").expect_err("a folder cannot be replaced");
    assert_eq!(call, "rename");
    std::fs::remove_dir_all(&folder).expect("removed");
}
