//! `tidegate reference`: the generated documents, which `cargo xtask docs` writes into docs/.

use crate::{conf, reference};
use std::ffi::OsString;

pub const HELP: &str = "\
Usage: tidegate reference [directives | compatibility | lint | metrics | json | man]

Prints the reference manual of the supported directives; the compatibility table of all nginx
directives (supported, differs, no effect, or refused); the checks of `tidegate lint`; or the list
of metrics. With json: all directives with their examples, and all variables, as one JSON object.
With man: the man page tidegate(8), for troff.

  tidegate reference man > /usr/local/share/man/man8/tidegate.8
";

pub fn run(arguments: &[OsString]) -> i32 {
    if arguments.len() > 1 {
        eprint!("{HELP}");
        return 1;
    }
    let schema = conf::schema();
    match arguments.first().and_then(|a| a.to_str()) {
        None | Some("directives") => base::out!("{}", reference::manual(&schema)),
        Some("compatibility") => base::out!("{}", reference::compatibility(&schema)),
        Some("lint") => base::out!("{}", advisor::lint::manual()),
        Some("metrics") => base::out!("{}", metrics::reference()),
        Some("man") => base::out!("{}", super::man::page()),
        Some("json") => base::outln!("{}", reference::json(&schema)),
        Some(other) => {
            eprintln!(
                "tidegate: unknown reference \"{other}\"; supported: directives, compatibility, lint, metrics, json, man"
            );
            return 1;
        }
    }
    0
}
