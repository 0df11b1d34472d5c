//! Latency by due time: a stall shows as a mountain, where a series by arrival has a gap. Coarse buckets, since every
//! interval keeps its own.

use serde::{Deserialize, Serialize};

const PER_OCTAVE: u64 = 16;
/// Maximum number of intervals; later ones count into the last.
const INTERVALS_MAX: usize = 4096;

/// Distribution accurate to 1/16; count, sum and maximum are exact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coarse {
    pub count: u64,
    sum: f64,
    max: u64,
    buckets: Vec<u32>,
}

fn bucket(nanoseconds: u64) -> usize {
    let v = nanoseconds.max(PER_OCTAVE);
    let exponent = u64::from(63 - v.leading_zeros());
    ((exponent - 4) * PER_OCTAVE + ((v >> (exponent - 4)) & (PER_OCTAVE - 1))) as usize
}

fn middle(bucket: usize) -> f64 {
    let (exponent, part) = (bucket as u64 / PER_OCTAVE, bucket as u64 % PER_OCTAVE);
    (PER_OCTAVE + part) as f64 * (exponent as f64).exp2() + (exponent as f64).exp2() / 2.0
}

impl Coarse {
    pub fn record(&mut self, nanoseconds: u64) {
        let at = bucket(nanoseconds);
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] = self.buckets[at].saturating_add(1);
        self.count += 1;
        self.sum += nanoseconds as f64;
        self.max = self.max.max(nanoseconds);
    }

    pub fn merge(&mut self, other: &Coarse) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(a, b)| *a = a.saturating_add(*b));
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// NaN when empty.
    pub fn quantile(&self, q: f64) -> f64 {
        let wanted = (q * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += u64::from(*n);
            if seen >= wanted {
                return middle(i).min(self.max as f64) * 1e-9;
            }
        }
        if self.count == 0 { f64::NAN } else { self.max as f64 * 1e-9 }
    }

    pub fn mean(&self) -> f64 {
        if self.count == 0 { f64::NAN } else { self.sum / self.count as f64 * 1e-9 }
    }

    pub fn max(&self) -> f64 {
        if self.count == 0 { f64::NAN } else { self.max as f64 * 1e-9 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Times from the schedule to the last byte, of correct and incorrect responses.
    pub latency: Coarse,
    /// Requests without a right answer.
    pub failed: u64,
}

/// Distinguished requests at most; with more (a log's paths) none is.
const KINDS_MAX: usize = 64;

/// One entry per request of a job; empty for a single one or too many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kinds(pub Vec<RequestCounts>);

impl Kinds {
    pub fn new(requests: usize) -> Kinds {
        Kinds(if (2..=KINDS_MAX).contains(&requests) { vec![RequestCounts::default(); requests] } else { Vec::new() })
    }

    #[inline]
    pub fn answered(&mut self, request: u32, nanoseconds: u64, right: bool) {
        if let Some(kind) = self.0.get_mut(request as usize) {
            kind.latency.record(nanoseconds);
            kind.failed += u64::from(!right);
        }
    }

    pub fn failed(&mut self, request: u32) {
        if let Some(kind) = self.0.get_mut(request as usize) {
            kind.failed += 1;
        }
    }

    pub fn merge(&mut self, other: &Kinds) {
        if self.0.is_empty() {
            self.0 = vec![RequestCounts::default(); other.0.len()];
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.latency.merge(&theirs.latency);
            mine.failed += theirs.failed;
        }
    }
}

/// One distribution per interval of the measured part, by due time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline(pub Vec<Coarse>);

impl Timeline {
    #[inline]
    pub fn record(&mut self, interval: u64, nanoseconds: u64) {
        let at = (interval as usize).min(INTERVALS_MAX - 1);
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Coarse::default);
        }
        self.0[at].record(nanoseconds);
    }

    pub fn merge(&mut self, other: &Timeline) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), Coarse::default);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| a.merge(b));
    }

    /// Growth of the wait per second of due time, by least squares over interval means: a growing queue has a slope, a
    /// slow server has none. `None` with fewer than four intervals.
    pub fn slope(&self, seconds: f64) -> Option<f64> {
        let points: Vec<(f64, f64, f64)> = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, c)| c.count > 0)
            .map(|(i, c)| ((i as f64 + 0.5) * seconds, c.mean(), c.count as f64))
            .collect();
        if points.len() < 4 {
            return None;
        }
        let weight: f64 = points.iter().map(|p| p.2).sum();
        let mean = |f: &dyn Fn(&(f64, f64, f64)) -> f64| points.iter().map(|p| f(p) * p.2).sum::<f64>() / weight;
        let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
        let (xx, xy) = (mean(&|p| (p.0 - x).powi(2)), mean(&|p| (p.0 - x) * (p.1 - y)));
        (xx > 0.0).then_some(xy / xx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_right_to_a_sixteenth() {
        for v in [16u64, 17, 31, 32, 1000, 123_456, 1 << 40, u64::MAX / 2] {
            assert!((middle(bucket(v)) / v as f64 - 1.0).abs() < 0.07, "{v}");
        }
        let mut c = Coarse::default();
        (1..=1000u64).for_each(|i| c.record(i * 1000));
        assert!((c.quantile(0.5) / 0.0005 - 1.0).abs() < 0.07 && (c.mean() - 0.000_500_5).abs() < 1e-9);
        assert_eq!((c.max(), c.count), (0.001, 1000));
        assert!(Coarse::default().quantile(0.5).is_nan());
    }

    #[test]
    fn requests_are_told_apart_unless_there_are_too_many() {
        assert!(Kinds::new(1).0.is_empty() && Kinds::new(1000).0.is_empty());
        let mut kinds = Kinds::new(2);
        kinds.answered(1, 1_000_000, false);
        kinds.failed(0);
        kinds.answered(9, 1, true);
        let mut sum = Kinds::default();
        sum.merge(&kinds);
        sum.merge(&kinds);
        assert_eq!((sum.0[0].failed, sum.0[1].failed, sum.0[1].latency.count), (2, 2, 2));
    }

    #[test]
    fn a_queue_that_grows_has_a_slope_and_a_slow_server_has_none() {
        let (mut flat, mut grows) = (Timeline::default(), Timeline::default());
        for i in 0..100u64 {
            flat.record(i / 10, 3_000_000_000);
            grows.record(i / 10, (i / 10) * 100_000_000);
        }
        assert!(flat.slope(1.0).unwrap().abs() < 1e-9);
        assert!((grows.slope(1.0).unwrap() - 0.1).abs() < 1e-6);
        assert_eq!(Timeline::default().slope(1.0), None);
        let mut sum = flat.clone();
        sum.merge(&grows);
        assert_eq!(sum.0.iter().map(|c| c.count).sum::<u64>(), 200);
    }
}
