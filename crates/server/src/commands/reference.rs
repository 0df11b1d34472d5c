//! `tidegate reference`: the generated documents, which `cargo xtask docs` writes into docs/.

use crate::{conf, reference};
use std::ffi::OsString;

pub const HELP: &str = "\
Usage: tidegate reference [directives | compatibility | lint | metrics]

Prints the reference manual of every supported directive, or the table that says of each of
nginx's directives whether it is supported, differs, has no effect or is refused, what
`tidegate lint` finds, or what `metrics` tells.
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
