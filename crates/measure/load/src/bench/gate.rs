//! Gates: requirements on a report, comparison with a baseline, and their exit status.

use figures::units::{Unit, parse_count, parse_seconds, parse_share};

use crate::report::answer::many;
use crate::report::model::{Point, Report, Round};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Latency at a quantile in 1/10,000 (9990 for p99.9).
    Quantile(u32),
    Mean,
    Deviation,
    Max,
    Errors,
    Rps,
    Cpu,
    Memory,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateCondition {
    pub metric: Metric,
    /// The figure must be below (with `inclusive`, or equal); otherwise above.
    pub below: bool,
    pub inclusive: bool,
    pub value: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    pub text: String,
    pub condition: GateCondition,
    pub at: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GateResult {
    Holds,
    Undecided,
    Fails,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GateReport {
    pub outcome: GateResult,
    pub what: String,
    pub why: String,
}

impl GateReport {
    pub fn sentence(&self) -> String {
        let word = match self.outcome {
            GateResult::Holds => "holds    ",
            GateResult::Undecided => "undecided",
            GateResult::Fails => "FAILS    ",
        };
        format!("{word}  {}: {}", self.what, self.why)
    }
}

pub fn worst_result(judgements: &[GateReport]) -> Option<GateResult> {
    judgements.iter().map(|j| j.outcome).max()
}

/// Reads conditions such as `p99<5ms,errors<0.1%`.
pub fn parse_conditions(text: &str) -> Result<Vec<GateCondition>, String> {
    text.split(',').map(|part| condition(part.trim())).collect()
}

fn condition(text: &str) -> Result<GateCondition, String> {
    let wrong = |why: &str| format!("`{text}`: {why}");
    let at = text.find(['<', '>']).ok_or_else(|| wrong("no < or > in it"))?;
    let (name, rest) = text.split_at(at);
    let below = rest.starts_with('<');
    let rest = &rest[1..];
    let (inclusive, value) = rest.strip_prefix('=').map_or((false, rest), |v| (true, v));
    let metric = metric(name.trim()).ok_or_else(|| {
        wrong("the figure is none of p50, p99, p99.9 …, mean, deviation, max, errors, rps, cpu, memory")
    })?;
    // Latencies need a unit: a bare 5 is milliseconds in wrk and k6, and seconds elsewhere.
    let unit = value.trim().ends_with(|c: char| c.is_alphabetic() || c == '%');
    match metric {
        Metric::Rps => {}
        _ if unit => {}
        Metric::Errors if value.trim().parse().is_ok_and(|share: f64| share < 1.0) => {}
        Metric::Errors => return Err(wrong("the share needs a unit, as in errors<1%")),
        Metric::Memory => return Err(wrong("the size needs a unit, as in memory<20MB")),
        _ => return Err(wrong("the time needs a unit, as in p99<5ms")),
    }
    let number = match metric {
        Metric::Quantile(_) | Metric::Mean | Metric::Deviation | Metric::Max | Metric::Cpu => parse_seconds(value),
        Metric::Errors => parse_share(value),
        Metric::Rps => parse_count(value.trim_end_matches("rps").trim_end_matches("/s")),
        Metric::Memory => parse_count(value.trim_end_matches('B')),
    };
    let value = number.ok_or_else(|| wrong("its value cannot be read (times such as 5ms, shares such as 1%)"))?;
    Ok(GateCondition { metric, below, inclusive, value })
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

/// Reads `p99<5ms@20000rps`, or a condition without a rate.
pub fn parse_requirement(text: &str) -> Result<Requirement, String> {
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

impl GateCondition {
    /// The figure of a round; `None` when not measured.
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
            Metric::Cpu => r.server.as_ref()?.cpu_per_request,
            Metric::Memory => Some(r.server.as_ref()?.memory_peak),
        }
    }

    pub fn met(&self, value: f64) -> bool {
        match (self.below, self.inclusive) {
            (true, false) => value < self.value,
            (true, true) => value <= self.value,
            (false, false) => value > self.value,
            (false, true) => value >= self.value,
        }
    }

    pub fn write(&self, value: f64) -> String {
        match self.metric {
            Metric::Errors => Unit::Share.write(value),
            Metric::Rps => Unit::PerSecond.write(value),
            Metric::Memory => Unit::Bytes.write(value),
            _ => Unit::Seconds.write(value),
        }
    }
}

pub fn judge_requirements(list: &[Requirement], report: &Report) -> Vec<GateReport> {
    let mut out = Vec::new();
    for requirement in list {
        let about = |p: &&Point| requirement.at.is_none_or(|at| (p.value / at - 1.0).abs() < 0.01);
        let points: Vec<&Point> = report.points.iter().filter(about).collect();
        if points.is_empty() {
            let why = "no point of the report is at this rate".into();
            out.push(GateReport { outcome: GateResult::Undecided, what: requirement.text.clone(), why });
        }
        for point in points {
            let (outcome, why) = judge(&requirement.condition, requirement.at.is_some(), point);
            let what = match report.points.len() {
                1 => requirement.text.clone(),
                _ => format!("{} at {}", requirement.text, many(point.value, &report.quantity)),
            };
            out.push(GateReport { outcome, what, why });
        }
    }
    out
}

fn judge(condition: &GateCondition, at_rate: bool, point: &Point) -> (GateResult, String) {
    let Some(i) = point.interval(|r| condition.of(r)) else {
        return (GateResult::Undecided, "the figure was not measured".into());
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
    let is_time = matches!(condition.metric, Metric::Quantile(_) | Metric::Mean | Metric::Deviation | Metric::Max);
    if is_time && condition.below && point.verdict.failed && condition.met(i.mid) {
        let share = point.rounds.iter().map(Round::error_share).fold(0.0, f64::max);
        let why = format!(
            "{figure} for the answered requests; {} of the requests were not answered",
            Unit::Share.write(share)
        );
        return (GateResult::Fails, why);
    }
    if is_time && condition.below && point.verdict.word == "overloaded" {
        return (GateResult::Fails, format!("{figure}; the server did not keep up with the load"));
    }
    // Limits of the client only make latencies and rates look worse.
    let theirs = matches!(point.verdict.word.as_str(), "error-bound" | "not repeatable");
    if !point.verdict.usable && !theirs && !condition.met(i.mid) {
        return (GateResult::Undecided, format!("{figure}, but the run is {}", point.verdict.word));
    }
    if at_rate && point.verdict.word == "overloaded" {
        return (GateResult::Fails, format!("{figure}; the server did not keep up with the rate"));
    }
    match (condition.met(i.low), condition.met(i.high)) {
        (true, true) => (GateResult::Holds, figure),
        (false, false) => (GateResult::Fails, figure),
        _ if point.rounds.len() < 3 && condition.met(i.mid) => (GateResult::Holds, figure),
        _ if point.rounds.len() < 3 => (GateResult::Fails, figure),
        _ => (GateResult::Undecided, format!("{figure}: the confidence interval contains the limit")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::model::{RateVerdict, Times};

    pub(crate) fn report(value: f64, p99: &[f64], word: &str) -> Report {
        let rounds = p99.iter().map(|p| Round {
            rps: 1000.0,
            good_rps: 1000.0,
            latency: Some(Times { p50: *p, mean: *p, p99: *p, ..Times::default() }),
            ..Round::default()
        });
        let verdict =
            RateVerdict { word: word.into(), reasons: Vec::new(), usable: !word.contains("bound"), failed: false };
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
            search: String::new(),
            undecided: false,
            interrupted: false,
            notes: Vec::new(),
        }
    }

    fn outcome(rule: &str, report: &Report) -> GateResult {
        worst_result(&judge_requirements(&[parse_requirement(rule).unwrap()], report)).unwrap()
    }

    #[test]
    fn requirements_are_read() {
        let r = parse_requirement("p99<5ms@20000rps").unwrap();
        assert_eq!(
            (r.condition.metric, r.condition.below, r.condition.value, r.at),
            (Metric::Quantile(9900), true, 0.005, Some(20_000.0))
        );
        assert_eq!(parse_requirement("rps>=50k").unwrap().condition.value, 50_000.0);
        assert_eq!(parse_requirement("p99.95<1s").unwrap().condition.metric, Metric::Quantile(9995));
        assert_eq!(parse_requirement("errors<0.1%").unwrap().condition.value, 0.001);
        assert_eq!(parse_requirement("memory<20MB").unwrap().condition.value, 20e6);
        for bad in ["p99", "p999<1s", "latency<5ms", "p99<fast", "p99<5ms@x"] {
            assert!(parse_requirement(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn outcomes_tell_failing_from_not_knowing() {
        assert_eq!(outcome("p99<5ms", &report(100.0, &[0.004], "valid")), GateResult::Holds);
        assert_eq!(outcome("p99<5ms", &report(100.0, &[0.006], "valid")), GateResult::Fails);
        assert_eq!(outcome("p99<5ms", &report(100.0, &[0.006], "client-bound")), GateResult::Undecided);
        assert_eq!(outcome("p99<5ms", &report(100.0, &[0.004, 0.0049, 0.0056], "valid")), GateResult::Undecided);
        assert_eq!(outcome("p99<5ms", &report(100.0, &[0.0040, 0.0041, 0.0042], "valid")), GateResult::Holds);
        assert_eq!(outcome("p99<5ms@100rps", &report(100.0, &[0.004], "overloaded")), GateResult::Fails);
        assert_eq!(outcome("p99<5ms@200rps", &report(100.0, &[0.004], "valid")), GateResult::Undecided);
        assert_eq!(outcome("cpu<5us", &report(100.0, &[0.004], "valid")), GateResult::Undecided);
    }

    #[test]
    fn a_number_wants_its_unit() {
        for bare in ["p99<5", "mean<0.5", "cpu<20", "errors<1", "memory<20"] {
            assert!(parse_requirement(bare).unwrap_err().contains("unit"), "{bare}");
        }
        for good in ["p99<5ms", "errors<0.01", "errors<1%", "rps>5000", "rps>50k", "memory<20MB", "cpu<20us"] {
            parse_requirement(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
    }

    #[test]
    fn a_latency_of_the_few_who_were_answered_holds_nothing() {
        let mut over = report(100.0, &[4.0], "overloaded");
        over.points[0].verdict.failed = true;
        let round = &mut over.points[0].rounds[0];
        (round.due, round.in_time) = (674, 186);
        round.failures.insert("due but never sent".into(), 488);
        let judged = judge_requirements(&[parse_requirement("p50<20s").unwrap()], &over);
        assert!(judged[0].outcome == GateResult::Fails && judged[0].why.contains("72.4 %"), "{judged:?}");
        assert_eq!(outcome("errors<1%", &over), GateResult::Fails);
        assert_eq!(outcome("p99<20s", &report(100.0, &[4.0], "overloaded")), GateResult::Fails);
    }
}
