//! What to listen on: an address and its socket options (nginx: `listen`, `ngx_open_listening_sockets`).

pub mod options;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A place to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    Ip(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    /// As nginx names it: `127.0.0.1:80`, `[::1]:80`, `unix:/path`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(ip) => ip.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `so_keepalive=on|off|idle:interval:count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpKeepalive {
    pub on: bool,
    pub idle: Option<Duration>,
    pub interval: Option<Duration>,
    pub count: Option<u32>,
}

/// One listening socket with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSpec {
    pub address: Address,
    /// `None`: 511 as nginx on Linux.
    pub backlog: Option<u32>,
    pub receive_buffer: Option<usize>,
    pub send_buffer: Option<usize>,
    /// `deferred`: TCP_DEFER_ACCEPT.
    pub deferred: bool,
    /// `fastopen=N`.
    pub fastopen: Option<u32>,
    pub keepalive: Option<TcpKeepalive>,
    pub ipv6_only: bool,
    /// Written in the configuration; with several worker threads every TCP listener gets a socket a thread anyway.
    pub reuseport: bool,
    /// UDP (stream, QUIC).
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
