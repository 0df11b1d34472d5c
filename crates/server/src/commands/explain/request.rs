//! `tidegate explain URL`: prints the trace of a request, each step with the file and line that decided it.

use crate::conf;
use crate::explanation::{explain_to, parse_request, show};
use crate::{options, report};
use conf_schema::TextStore;
use conf_syntax::Disk;
use observe::LogFiles;
use std::ffi::OsString;

pub fn explain_request(arguments: &[OsString]) -> i32 {
    let asked = match parse_request(arguments) {
        Ok(asked) => asked,
        Err(words) => {
            eprintln!("tidegate: {words}\n  = \"tidegate explain --help\" lists the options");
            return 2;
        }
    };
    let invocation = match options::parse_place(&asked.rest) {
        Ok(invocation) => invocation,
        Err(words) => {
            eprintln!("tidegate: {words}\n  = \"tidegate explain --help\" lists the options");
            return 2;
        }
    };
    let reading = conf::read_config(&Disk, TextStore::default(), &invocation, LogFiles::default());
    let config = match &reading.config {
        Ok(config) => config,
        Err(failure) => {
            report::print_failure(failure, report::Style::new(true), None);
            return 2;
        }
    };
    let Some(plan) = &config.http else {
        eprintln!("tidegate: the configuration has no http block");
        return 1;
    };
    match explain_to(&asked, &invocation, plan, &Disk, None) {
        Ok(told) => {
            if asked.json {
                base::outln!("{:#}", show::trace_json(&told));
            } else {
                base::out!("{}", show::trace_text(&told));
            }
            0
        }
        Err(words) => {
            eprintln!("tidegate: {words}");
            1
        }
    }
}
