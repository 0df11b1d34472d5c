//! What the pairs show, and what held a server back.

use figures::paired::{Verdict, compare};
use figures::stats::median;
use figures::units::{Unit, bytes, grouped, significant};
use serde::{Deserialize, Serialize};

use super::conduct::{Line, WorkloadResult};
use crate::observe::machine::Machine;
use crate::report::model::{Bounds, Point, Round};
use crate::report::verdict::{BUSY_MAX, OTHERS_MAX};

/// One figure of one server against the base server, over pairs of neighbouring turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub server: String,
    pub base: String,
    /// `requests/s`, `p99`, `server CPU a request`.
    pub figure: String,
    /// Level of load, or none for all levels together.
    pub value: Option<f64>,
    /// This server's figure over the base's, with its 95 % interval; and the estimate that ignores wild pairs.
    pub ratio: Bounds,
    pub robust: f64,
    pub pairs: usize,
    pub sentence: String,
}

type Figure = (&'static str, bool, fn(&Round) -> Option<f64>);

const RATE: Figure = ("requests/s", true, |r| Some(r.good_rps));
// Not where many wait in vain: leaving them out would make a server that answers few the quicker one.
const TAIL: Figure = ("p99", false, |r| r.latency.as_ref().filter(|_| !r.starves()).map(|l| l.p99));
const CPU: Figure = ("server CPU a request", false, |r| r.server.as_ref()?.cpu_per_request);
const MEMORY: Figure = ("server memory", false, |r| r.server.as_ref().map(|s| s.memory_peak));

/// Compares every line with the base server's: at each level, and over all levels.
pub fn pairs(lines: &[Line], base: &str, open_loop: bool) -> Vec<Comparison> {
    let mut out = Vec::new();
    let Some(first) = lines.iter().find(|l| l.server == base) else { return out };
    let figures: Vec<Figure> = if open_loop { vec![TAIL, CPU, MEMORY] } else { vec![RATE, TAIL, CPU, MEMORY] };
    for line in lines.iter().filter(|l| l.server != base) {
        for figure in &figures {
            let mut levels = Vec::new();
            for (p, q) in first.points.iter().zip(&line.points) {
                let pairs = pairs_of(p, q, figure.2);
                out.extend(one(line, base, figure, Some(p.value), &pairs));
                levels.push(pairs);
            }
            // Over all levels: one ratio a round, the geometric mean over levels, so that rounds stay the unit.
            out.extend(one(line, base, figure, None, &by_round(&levels)));
        }
    }
    out
}

/// The two figures of each round; `None` where one is missing or not positive (a round without a right answer has no latency).
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
    line: &Line,
    base: &str,
    figure: &Figure,
    value: Option<f64>,
    pairs: &[Option<(f64, f64)>],
) -> Option<Comparison> {
    let (name, more_is_better, _) = figure;
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().flatten().copied().unzip();
    let c = compare(&a, &b);
    if !c.ratio.mid.is_finite() {
        return None;
    }
    let at = value.map_or("over all levels".into(), |v| format!("at {}", grouped(v as i64)));
    let interval =
        format!("{} ({} to {})", significant(c.ratio.mid), significant(c.ratio.low), significant(c.ratio.high));
    let sentence = match c.verdict {
        Verdict::TooFew => format!("{name} {at}: {} × {base}, from fewer than three pairs", significant(c.ratio.mid)),
        Verdict::Undecided => format!("{name} {at}: {interval} × {base}; the pairs support no ranking"),
        Verdict::Greater | Verdict::Less => {
            let better = (c.verdict == Verdict::Greater) == *more_is_better;
            format!("{name} {at}: {interval} × {base}, {}", if better { "better" } else { "worse" })
        }
    };
    Some(Comparison {
        server: line.server.clone(),
        base: base.into(),
        figure: (*name).into(),
        value,
        ratio: c.ratio.into(),
        robust: c.robust,
        pairs: c.pairs,
        sentence,
    })
}

/// Answers that differ from the base server's in status, length or content.
pub fn differences(workloads: &[WorkloadResult], base: &str) -> Vec<String> {
    let mut out = Vec::new();
    for w in workloads {
        let Some(first) = w.lines.iter().find(|l| l.server == base).and_then(|l| l.seen.as_ref()) else { continue };
        for line in &w.lines {
            let Some(seen) = &line.seen else { continue };
            if (seen.status, seen.length, &seen.hash) != (first.status, first.length, &first.hash) {
                out.push(format!(
                    "{}, {}: {} answers {} with {} bytes, {base} {} with {} bytes{}",
                    w.name,
                    w.requests.first().map_or("", |r| r.as_str()),
                    line.server,
                    seen.status,
                    seen.length,
                    first.status,
                    first.length,
                    if seen.length == first.length { ", of another content" } else { "" }
                ));
            }
        }
    }
    out
}

/// What held a server back at the level with its greatest rate, in a sentence. Evidence only: what is not seen is not guessed.
pub fn bottleneck(points: &[Point], cpus: usize, machine: &Machine) -> String {
    let Some(point) = points.iter().max_by(|a, b| a.rps().mid.total_cmp(&b.rps().mid)) else {
        return "nothing was measured".into();
    };
    let of = |f: &dyn Fn(&Round) -> f64| median(&point.rounds.iter().map(f).collect::<Vec<f64>>());
    let at = format!(
        "At its greatest rate ({}, level {})",
        Unit::PerSecond.write(point.rps().mid),
        grouped(point.value as i64)
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
        return format!("{at} the server fills the memory ({}).", bytes(memory));
    }
    if server >= 0.9 * allowed {
        let both = if client > BUSY_MAX { "; the client is as busy, so it may have a little more to give" } else { "" };
        return format!("{at} the server's processors are the limit: {server:.2} of {allowed:.0} in use{both}.");
    }
    if client > BUSY_MAX {
        return format!(
            "{at} the client is the limit ({} busy, the server uses {server:.2} of {allowed:.0} processors): more is possible.",
            Unit::Share.write(client)
        );
    }
    if backend > 0.0 && server + backend >= 0.9 * allowed {
        return format!(
            "{at} server and backend together fill the processors: {server:.2} and {backend:.2} of {allowed:.0}."
        );
    }
    if steal > 0.1 {
        return format!(
            "{at} the hypervisor takes {} of a processor away: no statement about the server.",
            Unit::Share.write(steal)
        );
    }
    let others = of(&|r| r.others.unwrap_or(0.0));
    if others > OTHERS_MAX {
        return format!(
            "{at} other programs on this machine used {others:.2} processors (server {server:.2} of {allowed:.0}): rates and times say \
             little here, CPU time a request is the figure to go by."
        );
    }
    let highest = points.iter().all(|p| p.value <= point.value);
    let measured = if server.is_nan() { "unknown".into() } else { format!("{server:.2} of {allowed:.0}") };
    match highest {
        true => format!(
            "{at} nothing is full (server's processors {measured}, client {}): a higher level would show more.",
            Unit::Share.write(client)
        ),
        false => format!(
            "{at} no processor is full (server {measured}, client {}): requests wait for something else, such as a limit of workers or connections, a lock, or a disk.",
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

    fn line(server: &str, points: Vec<Point>) -> Line {
        Line { server: server.into(), seen: None, points, bottleneck: String::new() }
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
        let c = pairs(&[a, b], "a", false);
        let overall = c.iter().find(|c| c.figure == "requests/s" && c.value.is_none()).unwrap();
        assert!(
            (overall.ratio.mid - 1.1).abs() < 0.005 && overall.sentence.ends_with("better"),
            "{}",
            overall.sentence
        );
        let cpu = c.iter().find(|c| c.figure == "server CPU a request" && c.value == Some(1.0)).unwrap();
        assert!(cpu.ratio.mid < 1.0 && cpu.sentence.ends_with("better"), "{}", cpu.sentence);
        assert_eq!(c.iter().filter(|c| c.value.is_some()).count(), 6, "rate, CPU and memory at two levels");
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
        let c = pairs(&[a, b], "a", false);
        let rate = |value| c.iter().find(|c| c.figure == "requests/s" && c.value == value).unwrap();
        assert_eq!((rate(Some(2.0)).pairs, rate(None).pairs), (3, 4));
        assert!((rate(None).ratio.mid - 1.2).abs() < 0.01 && rate(None).sentence.ends_with("better"));
    }

    #[test]
    fn bottlenecks_are_named_from_evidence() {
        let machine = Machine { memory: 1e9, ..Machine::default() };
        let says = |p: Point, words: &str| {
            let sentence = bottleneck(&[p], 1, &machine);
            assert!(sentence.contains(words), "{sentence}");
        };
        says(point(10.0, &[100.0], 0.97, 0.4), "server's processors are the limit");
        says(point(10.0, &[100.0], 0.5, 0.95), "client is the limit");
        says(point(10.0, &[100.0], 0.5, 0.5), "a higher level");
        let idle = bottleneck(&[point(10.0, &[100.0], 0.3, 0.3), point(20.0, &[90.0], 0.3, 0.3)], 1, &machine);
        assert!(idle.contains("wait for something else"), "{idle}");
        let mut failing = point(10.0, &[100.0], 0.97, 0.4);
        failing.rounds[0].failures.insert("timeout".into(), 50);
        says(failing, "fail (timeout)");
    }
}
