//! Tick positions on linear and logarithmic axes.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    #[default]
    Linear,
    /// Base 10; leaves out values that are not positive.
    Log,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TickSpan {
    pub low: f64,
    pub high: f64,
    pub scale: Scale,
    pub ticks: Vec<f64>,
}

impl TickSpan {
    /// Round limits around `low..=high` with about `wanted` ticks. A linear scale includes zero unless values are
    /// negative.
    pub fn around(low: f64, high: f64, scale: Scale, wanted: usize) -> TickSpan {
        let (low, high) = if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) };
        match scale {
            Scale::Linear => linear(low, high, wanted.max(2)),
            Scale::Log => log(low, high, wanted.max(2)),
        }
    }

    /// From 0 to `end` exactly, with about `wanted` round ticks.
    pub fn until(end: f64, wanted: usize) -> TickSpan {
        let end = if end.is_finite() && end > 0.0 { end } else { 1.0 };
        let step = match end {
            24.0 => [1.0, 2.0, 3.0, 6.0].into_iter().find(|step| 24.0 / step <= wanted as f64).unwrap_or(12.0),
            _ => nice_step(end / wanted.max(2) as f64),
        };
        let ticks = (0..=(end / step + 1e-9) as usize).map(|i| i as f64 * step).collect();
        TickSpan { low: 0.0, high: end, scale: Scale::Linear, ticks }
    }

    /// Position of `value` as a share of the axis; `None` if the scale cannot show it.
    pub fn place(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value > 0.0 => (value / self.low).ln() / (self.high / self.low).ln(),
            Scale::Log => return None,
        };
        share.is_finite().then_some(share)
    }
}

fn linear(low: f64, high: f64, wanted: usize) -> TickSpan {
    let mut low = low.min(0.0);
    let mut high = high;
    if low == high {
        let pad = if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
        (low, high) = (low - pad, high + pad);
    }
    let step = nice_step((high - low) / wanted as f64);
    let first = (low / step).floor();
    let last = (high / step - 1e-9).ceil();
    let ticks: Vec<f64> = (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect();
    TickSpan { low: first * step, high: last * step, scale: Scale::Linear, ticks }
}

fn nice_step(raw: f64) -> f64 {
    let power = 10f64.powf(raw.log10().floor());
    let lead = raw / power;
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|n| lead <= n * 1.000_001).unwrap_or(10.0);
    nice * power
}

fn log(low: f64, high: f64, wanted: usize) -> TickSpan {
    let high = if high > 0.0 { high } else { 1.0 };
    let low = if low > 0.0 { low } else { high / 1000.0 };
    let marks: &[f64] = match (high / low).log10() {
        d if d < 1.2 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        d if d < wanted as f64 / 2.0 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let (from, to) = (low.log10().floor() as i32 - 1, high.log10().ceil() as i32 + 1);
    let all: Vec<f64> = (from..=to).flat_map(|e| marks.iter().map(move |m| m * 10f64.powi(e))).collect();
    let first = all.iter().rposition(|t| *t <= low * 1.000_001).unwrap_or(0);
    let mut last = all.iter().position(|t| *t >= high * 0.999_999).unwrap_or(all.len() - 1);
    if last <= first {
        last = (first + 1).min(all.len() - 1);
    }
    let kept = &all[first..=last];
    // Over many decades, keeps every nth power of ten.
    let every = kept.len().div_ceil(wanted * 2).max(1);
    let ticks = kept.iter().step_by(every).copied().collect();
    TickSpan { low: all[first], high: all[last], scale: Scale::Log, ticks }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_enclose() {
        let s = TickSpan::around(3.0, 97.0, Scale::Linear, 5);
        assert_eq!((s.low, s.high), (0.0, 100.0));
        assert_eq!(s.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let s = TickSpan::around(95.0, 97.0, Scale::Linear, 4);
        assert_eq!((s.low, s.high), (0.0, 100.0), "zero is part of it");
        let s = TickSpan::around(5.0, 5.0, Scale::Linear, 4);
        assert!(s.low <= 0.0 && s.high >= 5.0);
    }

    #[test]
    fn an_axis_may_end_where_its_values_do() {
        assert_eq!(TickSpan::until(24.0, 8).ticks, [0.0, 3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0, 24.0]);
        assert_eq!(TickSpan::until(24.0, 4).ticks, [0.0, 6.0, 12.0, 18.0, 24.0]);
        let s = TickSpan::until(2400.0, 8);
        assert_eq!((s.high, s.ticks.last()), (2400.0, Some(&2000.0)));
        assert_eq!(TickSpan::until(f64::NAN, 4).high, 1.0);
    }

    #[test]
    fn log_ticks_enclose() {
        let s = TickSpan::around(1.0, 1000.0, Scale::Log, 6);
        assert_eq!((s.low, s.high), (1.0, 1000.0));
        assert_eq!(s.place(1000.0), Some(1.0));
        assert!((s.place(10.0).unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(s.place(0.0), None);
        let s = TickSpan::around(0.00012, 0.00034, Scale::Log, 6);
        assert!(s.low <= 0.00012 && s.high >= 0.00034 && s.ticks.len() >= 3, "{s:?}");
        let s = TickSpan::around(1e-9, 1e9, Scale::Log, 5);
        assert!(s.ticks.len() <= 11, "{s:?}");
    }

    #[test]
    fn nonsense_does_not_panic() {
        for (a, b) in [(f64::NAN, 1.0), (0.0, 0.0), (-5.0, -1.0), (f64::INFINITY, 0.0)] {
            for scale in [Scale::Linear, Scale::Log] {
                let s = TickSpan::around(a, b, scale, 5);
                assert!(s.high > s.low, "{a} {b} {s:?}");
            }
        }
    }
}
