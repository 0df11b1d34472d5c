//! Conclusions of an experiment: a sentence and a plot per workload, and the machine's state.

use figures::plot::{Axis, Mark, Plot, Series};
use figures::units::{Unit, format_seconds, format_significant};

use super::conduct::{LabLine, Results, WorkloadResult};
use crate::report::answer::{lowest, many};
use crate::report::model::{Point, Round};
use crate::report::plots;
use crate::report::text::grouped_rate;
use crate::report::verdict::OTHERS_MAX;

fn question(w: &WorkloadResult) -> &'static str {
    if w.open_loop { "mean" } else { "requests/s" }
}

/// Names a workload's best server, as far as the pairs support it, and each server's maximum.
pub fn winner_sentence(w: &WorkloadResult) -> String {
    let lines: Vec<&LabLine> = w.lines.iter().filter(|l| !l.points.is_empty()).collect();
    if lines.is_empty() {
        return "Nothing was measured.".into();
    }
    let reached: Vec<String> = lines.iter().map(|l| format!("{} {}", l.server, reached(w, l))).collect();
    let reached = format!("{}.", reached.join("; "));
    if lines.len() == 1 {
        return reached;
    }
    format!("{} {reached}", ranking(w, &lines))
}

fn ranking(w: &WorkloadResult, lines: &[&LabLine]) -> String {
    let figure = question(w);
    let overall: Vec<_> = w.comparisons.iter().filter(|c| c.figure == figure && c.value.is_none()).collect();
    let beats = |a: &str, b: &str| {
        overall.iter().find_map(|c| match (c.server == a && c.base == b, c.server == b && c.base == a) {
            (true, _) if c.so == "better" => Some((c.ratio.mid, c.ratio.low, c.ratio.high)),
            (_, true) if c.so == "worse" => Some((1.0 / c.ratio.mid, 1.0 / c.ratio.high, 1.0 / c.ratio.low)),
            _ => None,
        })
    };
    let word = if w.open_loop { "is fastest" } else { "has the highest throughput" };
    for a in lines {
        let ahead: Option<Vec<_>> =
            lines.iter().filter(|b| b.server != a.server).map(|b| Some((b, beats(&a.server, &b.server)?))).collect();
        let Some(ahead) = ahead else { continue };
        let by: Vec<String> = ahead
            .iter()
            .map(|(b, (mid, low, high))| {
                let (mid, low, high) = (format_significant(*mid), format_significant(*low), format_significant(*high));
                format!("{mid} × {} ({low} to {high})", b.server)
            })
            .collect();
        let what = if w.open_loop { "its mean response time is" } else { "its requests/s are" };
        return format!("{} {word}: over all levels {what} {}.", a.server, by.join(", "));
    }
    let doubtful = lines.iter().all(|l| l.points.iter().all(|p| !p.verdict.usable));
    match () {
        () if doubtful => "No ranking: every point was disturbed or client-bound.".into(),
        () if overall.iter().all(|c| !c.has_interval()) => "No ranking: fewer than three rounds.".into(),
        () => "No ranking: no server is significantly better than all others.".into(),
    }
}

fn figure(p: &Point, of: impl Fn(&Round) -> Option<f64>) -> f64 {
    p.interval(of).map_or(f64::NAN, |i| i.mid)
}

fn mean(r: &Round) -> Option<f64> {
    r.latency.as_ref().map(|t| t.mean)
}

fn deviation(r: &Round) -> Option<f64> {
    r.latency.as_ref().map(|t| t.deviation)
}

fn reached(w: &WorkloadResult, line: &LabLine) -> String {
    if !w.open_loop {
        let best = line.points.iter().max_by(|a, b| a.rps().mid.total_cmp(&b.rps().mid));
        return best.map_or(String::new(), |p| {
            format!(
                "up to {} requests/s (with {}, mean latency {})",
                grouped_rate(p.rps().mid),
                many(p.value, &w.quantity),
                format_seconds(figure(p, mean))
            )
        });
    }
    let keeps = |p: &&Point| !p.verdict.failed && p.verdict.word != "overloaded";
    let kept = || line.points.iter().filter(keeps);
    let (Some(low), Some(high)) = (lowest(kept()), kept().max_by(|a, b| a.value.total_cmp(&b.value))) else {
        return "keeps up with none of the rates".into();
    };
    let at = |p: &Point| {
        format!(
            "{} (deviation {}) at {}",
            format_seconds(figure(p, mean)),
            format_seconds(figure(p, deviation)),
            grouped_rate(p.value)
        )
    };
    let per = w.quantity.replace(" offered", "");
    let mut text = format!("responds in {} {per}", at(low));
    if high.value != low.value {
        text += &format!(", in {}", at(high));
    }
    if let Some(over) = lowest(line.points.iter().filter(|p| !keeps(p))) {
        text += &format!(", and does not keep up with {}", grouped_rate(over.value));
    }
    text
}

/// Requests/s and latency against connections, throughput against users, reply time and deviation against rates.
pub fn workload_plot(w: &WorkloadResult) -> Plot {
    let axis = |label: &str, unit| {
        let values = || w.lines.iter().flat_map(|l| &l.points).map(|p| p.value);
        let (low, high) = values().fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
        if low > 0.0 && high / low > 20.0 { Axis::log(label, unit) } else { Axis::linear(label, unit) }
    };
    let all: Vec<&Point> = w.lines.iter().flat_map(|l| &l.points).collect();
    let dots = |line: &LabLine, of: &dyn Fn(&Round) -> Option<f64>| {
        line.points.iter().filter_map(|p| plots::point_dot(p, of)).collect()
    };
    let x = axis(&w.quantity, Unit::Count);
    let one = w.lines.len() == 1;
    let name = |line: &LabLine, what: &str| if one { what.to_string() } else { format!("{}, {what}", line.server) };
    if w.open_loop {
        let title = format!("Reply time and its deviation against {}", w.quantity);
        let mut plot = Plot::new(&title, x, plots::time_axis("time", &all));
        for (i, line) in w.lines.iter().enumerate() {
            plot.series.push(Series::new(&name(line, "mean"), Mark::Line, dots(line, &mean)).colour(i));
            plot.series
                .push(Series::new(&name(line, "deviation"), Mark::Line, dots(line, &deviation)).colour(i).dashed());
        }
        return plot;
    }
    let rate = |r: &Round| Some(r.good_rps);
    if w.quantity == "users" {
        let title = "Throughput against users";
        let mut plot = Plot::new(title, x, Axis::linear("requests per second", Unit::PerSecond));
        for line in &w.lines {
            plot.series.push(Series::new(&line.server, Mark::Line, dots(line, &rate)));
        }
        return plot;
    }
    let title = format!("Requests/s and latency against {}", w.quantity);
    let mut plot = Plot::new(&title, x, Axis::linear("requests per second", Unit::PerSecond));
    plot.y2 = Some(plots::time_axis("mean latency", &all));
    for (i, line) in w.lines.iter().enumerate() {
        plot.series.push(Series::new(&name(line, "requests/s"), Mark::Line, dots(line, &rate)).colour(i));
    }
    for (i, line) in w.lines.iter().enumerate() {
        let latency = Series::new(&name(line, "mean latency"), Mark::Line, dots(line, &mean));
        plot.series.push(latency.colour(i).right().dashed());
    }
    plot
}

/// Describes disturbances over all workloads; `None` on a quiet machine.
pub fn machine_sentence(results: &Results) -> Option<String> {
    let rounds = || results.workloads.iter().flat_map(|w| &w.lines).flat_map(|l| &l.points).flat_map(|p| &p.rounds);
    let others: Vec<f64> = rounds().filter_map(|r| r.others).filter(|o| *o > OTHERS_MAX).collect();
    let count = rounds().count();
    if others.is_empty() {
        return None;
    }
    let most = others.iter().copied().fold(0.0, f64::max);
    Some(format!(
        "Other programs used up to {most:.2} CPUs during {} of {count} turns. Rates and times of these turns are unreliable; \
         compare CPU time per request.",
        others.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::answer::tests::point;

    #[test]
    fn loads_that_fall_are_no_failures() {
        let says = |points: &[(f64, &str)]| {
            let points = points.iter().map(|(value, word)| point(*value, *value, 0.001, word)).collect();
            let line = LabLine { server: "tidegate".into(), seen: None, points, bottleneck: String::new() };
            winner_sentence(&WorkloadResult {
                name: String::new(),
                quantity: "requests/s offered".into(),
                open_loop: true,
                requests: Vec::new(),
                lines: vec![line],
                comparisons: Vec::new(),
                scale: Vec::new(),
            })
        };
        let (fast, at) = ("tidegate responds in 1 ms (deviation 500 µs) at", "in 1 ms (deviation 500 µs) at");
        let all = [(150.0, "valid"), (450.0, "valid"), (120.0, "valid")];
        assert_eq!(says(&all), format!("{fast} 120 requests/s, {at} 450."));
        let some = [(150.0, "valid"), (450.0, "overloaded"), (120.0, "valid")];
        assert_eq!(says(&some), format!("{fast} 120 requests/s, {at} 150, and does not keep up with 450."));
    }
}
