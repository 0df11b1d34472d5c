//! Comparison with an earlier report: noise told from change.

use figures::stats::Interval;
use figures::units::{Unit, format_significant};

use super::gate::{GateReport, GateResult};
use crate::report::answer::many;
use crate::report::model::{Point, Report, Round};

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
        let at = many(point.value, &new.quantity);
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
        let what = format!("{} of the baseline", many(lost.value, &old.quantity));
        out.push(undecided(what, "not measured in this run".into()));
    }
    out
}

/// Conditions of the baseline that differ from those of this run, which a comparison of the figures does not show.
pub fn differing_conditions(old: &Report, new: &Report) -> Vec<String> {
    let parts = [
        ("version of tidegate bench", &old.version, &new.version),
        ("URL", &old.target.url, &new.target.url),
        ("load", &old.load, &new.load),
    ];
    let differ = parts.into_iter().filter(|(_, then, now)| then != now && !then.is_empty());
    differ.map(|(what, then, now)| format!("the {what} of the baseline differs: {then} then, {now} now")).collect()
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
    use super::super::gate::tests::report;
    use super::super::gate::worst_result;
    use super::*;
    use crate::report::model::RateVerdict;

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
    fn gates_name_the_quantity_of_the_load() {
        let of = |value: f64| Report { quantity: "connections".into(), ..report(value, &[0.01, 0.01, 0.01], "valid") };
        let judged = compare_baseline(&of(2.0), &of(2.0), 0.02);
        assert_eq!(judged[0].what, "errors at 2 connections against the baseline");
        let judged = compare_baseline(&of(1.0), &of(2.0), 0.02);
        let whats: Vec<&str> = judged.iter().map(|j| j.what.as_str()).collect();
        assert_eq!(whats, ["2 connections against the baseline", "1 connection of the baseline"]);
    }

    #[test]
    fn other_conditions_than_those_of_the_baseline_are_told() {
        let old = report(100.0, &[0.010], "valid");
        let mut new = old.clone();
        assert!(differing_conditions(&old, &new).is_empty());
        new.version = "9.9.9".into();
        new.target.url = "http://h/other".into();
        let notes = differing_conditions(&Report { version: "9.9.8".into(), ..old.clone() }, &new);
        assert_eq!(notes[0], "the version of tidegate bench of the baseline differs: 9.9.8 then, 9.9.9 now");
        let old = Report { target: crate::report::model::Target { url: "http://h/".into(), ..old.target }, ..old };
        assert!(differing_conditions(&old, &new).iter().any(|note| note.contains("http://h/other now")));
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
