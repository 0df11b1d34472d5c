//! Limits over several nodes: permits that a node takes from the store before they are needed.
//!
//! A request is admitted by what the node has: permits that were granted, or a credit of a whole burst, which the agent's
//! thread pays back, also if no further request comes ([`PermitPool::collect_debts`]). A node that got less than it wanted gives a
//! credit of one request. So over a time `t`, all nodes together admit at most
//! `burst + 1 + rate * t + nodes * credit` requests of a key while the store is there, and a request never waits for it. A key that
//! is over its limit is refused here, without the store, until there can be a permit again.

use crate::store::{PermitGrant, PermitRequest, grant_permits};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Rule of a limit while the store is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreLoss {
    /// Each node admits its part: the rate and burst, divided by the nodes that were there last.
    #[default]
    Local,
    /// Each node admits the whole rate.
    Open,
    /// Nothing is admitted.
    Deny,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitVerdict {
    Granted,
    Refused,
}

/// Numbers of a limit, in thousandths: of a permit per second, and of a permit that may be taken at once beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitRule {
    pub rate: u64,
    pub burst: u64,
    /// Nodes take permits before they are needed. Without it, for events that are counted behind, only those that were used.
    pub takes_ahead: bool,
}

/// Share of a second, and of the burst, that a node takes at once.
const BATCH_PER_SECOND: u64 = 100;
const BATCH_PER_BURST: u64 = 16;
/// Milliseconds for which an event is refused, again and again, by [`StoreLoss::Deny`].
const DENIAL_MILLIS: u64 = 1_000;
/// Milliseconds after which an unused account is forgotten, and one whose debt could not be paid, unless others need the room.
const IDLE_MILLIS: u64 = 10_000;
const DEBT_MILLIS: u64 = 24 * 60 * 60 * 1000;
/// Bytes of an account besides its key.
const ACCOUNT_BYTES: usize = 128;

/// Permits of a zone's keys.
pub struct PermitPool {
    space: String,
    rule: PermitRule,
    loss: StoreLoss,
    bytes_max: usize,
    /// Milliseconds after which an unanswered request counts as a lost store.
    patience: u64,
    accounts: Mutex<Accounts>,
    wake: Arc<Notify>,
    refused: AtomicU64,
}

#[derive(Default)]
struct Accounts {
    by_key: HashMap<Box<[u8]>, PermitAccount>,
    bytes: usize,
    /// Keys of accounts that want permits.
    wanting: Vec<Box<[u8]>>,
    swept_at: u64,
    /// For a key that had no room.
    emptied_at: u64,
}

#[derive(Default)]
struct PermitAccount {
    /// Permits that were granted and not used; negative: a credit to pay back.
    balance: i64,
    /// When permits were asked for, and have not come.
    asked_at: Option<u64>,
    is_queued: bool,
    /// The store has granted less than was wanted last.
    is_short: bool,
    refused_until: u64,
    used_at: u64,
    /// For [`StoreLoss::Local`]: microseconds until which this node's part is used.
    local_until: u64,
}

impl PermitPool {
    pub(crate) fn new(
        space: &str,
        rule: PermitRule,
        loss: StoreLoss,
        bytes_max: usize,
        patience: u64,
        wake: Arc<Notify>,
    ) -> PermitPool {
        PermitPool {
            space: space.to_owned(),
            rule,
            loss,
            bytes_max,
            patience,
            accounts: Mutex::default(),
            wake,
            refused: AtomicU64::new(0),
        }
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name of the limit in the store.
    pub fn space(&self) -> &str {
        &self.space
    }

    /// Requests that were refused, since the pool was made.
    pub fn refused_number(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Permits that a node takes at once.
    pub fn batch(&self) -> u64 {
        if !self.rule.takes_ahead {
            return 0;
        }
        let (rate, burst) = (self.rule.rate / 1000, self.rule.burst / 1000);
        (rate / BATCH_PER_SECOND).min(burst / BATCH_PER_BURST).max(1)
    }

    /// Requests that a node admits before the store has answered: as many as a client may send at once.
    pub fn credit(&self) -> u64 {
        self.rule.burst / 1000 + 1
    }

    /// Takes a permit for a request. `now` is in milliseconds since 1970. Does not wait.
    pub fn take_permit(&self, key: &[u8], is_connected: bool, nodes: u64, now: u64) -> PermitVerdict {
        let mut accounts = self.accounts();
        let verdict = self.judge(&mut accounts, key, is_connected, nodes, now);
        drop(accounts);
        if verdict == PermitVerdict::Refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        verdict
    }

    fn judge(&self, accounts: &mut Accounts, key: &[u8], is_connected: bool, nodes: u64, now: u64) -> PermitVerdict {
        accounts.sweep(now, false);
        let Some(account) = accounts.open(key, self.bytes_max, now) else {
            // Keys without an account are limited by the node's own bucket alone.
            return PermitVerdict::Granted;
        };
        account.used_at = now;
        if !is_connected || !self.is_answered(account, now) {
            return match self.retry_alone(account, nodes, now) {
                None => PermitVerdict::Granted,
                Some(_) => PermitVerdict::Refused,
            };
        }
        let is_over = account.balance <= 0 && account.refused_until > now;
        let credit = if account.is_short { 1 } else { self.credit() as i64 };
        let verdict = if !is_over && account.balance > -credit {
            account.balance -= 1;
            PermitVerdict::Granted
        } else {
            PermitVerdict::Refused
        };
        if account.balance <= 0 && !is_over {
            self.want(accounts, key);
        }
        verdict
    }

    /// Counts an event that has happened, such as a failed login. Later ones are refused by [`PermitPool::refusal_end`].
    pub fn count_event(&self, key: &[u8], is_connected: bool, nodes: u64, now: u64) {
        let accounts = &mut *self.accounts();
        accounts.sweep(now, false);
        let Some(account) = accounts.open(key, self.bytes_max, now) else { return };
        account.used_at = now;
        if is_connected && self.is_answered(account, now) {
            account.balance -= 1;
            self.want(accounts, key);
        } else if let Some(millis) = self.retry_alone(account, nodes, now) {
            account.refused_until = now.saturating_add(millis);
        }
    }

    /// Returns when the next event of a key may happen, in milliseconds since 1970, if it may not now.
    pub fn refusal_end(&self, key: &[u8], is_connected: bool, now: u64) -> Option<u64> {
        if !is_connected && self.loss == StoreLoss::Deny {
            return Some(now.saturating_add(DENIAL_MILLIS));
        }
        let accounts = self.accounts();
        let account = accounts.by_key.get(key)?;
        let is_over = account.balance <= 0 && account.refused_until > now;
        let end = is_over.then_some(account.refused_until);
        drop(accounts);
        if end.is_some() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        end
    }

    fn is_answered(&self, account: &PermitAccount, now: u64) -> bool {
        account.asked_at.is_none_or(|at| now.saturating_sub(at) <= self.patience)
    }

    /// Asks for the permits of debts that can be paid. Called every few seconds while the store is there: a debt that was
    /// forgotten instead would be a burst for nothing, again and again.
    pub(crate) fn collect_debts(&self, now: u64) {
        let accounts = &mut *self.accounts();
        let due = |account: &PermitAccount| account.balance < 0 && account.refused_until <= now;
        let keys: Vec<Box<[u8]>> =
            accounts.by_key.iter().filter(|(_, account)| due(account)).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.want(accounts, key));
    }

    fn want(&self, accounts: &mut Accounts, key: &[u8]) {
        let Some(account) = accounts.by_key.get_mut(key) else { return };
        if !account.is_queued && account.asked_at.is_none() {
            account.is_queued = true;
            accounts.wanting.push(key.into());
            self.wake.notify_one();
        }
    }

    fn part(&self) -> PermitRequest {
        PermitRequest { key: Vec::new(), rate: self.rule.rate, burst: self.rule.burst, wanted: 1 }
    }

    /// Judges a request without the store. Returns the milliseconds until the next one if it is refused.
    fn retry_alone(&self, account: &mut PermitAccount, nodes: u64, now: u64) -> Option<u64> {
        match self.loss {
            StoreLoss::Open => None,
            StoreLoss::Deny => Some(DENIAL_MILLIS),
            StoreLoss::Local => {
                // A permit takes longer; the burst, which is a time here, is shorter in permits.
                let part = self.part();
                let permit = part.permit_micros().saturating_mul(nodes.max(1));
                let (grant, until) =
                    grant_permits(account.local_until, now.saturating_mul(1000), permit, part.burst_micros(), 1);
                account.local_until = until;
                (grant.granted == 0).then_some(grant.retry_after)
            }
        }
    }

    /// Returns the requests of all accounts that want permits. Each is followed by [`PermitPool::grant`] or
    /// [`PermitPool::give_up`] with the same keys.
    pub(crate) fn take_requests(&self, now: u64) -> Vec<PermitRequest> {
        let accounts = &mut *self.accounts();
        let batch = self.batch();
        let Accounts { wanting, by_key, .. } = accounts;
        let mut requests = Vec::new();
        for key in wanting.drain(..) {
            let Some(account) = by_key.get_mut(&key) else { continue };
            account.is_queued = false;
            let ahead = if now.saturating_sub(account.used_at) < IDLE_MILLIS { batch } else { 0 };
            let wanted = ahead.saturating_add((-account.balance).max(0) as u64);
            if wanted > 0 {
                account.asked_at = Some(now);
                requests.push(PermitRequest { key: key.into_vec(), wanted, ..self.part() });
            }
        }
        requests
    }

    pub(crate) fn grant(&self, requests: &[PermitRequest], grants: &[PermitGrant], now: u64) {
        let mut accounts = self.accounts();
        let mut debts = Vec::new();
        for (request, grant) in requests.iter().zip(grants) {
            let Some(account) = accounts.by_key.get_mut(request.key.as_slice()) else { continue };
            account.asked_at = None;
            account.balance = account.balance.saturating_add(grant.granted as i64);
            account.is_short = grant.granted < request.wanted;
            if account.is_short {
                account.refused_until = now.saturating_add(grant.retry_after);
            }
            if account.balance < 0 && !account.is_short {
                // Counted since the question.
                debts.push(request.key.clone());
            }
        }
        debts.iter().for_each(|key| self.want(&mut accounts, key));
    }

    /// Notes that requests were not answered: the store is gone.
    pub(crate) fn give_up(&self, requests: &[PermitRequest]) {
        let mut accounts = self.accounts();
        for request in requests {
            if let Some(account) = accounts.by_key.get_mut(request.key.as_slice()) {
                account.asked_at = None;
            }
        }
    }
}

impl Accounts {
    /// Returns the account of a key, a new one if there is room.
    fn open(&mut self, key: &[u8], bytes_max: usize, now: u64) -> Option<&mut PermitAccount> {
        if !self.by_key.contains_key(key) {
            let bytes = key.len() + ACCOUNT_BYTES;
            if self.bytes + bytes > bytes_max {
                self.sweep(now, true);
            }
            if self.bytes + bytes > bytes_max {
                return None;
            }
            self.bytes += bytes;
            self.by_key.insert(key.into(), PermitAccount::default());
        }
        self.by_key.get_mut(key)
    }

    /// Forgets accounts that are not used, at most once a second.
    fn sweep(&mut self, now: u64, is_full: bool) {
        let pause = if is_full { 1_000 } else { IDLE_MILLIS };
        let swept_at = if is_full { &mut self.emptied_at } else { &mut self.swept_at };
        if now.saturating_sub(*swept_at) < pause {
            return;
        }
        *swept_at = now;
        let mut bytes = self.bytes;
        self.by_key.retain(|key, account| {
            let idle = if account.balance < 0 && !is_full { DEBT_MILLIS } else { IDLE_MILLIS };
            let stays = account.is_queued
                || account.asked_at.is_some()
                || account.refused_until > now
                // Forgotten, a part that is used would be there again.
                || (!is_full && account.local_until > now.saturating_mul(1000))
                || now.saturating_sub(account.used_at) < idle;
            if !stays {
                bytes -= key.len() + ACCOUNT_BYTES;
            }
            stays
        });
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn pool(rate: u64, burst: u64, loss: StoreLoss) -> PermitPool {
        let rule = PermitRule { rate: rate * 1000, burst: burst * 1000, takes_ahead: true };
        PermitPool::new("limit", rule, loss, 1 << 20, 50, Arc::new(Notify::new()))
    }

    fn event_pool(rate: u64, burst: u64, loss: StoreLoss) -> PermitPool {
        let rule = PermitRule { rate: rate * 1000, burst: burst * 1000, takes_ahead: false };
        PermitPool::new("limit", rule, loss, 1 << 20, 50, Arc::new(Notify::new()))
    }

    fn admitted(pool: &PermitPool, is_connected: bool, nodes: u64, now: u64, attempts: usize) -> usize {
        (0..attempts).filter(|_| pool.take_permit(b"k", is_connected, nodes, now) == PermitVerdict::Granted).count()
    }

    #[test]
    fn requests_are_admitted_on_credit_and_the_next_ones_by_what_was_granted() {
        let pool = pool(10, 2, StoreLoss::Local);
        assert_eq!(admitted(&pool, true, 1, NOW, 5), 3, "the burst and one: what a browser sends at once");
        let requests = pool.take_requests(NOW);
        assert_eq!(requests.iter().map(|request| request.wanted).collect::<Vec<_>>(), [4]);
        assert!(pool.take_requests(NOW).is_empty(), "asked once");
        pool.grant(&requests, &[PermitGrant { granted: 3, retry_after: 100 }], NOW);
        assert_eq!(admitted(&pool, true, 1, NOW + 99, 5), 0);
        assert_eq!(admitted(&pool, true, 1, NOW + 100, 5), 1, "after less than was wanted the credit is one");
        let requests = pool.take_requests(NOW + 100);
        pool.grant(&requests, &[PermitGrant { granted: 2, retry_after: 0 }], NOW + 100);
        assert_eq!(admitted(&pool, true, 1, NOW + 100, 9), 4, "one permit, and the credit again");
    }

    #[test]
    fn a_key_over_its_limit_asks_again_only_when_there_can_be_a_permit() {
        let pool = pool(10, 0, StoreLoss::Local);
        admitted(&pool, true, 1, NOW, 1);
        let requests = pool.take_requests(NOW);
        pool.grant(&requests, &[PermitGrant { granted: 0, retry_after: 100 }], NOW);
        assert_eq!(admitted(&pool, true, 1, NOW + 99, 50), 0);
        assert!(pool.take_requests(NOW + 99).is_empty(), "an attacker causes no work of the store");
        assert_eq!(admitted(&pool, true, 1, NOW + 100, 50), 0, "the credit is not paid back");
        let requests = pool.take_requests(NOW + 100);
        assert_eq!(requests[0].wanted, 2);
        pool.grant(&requests, &[PermitGrant { granted: 1, retry_after: 100 }], NOW + 100);
        assert_eq!(admitted(&pool, true, 1, NOW + 100, 50), 0);
        assert_eq!(admitted(&pool, true, 1, NOW + 200, 50), 1);
    }

    #[test]
    fn without_the_store_each_node_has_its_part() {
        let local = pool(10, 4, StoreLoss::Local);
        assert_eq!(admitted(&local, false, 2, NOW, 9), 3, "a burst of 2, and the first one");
        assert_eq!(admitted(&local, false, 2, NOW + 1_000, 9), 3);
        assert_eq!(admitted(&local, false, 2, NOW + 1_200, 9), 1);
        assert_eq!(admitted(&pool(10, 4, StoreLoss::Open), false, 2, NOW, 9), 9);
        assert_eq!(admitted(&pool(10, 4, StoreLoss::Deny), false, 2, NOW, 9), 0);
    }

    #[test]
    fn a_part_that_is_used_stays_used_in_a_pause() {
        let local = pool(1, 4, StoreLoss::Local);
        let rule = PermitRule { rate: 10, burst: 4_000, takes_ahead: true };
        let local = PermitPool { rule, ..local };
        assert_eq!(admitted(&local, false, 2, NOW, 9), 3, "a permit each 200 s, and a burst of 2");
        assert_eq!(admitted(&local, false, 2, NOW + 3 * IDLE_MILLIS, 9), 0);
        assert_eq!(admitted(&local, false, 2, NOW + 200_000, 9), 1);
    }

    #[test]
    fn an_answer_that_does_not_come_is_a_store_that_is_gone() {
        let pool = pool(10, 0, StoreLoss::Open);
        admitted(&pool, true, 1, NOW, 1);
        let requests = pool.take_requests(NOW);
        assert_eq!(admitted(&pool, true, 1, NOW + 50, 3), 0, "the credit is used");
        assert_eq!(admitted(&pool, true, 1, NOW + 51, 3), 3);
        pool.give_up(&requests);
        assert_eq!(pool.refused_number(), 3);
    }

    #[test]
    fn events_are_counted_behind_and_refused_when_the_store_has_no_more() {
        let pool = event_pool(1, 2, StoreLoss::Local);
        for event in 0..3 {
            assert_eq!(pool.refusal_end(b"k", true, NOW), None);
            pool.count_event(b"k", true, 1, NOW);
            let requests = pool.take_requests(NOW);
            assert_eq!(requests.iter().map(|request| request.wanted).collect::<Vec<_>>(), [1], "event {event}");
            pool.grant(&requests, &[PermitGrant { granted: 1, retry_after: 0 }], NOW);
        }
        pool.count_event(b"k", true, 1, NOW);
        pool.count_event(b"k", true, 1, NOW);
        let requests = pool.take_requests(NOW);
        assert_eq!(requests[0].wanted, 2, "events of the time of a question are in the next one");
        pool.grant(&requests, &[PermitGrant { granted: 0, retry_after: 1_000 }], NOW);
        assert_eq!(pool.refusal_end(b"k", true, NOW + 999), Some(NOW + 1_000));
        assert_eq!(pool.refusal_end(b"other", true, NOW), None);
        assert_eq!(pool.refusal_end(b"k", true, NOW + 1_000), None);
        assert_eq!(pool.refused_number(), 1);
    }

    #[test]
    fn events_during_a_question_are_asked_for_next() {
        let pool = event_pool(1, 9, StoreLoss::Local);
        pool.count_event(b"k", true, 1, NOW);
        let requests = pool.take_requests(NOW);
        pool.count_event(b"k", true, 1, NOW);
        assert!(pool.take_requests(NOW).is_empty());
        pool.grant(&requests, &[PermitGrant { granted: 1, retry_after: 0 }], NOW);
        assert_eq!(pool.take_requests(NOW).len(), 1);
    }

    #[test]
    fn events_without_the_store_are_limited_by_the_rule_of_its_loss() {
        let end = |loss, events: usize| {
            let pool = event_pool(1, 2, loss);
            (0..events).for_each(|_| pool.count_event(b"k", false, 3, NOW));
            pool.refusal_end(b"k", false, NOW)
        };
        assert_eq!(end(StoreLoss::Deny, 0), Some(NOW + 1_000));
        assert_eq!(end(StoreLoss::Open, 9), None);
        assert_eq!(end(StoreLoss::Local, 1), None, "a third of the burst, and one");
        assert!(end(StoreLoss::Local, 2).is_some_and(|end| end > NOW));
    }

    #[test]
    fn a_debt_is_remembered_until_it_is_paid() {
        let pool = event_pool(1, 0, StoreLoss::Local);
        (0..30).for_each(|_| pool.count_event(b"k", true, 1, NOW));
        let requests = pool.take_requests(NOW);
        pool.grant(&requests, &[PermitGrant { granted: 0, retry_after: 1_000 }], NOW);
        let has_account = || pool.accounts().by_key.contains_key(b"k".as_slice());
        pool.collect_debts(NOW + 999);
        assert!(pool.take_requests(NOW + 999).is_empty(), "there can be no permit yet");
        pool.collect_debts(NOW + 40_000);
        let requests = pool.take_requests(NOW + 40_000);
        assert_eq!(requests[0].wanted, 30);
        pool.grant(&requests, &[PermitGrant { granted: 29, retry_after: 1_000 }], NOW + 40_000);
        pool.refusal_end(b"k", true, NOW + 40_000);
        pool.count_event(b"other", true, 1, NOW + 60_000);
        assert!(has_account(), "one is not paid");
        pool.collect_debts(NOW + 60_000);
        let requests = pool.take_requests(NOW + 60_000);
        let all = vec![PermitGrant { granted: 1, retry_after: 0 }; requests.len()];
        pool.grant(&requests, &all, NOW + 60_000);
        pool.count_event(b"other", true, 1, NOW + 80_000);
        assert!(!has_account());
    }

    /// Three nodes that get bursts at once, with pauses in which the store's bucket is full again.
    #[test]
    fn repeated_bursts_stay_below_the_bound() {
        let (rate, burst, nodes, pause) = (1, 9, 3, 12_000);
        for pool_of in [pool as fn(u64, u64, StoreLoss) -> PermitPool, event_pool] {
            let pools: Vec<PermitPool> = (0..nodes).map(|_| pool_of(rate, burst, StoreLoss::Local)).collect();
            let (mut paid, mut total, mut now) = (0, 0, NOW);
            for _ in 0..50 {
                for pool in &pools {
                    for _ in 0..30 {
                        if pool.rule.takes_ahead {
                            total += admitted(pool, true, nodes, now, 1) as u64;
                        } else if pool.refusal_end(b"k", true, now).is_none() && total_of(pool) < burst + 1 {
                            pool.count_event(b"k", true, nodes, now);
                            total += 1;
                        }
                    }
                }
                let end = now + pause;
                while now < end {
                    for pool in &pools {
                        pool.collect_debts(now);
                        let requests = pool.take_requests(now);
                        let ask = |request: &PermitRequest| {
                            let (permit, burst) = (request.permit_micros(), request.burst_micros());
                            let (grant, until) = grant_permits(paid, now * 1000, permit, burst, request.wanted);
                            paid = until;
                            grant
                        };
                        let grants: Vec<PermitGrant> = requests.iter().map(ask).collect();
                        pool.grant(&requests, &grants, now);
                    }
                    now += 1_000;
                }
            }
            let bound = burst + 1 + rate * (now - NOW) / 1000 + nodes * pools[0].credit();
            assert!(total <= bound, "{total} of {bound}");
            assert!(total >= rate * (now - NOW) / 1000 / 2, "{total}: the rate is used");
        }
    }

    /// Events that were counted and are not paid: what the node's own bucket limits.
    fn total_of(pool: &PermitPool) -> u64 {
        pool.accounts().by_key.get(b"k".as_slice()).map_or(0, |account| (-account.balance).max(0) as u64)
    }

    #[test]
    fn memory_is_bounded() {
        let rule = PermitRule { rate: 1_000, burst: 0, takes_ahead: true };
        let pool = PermitPool::new("limit", rule, StoreLoss::Deny, 10 * 130, 50, Arc::new(Notify::new()));
        for key in 0..1_000_u32 {
            pool.take_permit(&key.to_be_bytes(), true, 1, NOW);
        }
        assert!(pool.accounts().by_key.len() <= 10);
        pool.take_requests(NOW).iter().for_each(|request| pool.give_up(std::slice::from_ref(request)));
        pool.take_permit(b"later", true, 1, NOW + 20_000);
        assert_eq!(pool.accounts().by_key.len(), 1);
    }

    #[test]
    fn all_nodes_together_stay_below_the_bound() {
        let (rate, burst, nodes) = (200, 20, 3);
        let pools: Vec<PermitPool> = (0..nodes).map(|_| pool(rate, burst, StoreLoss::Local)).collect();
        let (mut until, mut total) = (0, 0);
        let mut random = testkit::Random::new(5);
        let mut waiting: Vec<(u64, usize, Vec<PermitRequest>)> = Vec::new();
        let millis = 5_000;
        for now in NOW..NOW + millis {
            for (index, pool) in pools.iter().enumerate() {
                total += admitted(pool, true, nodes, now, random.below(3_usize));
                let requests = pool.take_requests(now);
                if !requests.is_empty() {
                    waiting.push((now + random.below(10_u64), index, requests));
                }
            }
            waiting.retain(|(at, index, requests)| {
                if *at > now {
                    return true;
                }
                let grants: Vec<PermitGrant> = requests
                    .iter()
                    .map(|request| {
                        let (grant, next) = grant_permits(
                            until,
                            now * 1000,
                            request.permit_micros(),
                            request.burst_micros(),
                            request.wanted,
                        );
                        until = next;
                        grant
                    })
                    .collect();
                pools[*index].grant(requests, &grants, now);
                false
            });
        }
        let bound = burst + 1 + rate * millis / 1000 + nodes * pools[0].credit();
        assert!(total as u64 <= bound, "{total} of {bound}");
        assert!(total as u64 >= rate * millis / 1000 * 9 / 10, "{total}: the rate is used");
    }
}
