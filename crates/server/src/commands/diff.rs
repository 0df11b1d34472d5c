//! `tidegate diff OLD NEW`: compares the effects of two configurations.

use crate::conf::{self, Invocation};
use crate::options;
use crate::report;
use advisor::diff;
use advisor::scope::Scopes;
use conf_schema::TextStore;
use conf_syntax::{Disk, SourceFiles, TreeItem};
use observe::LogFiles;
use std::ffi::OsString;
use std::io::IsTerminal;

pub const HELP: &str = "\
Usage: tidegate diff OLD NEW [-p PREFIX] [-g DIRECTIVES] [--json]

Compares the effects of two configurations: servers with addresses and names, locations, and every
effective directive after inheritance and defaults. Ignores notation: white space, comments, quotes,
includes, and the order of blocks where it has no effect. Reports a change that inner blocks inherit
once, at its origin.

  tidegate diff /etc/nginx/nginx.conf new/nginx.conf
  git show HEAD~:nginx.conf > /tmp/old.conf && tidegate diff /tmp/old.conf nginx.conf
  tidegate diff old.conf new.conf --json

  -p, -g   as for the server, for both configurations
  --json   print one JSON object: {\"same\": ..., \"changes\": [...]}

Exit code: 0 without differences, 1 with differences, 2 if a configuration cannot be read.
";

pub fn run_diff(arguments: &[OsString]) -> i32 {
    let json = arguments.iter().any(|a| a == "--json");
    let (mut files, mut rest) = (Vec::new(), Vec::new());
    let mut arguments = arguments.iter().filter(|a| *a != "--json");
    while let Some(argument) = arguments.next() {
        if argument == "-p" || argument == "-g" {
            rest.extend([argument.clone()].into_iter().chain(arguments.next().cloned()));
        } else if argument.to_string_lossy().starts_with('-') {
            rest.push(argument.clone());
        } else {
            files.push(argument.clone());
        }
    }
    let [old, new] = files.as_slice() else {
        let n = files.len();
        eprintln!("tidegate: two configurations are needed, {n} given\n  = \"tidegate diff --help\" lists the options");
        return 2;
    };
    let mut read = Vec::new();
    for file in [old, new] {
        // Resolves relative paths against the current directory, unlike `-c`.
        let path = std::path::absolute(file).unwrap_or_else(|_| file.into());
        let words: Vec<OsString> = rest.iter().cloned().chain(["-c".into(), path.into()]).collect();
        let invocation = match options::parse_place(&words) {
            Ok(invocation) => invocation,
            Err(words) => {
                eprintln!("tidegate: {words}\n  = \"tidegate diff --help\" lists the options");
                return 2;
            }
        };
        match load(&invocation) {
            Some(loaded) => read.push(loaded),
            None => return 2,
        }
    }
    let [(old_files, old_items), (new_files, new_items)] = read.as_slice() else { return 2 };
    let schema = conf::full_schema();
    let (old, new) = (Scopes::new(&schema, old_files, old_items), Scopes::new(&schema, new_files, new_items));
    let changes = diff::diff_scopes(&old, &new);
    if json {
        base::outln!("{:#}", diff::changes_json(&changes));
    } else {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        base::out!("{}", diff::changes_text(&changes, colour));
    }
    i32::from(!changes.is_empty())
}

/// Reads a configuration without its certificates and hosts, which may be on another machine.
fn load(invocation: &Invocation) -> Option<(SourceFiles, Vec<TreeItem>)> {
    if let Ok((files, items)) = conf::load_config(&Disk, invocation)
        && conf::is_well_formed(invocation, &files, &items)
    {
        return Some((files, items));
    }
    let reading = conf::read_config(&Disk, TextStore::default(), invocation, LogFiles::default());
    if let Err(failure) = &reading.config {
        report::print_failure(failure, report::Style::new(true), None);
    }
    None
}
