//! `-t --plan`: prints the effective configuration.

use crate::conf::effective::plan_text;
use crate::conf::{self, Invocation};
use crate::report;
use conf_schema::TextStore;
use conf_syntax::Disk;
use observe::LogFiles;

/// Returns the exit code.
pub fn print_plan(invocation: &Invocation) -> i32 {
    let reading = conf::read_config(&Disk, TextStore::default(), invocation, LogFiles::default());
    let style = report::Style::new(true);
    report::print_warnings(&reading, style);
    if let Err(failure) = reading.config {
        report::print_failure(&failure, style, None);
        return 1;
    }
    match conf::load_config(&Disk, invocation) {
        Ok((files, items)) => {
            base::out!("{}", plan_text(&conf::full_schema(), &files, &items));
            0
        }
        Err(e) => {
            eprintln!("tidegate: {} {}", invocation.conf_file.display(), observe::os_error(&e));
            1
        }
    }
}
