//! Zones: cells for one thing that the configuration names. A zone lives as long as a configuration has it; the next one that has a
//! zone of the same kind and labels gets the same cells.

use crate::cells::{bucket, change, own};
use crate::table::{Counter, Gauge, Histogram, Set, Tabled};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Cells that lie together: two cache lines, which are fetched as a pair.
const LINE_CELLS: usize = 16;
/// Threads have their cells by their number, in groups.
const GROUP_THREADS: usize = 16;
/// Groups of threads; threads beyond them share cells.
const GROUPS_MAX: usize = 64;

#[derive(Default)]
#[repr(align(128))]
struct Line([AtomicU64; LINE_CELLS]);

type Lines = Box<[Line]>;
type Group = Box<[OnceLock<Lines>; GROUP_THREADS]>;

fn lines(set: &Set) -> Lines {
    (0..set.width().div_ceil(LINE_CELLS)).map(|_| Line::default()).collect()
}

/// What the owner of a thing knows of it, and nobody counts: it is asked when the metrics are told.
type Source = Box<dyn Fn(&mut Values<'_>) + Send + Sync>;

/// A zone, of any set.
pub(crate) struct Cells {
    pub(crate) set: &'static Set,
    pub(crate) labels: Box<[String]>,
    groups: [OnceLock<Group>; GROUPS_MAX],
    /// For threads beyond [`GROUPS_MAX`].
    shared: OnceLock<Lines>,
    source: Mutex<Option<Source>>,
}

impl Cells {
    fn new(set: &'static Set, labels: Box<[String]>) -> Cells {
        Cells {
            set,
            labels,
            groups: [const { OnceLock::new() }; GROUPS_MAX],
            shared: OnceLock::new(),
            source: Mutex::new(None),
        }
    }
    /// The cells of a thread; made when it first asks.
    #[inline]
    fn of(&self, number: usize) -> Option<&Lines> {
        let group = self.groups.get(number / GROUP_THREADS)?;
        let group = group.get_or_init(|| Box::new([const { OnceLock::new() }; GROUP_THREADS]));
        Some(group.get(number % GROUP_THREADS)?.get_or_init(|| lines(self.set)))
    }
    #[inline]
    fn add(&self, at: usize, by: u64) {
        let own = self.of(own().number);
        let lines = own.unwrap_or_else(|| self.shared.get_or_init(|| lines(self.set)));
        let Some(cell) = lines.get(at / LINE_CELLS).and_then(|line| line.0.get(at % LINE_CELLS)) else { return };
        match own {
            Some(_) => change(cell, by),
            None => _ = cell.fetch_add(by, Ordering::Relaxed),
        }
    }
    /// The sums over all threads, cell by cell, with what its source says.
    pub(crate) fn sums(&self) -> Vec<u64> {
        let mut sums = vec![0_u64; self.set.width()];
        let groups = self.groups.iter().filter_map(OnceLock::get);
        let own = groups.flat_map(|group| group.iter().filter_map(OnceLock::get)).chain(self.shared.get());
        for lines in own {
            let cells = lines.iter().flat_map(|line| &line.0);
            for (sum, cell) in sums.iter_mut().zip(cells) {
                *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
            }
        }
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = &*source {
            source(&mut Values { sums: &mut sums });
        }
        sums
    }
}

/// Where a source puts what it knows.
pub struct Values<'a> {
    sums: &'a mut [u64],
}

impl Values<'_> {
    /// Says what a gauge is.
    pub fn set<S: Tabled>(&mut self, gauge: Gauge<S>, value: u64) {
        self.set_at(gauge, 0, value);
    }
    /// The same for a value of its label.
    pub fn set_at<S: Tabled>(&mut self, gauge: Gauge<S>, index: usize, value: u64) {
        if let Some(sum) = self.sums.get_mut(gauge.at + index.min(gauge.width - 1)) {
            *sum = value;
        }
    }
    /// Says what a counter has come to that its owner keeps itself.
    pub fn set_count<S: Tabled>(&mut self, counter: Counter<S>, value: u64) {
        if let Some(sum) = self.sums.get_mut(counter.at) {
            *sum = value;
        }
    }
}

/// Zones by set and labels.
type Zones = BTreeMap<(&'static str, Box<[String]>), Weak<Cells>>;
static ZONES: Mutex<Zones> = Mutex::new(BTreeMap::new());

/// All zones that there are, by set and labels.
pub(crate) fn all() -> Vec<Arc<Cells>> {
    ZONES.lock().unwrap_or_else(PoisonError::into_inner).values().filter_map(Weak::upgrade).collect()
}

/// Makes this thread's cells in all zones, so that none is made while a request is handled. To be called by threads that serve,
/// when they begin and when their configuration changes.
pub fn prepare_thread() {
    let number = own().number;
    for cells in all() {
        let _ = cells.of(number);
    }
}

/// The cells of one thing.
pub struct Zone<S> {
    cells: Arc<Cells>,
    of: PhantomData<fn() -> S>,
}

impl<S> Clone for Zone<S> {
    fn clone(&self) -> Self {
        Zone { cells: self.cells.clone(), of: PhantomData }
    }
}

impl<S> std::fmt::Debug for Zone<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zone({} {:?})", self.cells.set.name, self.cells.labels)
    }
}

impl<S: Tabled> Zone<S> {
    /// The zone with these values of its set's labels, new or as it is.
    pub fn named(labels: &[&str]) -> Zone<S> {
        debug_assert_eq!(labels.len(), S::SET.labels.len());
        let labels: Box<[String]> = labels.iter().map(ToString::to_string).collect();
        let mut zones = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
        zones.retain(|_, cells| cells.strong_count() > 0);
        let key = (S::SET.name, labels.clone());
        if let Some(cells) = zones.get(&key).and_then(Weak::upgrade) {
            return Zone { cells, of: PhantomData };
        }
        let cells = Arc::new(Cells::new(S::SET, labels));
        zones.insert(key, Arc::downgrade(&cells));
        Zone { cells, of: PhantomData }
    }
    /// Has values asked of `source` whenever the metrics are told. It must not hold the zone itself.
    pub fn ask(&self, source: impl Fn(&mut Values<'_>) + Send + Sync + 'static) {
        *self.cells.source.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(source));
    }
    /// Counts one.
    #[inline]
    pub fn up(&self, counter: Counter<S>) {
        self.cells.add(counter.at, 1);
    }
    /// Counts so many.
    #[inline]
    pub fn add(&self, counter: Counter<S>, by: u64) {
        self.cells.add(counter.at, by);
    }
    /// Counts one of a value of its label; what is beyond the last counts as that.
    #[inline]
    pub fn up_at(&self, counter: Counter<S>, index: usize) {
        self.add_at(counter, index, 1);
    }
    /// The same for so many.
    #[inline]
    pub fn add_at(&self, counter: Counter<S>, index: usize, by: u64) {
        self.cells.add(counter.at + index.min(counter.width - 1), by);
    }
    /// A time of so many microseconds.
    pub fn note(&self, histogram: Histogram<S>, micros: u64) {
        self.cells.add(histogram.at + bucket(micros), 1);
        self.cells.add(histogram.at + histogram.width - 1, micros);
    }
    /// One more.
    #[inline]
    pub fn rise(&self, gauge: Gauge<S>) {
        self.cells.add(gauge.at, 1);
    }
    /// One less; it need not have been this thread that counted it.
    #[inline]
    pub fn down(&self, gauge: Gauge<S>) {
        self.cells.add(gauge.at, u64::MAX);
    }
    /// One more, until the lease is dropped.
    pub fn lease(&self, gauge: Gauge<S>) -> Lease {
        self.cells.add(gauge.at, 1);
        Lease { cells: self.cells.clone(), at: gauge.at }
    }
    /// What all threads have counted.
    pub fn sum(&self, counter: Counter<S>) -> u64 {
        self.cells.sums().iter().skip(counter.at).take(counter.width).fold(0, |sum, n| sum.wrapping_add(*n))
    }
    /// How many there are.
    pub fn level(&self, gauge: Gauge<S>) -> u64 {
        crate::cells::floor(self.cells.sums().get(gauge.at).copied().unwrap_or_default())
    }
}

/// Something that is counted as being there.
pub struct Lease {
    cells: Arc<Cells>,
    at: usize,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.cells.add(self.at, u64::MAX);
    }
}
