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

pub fn run_reference(arguments: &[OsString]) -> i32 {
    if arguments.len() > 1 {
        eprint!("{HELP}");
        return 1;
    }
    let schema = conf::full_schema();
    match arguments.first().and_then(|a| a.to_str()) {
        None | Some("directives") => base::out!("{}", reference::directive_manual(&schema)),
        Some("compatibility") => base::out!("{}", reference::compatibility_table(&schema)),
        Some("lint") => base::out!("{}", advisor::lint::checks_manual()),
        Some("metrics") => base::out!("{}", metrics::metrics_reference()),
        Some("man") => base::out!("{}", super::man::man_page()),
        Some("json") => base::outln!("{}", reference::reference_json(&schema)),
        Some(other) => {
            eprintln!(
                "tidegate: unknown reference \"{other}\"; supported: directives, compatibility, lint, metrics, json, man"
            );
            return 1;
        }
    }
    0
}
