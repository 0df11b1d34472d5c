//! Addresses of a name, and the resolver of a block with its timeout.

use crate::NameResolver;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

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

/// A resolver with its timeout, as a block has them by `resolver` and `resolver_timeout`.
#[derive(Clone, Debug)]
pub struct ResolveRules {
    /// The name servers.
    pub resolver: Arc<NameResolver>,
    /// Longest time until an answer.
    pub timeout: Duration,
}
