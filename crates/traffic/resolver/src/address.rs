//! Addresses of a name.

use std::net::{IpAddr, SocketAddr};

/// An address of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedAddress {
    /// IP address and port.
    pub address: SocketAddr,
    /// Name and weight of an SRV record.
    pub record: Option<(String, u32)>,
    /// SRV record of lower priority.
    pub backup: bool,
}

impl ResolvedAddress {
    /// Combines an address of the name with the line's port.
    pub fn plain(ip: IpAddr, port: u16) -> ResolvedAddress {
        ResolvedAddress { address: SocketAddr::new(ip, port), record: None, backup: false }
    }
}
