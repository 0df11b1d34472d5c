//! Counts and times of a request, for logs and metrics.

use super::Request;
use base::clock::Instant;

/// Counts a request's final cache status, and the bytes sent with it, when dropped.
pub struct CacheCount {
    /// The cache's zone of metrics.
    pub zone: metrics::MetricZone<metrics::cache::Of>,
    /// `$upstream_cache_status`; empty: none yet.
    pub status: &'static str,
    /// Bytes sent to the client.
    pub sent: u64,
}

impl Drop for CacheCount {
    fn drop(&mut self) {
        if let Some(status) = metrics::cache_status(self.status) {
            self.zone.up_at(metrics::cache::RESPONSES, status);
            self.zone.add_at(metrics::cache::SENT, status, self.sent);
            metrics::process::CACHE_RESPONSES.up_at(status);
        }
    }
}

/// Counts, sizes and times of a request, for log lines and metrics.
#[derive(Default)]
pub struct RequestAccount {
    /// Arrival of the head's first byte, from which `$request_time` counts.
    pub started: Instant,
    /// `$request_id`, made on its first use.
    pub id: Option<[u8; 16]>,
    /// In total (`$bytes_sent`), and of the body.
    pub bytes_sent: u64,
    /// Bytes of the body sent to the client.
    pub body_bytes_sent: u64,
    /// Bytes of the response head; 0 until one was written.
    pub header_size: u64,
    /// `$request_completion`: the response was sent completely.
    pub completed: bool,
    /// Bytes received from the client and from the server after the switch to a tunnel.
    pub tunnelled: (u64, u64),
    /// Run by a task that counts the request as writing.
    pub counted: bool,
    /// Counted as begun and not as ended; not yet logged (`counting.rs`).
    pub(crate) owes_count: bool,
    pub(crate) owes_line: bool,
    /// Counted as processed in the zone of its server.
    pub(crate) in_server: bool,
    /// Counts the result of a cache lookup at the end.
    pub cached: Option<CacheCount>,
    /// Last action, for later log messages (nginx: `log->action`).
    pub action: Option<&'static str>,
    /// Returns the URL of the last server, for later log messages.
    pub asked: Option<fn(&Request) -> Option<String>>,
}

impl RequestAccount {
    pub(super) fn reset(&mut self) {
        *self = RequestAccount::default();
    }
}
