//! The load generator: library behind `tidegate bench`, `tidegate lab` and `tidegate top`.
//! [`engine`] generates and measures load over [`protocol`] cores; [`observe`] watches the server's processes;
//! [`report`] judges and presents results; [`bench`] and [`lab`] are the commands.

#![forbid(unsafe_code)]

pub mod bench;
pub mod engine;
pub mod interrupt;
pub mod lab;
pub mod observe;
pub mod protocol;
pub mod report;
pub mod top;

use std::ffi::OsString;

/// Runs `tidegate bench`; returns the exit status.
pub fn bench_main(args: Vec<OsString>) -> i32 {
    bench::main(args)
}

/// Runs `tidegate top`; returns the exit status.
pub fn top_main(args: Vec<OsString>) -> i32 {
    top::main(args)
}

/// Runs `tidegate lab`; returns the exit status.
pub fn lab_main(args: Vec<OsString>) -> i32 {
    lab::main(args)
}
