//! The program: command line, configuration, master and worker processes, signals, reload, upgrade.
//!
//! Without a subcommand it takes nginx's options (`options.rs`, `commands/server.rs`); `commands/` contains the subcommands.
//! The modules depend on each other in one direction: `messages`, `conf`, then `confinement`, `keys` and `explanation`,
//! `generations`, `process`, `commands`.

#![forbid(unsafe_code)]

mod codec;
mod commands;
pub mod conf;
mod confinement;
mod explanation;
pub mod fuzzing;
mod generations;
mod http_registry;
mod keys;
mod machine_limits;
mod messages;
pub mod options;
pub mod process;
pub mod reference;
mod report;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program. `arguments` begin with its name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    net::title::prepare();
    messages::started_as(arguments.first().map_or("tidegate".as_ref(), |name| name.as_os_str()));
    let first = arguments.get(1).and_then(|a| a.to_str()).unwrap_or("-");
    let code = if first.starts_with('-') {
        commands::server::main(&arguments)
    } else {
        commands::main(first, &arguments[2..])
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
