//! The error log: levels, targets, lines.

use std::fmt;

/// Severity, most severe first (nginx: `NGX_LOG_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    Stderr = 0,
    Emerg,
    Alert,
    Crit,
    Error,
    Warn,
    Notice,
    Info,
    Debug,
}

/// Where the messages of a part of the configuration go; several targets, each with its level.
#[derive(Debug, Default)]
pub struct ErrorLog {}

impl ErrorLog {
    /// Whether any target wants messages of this level: ask before building an expensive message.
    #[inline]
    pub fn wants(&self, level: Level) -> bool {
        let _ = level;
        false
    }
    /// Writes one line; `connection` is printed as `*N` unless it is 0.
    pub fn log(&self, level: Level, connection: u64, words: fmt::Arguments<'_>) {
        let _ = (level, connection, words);
    }
}
