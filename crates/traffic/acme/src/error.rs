//! Reasons why an order fails.

use crate::agenda::FailureCause;
use crate::messages::{Problem, shown};
use http_client::ClientFailure;
use std::fmt;
use std::time::Duration;

/// See the module's documentation. The display form completes a line of the error log.
#[derive(Debug)]
pub enum Error {
    Http(ClientFailure),
    /// A status without a problem document, and its `Retry-After`.
    Status(u16, Option<Duration>),
    /// The server's refusal (RFC 7807), and its `Retry-After`.
    Refused {
        problem: Problem,
        after: Option<Duration>,
    },
    /// The server breaks the protocol.
    Protocol(String),
    /// The server wants an external account binding, and the configuration has none.
    ExternalAccount,
    /// The account is not `valid`.
    Account(String),
    /// The server does not have the required profile.
    Profile(String),
    /// The server does not offer the challenge for an identifier.
    Challenge(String),
    /// An authorization ended without success, with its reason.
    Authorization(String),
    /// The order ended without success.
    Order(String),
    /// A step of the server took too long.
    TimedOut(&'static str),
    /// A key or a request could not be made.
    Local(String),
}

impl Error {
    /// Tells whether the server does not know the account's URL, which must be requested again.
    pub fn is_unknown_account(&self) -> bool {
        matches!(self, Error::Refused { problem, .. } if problem.is("accountDoesNotExist"))
    }
    /// Tells which pause a failed order deserves: of the certificate, of the server, or by its rate limits.
    pub fn cause(&self) -> FailureCause {
        match self {
            Error::Http(_)
            | Error::Status(500.., _)
            | Error::ExternalAccount
            | Error::Account(_)
            | Error::Profile(_) => FailureCause::Issuer,
            Error::Refused { problem, .. } if problem.is("rateLimited") => FailureCause::Limits,
            Error::Refused { problem, .. } if problem.is("serverInternal") || problem.is("accountDoesNotExist") => {
                FailureCause::Issuer
            }
            _ => FailureCause::Task,
        }
    }
    /// Returns the delay that the server requests.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Refused { after, .. } | Error::Status(_, after) => *after,
            _ => None,
        }
    }
    /// Tells whether another try may succeed soon: the network failed, or the server for reasons of its own.
    pub fn is_temporary(&self) -> bool {
        match self {
            Error::Http(_) | Error::Status(429 | 500.., _) | Error::TimedOut(_) => true,
            Error::Refused { problem, .. } => problem.is("rateLimited") || problem.is("serverInternal"),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Http(failure) => failure.fmt(f),
            Error::Status(status, after) => {
                write!(f, "unexpected status {status}")?;
                after.map_or(Ok(()), |after| write!(f, ", retry after {} s", after.as_secs()))
            }
            Error::Refused { problem, after } => {
                problem.fmt(f)?;
                after.map_or(Ok(()), |after| write!(f, ", retry after {} s", after.as_secs()))
            }
            Error::Protocol(why) | Error::Local(why) => f.write_str(&shown(why)),
            Error::ExternalAccount => f.write_str("external account key required"),
            Error::Account(status) => write!(f, "unexpected account status \"{}\"", shown(status)),
            Error::Profile(name) => write!(f, "profile \"{name}\" is not supported by the server"),
            Error::Challenge(name) => write!(f, "no supported challenge for \"{name}\""),
            Error::Authorization(why) | Error::Order(why) => f.write_str(&shown(why)),
            Error::TimedOut(what) => write!(f, "{what} timed out"),
        }
    }
}

impl std::error::Error for Error {}

impl From<ClientFailure> for Error {
    fn from(failure: ClientFailure) -> Error {
        Error::Http(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_servers_stay_one_line() {
        let problem = Problem { kind: "a\nb".into(), detail: "c\r\nd".into(), subproblems: Vec::new() };
        for error in [
            Error::Refused { problem: problem.clone(), after: None },
            Error::Account("a\nb".into()),
            Error::Order(problem.to_string()),
            Error::Authorization("x\ny".repeat(1000)),
        ] {
            let text = error.to_string();
            assert!(!text.chars().any(char::is_control) && text.len() < 2000, "{text:?}");
        }
    }
}
