//! Plots of a bench report.

use figures::plot::{Axis, Mark, Plot, Point as Dot, Series};
use figures::units::Unit;

use super::model::{Point, Report, Round, Tick, Times};
use super::text::middle_round;
use crate::engine::latency::Latency;

/// Shortest drawn time in seconds: shorter ones would stretch the axis.
const SHORTEST: f64 = 1e-6;

/// A point with its interval over rounds; hollow where the server was not the limit, or failures or a growing queue
/// spoil the figure.
pub fn point_dot(point: &Point, of: &dyn Fn(&Round) -> Option<f64>) -> Option<Dot> {
    let hollow = !point.verdict.usable || point.verdict.word == "overloaded";
    point.interval(of).map(|i| {
        let (low, high) = if point.has_interval() { (i.low.max(0.0), i.high) } else { (i.mid, i.mid) };
        Dot { x: point.value, y: i.mid, low, high, hollow }
    })
}

/// Caption of a plot of means.
pub fn plot_caption(plot: &Plot, rounds: usize) -> String {
    let bars = match rounds {
        0 | 1 => "One run per point.".to_string(),
        2 => "Means of 2 rounds.".to_string(),
        n => format!("Means of {n} rounds; bars are 95 % intervals."),
    };
    let hollow = " Hollow: does not describe the server (client-bound, disturbed, failing, or overloaded).";
    if plot.has_hollow() { bars + hollow } else { bars }
}

fn dots(report: &Report, of: &dyn Fn(&Round) -> Option<f64>) -> Vec<Dot> {
    report.points.iter().filter_map(|p| point_dot(p, of)).collect()
}

/// Axis of the points' quantity: logarithmic beyond a factor of twenty.
fn quantity_axis(report: &Report) -> Axis {
    let values = report.points.iter().map(|p| p.value);
    let (low, high) = values.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), v| (a.min(v), b.max(v)));
    if low > 0.0 && high / low > 20.0 {
        Axis::log(&report.quantity, Unit::Count)
    } else {
        Axis::linear(&report.quantity, Unit::Count)
    }
}

/// Axis of latencies: logarithmic beyond a factor of twenty between means.
pub fn time_axis(label: &str, points: &[&Point]) -> Axis {
    let mean = |p: &&&Point| p.interval(|r| r.latency.as_ref().map(|t| t.mean)).map(|i| i.mid);
    let means: Vec<f64> = points.iter().filter_map(|p| mean(&p)).filter(|m| *m > 0.0).collect();
    let low = means.iter().copied().fold(f64::INFINITY, f64::min);
    let high = means.iter().copied().fold(0.0, f64::max);
    if high > 20.0 * low { Axis::log(label, Unit::Seconds) } else { Axis::linear(label, Unit::Seconds) }
}

/// Requests/s and latency against the quantity, on two axes.
pub fn rate_and_latency(report: &Report) -> Plot {
    let mut plot = Plot::new(
        &format!("Requests/s and latency against {}", report.quantity),
        quantity_axis(report),
        Axis::linear("requests per second", Unit::PerSecond),
    );
    plot.y2 = Some(time_axis("latency", report.points.iter().collect::<Vec<_>>().as_slice()));
    plot.series.push(Series::new("requests/s", Mark::Line, dots(report, &|r| Some(r.rps))));
    let time = |f: fn(&Times) -> f64| move |r: &Round| r.latency.as_ref().map(f);
    plot.series.push(Series::new("mean latency", Mark::Line, dots(report, &time(|t| t.mean))).right());
    plot.series.push(Series::new("p99", Mark::Line, dots(report, &time(|t| t.p99))).right().dashed());
    plot
}

/// Mean reply time and deviation: a growing deviation marks saturation.
pub fn reply_time(report: &Report) -> Plot {
    let mut plot = Plot::new(
        &format!("Reply time and its deviation against {}", report.quantity),
        quantity_axis(report),
        time_axis("time", report.points.iter().collect::<Vec<_>>().as_slice()),
    );
    let band = report.points.iter().filter_map(|p| {
        let mean = p.interval(|r| r.latency.as_ref().map(|t| t.mean))?.mid;
        let deviation = p.interval(|r| r.latency.as_ref().map(|t| t.deviation))?.mid;
        Some(Dot { low: (mean - deviation).max(0.0), high: mean + deviation, ..Dot::new(p.value, mean) })
    });
    plot.series.push(Series::new("± one deviation", Mark::Band, band.collect()).colour(0));
    plot.series.push(Series::new("mean", Mark::Line, dots(report, &|r| r.latency.as_ref().map(|t| t.mean))).colour(0));
    let deviations = dots(report, &|r| r.latency.as_ref().map(|t| t.deviation));
    plot.series.push(Series::new("deviation", Mark::Line, deviations).colour(1).dashed());
    plot
}

/// Response rate over offered rate; the diagonal is an unlimited server.
pub fn answered_against_offered(report: &Report) -> Plot {
    let mut plot = Plot::new(
        "Rate of responses against offered rate",
        Axis::linear(&report.quantity, Unit::Count),
        Axis::linear("responses per second", Unit::PerSecond),
    );
    let highest = report.points.iter().map(|p| p.value).fold(0.0, f64::max);
    let per_answer = dots(report, &|r| Some(r.good_rps));
    plot.series.push(Series::new("successful responses", Mark::Line, per_answer));
    plot.series
        .push(Series::new("offered", Mark::Curve, vec![Dot::new(0.0, 0.0), Dot::new(highest, highest)]).dashed());
    plot
}

/// Server's memory and CPU per request; `None` when not watched.
pub fn server_plots(report: &Report) -> Option<(Plot, Plot)> {
    let memory = dots(report, &|r| r.server.as_ref().map(|s| s.memory_peak));
    if memory.is_empty() {
        return None;
    }
    let mut a = Plot::new(
        &format!("Server's memory against {}", report.quantity),
        quantity_axis(report),
        Axis::linear("memory", Unit::Bytes),
    );
    a.series.push(Series::new("peak", Mark::Line, memory));
    let mut b = Plot::new(
        &format!("Server's CPU time per request against {}", report.quantity),
        quantity_axis(report),
        Axis::linear("CPU time", Unit::Seconds),
    );
    b.series.push(Series::new(
        "CPU time per request",
        Mark::Line,
        dots(report, &|r| r.server.as_ref()?.cpu_per_request),
    ));
    Some((a, b))
}

/// Latency by percentile, stretched towards the slowest.
pub fn percentile_plot(curves: &[(String, &Times)]) -> Plot {
    let mut plot = Plot::new(
        "Latency by percentile",
        Axis::linear("percentile", Unit::Plain),
        Axis::log("latency", Unit::Seconds),
    );
    let place = |q: f64| -(1.0 - q).max(1e-9).log10();
    let names = [(0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99"), (0.99999, "99.999")];
    plot.x.ticks =
        std::iter::once((0.0, "0".to_string())).chain(names.map(|(q, name)| (place(q), name.to_string()))).collect();
    for (name, times) in curves {
        let Ok(latency) = Latency::decode(&times.histogram) else { continue };
        let points = latency.curve().into_iter().map(|(q, s)| Dot::new(place(q), s.max(SHORTEST))).collect();
        plot.series.push(Series::new(name, Mark::Curve, points));
    }
    plot
}

pub fn over_time(series: &[Tick], open_loop: bool) -> Vec<Plot> {
    let time = || Axis::linear("time (s)", Unit::Plain);
    let line = |f: &dyn Fn(&Tick) -> f64| -> Vec<Dot> { series.iter().map(|t| Dot::new(t.at, f(t))).collect() };
    let mut rate = Plot::new("Requests/s over time", time(), Axis::linear("requests per second", Unit::PerSecond));
    rate.series.push(Series::new("answers", Mark::Curve, line(&|t| t.rps)));
    if open_loop {
        rate.series.push(Series::new("offered", Mark::Curve, line(&|t| t.offered)).dashed());
    }
    let mut latency =
        Plot::new("Latency over the time at which requests were due", time(), Axis::log("latency", Unit::Seconds));
    // By due time a stall is a mountain; the line has gaps only where nothing was due.
    let some = |v: Option<f64>| v.filter(|v| *v > 0.0).unwrap_or(f64::NAN);
    latency.series.push(Series::new("p50", Mark::Curve, line(&|t| some(t.p50))));
    latency.series.push(Series::new("p99", Mark::Curve, line(&|t| some(t.p99))));
    latency.series.push(Series::new("max", Mark::Curve, line(&|t| some(t.max))).dashed());
    let mut plots = vec![rate, latency];
    if series.iter().any(|t| t.processors.is_some()) {
        let some = |f: &dyn Fn(&Tick) -> Option<f64>| -> Vec<Dot> {
            series.iter().filter_map(|t| f(t).map(|y| Dot::new(t.at, y))).collect()
        };
        let mut server = Plot::new("The server over time", time(), Axis::linear("CPUs", Unit::Plain));
        server.y2 = Some(Axis::linear("memory", Unit::Bytes));
        server.series.push(Series::new("CPUs used", Mark::Curve, some(&|t| t.processors)));
        server.series.push(Series::new("memory", Mark::Curve, some(&|t| t.memory)).right().dashed());
        plots.push(server);
    }
    plots
}

/// Percentile curves: plan, send and lateness of a single point; the latency of each of several.
pub fn percentile_curves(report: &Report) -> Vec<(String, &Times)> {
    if let [point] = report.points.as_slice() {
        let Some(r) = middle_round(point) else { return Vec::new() };
        let name = if report.open_loop { "from the schedule" } else { "latency" };
        let all = [(name, &r.latency), ("from the send", &r.service), ("generator's lateness", &r.lag)];
        return all.into_iter().filter_map(|(n, t)| t.as_ref().map(|t| (n.to_string(), t))).collect();
    }
    // More than six curves are indistinguishable.
    let step = report.points.len().div_ceil(6).max(1);
    let chosen = report.points.iter().rev().step_by(step).collect::<Vec<_>>().into_iter().rev();
    chosen.filter_map(|p| Some((super::text::grouped_rate(p.value), middle_round(p)?.latency.as_ref()?))).collect()
}
