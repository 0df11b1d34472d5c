//! The load generator's engine and reports: the library behind `tidegate bench` and `tidegate lab`.
//!
//! [`engine`] makes load and measures it, over an interface of [`protocol`] cores; [`observe`] looks at the server's
//! processes; [`report`] says what came out and what to think of it; [`bench`] and [`lab`] are
//! the commands.

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

/// Runs `tidegate bench` with the arguments after the subcommand's name; prints, and returns the exit status.
pub fn bench_main(args: Vec<OsString>) -> i32 {
    bench::main(args)
}

/// Runs `tidegate top` with the arguments after the subcommand's name; prints, and returns the exit status.
pub fn top_main(args: Vec<OsString>) -> i32 {
    top::main(args)
}

/// Runs `tidegate lab` with the arguments after the subcommand's name; prints, and returns the exit status.
pub fn lab_main(args: Vec<OsString>) -> i32 {
    lab::main(args)
}
