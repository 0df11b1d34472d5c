//! Choice among requests by their weights.

use figures::rng::Rng;

/// Chooses an index at random, in proportion to its weight.
#[derive(Clone, Debug)]
pub struct Chooser {
    cumulative: Vec<f64>,
}

impl Chooser {
    /// Negative weights count as 0; if all are 0 the choice is uniform.
    pub fn new(weights: impl Iterator<Item = f64>) -> Chooser {
        let mut sum = 0.0;
        let cumulative: Vec<f64> = weights
            .map(|w| {
                sum += w.max(0.0);
                sum
            })
            .collect();
        let equal = sum <= 0.0;
        let n = cumulative.len();
        Chooser { cumulative: if equal { (1..=n).map(|i| i as f64).collect() } else { cumulative } }
    }

    #[inline]
    pub fn choose(&self, rng: &mut Rng) -> u32 {
        if self.cumulative.len() < 2 {
            return 0;
        }
        let at = rng.unit() * self.cumulative[self.cumulative.len() - 1];
        self.cumulative.partition_point(|c| *c <= at) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_kept() {
        let c = Chooser::new([1.0, 3.0, 0.0].into_iter());
        let mut rng = Rng::new(2);
        let mut counts = [0u32; 3];
        (0..40_000).for_each(|_| counts[c.choose(&mut rng) as usize] += 1);
        assert!((9_500..10_500).contains(&counts[0]) && counts[2] == 0, "{counts:?}");
        assert_eq!(Chooser::new([0.0, 0.0].into_iter()).cumulative, [1.0, 2.0]);
    }
}
