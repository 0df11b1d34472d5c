//! Samples traces by a `split_clients $otel_trace_id` block. Chance takes the place of the id's hash: it decides the
//! request, and an id with a hash of that decision is made when one is needed. Most requests need none.
//!
//! One random number decides many requests: it gives the number of requests until the next sampled one, which has a
//! geometric distribution.

use crate::Request;
use crate::area::HttpArea;
use crate::plan::HttpPlan;
use crate::sampler::{Gaps, LateSampler, Sampler, Shares, enables_tracing, is_sampled, rate};
use crate::span::{DIGITS, TraceContext, TraceIds, UnsampledTrace, hex_digits};
use crate::template::HttpTemplate;
use crate::variable::{HttpSource, VarId};
use std::cell::OnceCell;
use variables::split_clients::{Prefix, Split, hash_murmur2};
use variables::template::Part;

fn shares(split: &Split<HttpArea>) -> Shares {
    split.shares().map(|(end, value)| (end, enables_tracing(value))).collect()
}

/// Returns the block of a variable, and the slot for values of `set`.
fn split(plan: &HttpPlan, variable: VarId) -> Option<(&Split<HttpArea>, Option<u32>)> {
    match &plan.variables.get(variable.0 as usize)?.source {
        HttpSource::Computed { by, slot, .. } => Some((by.as_split()?, *slot)),
        _ => None,
    }
}

/// Makes ids whose trace is sampled, or is not: random ids with the next ending that has this hash.
fn ids(shares: &[(u32, bool)], sampled: bool) -> TraceIds {
    loop {
        let mut ids = TraceIds::new();
        let text: [u8; 32] = hex_digits(&ids.trace);
        let (words, _) = text.as_chunks::<4>();
        let Some((_, words)) = words.split_last() else { return ids };
        let prefix = Prefix::new(words);
        let [.., high, low] = &mut ids.trace;
        if let Some(ending) = ending([*high, *low], |digits| is_sampled(shares, prefix.with(digits)) == sampled) {
            [*high, *low] = ending;
            return ids;
        }
    }
}

/// Returns the next ending of an id whose digits fit; tries the low octets of each high one first. `None`: none of all 65,536.
#[inline]
fn ending([first, low]: [u8; 2], fits: impl Fn([u8; 4]) -> bool) -> Option<[u8; 2]> {
    let (before, behind) = DIGITS.split_at(usize::from(low));
    (0..=u8::MAX).find_map(|step| {
        let high = first.wrapping_add(step);
        let [a, b] = *DIGITS.get(usize::from(high))?;
        let fits = |[c, d]: &[u8; 2]| fits([a, b, *c, *d]);
        let found = behind.iter().position(fits).map(|at| at + before.len());
        Some([high, found.or_else(|| before.iter().position(fits))? as u8])
    })
}

impl Sampler {
    /// Returns `None` if the value of `otel_trace` is something else.
    pub fn of(plan: &HttpPlan, value: &HttpTemplate) -> Option<Sampler> {
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
        match &r.context {
            TraceContext::Unknown => {}
            TraceContext::Unsampled(unsampled) if unsampled.by == self.variable => return Some(false),
            _ => return Some(self.decided(r)),
        }
        let sampled = self.gaps.passes(|| u64::from_ne_bytes(net::random::bytes()));
        if sampled {
            self.begin(r);
        } else {
            r.context = self.unsampled();
        }
        Some(sampled)
    }
    #[inline]
    fn unsampled(&self) -> TraceContext {
        TraceContext::Unsampled(UnsampledTrace { by: self.variable, ids: OnceCell::new() })
    }
    #[cold]
    fn decided(&self, r: &Request) -> bool {
        r.trace_ids().is_some_and(|ids| is_sampled(&self.shares, hash_murmur2(&hex_digits::<16, 32>(&ids.trace))))
    }
    #[cold]
    fn begin(&self, r: &mut Request) {
        r.context = TraceContext::Ids(ids(&self.shares, true));
    }
}

impl LateSampler {
    /// Finds the sampler of the value of `otel_trace`; `None`: the value is something else than the variable of a
    /// `split_clients $otel_trace_id` block.
    #[inline]
    pub fn get(&self, plan: &HttpPlan, value: &HttpTemplate) -> Option<&Sampler> {
        match self.0.get() {
            Some(found) => found.as_ref(),
            None => self.find(plan, value),
        }
    }
    #[cold]
    fn find(&self, plan: &HttpPlan, value: &HttpTemplate) -> Option<&Sampler> {
        self.0.get_or_init(|| Sampler::of(plan, value)).as_ref()
    }
    /// Decides a request that enters its first location, if that takes a counter alone: most requests of a server that samples
    /// some. `false`: the handler decides.
    #[inline]
    pub(crate) fn leaves_out(&self, r: &mut Request) -> bool {
        let Some(Some(sampler)) = self.0.get() else { return false };
        let is_plain = matches!(r.context, TraceContext::Unknown)
            && !r.progress.internal
            && !r.is_subrequest()
            && r.trace().is_none()
            && !sampler.slot.is_some_and(|slot| r.has_slot(slot));
        if !is_plain || !sampler.gaps.covers() {
            return false;
        }
        // Known to be without content: nothing has to be dropped.
        std::mem::forget(std::mem::replace(&mut r.context, sampler.unsampled()));
        true
    }
}

#[cold]
fn ids_of(unsampled: &UnsampledTrace, plan: &HttpPlan) -> TraceIds {
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
                    assert_eq!(
                        is_sampled(shares, hash_murmur2(&hex_digits::<16, 32>(&ids.trace))),
                        sampled,
                        "{shares:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn endings_are_tried_in_order() {
        let none = |_| false;
        let is = |text: &'static [u8; 4]| move |digits: [u8; 4]| digits == *text;
        assert_eq!(ending([0x12, 0x34], none), None);
        for text in [b"1234", b"12ff", b"1200", b"1233", b"0000", b"11ff"] {
            let want = u16::from_str_radix(std::str::from_utf8(text).expect("digits"), 16).expect("a number");
            assert_eq!(ending([0x12, 0x34], is(text)), Some(want.to_be_bytes()));
        }
        // The low octets from the given one on, those before it, and then the next high octet.
        for (fitting, want) in
            [(["1235", "1333"], [0x12, 0x35]), (["1233", "1300"], [0x12, 0x33]), (["1100", "ff00"], [0xff, 0])]
        {
            let fits = |digits: [u8; 4]| fitting.iter().any(|text| text.as_bytes() == digits);
            assert_eq!(ending([0x12, 0x34], fits), Some(want));
        }
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
