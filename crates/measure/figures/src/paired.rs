//! Comparison of two variants from interleaved runs.
//! Drift of the machine hits both halves of a pair, so the ratio within a pair scatters less than either figure. Ratios
//! are compared as logarithms, where "twice" and "half" are equally far from 1.

use crate::stats::{Interval, mean_interval, sample_median};

/// Conclusion about `b` over `a`, from the interval of their ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairVerdict {
    Greater,
    Less,
    Undecided,
    /// Fewer than three pairs, or a figure that is not positive.
    TooFew,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Geometric mean of the ratios b/a with its 95 % interval (Student's t on the logarithms).
    pub ratio: Interval,
    /// Hodges–Lehmann estimate of the ratio; robust against a single outlier.
    pub robust: f64,
    pub pairs: usize,
    pub verdict: PairVerdict,
}

/// Compares `b` with `a` pair by pair; ignores the surplus values of the longer slice.
pub fn compare_pairs(a: &[f64], b: &[f64]) -> Comparison {
    let logs: Vec<f64> = a.iter().zip(b).filter(|(a, b)| **a > 0.0 && **b > 0.0).map(|(a, b)| (b / a).ln()).collect();
    let all_positive = logs.len() == a.len().min(b.len());
    if logs.is_empty() {
        return Comparison {
            ratio: Interval::exact(f64::NAN),
            robust: f64::NAN,
            pairs: 0,
            verdict: PairVerdict::TooFew,
        };
    }
    let ratio = mean_interval(&logs, 0.95).map(f64::exp);
    let verdict = if logs.len() < 3 || !all_positive {
        PairVerdict::TooFew
    } else if ratio.low > 1.0 {
        PairVerdict::Greater
    } else if ratio.high < 1.0 {
        PairVerdict::Less
    } else {
        PairVerdict::Undecided
    };
    Comparison { ratio, robust: hodges_lehmann(&logs).exp(), pairs: logs.len(), verdict }
}

/// Median of all pairwise means, including each value with itself.
pub fn hodges_lehmann(values: &[f64]) -> f64 {
    let mut means = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (i, a) in values.iter().enumerate() {
        means.extend(values[i..].iter().map(|b| (a + b) / 2.0));
    }
    sample_median(&means)
}

/// Pairs needed to see a relative difference `delta` at 95 % confidence and 80 % power, when log ratios deviate by
/// `sigma`.
pub fn pairs_needed(sigma: f64, delta: f64) -> usize {
    ((1.96f64 + 0.84).powi(2) * sigma * sigma / (delta * delta)).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn drift_hits_both_and_cancels() {
        let mut rng = Rng::new(3);
        // The machine slows down by half over the runs; b is 5 % faster throughout.
        let a: Vec<f64> = (0..10).map(|i| 100.0 / (1.0 + 0.05 * f64::from(i))).collect();
        let b: Vec<f64> = a.iter().map(|a| a * 1.05 * (1.0 + 0.005 * rng.normal())).collect();
        let c = compare_pairs(&a, &b);
        assert_eq!(c.verdict, PairVerdict::Greater);
        assert!((c.ratio.mid - 1.05).abs() < 0.01, "{c:?}");
        assert!(c.ratio.high - c.ratio.low < 0.02);
        assert_eq!(compare_pairs(&b, &a).verdict, PairVerdict::Less);
    }

    #[test]
    fn same_things_are_rarely_ranked() {
        let mut rng = Rng::new(9);
        let wrong = (0..1000)
            .filter(|_| {
                let a: Vec<f64> = (0..6).map(|_| 100.0 + rng.normal()).collect();
                let b: Vec<f64> = (0..6).map(|_| 100.0 + rng.normal()).collect();
                compare_pairs(&a, &b).verdict != PairVerdict::Undecided
            })
            .count();
        assert!((25..=80).contains(&wrong), "{wrong} of 1000, about 50 expected");
    }

    #[test]
    fn few_pairs_rank_nothing() {
        assert_eq!(compare_pairs(&[1.0, 1.0], &[2.0, 2.0]).verdict, PairVerdict::TooFew);
        assert_eq!(compare_pairs(&[], &[]).verdict, PairVerdict::TooFew);
        assert_eq!(compare_pairs(&[1.0, 0.0, 1.0, 1.0], &[2.0, 2.0, 2.0, 2.0]).verdict, PairVerdict::TooFew);
    }

    #[test]
    fn the_robust_ratio_ignores_one_wild_pair() {
        assert_eq!(hodges_lehmann(&[1.0, 2.0, 3.0]), 2.0);
        let c = compare_pairs(&[1.0; 7], &[1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 9.0]);
        assert!((c.robust - 1.1).abs() < 1e-9);
    }

    #[test]
    fn the_number_of_pairs_is_the_textbook_one() {
        assert_eq!(pairs_needed(0.02, 0.01), 32);
    }
}
