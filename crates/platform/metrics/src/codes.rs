//! Counts by status code: a table per thread and zone. Rare codes are in decades, each allocated when one of its codes is first
//! counted.

use crate::cells::change;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const FIRST: u16 = 100;
const DECADES: usize = 90;

/// Codes with a cell of their own.
const COMMON: [u16; 8] = [200, 204, 206, 301, 302, 304, 403, 404];

type Decade = Box<[AtomicU64; 10]>;

/// Status codes 100 to 999; others are not counted.
#[derive(Default)]
pub(crate) struct Codes {
    common: [AtomicU64; COMMON.len()],
    others: OnceLock<Box<Decades>>,
}

struct Decades([OnceLock<Decade>; DECADES]);

impl Default for Decades {
    fn default() -> Self {
        Decades([const { OnceLock::new() }; DECADES])
    }
}

impl Codes {
    /// Counts a code; only the table's own thread may call it.
    #[inline]
    pub(crate) fn up(&self, status: u16) {
        match COMMON.iter().position(|common| *common == status).and_then(|at| self.common.get(at)) {
            Some(cell) => change(cell, 1),
            None => self.up_other(status),
        }
    }
    #[inline(never)]
    fn up_other(&self, status: u16) {
        let Some(at) = status.checked_sub(FIRST).map(usize::from) else { return };
        let Some(decade) = self.others.get_or_init(Box::default).0.get(at / 10) else { return };
        let decade = decade.get_or_init(|| Box::new([const { AtomicU64::new(0) }; 10]));
        if let Some(cell) = decade.get(at % 10) {
            change(cell, 1);
        }
    }
    pub(crate) fn add_to(&self, sums: &mut BTreeMap<u16, u64>) {
        let mut add = |code, cell: &AtomicU64| {
            let count = cell.load(Ordering::Relaxed);
            if count > 0 {
                *sums.entry(code).or_default() += count;
            }
        };
        for (code, cell) in COMMON.into_iter().zip(&self.common) {
            add(code, cell);
        }
        let decades = self.others.get().into_iter().flat_map(|others| &others.0).enumerate();
        for (number, decade) in decades {
            let Some(decade) = decade.get() else { continue };
            for (digit, cell) in decade.iter().enumerate() {
                add(FIRST + (number * 10 + digit) as u16, cell);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_and_other_codes() {
        let codes = Codes::default();
        for status in [200, 200, 404, 100, 999, 1000, 99, 0, 201, 499] {
            codes.up(status);
        }
        let mut sums = BTreeMap::from([(200, 1), (999, 1)]);
        codes.add_to(&mut sums);
        assert_eq!(sums, BTreeMap::from([(100, 1), (200, 3), (201, 1), (404, 1), (499, 1), (999, 2)]));
    }
}
