//! Clock, copies, room in sockets, the standard output of commands, and the `bug!` macro, for all other crates. No protocols.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of `bug!` reports since the process started; tests assert that it stays 0.
pub static BUGS: AtomicU64 = AtomicU64::new(0);

/// Reporter of `bug!`; the server writes an `[alert]` line.
static REPORT: std::sync::OnceLock<fn(&str)> = std::sync::OnceLock::new();

pub fn on_bug(report: fn(&str)) {
    let _ = REPORT.set(report);
}

/// Counts and reports a violated assumption. Use the [`bug!`] macro.
#[cold]
pub fn report_bug(what: &str) {
    BUGS.fetch_add(1, Ordering::Relaxed);
    match REPORT.get() {
        Some(report) => report(what),
        None => eprintln!("bug: {what}"),
    }
}

/// Reports a violated assumption as `[alert]`, and counts it; the caller ends the request or connection. Panics under
/// `cfg(debug_assertions)`.
#[macro_export]
macro_rules! bug {
    ($($words:tt)*) => {{
        let what = format!("{}:{}: {}", file!(), line!(), format_args!($($words)*));
        $crate::report_bug(&what);
        if cfg!(debug_assertions) { panic!("{what}"); }
    }};
}

pub mod append;
pub mod clock;
pub mod room;
pub mod stdout;
