//! Latency histograms: nanoseconds, three significant digits, mergeable, exported as HdrHistogram V2.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// Histogram in nanoseconds, accurate to 0.1 %; grows with the largest value.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    /// Exact sum: the mean does not inherit the rounding of buckets.
    sum: u128,
}

/// Longest distinguished time (a day).
const LONGEST: u64 = 86_400_000_000_000;

impl Default for Latency {
    fn default() -> Self {
        // Starts small: a record has many histograms, most of them empty.
        let mut histogram = Histogram::new_with_bounds(1, 2, 3).expect("constant bounds are valid");
        histogram.auto(true);
        Latency { histogram, sum: 0 }
    }
}

impl Latency {
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        let value = nanoseconds.min(LONGEST);
        self.sum += u128::from(value);
        let _ = self.histogram.record(value.max(1));
    }

    pub fn merge(&mut self, other: &Latency) {
        if !other.histogram.is_empty() {
            self.sum += other.sum;
            let _ = self.histogram.add(&other.histogram);
        }
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }
    /// `q` in 0..=1; NaN when empty.
    pub fn quantile(&self, q: f64) -> f64 {
        if self.count() == 0 { f64::NAN } else { self.histogram.value_at_quantile(q).min(self.max_ns()) as f64 * 1e-9 }
    }
    pub fn mean(&self) -> f64 {
        if self.count() == 0 { f64::NAN } else { self.sum as f64 / self.count() as f64 * 1e-9 }
    }
    pub fn deviation(&self) -> f64 {
        if self.count() == 0 { f64::NAN } else { self.histogram.stdev() * 1e-9 }
    }
    pub fn range(&self) -> (f64, f64) {
        if self.count() == 0 {
            return (f64::NAN, f64::NAN);
        }
        (self.histogram.min() as f64 * 1e-9, self.max_ns() as f64 * 1e-9)
    }
    fn max_ns(&self) -> u64 {
        self.histogram.max()
    }
    /// Above `seconds`; 0 when empty.
    pub fn share_above(&self, seconds: f64) -> f64 {
        if self.count() == 0 {
            return 0.0;
        }
        let above = self.histogram.len() - self.histogram.count_between(0, (seconds * 1e9) as u64);
        above as f64 / self.histogram.len() as f64
    }

    /// Points of the percentile curve: (quantile, seconds), denser towards 1.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        if self.count() == 0 {
            return Vec::new();
        }
        let mut points: Vec<(f64, f64)> =
            (0..=18).map(|i| f64::from(i) * 0.05).map(|q| (q, self.quantile(q))).collect();
        let (mut tail, most) = (0.1, 1.0 / self.count() as f64);
        while tail > most && tail > 1e-7 {
            points.push((1.0 - tail, self.quantile(1.0 - tail)));
            tail /= 1.333_521_4; // ten steps for each factor of about eighteen
        }
        points.push((1.0 - most.min(0.1), self.range().1));
        points
    }

    /// Compressed V2 format in base64, readable by HdrHistogram's tools.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        match V2DeflateSerializer::new().serialize(&self.histogram, &mut bytes) {
            Ok(_) => STANDARD.encode(bytes),
            Err(_) => String::new(),
        }
    }

    /// Decodes [`Latency::encode`]; the mean is then that of the buckets.
    pub fn decode(text: &str) -> Result<Latency, String> {
        let bytes = STANDARD.decode(text).map_err(|e| format!("histogram: {e}"))?;
        let mut histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|e| format!("histogram: {e}"))?;
        histogram.auto(true);
        let sum = (histogram.mean() * histogram.len() as f64).max(0.0) as u128;
        Ok(Latency { histogram, sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_thousandth() {
        let mut l = Latency::default();
        (1..=100_000u64).for_each(|i| l.record(i * 1000));
        for q in [0.5, 0.9, 0.99, 0.999] {
            let expected = q * 0.1;
            assert!((l.quantile(q) / expected - 1.0).abs() < 0.0011, "{q}: {}", l.quantile(q));
        }
        assert!((l.mean() - 0.050_000_5).abs() < 1e-9);
        assert!((l.range().0 - 1e-6).abs() < 1e-12);
        assert!((l.share_above(0.09) - 0.1).abs() < 0.001);
        assert!((l.deviation() - 0.1 / 12f64.sqrt()).abs() < 1e-4);
    }

    #[test]
    fn nothing_is_cut_off() {
        let mut l = Latency::default();
        l.record(20_000_000_000);
        l.record(3);
        assert_eq!(l.count(), 2);
        assert!((l.range().1 - 20.0).abs() < 0.02);
        l.record(u64::MAX);
        assert!((l.range().1 - 86_400.0).abs() < 90.0);
    }

    #[test]
    fn merged_is_the_same_as_recorded_together() {
        let (mut a, mut b, mut both) = (Latency::default(), Latency::default(), Latency::default());
        for i in 0..1000u64 {
            let v = i * i * 1000 + 5;
            if i % 3 == 0 {
                a.record(v)
            } else {
                b.record(v)
            }
            both.record(v);
        }
        a.merge(&b);
        assert_eq!((a.count(), a.mean()), (both.count(), both.mean()));
        assert_eq!(a.curve(), both.curve());
        let back = Latency::decode(&a.encode()).unwrap();
        assert_eq!(back.quantile(0.99), a.quantile(0.99));
        assert!((back.mean() / a.mean() - 1.0).abs() < 1e-3);
        assert!(Latency::decode("nonsense!").is_err());
    }

    #[test]
    fn empty_has_no_numbers() {
        let l = Latency::default();
        assert!(l.quantile(0.5).is_nan() && l.mean().is_nan() && l.curve().is_empty());
    }
}
