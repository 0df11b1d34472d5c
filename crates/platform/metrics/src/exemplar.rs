//! Exemplars: a trace id for each bucket of a histogram, so that a slow bucket leads to a request. Each thread writes its
//! own slots; readers detect a concurrent write and leave the slot out.

use crate::table::{MetricSet, slot};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Milliseconds for which a slot keeps its exemplar, so that a busy bucket costs a comparison.
const KEEP_MS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    pub trace_id: [u8; 16],
    pub micros: u64,
    /// In milliseconds since 1970.
    pub at_ms: u64,
}

impl Exemplar {
    /// In hexadecimal, as in `traceparent` and `$request_id`.
    pub fn trace(&self) -> String {
        self.trace_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// An exemplar with a counter that is odd during a write; 0: empty.
#[derive(Default)]
struct ExemplarSlot {
    writes: AtomicU64,
    trace_id: [AtomicU64; 2],
    micros: AtomicU64,
    at_ms: AtomicU64,
}

pub(crate) struct Exemplars(Box<[ExemplarSlot]>);

impl Exemplars {
    pub(crate) fn new(set: &MetricSet) -> Exemplars {
        Exemplars((0..slot(set.rows, set.rows.len())).map(|_| ExemplarSlot::default()).collect())
    }
    /// Tells whether a slot is to get another exemplar.
    #[inline]
    pub(crate) fn is_old(&self, at: usize, now_ms: u64) -> bool {
        self.0.get(at).is_some_and(|slot| now_ms.saturating_sub(slot.at_ms.load(Ordering::Relaxed)) >= KEEP_MS)
    }
    /// Stores an exemplar; only the slots' own thread may call it.
    pub(crate) fn offer(&self, at: usize, exemplar: Exemplar) {
        let Some(slot) = self.0.get(at) else { return };
        let writes = slot.writes.load(Ordering::Relaxed);
        slot.writes.store(writes.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        let id = u128::from_be_bytes(exemplar.trace_id);
        slot.trace_id[0].store((id >> 64) as u64, Ordering::Relaxed);
        slot.trace_id[1].store(id as u64, Ordering::Relaxed);
        slot.micros.store(exemplar.micros, Ordering::Relaxed);
        slot.at_ms.store(exemplar.at_ms, Ordering::Relaxed);
        slot.writes.store(writes.wrapping_add(2), Ordering::Release);
    }
    pub(crate) fn read(&self, at: usize) -> Option<Exemplar> {
        let slot = self.0.get(at)?;
        let before = slot.writes.load(Ordering::Acquire);
        let (high, low) = (slot.trace_id[0].load(Ordering::Relaxed), slot.trace_id[1].load(Ordering::Relaxed));
        let (micros, at_ms) = (slot.micros.load(Ordering::Relaxed), slot.at_ms.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = before != 0 && before.is_multiple_of(2) && slot.writes.load(Ordering::Relaxed) == before;
        let trace_id = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        is_whole.then_some(Exemplar { trace_id, micros, at_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer;
    use crate::table::{BOUNDS_MICROS, MetricTable, slot_of};

    /// Buckets of a histogram, the unbounded one included.
    const BUCKETS: usize = BOUNDS_MICROS.len() + 1;

    #[test]
    fn slots_of_histograms_are_apart() {
        let set = peer::Of::SET;
        assert_eq!((peer::HEADER.slot, peer::RESPONSE.slot), (0, BUCKETS));
        assert_eq!(slot_of(set.rows, peer::RESPONSE.at), BUCKETS);
        assert_eq!(Exemplars::new(set).0.len(), 2 * BUCKETS);
    }

    #[test]
    fn a_recent_exemplar_stays() {
        let all = Exemplars::new(peer::Of::SET);
        assert_eq!((all.read(3), all.is_old(3, 5000)), (None, true));
        let first = Exemplar { trace_id: [1; 16], micros: 7, at_ms: 5000 };
        all.offer(3, first);
        assert_eq!((all.read(3), all.read(2)), (Some(first), None));
        assert_eq!((all.is_old(3, 5999), all.is_old(3, 6000), all.is_old(2, 5999)), (false, true, true));
        let second = Exemplar { trace_id: [2; 16], micros: 9, at_ms: 6000 };
        all.offer(3, second);
        assert_eq!(all.read(3), Some(second));
        assert_eq!(first.trace(), "01".repeat(16));
    }

    #[test]
    fn readers_see_whole_exemplars() {
        let all = Exemplars::new(peer::Of::SET);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 1..=20_000_u64 {
                    all.offer(0, Exemplar { trace_id: [n as u8; 16], micros: n, at_ms: n * KEEP_MS });
                }
            });
            let mut seen = 0;
            while !writer.is_finished() || seen == 0 {
                if let Some(one) = all.read(0) {
                    assert_eq!((one.trace_id, one.at_ms), ([one.micros as u8; 16], one.micros * KEEP_MS));
                    seen += 1;
                }
            }
        });
    }
}
