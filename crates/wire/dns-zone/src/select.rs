//! Selection of a pool's servers, which the caller of [`crate::answer`] makes.

use std::net::IpAddr;

/// Addresses that a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    /// Records of type A.
    V4,
    /// Records of type AAAA.
    V6,
}

impl AddressFamily {
    /// Tells whether an address belongs to it.
    pub fn has(self, address: &IpAddr) -> bool {
        address.is_ipv4() == (self == AddressFamily::V4)
    }
}

/// Result of [`Selector::select`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The answer depends on the client's address: it holds for its subnet only.
    pub by_place: bool,
    /// The pool has no server that may be answered: the response is SERVFAIL.
    pub failed: bool,
}

/// Decisions that the caller makes for an answer.
pub trait Selector {
    /// Appends the addresses of a pool, in their order in the answer; none means that the name has no such record.
    /// `pool` is the number that [`crate::ZoneBuilder::add_pool`] got.
    fn select(&mut self, pool: usize, family: AddressFamily, out: &mut Vec<IpAddr>) -> Selection;
    /// Returns a random number, by which sets of addresses rotate.
    fn random(&mut self) -> u64;
}

/// Draws up to `count` positions without repetition, with probabilities proportional to their weights. A weight of 0
/// counts as 1.
pub fn draw_positions(weights: &[u32], count: usize, mut random: impl FnMut() -> u64) -> Vec<usize> {
    let mut left: Vec<(usize, u64)> = weights.iter().map(|weight| u64::from((*weight).max(1))).enumerate().collect();
    let mut total: u64 = left.iter().map(|(_, weight)| weight).sum();
    let mut drawn = Vec::with_capacity(count.min(left.len()));
    while drawn.len() < count && total > 0 {
        let mut point = random() % total;
        let found = left.iter().position(|(_, weight)| match point.checked_sub(*weight) {
            Some(rest) => {
                point = rest;
                false
            }
            None => true,
        });
        let Some(found) = found else { break };
        let (index, weight) = left.swap_remove(found);
        total -= weight;
        drawn.push(index);
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_weights_and_repeat_nothing() {
        let mut random = testkit::Random::new(0x9E37_79B9_7F4A_7C15);
        let mut first = [0; 3];
        for _ in 0..6000 {
            let drawn = draw_positions(&[3, 2, 1], 2, || random.below(1 << 30) as u64);
            assert!(drawn.len() == 2 && drawn[0] != drawn[1], "{drawn:?}");
            first[drawn[0]] += 1;
        }
        for (got, wanted) in first.into_iter().zip([3000i32, 2000, 1000]) {
            assert!((got - wanted).abs() < 200, "{first:?}");
        }
        assert_eq!(draw_positions(&[], 3, || 7), Vec::<usize>::new());
        let mut all = draw_positions(&[0, 5, 1], 9, || 1);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    }
}
