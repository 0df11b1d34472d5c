//! `tidegate bench`: one load, a sweep, or a search for the highest rate, as a command.

pub mod cli;
pub mod execute;
pub mod find;
pub mod gate;
pub mod live;
pub mod plan;
pub mod presets;
pub mod replay;
pub mod requests;
pub mod wire;
pub mod worker;

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::report::model::{Report, Verdict};

/// The run was made and is valid; all requirements hold.
pub const OK: i32 = 0;
/// A requirement does not hold, or the figures are worse than the baseline's.
pub const WORSE: i32 = 1;
/// The command line makes no sense.
pub const USAGE: i32 = 2;
/// The run was made, but cannot decide: client-bound, port-bound, not repeatable, too noisy. Try again.
pub const INVALID: i32 = 3;
/// The run failed: nobody answered, more than one request in a hundred failed, a file could not be used.
pub const FAILED: i32 = 4;

/// Runs `tidegate bench` with the arguments after the subcommand's name; returns the exit status.
pub fn main(args: Vec<OsString>) -> i32 {
    let first = args.first().and_then(|a| a.to_str()).unwrap_or("");
    if first == "worker" {
        return worker::main(args[1..].to_vec());
    }
    let args = match presets::find(first) {
        None => args,
        Some(preset) => {
            let rest: Option<Vec<String>> = args[1..].iter().map(|a| a.to_str().map(String::from)).collect();
            match rest.ok_or("an argument is not UTF-8".to_string()).and_then(|rest| preset(&rest)) {
                Ok(translated) => {
                    eprintln!("= tidegate bench {}", translated.join(" "));
                    translated.into_iter().map(OsString::from).collect()
                }
                Err(message) => {
                    eprintln!("tidegate bench {first}: {message}");
                    return USAGE;
                }
            }
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
    let words: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let done = execute::report(&plan, &words).and_then(|report| finish(&options, &plan, &report));
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
        let mut request = request.clone();
        request.headers = job.headers.iter().cloned().chain(request.headers).collect();
        let target = &job.target;
        match crate::lab::probe::ask(target.address, &target.authority(), target.tls.as_ref(), &request) {
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

/// Prints, writes the files, and decides the exit status.
fn finish(options: &cli::Options, plan: &plan::Plan, report: &Report) -> Result<i32, String> {
    if !options.quiet {
        print!("{}", crate::report::text::summary(report));
    }
    let write = |path: &Option<std::path::PathBuf>, content: &dyn Fn() -> String| match path {
        Some(path) => fs::write(path, content()).map_err(|e| format!("{}: {e}", path.display())),
        None => Ok(()),
    };
    write(&options.json, &|| serde_json::to_string(report).unwrap_or_default() + "\n")?;
    write(&options.csv, &|| crate::report::csv::table(report).csv())?;
    write(&options.html, &|| crate::report::html::page(report))?;

    let mut judgement = gate::requirements(&plan.requirements, report);
    if let Some(path) = &options.baseline {
        judgement.extend(gate::baseline(&read_report(path)?, report, options.by));
    }
    for j in &judgement {
        println!("{}", j.sentence());
    }
    let gated = !judgement.is_empty();
    let any = |of: fn(&Verdict) -> bool| report.points.iter().any(|p| of(&p.verdict));
    Ok(match gate::worst(&judgement) {
        Some(gate::Outcome::Fails) => WORSE,
        Some(gate::Outcome::Undecided) => INVALID,
        _ if any(|v| v.failed && v.word == "error-bound") || report.points.is_empty() => FAILED,
        // Requests failed for want of something that this machine lacks: the server has not been asked.
        _ if any(|v| v.failed || v.word == "port-bound") || gated && any(|v| !v.usable) => INVALID,
        _ => OK,
    })
}

/// Reads a report that `--json` wrote.
///
/// # Errors
/// A sentence with the file's name.
pub fn read_report(path: &Path) -> Result<Report, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}
