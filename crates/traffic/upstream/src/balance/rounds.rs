//! State of smooth weighted round robin, per thread, as nginx's per worker; groups with a `zone` share one. Connections
//! and failures are counted with the servers.

use crate::peer::Peer;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Sets per group; further threads share them under a lock.
const SETS: usize = 16;

/// Sets of a group, created with the first choice: single servers need none.
#[derive(Debug, Default)]
pub struct Rounds(OnceLock<Box<[Set; SETS]>>);

/// A thread's set on its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Set(Mutex<Accounts>);

/// Balance per server in thousandths of a weight.
#[derive(Debug, Default)]
pub struct Accounts {
    primary: Vec<Account>,
    backup: Vec<Account>,
}

#[derive(Debug)]
struct Account {
    peer: Weak<Peer>,
    credit: i64,
}

impl Rounds {
    /// Calls with this thread's set, or the shared one (`zone`, shared memory in nginx).
    pub fn with<R>(&self, is_shared: bool, act: impl FnOnce(&mut Accounts) -> R) -> R {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static OWN: Cell<Option<usize>> = const { Cell::new(None) };
        }
        let own = if is_shared { Some(0) } else { OWN.get() };
        let own = own.unwrap_or_else(|| {
            let own = THREADS.fetch_add(1, Ordering::Relaxed) % SETS;
            OWN.set(Some(own));
            own
        });
        // The index is in range; a panic leaves usable numbers.
        let set = &self.0.get_or_init(Box::default)[own % SETS];
        act(&mut set.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Accounts {
    /// Balances in a list's order; drops those of removed servers, and starts new ones at 0.
    pub fn of(&mut self, list: &[Arc<Peer>], is_backup: bool) -> Credits<'_> {
        let accounts = if is_backup { &mut self.backup } else { &mut self.primary };
        let is_current = accounts.len() == list.len()
            && accounts.iter().zip(list).all(|(account, peer)| std::ptr::eq(account.peer.as_ptr(), Arc::as_ptr(peer)));
        if !is_current {
            let old = std::mem::take(accounts);
            accounts.extend(list.iter().map(|peer| {
                let known = old.iter().find(|account| std::ptr::eq(account.peer.as_ptr(), Arc::as_ptr(peer)));
                Account { peer: Arc::downgrade(peer), credit: known.map_or(0, |account| account.credit) }
            }));
        }
        Credits(accounts)
    }
}

/// Balances of a list's servers, by their index.
pub struct Credits<'a>(&'a mut Vec<Account>);

impl Credits<'_> {
    /// Returns a balance in thousandths of a weight.
    pub fn get(&self, index: usize) -> i64 {
        self.0.get(index).map_or(0, |account| account.credit)
    }
    /// Changes a balance by `gain` thousandths of a weight; returns the new balance.
    pub fn add(&mut self, index: usize, gain: i64) -> i64 {
        let Some(account) = self.0.get_mut(index) else { return 0 };
        account.credit += gain;
        account.credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::PeerSpec;
    use net::Address;

    fn peer(port: u16) -> Arc<Peer> {
        Arc::new(Peer::new(PeerSpec::new("p", Address::Ip(([127, 0, 0, 1], port).into())), 0))
    }

    #[test]
    fn servers_that_stay_keep_their_accounts() {
        let (one, two, three) = (peer(1), peer(2), peer(3));
        let rounds = Rounds::default();
        rounds.with(false, |accounts| {
            let mut credits = accounts.of(&[one.clone(), two.clone()], false);
            assert_eq!((credits.add(0, 5), credits.add(1, -5)), (5, -5));
            assert_eq!(accounts.of(&[one.clone(), two.clone()], true).get(0), 0, "backups have their own");
            let credits = accounts.of(&[three.clone(), two.clone()], false);
            assert_eq!((credits.get(0), credits.get(1)), (0, -5));
        });
        std::thread::scope(|scope| {
            scope.spawn(|| rounds.with(false, |accounts| assert_eq!(accounts.of(&[three, two], false).get(1), 0)));
        });
    }
}
