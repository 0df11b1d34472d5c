//! Bytes, sizes, limits, clock and the `bug!` macro: what every other crate may use.
//!
//! No I/O and no knowledge of any protocol lives here.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// How many times `bug!` fired since the process started; tests assert that it stays 0.
pub static BUGS: AtomicU64 = AtomicU64::new(0);

/// Where `bug!` reports go; the server sets it once to write an `[alert]` line.
static REPORT: std::sync::OnceLock<fn(&str)> = std::sync::OnceLock::new();

/// Sets the reporter that every later `bug!` calls. The first caller wins.
pub fn on_bug(report: fn(&str)) {
    let _ = REPORT.set(report);
}

/// Counts and reports a broken belief. Use the [`bug!`] macro.
#[cold]
pub fn report_bug(what: &str) {
    BUGS.fetch_add(1, Ordering::Relaxed);
    match REPORT.get() {
        Some(report) => report(what),
        None => eprintln!("bug: {what}"),
    }
}

/// A belief that does not hold: counted, logged as `[alert]`, and the caller ends that one request or connection. It
/// panics under `cfg(debug_assertions)`, so that tests and fuzzers see it.
#[macro_export]
macro_rules! bug {
    ($($words:tt)*) => {{
        let what = format!("{}:{}: {}", file!(), line!(), format_args!($($words)*));
        $crate::report_bug(&what);
        if cfg!(debug_assertions) { panic!("{what}"); }
    }};
}

pub mod clock;
