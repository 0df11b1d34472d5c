//! Plots of a lab report.

use figures::plot::{Axis, Mark, Plot, Point as Dot, Series};
use figures::units::{Unit, format_count};

use super::conduct::{LabLine, WorkloadResult};
use crate::report::model::{Round, Times};
use crate::report::plots;
use crate::report::text::{grouped_rate, middle_round};

/// Plots of a workload, with name and caption.
pub(super) fn workload_curves(w: &WorkloadResult, rounds: usize) -> Vec<(&'static str, Plot, String)> {
    let bars = match rounds {
        0 | 1 => "One round.".to_string(),
        2 => "Means of 2 rounds.".to_string(),
        n => format!("Means of {n} rounds; bars are 95 % intervals."),
    };
    let mut out = Vec::new();
    let single = w.lines.len() == 1;
    let rate = |r: &Round| Some(r.good_rps);
    let mean = |r: &Round| r.latency.as_ref().map(|t| t.mean);
    let p99 = |r: &Round| r.latency.as_ref().map(|t| t.p99);
    let deviation = |r: &Round| r.latency.as_ref().map(|t| t.deviation);
    if !single && w.lines.iter().all(|l| l.points.len() == 1) {
        return bar_figures(w, &bars);
    }
    if single {
        let mut plot = lines(
            w,
            &format!("Requests/s and latency against {}", w.quantity),
            "requests per second",
            Unit::PerSecond,
            rate,
            false,
        );
        plot.y2 = Some(Axis::linear("latency", Unit::Seconds));
        plot.series[0].name = "requests/s".into();
        plot.series.push(Series::new("mean latency", Mark::Line, dots(&w.lines[0], mean)).right());
        plot.series.push(Series::new("p99", Mark::Line, dots(&w.lines[0], p99)).right().dashed());
        out.push(("rate-and-latency", plot, bars.clone()));
    } else {
        out.push((
            "rate",
            lines(
                w,
                &format!("Correct responses/s against {}", w.quantity),
                "requests per second",
                Unit::PerSecond,
                rate,
                false,
            ),
            bars.clone(),
        ));
        out.push((
            "latency",
            lines(w, &format!("Mean latency against {}", w.quantity), "latency", Unit::Seconds, mean, true),
            bars.clone(),
        ));
        out.push((
            "p99",
            lines(w, &format!("p99 against {}", w.quantity), "latency", Unit::Seconds, p99, true),
            bars.clone(),
        ));
    }
    if w.open_loop {
        let samples: u64 = w
            .lines
            .iter()
            .flat_map(|l| &l.points)
            .flat_map(|p| &p.rounds)
            .filter_map(|r| r.latency.as_ref())
            .map(|t| t.count)
            .sum();
        let caption = format!(
            "Standard deviation of the reply time; it grows with saturation. {} samples in total.",
            format_count(samples as f64)
        );
        out.push((
            "deviation",
            lines(
                w,
                &format!("Deviation of reply time against {}", w.quantity),
                "deviation",
                Unit::Seconds,
                deviation,
                true,
            ),
            caption,
        ));
    }
    let memory = |r: &Round| r.server.as_ref().map(|s| s.memory_peak);
    let cpu = |r: &Round| r.server.as_ref()?.cpu_per_request;
    if w.lines.iter().any(|l| l.points.iter().any(|p| p.interval(memory).is_some())) {
        out.push((
            "memory",
            lines(
                w,
                &format!("Server's memory against {}", w.quantity),
                "memory",
                Unit::Bytes,
                memory,
                spans(w, memory, 8.0),
            ),
            "Peak of the proportional set size of all its processes.".into(),
        ));
        out.push((
            "cpu",
            lines(
                w,
                &format!("Server's CPU time per request against {}", w.quantity),
                "CPU time",
                Unit::Seconds,
                cpu,
                // A server with hardly any answers has an enormous value.
                spans(w, cpu, 8.0),
            ),
            "User and system time of all its processes.".into(),
        ));
    }
    let curves: Vec<(String, &Times)> = w
        .lines
        .iter()
        .filter_map(|l| {
            let point = l.points.get(l.points.len() / 2)?;
            Some((l.server.clone(), middle_round(point)?.latency.as_ref()?))
        })
        .collect();
    let at = w.lines.first().and_then(|l| l.points.get(l.points.len() / 2)).map_or(0.0, |p| p.value);
    out.push((
        "percentiles",
        plots::percentile_plot(&curves),
        format!("At {} {}, the round of the median rate.", grouped_rate(at), w.quantity),
    ));
    out
}

fn bar_figures(w: &WorkloadResult, caption: &str) -> Vec<(&'static str, Plot, String)> {
    let level = w.lines.first().and_then(|l| l.points.first()).map_or(0.0, |p| p.value);
    let figures: [(&str, &str, Unit, fn(&Round) -> Option<f64>); 4] = [
        ("rate", "Correct responses/s", Unit::PerSecond, |r| Some(r.good_rps)),
        ("cpu", "Server's CPU time per request", Unit::Seconds, |r| r.server.as_ref()?.cpu_per_request),
        ("p99", "Latency at p99", Unit::Seconds, |r| r.latency.as_ref().map(|t| t.p99)),
        ("memory", "Server's memory", Unit::Bytes, |r| r.server.as_ref().map(|s| s.memory_peak)),
    ];
    figures
        .into_iter()
        .map(|(name, title, unit, of)| {
            let names = w.lines.iter().map(|l| l.server.clone()).collect();
            let title = format!("{title} at {} {}", grouped_rate(level), w.quantity);
            let mut plot = Plot::new(&title, Axis::names("", names), Axis::linear(unit_word(unit), unit));
            plot.height = 300.0;
            let bar = |(i, line)| dots(line, of).into_iter().map(move |d| Dot { x: i as f64, ..d });
            plot.series.push(Series::new("", Mark::Bars, w.lines.iter().enumerate().flat_map(bar).collect()));
            (name, plot, caption.to_string())
        })
        .collect()
}

fn unit_word(unit: Unit) -> &'static str {
    match unit {
        Unit::PerSecond => "requests per second",
        Unit::Bytes => "memory",
        _ => "time",
    }
}

fn dots(line: &LabLine, of: impl Fn(&Round) -> Option<f64>) -> Vec<Dot> {
    line.points.iter().filter_map(|p| plots::point_dot(p, &of)).collect()
}

/// Tells whether the figure spans more than `factor` and needs a logarithmic axis.
fn spans(w: &WorkloadResult, of: impl Fn(&Round) -> Option<f64>, factor: f64) -> bool {
    let values: Vec<f64> = w.lines.iter().flat_map(|l| dots(l, &of)).map(|d| d.y).filter(|v| *v > 0.0).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    values.iter().copied().fold(0.0, f64::max) / low > factor
}

fn lines(
    w: &WorkloadResult,
    title: &str,
    label: &str,
    unit: Unit,
    of: impl Fn(&Round) -> Option<f64> + Copy,
    log: bool,
) -> Plot {
    let values: Vec<f64> = w.lines.iter().flat_map(|l| l.points.iter().map(|p| p.value)).collect();
    let (low, high) = values.iter().fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(*v), b.max(*v)));
    let x = if low > 0.0 && high / low > 20.0 {
        Axis::log(&w.quantity, Unit::Count)
    } else {
        Axis::linear(&w.quantity, Unit::Count)
    };
    let y = if log { Axis::log(label, unit) } else { Axis::linear(label, unit) };
    let mut plot = Plot::new(title, x, y);
    for line in &w.lines {
        let mut points = dots(line, of);
        if log {
            // A logarithmic axis cannot show an interval's end at zero.
            points.iter_mut().for_each(|p| p.low = p.low.max(p.y * 0.1));
        }
        plot.series.push(Series::new(&line.server, Mark::Line, points));
    }
    plot
}
