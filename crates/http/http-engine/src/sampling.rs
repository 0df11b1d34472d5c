//! Samples traces by a `split_clients $otel_trace_id` block. Chance takes the place of the id's hash: it decides the
//! request, and an id with a hash of that decision is made when one is needed. Most requests need none.
//!
//! One random number decides many requests: it gives the number of requests until the next sampled one, which has a
//! geometric distribution.

use crate::Request;
use crate::plan::HttpPlan;
use crate::span::{TraceContext, TraceIds, Unsampled, digits};
use crate::template::Template;
use crate::variable::{Source, VarId};
use session_engine::split_clients::{Prefix, Split, is_before, murmur2};
use session_engine::template::Part;
use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable of a `split_clients $otel_trace_id` block, as a value of `otel_trace`.
pub struct Sampler {
    variable: VarId,
    /// Has the value that `set` wrote.
    slot: Option<u32>,
    shares: Shares,
    gaps: Gaps,
}

/// Each share: the hash before which it ends, and `true` if it is sampled.
type Shares = Box<[(u32, bool)]>;

/// Tells whether a value enables tracing.
pub fn enables(value: &[u8]) -> bool {
    matches!(value, b"on" | b"1")
}

fn shares(split: &Split<Request>) -> Shares {
    split.shares().map(|(end, value)| (end, enables(value))).collect()
}

#[inline]
fn is_sampled(shares: &[(u32, bool)], hash: u32) -> bool {
    shares.iter().find(|(end, _)| is_before(hash, *end)).is_some_and(|(_, is_sampled)| *is_sampled)
}

/// Returns the part of all hashes that is sampled.
fn rate(shares: &[(u32, bool)]) -> f64 {
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
struct Gaps {
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
    fn new(rate: f64) -> Gaps {
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
    fn passes(&self, random: impl Fn() -> u64) -> bool {
        let (id, left) = NEXT.get();
        let left = if id == self.id { left } else { self.gap(random()) };
        NEXT.set((self.id, if left == 0 { self.gap(random()) } else { left - 1 }));
        left == 0
    }
}

/// Returns the block of a variable, and the slot for values of `set`.
fn split(plan: &HttpPlan, variable: VarId) -> Option<(&Split<Request>, Option<u32>)> {
    match &plan.variables.get(variable.0 as usize)?.source {
        Source::Computed { by, slot, .. } => Some((by.as_split()?, *slot)),
        _ => None,
    }
}

/// Makes ids whose trace is sampled, or is not. Tries all endings of random ids in turn.
fn ids(shares: &[(u32, bool)], sampled: bool) -> TraceIds {
    loop {
        let mut ids = TraceIds::new();
        let text: [u8; 32] = digits(&ids.trace);
        let (words, _) = text.as_chunks::<4>();
        let Some((_, words)) = words.split_last() else { return ids };
        let prefix = Prefix::new(words);
        let [.., high, low] = ids.trace;
        let first = u16::from_be_bytes([high, low]);
        let mut ending = first;
        loop {
            if is_sampled(shares, prefix.with(digits(&ending.to_be_bytes()))) == sampled {
                let [.., high, low] = &mut ids.trace;
                [*high, *low] = ending.to_be_bytes();
                return ids;
            }
            ending = ending.wrapping_add(1);
            if ending == first {
                break;
            }
        }
    }
}

impl Sampler {
    /// Returns `None` if the value of `otel_trace` is something else.
    pub fn of(plan: &HttpPlan, value: &Template) -> Option<Sampler> {
        let [Part::Variable(variable)] = value.parts() else { return None };
        let (split, slot) = split(plan, *variable)?;
        let source = plan.variables.get(split.variable()?.0 as usize)?;
        (&*source.name == "otel_trace_id").then(|| {
            let shares = shares(split);
            Sampler { variable: *variable, slot, gaps: Gaps::new(rate(&shares)), shares }
        })
    }
    /// Decides by the id of the request's context. Without one, decides by chance and makes the context. `None`: `set` wrote
    /// another value.
    // Its caller's crate is compiled for size.
    #[inline(never)]
    pub fn decide(&self, r: &mut Request) -> Option<bool> {
        if self.slot.is_some_and(|slot| r.has_slot(slot)) {
            return None;
        }
        if r.context.is_known() {
            return Some(self.decided(r));
        }
        let sampled = self.gaps.passes(|| u64::from_ne_bytes(net::random::bytes()));
        if sampled {
            self.begin(r);
        } else {
            r.context = TraceContext::Unsampled(Unsampled { by: self.variable, ids: OnceCell::new() });
        }
        Some(sampled)
    }
    #[cold]
    fn decided(&self, r: &Request) -> bool {
        r.trace_ids().is_some_and(|ids| is_sampled(&self.shares, murmur2(&digits::<16, 32>(&ids.trace))))
    }
    #[cold]
    fn begin(&self, r: &mut Request) {
        r.context = TraceContext::Ids(ids(&self.shares, true));
    }
}

#[cold]
fn ids_of(unsampled: &Unsampled, plan: &HttpPlan) -> TraceIds {
    *unsampled.ids.get_or_init(|| match split(plan, unsampled.by) {
        Some((split, _)) => ids(&shares(split), false),
        None => TraceIds::new(),
    })
}

impl Request {
    /// Returns the ids of the request's context; `None`: it has no context.
    pub fn trace_ids(&self) -> Option<TraceIds> {
        match &self.context {
            TraceContext::Unknown => None,
            TraceContext::Unsampled(unsampled) => Some(ids_of(unsampled, self.plan())),
            TraceContext::Ids(ids) => Some(*ids),
            TraceContext::Span(span) => Some(span.ids),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the hash before which a share of the hashes ends.
    fn share(percent: u32) -> u32 {
        (u64::from(percent) * u64::from(u32::MAX) / 100) as u32
    }

    #[test]
    fn ids_agree_with_the_decision() {
        let rows: [&[(u32, bool)]; 4] = [
            &[(share(1), true), (0, false)],
            &[(share(99), true), (0, false)],
            &[(share(30), false), (share(31), true), (share(60), false), (0, true)],
            // The smallest share that the configuration can have.
            &[(share(100) / 10_000, true), (0, false)],
        ];
        for shares in rows {
            for sampled in [true, false] {
                for _ in 0..50 {
                    let ids = ids(shares, sampled);
                    assert_eq!(is_sampled(shares, murmur2(&digits::<16, 32>(&ids.trace))), sampled, "{shares:?}");
                }
            }
        }
    }

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
    fn endings_differ() {
        let shares = [(share(50), true), (0, false)];
        let mut endings: Vec<_> = (0..100).map(|_| ids(&shares, true).trace).collect();
        endings.sort_unstable();
        endings.dedup();
        assert_eq!(endings.len(), 100);
    }
}
