//! Cells of the process: one block per thread; a new thread inherits an ended one's block and its values.

use crate::process;
use crate::table::{BOUNDS_MICROS, BUCKETS, Counter, Gauge, Histogram};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

pub(crate) const WIDTH: usize = process::SET.width();

/// A thread's cells, on their own pairs of cache lines (which are fetched together).
#[repr(align(128))]
pub(crate) struct CellBlock {
    pub(crate) number: usize,
    /// Number of the worker thread plus 1; 0: another thread.
    worker: AtomicUsize,
    pub(crate) cells: [AtomicU64; WIDTH],
}

impl CellBlock {
    const fn new(number: usize) -> CellBlock {
        CellBlock { number, worker: AtomicUsize::new(0), cells: [const { AtomicU64::new(0) }; WIDTH] }
    }
}

/// Blocks are never freed: their number is the maximum of concurrent threads.
struct Blocks {
    all: Vec<&'static CellBlock>,
    free: Vec<&'static CellBlock>,
}

static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks { all: Vec::new(), free: Vec::new() });

/// Block for counting while a thread's variables are dropped; its number is beyond the zones' cells.
static LATE: CellBlock = CellBlock::new(usize::MAX);

/// Gives a thread's block back when the thread ends; a new thread takes it over with its values.
struct Leave(Cell<Option<&'static CellBlock>>);

impl Drop for Leave {
    fn drop(&mut self) {
        OWN.set(Some(&LATE));
        if let Some(block) = self.0.take() {
            block.worker.store(0, Ordering::Relaxed);
            BLOCKS.lock().unwrap_or_else(PoisonError::into_inner).free.push(block);
        }
    }
}

thread_local! {
    static OWN: Cell<Option<&'static CellBlock>> = const { Cell::new(None) };
    static LEAVE: Leave = const { Leave(Cell::new(None)) };
}

#[inline]
pub(crate) fn own() -> &'static CellBlock {
    match OWN.get() {
        Some(block) => block,
        None => enter(),
    }
}

#[cold]
#[inline(never)]
fn enter() -> &'static CellBlock {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let block = blocks.free.pop().unwrap_or_else(|| {
        let block: &'static CellBlock = Box::leak(Box::new(CellBlock::new(blocks.all.len())));
        blocks.all.push(block);
        block
    });
    drop(blocks);
    let block = if LEAVE.try_with(|leave| leave.0.set(Some(block))).is_ok() { block } else { &LATE };
    OWN.set(Some(block));
    block
}

/// Changes a cell that only this thread writes.
#[inline]
pub(crate) fn change(cell: &AtomicU64, by: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

#[inline]
fn add(at: usize, by: u64) {
    let block = own();
    if let Some(cell) = block.cells.get(at) {
        change(cell, by);
    }
}

pub(crate) fn sums() -> [u64; WIDTH] {
    let mut sums = [0_u64; WIDTH];
    let blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    for block in blocks.all.iter().copied().chain([&LATE]) {
        for (sum, cell) in sums.iter_mut().zip(&block.cells) {
            *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
        }
    }
    sums
}

fn sum(at: usize, width: usize) -> u64 {
    let blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let cells = blocks.all.iter().copied().chain([&LATE]).flat_map(|block| block.cells.iter().skip(at).take(width));
    cells.fold(0, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)))
}

/// Marks this thread as a worker thread, whose own counts [`crate::workers`] returns.
pub fn mark_worker(number: usize) {
    own().worker.store(number + 1, Ordering::Relaxed);
}

/// `read` gets functions for sums of counters and for gauges.
pub(crate) fn of_workers<T>(
    read: impl Fn(&dyn Fn(Counter<process::Of>) -> u64, &dyn Fn(Gauge<process::Of>) -> u64) -> T,
) -> BTreeMap<usize, T> {
    let blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner).all.clone();
    let mut all = BTreeMap::new();
    for block in blocks {
        let Some(number) = block.worker.load(Ordering::Relaxed).checked_sub(1) else { continue };
        let sum = |at: usize, width: usize| {
            let cells = block.cells.iter().skip(at).take(width);
            cells.fold(0_u64, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)))
        };
        let counter = |counter: Counter<process::Of>| sum(counter.at, counter.width);
        let gauge = |gauge: Gauge<process::Of>| floor(sum(gauge.at, gauge.width));
        all.insert(number, read(&counter, &gauge));
    }
    all
}

/// Returns the bucket of a time in histograms.
#[inline]
pub fn bucket_index(micros: u64) -> usize {
    let [fastest, ..] = BOUNDS_MICROS;
    if micros <= fastest {
        return 0;
    }
    BOUNDS_MICROS.partition_point(|bound| *bound < micros)
}

impl Counter<process::Of> {
    #[inline]
    pub fn up(self) {
        add(self.at, 1);
    }
    #[inline]
    pub fn add(self, by: u64) {
        add(self.at, by);
    }
    /// Counts one for a label value by index; indices beyond the last count as the last.
    #[inline]
    pub fn up_at(self, index: usize) {
        add(self.at + index.min(self.width - 1), 1);
    }
    /// [`Counter::up_at`] for several.
    pub fn add_at(self, index: usize, by: u64) {
        add(self.at + index.min(self.width - 1), by);
    }
    pub fn sum(self) -> u64 {
        sum(self.at, self.width)
    }
    pub fn sum_at(self, index: usize) -> u64 {
        sum(self.at + index.min(self.width - 1), 1)
    }
}

impl Gauge<process::Of> {
    #[inline]
    pub fn up(self) {
        add(self.at, 1);
    }
    /// Subtracts one, possibly on another thread than the addition.
    #[inline]
    pub fn down(self) {
        add(self.at, u64::MAX);
    }
    #[inline]
    pub fn change(self, by: i64) {
        add(self.at, by as u64);
    }
    #[inline]
    pub fn up_at(self, index: usize) {
        add(self.at + index.min(self.width - 1), 1);
    }
    #[inline]
    pub fn down_at(self, index: usize) {
        add(self.at + index.min(self.width - 1), u64::MAX);
    }
    pub fn sum(self) -> u64 {
        floor(sum(self.at, self.width))
    }
}

/// Clamps a sum that was read between one thread's decrement and another's increment.
pub(crate) fn floor(sum: u64) -> u64 {
    if sum > u64::MAX / 2 { 0 } else { sum }
}

impl Histogram<process::Of> {
    #[inline]
    pub fn note(self, micros: u64) {
        add(self.bucket_at(bucket_index(micros)), 1);
        add(self.sum_at(), micros);
    }
    pub fn count(self) -> u64 {
        sum(self.bucket_at(0), BUCKETS)
    }
}
