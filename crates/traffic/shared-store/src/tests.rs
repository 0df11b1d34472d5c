//! Tests of stores that answer alike, and of maps that converge.

use crate::files::FolderStore;
use crate::map_replica::{LocalMap, LocalValue, MapReplica};
use crate::memory::MemoryStore;
use crate::record::{MapRecord, NodeClock, Version};
use crate::store::{PermitRequest, Store};
use futures::StreamExt;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::Random;
use tokio::sync::Notify;

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn record(key: &str, value: Option<&str>, time: u64) -> MapRecord {
    let version = Version { time, count: 0, node: 1 };
    MapRecord { key: key.into(), value: value.map(Into::into), version, expires: None }
}

/// Rules of all stores.
pub(crate) async fn check_store(store: &dyn Store) {
    assert_eq!(store.get("s", b"k").await, Ok(None));
    store.put("s", b"k", b"1", None).await.expect("put");
    assert_eq!(store.get("s", b"k").await, Ok(Some(b"1".to_vec())));
    assert_eq!(store.get("other", b"k").await, Ok(None), "spaces are apart");
    assert_eq!(store.compare_and_set("s", b"k", None, b"2", None).await, Ok(false));
    assert_eq!(store.compare_and_set("s", b"k", Some(b"0"), b"2", None).await, Ok(false));
    assert_eq!(store.compare_and_set("s", b"k", Some(b"1"), b"2", None).await, Ok(true));
    assert_eq!(store.compare_and_set("s", b"new", None, b"3", Some(Duration::from_secs(60))).await, Ok(true));
    assert_eq!(store.get("s", b"k").await, Ok(Some(b"2".to_vec())));
    assert_eq!(store.get("s", b"new").await, Ok(Some(b"3".to_vec())));
    let odd = [0, b'/', b' ', 0xff, b'\n'];
    let long = [7; 700];
    for key in [&odd[..], &long[..], &long[..100], b""] {
        store.put("s", key, key, None).await.expect("put");
        assert_eq!(store.get("s", key).await, Ok(Some(key.to_vec())));
    }

    let spaces = ["m".to_string(), "n".to_string()];
    let mut changes = store.subscribe(&spaces).await.expect("subscribed");
    let first = [record("a", Some("1"), 5), record("b", None, 5)];
    assert_eq!(store.merge_records("m", &first).await, Ok(2));
    assert_eq!(store.merge_records("m", &[record("a", Some("old"), 4), record("a", Some("same"), 5)]).await, Ok(0));
    let newer = record("a", Some("2"), 6);
    assert_eq!(store.merge_records("m", std::slice::from_ref(&newer)).await, Ok(1));
    assert_eq!(store.merge_records("unseen", &first).await, Ok(2));
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(changes.next().await.expect("a change").expect("no failure"));
    }
    let expected = [first[0].clone(), first[1].clone(), newer.clone()].map(|record| ("m".to_string(), record));
    assert_eq!(told, expected);
    let mut records = store.records("m").await.expect("records");
    records.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(records, [newer.clone(), first[1].clone()]);
    store.forget_records("m", &[first[0].clone(), first[1].clone()]).await.expect("forgotten");
    assert_eq!(store.records("m").await, Ok(vec![newer]), "a record that has changed stays");

    let minute = Duration::from_secs(60);
    assert_eq!(store.hold_lease("l", "a", minute).await, Ok(true));
    assert_eq!(store.hold_lease("l", "b", minute).await, Ok(false));
    assert_eq!(store.hold_lease("l", "a", minute).await, Ok(true));
    store.release_lease("l", "b").await.expect("not the holder");
    assert_eq!(store.hold_lease("l", "b", minute).await, Ok(false));
    store.release_lease("l", "a").await.expect("released");
    assert_eq!(store.hold_lease("l", "b", minute).await, Ok(true));

    // One in an hour: the clock does not matter.
    let request = |wanted| PermitRequest { key: b"k".to_vec(), rate: 1, burst: 2_000, wanted };
    let grants = store.take_permits("p", &[request(2), request(5)]).await.expect("permits");
    assert_eq!(grants.iter().map(|grant| grant.granted).collect::<Vec<_>>(), [2, 1]);
    assert!(grants[0].retry_after == 0 && grants[1].retry_after > 0, "{grants:?}");
    let other = PermitRequest { key: b"other".to_vec(), ..request(1) };
    assert_eq!(store.take_permits("p", &[other]).await.expect("permits")[0].granted, 1);
}

#[test]
fn a_store_in_memory_keeps_the_rules() {
    run(check_store(&MemoryStore::default()));
}

#[test]
fn a_store_in_a_folder_keeps_the_rules() {
    let folder = std::env::temp_dir().join(format!("tidegate-store-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    run(check_store(&FolderStore::new(folder.clone())));
    // A writer that was killed within a record leaves the others.
    let path = folder.join("maps/m");
    let mut bytes = std::fs::read(&path).expect("the map's file");
    bytes.extend_from_slice(&[0, 0, 0, 9, b'1']);
    std::fs::write(&path, bytes).expect("written");
    let store = FolderStore::new(folder.clone());
    run(async {
        assert_eq!(store.merge_records("m", &[record("c", Some("3"), 1)]).await, Ok(1));
        let records = store.records("m").await.expect("records");
        assert_eq!(records, [record("a", Some("2"), 6), record("c", Some("3"), 1)]);
    });
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// A zone of at most a number of pairs.
#[derive(Default)]
struct TestZone(Mutex<BTreeMap<Vec<u8>, LocalValue>>, usize);

impl LocalMap for TestZone {
    fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool {
        let mut pairs = self.0.lock().unwrap();
        match value {
            Some(_) if pairs.len() >= self.1 && !pairs.contains_key(key) => return false,
            Some(value) => pairs.insert(key.to_vec(), (value.to_vec(), expires)),
            None => pairs.remove(key),
        };
        true
    }

    fn local_keys(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    fn local_identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

struct TestNode {
    zone: Arc<TestZone>,
    replica: MapReplica,
    inbox: VecDeque<MapRecord>,
    is_connected: bool,
}

impl TestNode {
    fn new(number: u64) -> TestNode {
        let zone = Arc::new(TestZone(Mutex::default(), 1_000));
        let clock = Arc::new(NodeClock::new(number));
        let replica = MapReplica::new("m", zone.clone(), clock, Arc::new(Notify::new()), 1_000);
        TestNode { zone, replica, inbox: VecDeque::new(), is_connected: false }
    }

    fn change(&self, key: &str, value: Option<String>, now: u64) {
        let change = || Ok::<_, ()>(self.zone.apply_value(key.as_bytes(), value.as_deref().map(str::as_bytes), None));
        self.replica.change_key(key.as_bytes(), now, change).expect("changed");
    }
}

/// Sends a node's changes to the store, and the store's to all connected nodes.
fn send(nodes: &mut [TestNode], from: usize, store: &mut BTreeMap<Vec<u8>, MapRecord>, number: usize) {
    let records = nodes[from].replica.pending_records(number);
    for record in &records {
        if store.get(&record.key).is_some_and(|present| present.version >= record.version) {
            continue;
        }
        store.insert(record.key.clone(), record.clone());
        for node in nodes.iter_mut().filter(|node| node.is_connected) {
            node.inbox.push_back(record.clone());
        }
    }
    nodes[from].replica.acknowledge(&records);
}

#[test]
fn nodes_have_the_same_pairs_after_any_order_of_changes_losses_and_returns() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut nodes: Vec<TestNode> = (0..3).map(TestNode::new).collect();
        let mut store: BTreeMap<Vec<u8>, MapRecord> = BTreeMap::new();
        let mut now = 1_000;
        for step in 0..200 {
            now += random.below(3_u64);
            let index = random.below(nodes.len());
            // Clocks of nodes differ.
            let clock = now + index as u64 * 500;
            match random.below(10_u32) {
                0..=3 => {
                    let key = format!("k{}", random.below(6_u32));
                    nodes[index].change(&key, random.chance(70).then(|| format!("{seed}.{step}")), clock);
                }
                4 => {
                    let zone = nodes[index].zone.clone();
                    nodes[index].replica.change_all(clock, || zone.0.lock().unwrap().clear());
                }
                5 | 6 if nodes[index].is_connected => {
                    let number = random.below(4_usize) + 1;
                    send(&mut nodes, index, &mut store, number);
                }
                7 => {
                    let node = &mut nodes[index];
                    if let Some(record) = node.inbox.pop_front() {
                        node.replica.apply_record(&record, clock);
                    }
                }
                8 => {
                    // Lost; or subscribed anew, and compared.
                    let node = &mut nodes[index];
                    node.is_connected = !node.is_connected;
                    node.inbox.clear();
                    if node.is_connected {
                        let records: Vec<MapRecord> = store.values().cloned().collect();
                        node.replica.compare_all(&records, clock);
                    }
                }
                9 if random.chance(10) => {
                    // The store has lost everything: all connections with it.
                    store.clear();
                    nodes.iter_mut().for_each(|node| {
                        node.is_connected = false;
                        node.inbox.clear();
                    });
                }
                _ => {}
            }
        }
        // Healed.
        for _ in 0..3 {
            for index in 0..nodes.len() {
                let records: Vec<MapRecord> = store.values().cloned().collect();
                nodes[index].replica.compare_all(&records, now);
                nodes[index].inbox.clear();
                nodes[index].is_connected = true;
                send(&mut nodes, index, &mut store, usize::MAX);
            }
        }
        for node in &mut nodes {
            while let Some(record) = node.inbox.pop_front() {
                node.replica.apply_record(&record, now);
            }
            assert_eq!(node.replica.pending_number(), 0, "seed {seed}");
        }
        let pairs = |node: &TestNode| node.zone.0.lock().unwrap().clone();
        let of_store: BTreeMap<Vec<u8>, LocalValue> = store
            .values()
            .filter_map(|record| Some((record.key.clone(), (record.value.clone()?, record.expires))))
            .collect();
        for node in &nodes {
            assert_eq!(pairs(node), of_store, "seed {seed}");
        }
    }
}

#[test]
fn a_node_that_was_away_too_long_does_not_bring_removed_pairs_back() {
    let week = crate::REMOVAL_LIFETIME.as_millis() as u64;
    let node = TestNode::new(1);
    node.change("old", Some("1".into()), 2_000);
    node.replica.compare_all(&[], 3_000);
    node.replica.acknowledge(&node.replica.pending_records(10));
    node.replica.note_equal(4_000);
    node.change("made while it was away", Some("2".into()), 5_000);
    node.replica.compare_all(&[], 4_000 + week);
    assert_eq!(node.zone.local_keys().len(), 2, "a week is not too long");
    node.replica.compare_all(&[], 4_001 + week);
    assert_eq!(node.zone.local_keys(), [b"made while it was away".to_vec()]);
}

#[test]
fn ended_pairs_and_pairs_without_room_are_not_there() {
    let zone = Arc::new(TestZone(Mutex::default(), 1));
    let clock = Arc::new(NodeClock::new(1));
    let replica = MapReplica::new("m", zone.clone(), clock, Arc::new(Notify::new()), 1_000);
    let ended = MapRecord { expires: Some(900), ..record("a", Some("1"), 800) };
    replica.apply_record(&ended, 1_000);
    assert!(zone.local_keys().is_empty());
    let (taken, refused) = replica.compare_all(&[record("b", Some("1"), 5), record("c", Some("1"), 5)], 1_000);
    assert_eq!((taken, refused), (1, 1));
    assert!(replica.pending_records(10).is_empty(), "what has no room here stays elsewhere");
}
