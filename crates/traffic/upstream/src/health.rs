//! Outlier ejection and retry budget, beyond nginx's `max_fails`; no I/O, and time as an argument.

use crate::group::Group;
use crate::peer::Peer;
use base::clock::Instant;
use std::sync::{Arc, Mutex, PoisonError};

/// `outlier_ejection`: temporarily excludes servers with many errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Consecutive errors; 0: disabled.
    pub errors: u32,
    /// Percentage of errors among at least `requests` of a window; 0: disabled.
    pub rate: u32,
    /// Least number of requests in a window for `rate` to apply.
    pub requests: u32,
    /// Length of the window in milliseconds.
    pub window_ms: u64,
    /// First exclusion in milliseconds; repeated ones grow by as much, up to tenfold.
    pub time_ms: u64,
    /// Percentage of the group that may be excluded.
    pub share: u32,
}

impl Default for Ejection {
    fn default() -> Self {
        Ejection { errors: 5, rate: 0, requests: 20, window_ms: 10_000, time_ms: 30_000, share: 50 }
    }
}

const EJECTIONS_MAX: u32 = 10;

/// An exclusion that has just begun, for the error log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectedPeer {
    /// Its duration in milliseconds.
    pub for_ms: u64,
    /// Errors in the window.
    pub errors: u32,
    /// Requests in the window.
    pub of: u32,
}

impl Group {
    /// Returns a resulting ejection.
    pub fn judge(&self, peer: &Peer, bad: bool, now: Instant) -> Option<EjectedPeer> {
        let rule = self.extras.ejection?;
        let out = peer.with_state(|s| {
            if now.millis_since(s.window) >= rule.window_ms || s.window.0 == 0 {
                // Forgets the past after a quiet time as long as the longest exclusion.
                if now.millis_since(s.window) >= rule.time_ms.saturating_mul(u64::from(EJECTIONS_MAX)) {
                    s.ejections = 0;
                }
                (s.window, s.seen, s.bad) = (now, 0, 0);
            }
            s.seen = s.seen.saturating_add(1);
            if !bad {
                s.row = 0;
                return None;
            }
            s.bad = s.bad.saturating_add(1);
            s.row = s.row.saturating_add(1);
            let by_row = rule.errors > 0 && s.row >= rule.errors;
            let by_rate = rule.rate > 0
                && s.seen >= rule.requests
                && u64::from(s.bad) * 100 >= u64::from(rule.rate) * u64::from(s.seen);
            (by_row || by_rate).then_some((s.bad, s.seen, s.ejections))
        });
        let (errors, of, times) = out?;
        // Serialized, so that two ejections do not each take the last place.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let members = self.members();
        let aside = members.all().filter(|p| p.is_ejected(now)).count();
        if peer.is_ejected(now) || (aside + 1) * 100 > members.all().count() * rule.share as usize {
            return None;
        }
        let for_ms = rule.time_ms.saturating_mul(u64::from((times + 1).min(EJECTIONS_MAX)));
        peer.with_state(|s| {
            s.ejections = times.saturating_add(1);
            (s.row, s.seen, s.bad) = (0, 0, 0);
        });
        peer.eject(now, now.plus_millis(for_ms));
        Some(EjectedPeer { for_ms, errors, of })
    }
}

/// `retry_budget`: share of requests that may be retried.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Percentage of the last ten seconds' requests.
    pub share: u32,
    /// Retries per second that are always allowed.
    pub least: u32,
    counts: Arc<Mutex<HealthCounts>>,
}

/// Counted for the share.
const SECONDS: usize = 10;

#[derive(Debug, Default)]
struct HealthCounts {
    second: u64,
    requests: [u32; SECONDS],
    retries: [u32; SECONDS],
}

impl HealthCounts {
    fn turn(&mut self, now: Instant) -> usize {
        let second = now.0 / 1_000_000;
        let passed = second.saturating_sub(self.second).min(SECONDS as u64);
        for step in 0..passed {
            let at = ((second - step) % SECONDS as u64) as usize;
            (self.requests[at], self.retries[at]) = (0, 0);
        }
        self.second = self.second.max(second);
        (self.second % SECONDS as u64) as usize
    }
}

impl Budget {
    /// Creates a budget with empty counts. Clones share them.
    pub fn new(share: u32, least: u32) -> Budget {
        Budget { share, least, counts: Arc::default() }
    }
    /// Counts a request.
    pub fn request(&self, now: Instant) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let at = counts.turn(now);
        counts.requests[at] = counts.requests[at].saturating_add(1);
    }
    /// Counts an allowed retry.
    pub fn retry(&self, now: Instant) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let at = counts.turn(now);
        let sum = |all: &[u32]| all.iter().map(|n| u64::from(*n)).sum::<u64>();
        let (requests, retries) = (sum(&counts.requests), sum(&counts.retries));
        let allowed = (requests * u64::from(self.share) / 100).max(u64::from(self.least) * SECONDS as u64);
        if retries >= allowed {
            return false;
        }
        counts.retries[at] = counts.retries[at].saturating_add(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::BalanceMethod;
    use crate::group::{Extras, ServerLine, ServerSource};
    use crate::keep_alive::KeepAlive;
    use crate::peer::PeerSpec;
    use net::Address;

    fn group(name: &str, servers: u16, rule: Ejection) -> Group {
        let line = |i| {
            let address = Address::Ip(([127, 0, 0, 1], 9000 + i).into());
            ServerLine { spec: PeerSpec::new("s", address.clone()), source: ServerSource::Fixed(vec![address]) }
        };
        let extras = Extras { ejection: Some(rule), ..Extras::default() };
        Group::with(
            name,
            (0..servers).map(line).collect(),
            BalanceMethod::RoundRobin,
            KeepAlive::default(),
            true,
            extras,
        )
    }

    #[test]
    fn errors_in_a_row_put_a_server_aside_for_longer_each_time() {
        let g = group("row", 4, Ejection { errors: 2, ..Ejection::default() });
        let peer = g.members().primary[0].clone();
        let mut now = Instant(1_000_000);
        for round in 1..=3 {
            assert_eq!(g.judge(&peer, true, now), None);
            assert_eq!(g.judge(&peer, false, now), None, "a good answer between");
            assert_eq!(g.judge(&peer, true, now), None);
            let ejected = g.judge(&peer, true, now).unwrap();
            assert_eq!((ejected.for_ms, peer.is_ejected(now)), (30_000 * round, true));
            now = now.plus_millis(ejected.for_ms);
            assert!(!peer.is_ejected(now));
        }
    }

    #[test]
    fn a_share_of_errors_counts_and_a_share_of_servers_stays() {
        let rule = Ejection { errors: 0, rate: 50, requests: 4, share: 50, ..Ejection::default() };
        let g = group("rate", 3, rule);
        let members = g.members();
        let now = Instant(1_000_000);
        let spoil = |i: usize| {
            let answers = [false, true, false, true].map(|bad| g.judge(&members.primary[i], bad, now));
            answers.iter().any(Option::is_some)
        };
        assert!(spoil(0));
        assert!(!spoil(1), "one of three is aside: a second one would be more than half");
        let late = now.plus_millis(60_000);
        assert_eq!(g.judge(&members.primary[2], true, late), None, "too few in this window");
    }

    #[test]
    fn budgets_limit_failures() {
        let budget = Budget::new(20, 1);
        let mut now = Instant(50_000_000);
        (0..100).for_each(|_| budget.request(now));
        assert_eq!((0..50).filter(|_| budget.retry(now)).count(), 20);
        now = now.plus_millis(20_000);
        assert_eq!((0..50).filter(|_| budget.retry(now)).count(), 10, "the least, once all is forgotten");
    }
}
