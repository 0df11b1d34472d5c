//! Listening addresses and their socket options (nginx: `listen`, `ngx_open_listening_sockets`).

pub mod options;

use crate::Address;
use std::time::Duration;

/// `so_keepalive=on|off|idle:interval:count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpKeepalive {
    pub on: bool,
    pub idle: Option<Duration>,
    pub interval: Option<Duration>,
    pub count: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSpec {
    pub address: Address,
    /// `None`: 511, as nginx on Linux.
    pub backlog: Option<u32>,
    pub receive_buffer: Option<usize>,
    pub send_buffer: Option<usize>,
    pub deferred: bool,
    pub fastopen: Option<u32>,
    pub keepalive: Option<TcpKeepalive>,
    pub ipv6_only: bool,
    /// As configured; with several worker threads each TCP listener has a socket per thread anyway.
    pub reuseport: bool,
    pub datagram: bool,
}

impl ListenSpec {
    pub fn new(address: Address) -> Self {
        ListenSpec {
            address,
            backlog: None,
            receive_buffer: None,
            send_buffer: None,
            deferred: false,
            fastopen: None,
            keepalive: None,
            ipv6_only: true,
            reuseport: false,
            datagram: false,
        }
    }
}
