//! Errors of a request of the server's own HTTP client.

use observe::os;
use std::fmt;
use std::io;
use tls::TlsError;
use tls::verify::Verdict;
use upstream::HandshakeError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Connect,
    Handshake,
    Send,
    Receive,
}

/// See the module's documentation. The display form completes a line of the error log.
#[derive(Debug)]
pub enum Failure {
    /// With the reason.
    Unresolved(String),
    TimedOut(Step),
    Io(Step, io::Error),
    /// The TLS rules exclude a connection.
    Tls(String),
    Handshake(HandshakeError),
    /// The connection ended before the end of the head.
    Closed,
    /// The connection ended within the body.
    Cut,
    Malformed,
    /// The framing of the body is invalid.
    Framing(&'static str),
    Excess,
    /// The limit of interim responses is exceeded.
    Interim,
    /// The body exceeds its limit.
    TooLarge,
}

impl Failure {
    /// Tells whether the server may have closed a kept connection before it read the request.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Failure::Closed | Failure::Io(Step::Send | Step::Receive, _))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unresolved(why) | Failure::Tls(why) => f.write_str(why),
            Failure::TimedOut(step) => f.write_str(match step {
                Step::Connect => "connecting timed out",
                Step::Handshake => "the SSL handshake timed out",
                Step::Send => "sending timed out",
                Step::Receive => "receiving timed out",
            }),
            Failure::Io(step, e) => {
                let call = match step {
                    Step::Connect => "connect",
                    Step::Handshake => "SSL_do_handshake",
                    Step::Send => "send",
                    Step::Receive => "recv",
                };
                write!(f, "{call}() failed {}", os(e))
            }
            Failure::Handshake(HandshakeError::Tls(TlsError::Verify(Verdict::HOST))) => {
                f.write_str("upstream SSL certificate does not match the host")
            }
            Failure::Handshake(HandshakeError::Tls(TlsError::Verify(verdict))) => {
                write!(f, "upstream SSL certificate verify error: ({}:{})", verdict.0, verdict.reason())
            }
            Failure::Handshake(why) => write!(f, "SSL_do_handshake() failed: {why}"),
            Failure::Closed => f.write_str("the connection was closed before the response"),
            Failure::Cut => f.write_str("the connection was closed within the body"),
            Failure::Malformed => f.write_str("an invalid response"),
            Failure::Framing(why) => f.write_str(why),
            Failure::Excess => f.write_str("more than was announced"),
            Failure::Interim => f.write_str("too many interim responses"),
            Failure::TooLarge => f.write_str("a response that is too large"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for String {
    fn from(failure: Failure) -> String {
        failure.to_string()
    }
}
