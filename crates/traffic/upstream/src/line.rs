//! Lines of a group: servers as they are written, and the addresses that they stand for.

use crate::peer::PeerSpec;
use net::Address;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of servers per `server` line.
pub(crate) const SERVERS_OF_LINE_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSource {
    Fixed(Vec<Address>),
    /// Name for the system, once it resolves.
    Named {
        host: String,
        port: u16,
    },
    /// `resolve`: name for the `resolver`, repeated by TTL; `service`: by SRV records.
    Resolved {
        host: String,
        port: u16,
        service: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLine {
    /// Parameters of each server; the address is a placeholder.
    pub spec: PeerSpec,
    pub source: ServerSource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedAddress {
    pub address: SocketAddr,
    /// Name and weight of an SRV record.
    pub record: Option<(String, u32)>,
    /// SRV record of lower priority.
    pub backup: bool,
}

impl ResolvedAddress {
    pub fn plain(ip: IpAddr, port: u16) -> ResolvedAddress {
        ResolvedAddress { address: SocketAddr::new(ip, port), record: None, backup: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOrigin {
    /// A line of the configuration, which comes back with a reload.
    File,
    /// An API or the state file; the line outlives the configuration.
    Api,
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// Never used again for another line of the group in this process.
    pub number: u64,
    pub line: ServerLine,
    pub origin: LineOrigin,
    pub(crate) found: Vec<ResolvedAddress>,
}

impl Entry {
    pub(crate) fn new(number: u64, line: ServerLine, origin: LineOrigin) -> Entry {
        Entry { number, line, origin, found: Vec::new() }
    }
    /// Sets the addresses that the name stands for; tells whether anything changed.
    pub(crate) fn update(&mut self, mut now: Vec<ResolvedAddress>) -> bool {
        now.truncate(SERVERS_OF_LINE_MAX);
        if self.line.spec.weight != 1 {
            // The line's own weight overrides the records'.
            now.iter_mut().filter_map(|f| f.record.as_mut()).for_each(|record| record.1 = self.line.spec.weight);
        }
        let mut merged = Vec::with_capacity(now.len());
        for old in &self.found {
            if let Some(at) = now.iter().position(|new| new == old) {
                merged.push(now.remove(at));
            }
        }
        merged.append(&mut now);
        if self.found == merged {
            return false;
        }
        self.found = merged;
        true
    }
}

/// A line that a name stands for, and may change.
pub fn is_named(line: &ServerLine) -> bool {
    !matches!(line.source, ServerSource::Fixed(_))
}
