//! Gates: requirements on a report, comparison with a baseline, and what they mean for the exit status.

use figures::stats::{Interval, mean_interval};
use figures::units::{Unit, parse_count, parse_seconds, parse_share, significant};

use crate::report::model::{Point, Report, Round};

/// A figure that can be required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Latency at a quantile in parts of ten thousand (9990 for p99.9).
    Quantile(u32),
    Mean,
    Deviation,
    Max,
    Errors,
    Rps,
    Cpu,
    Memory,
}

/// `p99<5ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    pub metric: Metric,
    /// The figure must be below (or equal with `inclusive`); otherwise above.
    pub below: bool,
    pub inclusive: bool,
    pub value: f64,
}

/// A condition, at one offered rate or at every point.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    pub text: String,
    pub condition: Condition,
    pub at: Option<f64>,
}

/// How a requirement came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Holds,
    /// The run cannot decide.
    Undecided,
    Fails,
}

/// A requirement's outcome, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub outcome: Outcome,
    pub what: String,
    pub why: String,
}

impl Judgement {
    /// One line.
    pub fn sentence(&self) -> String {
        let word = match self.outcome {
            Outcome::Holds => "holds    ",
            Outcome::Undecided => "undecided",
            Outcome::Fails => "FAILS    ",
        };
        format!("{word}  {}: {}", self.what, self.why)
    }
}

/// The worst outcome of all; `None` when there is none.
pub fn worst(judgements: &[Judgement]) -> Option<Outcome> {
    judgements.iter().map(|j| j.outcome).max()
}

/// Reads conditions separated by commas: `p99<5ms,errors<0.1%`.
///
/// # Errors
/// A sentence that names the part.
pub fn conditions(text: &str) -> Result<Vec<Condition>, String> {
    text.split(',').map(|part| condition(part.trim())).collect()
}

fn condition(text: &str) -> Result<Condition, String> {
    let wrong = |why: &str| format!("`{text}`: {why}");
    let at = text.find(['<', '>']).ok_or_else(|| wrong("no < or > in it"))?;
    let (name, rest) = text.split_at(at);
    let below = rest.starts_with('<');
    let rest = &rest[1..];
    let (inclusive, value) = rest.strip_prefix('=').map_or((false, rest), |v| (true, v));
    let metric = metric(name.trim()).ok_or_else(|| {
        wrong("the figure is none of p50, p99, p99.9 …, mean, deviation, max, errors, rps, cpu, memory")
    })?;
    let number = match metric {
        Metric::Quantile(_) | Metric::Mean | Metric::Deviation | Metric::Max | Metric::Cpu => parse_seconds(value),
        Metric::Errors => parse_share(value),
        Metric::Rps => parse_count(value.trim_end_matches("rps").trim_end_matches("/s")),
        Metric::Memory => parse_count(value.trim_end_matches('B')),
    };
    let value = number.ok_or_else(|| wrong("its value cannot be read (times such as 5ms, shares such as 1%)"))?;
    Ok(Condition { metric, below, inclusive, value })
}

fn metric(name: &str) -> Option<Metric> {
    Some(match name {
        "mean" => Metric::Mean,
        "deviation" => Metric::Deviation,
        "max" => Metric::Max,
        "errors" => Metric::Errors,
        "rps" => Metric::Rps,
        "cpu" => Metric::Cpu,
        "memory" => Metric::Memory,
        _ => {
            let q: f64 = name.strip_prefix('p')?.parse().ok()?;
            if !(0.0..100.0).contains(&q) {
                return None;
            }
            Metric::Quantile((q * 100.0).round() as u32)
        }
    })
}

/// Reads `p99<5ms@20000rps` or a condition without a rate.
///
/// # Errors
/// A sentence about the part that cannot be read.
pub fn requirement(text: &str) -> Result<Requirement, String> {
    let (first, at) = match text.split_once('@') {
        Some((first, rate)) => {
            let number = rate.trim().trim_end_matches("rps").trim_end_matches("/s");
            let rate = parse_count(number).filter(|r| *r > 0.0);
            (first, Some(rate.ok_or_else(|| format!("`{text}`: the rate after @ cannot be read"))?))
        }
        None => (text, None),
    };
    Ok(Requirement { text: text.into(), condition: condition(first.trim())?, at })
}

impl Condition {
    /// The figure in a round; `None` when it was not measured.
    pub fn of(&self, r: &Round) -> Option<f64> {
        let latency = r.latency.as_ref();
        match self.metric {
            Metric::Quantile(q) => {
                let l = latency?;
                match q {
                    5000 => Some(l.p50),
                    7500 => Some(l.p75),
                    9000 => Some(l.p90),
                    9500 => Some(l.p95),
                    9900 => Some(l.p99),
                    9990 => Some(l.p999),
                    9999 => Some(l.p9999),
                    q => {
                        let histogram = crate::engine::latency::Latency::decode(&l.histogram).ok()?;
                        Some(histogram.quantile(f64::from(q) / 10_000.0))
                    }
                }
            }
            Metric::Mean => Some(latency?.mean),
            Metric::Deviation => Some(latency?.deviation),
            Metric::Max => Some(latency?.max),
            Metric::Errors => Some(r.error_share()),
            Metric::Rps => Some(r.good_rps),
            Metric::Cpu => Some(r.server.as_ref()?.cpu_per_request),
            Metric::Memory => Some(r.server.as_ref()?.memory_peak),
        }
    }

    /// Whether a value meets it.
    pub fn met(&self, value: f64) -> bool {
        match (self.below, self.inclusive) {
            (true, false) => value < self.value,
            (true, true) => value <= self.value,
            (false, false) => value > self.value,
            (false, true) => value >= self.value,
        }
    }

    fn write(&self, value: f64) -> String {
        match self.metric {
            Metric::Errors => Unit::Share.write(value),
            Metric::Rps => Unit::PerSecond.write(value),
            Metric::Memory => Unit::Bytes.write(value),
            _ => Unit::Seconds.write(value),
        }
    }
}

/// Holds every requirement against the points it is about.
pub fn requirements(list: &[Requirement], report: &Report) -> Vec<Judgement> {
    let mut out = Vec::new();
    for requirement in list {
        let about = |p: &&Point| requirement.at.is_none_or(|at| (p.value / at - 1.0).abs() < 0.01);
        let points: Vec<&Point> = report.points.iter().filter(about).collect();
        if points.is_empty() {
            let why = "no point of the report is at this rate".into();
            out.push(Judgement { outcome: Outcome::Undecided, what: requirement.text.clone(), why });
        }
        for point in points {
            let (outcome, why) = judge(&requirement.condition, requirement.at.is_some(), point);
            let what = match report.points.len() {
                1 => requirement.text.clone(),
                _ => format!("{} at {}", requirement.text, crate::report::text::grouped(point.value)),
            };
            out.push(Judgement { outcome, what, why });
        }
    }
    out
}

fn judge(condition: &Condition, at_rate: bool, point: &Point) -> (Outcome, String) {
    let Some(i) = point.interval(|r| condition.of(r)) else {
        return (Outcome::Undecided, "the figure was not measured".into());
    };
    let figure = match point.rounds.len() {
        1 => condition.write(i.mid),
        n => format!(
            "{} ({} to {} over {n} rounds)",
            condition.write(i.mid),
            condition.write(i.low),
            condition.write(i.high)
        ),
    };
    // Limits of the client can only make latencies and rates look worse than the server is.
    if !point.verdict.usable && !condition.met(i.mid) {
        return (Outcome::Undecided, format!("{figure}, but the run is {}", point.verdict.word));
    }
    if at_rate && point.verdict.word == "overloaded" {
        return (Outcome::Fails, format!("{figure}; the server did not keep up with the rate"));
    }
    match (condition.met(i.low), condition.met(i.high)) {
        (true, true) => (Outcome::Holds, figure),
        (false, false) => (Outcome::Fails, figure),
        _ if point.rounds.len() < 3 && condition.met(i.mid) => (Outcome::Holds, figure),
        _ if point.rounds.len() < 3 => (Outcome::Fails, figure),
        _ => (Outcome::Undecided, format!("{figure}: the interval holds both answers")),
    }
}

/// Compares with an earlier report, point by point: the rate of closed loops, latency at p99 of open ones, and the server's CPU
/// time a request. Worse by more than `by` fails if the intervals support it.
pub fn baseline(old: &Report, new: &Report, by: f64) -> Vec<Judgement> {
    let mut out = Vec::new();
    for point in &new.points {
        let Some(before) = old.points.iter().find(|p| (p.value / point.value - 1.0).abs() < 0.01) else { continue };
        let mut figures: Vec<(&str, bool, fn(&Round) -> Option<f64>)> = Vec::new();
        if new.open_loop {
            figures.push(("p99", false, |r| r.latency.as_ref().map(|l| l.p99)));
        } else {
            figures.push(("requests/s", true, |r| Some(r.good_rps)));
        }
        figures.push(("CPU time a request", false, |r| r.server.as_ref().map(|s| s.cpu_per_request)));
        for (name, more_is_better, of) in figures {
            let values = |p: &Point| p.rounds.iter().map(of).collect::<Option<Vec<f64>>>();
            let (Some(a), Some(b)) = (values(before), values(point)) else { continue };
            let what = format!("{name} at {} against the baseline", crate::report::text::grouped(point.value));
            out.push(compare(what, &a, &b, more_is_better, by));
        }
    }
    if out.is_empty() {
        let why = "the two reports have no point in common".into();
        out.push(Judgement { outcome: Outcome::Undecided, what: "baseline".into(), why });
    }
    out
}

fn compare(what: String, old: &[f64], new: &[f64], more_is_better: bool, by: f64) -> Judgement {
    let ratio = ratio_interval(old, new);
    // Above 1 is worse from here on.
    let worse = if more_is_better { ratio.map(|r| 1.0 / r) } else { ratio };
    let percent = |r: f64| format!("{}{} %", if r >= 1.0 { "+" } else { "−" }, significant((r - 1.0).abs() * 100.0));
    let runs = old.len().min(new.len());
    let spread =
        if runs >= 2 { format!(" ({} to {})", percent(ratio.low), percent(ratio.high)) } else { String::new() };
    let figure = format!("{}{spread}", percent(ratio.mid));
    let limit = 1.0 + by;
    let (outcome, why) = match () {
        () if !ratio.mid.is_finite() => (Outcome::Undecided, "a figure is zero".into()),
        () if runs < 3 && worse.mid > limit => (Outcome::Fails, format!("{figure}, from fewer than three rounds")),
        () if runs < 3 => (Outcome::Holds, format!("{figure}, from fewer than three rounds")),
        () if worse.low > limit || (worse.mid > limit && worse.low > 1.0) => (Outcome::Fails, figure),
        () if worse.mid > limit => (Outcome::Undecided, format!("{figure}: too noisy to call")),
        () => (Outcome::Holds, figure),
    };
    Judgement { outcome, what, why }
}

/// Ratio of the geometric means with its 95 % interval (Welch on the logarithms).
fn ratio_interval(old: &[f64], new: &[f64]) -> Interval {
    let logs = |v: &[f64]| v.iter().map(|x| x.ln()).collect::<Vec<f64>>();
    let (a, b) = (logs(old), logs(new));
    let (ia, ib) = (mean_interval(&a, 0.95), mean_interval(&b, 0.95));
    let mid = ib.mid - ia.mid;
    if a.len() < 2 || b.len() < 2 {
        return Interval::exact(mid.exp());
    }
    let variance = |v: &[f64]| figures::stats::deviation(v).powi(2) / v.len() as f64;
    let (va, vb) = (variance(&a), variance(&b));
    let degrees =
        (va + vb).powi(2) / (va * va / (a.len() - 1) as f64 + vb * vb / (b.len() - 1) as f64).max(f64::MIN_POSITIVE);
    let half = figures::stats::t_quantile(0.975, degrees.max(1.0)) * (va + vb).sqrt();
    Interval { low: mid - half, mid, high: mid + half }.map(f64::exp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Times, Verdict};

    fn report(value: f64, p99: &[f64], word: &str) -> Report {
        let rounds = p99.iter().map(|p| Round {
            rps: 1000.0,
            good_rps: 1000.0,
            latency: Some(Times { p99: *p, ..Times::default() }),
            ..Round::default()
        });
        let verdict =
            Verdict { word: word.into(), reasons: Vec::new(), usable: !word.contains("bound"), failed: false };
        Report {
            tool: String::new(),
            version: String::new(),
            title: String::new(),
            command: Vec::new(),
            started: 0,
            machine: Default::default(),
            target: Default::default(),
            load: String::new(),
            quantity: String::new(),
            open_loop: true,
            points: vec![Point { value, rounds: rounds.collect(), verdict }],
            capacity: None,
        }
    }

    fn outcome(rule: &str, report: &Report) -> Outcome {
        worst(&requirements(&[requirement(rule).unwrap()], report)).unwrap()
    }

    #[test]
    fn requirements_are_read() {
        let r = requirement("p99<5ms@20000rps").unwrap();
        assert_eq!(
            (r.condition.metric, r.condition.below, r.condition.value, r.at),
            (Metric::Quantile(9900), true, 0.005, Some(20_000.0))
        );
        assert_eq!(requirement("rps>=50k").unwrap().condition.value, 50_000.0);
        assert_eq!(requirement("p99.95<1s").unwrap().condition.metric, Metric::Quantile(9995));
        assert_eq!(requirement("errors<0.1%").unwrap().condition.value, 0.001);
        assert_eq!(requirement("memory<20MB").unwrap().condition.value, 20e6);
        for bad in ["p99", "p999<1s", "latency<5ms", "p99<fast", "p99<5ms@x"] {
            assert!(requirement(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn outcomes_tell_failing_from_not_knowing() {
        assert_eq!(outcome("p99<5ms", &report(100.0, &[0.004], "valid")), Outcome::Holds);
        assert_eq!(outcome("p99<5ms", &report(100.0, &[0.006], "valid")), Outcome::Fails);
        assert_eq!(outcome("p99<5ms", &report(100.0, &[0.006], "client-bound")), Outcome::Undecided);
        assert_eq!(outcome("p99<5ms", &report(100.0, &[0.004, 0.0049, 0.0056], "valid")), Outcome::Undecided);
        assert_eq!(outcome("p99<5ms", &report(100.0, &[0.0040, 0.0041, 0.0042], "valid")), Outcome::Holds);
        assert_eq!(outcome("p99<5ms@100rps", &report(100.0, &[0.004], "overloaded")), Outcome::Fails);
        assert_eq!(outcome("p99<5ms@200rps", &report(100.0, &[0.004], "valid")), Outcome::Undecided);
        assert_eq!(outcome("cpu<5us", &report(100.0, &[0.004], "valid")), Outcome::Undecided);
    }

    #[test]
    fn a_baseline_finds_regressions_and_not_noise() {
        let result = |old: &[f64], new: &[f64]| {
            worst(&baseline(&report(100.0, old, "valid"), &report(100.0, new, "valid"), 0.02)).unwrap()
        };
        assert_eq!(result(&[0.010, 0.0101, 0.0099], &[0.0100, 0.0101, 0.0100]), Outcome::Holds);
        assert_eq!(result(&[0.010, 0.0101, 0.0099], &[0.0110, 0.0111, 0.0109]), Outcome::Fails);
        assert_eq!(result(&[0.010, 0.0101, 0.0099], &[0.0090, 0.0091, 0.0089]), Outcome::Holds);
        assert_eq!(result(&[0.010, 0.013, 0.008], &[0.014, 0.009, 0.0098]), Outcome::Undecided);
        assert_eq!(result(&[0.010], &[0.011]), Outcome::Fails);
    }
}
