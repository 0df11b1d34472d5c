//! Tests with socket pairs.

use super::*;
use std::io::Write;
use std::os::unix::net::UnixStream;

fn pair(poller: &Poller<u8>) -> (Key, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("pair");
    ours.set_nonblocking(true).expect("nonblocking");
    (poller.add(ours.into(), 7).expect("added"), theirs)
}

#[test]
fn a_parked_entry_is_handed_out_once_when_it_turns_readable() {
    let poller = Poller::new().expect("epoll");
    let (key, mut theirs) = pair(&poller);
    let mut ready = Vec::new();
    poller.wait(Some(Instant::default()), &mut ready).expect("turn");
    assert!(ready.is_empty(), "writable alone is no news for an idle connection");
    theirs.write_all(b"x").expect("write");
    poller.wait(Some(Instant::default()), &mut ready).expect("turn");
    assert_eq!(ready, [key]);
    assert!(poller.begin(key) && !poller.begin(key));
    assert_eq!(poller.registration(key), Some(7));
    assert_eq!(poller.remove(key), Some(7));
    assert_eq!(poller.remove(key), None);
    assert!(poller.has_no_registered());
}

#[test]
fn bytes_that_came_before_parking_are_not_lost() {
    let poller = Poller::new().expect("epoll");
    let (key, mut theirs) = pair(&poller);
    poller.set_busy(key);
    theirs.write_all(b"x").expect("write");
    let mut ready = Vec::new();
    poller.wait(Some(Instant::default()), &mut ready).expect("turn");
    assert!(ready.is_empty());
    poller.set_idle(key, Instant(5));
    poller.wait(Some(Instant::default()), &mut ready).expect("turn");
    assert_eq!(ready, [key]);
}

#[test]
fn a_removed_listener_leaves_nothing_behind_in_epoll() {
    let poller = Poller::new().expect("epoll");
    let (ours, _theirs) = UnixStream::pair().expect("pair");
    let fd = OwnedFd::from(ours);
    for _ in 0..3 {
        // One file behind two descriptors, as after a fork.
        let copy = fd.try_clone().expect("clone");
        let key = poller.add_listener(copy, 7, false).expect("added");
        poller.remove(key);
    }
}

#[test]
fn deadlines_move_without_leaving_nodes_behind() {
    let poller = Poller::new().expect("epoll");
    let (key, _theirs) = pair(&poller);
    for at in [10, 20, 30] {
        poller.set_deadline(key, Instant(at));
    }
    assert_eq!(poller.deadlines.borrow().len(), 1);
    let mut due = Vec::new();
    assert_eq!(poller.due(Instant(15), &mut due), Some(Instant(30)));
    assert!(due.is_empty());
    assert_eq!(poller.due(Instant(30), &mut due), None);
    assert_eq!(due, [key]);
}

#[test]
fn a_deadline_that_moves_forward_is_met() {
    let poller = Poller::new().expect("epoll");
    let (key, _theirs) = pair(&poller);
    poller.set_deadline(key, Instant(60));
    poller.stay_idle(key, Instant(5));
    assert_eq!(poller.next_due(), Some(Instant(5)));
    let mut due = Vec::new();
    assert_eq!(poller.due(Instant(5), &mut due), Some(Instant(60)));
    assert_eq!(due, [key]);
    due.clear();
    poller.set_deadline(key, Instant(90));
    assert_eq!(poller.due(Instant(60), &mut due), Some(Instant(90)), "the first node is nobody's any more");
    assert!(due.is_empty());
}

#[test]
fn an_end_that_came_with_the_last_bytes_is_handed_out() {
    let poller = Poller::new().expect("epoll");
    let (key, mut theirs) = pair(&poller);
    theirs.write_all(b"x").expect("write");
    drop(theirs);
    let mut ready = Vec::new();
    poller.wait(Some(Instant::default()), &mut ready).expect("wait");
    assert!(ready == [key] && poller.begin(key) && poller.closing(key));
    ready.clear();
    // Incomplete input was read; the end is still unread.
    poller.again_if_readable(key);
    poller.wait(None, &mut ready).expect("wait");
    assert_eq!(ready, [key]);
}

#[test]
fn a_lot_with_only_connections_of_our_own_is_not_empty() {
    let poller: Poller<u8> = Poller::new().expect("epoll");
    assert!(poller.is_empty() && poller.has_no_registered());
    let (ours, _theirs) = UnixStream::pair().expect("pair");
    let key = poller.adopt(ours.as_fd()).expect("added");
    assert!(!poller.is_empty() && poller.has_no_registered());
    assert_eq!((poller.len(), poller.registered()), (1, 0));
    let (client, _peer) = pair(&poller);
    assert_eq!((poller.len(), poller.registered()), (2, 1));
    poller.remove(client);
    poller.remove(key);
    assert!(poller.is_empty() && poller.has_no_registered());
}

#[test]
fn an_old_key_does_not_reach_a_new_entry() {
    let poller = Poller::new().expect("epoll");
    let (old, _a) = pair(&poller);
    poller.remove(old);
    let (new, mut theirs) = pair(&poller);
    assert_eq!(old.index, new.index);
    assert_eq!(poller.registration(old), None);
    assert_eq!(poller.registration(new), Some(7));
    theirs.write_all(b"x").expect("write");
    let mut buf = [0; 4];
    assert_eq!(poller.recv(old, &mut buf).expect_err("gone").kind(), io::ErrorKind::NotConnected);
    assert_eq!(poller.send(old, b"y", false).expect_err("gone").kind(), io::ErrorKind::NotConnected);
    poller.shutdown_write(old);
    assert_eq!(poller.send(new, b"y", false).expect("what was meant for another has not ended it"), 1);
    assert_eq!(poller.recv(new, &mut buf).expect("its own bytes"), 1);
}

#[test]
fn a_table_that_was_large_becomes_small_and_old_keys_stay_invalid() {
    let poller = Poller::new().expect("epoll");
    let blocks = |poller: &Poller<u8>| poller.entries.borrow().len();
    let add = || {
        let key = poller.vacant();
        poller.fill(key, None, Some(1), SHARED_FILE);
        key
    };
    let mut keys: Vec<Key> = (0..BLOCK * 20).map(|_| add()).collect();
    assert_eq!(blocks(&poller), 20);
    // The last entry stays: nothing behind it may go.
    let stays = keys.pop().expect("the last");
    for key in &keys {
        assert_eq!(poller.remove(*key), Some(1));
    }
    assert_eq!((blocks(&poller), poller.len(), poller.registration(stays)), (20, 1, Some(1)));
    assert!(keys.iter().all(|key| poller.remove(*key).is_none()));
    poller.remove(stays);
    let grown: Vec<Key> = (0..BLOCK * 20).map(|_| add()).collect();
    grown.iter().rev().for_each(|key| assert_eq!(poller.remove(*key), Some(1)));
    assert_eq!(blocks(&poller), BLOCKS_KEPT);
    assert_eq!(poller.free.borrow().len(), BLOCK * BLOCKS_KEPT);
    // New blocks do not bring former keys back to life.
    let again: Vec<Key> = (0..BLOCK * 20).map(|_| add()).collect();
    for old in keys.iter().chain(&grown).chain([&stays]) {
        assert!(poller.registration(*old).is_none());
    }
    assert!(again.iter().all(|key| poller.registration(*key) == Some(1)));
}

#[test]
fn a_registration_that_comes_later_is_counted() {
    let poller: Poller<u8> = Poller::new().expect("epoll");
    let (one, _other) = UnixStream::pair().expect("pair");
    let key = poller.add_copy(one.into()).expect("added");
    assert_eq!(poller.registered(), 0);
    poller.set_registration(key, 7);
    poller.set_registration(key, 8);
    assert_eq!(poller.registered(), 1);
    assert_eq!(poller.remove(key), Some(8));
    assert_eq!(poller.registered(), 0);
    poller.set_registration(key, 9);
    assert_eq!(poller.registered(), 0);
}

#[test]
fn the_nearest_idle_entries_are_those_without_events() {
    let poller = Poller::new().expect("epoll");
    let all: Vec<(Key, UnixStream)> = (0..6).map(|_| pair(&poller)).collect();
    for ((key, _), due) in all.iter().zip([60, 30, 10, 50, 20, 40]) {
        poller.set_idle(*key, Instant(due));
    }
    poller.set_busy(all[4].0);
    (&all[1].1).write_all(b"x").expect("write");
    poller.wait(Some(Instant::default()), &mut Vec::new()).expect("turn");
    let key = |at: usize| all[at].0;
    assert_eq!(poller.nearest_idle(9, |_| true), [key(2), key(5), key(3), key(0)]);
    assert_eq!(poller.nearest_idle(2, |_| true), [key(2), key(5)]);
    poller.remove(key(2));
    assert_eq!(poller.nearest_idle(1, |_| true), [key(5)]);
    assert_eq!(poller.nearest_idle(9, |_| false), [] as [Key; 0]);
}
