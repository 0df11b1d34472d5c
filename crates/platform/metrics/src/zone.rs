//! Zones: cells of configured objects. A zone lives while a configuration refers to it; an equal zone of a new
//! configuration gets its cells.

use crate::cells::{bucket_index, change, own};
use crate::codes::Codes;
use crate::exemplar::{Exemplar, Exemplars};
use crate::lifecycle::unix_millis;
use crate::reading::Reading;
use crate::table::{BUCKETS, Counter, Gauge, Histogram, MetricSet, MetricTable, slot_of};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Cells per line: two cache lines, which are fetched as a pair.
const LINE_CELLS: usize = 16;
/// Threads whose cells are found at once; the first group has as many further ones, and each later group twice as many.
const NEAR_THREADS: usize = 16;
/// Groups for a million threads.
const GROUPS: usize = 16;

#[derive(Default)]
#[repr(align(128))]
struct CellLine([AtomicU64; LINE_CELLS]);

/// A thread's cells in a zone.
struct CellLines {
    /// The first cells, without a look at the number of lines; most counters are there.
    first: CellLine,
    rest: Box<[CellLine]>,
    codes: Codes,
    /// Allocated upon the first one.
    exemplars: OnceLock<Exemplars>,
}

impl CellLines {
    #[inline]
    fn add(&self, at: usize, by: u64) {
        let line = match at / LINE_CELLS {
            0 => Some(&self.first),
            line => self.rest.get(line - 1),
        };
        if let Some(cell) = line.and_then(|line| line.0.get(at % LINE_CELLS)) {
            change(cell, by);
        }
    }
    fn cells(&self) -> impl Iterator<Item = &AtomicU64> {
        std::iter::once(&self.first).chain(&self.rest).flat_map(|line| &line.0)
    }
}

type LineGroup = Box<[OnceLock<Box<CellLines>>]>;

/// Returns the group of a thread behind the near ones, and its place there.
const fn place(number: usize) -> (usize, usize) {
    let group = (number / NEAR_THREADS).ilog2() as usize;
    (group, number - (NEAR_THREADS << group))
}

#[cold]
fn lines_of(set: &MetricSet) -> Box<CellLines> {
    let rest = (1..set.width().div_ceil(LINE_CELLS)).map(|_| CellLine::default()).collect();
    Box::new(CellLines { first: CellLine::default(), rest, codes: Codes::default(), exemplars: OnceLock::new() })
}

/// Reads values that the owner of an object knows without counting; called when metrics are gathered.
type ValueSource = Box<dyn Fn(&mut ZoneValues<'_>) + Send + Sync>;

pub(crate) struct Cells {
    pub(crate) set: &'static MetricSet,
    pub(crate) labels: Box<[String]>,
    near: [OnceLock<Box<CellLines>>; NEAR_THREADS],
    groups: [OnceLock<LineGroup>; GROUPS],
    /// Cells of threads whose variables are being dropped. One at a time writes them.
    late: (Mutex<()>, OnceLock<Box<CellLines>>),
    /// When counting began, in milliseconds since 1970.
    pub(crate) created_ms: u64,
    source: Mutex<Option<ValueSource>>,
    /// Sums and codes at the last reset.
    pub(crate) reset: Mutex<Option<Reset>>,
}

/// Left out by later readings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reset {
    pub(crate) sums: Vec<u64>,
    pub(crate) codes: BTreeMap<u16, u64>,
}

impl Cells {
    fn new(set: &'static MetricSet, labels: Box<[String]>) -> Cells {
        Cells {
            set,
            labels,
            near: [const { OnceLock::new() }; NEAR_THREADS],
            groups: [const { OnceLock::new() }; GROUPS],
            late: (Mutex::new(()), OnceLock::new()),
            created_ms: unix_millis(),
            source: Mutex::new(None),
            reset: Mutex::new(None),
        }
    }
    /// Returns the cells of a thread; `None`: its variables are being dropped.
    #[inline]
    fn of(&self, number: usize) -> Option<&CellLines> {
        match self.near.get(number) {
            Some(lines) => Some(lines.get_or_init(|| lines_of(self.set))),
            None => self.far(number),
        }
    }
    #[cold]
    fn far(&self, number: usize) -> Option<&CellLines> {
        let (number, at) = place(number);
        let threads = || (0..NEAR_THREADS << number).map(|_| OnceLock::new()).collect();
        let group = self.groups.get(number)?.get_or_init(threads);
        Some(group.get(at)?.get_or_init(|| lines_of(self.set)))
    }
    #[cold]
    fn late(&self) -> (&CellLines, MutexGuard<'_, ()>) {
        let guard = self.late.0.lock().unwrap_or_else(PoisonError::into_inner);
        (self.late.1.get_or_init(|| lines_of(self.set)), guard)
    }
    #[inline]
    fn add(&self, at: usize, by: u64) {
        match self.of(own().number) {
            Some(lines) => lines.add(at, by),
            None => {
                let (lines, _guard) = self.late();
                lines.add(at, by);
            }
        }
    }
    /// Returns the newest exemplars of the histogram at a cell, over all threads, by bucket; empty if there are none.
    pub(crate) fn exemplars(&self, at: usize) -> Vec<Option<Exemplar>> {
        let (mut newest, first) = (Vec::new(), slot_of(self.set.rows, at));
        for exemplars in self.all_lines().filter_map(|lines| lines.exemplars.get()) {
            newest.resize(BUCKETS, None);
            for (index, known) in newest.iter_mut().enumerate() {
                *known = newer(*known, exemplars.read(first + index));
            }
        }
        newest
    }
    fn all_lines(&self) -> impl Iterator<Item = &CellLines> {
        let far = self.groups.iter().filter_map(OnceLock::get).flatten();
        self.near.iter().chain(far).chain([&self.late.1]).filter_map(OnceLock::get).map(|lines| &**lines)
    }
    /// Over all threads, without zeros.
    pub(crate) fn codes(&self) -> BTreeMap<u16, u64> {
        let mut all = BTreeMap::new();
        for lines in self.all_lines() {
            lines.codes.add_to(&mut all);
        }
        all
    }
    /// Returns the sums over all threads, cell by cell, with the source's values.
    pub(crate) fn sums(&self) -> Vec<u64> {
        let mut sums = vec![0_u64; self.set.width()];
        for lines in self.all_lines() {
            for (sum, cell) in sums.iter_mut().zip(lines.cells()) {
                *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
            }
        }
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = &*source {
            source(&mut ZoneValues { sums: &mut sums });
        }
        sums
    }
}

pub(crate) fn newer(one: Option<Exemplar>, other: Option<Exemplar>) -> Option<Exemplar> {
    [one, other].into_iter().flatten().max_by_key(|exemplar| exemplar.at_ms)
}

pub struct ZoneValues<'a> {
    sums: &'a mut [u64],
}

impl ZoneValues<'_> {
    pub fn set<S: MetricTable>(&mut self, gauge: Gauge<S>, value: u64) {
        self.set_at(gauge, 0, value);
    }
    pub fn set_at<S: MetricTable>(&mut self, gauge: Gauge<S>, index: usize, value: u64) {
        if let Some(sum) = self.sums.get_mut(gauge.at + index.min(gauge.width - 1)) {
            *sum = value;
        }
    }
    /// Sets a counter that its owner keeps.
    pub fn set_count<S: MetricTable>(&mut self, counter: Counter<S>, value: u64) {
        self.set_count_at(counter, 0, value);
    }
    pub fn set_count_at<S: MetricTable>(&mut self, counter: Counter<S>, index: usize, value: u64) {
        if let Some(sum) = self.sums.get_mut(counter.at + index.min(counter.width - 1)) {
            *sum = value;
        }
    }
    /// Sets a histogram that its owner keeps: counts by bucket, not cumulative, and the sum in microseconds.
    pub fn set_times<S: MetricTable>(&mut self, histogram: Histogram<S>, buckets: &[u64], sum: u64) {
        let cells = self.sums.iter_mut().skip(histogram.bucket_at(0)).take(BUCKETS);
        cells.zip(buckets).for_each(|(cell, count)| *cell = *count);
        if let Some(cell) = self.sums.get_mut(histogram.sum_at()) {
            *cell = sum;
        }
    }
}

/// Zones by set, labels and scope.
struct MetricZones {
    known: BTreeMap<(&'static str, Box<[String]>, u64), Weak<Cells>>,
    /// Number of entries at which those of removed zones go: a sweep for each zone would make a configuration with
    /// thousands of them quadratic.
    sweep_at: usize,
}

const SWEEP_AT_MIN: usize = 64;
static ZONES: Mutex<MetricZones> = Mutex::new(MetricZones { known: BTreeMap::new(), sweep_at: SWEEP_AT_MIN });

pub(crate) fn all() -> Vec<Arc<Cells>> {
    ZONES.lock().unwrap_or_else(PoisonError::into_inner).known.values().filter_map(Weak::upgrade).collect()
}

/// Creates this thread's cells in all zones, before requests need them; called by serving threads at start and after a
/// reload.
pub fn prepare_thread() {
    let number = own().number;
    // Workers' zones are read from other cells.
    for cells in all().iter().filter(|cells| cells.set.name != crate::worker::SET.name) {
        let _ = cells.of(number);
    }
}

pub struct MetricZone<S> {
    cells: Arc<Cells>,
    of: PhantomData<fn() -> S>,
}

impl<S> Clone for MetricZone<S> {
    fn clone(&self) -> Self {
        MetricZone { cells: self.cells.clone(), of: PhantomData }
    }
}

impl<S> std::fmt::Debug for MetricZone<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zone({} {:?})", self.cells.set.name, self.cells.labels)
    }
}

impl<S: MetricTable> MetricZone<S> {
    /// Existing or new.
    pub fn named(labels: &[&str]) -> MetricZone<S> {
        MetricZone::scoped(labels, 0)
    }
    /// Returns one of several zones with these labels. Expositions add them up.
    pub fn scoped(labels: &[&str], scope: u64) -> MetricZone<S> {
        debug_assert_eq!(labels.len(), S::SET.labels.len());
        let labels: Box<[String]> = labels.iter().map(ToString::to_string).collect();
        let mut zones = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (S::SET.name, labels.clone(), scope);
        if let Some(cells) = zones.known.get(&key).and_then(Weak::upgrade) {
            return MetricZone { cells, of: PhantomData };
        }
        if zones.known.len() >= zones.sweep_at {
            zones.known.retain(|_, cells| cells.strong_count() > 0);
            zones.sweep_at = SWEEP_AT_MIN.max(zones.known.len() * 2);
        }
        let cells = Arc::new(Cells::new(S::SET, labels));
        zones.known.insert(key, Arc::downgrade(&cells));
        MetricZone { cells, of: PhantomData }
    }
    pub fn labels(&self) -> &[String] {
        &self.cells.labels
    }
    /// Calls `source` for values when metrics are gathered. It must not hold the zone itself.
    pub fn ask(&self, source: impl Fn(&mut ZoneValues<'_>) + Send + Sync + 'static) {
        *self.cells.source.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(source));
    }
    #[inline]
    pub fn up(&self, counter: Counter<S>) {
        self.cells.add(counter.at, 1);
    }
    #[inline]
    pub fn add(&self, counter: Counter<S>, by: u64) {
        self.cells.add(counter.at, by);
    }
    /// Adds one to a label value; indices beyond the last count as the last.
    #[inline]
    pub fn up_at(&self, counter: Counter<S>, index: usize) {
        self.add_at(counter, index, 1);
    }
    #[inline]
    pub fn add_at(&self, counter: Counter<S>, index: usize, by: u64) {
        self.cells.add(counter.at + index.min(counter.width - 1), by);
    }
    /// Finds this thread's cells once, for several counts.
    #[inline]
    pub fn here(&self) -> Here<'_, S> {
        let (lines, late) = match self.cells.of(own().number) {
            Some(lines) => (lines, None),
            None => {
                let (lines, guard) = self.cells.late();
                (lines, Some(guard))
            }
        };
        Here { lines, _late: late, set: self.cells.set, of: PhantomData }
    }
    /// Since the last reset.
    pub fn reading(&self) -> Reading<S> {
        Reading::of(&self.cells)
    }
    /// Starts all readings anew. Expositions go on: their counters never decrease.
    pub fn reset(&self) {
        crate::reading::reset(&self.cells);
    }
    pub fn note(&self, histogram: Histogram<S>, micros: u64) {
        self.here().note(histogram, micros);
    }
    #[inline]
    pub fn rise(&self, gauge: Gauge<S>) {
        self.cells.add(gauge.at, 1);
    }
    /// Possibly on another thread than the increment.
    #[inline]
    pub fn down(&self, gauge: Gauge<S>) {
        self.cells.add(gauge.at, u64::MAX);
    }
    /// Increments the gauge until the lease is dropped.
    pub fn lease(&self, gauge: Gauge<S>) -> Lease {
        self.cells.add(gauge.at, 1);
        Lease { cells: self.cells.clone(), at: gauge.at }
    }
    pub fn sum(&self, counter: Counter<S>) -> u64 {
        self.cells.sums().iter().skip(counter.at).take(counter.width).fold(0, |sum, n| sum.wrapping_add(*n))
    }
    pub fn level(&self, gauge: Gauge<S>) -> u64 {
        crate::cells::floor(self.cells.sums().get(gauge.at).copied().unwrap_or_default())
    }
}

/// A thread's cells in a zone.
pub struct Here<'a, S> {
    lines: &'a CellLines,
    _late: Option<MutexGuard<'a, ()>>,
    set: &'static MetricSet,
    of: PhantomData<fn() -> S>,
}

impl<S: MetricTable> Here<'_, S> {
    #[inline]
    pub fn up(&self, counter: Counter<S>) {
        self.add(counter, 1);
    }
    #[inline]
    pub fn add(&self, counter: Counter<S>, by: u64) {
        self.lines.add(counter.at, by);
    }
    /// Adds one to a label value; indices beyond the last count as the last.
    #[inline]
    pub fn up_at(&self, counter: Counter<S>, index: usize) {
        self.lines.add(counter.at + index.min(counter.width - 1), 1);
    }
    #[inline]
    pub fn rise(&self, gauge: Gauge<S>) {
        self.lines.add(gauge.at, 1);
    }
    /// Possibly on another thread than the increment.
    #[inline]
    pub fn down(&self, gauge: Gauge<S>) {
        self.lines.add(gauge.at, u64::MAX);
    }
    #[inline]
    pub fn count_code(&self, status: u16) {
        self.lines.codes.up(status);
    }
    #[inline]
    pub fn note(&self, histogram: Histogram<S>, micros: u64) {
        self.note_in(histogram, bucket_index(micros), micros);
    }
    /// [`Here::note`] with the value's [`bucket_index`].
    #[inline]
    pub fn note_in(&self, histogram: Histogram<S>, bucket: usize, micros: u64) {
        self.lines.add(histogram.bucket_at(bucket), 1);
        self.lines.add(histogram.sum_at(), micros);
    }
    /// Tells whether a bucket's exemplar is old at the time `now_ms`, in milliseconds since 1970.
    #[inline]
    pub fn wants_exemplar(&self, histogram: Histogram<S>, bucket: usize, now_ms: u64) -> bool {
        self.exemplars().is_old(histogram.slot + bucket, now_ms)
    }
    /// Stores the exemplar of a bucket, unless it has a recent one.
    #[cold]
    pub fn offer(&self, histogram: Histogram<S>, exemplar: Exemplar) {
        let bucket = bucket_index(exemplar.micros);
        if self.wants_exemplar(histogram, bucket, exemplar.at_ms) {
            self.exemplars().offer(histogram.slot + bucket, exemplar);
        }
    }
    #[inline]
    fn exemplars(&self) -> &Exemplars {
        self.lines.exemplars.get_or_init(|| Exemplars::new(self.set))
    }
}

pub struct Lease {
    cells: Arc<Cells>,
    at: usize,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.cells.add(self.at, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_far_threads() {
        let mut next = (0, 0);
        for number in NEAR_THREADS..NEAR_THREADS * 100 {
            let (group, at) = place(number);
            assert_eq!((group, at), next, "thread {number}");
            next = if at + 1 == NEAR_THREADS << group { (group + 1, 0) } else { (group, at + 1) };
        }
        assert!(place(usize::MAX).0 >= GROUPS, "a thread whose variables are being dropped");
    }
}
