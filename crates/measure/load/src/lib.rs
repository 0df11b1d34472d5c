//! The load generator: library behind `tidegate bench`, `tidegate lab` and `tidegate top`.
//! [`engine`] generates and measures load over [`protocol`] cores; [`observe`] watches the server's processes;
//! [`report`] judges and presents results; [`bench`] and [`lab`] are the commands.

#![forbid(unsafe_code)]

pub mod bench;
pub mod engine;
pub mod interrupt;
pub mod lab;
pub mod observe;
pub mod protocol;
pub mod report;
pub mod top;

use clap::CommandFactory;
use std::ffi::OsString;

/// Runs `tidegate bench`; returns the exit status.
pub fn bench_main(args: Vec<OsString>) -> i32 {
    bench::main(args)
}

/// Returns the help texts of `tidegate bench` and its subcommands, by name.
pub fn bench_help() -> Vec<(&'static str, String)> {
    vec![
        ("bench", help(bench::cli::Options::command())),
        ("bench compare", help(bench::compare::compare_command())),
        ("bench import", help(bench::import::import_command())),
        ("bench worker", help(bench::worker::worker_command())),
    ]
}

/// Returns the help text of `tidegate lab`, with its name.
pub fn lab_help() -> Vec<(&'static str, String)> {
    vec![("lab", help(lab::LabOptions::command()))]
}

/// Returns the help text of `tidegate top`, with its name.
pub fn top_help() -> Vec<(&'static str, String)> {
    vec![("top", help(top::TopOptions::command()))]
}

/// Prints the help or the error of a command line; returns the exit status.
pub(crate) fn print_usage(error: &clap::Error) -> i32 {
    use std::io::Write as _;
    let printed = error.print();
    if error.use_stderr() {
        return bench::USAGE;
    }
    if let Err(error) = printed.and_then(|()| std::io::stdout().flush()) {
        base::stdout::end(&error);
    }
    bench::OK
}

fn help(mut command: clap::Command) -> String {
    command.render_help().to_string()
}

/// Runs `tidegate top`; returns the exit status.
pub fn top_main(args: Vec<OsString>) -> i32 {
    top::main(args)
}

/// Runs `tidegate lab`; returns the exit status.
pub fn lab_main(args: Vec<OsString>) -> i32 {
    lab::main(args)
}
