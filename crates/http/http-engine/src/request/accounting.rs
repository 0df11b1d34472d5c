//! Counts and times of a request, for logs and metrics.

use super::Request;
use base::clock::Instant;

/// Counts a request's final cache status, and the bytes sent with it, when dropped.
pub struct CacheCount {
    /// The cache's zone of metrics.
    pub(crate) zone: metrics::MetricZone<metrics::cache::Of>,
    /// `$upstream_cache_status`; empty: none yet.
    pub(crate) status: &'static str,
    /// Bytes sent to the client.
    pub(crate) sent: u64,
}

impl CacheCount {
    /// Returns a count for a cache's zone of metrics; an empty status counts nothing.
    pub fn new(zone: metrics::MetricZone<metrics::cache::Of>, status: &'static str) -> CacheCount {
        CacheCount { zone, status, sent: 0 }
    }
    /// Sets `$upstream_cache_status`.
    pub fn set_status(&mut self, status: &'static str) {
        self.status = status;
    }
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
    pub(crate) started: Instant,
    /// `$request_id`, made on its first use.
    pub(crate) id: Option<[u8; 16]>,
    /// In total (`$bytes_sent`), and of the body.
    pub(crate) bytes_sent: u64,
    /// Bytes of the body sent to the client.
    pub(crate) body_bytes_sent: u64,
    /// Bytes of the response head; 0 until one was written.
    pub(crate) header_size: u64,
    /// `$request_completion`: the response was sent completely.
    pub(crate) completed: bool,
    /// Bytes received from the client and from the server after the switch to a tunnel.
    pub(crate) tunnelled: (u64, u64),
    /// Run by a task that counts the request as writing.
    pub(crate) counted: bool,
    /// Counted as begun and not as ended; not yet logged (`counting.rs`).
    pub(crate) owes_count: bool,
    pub(crate) owes_line: bool,
    /// Counted as processed in the zone of its server.
    pub(crate) in_server: bool,
    /// Counts the result of a cache lookup at the end.
    pub(crate) cached: Option<CacheCount>,
    /// Last action, for later log messages (nginx: `log->action`).
    pub(crate) action: Option<&'static str>,
    /// Returns the URL of the last server, for later log messages.
    pub(crate) asked: Option<fn(&Request) -> Option<String>>,
}

impl RequestAccount {
    /// Returns the arrival of the head's first byte, from which `$request_time` counts.
    #[inline]
    pub fn started(&self) -> Instant {
        self.started
    }
    /// Sets the arrival of the head's first byte.
    #[inline]
    pub fn set_started(&mut self, at: Instant) {
        self.started = at;
    }
    /// Returns the bytes sent in total (`$bytes_sent`).
    #[inline]
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }
    /// Returns the bytes of the body that were sent.
    #[inline]
    pub fn body_bytes_sent(&self) -> u64 {
        self.body_bytes_sent
    }
    /// Sets the bytes sent: in total, and of the body.
    #[inline]
    pub fn set_sent(&mut self, total: u64, of_body: u64) {
        (self.bytes_sent, self.body_bytes_sent) = (total, of_body);
    }
    /// Adds sent bytes: in total, and of the body.
    #[inline]
    pub fn add_sent(&mut self, total: u64, of_body: u64) {
        self.bytes_sent += total;
        self.body_bytes_sent += of_body;
    }
    /// Returns the bytes of the response head; 0 until one was written.
    #[inline]
    pub fn header_size(&self) -> u64 {
        self.header_size
    }
    /// Sets the bytes of the response head.
    #[inline]
    pub fn set_header_size(&mut self, octets: u64) {
        self.header_size = octets;
    }
    /// Notes whether the response was sent completely (`$request_completion`).
    #[inline]
    pub fn set_completed(&mut self, is_complete: bool) {
        self.completed = is_complete;
    }
    /// Takes the bytes received from the client and from the server after the switch to a tunnel.
    #[inline]
    pub fn take_tunnelled(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.tunnelled)
    }
    /// Tells whether a task counts the request as writing.
    #[inline]
    pub fn is_counted(&self) -> bool {
        self.counted
    }
    /// Notes that a task counts the request as writing.
    #[inline]
    pub fn note_counted(&mut self) {
        self.counted = true;
    }
    /// Has the result of a cache lookup counted at the end.
    #[inline]
    pub fn count_cache(&mut self, count: CacheCount) {
        self.cached = Some(count);
    }
    /// Returns the count of a cache lookup, to change its result.
    #[inline]
    pub fn cache_count_mut(&mut self) -> Option<&mut CacheCount> {
        self.cached.as_mut()
    }
    /// Returns the last action, which later log messages name.
    #[inline]
    pub fn action(&self) -> Option<&'static str> {
        self.action
    }
    /// Sets the action that later log messages name (nginx: `log->action`).
    #[inline]
    pub fn set_action(&mut self, action: Option<&'static str>) {
        self.action = action;
    }
    /// Sets the action that later log messages name, and returns the one before.
    #[inline]
    pub fn replace_action(&mut self, action: &'static str) -> Option<&'static str> {
        self.action.replace(action)
    }
    /// Gives the function that returns the URL of the last server, for later log messages.
    #[inline]
    pub fn ask_url_of(&mut self, url: fn(&Request) -> Option<String>) {
        self.asked = Some(url);
    }
    pub(super) fn reset(&mut self) {
        *self = RequestAccount::default();
    }
}
