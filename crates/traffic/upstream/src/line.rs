//! Lines of a group: servers as they are written, and the addresses that they stand for.

use crate::peer::PeerSpec;
use net::Address;
use resolver::ResolvedAddress;

/// Maximum number of servers per `server` line.
pub(crate) const SERVERS_OF_LINE_MAX: usize = 1024;

/// Addresses that a line stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSource {
    /// Addresses that the configuration names.
    Fixed(Vec<Address>),
    /// Name for the system, once it resolves.
    Named {
        /// The name.
        host: String,
        /// The port of all its addresses.
        port: u16,
    },
    /// `resolve`: name for the `resolver`, repeated by TTL; `service`: by SRV records.
    Resolved {
        /// The name, for `service` the domain.
        host: String,
        /// The port of its addresses; SRV records have their own.
        port: u16,
        /// Name of the service.
        service: Option<String>,
    },
}

/// A `server` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLine {
    /// Parameters of each server; the address is a placeholder.
    pub spec: PeerSpec,
    /// Its addresses.
    pub source: ServerSource,
}

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOrigin {
    /// A line of the configuration, which comes back with a reload.
    File,
    /// An API or the state file; the line outlives the configuration.
    Api,
}

/// A line of a group, with its number and the addresses found for it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Never used again for another line of the group in this process.
    pub number: u64,
    /// The line.
    pub line: ServerLine,
    /// Its origin.
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
