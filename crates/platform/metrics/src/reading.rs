//! Values of zones and of the process for the API, typed by their rows, since the last reset.

use crate::cells::{self, WIDTH, floor};
use crate::process;
use crate::table::{BUCKETS, Counter, Gauge, Histogram, MetricTable};
use crate::zone::{self, Cells, Reset};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

/// A zone's values: counters and histograms since the last reset, gauges as they are.
pub struct Reading<S> {
    pub labels: Vec<String>,
    sums: Vec<u64>,
    before: Vec<u64>,
    codes: BTreeMap<u16, u64>,
    of: PhantomData<fn() -> S>,
}

/// Counts by bucket, the last one unbounded, and the sum in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    pub buckets: Vec<u64>,
    pub sum: u64,
}

impl Times {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl<S: MetricTable> Reading<S> {
    pub(crate) fn of(cells: &Cells) -> Reading<S> {
        let Reset { sums: before, codes: old } = locked(&cells.reset).clone().unwrap_or_default();
        let mut codes = cells.codes();
        for (code, count) in old {
            if let Some(now) = codes.get_mut(&code) {
                *now = now.saturating_sub(count);
            }
        }
        codes.retain(|_, count| *count > 0);
        Reading { labels: cells.labels.to_vec(), sums: cells.sums(), before, codes, of: PhantomData }
    }
    fn since(&self, at: usize) -> u64 {
        let now = self.sums.get(at).copied().unwrap_or_default();
        now.saturating_sub(self.before.get(at).copied().unwrap_or_default())
    }
    pub fn count(&self, counter: Counter<S>) -> u64 {
        (counter.at..counter.at + counter.width).map(|at| self.since(at)).sum()
    }
    /// Returns the count of a counter's label value, by its index.
    pub fn count_at(&self, counter: Counter<S>, index: usize) -> u64 {
        if index < counter.width { self.since(counter.at + index) } else { 0 }
    }
    pub fn level(&self, gauge: Gauge<S>) -> u64 {
        floor(self.sums.get(gauge.at).copied().unwrap_or_default())
    }
    pub fn times(&self, histogram: Histogram<S>) -> Times {
        let buckets = (0..BUCKETS).map(|bucket| self.since(histogram.bucket_at(bucket))).collect();
        Times { buckets, sum: self.since(histogram.sum_at()) }
    }
    /// Without codes that did not occur.
    pub fn codes(&self) -> &BTreeMap<u16, u64> {
        &self.codes
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn reset(cells: &Cells) {
    let now = Reset { sums: cells.sums(), codes: cells.codes() };
    *locked(&cells.reset) = Some(now);
}

/// Sorted by their labels.
pub fn zone_readings<S: MetricTable>() -> Vec<Reading<S>> {
    zone::all().iter().filter(|cells| cells.set.name == S::SET.name).map(|cells| Reading::of(cells)).collect()
}

/// Resets the zones of a set with these labels; tells whether there are any.
pub fn reset_zones<S: MetricTable>(labels: &[&str]) -> bool {
    let of = |cells: &Cells| cells.set.name == S::SET.name && cells.labels.iter().eq(labels);
    let all = zone::all();
    let found: Vec<_> = all.iter().filter(|cells| of(cells)).collect();
    found.iter().for_each(|cells| reset(cells));
    !found.is_empty()
}

/// At their last reset.
static RESET: Mutex<[u64; WIDTH]> = Mutex::new([0; WIDTH]);

impl Counter<process::Of> {
    /// Since the last [`Counter::reset`].
    pub fn since_reset(self) -> u64 {
        (0..self.width).map(|index| self.since_reset_at(index)).sum()
    }
    /// As [`Counter::since_reset`], of a label's value.
    pub fn since_reset_at(self, index: usize) -> u64 {
        let at = self.at + index.min(self.width - 1);
        self.sum_at(index).saturating_sub(locked(&RESET).get(at).copied().unwrap_or_default())
    }
    pub fn reset(self) {
        for index in 0..self.width {
            let sum = self.sum_at(index);
            if let Some(cell) = locked(&RESET).get_mut(self.at + index) {
                *cell = sum;
            }
        }
    }
}

impl Histogram<process::Of> {
    /// Never reset.
    pub fn times(self) -> Times {
        let sums = cells::sums();
        let cell = |at: usize| sums.get(at).copied().unwrap_or_default();
        Times { buckets: (0..BUCKETS).map(|bucket| cell(self.bucket_at(bucket))).collect(), sum: cell(self.sum_at()) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    pub accepted: u64,
    pub handled: u64,
    pub active: u64,
    pub waiting: u64,
    pub requests: u64,
    /// Requests that have not ended.
    pub current: u64,
    /// Time of the event loop outside of its waiting call, in microseconds. Never reset, as the two below.
    pub busy_micros: u64,
    pub turns: u64,
    /// Turns longer than 1 ms.
    pub long_turns: u64,
}

/// Counts of worker threads at their last reset, by the number of the thread.
static WORKERS_RESET: Mutex<BTreeMap<usize, WorkerCounts>> = Mutex::new(BTreeMap::new());

/// Returns the counts of the worker threads that serve, by number. A thread that replaces an ended one continues its
/// counts.
pub fn worker_counts() -> BTreeMap<usize, WorkerCounts> {
    let mut all = counts_of_workers();
    let reset = locked(&WORKERS_RESET);
    for (number, counts) in &mut all {
        let before = reset.get(number).copied().unwrap_or_default();
        counts.accepted = counts.accepted.saturating_sub(before.accepted);
        counts.handled = counts.handled.saturating_sub(before.handled);
        counts.requests = counts.requests.saturating_sub(before.requests);
    }
    all
}

/// Resets a worker thread's counts, or those of all; tells whether there is such a thread.
pub fn reset_workers(only: Option<usize>) -> bool {
    let all: Vec<_> = counts_of_workers().into_iter().filter(|(n, _)| only.is_none_or(|only| only == *n)).collect();
    let found = !all.is_empty();
    locked(&WORKERS_RESET).extend(all);
    found
}

fn counts_of_workers() -> BTreeMap<usize, WorkerCounts> {
    cells::of_workers(|sum, level| {
        let active = level(process::CONNECTIONS_ACTIVE);
        let busy = level(process::CONNECTIONS_READING) + level(process::CONNECTIONS_WRITING);
        let requests = sum(process::HTTP_REQUESTS);
        let ended = sum(process::HTTP_RESPONSES) + sum(process::HTTP_DISCARDED);
        WorkerCounts {
            accepted: sum(process::CONNECTIONS_ACCEPTED),
            handled: sum(process::CONNECTIONS_HANDLED),
            active,
            waiting: active.saturating_sub(busy),
            requests,
            current: requests.saturating_sub(ended),
            busy_micros: sum(process::LOOP_BUSY),
            turns: sum(process::LOOP_TURNS),
            long_turns: sum(process::LOOP_TURNS_LONG),
        }
    })
}
