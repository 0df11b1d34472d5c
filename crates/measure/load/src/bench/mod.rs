//! `tidegate bench`: one load, a sweep, or a search for the highest rate.

pub mod baseline;
pub mod cli;
pub mod compare;
pub mod data;
pub mod execute;
pub mod exports;
pub mod find;
pub mod gate;
pub mod grpc;
pub mod import;
pub mod influx;
pub mod link;
pub mod live;
pub mod otlp;
pub mod outputs;
pub mod plan;
pub mod presets;
pub mod refusals;
pub mod remote_write;
pub mod replay;
pub mod requests;
pub mod sweep;
pub mod values;
pub mod watcher;
pub mod wire;
pub mod worker;

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::engine::job::Job;
use crate::report::model::{RateVerdict, Report};

pub const OK: i32 = 0;
/// A requirement or the baseline comparison failed, or `--abort-on` ended the run.
pub const WORSE: i32 = 1;
/// Wrong arguments, or a file or output that cannot be read or written.
pub const USAGE: i32 = 2;
/// The run cannot decide: client-bound, port-bound, not repeatable, too noisy.
pub const INVALID: i32 = 3;
/// No response, or more than 1 % failed or unsent.
pub const FAILED: i32 = 4;

/// Runs `tidegate bench` with the arguments after the subcommand's name; returns the exit status.
pub fn main(args: Vec<OsString>) -> i32 {
    let first = args.first().and_then(|a| a.to_str()).unwrap_or("");
    if first == "worker" {
        return worker::main(args[1..].to_vec());
    }
    if first == "import" {
        return import::main(args[1..].to_vec());
    }
    if first == "compare" {
        return compare::main(args[1..].to_vec());
    }
    let words: Option<Vec<String>> = args.iter().skip(1).map(|a| a.to_str().map(String::from)).collect();
    let translated = match &words {
        Some(words) => presets::translate_arguments(first, words),
        None => presets::translate_arguments(first, &[]).map(|_| Err("an argument is not UTF-8".into())),
    };
    let args = match translated {
        None => args,
        Some(Ok(translated)) => {
            eprintln!("= tidegate bench {}", translated.join(" "));
            translated.into_iter().map(OsString::from).collect()
        }
        Some(Err(message)) => {
            eprintln!("tidegate bench {first}: {message}");
            return USAGE;
        }
    };
    let options = match cli::parse_arguments(&args) {
        Ok(options) => options,
        Err(status) => return status,
    };
    let plan = match plan::Plan::new(&options) {
        Ok(plan) => plan,
        Err(message) => {
            eprintln!("tidegate bench: {message}");
            return USAGE;
        }
    };
    if options.show {
        return show(&plan);
    }
    let before = match ready(&options) {
        Ok(before) => before,
        Err(message) => {
            eprintln!("tidegate bench: {message}");
            return USAGE;
        }
    };
    crate::interrupt::watch();
    raise_descriptors();
    let words: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    if options.quiet {
        // The summary has them otherwise.
        plan.notes.iter().for_each(|note| eprintln!("tidegate bench: {note}"));
    }
    let report = match execute::execute_plan(&plan, &words) {
        Ok(report) => report,
        Err(message) => {
            eprintln!("tidegate bench: {message}");
            return FAILED;
        }
    };
    finish(&options, &plan, &report, before.as_ref()).unwrap_or_else(|message| {
        eprintln!("tidegate bench: {message}");
        USAGE
    })
}

fn show(plan: &plan::Plan) -> i32 {
    let job = plan.base();
    let mut status = OK;
    for request in &job.requests {
        let server = request.server.checked_sub(1).and_then(|number| job.servers.get(number));
        let job = server.map_or_else(|| job.clone(), |target| Job { target: target.clone(), ..job.clone() });
        match crate::lab::probe::probe_once(&job, request) {
            Ok(seen) => base::outln!(
                "{} {}  status {}  body {} bytes  hash {}  head {} bytes",
                request.method,
                request.path,
                seen.status,
                seen.length,
                seen.hash,
                seen.head
            ),
            Err(why) => {
                eprintln!("{} {}: {why}", request.method, request.path);
                status = FAILED;
            }
        }
    }
    status
}

/// Prints; ignores a closed pipe (`| head`), so that the exit status remains that of the run. Fails on other errors.
pub fn print_text(text: &str) -> Result<(), String> {
    use std::io::{ErrorKind, Write as _};
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("cannot write to the standard output: {e}")),
        _ => Ok(()),
    }
}

/// Reads the baseline and checks that the result files are writable.
fn ready(options: &cli::Options) -> Result<Option<Report>, String> {
    let metrics = options.metrics.as_ref().filter(|path| !watcher::is_url(path));
    let results = outputs(options).into_iter().flatten();
    if results.clone().filter(|path| is_stdout(path)).count() > 1 {
        return Err("only one of --json, --csv, --html, --junit and --markdown can be the standard output".into());
    }
    for path in results.filter(|path| !is_stdout(path)).chain(metrics).chain(&options.save_baseline) {
        let new = !path.exists();
        let open = fs::OpenOptions::new().append(true).create(true).open(path);
        open.map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        if new {
            let _ = fs::remove_file(path);
        }
    }
    let before = options.baseline.as_deref().map(read_report).transpose()?;
    match &before {
        Some(report) if report.points.iter().all(|p| p.rounds.is_empty()) => {
            let path = options.baseline.as_deref().unwrap_or(Path::new(""));
            Err(format!("{}: the baseline has no measured point", path.display()))
        }
        _ => Ok(before),
    }
}

/// Files of results, any of which may be the standard output.
fn outputs(options: &cli::Options) -> [Option<&std::path::PathBuf>; 5] {
    [&options.json, &options.csv, &options.html, &options.junit, &options.markdown].map(Option::as_ref)
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a result into its file, whose former content a failure leaves as it was, or to standard output. Errors name
/// the file.
pub fn write_result(path: &Path, content: &str) -> Result<(), String> {
    if is_stdout(path) {
        return print_text(content);
    }
    outputs::replace_file(path, content.as_bytes()).map_err(|e| format!("{}: {e}", path.display()))
}

/// Raises the descriptor limit: every connection needs one.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Prints, writes the files, and returns the exit status.
fn finish(options: &cli::Options, plan: &plan::Plan, report: &Report, before: Option<&Report>) -> Result<i32, String> {
    let write = |path: &Option<std::path::PathBuf>, content: &dyn Fn() -> String| match path {
        Some(path) => write_result(path, &content()),
        None => Ok(()),
    };
    // A result on standard output must stand alone there.
    let piped = outputs(options).into_iter().flatten().any(|path| is_stdout(path));
    let say = |text: &str| match piped {
        true => {
            eprint!("{text}");
            Ok(())
        }
        false => print_text(text),
    };
    let mut judgement = gate::judge_requirements(&plan.requirements, report);
    if let Some(before) = before {
        judgement.extend(baseline::compare_baseline(before, report, options.by));
        baseline::differing_conditions(before, report).iter().for_each(|note| eprintln!("tidegate bench: {note}"));
    }
    // Writes files before the summary, whose reader may go away; one failure does not skip the others.
    let json = write(&options.json, &|| serde_json::to_string(report).unwrap_or_default() + "\n");
    let csv = write(&options.csv, &|| crate::report::csv::csv_table(report).csv());
    let html = write(&options.html, &|| crate::report::html::report_page(report));
    let junit = write(&options.junit, &|| exports::junit_text(report, &judgement));
    let markdown = write(&options.markdown, &|| exports::markdown_text(report, &judgement));
    let saved = write(&options.save_baseline, &|| {
        serde_json::to_string(&exports::baseline_report(report)).unwrap_or_default() + "\n"
    });
    figures::units::times_in_milliseconds(options.ms);
    let mut said = Ok(());
    if !options.quiet {
        said = said.and(say(&crate::report::text::report_summary(report)));
    }
    if options.spectrum {
        said = said.and(say(&crate::report::text::report_spectra(report)));
    }
    figures::units::times_in_milliseconds(false);
    json.and(csv).and(html).and(junit).and(markdown).and(saved).and(said)?;

    for j in &judgement {
        say(&(j.sentence() + "\n"))?;
    }
    if options.annotations.is_some() {
        say(&exports::github_annotations(report, &judgement))?;
    }
    let status = crate::interrupt::status()
        .or(crate::interrupt::reason().map(|_| WORSE))
        .unwrap_or_else(|| status(report, plan.searches(), gate::worst_result(&judgement)));
    if options.quiet && status != OK && crate::interrupt::status().is_none() {
        reasons(report).iter().for_each(|why| eprintln!("tidegate bench: {why}"));
    }
    Ok(status)
}

/// Reasons of an exit status that the omitted summary would give.
fn reasons(report: &Report) -> Vec<String> {
    use crate::report::model::Round;
    let grouped = crate::report::text::grouped_rate;
    if let Some(why) = crate::interrupt::reason() {
        return vec![format!("stopped by {why}")];
    }
    if let Some(why) = report.points.iter().flat_map(|p| &p.rounds).find_map(|r| r.refused.clone()) {
        return vec![why];
    }
    if report.points.is_empty() || !report.search.is_empty() {
        return vec![crate::report::answer::answer_sentence(report)];
    }
    let doubtful = report.points.iter().filter(|p| p.verdict.word != "valid");
    let told = doubtful.map(|p| {
        let at = if report.points.len() > 1 { format!(" at {}", grouped(p.value)) } else { String::new() };
        let first = p.verdict.reasons.first().map_or(String::new(), |why| format!(": {why}"));
        let failures = p.rounds.iter().flat_map(Round::failure_words);
        let most = failures.max_by_key(|(_, n)| *n).filter(|_| p.verdict.failed);
        let most = most.map_or(String::new(), |(class, n)| format!(" ({}: {class})", grouped(n as f64)));
        format!("{}{at}{first}{most}", p.verdict.word)
    });
    told.collect()
}

/// Exit status of a completed run.
fn status(report: &Report, searched: bool, gates: Option<gate::GateResult>) -> i32 {
    let any = |of: &dyn Fn(&RateVerdict) -> bool| report.points.iter().any(|p| of(&p.verdict));
    // Points beyond the knee are expected in a sweep.
    let overloaded = report.points.iter().all(|p| p.verdict.failed && p.verdict.word == "overloaded");
    match gates {
        Some(gate::GateResult::Fails) => WORSE,
        _ if report.points.is_empty() => FAILED,
        Some(gate::GateResult::Undecided) if searched => INVALID,
        // A search also tries rates that are too high: only its result counts.
        _ if searched && report.undecided => INVALID,
        _ if searched => {
            if report.capacity.is_some() {
                OK
            } else {
                WORSE
            }
        }
        _ if overloaded || any(&|v| v.failed && v.word == "error-bound") => FAILED,
        Some(gate::GateResult::Undecided) => INVALID,
        // A page of redirects says nothing about the page behind them.
        _ if any(&|v| v.word == "redirected") => INVALID,
        // A shortage of this machine says nothing about the server.
        _ if any(&|v| v.failed && v.word != "overloaded" || v.word == "port-bound") => INVALID,
        Some(_) if any(&|v| !v.usable) => INVALID,
        _ => OK,
    }
}

/// Reads a report of `--json`. Errors name the file.
pub fn read_report(path: &Path) -> Result<Report, String> {
    let text = requests::read_text(path)?;
    if text.trim().is_empty() {
        return Err(format!("{}: the file is empty, not a report of --json", path.display()));
    }
    serde_json::from_str(&text).map_err(|e| {
        let own = env!("CARGO_PKG_VERSION");
        let value: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        let version = value.as_ref().and_then(|value| value.get("version")?.as_str()).filter(|version| *version != own);
        let version = version.map_or(String::new(), |other| format!(" (it is of version {other}, this is {own})"));
        let why = figures::errors::plain_message(&e.to_string());
        format!("{}: not a report of --json: {why}{version}", path.display())
    })
}
