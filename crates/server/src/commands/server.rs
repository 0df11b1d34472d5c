//! The program without a subcommand: serves, tests (`-t`), or signals a running server (`-s`).

use crate::conf::{self, CorePlan, Invocation};
use crate::options::{ServerOptions, parse_options};
use crate::process::start::{self, Task};
use crate::process::{pidfile, upgrade_command};
use crate::{commands, messages, report, say, version};
use conf_schema::TextStore;
use conf_syntax::Disk;
use observe::LogFiles;
use std::ffi::OsString;

/// Returns the exit code.
pub fn main(arguments: &[OsString]) -> i32 {
    let options = match parse_options(&arguments[1.min(arguments.len())..]) {
        Ok(options) => options,
        Err(words) => {
            eprintln!("{}: {words}", messages::program_name());
            return 1;
        }
    };
    let told = match &options {
        ServerOptions { help: true, .. } => version::short_version() + &commands::help_overview(),
        ServerOptions { configure: true, .. } => version::long_version(&conf::full_schema()),
        ServerOptions { version: true, .. } => version::short_version(),
        _ => String::new(),
    };
    if options.long && !options.test {
        base::out!("{told}");
    } else {
        eprint!("{told}");
    }
    if (options.help || options.version) && !options.test {
        return 0;
    }
    let invocation = options.invocation();
    // As in nginx, a test sends no signal.
    if let Some(signal) = options.signal.as_ref().filter(|_| !options.test) {
        return send(&invocation, signal);
    }
    if options.plan {
        return commands::plan::print_plan(&invocation);
    }
    if arguments.len() <= 1 && !invocation.conf_file.exists() {
        return without_configuration(&invocation);
    }
    let task = if options.test {
        Task::Test { quiet: options.quiet, dump: options.dump, explain: options.explain }
    } else {
        Task::Serve
    };
    start::start_process(invocation, task, arguments, options.control_api.as_deref())
}

/// Explains how to start, if the program was started without arguments on a machine without a configuration.
fn without_configuration(invocation: &Invocation) -> i32 {
    eprintln!(
        "{}: there is no configuration: \"{}\" does not exist",
        messages::program_name(),
        invocation.conf_file.display()
    );
    eprintln!();
    eprintln!("  tidegate serve [DIR]   serves a directory on the loopback interface, without a configuration");
    eprintln!("  tidegate -c FILE       runs an nginx configuration");
    eprintln!();
    eprint!("{}", commands::help_overview());
    1
}

/// `-s` reads the configuration only for its `pid`, and `-s upgrade` also for `master_process`.
fn send(invocation: &Invocation, signal: &str) -> i32 {
    if let Some(words) = start::open_first_log(invocation, false) {
        eprintln!("{}: {words}", messages::program_name());
    }
    let reading = conf::read_config(&Disk, TextStore::default(), invocation, LogFiles::default());
    let style = report::Style::new(false);
    report::print_warnings(&reading, style);
    match reading.config {
        Ok(config) => {
            say!(Notice, "signal process started");
            if signal == "upgrade" {
                return upgrade(&config.core);
            }
            pidfile::signal_command(&config.core.pid, signal)
        }
        Err(failure) => {
            report::print_failure(&failure, style, None);
            1
        }
    }
}

fn upgrade(core: &CorePlan) -> i32 {
    match upgrade_command::upgrade_server(&core.pid, core.master_process) {
        Ok(words) => {
            eprintln!("{}: {words}", messages::program_name());
            0
        }
        Err(reason) => {
            if let Some(words) = reason {
                say!(Emerg, "upgrade: {words}");
            }
            1
        }
    }
}
