//! Descriptive statistics and intervals on runs.
//! The unit is a *run* (or a pair of runs), never a request: requests within a run are not independent.

use crate::rng::Rng;

/// An estimate with its interval: `low <= mid <= high`, or all NaN when nothing was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub mid: f64,
    pub high: f64,
}

impl Interval {
    pub fn exact(value: f64) -> Self {
        Interval { low: value, mid: value, high: value }
    }
    /// Half the width over the middle: 0.02 means "± 2 %". 0 when the middle is 0.
    pub fn relative_half_width(&self) -> f64 {
        if self.mid == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.mid.abs() }
    }
    /// Tells whether two intervals overlap, which supports no ranking.
    pub fn overlaps(&self, other: &Interval) -> bool {
        self.low <= other.high && other.low <= self.high
    }
    /// `f` must be monotone.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Interval {
        let (a, b) = (f(self.low), f(self.high));
        Interval { low: a.min(b), mid: f(self.mid), high: a.max(b) }
    }
}

pub fn sample_mean(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// n − 1; 0 for fewer than two values.
pub fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let m = sample_mean(values);
    (values.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (values.len() - 1) as f64).sqrt()
}

/// Quantile `q` in 0..=1, interpolated between order statistics (type 7, as in R and NumPy); NaN for no values.
pub fn sample_quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_sorted(&sorted, q)
}

/// [`sample_quantile`] of values in ascending order.
pub fn quantile_sorted(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (lower, part) = (at.floor() as usize, at.fract());
    let upper = (lower + 1).min(last);
    sorted[lower] + (sorted[upper] - sorted[lower]) * part
}

pub fn sample_median(values: &[f64]) -> f64 {
    sample_quantile(values, 0.5)
}

/// Mean with Student's t interval at `confidence` (0.95 for 95 %). A single run gives an interval without width.
pub fn mean_interval(values: &[f64], confidence: f64) -> Interval {
    let mid = sample_mean(values);
    if values.len() < 2 {
        return Interval::exact(mid);
    }
    let t = t_quantile(0.5 + confidence / 2.0, (values.len() - 1) as f64);
    let half = t * deviation(values) / (values.len() as f64).sqrt();
    Interval { low: mid - half, mid, high: mid + half }
}

/// Median with the distribution-free interval between two order statistics that covers `confidence` (binomial).
/// With fewer runs than that needs (6 for 95 %) it is the whole range.
pub fn median_interval(values: &[f64], confidence: f64) -> Interval {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 {
        return Interval::exact(f64::NAN);
    }
    let mid = quantile_sorted(&sorted, 0.5);
    // P(X_(k) <= median <= X_(n+1-k)) = 1 - 2 * P(Binomial(n, 1/2) < k); takes the greatest k that still covers enough.
    let (mut k, mut tail, mut term) = (0usize, 0.0, 0.5f64.powi(n as i32));
    while k < n / 2 && 1.0 - 2.0 * (tail + term) >= confidence {
        tail += term;
        term *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
    let k = k.max(1);
    Interval { low: sorted[k - 1], mid, high: sorted[n - k] }
}

/// Percentile bootstrap of a statistic from `samples` resamples (at least 1,000 for 95 %).
pub fn bootstrap(
    values: &[f64],
    confidence: f64,
    samples: usize,
    seed: u64,
    statistic: impl Fn(&[f64]) -> f64,
) -> Interval {
    let mid = statistic(values);
    if values.len() < 2 {
        return Interval::exact(mid);
    }
    let mut rng = Rng::new(seed);
    let mut buffer = vec![0.0; values.len()];
    let mut results: Vec<f64> = Vec::with_capacity(samples);
    for _ in 0..samples {
        for slot in &mut buffer {
            *slot = values[rng.below(values.len() as u64) as usize];
        }
        let result = statistic(&buffer);
        if result.is_finite() {
            results.push(result);
        }
    }
    results.sort_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    Interval { low: quantile_sorted(&results, tail), mid, high: quantile_sorted(&results, 1.0 - tail) }
}

/// Quantile of Student's t with `df` degrees of freedom, by bisection; `p` in 0..1.
pub fn t_quantile(p: f64, df: f64) -> f64 {
    if p < 0.5 {
        return -t_quantile(1.0 - p, df);
    }
    if p == 0.5 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while t_cdf(high, df) < p && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let mid = (low + high) / 2.0;
        if t_cdf(mid, df) < p { low = mid } else { high = mid }
    }
    (low + high) / 2.0
}

pub fn t_cdf(t: f64, df: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(df / (df + t * t), df / 2.0, 0.5);
    if t >= 0.0 { 1.0 - tail } else { tail }
}

/// Regularised incomplete beta function, by continued fraction (Lentz).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    // The fraction converges fast only left of the mean; the right side follows by symmetry.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let away_from_zero = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut f, mut c, mut d) = (1.0, 1.0, 0.0);
    for step in 0..400 {
        let m = f64::from(step / 2);
        let numerator = if step == 0 {
            1.0
        } else if step % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        d = 1.0 / away_from_zero(1.0 + numerator * d);
        c = away_from_zero(1.0 + numerator / c);
        f *= c * d;
        if (1.0 - c * d).abs() < 1e-15 {
            break;
        }
    }
    front * (f - 1.0)
}

/// Lanczos, g = 7; positive arguments.
fn ln_gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let sum = C.iter().enumerate().skip(1).fold(C[0], |s, (i, c)| s + c / (x + i as f64));
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_as_numpy() {
        let v = [3.0, 1.0, 2.0, 4.0];
        assert_eq!(sample_median(&v), 2.5);
        assert_eq!(sample_quantile(&v, 0.25), 1.75);
        assert_eq!(sample_quantile(&v, 1.0), 4.0);
        assert!(sample_quantile(&[], 0.5).is_nan());
        assert!((deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) - 2.138_089_935).abs() < 1e-9);
    }

    #[test]
    fn student_t_as_in_the_tables() {
        // Table values of the two-sided 95 % and 99 % quantiles.
        for (df, p, expected) in [
            (1.0, 0.975, 12.7062),
            (2.0, 0.975, 4.302_65),
            (4.0, 0.975, 2.776_45),
            (9.0, 0.975, 2.262_16),
            (30.0, 0.975, 2.042_27),
            (4.0, 0.995, 4.604_09),
            (1000.0, 0.975, 1.962_34),
        ] {
            let t = t_quantile(p, df);
            assert!((t - expected).abs() < 5e-4 * expected, "df {df}: {t}");
        }
        assert!((t_quantile(0.025, 4.0) + 2.776_45).abs() < 1e-4);
    }

    #[test]
    fn the_mean_interval_covers_as_often_as_it_says() {
        let mut rng = Rng::new(11);
        let covered = (0..4000)
            .filter(|_| {
                let runs: Vec<f64> = (0..5).map(|_| 10.0 + rng.normal()).collect();
                let i = mean_interval(&runs, 0.95);
                i.low <= 10.0 && 10.0 <= i.high
            })
            .count();
        assert!((3720..=3880).contains(&covered), "{covered} of 4000");
    }

    #[test]
    fn the_median_interval_is_the_binomial_one() {
        // n = 10 at 95 %: order statistics 2 and 9 (coverage 97.9 %); n = 5: no pair suffices, so the range.
        let v: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(median_interval(&v, 0.95), Interval { low: 2.0, mid: 5.5, high: 9.0 });
        assert_eq!(median_interval(&v[..5], 0.95), Interval { low: 1.0, mid: 3.0, high: 5.0 });
        assert_eq!(median_interval(&[4.0], 0.95), Interval::exact(4.0));
    }

    #[test]
    fn the_bootstrap_covers() {
        let mut rng = Rng::new(5);
        let covered = (0..400)
            .filter(|i| {
                let runs: Vec<f64> = (0..30).map(|_| 3.0 + rng.normal()).collect();
                let b = bootstrap(&runs, 0.95, 400, *i, sample_mean);
                b.low <= 3.0 && 3.0 <= b.high
            })
            .count();
        assert!((360..=396).contains(&covered), "{covered} of 400");
    }

    #[test]
    fn intervals_know_when_they_overlap() {
        let a = Interval { low: 1.0, mid: 2.0, high: 3.0 };
        let b = Interval { low: 2.5, mid: 4.0, high: 5.0 };
        assert!(a.overlaps(&b) && b.overlaps(&a));
        assert!(!a.overlaps(&Interval::exact(3.1)));
        assert_eq!(a.relative_half_width(), 0.5);
        assert_eq!(a.map(|x| 6.0 / x), Interval { low: 2.0, mid: 3.0, high: 6.0 });
    }
}
