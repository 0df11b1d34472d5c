//! `tidegate bench`: one load, a sweep, or a search for the highest rate, as a command.

pub mod cli;
pub mod compare;
pub mod execute;
pub mod find;
pub mod gate;
pub mod live;
pub mod plan;
pub mod presets;
pub mod remote_write;
pub mod replay;
pub mod requests;
pub mod watcher;
pub mod wire;
pub mod worker;

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::report::model::{Report, Verdict};

/// The run was made and is valid; all requirements hold.
pub const OK: i32 = 0;
/// A requirement does not hold, the figures are worse than the baseline's, or `--abort-on` ended the run.
pub const WORSE: i32 = 1;
/// The command line makes no sense.
pub const USAGE: i32 = 2;
/// The run was made, but cannot decide: client-bound, port-bound, not repeatable, too noisy. Try again.
pub const INVALID: i32 = 3;
/// The run failed: nobody answered, more than one request in a hundred failed or was never sent, a file could not be written.
pub const FAILED: i32 = 4;

/// Runs `tidegate bench` with the arguments after the subcommand's name; returns the exit status.
pub fn main(args: Vec<OsString>) -> i32 {
    let first = args.first().and_then(|a| a.to_str()).unwrap_or("");
    if first == "worker" {
        return worker::main(args[1..].to_vec());
    }
    if first == "compare" {
        return compare::main(args[1..].to_vec());
    }
    let words: Option<Vec<String>> = args.iter().skip(1).map(|a| a.to_str().map(String::from)).collect();
    let translated = match &words {
        Some(words) => presets::translate(first, words),
        None => presets::translate(first, &[]).map(|_| Err("an argument is not UTF-8".into())),
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
    let options = match cli::parse(&args) {
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
    // What would be complained about at the end is complained about now.
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
    plan.notes.iter().for_each(|note| eprintln!("tidegate bench: {note}"));
    let done = execute::report(&plan, &words).and_then(|report| finish(&options, &plan, &report, before.as_ref()));
    done.unwrap_or_else(|message| {
        eprintln!("tidegate bench: {message}");
        FAILED
    })
}

/// Asks each request once and prints what came.
fn show(plan: &plan::Plan) -> i32 {
    let job = plan.base();
    let mut status = OK;
    for request in &job.requests {
        match crate::lab::probe::ask(job, request) {
            Ok(seen) => println!(
                "{} {}  status {}  body {} bytes  hash {}  head {} bytes",
                request.method, request.path, seen.status, seen.length, seen.hash, seen.head
            ),
            Err(why) => {
                eprintln!("{} {}: {why}", request.method, request.path);
                status = FAILED;
            }
        }
    }
    status
}

/// Prints, whether or not somebody still reads (`| head`).
pub fn say(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Reads the baseline, and sees whether the files for the results can be written.
fn ready(options: &cli::Options) -> Result<Option<Report>, String> {
    let metrics = options.metrics.as_ref().filter(|path| !watcher::is_url(path));
    let results = [options.json.as_ref(), options.csv.as_ref(), options.html.as_ref()].into_iter().flatten();
    if results.clone().filter(|path| is_stdout(path)).count() > 1 {
        return Err("only one of --json, --csv and --html can be the standard output".into());
    }
    for path in results.filter(|path| !is_stdout(path)).chain(metrics) {
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
            Err(format!("{}: the baseline holds no measured point", path.display()))
        }
        _ => Ok(before),
    }
}

/// The name `-` is the standard output.
fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a result into the file that was named for it, or to the standard output.
///
/// # Errors
/// As the system gives them, with the file's name.
pub fn write_result(path: &Path, content: &str) -> Result<(), String> {
    if is_stdout(path) {
        say(content);
        return Ok(());
    }
    fs::write(path, content).map_err(|e| format!("{}: {e}", path.display()))
}

/// As many descriptors as this process may have: a load generator needs one a connection.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Prints, writes the files, and decides the exit status.
fn finish(options: &cli::Options, plan: &plan::Plan, report: &Report, before: Option<&Report>) -> Result<i32, String> {
    let write = |path: &Option<std::path::PathBuf>, content: &dyn Fn() -> String| match path {
        Some(path) => write_result(path, &content()),
        None => Ok(()),
    };
    // A result on the standard output stands there alone.
    let piped = [&options.json, &options.csv, &options.html].into_iter().flatten().any(|path| is_stdout(path));
    let say = |text: &str| if piped { eprint!("{text}") } else { say(text) };
    // The files first: who reads the summary may go away. One file that cannot be written does not cost the others.
    let json = write(&options.json, &|| serde_json::to_string(report).unwrap_or_default() + "\n");
    let csv = write(&options.csv, &|| crate::report::csv::table(report).csv());
    let html = write(&options.html, &|| crate::report::html::page(report));
    figures::units::times_in_milliseconds(options.ms);
    if !options.quiet {
        say(&crate::report::text::summary(report));
    }
    if options.spectrum {
        say(&crate::report::text::spectra(report));
    }
    figures::units::times_in_milliseconds(false);
    json.and(csv).and(html)?;

    let mut judgement = gate::requirements(&plan.requirements, report);
    if let Some(before) = before {
        judgement.extend(gate::baseline(before, report, options.by));
    }
    for j in &judgement {
        say(&(j.sentence() + "\n"));
    }
    Ok(crate::interrupt::status()
        .or(crate::interrupt::reason().map(|_| WORSE))
        .unwrap_or_else(|| status(report, plan.searches(), gate::worst(&judgement))))
}

/// The exit status of a run that came to its end.
fn status(report: &Report, searched: bool, gates: Option<gate::Outcome>) -> i32 {
    let any = |of: &dyn Fn(&Verdict) -> bool| report.points.iter().any(|p| of(&p.verdict));
    // The points beyond the knee belong to the picture of a sweep.
    let overloaded = report.points.iter().all(|p| p.verdict.failed && p.verdict.word == "overloaded");
    match gates {
        Some(gate::Outcome::Fails) => WORSE,
        _ if report.points.is_empty() => FAILED,
        Some(gate::Outcome::Undecided) if searched => INVALID,
        // Of a search only what it found counts: it has tried rates that are too high.
        _ if searched && report.undecided => INVALID,
        _ if searched => {
            if report.capacity.is_some() {
                OK
            } else {
                WORSE
            }
        }
        _ if overloaded || any(&|v| v.failed && v.word == "error-bound") => FAILED,
        Some(gate::Outcome::Undecided) => INVALID,
        // Requests failed for want of something that this machine lacks: the server has not been asked.
        _ if any(&|v| v.failed && v.word != "overloaded" || v.word == "port-bound") => INVALID,
        Some(_) if any(&|v| !v.usable) => INVALID,
        _ => OK,
    }
}

/// Reads a report that `--json` wrote.
///
/// # Errors
/// A sentence with the file's name.
pub fn read_report(path: &Path) -> Result<Report, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}
