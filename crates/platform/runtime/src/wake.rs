//! Wakers that name an entry of the thread's poller instead of a task: the loop finds the key among its ready ones.

use crate::inbox::{self, Home};
use net::poller::Key;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};

thread_local! {
    /// Woken keys, in order; duplicates are possible.
    static WOKEN: RefCell<Vec<Key>> = const { RefCell::new(Vec::new()) };
}

/// Wakes a key's entry. Reused: a late wake of an earlier use wakes the present key spuriously.
pub struct KeyWaker {
    home: Home,
    key: AtomicU64,
}

impl KeyWaker {
    /// Creates a waker of a key on this thread.
    pub fn new(key: Key) -> Arc<KeyWaker> {
        Arc::new(KeyWaker { home: inbox::home(), key: AtomicU64::new(key.to_bits()) })
    }
    /// Changes the key that later wake-ups name.
    pub fn set(&self, key: Key) {
        self.key.store(key.to_bits(), Ordering::Relaxed);
    }
    /// Returns a waker for any thread.
    pub fn waker(self: &Arc<Self>) -> Waker {
        self.clone().into()
    }
}

impl Wake for KeyWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        let key = Key::from_bits(self.key.load(Ordering::Relaxed));
        if inbox::is_here(self.home) {
            // The thread has ended.
            let _ = WOKEN.try_with(|woken| woken.borrow_mut().push(key));
        } else {
            inbox::send_key(self.home, key);
        }
    }
}

/// Tells whether keys were woken since [`take`].
pub fn any() -> bool {
    WOKEN.with_borrow(|woken| !woken.is_empty())
}

/// Takes the woken keys; a key may appear several times.
pub fn take(into: &mut VecDeque<Key>) {
    WOKEN.with_borrow_mut(|woken| woken.drain(..).for_each(|key| into.push_back(key)));
}

pub(crate) fn add(keys: &mut Vec<Key>) {
    WOKEN.with_borrow_mut(|woken| woken.append(keys));
}

pub(crate) fn forget_all() {
    WOKEN.with_borrow_mut(Vec::clear);
}
