//! Record of a server for the API: times, outages, health checks. Written by all threads without locks, but for outages.

use base::clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A measured time of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedRecord {
    /// Until established.
    Connect = 0,
    /// Until the head of the response.
    Header = 1,
    /// Until the first byte (stream).
    FirstByte = 2,
    /// Until the end of the response or session.
    Response = 3,
}

/// Times, outages and checks of a server.
#[derive(Debug, Default)]
pub struct History {
    /// Moving averages in microseconds plus 1; 0: unknown.
    averages: [AtomicU64; 4],
    /// Milliseconds since 1970; 0: never.
    selected: AtomicU64,
    outages: Mutex<Outages>,
    pub(crate) is_checked: AtomicBool,
    checks: AtomicU64,
    checks_failed: AtomicU64,
    unhealthy: AtomicU64,
    last_passed: AtomicBool,
    /// Time of the last check in milliseconds since 1970, and why it failed.
    last_probe: Mutex<Option<(u64, Option<String>)>>,
    /// `checks`, `checks_failed` and `unhealthy` at the last reset.
    checks_before: [AtomicU64; 3],
}

/// Times in milliseconds; instants since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    /// Start of the present or last outage; 0: none.
    pub start: u64,
    /// The outage has not ended.
    pub lasts: bool,
    /// Length of all ended outages in milliseconds.
    pub ended_ms: u64,
    /// Outages that began with failed requests.
    pub count: u64,
}

/// Counts of a server's health checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// Checks that have ended.
    pub checks: u64,
    /// Checks that have failed.
    pub fails: u64,
    /// Times that the server became unhealthy.
    pub unhealthy: u64,
    /// `None`: no check has ended.
    pub last_passed: Option<bool>,
}

impl History {
    /// Averages a time as nginx does: one twentieth is new. Simultaneous times may be lost.
    pub(crate) fn note(&self, what: TimedRecord, micros: u64) {
        let Some(cell) = self.averages.get(what as usize) else { return };
        let new = match cell.load(Ordering::Relaxed).checked_sub(1) {
            None => micros,
            Some(old) => (old.saturating_mul(19).saturating_add(micros)) / 20,
        };
        cell.store(new.saturating_add(1), Ordering::Relaxed);
    }
    /// In milliseconds.
    pub fn average_ms(&self, what: TimedRecord) -> Option<u64> {
        let micros = self.averages.get(what as usize)?.load(Ordering::Relaxed).checked_sub(1)?;
        Some(micros / 1000)
    }
    pub(crate) fn select(&self) {
        self.selected.store(clock::unix_millis(), Ordering::Relaxed);
    }
    /// In milliseconds since 1970.
    pub fn selected(&self) -> Option<u64> {
        Some(self.selected.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }
    fn with_outages<R>(&self, act: impl FnOnce(&mut Outages) -> R) -> R {
        act(&mut self.outages.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// Begins an outage, unless one lasts. `by_requests`: `max_fails` was reached, and not by health checks.
    pub(crate) fn fell(&self, by_requests: bool) {
        self.with_outages(|o| {
            if !o.lasts {
                *o =
                    Outages { start: clock::unix_millis(), lasts: true, count: o.count + u64::from(by_requests), ..*o };
            }
        });
    }
    pub(crate) fn rose(&self) {
        self.with_outages(|o| {
            if o.lasts {
                o.ended_ms += clock::unix_millis().saturating_sub(o.start);
                o.lasts = false;
            }
        });
    }
    /// Returns the outages so far.
    pub fn outages(&self) -> Outages {
        self.with_outages(|o| *o)
    }
    pub(crate) fn checked(&self, passed: bool, became_unhealthy: bool) {
        self.unhealthy.fetch_add(u64::from(became_unhealthy), Ordering::Relaxed);
        self.last_passed.store(passed, Ordering::Relaxed);
    }
    /// With the reason if it failed.
    pub fn probed(&self, failure: Option<&str>) {
        let passed = failure.is_none();
        let last = (clock::unix_millis(), failure.map(str::to_string));
        *self.last_probe.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        self.last_passed.store(passed, Ordering::Relaxed);
        self.checks_failed.fetch_add(u64::from(!passed), Ordering::Relaxed);
        self.checks.fetch_add(1, Ordering::Relaxed);
    }
    /// Returns the time of the last health check in milliseconds since 1970, and why it failed.
    pub fn last_probe(&self) -> Option<(u64, Option<String>)> {
        self.last_probe.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Since the last reset.
    pub fn checks(&self) -> CheckCounts {
        let now = [&self.checks, &self.checks_failed, &self.unhealthy].map(|count| count.load(Ordering::Relaxed));
        let mut since = now.iter().zip(&self.checks_before);
        let mut next = || since.next().map_or(0, |(now, old)| now.saturating_sub(old.load(Ordering::Relaxed)));
        let any = now.first().is_some_and(|checks| *checks > 0);
        CheckCounts {
            checks: next(),
            fails: next(),
            unhealthy: next(),
            last_passed: any.then(|| self.last_passed.load(Ordering::Relaxed)),
        }
    }
    /// Starts the counts anew. A lasting outage begins now.
    pub(crate) fn reset(&self) {
        for (before, now) in self.checks_before.iter().zip([&self.checks, &self.checks_failed, &self.unhealthy]) {
            before.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.with_outages(|o| {
            let start = if o.lasts { clock::unix_millis() } else { 0 };
            *o = Outages { start, lasts: o.lasts, ended_ms: 0, count: 0 };
        });
    }
}
