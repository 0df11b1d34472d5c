//! `tidegate bench compare`: saved runs side by side, with shared plots.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use figures::page::HtmlPage;
use figures::plot::{Axis, Mark, Plot, Series};
use figures::table::TextTable;
use figures::units::{Unit, format_seconds};

use super::baseline;
use super::gate::{self, GateResult};
use super::values::parse_degradation;
use super::{INVALID, OK, USAGE, WORSE, exports, read_report};
use crate::report::answer::many;
use crate::report::model::{Point, Report, Round, Times};
use crate::report::plots;
use crate::report::text::{grouped_rate, middle_round};

/// Shows saved runs side by side. With --by, judges the second against the first, with an exit status as `bench --baseline`.
#[derive(Parser)]
#[command(name = "tidegate bench compare")]
struct Args {
    /// Reports written by --json.
    #[arg(value_name = "FILE", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Names of the reports, in this order [default: file names].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    names: Vec<String>,
    /// Judge the second of two runs against the first, with this tolerated degradation: exit status 0 no worse, 1 worse, 3 undecided.
    #[arg(long, value_name = "SHARE", value_parser = parse_degradation)]
    by: Option<f64>,
    /// Write the judgement as JUnit's XML.
    #[arg(long, value_name = "FILE", requires = "by")]
    junit: Option<PathBuf>,
    /// Write the judgement in Markdown.
    #[arg(long, value_name = "FILE", requires = "by")]
    markdown: Option<PathBuf>,
    /// Write one HTML page with all curves.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The options, for help texts.
pub fn compare_command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Runs `tidegate bench compare`; returns the exit status.
pub fn main(args: Vec<OsString>) -> i32 {
    let args = std::iter::once(OsString::from("tidegate bench compare")).chain(args);
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(e) => return crate::print_usage(&e),
    };
    if !args.names.is_empty() && args.names.len() != args.files.len() {
        let (names, files) = (many(args.names.len() as f64, "names"), many(args.files.len() as f64, "files"));
        eprintln!("tidegate bench compare: --names has {names} for {files}");
        return USAGE;
    }
    if args.by.is_some() && args.files.len() != 2 {
        eprintln!("tidegate bench compare: --by judges the second of two files, and there are {}", args.files.len());
        return USAGE;
    }
    let reports: Result<Vec<(String, Report)>, String> = args
        .files
        .iter()
        .enumerate()
        .map(|(i, path)| {
            let stem = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
            Ok((args.names.get(i).cloned().unwrap_or(stem), read_report(path)?))
        })
        .collect();
    let reports = match reports {
        Ok(reports) => reports,
        Err(message) => {
            eprintln!("tidegate bench compare: {message}");
            return USAGE;
        }
    };
    let mut written = args.html.as_ref().map_or(Ok(()), |path| super::write_result(path, &page(&reports)));
    if args.html.as_ref().is_none_or(|path| !super::is_stdout(path)) {
        written = written.and(super::print_text(&table(&reports).text()));
    }
    let mut status = OK;
    if let (Some(by), [(_, before), (_, after)]) = (args.by, reports.as_slice()) {
        let judged = baseline::compare_baseline(before, after, by);
        let notes = baseline::differing_conditions(before, after);
        notes.iter().for_each(|note| eprintln!("tidegate bench compare: {note}"));
        let lines: String = judged.iter().map(|judgement| judgement.sentence() + "\n").collect();
        let write = |path: &Option<PathBuf>, content: String| {
            path.as_ref().map_or(Ok(()), |path| super::write_result(path, &content))
        };
        written = written
            .and(write(&args.junit, exports::junit_text(after, &judged)))
            .and(write(&args.markdown, exports::markdown_text(after, &judged)))
            .and(super::print_text(&lines));
        status = match gate::worst_result(&judged) {
            Some(GateResult::Holds) => OK,
            Some(GateResult::Fails) => WORSE,
            Some(GateResult::Undecided) | None => INVALID,
        };
    }
    match written {
        Ok(()) => status,
        Err(message) => {
            eprintln!("tidegate bench compare: {message}");
            USAGE
        }
    }
}

fn table(reports: &[(String, Report)]) -> TextTable {
    let heads = ["<run", "<load", "<verdict", "requests/s", "mean", "p50", "p99", "p99.9", "errors", "CPU/request"];
    let mut table = TextTable::new(&heads);
    for (name, report) in reports {
        for p in &report.points {
            let time = |f: fn(&Times) -> f64| {
                p.interval(|r| r.latency.as_ref().map(f)).map_or("–".into(), |i| format_seconds(i.mid))
            };
            table.row([
                name.clone(),
                format!("{} {}", grouped_rate(p.value), report.quantity),
                p.verdict.word.clone(),
                grouped_rate(p.rps().mid),
                time(|t| t.mean),
                time(|t| t.p50),
                time(|t| t.p99),
                time(|t| t.p999),
                p.interval(|r| Some(r.error_share())).map_or("–".into(), |i| Unit::Share.write(i.mid)),
                p.interval(|r| r.server.as_ref()?.cpu_per_request).map_or("–".into(), |i| format_seconds(i.mid)),
            ]);
        }
    }
    table
}

/// The point with the greatest rate, whose percentile curve is drawn.
fn best(report: &Report) -> Option<&Point> {
    report.points.iter().max_by(|a, b| a.rps().mid.total_cmp(&b.rps().mid))
}

fn overlay(
    reports: &[(String, Report)],
    title: &str,
    label: &str,
    unit: Unit,
    of: &dyn Fn(&Round) -> Option<f64>,
) -> Plot {
    let values = || reports.iter().flat_map(|(_, r)| &r.points).map(|p| p.value);
    let (low, high) = values().fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
    let quantity = reports.first().map_or("", |(_, r)| r.quantity.as_str());
    let x = if low > 0.0 && high / low > 20.0 {
        Axis::log(quantity, Unit::Count)
    } else {
        Axis::linear(quantity, Unit::Count)
    };
    let all: Vec<&Point> = reports.iter().flat_map(|(_, r)| &r.points).collect();
    let y = if unit == Unit::Seconds { plots::time_axis(label, &all) } else { Axis::linear(label, unit) };
    let mut plot = Plot::new(title, x, y);
    for (name, report) in reports {
        let dots = report.points.iter().filter_map(|p| plots::point_dot(p, of)).collect();
        plot.series.push(Series::new(name, Mark::Line, dots));
    }
    plot
}

fn page(reports: &[(String, Report)]) -> String {
    let mut page = HtmlPage::new("Runs side by side");
    let best_of = |r: &Report| {
        best(r).map_or("nothing".to_string(), |p| {
            let doubt = if p.verdict.usable { String::new() } else { format!(" ({})", p.verdict.word) };
            format!("{} requests/s{doubt}", grouped_rate(p.rps().mid))
        })
    };
    let list: Vec<String> = reports.iter().map(|(name, r)| format!("{name}: {}", best_of(r))).collect();
    page.answer(&format!("At most {}.", list.join("; ")));
    let curves: Vec<(String, &Times)> = reports
        .iter()
        .filter_map(|(name, r)| Some((name.clone(), middle_round(best(r)?)?.latency.as_ref()?)))
        .collect();
    let percentiles = plots::percentile_plot(&curves);
    let caption = "The point with the highest rate of each run.";
    let sweeps = reports.iter().any(|(_, r)| r.points.len() > 1);
    if sweeps {
        let plot = overlay(reports, "Requests/s", "requests per second", Unit::PerSecond, &|r| Some(r.rps));
        page.picture(&plot.first_figure(), &plots::plot_caption(&plot, 3));
        let mean = |r: &Round| r.latency.as_ref().map(|t| t.mean);
        let p99 = |r: &Round| r.latency.as_ref().map(|t| t.p99);
        let cpu = |r: &Round| r.server.as_ref()?.cpu_per_request;
        page.figures(&[
            (overlay(reports, "Mean latency", "latency", Unit::Seconds, &mean).figure(), String::new()),
            (overlay(reports, "p99", "latency", Unit::Seconds, &p99).figure(), String::new()),
            (
                overlay(reports, "Server's CPU time per request", "CPU time", Unit::Seconds, &cpu).figure(),
                String::new(),
            ),
            (percentiles.figure(), caption.into()),
        ]);
    } else {
        page.picture(&percentiles.first_figure(), caption);
    }
    page.table(&table(reports));
    for (name, report) in reports {
        page.subheading(name);
        page.paragraph(&format!("{} {}. {}", report.load, report.target.url, report.machine.sentence()));
        page.preformatted(&report.command.join(" "));
    }
    page.html()
}
