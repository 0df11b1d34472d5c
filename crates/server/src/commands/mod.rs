//! Subcommands, which nginx's command line does not have.

mod certificates;
mod completions;
mod convert;
mod diff;
mod doctor;
mod explain;
mod flags;
mod lint;
mod man;
mod plan;
mod reference;
mod serve;
pub mod server;
mod waf;

use conf_schema::suggest::nearest_word;
use std::ffi::OsString;

struct ServerCommand {
    name: &'static str,
    summary: &'static str,
    help: Help,
    run: fn(&[OsString]) -> i32,
}

/// Source of the `--help` text.
enum Help {
    Text(&'static str),
    /// The command reads `--help` itself. Returns the texts of the command and its subcommands (`plan cost`), by name.
    Own(fn() -> Vec<(&'static str, String)>),
}

/// In the order of the overview.
const COMMANDS: &[ServerCommand] = &[
    ServerCommand {
        name: "serve",
        summary: "serve a directory on the loopback interface, without a configuration",
        help: Help::Text(serve::HELP),
        run: serve::run_serve,
    },
    ServerCommand {
        name: "explain",
        summary: "document a directive, or trace a request through the configuration",
        help: Help::Text(explain::HELP),
        run: explain::run_explain,
    },
    ServerCommand {
        name: "lint",
        summary: "report common mistakes in a configuration, each with a fix",
        help: Help::Text(lint::HELP),
        run: lint::run_lint,
    },
    ServerCommand {
        name: "diff",
        summary: "compare the effects of two configurations",
        help: Help::Text(diff::HELP),
        run: diff::run_diff,
    },
    ServerCommand {
        name: "convert",
        summary: "translate Apache virtual hosts, .htaccess files and Ingresses",
        help: Help::Text(convert::HELP),
        run: convert::run_convert,
    },
    ServerCommand {
        name: "waf",
        summary: "set up rules of the web application firewall, and report its audit log",
        help: Help::Text(waf::HELP),
        run: waf::run_waf,
    },
    ServerCommand {
        name: "certificates",
        summary: "list certificates with their expiry dates, and renew those from ACME",
        help: Help::Text(certificates::HELP),
        run: certificates::run_certificates,
    },
    ServerCommand {
        name: "doctor",
        summary: "compare the limits of this machine with the needs of the configuration",
        help: Help::Text(doctor::HELP),
        run: doctor::run_doctor,
    },
    ServerCommand {
        name: "bench",
        summary: "generate HTTP load and measure a server",
        help: Help::Own(load::bench_help),
        run: |arguments| load::bench_main(arguments.to_vec()),
    },
    ServerCommand {
        name: "lab",
        summary: "run experiments with several servers, loads and plots",
        help: Help::Own(load::lab_help),
        run: |arguments| load::lab_main(arguments.to_vec()),
    },
    ServerCommand {
        name: "top",
        summary: "monitor a running server: requests, latency, connections, CPU time",
        help: Help::Own(load::top_help),
        run: |arguments| load::top_main(arguments.to_vec()),
    },
    ServerCommand {
        name: "plan",
        summary: "compute machines and costs for a load",
        help: Help::Own(planner::plan_help),
        run: |arguments| planner::plan_main(arguments.to_vec()),
    },
    ServerCommand {
        name: "completions",
        summary: "print shell completions for bash, zsh and fish",
        help: Help::Text(completions::HELP),
        run: completions::run_completions,
    },
    ServerCommand {
        name: "reference",
        summary: "print the manual as Markdown, JSON or a man page",
        help: Help::Text(reference::HELP),
        run: reference::run_reference,
    },
];

pub fn main(name: &str, arguments: &[OsString]) -> i32 {
    if name == "help" {
        let Some(topic) = arguments.first().and_then(|a| a.to_str()) else {
            base::out!("{}", help_overview());
            return 0;
        };
        return help(topic, &arguments[1..]);
    }
    let Some(command) = COMMANDS.iter().find(|c| c.name == name) else {
        return unknown(name);
    };
    let asks_for_help = arguments.iter().any(|a| a == "--help" || a == "-h" || a == "-?");
    if asks_for_help && matches!(command.help, Help::Text(_)) {
        return help(name, &[]);
    }
    (command.run)(arguments)
}

/// `rest`: names of a subcommand.
fn help(name: &str, rest: &[OsString]) -> i32 {
    match COMMANDS.iter().find(|c| c.name == name) {
        Some(ServerCommand { help: Help::Text(text), .. }) => {
            base::out!("{text}");
            0
        }
        Some(command) => (command.run)(&[rest, &["--help".into()]].concat()),
        None => unknown(name),
    }
}

/// Returns the help texts of a command and of its subcommands, by name.
fn texts(command: &ServerCommand) -> Vec<(String, String)> {
    match command.help {
        Help::Text(text) => vec![(command.name.into(), text.into())],
        Help::Own(texts) => texts().into_iter().map(|(name, text)| (name.to_string(), text)).collect(),
    }
}

fn unknown(name: &str) -> i32 {
    eprintln!("tidegate: unknown command \"{name}\"");
    match nearest_word(name, COMMANDS.iter().map(|c| c.name)) {
        Some(near) => eprintln!("  = did you mean \"{near}\"?"),
        None => eprintln!("  = \"tidegate help\" lists the commands; options begin with \"-\""),
    }
    1
}

/// `-h`
pub fn help_overview() -> String {
    let defaults = crate::conf::paths::default_paths(None);
    let mut out = format!(
        "Usage: tidegate [-?hvVtTq] [-s signal] [-p prefix]
                [-e filename] [-c filename] [-g directives]
                [-l address]
       tidegate COMMAND [...]

Options, as in nginx:
  -?,-h         : this help
  -v            : show version and exit
  -V            : show version and configure options then exit
  -t            : test configuration and exit
  -T            : test configuration, dump it and exit
  -q            : suppress non-error messages during configuration testing
  -s signal     : send signal to a master process: stop, quit, reopen, reload;
                  or upgrade: replace the running binary (Tidegate's own)
  -p prefix     : set prefix path (default: {})
  -e filename   : set error log file (default: {})
  -c filename   : set configuration file (default: {})
  -g directives : set global directives out of configuration file
  -l address    : serve the control API on unix:PATH or [ADDRESS:]PORT

Tidegate's own options:
  --explain     : like -t, and print every error with its line and a suggestion
  --plan        : print the effective configuration, every value with its file and line

",
        defaults.prefix.display(),
        defaults.error_log.display(),
        defaults.conf_file.display(),
    );
    if !COMMANDS.is_empty() {
        out.push_str("Commands (each has --help):\n");
        for command in COMMANDS {
            out.push_str(&format!("  {:<13} : {}\n", command.name, command.summary));
        }
    }
    out
}
