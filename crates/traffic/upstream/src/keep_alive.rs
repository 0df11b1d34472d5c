//! Limits of idle connections, as a group configures them.

/// `keepalive` and its siblings: limits of idle connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Idle connections of the group per thread, of all locations; 0: none.
    pub connections: usize,
    /// `keepalive_requests`.
    pub requests_max: u64,
    /// `keepalive_time` in milliseconds.
    pub time_ms: u64,
    /// `keepalive_timeout` in milliseconds; 0: no limit.
    pub timeout_ms: u64,
    /// `local`: not shared between locations.
    pub local: bool,
    /// Binds connections to those of clients that log in with NTLM or Negotiate.
    pub ntlm: bool,
}

impl Default for KeepAlive {
    fn default() -> Self {
        KeepAlive {
            connections: 32,
            requests_max: 1000,
            time_ms: 3_600_000,
            timeout_ms: 60_000,
            local: true,
            ntlm: false,
        }
    }
}

impl KeepAlive {
    /// Implicit groups keep no idle connections, as in nginx: the server's timeout is unknown, and unrepeatable
    /// requests would be lost.
    pub fn none() -> KeepAlive {
        KeepAlive { connections: 0, ..KeepAlive::default() }
    }
}
