//! `tidegate reference`: the generated documents, which `cargo xtask docs` writes into docs/.

use crate::{conf, reference};
use std::ffi::OsString;

pub const HELP: &str = "\
Usage: tidegate reference [directives | compatibility | lint | metrics]

Prints the reference manual of the supported directives; the compatibility table of all nginx
directives (supported, differs, no effect, or refused); the checks of `tidegate lint`; or the list
of metrics.
";

pub fn run(arguments: &[OsString]) -> i32 {
    let schema = conf::schema();
    match arguments.first().and_then(|a| a.to_str()) {
        None | Some("directives") => print!("{}", reference::manual(&schema)),
        Some("compatibility") => print!("{}", reference::compatibility(&schema)),
        Some("lint") => print!("{}", advisor::lint::manual()),
        Some("metrics") => print!("{}", metrics::reference()),
        Some(other) => {
            eprintln!(
                "tidegate: there is no reference \"{other}\"; there are directives, compatibility, lint and metrics"
            );
            return 1;
        }
    }
    0
}
