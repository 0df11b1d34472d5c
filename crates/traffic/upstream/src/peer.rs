//! A server of a group: configuration and state.

use crate::history::History;
use base::clock::Instant;
use md5::{Digest, Md5};
use metrics::{MetricZone, peer as row};
use net::Address;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Unit of weights: fine enough for `slow_start`.
pub(crate) const UNIT: i64 = 1000;

/// A `server` line for one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerSpec {
    /// Configured name, or an SRV record's: the key of consistent hashing.
    pub name: String,
    /// The server's address; a placeholder in a [`ServerLine`](crate::ServerLine).
    pub address: Address,
    /// `weight`; at least 1.
    pub weight: u32,
    /// Connections at most; 0: unlimited.
    pub max_conns: u32,
    /// 0: failures do not count.
    pub max_fails: u32,
    /// `fail_timeout` in milliseconds.
    pub fail_timeout_ms: u64,
    /// `slow_start` in milliseconds; 0: none.
    pub slow_start_ms: u64,
    /// `backup`.
    pub backup: bool,
    /// `down`.
    pub down: bool,
    /// Receives bound requests only.
    pub drain: bool,
    /// `route`, the id for `sticky`; empty: derived from the address.
    pub route: String,
}

impl PeerSpec {
    /// A server with nginx's default parameters.
    pub fn new(name: impl Into<String>, address: Address) -> PeerSpec {
        PeerSpec {
            name: name.into(),
            address,
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout_ms: 10_000,
            slow_start_ms: 0,
            backup: false,
            down: false,
            drain: false,
            route: String::new(),
        }
    }
}

/// The result of a server's health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// Unchecked, or all checks pass.
    Healthy = 0,
    /// A check has failed; the server is excluded.
    Unhealthy = 1,
    /// `mandatory`: excluded until the first check passes.
    Unknown = 2,
}

/// A server of a group. Its state outlives reloads and, in a group with a roster, changes of its parameters.
#[derive(Debug)]
pub struct Peer {
    /// Its parameters.
    pub spec: PeerSpec,
    /// Address as text: `$upstream_addr`, log lines.
    pub text: Arc<str>,
    /// Number within the group, which the API uses. Constant while the server stays; never reused.
    pub number: u64,
    /// Number of its line: equal to `number`, unless the line is a name.
    pub line: u64,
    pub(crate) id: OnceLock<String>,
    /// State that a change of parameters keeps.
    pub(crate) live: Arc<Live>,
}

/// State of a server at run time, independent of its parameters.
#[derive(Debug)]
pub struct Live {
    /// Over all threads.
    active: AtomicU64,
    checked: AtomicU8,
    /// Results by check; `checked` is the worst.
    checks: Mutex<Vec<(String, CheckState)>>,
    /// Ejected until (microseconds of the clock); 0: not.
    ejected_until: AtomicU64,
    /// `state` must be examined: there are failures.
    troubled: AtomicBool,
    state: Mutex<PeerState>,
    pub(crate) zone: OnceLock<MetricZone<metrics::peer::Of>>,
    /// Distinguishes the zones of servers with one address.
    scope: u64,
    pub(crate) history: History,
}

impl Live {
    fn new(weight: u32) -> Live {
        static SCOPES: AtomicU64 = AtomicU64::new(1);
        Live {
            active: AtomicU64::new(0),
            checked: AtomicU8::new(0),
            checks: Mutex::default(),
            ejected_until: AtomicU64::new(0),
            troubled: AtomicBool::new(false),
            state: Mutex::new(PeerState { effective: i64::from(weight), ..PeerState::default() }),
            zone: OnceLock::new(),
            scope: SCOPES.fetch_add(1, Ordering::Relaxed),
            history: History::default(),
        }
    }
    /// Returns the connections in use, over all threads.
    pub fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerState {
    /// Weight, reduced by failures (nginx: `effective_weight`).
    pub effective: i64,
    /// Failures within `fail_timeout` (nginx: `fails`).
    pub fails: u32,
    /// Time of the last failure (nginx: `accessed`).
    pub accessed: Instant,
    /// Time of the last failure, or of a choice `fail_timeout` later (nginx: `checked`).
    pub checked: Instant,
    /// Averaged response times in milliseconds (`least_time`).
    pub header_time: u64,
    /// Averaged time until the end of the response, in milliseconds.
    pub response_time: u64,
    /// Unanswered requests (`least_time ... inflight`).
    pub inflight: u64,
    /// Sum of the unanswered requests' ages at `inflight_changed`, in milliseconds.
    pub inflight_last: u64,
    /// Averaged age of unanswered requests, in milliseconds.
    pub inflight_time: u64,
    /// Time of the last change of `inflight`.
    pub inflight_changed: Instant,
    /// Begin of `slow_start`; `None`: not recovering.
    pub recovered: Option<Instant>,
    /// Consecutive errors, and the current window (`outlier_ejection`).
    pub row: u32,
    /// Begin of the window.
    pub window: Instant,
    /// Requests in the window.
    pub seen: u32,
    /// Errors in the window.
    pub bad: u32,
    /// Ejections in a row, for the length of the next one.
    pub ejections: u32,
}

/// nginx's moving average of milliseconds: one twentieth is new.
pub(crate) fn average(old: u64, new: u64) -> u64 {
    if old == 0 { new } else { (old * 95 + new * 5 + 50) / 100 }
}

impl Peer {
    pub(crate) fn new(spec: PeerSpec, number: u64) -> Peer {
        let live = Arc::new(Live::new(spec.weight));
        Peer::with(spec, number, live)
    }
    /// Creates a server with the state of one that it replaces.
    pub(crate) fn with(spec: PeerSpec, number: u64, live: Arc<Live>) -> Peer {
        let text = spec.address.to_string().into();
        Peer { spec, text, number, line: number, id: OnceLock::new(), live }
    }
    /// Restarts the gradual fall and rise of the weight, after a change of parameters.
    pub(crate) fn renew_weight(&self) {
        let weight = i64::from(self.spec.weight);
        self.with_state(|s| s.effective = weight);
    }
    pub(crate) fn count(self: &Arc<Self>, group: &str) {
        let zone = self.live.zone.get_or_init(|| MetricZone::scoped(&[group, &self.text], self.live.scope));
        let peer = Arc::downgrade(self);
        zone.ask(move |values| {
            let Some(peer) = peer.upgrade() else { return };
            let spec = &peer.spec;
            let now = base::clock::now();
            values.set(row::UP, u64::from(!spec.down && !spec.drain && !peer.unavailable(now)));
            values.set(row::BACKUP, u64::from(spec.backup));
            values.set(row::WEIGHT, u64::from(spec.weight));
        });
    }
    /// Returns the counters of the server, if its group has them (`zone`).
    pub fn zone(&self) -> Option<&MetricZone<metrics::peer::Of>> {
        self.live.zone.get()
    }
    /// Returns the connections in use, over all threads.
    pub fn active(&self) -> u64 {
        self.live.active()
    }
    pub(crate) fn enter(&self) {
        self.live.active.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn leave(&self) {
        self.live.active.fetch_sub(1, Ordering::Relaxed);
    }
    /// Returns times, outages and checks.
    pub fn history(&self) -> &History {
        &self.live.history
    }
    /// Id for `sticky`: its route, or the MD5 of its address.
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| match self.spec.route.as_str() {
            "" => Md5::digest(self.text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect(),
            route => route.to_string(),
        })
    }
    pub(crate) fn with_state<R>(&self, f: impl FnOnce(&mut PeerState) -> R) -> R {
        // Only checked arithmetic runs under the lock: a poisoned state is usable.
        let mut state = self.live.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let done = f(&mut state);
        let is_whole = state.effective >= i64::from(self.spec.weight);
        self.live.troubled.store(state.fails > 0 || !is_whole || state.recovered.is_some(), Ordering::Relaxed);
        done
    }
    /// Tells whether failures or recovery affect it; otherwise choices take no lock.
    #[inline]
    pub(crate) fn is_troubled(&self) -> bool {
        self.live.troubled.load(Ordering::Relaxed)
    }
    /// Gain in a step of round robin: weight reduced by failures and `slow_start`.
    pub(crate) fn gain(&self, now: Instant) -> i64 {
        let weight = i64::from(self.spec.weight);
        if !self.is_troubled() {
            return weight * UNIT;
        }
        self.with_state(|s| {
            let gain = match self.share(s, now) {
                None => s.effective * UNIT,
                Some((part, whole)) => (s.effective * UNIT).saturating_mul(part as i64) / whole as i64,
            };
            if s.effective < weight {
                s.effective += 1;
            }
            gain
        })
    }
    /// Returns `true` if the server became unavailable.
    pub(crate) fn failed(&self, now: Instant) -> bool {
        let spec = &self.spec;
        self.with_state(|s| {
            s.fails = s.fails.saturating_add(1);
            s.accessed = now;
            s.checked = now;
            if let Some(share) = spec.weight.checked_div(spec.max_fails) {
                s.effective = (s.effective - i64::from(share)).max(0);
            }
            let is_out = spec.max_fails > 0 && s.fails >= spec.max_fails;
            if is_out {
                self.live.history.fell(true);
            }
            is_out
        })
    }
    pub(crate) fn succeeded(&self, now: Instant) {
        if !self.is_troubled() {
            return;
        }
        self.with_state(|s| {
            if s.accessed < s.checked {
                if self.spec.max_fails > 0 && s.fails >= self.spec.max_fails {
                    s.recovered = Some(now);
                    if self.checks_say() == CheckState::Healthy {
                        self.live.history.rose();
                    }
                }
                s.fails = 0;
            }
        });
    }
    /// Tells whether `max_conns` is reached.
    pub fn full(&self) -> bool {
        self.spec.max_conns > 0 && self.active() >= u64::from(self.spec.max_conns)
    }
    /// Tells whether no health check excludes the server, and it is not ejected.
    pub fn sound(&self, now: Instant) -> bool {
        self.live.checked.load(Ordering::Relaxed) == CheckState::Healthy as u8
            && self.live.ejected_until.load(Ordering::Relaxed) <= now.0
    }
    /// Tells whether `outlier_ejection` excludes the server.
    pub fn is_ejected(&self, now: Instant) -> bool {
        self.live.ejected_until.load(Ordering::Relaxed) > now.0
    }
    pub(crate) fn eject(&self, now: Instant, until: Instant) {
        self.live.ejected_until.store(until.0, Ordering::Relaxed);
        self.with_state(|s| s.recovered = Some(until.max(now)));
    }
    fn with_checks<R>(&self, f: impl FnOnce(&mut Vec<(String, CheckState)>) -> R) -> R {
        let mut checks = self.live.checks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let done = f(&mut checks);
        let says = |wanted: CheckState| checks.iter().any(|(_, found)| *found == wanted);
        let worst = match () {
            () if says(CheckState::Unhealthy) => CheckState::Unhealthy,
            () if says(CheckState::Unknown) => CheckState::Unknown,
            () => CheckState::Healthy,
        };
        let before = self.live.checked.swap(worst as u8, Ordering::Relaxed);
        match (before == CheckState::Healthy as u8, worst == CheckState::Healthy) {
            (true, false) => self.live.history.fell(false),
            (false, true) => self.live.history.rose(),
            _ => {}
        }
        done
    }
    /// Starts a check; `mandatory` excludes the server until it passes, unless `persistent` and passed under an earlier
    /// configuration.
    pub fn begin_check(&self, name: &str, mandatory: bool, persistent: bool) {
        self.live.history.is_checked.store(true, Ordering::Relaxed);
        self.with_checks(|checks| {
            let known = checks.iter_mut().find(|(known, _)| known == name);
            let start = if mandatory { CheckState::Unknown } else { CheckState::Healthy };
            match known {
                Some((_, found)) if mandatory && !persistent => *found = start,
                Some(_) => {}
                None => checks.push((name.to_string(), start)),
            }
        });
    }
    /// Forgets the results of checks that the configuration no longer has.
    pub fn keep_checks(&self, names: &[&str]) {
        self.with_checks(|checks| checks.retain(|(name, _)| names.contains(&name.as_str())));
    }
    /// Returns `true` if the result changed.
    pub fn check(&self, name: &str, found: CheckState, now: Instant) -> bool {
        let before = self.checks_say();
        let news = self.with_checks(|checks| match checks.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => std::mem::replace(known, found) != found,
            // From a replaced configuration.
            None => false,
        });
        let after = self.checks_say();
        self.live.history.checked(found == CheckState::Healthy, after == CheckState::Unhealthy && before != after);
        if after == CheckState::Healthy && before == CheckState::Unhealthy {
            self.with_state(|s| {
                s.recovered = Some(now);
                s.fails = 0;
            });
        }
        news
    }
    /// Returns the worst result of the server's checks.
    pub fn checks_say(&self) -> CheckState {
        match self.live.checked.load(Ordering::Relaxed) {
            0 => CheckState::Healthy,
            1 => CheckState::Unhealthy,
            _ => CheckState::Unknown,
        }
    }
    /// Tells whether `max_fails` was reached within `fail_timeout`.
    pub fn failing(&self, now: Instant) -> bool {
        let spec = &self.spec;
        spec.max_fails > 0
            && self.is_troubled()
            && self.with_state(|s| {
                s.fails >= spec.max_fails && now.millis_since(s.checked) <= spec.fail_timeout_ms && s.checked.0 > 0
            })
    }
    /// Tells whether the server cannot be chosen: full, unhealthy, ejected or failing.
    pub fn unavailable(&self, now: Instant) -> bool {
        self.full() || !self.sound(now) || self.failing(now)
    }
    /// Fraction of its weight during slow start.
    pub(crate) fn share(&self, s: &mut PeerState, now: Instant) -> Option<(u64, u64)> {
        let whole = self.spec.slow_start_ms;
        let since = s.recovered.filter(|_| whole > 0)?;
        let part = now.millis_since(since);
        if part >= whole {
            s.recovered = None;
            return None;
        }
        Some((part, whole))
    }
}
