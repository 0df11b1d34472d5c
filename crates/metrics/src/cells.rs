//! The cells of the process: one block a thread. A thread that ends leaves its block, with what it holds, to the next that begins.

use crate::process;
use crate::table::{BOUNDS_MICROS, Counter, Gauge, Histogram};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Cells of a block.
pub(crate) const WIDTH: usize = process::SET.width();

/// One thread's cells. They share no cache line, and no pair of lines that is fetched together, with another thread's.
#[repr(align(128))]
pub(crate) struct Block {
    pub(crate) number: usize,
    pub(crate) cells: [AtomicU64; WIDTH],
}

impl Block {
    const fn new(number: usize) -> Block {
        Block { number, cells: [const { AtomicU64::new(0) }; WIDTH] }
    }
}

/// Blocks are never given back: as many as there were threads at the same time.
struct Blocks {
    all: Vec<&'static Block>,
    free: Vec<&'static Block>,
}

static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks { all: Vec::new(), free: Vec::new() });

/// For what is counted while a thread's own variables are being dropped. (Its number is beyond those that zones have cells for.)
static LATE: Block = Block::new(usize::MAX);

/// Leaves the block to others at the thread's end.
struct Leave(Cell<Option<&'static Block>>);

impl Drop for Leave {
    fn drop(&mut self) {
        OWN.set(Some(&LATE));
        if let Some(block) = self.0.take() {
            BLOCKS.lock().unwrap_or_else(PoisonError::into_inner).free.push(block);
        }
    }
}

thread_local! {
    static OWN: Cell<Option<&'static Block>> = const { Cell::new(None) };
    static LEAVE: Leave = const { Leave(Cell::new(None)) };
}

/// This thread's block.
#[inline]
pub(crate) fn own() -> &'static Block {
    match OWN.get() {
        Some(block) => block,
        None => enter(),
    }
}

#[cold]
#[inline(never)]
fn enter() -> &'static Block {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let block = blocks.free.pop().unwrap_or_else(|| {
        let block: &'static Block = Box::leak(Box::new(Block::new(blocks.all.len())));
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

/// The sums over all threads, cell by cell.
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

/// The sum over all threads of some neighbouring cells.
fn sum(at: usize, width: usize) -> u64 {
    let blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let cells = blocks.all.iter().copied().chain([&LATE]).flat_map(|block| block.cells.iter().skip(at).take(width));
    cells.fold(0, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)))
}

/// The bucket that a time falls into.
pub(crate) fn bucket(micros: u64) -> usize {
    BOUNDS_MICROS.partition_point(|bound| *bound < micros)
}

impl Counter<process::Of> {
    /// Counts one.
    #[inline]
    pub fn up(self) {
        add(self.at, 1);
    }
    /// Counts so many.
    #[inline]
    pub fn add(self, by: u64) {
        add(self.at, by);
    }
    /// Counts one of the label's value at this place of the table; what is beyond counts as the last.
    #[inline]
    pub fn up_at(self, index: usize) {
        add(self.at + index.min(self.width - 1), 1);
    }
    /// What all threads have counted, of all values of its label.
    pub fn sum(self) -> u64 {
        sum(self.at, self.width)
    }
    /// The same of one value of its label.
    pub fn sum_at(self, index: usize) -> u64 {
        sum(self.at + index.min(self.width - 1), 1)
    }
}

impl Gauge<process::Of> {
    /// One more.
    #[inline]
    pub fn up(self) {
        add(self.at, 1);
    }
    /// One less; it need not have been this thread that counted it.
    #[inline]
    pub fn down(self) {
        add(self.at, u64::MAX);
    }
    /// So many more or less.
    #[inline]
    pub fn change(self, by: i64) {
        add(self.at, by as u64);
    }
    /// The same for a value of its label.
    #[inline]
    pub fn up_at(self, index: usize) {
        add(self.at + index.min(self.width - 1), 1);
    }
    #[inline]
    pub fn down_at(self, index: usize) {
        add(self.at + index.min(self.width - 1), u64::MAX);
    }
    /// How many there are.
    pub fn sum(self) -> u64 {
        floor(sum(self.at, self.width))
    }
}

/// While others count, a sum can be caught between one thread's "less" and another's "more".
pub(crate) fn floor(sum: u64) -> u64 {
    if sum > u64::MAX / 2 { 0 } else { sum }
}

impl Histogram<process::Of> {
    /// A time of so many microseconds.
    #[inline]
    pub fn note(self, micros: u64) {
        add(self.at + bucket(micros), 1);
        add(self.at + self.width - 1, micros);
    }
    /// How many times were noted.
    pub fn count(self) -> u64 {
        sum(self.at, self.width - 1)
    }
}
