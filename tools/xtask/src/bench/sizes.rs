//! `cargo xtask bench --sizes`: CPU time and latency by the size of the response, over one connection and over 64.
//!
//! The sizes lie around those at which a server changes its way: copies from memory, the kernel's page cache, several segments, several
//! turns of the event loop.

use super::report::value_spread;
use super::scenario::{self, Scenario};
use super::turns::Turn;
use super::{BenchOutcome, BenchTask, measure};
use figures::plot::{Axis, Mark, Plot, Point, Series};
use figures::units::Unit;
use std::fmt::Write as _;

/// Sizes of responses, in KB. `html/size-NNk.bin` is made for each ([`file_of`]).
const SIZES: [usize; 11] = [1, 16, 24, 32, 66, 100, 130, 256, 512, 1024, 4096];
const CONNECTIONS: [usize; 2] = [1, 64];

/// Name of the row, scenario with its configuration, and streams of a connection.
const KINDS: [(&str, &str); 5] = [
    ("static", "static-500k"),
    ("proxied", "proxy-500k"),
    ("TLS", "tls-500k"),
    ("HTTP/2", "h2-5k"),
    ("HTTP/3", "h3-500k"),
];

/// Returns the file of a size, below the document root.
fn file_of(kilobytes: usize) -> String {
    format!("size-{kilobytes}k.bin")
}

/// Returns all files with their lengths in bytes.
pub fn size_files() -> impl Iterator<Item = (String, usize)> {
    SIZES.into_iter().map(|size| (file_of(size), size * 1024))
}

/// Measures all sizes in pairs with nginx, and writes `sizes.md`, `sizes.csv` and `sizes.svg` into `folder`. `options.scenarios` names the kinds
/// (`static`, `proxied`, `TLS`, `HTTP/2`, `HTTP/3`); empty: all.
///
/// # Errors
/// Of the files. A row that fails says so in the table.
pub(super) fn run(task: &BenchTask<'_>) -> Result<(), String> {
    let &BenchTask { root, binary, client, options, folder } = task;
    if let Some(unknown) = options.scenarios.iter().find(|name| KINDS.iter().all(|(kind, _)| kind != name)) {
        return Err(format!("there is no kind \"{unknown}\": static, proxied, TLS, HTTP/2, HTTP/3"));
    }
    let mut text = format!(
        "# Responses by size\n\nMedians of {} pairs of {} s; above 1: nginx needs more CPU time per request. Latency in milliseconds, nginx / Tidegate.\n\n\
         | | connections | size | nginx, us | Tidegate, us | ratio (from, to) | p50 | p99 |\n|---|---:|---:|---:|---:|---|---|---|\n",
        options.pairs, options.seconds
    );
    let mut table = String::from(
        "kind,connections,kilobytes,nginx_cpu_us,tidegate_cpu_us,ratio,nginx_p50_ms,tidegate_p50_ms,nginx_p99_ms,tidegate_p99_ms\n",
    );
    let mut plot = Plot::new(
        "nginx's CPU time per request over Tidegate's",
        Axis::log("size of the response", Unit::Bytes),
        Axis::linear("ratio", Unit::Plain),
    );
    plot.marks_y.push((1.0, "nginx".into()));
    let wanted = |kind: &str| options.scenarios.is_empty() || options.scenarios.iter().any(|name| name == kind);
    for (kind, base) in KINDS.into_iter().filter(|(kind, _)| wanted(kind)) {
        let base = scenario::all_scenarios(&root.join("benches/scenarios"), &[base.to_string()])?;
        let base = base.first().ok_or("a scenario is missing")?;
        for connections in CONNECTIONS {
            let mut points = Vec::new();
            for size in SIZES {
                let scenario = of_size(base, connections, size);
                let begin = format!("{kind} | {connections} | {size} KB");
                let row = match measure(&scenario, binary, client, options) {
                    Ok(BenchOutcome::Speed(pairs, _)) => {
                        let _ = writeln!(table, "{kind},{connections},{size},{}", values(&pairs));
                        points.push(ratio_point(size, &pairs));
                        cells(&pairs)
                    }
                    Ok(_) => "not measured | | | |".to_string(),
                    Err(words) => format!("{words} | | | |"),
                };
                eprintln!("{begin} | {row}");
                let _ = writeln!(text, "| {begin} | {row} |");
            }
            plot.series.push(Series::new(&format!("{kind}, {connections}"), Mark::Line, points));
        }
    }
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for (name, content) in [("sizes.md", &text), ("sizes.csv", &table), ("sizes.svg", &plot.svg_file())] {
        std::fs::write(folder.join(name), content).map_err(|e| format!("{}: {e}", folder.join(name).display()))?;
    }
    Ok(())
}

fn of_size(base: &Scenario, connections: usize, size: usize) -> Scenario {
    let mut scenario = base.clone();
    scenario.path = format!("/{}", file_of(size));
    scenario.connections = connections;
    scenario.streams = base.streams.map(|_| 1);
    (scenario.h2o, scenario.haproxy) = (None, None);
    scenario
}

/// Median of the pairs' ratios, with the least and the most.
fn ratio_point(size: usize, pairs: &[(Turn, Turn)]) -> Point {
    let ratio = value_spread(pairs.iter().map(|(theirs, ours)| theirs.cpu_us / ours.cpu_us));
    Point { low: ratio.least, high: ratio.most, ..Point::new((size * 1024) as f64, ratio.median) }
}

type Figure = fn(&Turn) -> f64;
const FIGURES: [Figure; 3] = [|t| t.cpu_us, |t| t.p50_us / 1000.0, |t| t.p99_us / 1000.0];

fn medians(pairs: &[(Turn, Turn)]) -> [(f64, f64); 3] {
    FIGURES.map(|figure| {
        let (theirs, ours) =
            (pairs.iter().map(|(theirs, _)| figure(theirs)), pairs.iter().map(|(_, ours)| figure(ours)));
        (value_spread(theirs).median, value_spread(ours).median)
    })
}

fn cells(pairs: &[(Turn, Turn)]) -> String {
    let [cpu, p50, p99] = medians(pairs);
    let ratio = value_spread(pairs.iter().map(|(theirs, ours)| theirs.cpu_us / ours.cpu_us));
    format!(
        "{:.1} | {:.1} | **{:.2}** ({:.2}, {:.2}) | {:.2} / {:.2} | {:.2} / {:.2}",
        cpu.0, cpu.1, ratio.median, ratio.least, ratio.most, p50.0, p50.1, p99.0, p99.1
    )
}

fn values(pairs: &[(Turn, Turn)]) -> String {
    let [cpu, p50, p99] = medians(pairs);
    let ratio = value_spread(pairs.iter().map(|(theirs, ours)| theirs.cpu_us / ours.cpu_us)).median;
    format!("{:.2},{:.2},{ratio:.3},{:.3},{:.3},{:.3},{:.3}", cpu.0, cpu.1, p50.0, p50.1, p99.0, p99.1)
}
