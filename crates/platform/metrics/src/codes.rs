//! Counts by status code: a table per thread and zone, whose decades are allocated when a code of theirs is first counted.

use crate::cells::change;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const FIRST: u16 = 100;
const DECADES: usize = 90;

type Decade = Box<[AtomicU64; 10]>;

/// Status codes 100 to 999; others are not counted.
pub(crate) struct Codes([OnceLock<Decade>; DECADES]);

impl Default for Codes {
    fn default() -> Self {
        Codes([const { OnceLock::new() }; DECADES])
    }
}

impl Codes {
    /// Counts a code. `is_shared`: other threads count here, too.
    #[inline]
    pub(crate) fn up(&self, status: u16, is_shared: bool) {
        let Some(at) = status.checked_sub(FIRST).map(usize::from) else { return };
        let Some(decade) = self.0.get(at / 10) else { return };
        let decade = decade.get_or_init(|| Box::new([const { AtomicU64::new(0) }; 10]));
        match decade.get(at % 10) {
            Some(cell) if is_shared => _ = cell.fetch_add(1, Ordering::Relaxed),
            Some(cell) => change(cell, 1),
            None => {}
        }
    }
    pub(crate) fn add_to(&self, sums: &mut BTreeMap<u16, u64>) {
        for (number, decade) in self.0.iter().enumerate() {
            let Some(decade) = decade.get() else { continue };
            for (digit, cell) in decade.iter().enumerate() {
                let count = cell.load(Ordering::Relaxed);
                if count > 0 {
                    *sums.entry(FIRST + (number * 10 + digit) as u16).or_default() += count;
                }
            }
        }
    }
}
