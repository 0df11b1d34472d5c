//! Fits the universal scalability law, X(N) = γN / (1 + α(N−1) + βN(N−1)), to measured levels: γ is the throughput at
//! N = 1, α the serial share, β the coherency cost (Gunther, "USL Scalability Modeling with Three Parameters", 2018).
//! Every set of points has a curve; [`Fit::refusals`] lists the reasons not to use it.

use figures::rng::Rng;
use figures::stats::{Interval, quantile_sorted, sample_mean, t_quantile};

#[derive(Clone, Debug, PartialEq)]
pub struct UslLevel {
    /// Connections, users or cores; positive.
    pub n: f64,
    /// Requests per second of each run; positive.
    pub runs: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usl {
    pub gamma: f64,
    pub alpha: f64,
    pub beta: f64,
}

impl Usl {
    pub fn throughput(&self, n: f64) -> f64 {
        self.gamma * n / (1.0 + self.alpha * (n - 1.0) + self.beta * n * (n - 1.0))
    }
    /// Mean response time at `n` in a closed system without think time (Little): N / X(N).
    pub fn response(&self, n: f64) -> f64 {
        n / self.throughput(n)
    }
    /// Concurrency with the highest throughput, √((1−α)/β); infinite unless β is positive.
    pub fn peak(&self) -> f64 {
        if self.beta <= 0.0 { f64::INFINITY } else { ((1.0 - self.alpha).max(0.0) / self.beta).sqrt() }
    }
    /// Concurrency at which γN meets the asymptote γ/α; infinite without a serial share.
    pub fn knee(&self) -> f64 {
        if self.alpha <= 0.0 { f64::INFINITY } else { 1.0 / self.alpha }
    }
}

/// A fitted curve with the evidence for and against it.
#[derive(Clone, Debug)]
pub struct Fit {
    pub usl: Usl,
    pub gamma: Interval,
    pub alpha: Interval,
    pub beta: Interval,
    /// Concurrency at the peak; a bound is infinite if resamples had no peak.
    pub peak: Interval,
    /// Throughput at the peak or, without a peak, at the highest measured level, in requests per second.
    pub peak_throughput: Interval,
    /// Largest relative difference between a level's mean and the curve (0.1 = 10 %).
    pub worst_residual: f64,
    /// Reasons against extrapolation; empty when it is allowed.
    pub refusals: Vec<String>,
    pub levels: usize,
    pub runs_fewest: usize,
}

/// Largest residual of an accepted curve.
pub const RESIDUAL_MAX: f64 = 0.10;
pub const LEVELS_MIN: usize = 6;
/// Bootstrap resamples; several hundred are needed for smooth 95 % limits.
pub const RESAMPLES: usize = 1000;

/// Fits the law and checks the result. Intervals are 95 % bootstrap percentiles over runs or, with one run per level,
/// over relative residuals, widened for few data (Student's t). With three single runs their bounds are NaN, because
/// no residual remains.
///
/// # Errors
/// There are fewer than three levels, or a value is not positive and finite.
pub fn fit_law(levels: &[UslLevel], seed: u64) -> Result<Fit, String> {
    if levels.len() < 3 {
        return Err(format!("{} levels of concurrency: three parameters need at least three", levels.len()));
    }
    for level in levels {
        let good = |v: f64| v > 0.0 && v.is_finite();
        if !good(level.n) || level.runs.is_empty() || !level.runs.iter().all(|r| good(*r)) {
            return Err(format!("level {}: concurrency and throughputs must be positive numbers", level.n));
        }
    }
    let means: Vec<(f64, f64)> = levels.iter().map(|l| (l.n, sample_mean(&l.runs))).collect();
    let usl = solve(&means).ok_or("the levels do not determine a curve (are they all the same?)")?;

    let mut rng = Rng::new(seed);
    let mut samples: [Vec<f64>; 5] = Default::default();
    let runs_fewest = levels.iter().map(|l| l.runs.len()).min().unwrap_or(0);
    let free = levels.iter().map(|l| l.runs.len()).sum::<usize>().saturating_sub(3);
    let repeated = runs_fewest > 1;
    // Corrects residuals, which are smaller than the errors by the degrees of freedom of the fit.
    let widen = (levels.len() as f64 / (levels.len() as f64 - 3.0)).sqrt();
    let residuals: Vec<f64> = means.iter().map(|(n, x)| (x / usl.throughput(*n) - 1.0) * widen).collect();
    if free > 0 {
        for _ in 0..RESAMPLES {
            let resampled: Vec<(f64, f64)> = levels
                .iter()
                .map(|l| {
                    if !repeated {
                        let residual = residuals[rng.below(residuals.len() as u64) as usize];
                        return (l.n, (usl.throughput(l.n) * (1.0 + residual)).max(f64::MIN_POSITIVE));
                    }
                    let (runs, own) = (l.runs.len() as f64, sample_mean(&l.runs));
                    let pick = |_| l.runs[rng.below(l.runs.len() as u64) as usize];
                    let drawn = (0..l.runs.len()).map(pick).sum::<f64>() / runs;
                    // Corrects the spread: means of resamples scatter less than means of runs.
                    (l.n, (own + (drawn - own) * (runs / (runs - 1.0)).sqrt()).max(f64::MIN_POSITIVE))
                })
                .collect();
            if let Some(u) = solve(&resampled) {
                let values = [u.gamma, u.alpha, u.beta, u.peak(), top(&u, levels)];
                samples.iter_mut().zip(values).for_each(|(s, v)| s.push(v));
            }
        }
    }
    let mids = [usl.gamma, usl.alpha, usl.beta, usl.peak(), top(&usl, levels)];
    let few = t_quantile(0.975, free.max(1) as f64) / 1.959_964;
    let intervals: Vec<Interval> = samples.iter_mut().zip(mids).map(|(s, mid)| percentiles(s, mid, few)).collect();
    let worst_residual = means.iter().map(|(n, x)| ((usl.throughput(*n) - x) / x).abs()).fold(0.0, f64::max);
    let mut fit = Fit {
        usl,
        gamma: intervals[0],
        alpha: intervals[1],
        beta: intervals[2],
        peak: intervals[3],
        peak_throughput: intervals[4],
        worst_residual,
        refusals: Vec::new(),
        levels: levels.len(),
        runs_fewest,
    };
    fit.refusals = refusals(&fit, levels);
    Ok(fit)
}

fn top(usl: &Usl, levels: &[UslLevel]) -> f64 {
    let highest = levels.iter().map(|l| l.n).fold(0.0, f64::max);
    usl.throughput(if usl.peak().is_finite() { usl.peak().max(1.0) } else { highest })
}

/// Returns the middle 95 % of the resamples, widened around `mid` by the factor `few`.
fn percentiles(samples: &mut [f64], mid: f64, few: f64) -> Interval {
    if samples.is_empty() {
        return Interval { low: f64::NAN, mid, high: f64::NAN };
    }
    samples.sort_by(f64::total_cmp);
    let at = |q: f64| {
        // Falls back to the order statistic: interpolation between infinities gives NaN.
        let v = quantile_sorted(samples, q);
        if v.is_nan() { samples[(q * (samples.len() - 1) as f64) as usize] } else { v }
    };
    let far = |v: f64| if v.is_finite() && mid.is_finite() { mid + (v - mid) * few } else { v };
    Interval { low: far(at(0.025)).min(mid), mid, high: far(at(0.975)).max(mid) }
}

fn refusals(fit: &Fit, levels: &[UslLevel]) -> Vec<String> {
    let mut reasons = Vec::new();
    let (u, highest) = (&fit.usl, levels.iter().map(|l| l.n).fold(0.0, f64::max));
    // Ignores rounding errors of a perfect fit (about 1e-12), and values whose interval contains 0.
    let negative = |i: &Interval| i.mid < -1e-6 && (i.high.is_nan() || i.high < 0.0);
    // Reports an undetermined sign only for few runs.
    let few = levels.iter().map(|l| l.runs.len()).sum::<usize>() < 9;
    for (name, i) in [("α", &fit.alpha), ("β", &fit.beta)] {
        if few && i.mid < -1e-6 && !negative(i) {
            reasons.push(format!(
                "{name} = {:.6} is negative, but its interval contains 0: there are too few runs to determine it",
                i.mid
            ));
        }
    }
    if negative(&fit.alpha) {
        reasons.push(format!(
            "α = {:.4} is negative: throughput grows faster than concurrency, so the low levels were limited by something else",
            u.alpha
        ));
    }
    if negative(&fit.beta) {
        reasons.push(format!("β = {:.6} is negative: the curve has no peak and would grow without end", u.beta));
    }
    if fit.worst_residual > RESIDUAL_MAX {
        reasons.push(format!(
            "the curve deviates from a level by {:.0} % (limit {:.0} %): the law does not describe these points",
            fit.worst_residual * 100.0,
            RESIDUAL_MAX * 100.0
        ));
    }
    if levels.len() < LEVELS_MIN {
        reasons.push(format!("{} levels measured, at least {LEVELS_MIN} are needed", levels.len()));
    }
    if highest < 0.8 * u.peak() {
        reasons.push(match u.peak().is_finite() {
            true => format!("the peak at N = {:.0} is beyond the measured levels (highest {highest:.0})", u.peak()),
            false => {
                format!("the peak is not covered: no level above 0.8 of it was measured (highest level {highest:.0})")
            }
        });
    }
    reasons
}

/// Minimizes the squares of relative errors: a linear start on N/X, then Levenberg–Marquardt on X.
fn solve(points: &[(f64, f64)]) -> Option<Usl> {
    // N/X = (1/γ) + (α/γ)(N−1) + (β/γ)N(N−1) is linear; dividing by N/X makes the errors relative.
    let mut normal = Normal::default();
    for (n, x) in points {
        let (y, w) = (n / x, x / n);
        normal.add([w, (n - 1.0) * w, n * (n - 1.0) * w], y * w);
    }
    let [a, b, c] = normal.solve(0.0)?;
    let mut usl = if a > 0.0 {
        Usl { gamma: 1.0 / a, alpha: b / a, beta: c / a }
    } else {
        // Replaces a meaningless start (noise at N = 1): γ follows from the lowest level.
        let (n, x) = points.iter().copied().min_by(|p, q| p.0.total_cmp(&q.0))?;
        Usl { gamma: x / n, alpha: 0.01, beta: 1e-5 }
    };
    let cost = |u: &Usl| -> f64 { points.iter().map(|(n, x)| ((u.throughput(*n) - x) / x).powi(2)).sum() };
    let (mut best, mut damping) = (cost(&usl), 1e-3);
    for _ in 0..200 {
        let mut normal = Normal::default();
        for (n, x) in points {
            let d = 1.0 + usl.alpha * (n - 1.0) + usl.beta * n * (n - 1.0);
            let value = usl.gamma * n / d;
            let slope = [n / d / x, -value / d * (n - 1.0) / x, -value / d * n * (n - 1.0) / x];
            normal.add(slope, (x - value) / x);
        }
        let Some(step) = normal.solve(damping) else { break };
        let next = Usl { gamma: usl.gamma + step[0], alpha: usl.alpha + step[1], beta: usl.beta + step[2] };
        let next_cost = cost(&next);
        if next_cost < best && next.gamma > 0.0 {
            let gain = best - next_cost;
            (usl, best) = (next, next_cost);
            damping = (damping / 10.0_f64).max(1e-12);
            if gain < 1e-15 {
                break;
            }
        } else {
            damping *= 10.0;
            if damping > 1e12 {
                break;
            }
        }
    }
    (usl.gamma.is_finite() && usl.alpha.is_finite() && usl.beta.is_finite()).then_some(usl)
}

#[derive(Default)]
struct Normal {
    matrix: [[f64; 3]; 3],
    right: [f64; 3],
}

impl Normal {
    fn add(&mut self, row: [f64; 3], value: f64) {
        for i in 0..3 {
            for j in 0..3 {
                self.matrix[i][j] += row[i] * row[j];
            }
            self.right[i] += row[i] * value;
        }
    }

    /// Solves the equations by Gaussian elimination, with scaling (columns differ by orders of magnitude) and
    /// Marquardt's damping. Returns `None` for a singular matrix.
    fn solve(&self, damping: f64) -> Option<[f64; 3]> {
        let scale: [f64; 3] = std::array::from_fn(|i| self.matrix[i][i].sqrt());
        if scale.iter().any(|s| *s <= 0.0 || !s.is_finite()) {
            return None;
        }
        let mut m = [[0.0; 4]; 3];
        for i in 0..3 {
            for j in 0..3 {
                m[i][j] = self.matrix[i][j] / (scale[i] * scale[j]);
            }
            m[i][i] += damping;
            m[i][3] = self.right[i] / scale[i];
        }
        for column in 0..3 {
            let pivot = (column..3).max_by(|a, b| m[*a][column].abs().total_cmp(&m[*b][column].abs()))?;
            if m[pivot][column].abs() < 1e-14 {
                return None;
            }
            m.swap(column, pivot);
            for row in 0..3 {
                if row != column {
                    let factor = m[row][column] / m[column][column];
                    let from = m[column];
                    m[row].iter_mut().zip(from).skip(column).for_each(|(cell, above)| *cell -= factor * above);
                }
            }
        }
        Some(std::array::from_fn(|i| m[i][3] / m[i][i] / scale[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 200.0];

    fn measured(usl: &Usl, noise: f64, runs: usize, seed: u64) -> Vec<UslLevel> {
        let mut rng = Rng::new(seed);
        LEVELS
            .iter()
            .map(|n| UslLevel {
                n: *n,
                runs: (0..runs).map(|_| usl.throughput(*n) * (1.0 + noise * rng.normal())).collect(),
            })
            .collect()
    }

    #[test]
    fn a_perfect_curve_is_found_again() {
        let truth = Usl { gamma: 995.0, alpha: 0.0267, beta: 0.000_769 };
        let f = fit_law(&measured(&truth, 0.0, 1, 1), 1).unwrap();
        assert!((f.usl.gamma / truth.gamma - 1.0).abs() < 1e-6);
        assert!((f.usl.alpha / truth.alpha - 1.0).abs() < 1e-4);
        assert!((f.usl.beta / truth.beta - 1.0).abs() < 1e-4);
        assert!((f.usl.peak() - 35.58).abs() < 0.01, "√((1−0.0267)/0.000769)");
        assert!(f.refusals.is_empty(), "{:?}", f.refusals);
    }

    #[test]
    fn the_intervals_hold_the_truth_and_shrink_with_noise() {
        let truth = Usl { gamma: 1000.0, alpha: 0.03, beta: 0.0005 };
        let held = (0..40)
            .filter(|seed| {
                let f = fit_law(&measured(&truth, 0.02, 6, 100 + seed), *seed).unwrap();
                f.alpha.low <= truth.alpha && truth.alpha <= f.alpha.high
            })
            .count();
        assert!(held >= 32, "95 % intervals held the truth {held} times of 40");
        let width = |noise| {
            let f = fit_law(&measured(&truth, noise, 6, 5), 5).unwrap();
            f.peak_throughput.high - f.peak_throughput.low
        };
        assert!(width(0.002) < width(0.03));
    }

    /// Counts how often the 95 % intervals of α and of the peak hold the truth, of a hundred measurements.
    fn coverage(runs: usize) -> [usize; 2] {
        let truth = Usl { gamma: 1000.0, alpha: 0.03, beta: 0.0002 };
        let top = truth.throughput(truth.peak());
        let mut held = [0, 0];
        for seed in 0..100 {
            let f = fit_law(&measured(&truth, 0.02, runs, seed + 77), seed).unwrap();
            held[0] += usize::from(f.alpha.low <= truth.alpha && truth.alpha <= f.alpha.high);
            held[1] += usize::from(f.peak_throughput.low <= top && top <= f.peak_throughput.high);
        }
        held
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        for runs in [1, 2, 3, 6] {
            let held = coverage(runs);
            assert!(held.iter().all(|n| (90..=100).contains(n)), "{runs} runs: {held:?}");
        }
        let single = fit_law(&measured(&Usl { gamma: 1000.0, alpha: 0.03, beta: 0.0002 }, 0.02, 1, 3), 3).unwrap();
        assert!(
            single.alpha.high - single.alpha.low > 1e-4,
            "one run per level has an interval, too: {:?}",
            single.alpha
        );
        let three: Vec<UslLevel> =
            [1.0, 2.0, 4.0].iter().map(|n| UslLevel { n: *n, runs: vec![100.0 * n.sqrt()] }).collect();
        assert!(fit_law(&three, 1).unwrap().alpha.low.is_nan(), "and three of them have none");
    }

    #[test]
    fn nothing_is_said_of_a_coefficient_whose_interval_holds_zero() {
        let truth = Usl { gamma: 1000.0, alpha: 0.0, beta: 0.0002 };
        for seed in 0..40 {
            let f = fit_law(&measured(&truth, 0.02, 3, seed), seed).unwrap();
            let said = f.refusals.iter().any(|r| r.contains("grows faster"));
            assert_eq!(said, f.alpha.high < 0.0, "{:?} {:?}", f.alpha, f.refusals);
        }
    }

    #[test]
    fn every_rule_of_refusal_refuses() {
        let says = |levels: &[UslLevel], word: &str| {
            let f = fit_law(levels, 1).unwrap();
            assert!(f.refusals.iter().any(|r| r.contains(word)), "{word}: {:?}", f.refusals);
        };
        let superlinear = Usl { gamma: 1000.0, alpha: -0.06, beta: 0.0 };
        let four: Vec<UslLevel> =
            [2.0, 4.0, 8.0, 12.0].iter().map(|n| UslLevel { n: *n, runs: vec![superlinear.throughput(*n)] }).collect();
        says(&four, "α");
        says(&four, "at least 6");
        let ends = Usl { gamma: 1000.0, alpha: 0.02, beta: -0.000_01 };
        says(&measured(&ends, 0.0, 1, 1), "β");
        let early = Usl { gamma: 1000.0, alpha: 0.01, beta: 1e-7 };
        says(&measured(&early, 0.0, 1, 1), "beyond the measured levels");
        let mut steps = measured(&Usl { gamma: 1000.0, alpha: 0.05, beta: 0.001 }, 0.0, 1, 1);
        steps[4].runs = vec![steps[4].runs[0] * 2.0];
        says(&steps, "deviates from a level");
    }

    #[test]
    fn published_instance_families_scale_above_linear_and_are_refused() {
        // Published reverse-proxy maxima of c5 and m5 machines over vCPUs (2019, table 5).
        for runs in [[31075.0, 75955.0, 188_886.0, 450_308.0], [33774.0, 74151.0, 187_147.0, 437_523.0]] {
            let levels: Vec<UslLevel> =
                [2.0, 4.0, 8.0, 16.0].iter().zip(runs).map(|(n, x)| UslLevel { n: *n, runs: vec![x] }).collect();
            let f = fit_law(&levels, 1).unwrap();
            assert!(f.usl.alpha < -0.05, "{:?}", f.usl);
            assert!(f.refusals[0].contains("negative"));
        }
    }

    #[test]
    fn nonsense_is_an_error_and_not_a_panic() {
        assert!(fit_law(&[], 1).is_err());
        let flat = |x: f64| UslLevel { n: 4.0, runs: vec![x] };
        assert!(fit_law(&[flat(1.0), flat(1.0), flat(1.0)], 1).is_err());
        let mut levels = measured(&Usl { gamma: 1.0, alpha: 0.1, beta: 0.1 }, 0.0, 1, 1);
        levels[0].runs[0] = f64::NAN;
        assert!(fit_law(&levels, 1).is_err());
    }
}
