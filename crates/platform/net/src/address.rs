//! Addresses of stream sockets, on either side of a connection.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    Ip(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    /// As nginx writes it: `127.0.0.1:80`, `[::1]:80`, `unix:/path`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(ip) => ip.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
