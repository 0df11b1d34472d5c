//! Samplers of traces: the shares of a `split_clients` block, and the requests between sampled ones.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use variables::split_clients::is_before;
use variables::variable::VarId;

/// The variable of a `split_clients $otel_trace_id` block, as a value of `otel_trace`.
pub struct Sampler {
    pub(crate) variable: VarId,
    /// Has the value that `set` wrote.
    pub(crate) slot: Option<u32>,
    pub(crate) shares: Shares,
    pub(crate) gaps: Gaps,
}

/// Each share: the hash before which it ends, and `true` if it is sampled.
pub(crate) type Shares = Box<[(u32, bool)]>;

/// Tells whether a value of `otel_trace` enables tracing.
pub fn enables_tracing(value: &[u8]) -> bool {
    matches!(value, b"on" | b"1")
}

#[inline]
pub(crate) fn is_sampled(shares: &[(u32, bool)], hash: u32) -> bool {
    shares.iter().find(|(end, _)| is_before(hash, *end)).is_some_and(|(_, is_sampled)| *is_sampled)
}

/// Returns the part of all hashes that is sampled.
pub(crate) fn rate(shares: &[(u32, bool)]) -> f64 {
    let (mut start, mut sampled) = (0, 0);
    for (end, is_sampled) in shares {
        let end = if *end == 0 { 1 << 32 } else { u64::from(*end) };
        if *is_sampled {
            sampled += end.saturating_sub(start);
        }
        start = start.max(end);
    }
    sampled as f64 / (1_u64 << 32) as f64
}

/// Draws the numbers of requests between sampled ones.
pub(crate) struct Gaps {
    /// Unlike an address, not used again by the next configuration.
    id: u64,
    rate: f64,
}

thread_local! {
    /// The sampler that decided this thread's last request, and the requests that pass before it samples the next one.
    /// Another sampler draws anew, which changes no probability: each request is independent of those before it.
    static NEXT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

impl Gaps {
    pub(crate) fn new(rate: f64) -> Gaps {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Gaps { id: LAST.fetch_add(1, Ordering::Relaxed) + 1, rate }
    }
    /// Returns the number of requests that pass before a sampled one, for a random number of 53 bits.
    #[cold]
    fn gap(&self, random: u64) -> u64 {
        // Above 0 and at most 1.
        let part = ((random & ((1 << 53) - 1)) + 1) as f64 / (1_u64 << 53) as f64;
        match self.rate {
            0.0 => u64::MAX,
            // Casts saturate: a rate of 1 divides by minus infinity.
            rate => (part.ln() / (-rate).ln_1p()) as u64,
        }
    }
    /// Tells whether the next request is sampled. `random` is called for the gap behind it.
    #[inline]
    pub(crate) fn passes(&self, random: impl Fn() -> u64) -> bool {
        let (id, left) = NEXT.get();
        let left = if id == self.id { left } else { self.gap(random()) };
        NEXT.set((self.id, if left == 0 { self.gap(random()) } else { left - 1 }));
        left == 0
    }
    /// Decides the next request if a drawn gap covers it; `false`: it is still undecided.
    #[inline]
    pub(crate) fn covers(&self) -> bool {
        match NEXT.get() {
            (id, left @ 1..) if id == self.id => {
                NEXT.set((id, left - 1));
                true
            }
            _ => false,
        }
    }
}

/// A location's sampler. The first request finds it, because variables may be defined behind their use.
#[derive(Default)]
pub struct LateSampler(pub(crate) OnceLock<Option<Sampler>>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_shares() {
        let rows: [(&[(u32, bool)], f64); 5] = [
            (&[(1 << 31, true), (0, false)], 0.5),
            (&[(1 << 30, false), (1 << 31, true), (3 << 30, false), (0, true)], 0.5),
            (&[(0, true)], 1.0),
            (&[(1 << 30, true)], 0.25),
            (&[(0, false), (1 << 30, true)], 0.0),
        ];
        for (shares, want) in rows {
            assert!((rate(shares) - want).abs() < f64::EPSILON, "{shares:?}");
        }
    }

    #[test]
    fn gaps_have_the_rate() {
        const DRAWS: u64 = 1 << 20;
        for rate in [0.0001, 0.01, 0.3, 0.99] {
            let gaps = Gaps::new(rate);
            // Evenly spread instead of random.
            let draws = (0..DRAWS).map(|n| gaps.gap(n << 33 | 1 << 32));
            let mean = draws.sum::<u64>() as f64 / DRAWS as f64;
            let want = (1.0 - rate) / rate;
            assert!((mean - want).abs() < 0.01 * want.max(0.1), "{rate}: {mean}, not {want}");
        }
        for random in [0, 1, 1 << 52, u64::MAX] {
            assert_eq!((Gaps::new(1.0).gap(random), Gaps::new(0.0).gap(random)), (0, u64::MAX));
        }
    }

    #[test]
    fn the_request_behind_a_gap_is_sampled() {
        // The draw that makes a gap of `n` requests at a rate of one half.
        let draw = |n: u64| (3 << (51 - n)) - 1;
        let draws = std::cell::RefCell::new(vec![draw(3), draw(4), draw(0), draw(1), draw(2)]);
        let random = || draws.borrow_mut().pop().expect("another draw");
        let (one, other) = (Gaps::new(0.5), Gaps::new(0.5));
        let sampled: Vec<_> = (0..6).map(|_| one.passes(random)).collect();
        assert_eq!(sampled, [false, false, true, false, true, true]);
        assert!(!other.passes(random), "the gap of another sampler");
        assert_eq!(NEXT.get(), (other.id, 2));
    }
    #[test]
    fn a_drawn_gap_covers_requests() {
        let (one, other) = (Gaps::new(0.5), Gaps::new(0.5));
        assert!(!one.covers(), "nothing is drawn");
        // Two requests pass before the next sampled one.
        assert!(!one.passes(|| (3 << 49) - 1));
        assert!(!other.covers(), "the gap of another sampler");
        assert!(one.covers());
        assert!(!one.covers(), "the sampled request");
        assert!(one.passes(|| 0));
    }
}
