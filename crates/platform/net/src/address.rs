//! Addresses of stream sockets, on either side of a connection.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Address of a stream socket or of datagrams. Its text is nginx's: `127.0.0.1:80`, `[::1]:80`, `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// IP address and port.
    Ip(SocketAddr),
    /// Path of a UNIX-domain socket.
    Unix(PathBuf),
}

impl Address {
    /// Returns the IP address without brackets and port, or the path of the socket with `unix:`.
    pub fn host(&self) -> String {
        match self {
            Address::Ip(ip) => ip.ip().to_string(),
            Address::Unix(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Address {
    /// As nginx writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(ip) => ip.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
