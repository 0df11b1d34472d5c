//! The last hour in numbers: 5 minutes by the second, an hour by 10 seconds. The control thread samples the metrics
//! while a configuration has a dashboard.

use base::clock::{self, Instant};
use http_engine::HttpPlan;
use http_engine::handler::LocalFuture;
use http_engine::plan::Background;
use metrics::{BOUNDS_MICROS, WorkerCounts, process};
use observe::ErrorLog;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    Requests,
    InFlight,
    Connections,
    Reading,
    Writing,
    Waiting,
    ClientErrors,
    ServerErrors,
    /// Times of upstream servers' responses over 10 s, in milliseconds; not a number without responses.
    P50,
    P95,
    P99,
    Received,
    Sent,
    /// Share of their time that the worker threads were busy.
    Busy,
    LongTurns,
    Memory,
    UpstreamRequests,
    UpstreamFailures,
    Handshakes,
    Sessions,
}

pub const SERIES: usize = Series::Sessions as usize + 1;
/// Samples by the second.
const FINE: usize = 300;
/// Samples by 10 seconds.
const COARSE: usize = 360;
const FINE_A_COARSE: u16 = 10;
pub const POINTS: usize = 60;
const BUCKETS: usize = BOUNDS_MICROS.len() + 1;
/// Seconds of response times kept for [`View::minute`].
const TIMES_KEPT: usize = 60;
/// Seconds over which present values are averaged.
const PRESENT: usize = 5;
/// After a longer pause without samples the history begins anew.
const GAP: Duration = Duration::from_secs(10);

type HistorySample = [f32; SERIES];

/// A ring of samples in memory that is allocated once.
struct Ring {
    samples: Box<[HistorySample]>,
    count: usize,
}

impl Ring {
    fn new(size: usize) -> Ring {
        Ring { samples: vec![[0.0; SERIES]; size].into(), count: 0 }
    }
    fn push(&mut self, sample: HistorySample) {
        let at = self.count % self.samples.len().max(1);
        if let Some(slot) = self.samples.get_mut(at) {
            *slot = sample;
        }
        self.count += 1;
    }
    /// Oldest first.
    fn iter(&self) -> impl DoubleEndedIterator<Item = &HistorySample> {
        let size = self.samples.len().max(1);
        let kept = self.count.min(size);
        (self.count - kept..self.count).filter_map(move |index| self.samples.get(index % size))
    }
}

/// Counters, whose differences are recorded.
#[derive(Clone)]
struct HistoryCounts {
    at: Instant,
    requests: u64,
    client_errors: u64,
    server_errors: u64,
    received: u64,
    sent: u64,
    long_turns: u64,
    upstream_requests: u64,
    upstream_failures: u64,
    handshakes: u64,
    times: Vec<u64>,
    workers: BTreeMap<usize, WorkerCounts>,
}

impl HistoryCounts {
    fn now() -> HistoryCounts {
        HistoryCounts {
            at: clock::now(),
            requests: process::HTTP_REQUESTS.sum(),
            client_errors: process::HTTP_RESPONSES.sum_at(3),
            server_errors: process::HTTP_RESPONSES.sum_at(4),
            received: process::HTTP_RECEIVED.sum(),
            sent: process::HTTP_SENT.sum(),
            long_turns: process::LOOP_TURNS_LONG.sum(),
            upstream_requests: process::UPSTREAM_REQUESTS.sum(),
            upstream_failures: process::UPSTREAM_FAILURES.sum(),
            handshakes: process::TLS_HANDSHAKES.sum(),
            times: process::UPSTREAM_RESPONSE.times().buckets,
            workers: metrics::worker_counts(),
        }
    }
}

struct History {
    fine: Ring,
    coarse: Ring,
    /// Sums and numbers of the samples since the last one of `coarse`.
    pending: [(f32, u16); SERIES],
    pended: u16,
    /// Response times by bucket, of the last seconds.
    times: VecDeque<[u32; BUCKETS]>,
    last: Option<HistoryCounts>,
    /// The counts of worker threads for the last seconds.
    workers: VecDeque<(Instant, BTreeMap<usize, WorkerCounts>)>,
}

static HISTORY: Mutex<Option<Box<History>>> = Mutex::new(None);

fn history() -> MutexGuard<'static, Option<Box<History>>> {
    HISTORY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl History {
    fn new() -> History {
        History {
            fine: Ring::new(FINE),
            coarse: Ring::new(COARSE),
            pending: [(0.0, 0); SERIES],
            pended: 0,
            times: VecDeque::with_capacity(TIMES_KEPT),
            last: None,
            workers: VecDeque::with_capacity(PRESENT + 1),
        }
    }

    fn take(&mut self, now: HistoryCounts) {
        if self.last.as_ref().is_some_and(|last| now.at.micros_since(last.at) > GAP.as_micros() as u64) {
            *self = History::new();
        }
        if self.workers.len() > PRESENT {
            self.workers.pop_front();
        }
        self.workers.push_back((now.at, now.workers.clone()));
        if let Some(last) = self.last.replace(now.clone()) {
            let seconds = (now.at.micros_since(last.at) as f32 / 1e6).max(0.001);
            let sample = self.sample(&last, &now, seconds);
            self.push(sample);
        }
    }

    fn sample(&mut self, last: &HistoryCounts, now: &HistoryCounts, seconds: f32) -> HistorySample {
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f32 / seconds;
        let mut spent = [0_u32; BUCKETS];
        for (spent, (now, last)) in spent.iter_mut().zip(now.times.iter().zip(&last.times)) {
            *spent = u32::try_from(now.saturating_sub(*last)).unwrap_or(u32::MAX);
        }
        if self.times.len() >= TIMES_KEPT {
            self.times.pop_front();
        }
        self.times.push_back(spent);
        let recent = joined(self.times.iter().rev().take(10));
        let quantile = |share| bucket_quantile(&recent, share).map_or(f32::NAN, |ms| ms as f32);
        let busy: u64 = shares(&last.workers, &now.workers).map(|(_, _, busy)| busy).sum();
        let threads = now.workers.len().max(1) as f32;
        let ended = process::HTTP_RESPONSES.sum() + process::HTTP_DISCARDED.sum();
        let active = process::CONNECTIONS_ACTIVE.sum();
        let (reading, writing) = (process::CONNECTIONS_READING.sum(), process::CONNECTIONS_WRITING.sum());
        let mut sample = [0.0; SERIES];
        let mut put = |series: Series, value: f32| {
            if let Some(slot) = sample.get_mut(series as usize) {
                *slot = value;
            }
        };
        put(Series::Requests, rate(last.requests, now.requests));
        put(Series::InFlight, now.requests.saturating_sub(ended) as f32);
        put(Series::Connections, active as f32);
        put(Series::Reading, reading as f32);
        put(Series::Writing, writing as f32);
        put(Series::Waiting, active.saturating_sub(reading + writing) as f32);
        put(Series::ClientErrors, rate(last.client_errors, now.client_errors));
        put(Series::ServerErrors, rate(last.server_errors, now.server_errors));
        put(Series::P50, quantile(0.5));
        put(Series::P95, quantile(0.95));
        put(Series::P99, quantile(0.99));
        put(Series::Received, rate(last.received, now.received));
        put(Series::Sent, rate(last.sent, now.sent));
        put(Series::Busy, (busy as f32 / 1e6 / seconds / threads).min(1.0));
        put(Series::LongTurns, rate(last.long_turns, now.long_turns));
        put(Series::Memory, net::process::resident_bytes().map_or(f32::NAN, |bytes| bytes as f32));
        put(Series::UpstreamRequests, rate(last.upstream_requests, now.upstream_requests));
        put(Series::UpstreamFailures, rate(last.upstream_failures, now.upstream_failures));
        put(Series::Handshakes, rate(last.handshakes, now.handshakes));
        put(Series::Sessions, (process::STREAM_SESSIONS.sum() + process::MAIL_SESSIONS.sum()) as f32);
        sample
    }

    fn push(&mut self, sample: HistorySample) {
        self.fine.push(sample);
        for ((sum, count), value) in self.pending.iter_mut().zip(sample) {
            if value.is_finite() {
                (*sum, *count) = (*sum + value, *count + 1);
            }
        }
        self.pended += 1;
        if self.pended >= FINE_A_COARSE {
            let pending = std::mem::replace(&mut self.pending, [(0.0, 0); SERIES]);
            self.pended = 0;
            self.coarse.push(pending.map(|(sum, count)| if count > 0 { sum / f32::from(count) } else { f32::NAN }));
        }
    }
}

/// Threads of both counts, with the turns and the microseconds that were spent between them.
fn shares<'a>(
    before: &'a BTreeMap<usize, WorkerCounts>,
    after: &'a BTreeMap<usize, WorkerCounts>,
) -> impl Iterator<Item = (usize, u64, u64)> + 'a {
    after.iter().filter_map(|(number, now)| {
        let old = before.get(number)?;
        Some((*number, now.turns.saturating_sub(old.turns), now.busy_micros.saturating_sub(old.busy_micros)))
    })
}

fn joined<'a>(all: impl Iterator<Item = &'a [u32; BUCKETS]>) -> [u64; BUCKETS] {
    all.fold([0; BUCKETS], |mut sums, times| {
        sums.iter_mut().zip(times).for_each(|(sum, count)| *sum += u64::from(*count));
        sums
    })
}

/// Returns a quantile in milliseconds, interpolated within its bucket; the last bucket counts as its lower bound.
pub fn bucket_quantile(buckets: &[u64], share: f64) -> Option<f64> {
    let all: u64 = buckets.iter().sum();
    if all == 0 {
        return None;
    }
    let wanted = share * all as f64;
    let mut before = 0.0;
    let mut lower = 0.0;
    for (index, count) in buckets.iter().enumerate() {
        let count = *count as f64;
        let Some(upper) = BOUNDS_MICROS.get(index).map(|micros| *micros as f64 / 1000.0) else { break };
        if before + count >= wanted && count > 0.0 {
            return Some(lower + (upper - lower) * (wanted - before) / count);
        }
        (before, lower) = (before + count, upper);
    }
    Some(lower)
}

/// Period of the drawn lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistorySpan {
    #[default]
    Minutes,
    Hour,
}

impl HistorySpan {
    pub fn words(self) -> &'static str {
        match self {
            HistorySpan::Minutes => "last 5 minutes",
            HistorySpan::Hour => "last hour",
        }
    }
    /// Returns the instant at which lines begin.
    pub fn begins(self) -> &'static str {
        match self {
            HistorySpan::Minutes => "5\u{a0}min ago",
            HistorySpan::Hour => "1\u{a0}h ago",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerLoad {
    pub requests: f64,
    /// Share of the time that it was busy.
    pub busy: f64,
    /// Mean length of a turn of its event loop in microseconds: how long a ready connection waits.
    pub turn_micros: f64,
    /// Turns longer than 1 ms per second.
    pub long_turns: f64,
}

#[derive(Debug, Default)]
pub struct View {
    lines: Vec<[f32; POINTS]>,
    present: Vec<f32>,
    /// Response times of upstream servers within a minute, by bucket.
    pub minute: Vec<u64>,
    /// Responses with 5xx within a minute, and all requests.
    pub failed: (f64, f64),
    pub workers: BTreeMap<usize, WorkerLoad>,
}

impl View {
    /// Returns `None` for an unknown value.
    pub fn now(&self, series: Series) -> Option<f64> {
        self.present.get(series as usize).copied().filter(|value| value.is_finite()).map(f64::from)
    }
    /// Returns the points of a line, oldest first; not a number where nothing is known.
    pub fn line(&self, series: Series) -> &[f32] {
        self.lines.get(series as usize).map(<[f32; POINTS]>::as_slice).unwrap_or_default()
    }
}

fn mean(values: impl Iterator<Item = f32>) -> f32 {
    let (sum, count) = values.filter(|v| v.is_finite()).fold((0.0, 0_u16), |(sum, n), v| (sum + v, n + 1));
    if count > 0 { sum / f32::from(count) } else { f32::NAN }
}

/// Returns a copy of the history; everything is unknown before the second sample.
pub fn view_history(span: HistorySpan) -> View {
    let history = history();
    let Some(history) = history.as_deref() else { return View::default() };
    let (ring, per_point) = match span {
        HistorySpan::Minutes => (&history.fine, FINE / POINTS),
        HistorySpan::Hour => (&history.coarse, COARSE / POINTS),
    };
    let of = |sample: &HistorySample, series: usize| sample.get(series).copied().unwrap_or(f32::NAN);
    // Points end with whole groups of samples, so that a drawn point does not change.
    let newest: Vec<&HistorySample> = ring.iter().rev().skip(ring.count % per_point).collect();
    let line = |series: usize| {
        let mut points = [f32::NAN; POINTS];
        for (point, group) in points.iter_mut().rev().zip(newest.chunks(per_point)) {
            *point = mean(group.iter().map(|sample| of(sample, series)));
        }
        points
    };
    let present = |series| mean(history.fine.iter().rev().take(PRESENT).map(|sample| of(sample, series)));
    let minute = |series: Series| {
        let samples = history.fine.iter().rev().take(TIMES_KEPT);
        samples.map(|sample| f64::from(of(sample, series as usize))).sum()
    };
    let mut workers = BTreeMap::new();
    if let (Some((begun, before)), Some((ended, after))) = (history.workers.front(), history.workers.back()) {
        let seconds = (ended.micros_since(*begun) as f64 / 1e6).max(0.001);
        for (number, turns, busy) in shares(before, after) {
            let count = |read: fn(&WorkerCounts) -> u64| {
                let (old, new) = (before.get(&number).map_or(0, read), after.get(&number).map_or(0, read));
                new.saturating_sub(old) as f64 / seconds
            };
            let load = WorkerLoad {
                requests: count(|counts| counts.requests),
                busy: (busy as f64 / 1e6 / seconds).min(1.0),
                turn_micros: busy as f64 / turns.max(1) as f64,
                long_turns: count(|counts| counts.long_turns),
            };
            workers.insert(number, load);
        }
    }
    View {
        lines: (0..SERIES).map(line).collect(),
        present: (0..SERIES).map(present).collect(),
        minute: joined(history.times.iter()).to_vec(),
        failed: (minute(Series::ServerErrors), minute(Series::Requests)),
        workers,
    }
}

/// Samples while the plan serves.
pub struct Sampler;

impl Background<HttpPlan> for Sampler {
    fn run(self: Arc<Self>, _: Weak<HttpPlan>, _: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let mut next = clock::now();
            loop {
                clock::update();
                history().get_or_insert_with(|| Box::new(History::new())).take(HistoryCounts::now());
                // A late sample does not delay the next ones, and a pause is not caught up on.
                next = next.max(clock::now()).plus(Duration::from_secs(1));
                runtime::time::sleep_until(next).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: f32) -> HistorySample {
        [value; SERIES]
    }

    #[test]
    fn the_history_takes_at_most_60_kilobytes() {
        let ring = (FINE + COARSE) * size_of::<HistorySample>();
        let times = TIMES_KEPT * size_of::<[u32; BUCKETS]>();
        assert!(ring + times + size_of::<History>() <= 60_000, "{ring} + {times}");
    }

    #[test]
    fn rings_keep_the_newest_and_coarse_samples_are_means() {
        let mut history = History::new();
        for n in 0..4000_u16 {
            history.push(sample(f32::from(n)));
        }
        assert_eq!(history.fine.iter().count(), FINE);
        assert_eq!(history.fine.iter().next_back().map(|s| s[0]), Some(3999.0));
        assert_eq!(history.fine.iter().next().map(|s| s[0]), Some(3700.0));
        assert_eq!(history.coarse.iter().count(), COARSE);
        assert_eq!(history.coarse.iter().next_back().map(|s| s[0]), Some(3994.5));
    }

    #[test]
    fn unknown_values_do_not_count() {
        let mut history = History::new();
        for n in 0..10 {
            history.push(sample(if n == 3 { 7.0 } else { f32::NAN }));
        }
        assert_eq!(history.coarse.iter().next().map(|s| s[0]), Some(7.0));
        assert!(mean([f32::NAN].into_iter()).is_nan());
    }

    #[test]
    fn quantiles_are_within_their_buckets() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(bucket_quantile(&buckets, 0.5), None);
        buckets[0] = 50;
        buckets[5] = 50;
        assert_eq!(bucket_quantile(&buckets, 0.5), Some(5.0));
        assert_eq!(bucket_quantile(&buckets, 0.75), Some(87.5));
        buckets[BUCKETS - 1] = 1000;
        assert_eq!(bucket_quantile(&buckets, 0.99), Some(10_000.0));
    }
}
