//! Connections that requests share: who uses one, and until when later requests find it.

use crate::group::Group;
use crate::keep_alive::KeepAlive;
use crate::pool::{MixedScopes, PoolScope, SWEEP};
use crate::scope::Scope;
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

/// Use of a shared connection: its leases, and its limits of requests, age and idle time.
pub struct Usage {
    /// Available to later requests; otherwise ends with its last stream.
    pub kept: bool,
    /// Requests so far.
    pub requests: u64,
    /// Leased streams, started or not.
    pub leased: usize,
    /// Waker of the task that drives the connection.
    pub driver: Option<Waker>,
    opened: Instant,
    idle_since: Instant,
    keep: KeepAlive,
    scope: Scope,
    address: Address,
}

impl Usage {
    /// Use of a new connection, leased once.
    pub fn new(group: &Group, address: Address, scope: Scope) -> Usage {
        Usage { keep: group.keepalive.clone(), scope, ..Usage::alone(address) }
    }
    /// Use of a new connection that no other request finds: it ends with the last lease.
    pub fn alone(address: Address) -> Usage {
        let now = clock::now();
        Usage {
            kept: false,
            requests: 0,
            leased: 1,
            driver: None,
            opened: now,
            idle_since: now,
            keep: KeepAlive::none(),
            scope: Scope::shared(""),
            address,
        }
    }
    /// Tells whether another request to `address` may use the connection.
    fn has_room(&self, address: &Address, now: Instant) -> bool {
        self.address == *address
            && self.requests < self.keep.requests_max
            && now.millis_since(self.opened) < self.keep.time_ms
    }
    /// Wakes the connection's task, for output or for its end.
    pub fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }
    /// Ends a stream; its lease ends apart from it.
    pub fn ended(&mut self) {
        self.idle_since = clock::now();
    }
    /// Ends a lease.
    pub fn give_back(&mut self) {
        self.leased -= 1;
        self.wake_driver();
    }
    /// Ready when no request uses the connection any more, nor will. `is_kept`: see [`SharedConnection::is_kept`].
    pub fn poll_unused(&mut self, is_kept: bool, sleep: &mut Option<Sleep>, cx: &mut Context<'_>) -> Poll<()> {
        if self.leased > 0 {
            *sleep = None;
            self.idle_since = clock::now();
            return Poll::Pending;
        }
        if !is_kept || self.requests >= self.keep.requests_max || self.scope.is_retired() {
            return Poll::Ready(());
        }
        let now = clock::now();
        // A timeout of 0 is none.
        let end =
            (self.keep.timeout_ms != 0).then(|| self.idle_since.plus(Duration::from_millis(self.keep.timeout_ms)));
        if end.is_some_and(|end| end <= now) {
            return Poll::Ready(());
        }
        let look = self.scope.can_retire().then(|| now.plus(SWEEP));
        let Some(until) = [end, look].into_iter().flatten().min() else { return Poll::Pending };
        let sleep = sleep.get_or_insert_with(|| runtime::time::sleep_until(until));
        if sleep.deadline() <= now || sleep.deadline() > until {
            sleep.reset(until);
        }
        Pin::new(sleep).poll(cx)
    }
}

/// A connection of a protocol, as [`KeptConnections`] sees it.
pub trait SharedConnection {
    /// Returns the connection's use.
    fn usage(&mut self) -> &mut Usage;
    /// Tells whether later requests find it: it is neither over nor going.
    fn is_kept(&self) -> bool;
    /// Tells whether another stream can begin, and its body be sent.
    fn has_streams(&mut self) -> bool;
}

/// Kept connections of one protocol and thread.
pub struct KeptConnections<T>(HashMap<PoolScope, Vec<Weak<RefCell<T>>>, BuildHasherDefault<MixedScopes>>);

impl<T> Default for KeptConnections<T> {
    fn default() -> Self {
        KeptConnections(HashMap::default())
    }
}

impl<T: SharedConnection> KeptConnections<T> {
    /// Leases a connection with room.
    pub fn take(&mut self, group: &Group, address: &Address, scope: Scope) -> Option<Rc<RefCell<T>>> {
        let place = PoolScope::new(group, scope);
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
    /// Returns the connection that has been idle longest, and since when.
    pub fn oldest(&self) -> Option<(Instant, Rc<RefCell<T>>)> {
        let all = self.0.values().flatten().filter_map(Weak::upgrade);
        let idle = all.filter_map(|one| {
            let mut borrowed = one.try_borrow_mut().ok()?;
            let is_idle = borrowed.is_kept() && borrowed.usage().leased == 0;
            let since = borrowed.usage().idle_since;
            drop(borrowed);
            is_idle.then_some((since, one))
        });
        idle.min_by_key(|(since, _)| *since)
    }
    /// Ends the connection that has been idle longest.
    pub fn end_oldest(&self) {
        if let Some((_, oldest)) = self.oldest() {
            let mut oldest = oldest.borrow_mut();
            oldest.usage().kept = false;
            oldest.usage().wake_driver();
        }
    }
    /// Keeps a new connection, in place of the oldest beyond the group's limit.
    pub fn add(&mut self, group: &Group, scope: Scope, one: &Rc<RefCell<T>>) {
        let most = group.keepalive.connections;
        if most == 0 {
            return;
        }
        let all = self.0.entry(PoolScope::new(group, scope)).or_default();
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

fn is_usable<T: SharedConnection>(one: &Weak<RefCell<T>>) -> bool {
    one.upgrade().is_some_and(|one| one.borrow().is_kept())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::BalanceMethod;
    use crate::scope;

    #[test]
    fn unused_connections_end_with_their_scope() {
        let _alone = scope::tests::alone();
        let keep = KeepAlive { timeout_ms: 0, ..KeepAlive::default() };
        let group = Group::new("mux", Vec::new(), BalanceMethod::RoundRobin, keep, true);
        let usage = |scope| Usage { leased: 0, ..Usage::new(&group, Address::Unix("x".into()), scope) };
        runtime::block_on(async {
            let (mut own, mut shared) = (usage(Scope::own()), usage(Scope::shared("proxy")));
            let (mut look, mut none) = (None, None);
            for retired in [false, true] {
                std::future::poll_fn(|cx| {
                    assert_eq!(own.poll_unused(true, &mut look, cx).is_ready(), retired);
                    assert!(shared.poll_unused(true, &mut none, cx).is_pending());
                    assert!(look.is_some() && none.is_none(), "only the own scope is looked at again");
                    Poll::Ready(())
                })
                .await;
                scope::retire_scopes(scope::mark_scopes());
            }
        });
    }
}
