//! Errors of a request of the server's own HTTP client.

use observe::os_error;
use std::fmt;
use std::io;
use tls::TlsError;
use tls::verify::VerifyVerdict;
use transport::HandshakeError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStep {
    Connect,
    Handshake,
    Send,
    Receive,
}

/// See the module's documentation. The display form completes a line of the error log.
#[derive(Debug)]
pub enum ClientFailure {
    /// With the reason.
    Unresolved(String),
    TimedOut(ClientStep),
    Io(ClientStep, io::Error),
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

impl ClientFailure {
    /// Tells whether the server may have closed a kept connection before it read the request.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, ClientFailure::Closed | ClientFailure::Io(ClientStep::Send | ClientStep::Receive, _))
    }
}

impl fmt::Display for ClientFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientFailure::Unresolved(why) | ClientFailure::Tls(why) => f.write_str(why),
            ClientFailure::TimedOut(step) => f.write_str(match step {
                ClientStep::Connect => "connecting timed out",
                ClientStep::Handshake => "the SSL handshake timed out",
                ClientStep::Send => "sending timed out",
                ClientStep::Receive => "receiving timed out",
            }),
            ClientFailure::Io(step, e) => {
                let call = match step {
                    ClientStep::Connect => "connect",
                    ClientStep::Handshake => "SSL_do_handshake",
                    ClientStep::Send => "send",
                    ClientStep::Receive => "recv",
                };
                write!(f, "{call}() failed {}", os_error(e))
            }
            ClientFailure::Handshake(HandshakeError::Tls(TlsError::Verify(VerifyVerdict::HOST))) => {
                f.write_str("upstream SSL certificate does not match the host")
            }
            ClientFailure::Handshake(HandshakeError::Tls(TlsError::Verify(verdict))) => {
                write!(f, "upstream SSL certificate verify error: ({}:{})", verdict.0, verdict.reason())
            }
            ClientFailure::Handshake(why) => write!(f, "SSL_do_handshake() failed: {why}"),
            ClientFailure::Closed => f.write_str("the connection was closed before the response"),
            ClientFailure::Cut => f.write_str("the connection was closed within the body"),
            ClientFailure::Malformed => f.write_str("an invalid response"),
            ClientFailure::Framing(why) => f.write_str(why),
            ClientFailure::Excess => f.write_str("more than was announced"),
            ClientFailure::Interim => f.write_str("too many interim responses"),
            ClientFailure::TooLarge => f.write_str("a response that is too large"),
        }
    }
}

impl std::error::Error for ClientFailure {}

impl From<ClientFailure> for String {
    fn from(failure: ClientFailure) -> String {
        failure.to_string()
    }
}
