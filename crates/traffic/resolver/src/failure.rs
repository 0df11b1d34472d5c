//! Failed look-ups, with the words and numbers of nginx.

use crate::message;
use std::fmt;

/// In nginx's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveFailure {
    /// The server could not parse the question.
    Format,
    /// The server failed.
    Server,
    /// There is no such name, or it has no records of the type.
    NoSuchName,
    /// The server does not support the question.
    Unimplemented,
    /// The server refuses to answer.
    Refused,
    /// No server answered within the timeout.
    TimedOut,
    /// Too many names are waited for (`NAMES_MAX`).
    TooMany,
    /// Another code.
    Other,
}

impl ResolveFailure {
    /// Returns nginx's number of the error, for log lines: DNS's code, or 110 for a timeout.
    pub fn code(self) -> u32 {
        match self {
            ResolveFailure::Format => 1,
            ResolveFailure::Server => 2,
            ResolveFailure::NoSuchName => 3,
            ResolveFailure::Unimplemented => 4,
            ResolveFailure::Refused => 5,
            ResolveFailure::TimedOut => 110,
            ResolveFailure::TooMany | ResolveFailure::Other => 6,
        }
    }
    pub(crate) fn of(code: u8) -> ResolveFailure {
        match code {
            message::FORMAT_ERROR => ResolveFailure::Format,
            2 => ResolveFailure::Server,
            3 => ResolveFailure::NoSuchName,
            4 => ResolveFailure::Unimplemented,
            5 => ResolveFailure::Refused,
            _ => ResolveFailure::Other,
        }
    }
}

impl fmt::Display for ResolveFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResolveFailure::Format => "Format error",
            ResolveFailure::Server => "Server failure",
            ResolveFailure::NoSuchName => "Host not found",
            ResolveFailure::Unimplemented => "Unimplemented",
            ResolveFailure::Refused => "Operation refused",
            ResolveFailure::TimedOut => "Operation timed out",
            ResolveFailure::TooMany => "Too many names are being resolved",
            ResolveFailure::Other => "Unknown error",
        })
    }
}
