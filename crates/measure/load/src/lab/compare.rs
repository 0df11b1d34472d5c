//! Comparisons of paired results, and a server's bottleneck.

use figures::paired::{PairVerdict, compare_pairs};
use figures::stats::sample_median;
use figures::units::{Unit, format_bytes, format_grouped, format_significant};
use serde::{Deserialize, Serialize};

use super::conduct::{LabLine, WorkloadResult};
use crate::observe::machine::ObservedMachine;
use crate::report::model::{Bounds, Point, Round};
use crate::report::verdict::{BUSY_MAX, OTHERS_MAX};

/// One figure of a server against another (`base`), over pairs of neighbouring turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FigureComparison {
    pub server: String,
    pub base: String,
    pub figure: String,
    pub value: Option<f64>,
    /// Ratio of the figures with its 95 % interval, and the robust estimate.
    pub ratio: Bounds,
    pub robust: f64,
    pub pairs: usize,
    pub sentence: String,
    #[serde(default)]
    pub so: String,
}

impl FigureComparison {
    pub fn has_interval(&self) -> bool {
        self.pairs >= 3
    }
}

type Figure = (&'static str, bool, fn(&Round) -> Option<f64>);

const RATE: Figure = ("requests/s", true, |r| Some(r.good_rps));
// None where many wait in vain: a server that answers few would seem quicker.
const TAIL: Figure = ("p99", false, |r| r.latency.as_ref().filter(|_| !r.starves()).map(|l| l.p99));
const MEAN: Figure = ("mean", false, |r| r.latency.as_ref().filter(|_| !r.starves()).map(|l| l.mean));
const CPU: Figure = ("server CPU time per request", false, |r| r.server.as_ref()?.cpu_per_request);
const MEMORY: Figure = ("server memory", false, |r| r.server.as_ref().map(|s| s.memory_peak));

/// Compares every pair of lines, those with the base server first: per level, and over all levels.
pub fn compare_lines(lines: &[LabLine], base: &str, open_loop: bool) -> Vec<FigureComparison> {
    let mut order: Vec<&LabLine> = lines.iter().filter(|l| l.server == base).collect();
    order.extend(lines.iter().filter(|l| l.server != base));
    let figures: Vec<Figure> = if open_loop { vec![MEAN, TAIL, CPU, MEMORY] } else { vec![RATE, TAIL, CPU, MEMORY] };
    let mut out = Vec::new();
    for (i, first) in order.iter().enumerate() {
        for line in &order[i + 1..] {
            for figure in &figures {
                let mut levels = Vec::new();
                for p in &first.points {
                    // An interrupted run may have reached a level with one server only.
                    let Some(q) = line.points.iter().find(|q| q.value == p.value) else { continue };
                    let pairs = pairs_of(p, q, figure.2);
                    let doubt = [p, q].into_iter().find_map(|point| doubt(point, figure));
                    out.extend(one(line, &first.server, figure, Some(p.value), &pairs, doubt));
                    if doubt.is_none() {
                        levels.push(pairs);
                    } else {
                        levels.push(vec![None; pairs.len()]);
                    }
                }
                // Over all levels: per round the geometric mean over levels, so that rounds stay the unit.
                out.extend(one(line, &first.server, figure, None, &by_round(&levels), None));
            }
        }
    }
    out
}

/// Reason against ranking a point by a figure: disturbances affect rates and times, hardly CPU time and memory.
fn doubt(point: &Point, figure: &Figure) -> Option<&'static str> {
    let of_machine = matches!(figure.0, "requests/s" | "mean" | "p99");
    match point.verdict.word.as_str() {
        "disturbed" if of_machine => Some("disturbed"),
        "client-bound" if of_machine => Some("client-bound"),
        "port-bound" if of_machine => Some("port-bound"),
        _ => None,
    }
}

/// Figures of each round; `None` where one is missing or not positive.
fn pairs_of(a: &Point, b: &Point, of: fn(&Round) -> Option<f64>) -> Vec<Option<(f64, f64)>> {
    let good = |r: &Round| of(r).filter(|v| *v > 0.0 && v.is_finite());
    a.rounds.iter().zip(&b.rounds).map(|(a, b)| Some((good(a)?, good(b)?))).collect()
}

fn by_round(levels: &[Vec<Option<(f64, f64)>>]) -> Vec<Option<(f64, f64)>> {
    let rounds = levels.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |r: usize| {
        let logs: Vec<f64> = levels.iter().filter_map(|l| l[r]).map(|(a, b)| (b / a).ln()).collect();
        (!logs.is_empty()).then(|| (1.0, (logs.iter().sum::<f64>() / logs.len() as f64).exp()))
    };
    (0..rounds).map(mean).collect()
}

fn one(
    line: &LabLine,
    base: &str,
    figure: &Figure,
    value: Option<f64>,
    pairs: &[Option<(f64, f64)>],
    doubt: Option<&str>,
) -> Option<FigureComparison> {
    let (name, more_is_better, _) = figure;
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().flatten().copied().unzip();
    let c = compare_pairs(&a, &b);
    if !c.ratio.mid.is_finite() {
        return None;
    }
    let at = value.map_or("over all levels".into(), |v| format!("at {}", format_grouped(v as i64)));
    let so = match (doubt, c.verdict) {
        (_, PairVerdict::TooFew) => "fewer than three pairs".to_string(),
        (Some(word), _) => format!("{word}: no ranking"),
        (None, PairVerdict::Undecided) => "no ranking".into(),
        (None, verdict) if (verdict == PairVerdict::Greater) == *more_is_better => "better".into(),
        (None, _) => "worse".into(),
    };
    // An interval of two pairs is meaningless.
    let interval = match c.verdict {
        PairVerdict::TooFew => format_significant(c.ratio.mid),
        _ => format!(
            "{} ({} to {})",
            format_significant(c.ratio.mid),
            format_significant(c.ratio.low),
            format_significant(c.ratio.high)
        ),
    };
    Some(FigureComparison {
        server: line.server.clone(),
        base: base.into(),
        figure: (*name).into(),
        value,
        ratio: c.ratio.into(),
        robust: c.robust,
        pairs: c.pairs,
        sentence: format!("{name} {at}: {interval} × {base}, {so}"),
        so,
    })
}

/// Answers that differ from the base server's in status, length or content.
pub fn answer_differences(workloads: &[WorkloadResult], base: &str) -> Vec<String> {
    let mut out = Vec::new();
    for w in workloads {
        let Some(first) = w.lines.iter().find(|l| l.server == base).and_then(|l| l.seen.as_ref()) else { continue };
        for line in &w.lines {
            let Some(seen) = &line.seen else { continue };
            if (seen.status, seen.length, &seen.hash) != (first.status, first.length, &first.hash) {
                out.push(format!(
                    "{}, {}: {} responds with {} and {} bytes, {base} with {} and {} bytes{}",
                    w.name,
                    w.requests.first().map_or("", |r| r.as_str()),
                    line.server,
                    seen.status,
                    seen.length,
                    first.status,
                    first.length,
                    if seen.length == first.length { ", with different content" } else { "" }
                ));
            }
        }
    }
    out
}

/// Describes a server's bottleneck at its highest rate, from measurements only.
pub fn describe_bottleneck(points: &[Point], cpus: usize, machine: &ObservedMachine) -> String {
    let Some(point) = points.iter().max_by(|a, b| a.rps().mid.total_cmp(&b.rps().mid)) else {
        return "nothing was measured".into();
    };
    let of = |f: &dyn Fn(&Round) -> f64| sample_median(&point.rounds.iter().map(f).collect::<Vec<f64>>());
    let at = format!(
        "At its highest rate ({}, level {})",
        Unit::PerSecond.write(point.rps().mid),
        format_grouped(point.value as i64)
    );
    let server = of(&|r| r.server.as_ref().map_or(f64::NAN, |s| s.processors));
    let client = of(&|r| r.client_busy.iter().copied().fold(0.0, f64::max));
    let backend = of(&|r| r.backend_processors.unwrap_or(0.0));
    let memory = of(&|r| r.server.as_ref().map_or(0.0, |s| s.memory_peak));
    let overflows = point.rounds.iter().map(|r| r.kernel.listen_overflows).sum::<u64>();
    let steal = of(&|r| r.kernel.steal / r.seconds.max(1e-9));
    let failed = of(&|r| r.error_share());
    let allowed = cpus.max(1) as f64;
    if failed > crate::report::verdict::ERRORS_MAX {
        let worst =
            point.rounds.iter().flat_map(|r| &r.failures).max_by_key(|f| f.1).map_or("errors", |f| f.0.as_str());
        let overflow = if overflows > 0 { ", and its accept queue was full" } else { "" };
        return format!("{at} {} of the requests fail ({worst}){overflow}.", Unit::Share.write(failed));
    }
    if memory > machine.memory * 0.8 {
        return format!("{at} the server uses all memory ({}).", format_bytes(memory));
    }
    if server >= 0.9 * allowed {
        let both = if client > BUSY_MAX {
            "; the client is as busy, so the server may be capable of slightly more"
        } else {
            ""
        };
        return format!("{at} the server's CPUs are the limit: {server:.2} of {allowed:.0} in use{both}.");
    }
    if client > BUSY_MAX {
        return format!(
            "{at} the client is the limit ({} busy, the server uses {server:.2} of {allowed:.0} CPUs): the server may be capable of more.",
            Unit::Share.write(client)
        );
    }
    if backend > 0.0 && server + backend >= 0.9 * allowed {
        return format!("{at} server and backend together use all CPUs: {server:.2} and {backend:.2} of {allowed:.0}.");
    }
    if steal > 0.1 {
        return format!(
            "{at} the hypervisor takes {} of a CPU: the server's limit is unknown.",
            Unit::Share.write(steal)
        );
    }
    let others = of(&|r| r.others.unwrap_or(0.0));
    if others > OTHERS_MAX {
        return format!(
            "{at} other programs interfered (they used {others:.2} CPUs, the server {server:.2} of {allowed:.0})."
        );
    }
    let highest = points.iter().all(|p| p.value <= point.value);
    let measured = if server.is_nan() { "unknown".into() } else { format!("{server:.2} of {allowed:.0}") };
    match highest {
        true => format!(
            "{at} nothing is saturated (server's CPUs {measured}, client {}): a higher level would show more.",
            Unit::Share.write(client)
        ),
        false => format!(
            "{at} no CPU is saturated (server {measured}, client {}): requests wait for something else, such as a limit of workers or connections, a lock, or a disk.",
            Unit::Share.write(client)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::ServerUse;

    fn point(value: f64, rps: &[f64], processors: f64, busy: f64) -> Point {
        let rounds = rps.iter().map(|x| Round {
            rps: *x,
            good_rps: *x,
            due: *x as u64,
            seconds: 1.0,
            client_busy: vec![busy],
            server: Some(ServerUse {
                processors,
                cpu_per_request: Some(processors / x),
                memory_peak: 1e6,
                ..ServerUse::default()
            }),
            ..Round::default()
        });
        Point { value, rounds: rounds.collect(), verdict: Default::default() }
    }

    fn line(server: &str, points: Vec<Point>) -> LabLine {
        LabLine { server: server.into(), seen: None, points, bottleneck: String::new() }
    }

    #[test]
    fn pairs_are_compared_at_each_level_and_over_all() {
        let a = line(
            "a",
            vec![point(1.0, &[100.0, 90.0, 80.0, 70.0], 1.0, 0.5), point(2.0, &[200.0, 180.0, 160.0, 140.0], 1.0, 0.5)],
        );
        let b = line(
            "b",
            vec![point(1.0, &[110.0, 99.5, 87.9, 77.0], 1.0, 0.5), point(2.0, &[220.0, 198.0, 176.5, 154.0], 1.0, 0.5)],
        );
        let c = compare_lines(&[a, b], "a", false);
        let overall = c.iter().find(|c| c.figure == "requests/s" && c.value.is_none()).unwrap();
        assert!(
            (overall.ratio.mid - 1.1).abs() < 0.005 && overall.sentence.ends_with("better"),
            "{}",
            overall.sentence
        );
        let cpu = c.iter().find(|c| c.figure == "server CPU time per request" && c.value == Some(1.0)).unwrap();
        assert!(cpu.ratio.mid < 1.0 && cpu.sentence.ends_with("better"), "{}", cpu.sentence);
        assert_eq!(c.iter().filter(|c| c.value.is_some()).count(), 6, "rate, CPU and memory at two levels");
    }

    #[test]
    fn every_pair_is_compared_and_no_disturbed_one_ranked() {
        let of = |name: &str, factor: f64| {
            line(name, vec![point(1.0, &[100.0 * factor, 101.0 * factor, 99.0 * factor], 1.0, 0.5)])
        };
        let lines = [of("a", 1.0), of("b", 1.2), of("c", 1.5)];
        let c = compare_lines(&lines, "b", false);
        let named: Vec<(&str, &str)> = c
            .iter()
            .filter(|c| c.figure == "requests/s" && c.value.is_none())
            .map(|c| (c.server.as_str(), c.base.as_str()))
            .collect();
        assert_eq!(named, [("a", "b"), ("c", "b"), ("c", "a")], "the base first, and the others with each other");
        let mut disturbed = lines.clone();
        disturbed[2].points[0].verdict.word = "disturbed".into();
        let c = compare_lines(&disturbed, "a", false);
        let rate = c.iter().find(|c| c.server == "c" && c.base == "a" && c.figure == "requests/s").unwrap();
        assert_eq!(rate.so, "disturbed: no ranking");
        assert!(!c.iter().any(|c| c.server == "c" && c.figure == "requests/s" && c.value.is_none()));
        let cpu = c.iter().find(|c| c.server == "c" && c.base == "a" && c.figure.contains("CPU")).unwrap();
        assert_eq!(cpu.so, "better", "CPU time survives it");
        let few = [of("a", 1.0), of("b", 2.0)].map(|mut l| {
            l.points[0].rounds.truncate(2);
            l
        });
        let c = compare_lines(&few, "a", false);
        assert!(c.iter().all(|c| !c.has_interval() && !c.sentence.contains(" to ")), "{:?}", c[0]);
    }

    #[test]
    fn a_round_without_answers_costs_its_pair_and_not_the_comparison() {
        let a = line(
            "a",
            vec![point(1.0, &[100.0, 100.0, 100.0, 100.0], 1.0, 0.5), point(2.0, &[10.0, 10.0, 0.0, 10.0], 1.0, 0.5)],
        );
        let b = line(
            "b",
            vec![point(1.0, &[120.0, 121.0, 119.0, 120.0], 1.0, 0.5), point(2.0, &[12.0, 12.0, 12.0, 12.0], 1.0, 0.5)],
        );
        let c = compare_lines(&[a, b], "a", false);
        let rate = |value| c.iter().find(|c| c.figure == "requests/s" && c.value == value).unwrap();
        assert_eq!((rate(Some(2.0)).pairs, rate(None).pairs), (3, 4));
        assert!((rate(None).ratio.mid - 1.2).abs() < 0.01 && rate(None).sentence.ends_with("better"));
    }

    #[test]
    fn bottlenecks_are_named_from_evidence() {
        let machine = ObservedMachine { memory: 1e9, ..ObservedMachine::default() };
        let says = |p: Point, words: &str| {
            let sentence = describe_bottleneck(&[p], 1, &machine);
            assert!(sentence.contains(words), "{sentence}");
        };
        says(point(10.0, &[100.0], 0.97, 0.4), "server's CPUs are the limit");
        says(point(10.0, &[100.0], 0.5, 0.95), "client is the limit");
        says(point(10.0, &[100.0], 0.5, 0.5), "a higher level");
        let idle = describe_bottleneck(&[point(10.0, &[100.0], 0.3, 0.3), point(20.0, &[90.0], 0.3, 0.3)], 1, &machine);
        assert!(idle.contains("wait for something else"), "{idle}");
        let mut failing = point(10.0, &[100.0], 0.97, 0.4);
        failing.rounds[0].failures.insert("timeout".into(), 50);
        says(failing, "fail (timeout)");
    }
}
