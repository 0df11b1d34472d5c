//! Connections that requests share: who uses one, and until when later requests find it.

use crate::group::Group;
use crate::pool::{KeepAlive, Mixed, PoolScope};
use base::clock::{self, Instant};
use net::Address;
use runtime::time::Sleep;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::hash::BuildHasherDefault;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Maximum number of streams per connection.
pub const STREAMS_MAX: usize = 100;

pub struct Usage {
    /// Available to later requests; otherwise ends with its last stream.
    pub kept: bool,
    pub requests: u64,
    /// Leased streams, started or not.
    pub leased: usize,
    pub driver: Option<Waker>,
    opened: Instant,
    idle_since: Instant,
    keep: KeepAlive,
    address: Address,
}

impl Usage {
    /// Use of a new connection, leased once.
    pub fn new(group: &Group, address: Address) -> Usage {
        let now = clock::now();
        Usage {
            kept: false,
            requests: 0,
            leased: 1,
            driver: None,
            opened: now,
            idle_since: now,
            keep: group.keepalive.clone(),
            address,
        }
    }
    /// Tells whether another request to `address` may use the connection.
    fn has_room(&self, address: &Address, now: Instant) -> bool {
        self.address == *address
            && self.requests < self.keep.requests_max
            && now.millis_since(self.opened) < self.keep.time_ms
    }
    pub fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }
    /// Ends a stream; its lease ends apart from it.
    pub fn ended(&mut self) {
        self.idle_since = clock::now();
    }
    pub fn give_back(&mut self) {
        self.leased -= 1;
        self.wake_driver();
    }
    /// Ready when no request uses the connection any more, nor will. `is_kept`: see [`Shared::is_kept`].
    pub fn poll_unused(&mut self, is_kept: bool, sleep: &mut Option<Sleep>, cx: &mut Context<'_>) -> Poll<()> {
        if self.leased > 0 {
            *sleep = None;
            self.idle_since = clock::now();
            return Poll::Pending;
        }
        if !is_kept || self.requests >= self.keep.requests_max {
            return Poll::Ready(());
        }
        if self.keep.timeout_ms == 0 {
            return Poll::Pending;
        }
        let until = self.idle_since.plus(Duration::from_millis(self.keep.timeout_ms));
        let sleep = sleep.get_or_insert_with(|| runtime::time::sleep_until(until));
        if sleep.deadline() != until {
            sleep.reset(until);
        }
        Pin::new(sleep).poll(cx)
    }
}

pub trait Shared {
    fn usage(&mut self) -> &mut Usage;
    /// Tells whether later requests find it: it is neither over nor going.
    fn is_kept(&self) -> bool;
    /// Tells whether another stream can begin, and its body be sent.
    fn has_streams(&mut self) -> bool;
}

/// Kept connections of one protocol and thread.
pub struct Kept<T>(HashMap<PoolScope, Vec<Weak<RefCell<T>>>, BuildHasherDefault<Mixed>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept(HashMap::default())
    }
}

impl<T: Shared> Kept<T> {
    /// Leases a connection with room. `scope`: as in [`crate::Pooled::new`].
    pub fn take(&mut self, group: &Group, address: &Address, scope: usize) -> Option<Rc<RefCell<T>>> {
        let place = PoolScope { group: group.number, scope };
        let all = self.0.get_mut(&place)?;
        all.retain(is_usable);
        if all.is_empty() {
            self.0.remove(&place);
            return None;
        }
        let now = clock::now();
        let found = all.iter().filter_map(Weak::upgrade).find(|one| {
            let mut one = one.borrow_mut();
            one.usage().has_room(address, now) && one.has_streams()
        })?;
        found.borrow_mut().usage().leased += 1;
        Some(found)
    }
    /// Keeps a new connection, in place of the oldest beyond the group's limit.
    pub fn add(&mut self, group: &Group, scope: usize, one: &Rc<RefCell<T>>) {
        let most = group.keepalive.connections;
        if most == 0 {
            return;
        }
        let all = self.0.entry(PoolScope { group: group.number, scope }).or_default();
        all.retain(is_usable);
        if all.len() >= most
            && let Some(oldest) = all.first().and_then(Weak::upgrade)
        {
            all.remove(0);
            let mut oldest = oldest.borrow_mut();
            oldest.usage().kept = false;
            oldest.usage().wake_driver();
        }
        one.borrow_mut().usage().kept = true;
        all.push(Rc::downgrade(one));
    }
}

fn is_usable<T: Shared>(one: &Weak<RefCell<T>>) -> bool {
    one.upgrade().is_some_and(|one| one.borrow().is_kept())
}
