//! Gates: requirements on a report, comparison with a baseline, and their exit status.

use figures::stats::Interval;
use figures::units::{Unit, format_significant, parse_count, parse_seconds, parse_share};

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
                _ => format!("{} at {}", requirement.text, crate::report::text::grouped_rate(point.value)),
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

/// Name of a compared figure, whether more of it is better, and its accessor.
type ComparedPoint = (&'static str, bool, fn(&Round) -> Option<f64>);

/// Compares with an earlier report by points: rate (closed loops), median, mean and p99 latency, error share, server
/// CPU per request.
/// Fails where intervals support a degradation by more than `by`, passes where they exclude it, and is undecided
/// otherwise.
pub fn compare_baseline(old: &Report, new: &Report, by: f64) -> Vec<GateReport> {
    let mut out = Vec::new();
    let undecided = |what: String, why: String| GateReport { outcome: GateResult::Undecided, what, why };
    for point in &new.points {
        let at = crate::report::text::grouped_rate(point.value);
        let Some(before) = old.points.iter().find(|p| (p.value / point.value - 1.0).abs() < 0.01) else {
            out.push(undecided(format!("{at} against the baseline"), "the baseline has no such point".into()));
            continue;
        };
        // Wide intervals already express that a point is not repeatable.
        let spoilt = |p: &Point| !p.verdict.usable && p.verdict.word != "not repeatable";
        if spoilt(before) {
            let why = format!("the baseline's point was {}: measure it again", before.verdict.word);
            out.push(undecided(format!("{at} against the baseline"), why));
            continue;
        }
        out.push(errors(format!("errors at {at} against the baseline"), before, point));
        match (before.verdict.word.as_str(), point.verdict.word.as_str()) {
            ("overloaded", "overloaded") => {
                let why = "overloaded in both runs: the figures describe the queue".into();
                out.push(undecided(format!("{at} against the baseline"), why));
                continue;
            }
            (_, "overloaded") => {
                let (what, why) =
                    (format!("the load at {at} against the baseline"), "in the baseline the server kept up".into());
                out.push(GateReport { outcome: GateResult::Fails, what, why });
                continue;
            }
            _ => {}
        }
        let mut figures: Vec<ComparedPoint> = vec![
            ("p50", false, |r| r.latency.as_ref().map(|l| l.p50)),
            ("mean", false, |r| r.latency.as_ref().map(|l| l.mean)),
            ("p99", false, |r| r.latency.as_ref().map(|l| l.p99)),
            ("CPU time per request", false, |r| r.server.as_ref()?.cpu_per_request),
        ];
        if !new.open_loop {
            figures.insert(0, ("requests/s", true, |r| Some(r.good_rps)));
        }
        let count = figures.len();
        for (name, more_is_better, of) in figures {
            let values = |p: &Point| p.rounds.iter().map(of).collect::<Option<Vec<f64>>>();
            let (Some(a), Some(b)) = (values(before), values(point)) else { continue };
            let what = format!("{name} at {at} against the baseline");
            let mut judgement = compare(what, &a, &b, more_is_better, by, count);
            if spoilt(point) && judgement.outcome == GateResult::Fails {
                judgement.outcome = GateResult::Undecided;
                judgement.why = format!("{}, but the run is {}", judgement.why, point.verdict.word);
            }
            out.push(judgement);
        }
    }
    for lost in old.points.iter().filter(|p| !new.points.iter().any(|n| (p.value / n.value - 1.0).abs() < 0.01)) {
        let what = format!("{} of the baseline", crate::report::text::grouped_rate(lost.value));
        out.push(undecided(what, "not measured in this run".into()));
    }
    out
}

/// Fails when the error shares of all new rounds exceed those of all old rounds, and by more than 0.1 %.
fn errors(what: String, old: &Point, new: &Point) -> GateReport {
    let shares = |p: &Point| p.rounds.iter().map(Round::error_share).collect::<Vec<f64>>();
    let (a, b) = (shares(old), shares(new));
    let most = a.iter().copied().fold(0.0, f64::max);
    let least = b.iter().copied().fold(f64::INFINITY, f64::min);
    let (was, is) = (figures::stats::sample_mean(&a), figures::stats::sample_mean(&b));
    let why = format!("{} then, {} now", Unit::Share.write(was), Unit::Share.write(is));
    let outcome = match () {
        () if least > most + 0.001 => GateResult::Fails,
        () if is > was + 0.001 => GateResult::Undecided,
        () => GateResult::Holds,
    };
    GateReport { outcome, what, why }
}

/// Rounds per side below which nothing is concluded.
const ROUNDS_MIN: usize = 3;

/// Compares one of `count` figures; more figures require more confidence each, against failures by chance.
fn compare(what: String, old: &[f64], new: &[f64], more_is_better: bool, by: f64, count: usize) -> GateReport {
    let undecided = |why: String| GateReport { outcome: GateResult::Undecided, what: what.clone(), why };
    let (ratio, strict) = (ratio_interval(old, new, 0.95), ratio_interval(old, new, 1.0 - 0.05 / count as f64));
    if !ratio.mid.is_finite() {
        return undecided("a figure is zero".into());
    }
    let turn = |i: Interval| {
        if more_is_better { Interval { low: 1.0 / i.high, mid: 1.0 / i.mid, high: 1.0 / i.low } } else { i }
    };
    let (worse, strict) = (turn(ratio), turn(strict));
    let percent =
        |r: f64| format!("{}{} %", if r >= 1.0 { "+" } else { "−" }, format_significant((r - 1.0).abs() * 100.0));
    if old.len().min(new.len()) < ROUNDS_MIN {
        return undecided(format!("{}, from fewer than three rounds on a side (--rounds 5)", percent(ratio.mid)));
    }
    let noise = if (strict.low..=strict.high).contains(&1.0) { "within the noise" } else { "more than noise" };
    let figure = format!("{} ({} to {}), {noise}", percent(ratio.mid), percent(ratio.low), percent(ratio.high));
    let limit = 1.0 + by;
    match () {
        () if worse.mid > limit && strict.low > 1.0 => GateReport { outcome: GateResult::Fails, what, why: figure },
        () if worse.high <= limit => GateReport { outcome: GateResult::Holds, what, why: figure },
        () => {
            let why =
                "the confidence interval contains the limit: more rounds, longer points or a larger --by would decide";
            undecided(format!("{figure}: {why}"))
        }
    }
}

/// Ratio of geometric means (Welch's interval on the logarithms).
fn ratio_interval(old: &[f64], new: &[f64], confidence: f64) -> Interval {
    let logs = |v: &[f64]| v.iter().map(|x| x.ln()).collect::<Vec<f64>>();
    let (a, b) = (logs(old), logs(new));
    let mid = figures::stats::sample_mean(&b) - figures::stats::sample_mean(&a);
    if a.len() < 2 || b.len() < 2 {
        return Interval::exact(mid.exp());
    }
    let variance = |v: &[f64]| figures::stats::deviation(v).powi(2) / v.len() as f64;
    let (va, vb) = (variance(&a), variance(&b));
    let degrees =
        (va + vb).powi(2) / (va * va / (a.len() - 1) as f64 + vb * vb / (b.len() - 1) as f64).max(f64::MIN_POSITIVE);
    let half = figures::stats::t_quantile(0.5 + confidence / 2.0, degrees.max(1.0)) * (va + vb).sqrt();
    Interval { low: mid - half, mid, high: mid + half }.map(f64::exp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{RateVerdict, Times};

    fn report(value: f64, p99: &[f64], word: &str) -> Report {
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

    #[test]
    fn a_baseline_finds_regressions_and_not_noise() {
        let result = |old: &[f64], new: &[f64]| {
            worst_result(&compare_baseline(&report(100.0, old, "valid"), &report(100.0, new, "valid"), 0.05)).unwrap()
        };
        assert_eq!(result(&[0.010, 0.0101, 0.0099], &[0.0100, 0.0101, 0.0100]), GateResult::Holds);
        assert_eq!(result(&[0.010, 0.0101, 0.0099], &[0.0110, 0.0111, 0.0109]), GateResult::Fails);
        assert_eq!(result(&[0.010, 0.0101, 0.0099], &[0.0090, 0.0091, 0.0089]), GateResult::Holds);
        assert_eq!(result(&[0.010, 0.013, 0.008], &[0.014, 0.009, 0.0098]), GateResult::Undecided);
        // The mean is no worse, but a tripling is not excluded.
        assert_eq!(result(&[0.010, 0.013, 0.008], &[0.005, 0.025, 0.008]), GateResult::Undecided);
        assert_eq!(result(&[0.010], &[0.011]), GateResult::Undecided, "one round decides nothing");
    }

    #[test]
    fn a_baseline_that_was_spoilt_itself_decides_nothing() {
        let good = report(100.0, &[0.010, 0.010, 0.010], "valid");
        for word in ["client-bound", "disturbed"] {
            let mut bad = good.clone();
            bad.points[0].verdict = RateVerdict { word: word.into(), usable: false, ..RateVerdict::default() };
            let judged = compare_baseline(&bad, &good, 0.02);
            assert!(judged[0].outcome == GateResult::Undecided && judged[0].why.contains(word), "{judged:?}");
            bad.points[0].rounds = report(100.0, &[0.020, 0.020, 0.021], "valid").points[0].rounds.clone();
            assert_eq!(worst_result(&compare_baseline(&good, &bad, 0.02)), Some(GateResult::Undecided));
        }
        let over = report(100.0, &[3.0, 3.0, 3.0], "overloaded");
        assert_eq!(worst_result(&compare_baseline(&good, &over, 0.02)), Some(GateResult::Fails));
        let mut failing = good.clone();
        failing.points[0].rounds.iter_mut().for_each(|r| {
            (r.due, r.failures) = (1000, [("reset".to_string(), 8)].into());
        });
        assert_eq!(
            worst_result(&compare_baseline(&good, &failing, 0.02)),
            Some(GateResult::Fails),
            "errors are looked at"
        );
        let elsewhere = compare_baseline(&good, &report(200.0, &[0.01], "valid"), 0.02);
        assert!(
            elsewhere.iter().any(|j| j.why.contains("no such point"))
                && elsewhere.iter().any(|j| j.why.contains("not measured"))
        );
    }

    /// Report of four rounds from a virtual server with `service` nanoseconds (jittered) per request, in an open loop.
    fn measured(service: u64, seed: u64) -> Report {
        use crate::engine::job::Model;
        use crate::engine::profile::{Arrivals, Profile};
        use crate::engine::run::RunOutcome as Measured;
        use crate::engine::sim::{Sim, ok_answer, play_world, sim_job};
        let rounds = (0..4).map(|round| {
            let mut rng = figures::rng::Rng::new(seed * 100 + round);
            let speed = 1.0 + 0.01 * rng.normal();
            let mut free_at = 0;
            let sim = Sim::new(Box::new(move |now, _, _| {
                free_at = now.max(free_at) + (service as f64 * speed * (0.9 + 0.2 * rng.unit())) as u64;
                vec![(free_at, ok_answer())]
            }));
            let mut job = sim_job(100, 20.0);
            job.model = Model::Open { arrivals: Arrivals::Poisson };
            job.profile = Profile::constant(40.0, 20.0);
            job.seed = seed * 100 + round;
            let (total, done) = play_world(sim, &job);
            let outcome = Measured { total, seconds: done.measured as f64 * 1e-9, ..Measured::default() };
            crate::report::build::build_round(&outcome, true, &Default::default(), Default::default())
        });
        let mut report = report(40.0, &[], "valid");
        report.points[0].rounds = rounds.collect();
        report.points[0].verdict = crate::report::verdict::judge_rounds(&report.points[0].rounds, true);
        report
    }

    #[test]
    fn the_gates_truth() {
        // From 5 to 6 ms always fails at 10 % with four rounds.
        for seed in 0..10 {
            let judged = compare_baseline(&measured(5_000_000, seed), &measured(6_000_000, seed + 1000), 0.1);
            assert_eq!(worst_result(&judged), Some(GateResult::Fails), "{judged:?}");
            let median = judged.iter().find(|j| j.what.starts_with("p50")).unwrap();
            assert_eq!(median.outcome, GateResult::Fails, "{median:?}");
        }
        for seed in 0..50 {
            for by in [0.1, 0.02] {
                let judged = compare_baseline(&measured(5_000_000, seed), &measured(5_000_000, seed + 1000), by);
                assert_ne!(worst_result(&judged), Some(GateResult::Fails), "{seed}: {judged:?}");
            }
        }
    }
}
