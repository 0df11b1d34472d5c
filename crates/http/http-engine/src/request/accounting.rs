//! Counts and times of a request, for logs and metrics.

use super::Request;
use base::clock::Instant;

#[derive(Default)]
pub struct Accounting {
    pub started: Instant,
    pub id: Option<[u8; 16]>,
    /// Bytes sent to the client: in total (`$bytes_sent`), and of the body.
    pub bytes_sent: u64,
    pub body_bytes_sent: u64,
    pub header_size: u64,
    pub completed: bool,
    /// Bytes received from and sent to the client after the switch to a tunnel.
    pub tunnelled: (u64, u64),
    /// Run by a task that counts the request as writing.
    pub counted: bool,
    /// Counted as begun and not as ended; not yet logged (`counting.rs`).
    pub(crate) owes_count: bool,
    pub(crate) owes_line: bool,
    /// Last action, for later log messages (nginx: `log->action`).
    pub action: Option<&'static str>,
    /// Returns the URL of the last server, for later log messages.
    pub asked: Option<fn(&Request) -> Option<String>>,
}

impl Accounting {
    pub(super) fn reset(&mut self) {
        *self = Accounting::default();
    }
}
