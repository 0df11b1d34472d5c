//! A server of a group: what the configuration says of it, and what is known of it.

use crate::stream::Address;
use base::clock::Instant;
use md5::{Digest, Md5};
use metrics::{Zone, peer as row};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// One `server` line of an `upstream` block, for one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerSpec {
    /// As written, or as a service record names it: what consistent hashing places.
    pub name: String,
    pub address: Address,
    pub weight: u32,
    /// Connections at a time; 0: no limit.
    pub max_conns: u32,
    /// 0: failures do not count.
    pub max_fails: u32,
    pub fail_timeout_ms: u64,
    pub slow_start_ms: u64,
    pub backup: bool,
    pub down: bool,
    /// Only requests that are bound to it are passed to it.
    pub drain: bool,
    /// `route=`
    pub route: String,
}

impl PeerSpec {
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

/// What health checks say of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Nobody checks it, or the checks pass.
    Healthy = 0,
    Unhealthy = 1,
    /// `mandatory`: not asked until the first check has passed.
    Unknown = 2,
}

/// A server and its counters.
#[derive(Debug)]
pub struct Peer {
    pub spec: PeerSpec,
    /// The address as text: `$upstream_addr`, log lines.
    pub text: Arc<str>,
    id: OnceLock<String>,
    /// Connections in use, of all threads.
    pub active: AtomicU64,
    checked: AtomicU8,
    /// What each check says, by its name; `checked` is the worst of it.
    checks: Mutex<Vec<(String, Checked)>>,
    /// Put aside until then (microseconds of the clock); 0: it is not.
    ejected_until: AtomicU64,
    state: Mutex<State>,
    /// Its metrics, where its group has a `zone`.
    pub(crate) zone: OnceLock<Zone<metrics::peer::Of>>,
}

/// What balancing changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    pub current: i64,
    pub effective: i64,
    pub fails: u32,
    pub accessed: Instant,
    pub checked: Instant,
    /// Averages over time of response times (`least_time`), in milliseconds.
    pub header_time: u64,
    pub response_time: u64,
    /// Requests whose answer is still awaited (`least_time ... inflight`).
    pub inflight: u64,
    pub inflight_last: u64,
    pub inflight_time: u64,
    pub inflight_changed: Instant,
    /// When it came back: the start of its slow start.
    pub recovered: Option<Instant>,
    /// Errors in a row, and what there was in the current window (`outlier_ejection`).
    pub row: u32,
    pub window: Instant,
    pub seen: u32,
    pub bad: u32,
    pub ejections: u32,
}

/// Milliseconds averaged with nginx's weights: one part in twenty is new.
pub(crate) fn average(old: u64, new: u64) -> u64 {
    if old == 0 { new } else { (old * 95 + new * 5 + 50) / 100 }
}

impl Peer {
    pub(crate) fn new(spec: PeerSpec) -> Peer {
        let effective = i64::from(spec.weight);
        let text = spec.address.to_string().into();
        Peer {
            spec,
            text,
            id: OnceLock::new(),
            active: AtomicU64::new(0),
            checked: AtomicU8::new(0),
            checks: Mutex::default(),
            ejected_until: AtomicU64::new(0),
            state: Mutex::new(State { effective, ..State::default() }),
            zone: OnceLock::new(),
        }
    }
    /// Has it counted from now on, as one of this group.
    pub(crate) fn count(self: &Arc<Self>, group: &str) {
        self.zone.get_or_init(|| {
            let zone = Zone::named(&[group, &self.text]);
            let peer = Arc::downgrade(self);
            zone.ask(move |values| {
                let Some(peer) = peer.upgrade() else { return };
                let spec = &peer.spec;
                let now = base::clock::now();
                values.set(row::UP, u64::from(!spec.down && !spec.drain && !peer.unavailable(now)));
                values.set(row::BACKUP, u64::from(spec.backup));
                values.set(row::WEIGHT, u64::from(spec.weight));
            });
            zone
        });
    }
    /// What `sticky` calls it: its route, or the MD5 of its address.
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| match self.spec.route.as_str() {
            "" => Md5::digest(self.text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect(),
            route => route.to_string(),
        })
    }
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        // A panic while the lock is held can only come from arithmetic that is checked: the numbers stay usable.
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        f(&mut state)
    }
    /// A request to it went wrong; whether that put it out of use.
    pub(crate) fn failed(&self, now: Instant) -> bool {
        let spec = &self.spec;
        self.with(|s| {
            s.fails = s.fails.saturating_add(1);
            s.accessed = now;
            s.checked = now;
            if let Some(share) = spec.weight.checked_div(spec.max_fails) {
                s.effective = (s.effective - i64::from(share)).max(0);
            }
            spec.max_fails > 0 && s.fails >= spec.max_fails
        })
    }
    /// A request to it went well.
    pub(crate) fn succeeded(&self, now: Instant) {
        self.with(|s| {
            if s.accessed < s.checked {
                if self.spec.max_fails > 0 && s.fails >= self.spec.max_fails {
                    s.recovered = Some(now);
                }
                s.fails = 0;
            }
        });
    }
    /// Its number of connections is used up.
    pub fn full(&self) -> bool {
        self.spec.max_conns > 0 && self.active.load(Ordering::Relaxed) >= u64::from(self.spec.max_conns)
    }
    /// Health checks and `outlier_ejection` have nothing against it.
    pub fn sound(&self, now: Instant) -> bool {
        self.checked.load(Ordering::Relaxed) == Checked::Healthy as u8
            && self.ejected_until.load(Ordering::Relaxed) <= now.0
    }
    pub fn is_ejected(&self, now: Instant) -> bool {
        self.ejected_until.load(Ordering::Relaxed) > now.0
    }
    pub(crate) fn eject(&self, now: Instant, until: Instant) {
        self.ejected_until.store(until.0, Ordering::Relaxed);
        self.with(|s| s.recovered = Some(until.max(now)));
    }
    fn with_checks<R>(&self, f: impl FnOnce(&mut Vec<(String, Checked)>) -> R) -> R {
        let mut checks = self.checks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let done = f(&mut checks);
        let says = |wanted: Checked| checks.iter().any(|(_, found)| *found == wanted);
        let worst = match () {
            () if says(Checked::Unhealthy) => Checked::Unhealthy,
            () if says(Checked::Unknown) => Checked::Unknown,
            () => Checked::Healthy,
        };
        self.checked.store(worst as u8, Ordering::Relaxed);
        done
    }
    /// A check is about to begin: `mandatory` keeps the server out until it has passed, unless `persistent` and an earlier
    /// configuration's did.
    pub fn begin_check(&self, name: &str, mandatory: bool, persistent: bool) {
        self.with_checks(|checks| {
            let known = checks.iter_mut().find(|(known, _)| known == name);
            let start = if mandatory { Checked::Unknown } else { Checked::Healthy };
            match known {
                Some((_, found)) if mandatory && !persistent => *found = start,
                Some(_) => {}
                None => checks.push((name.to_string(), start)),
            }
        });
    }
    /// There are no other checks than these any more.
    pub fn keep_checks(&self, names: &[&str]) {
        self.with_checks(|checks| checks.retain(|(name, _)| names.contains(&name.as_str())));
    }
    /// What a check has found; whether that is news.
    pub fn check(&self, name: &str, found: Checked, now: Instant) -> bool {
        let before = self.checks_say();
        let news = self.with_checks(|checks| match checks.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => std::mem::replace(known, found) != found,
            // A check of a configuration that was replaced meanwhile: it has no say any more.
            None => false,
        });
        if self.checks_say() == Checked::Healthy && before == Checked::Unhealthy {
            self.with(|s| {
                s.recovered = Some(now);
                s.fails = 0;
            });
        }
        news
    }
    pub fn checks_say(&self) -> Checked {
        match self.checked.load(Ordering::Relaxed) {
            0 => Checked::Healthy,
            1 => Checked::Unhealthy,
            _ => Checked::Unknown,
        }
    }
    /// Too many failures in too short a time.
    pub fn failing(&self, now: Instant) -> bool {
        let spec = &self.spec;
        spec.max_fails > 0
            && self.with(|s| {
                s.fails >= spec.max_fails && now.millis_since(s.checked) <= spec.fail_timeout_ms && s.checked.0 > 0
            })
    }
    /// It is not asked at the moment.
    pub fn unavailable(&self, now: Instant) -> bool {
        self.full() || !self.sound(now) || self.failing(now)
    }
    /// The share of its weight that counts while it starts slowly, as a fraction.
    pub(crate) fn share(&self, s: &mut State, now: Instant) -> Option<(u64, u64)> {
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
