//! Zones, and the place of a name in them (RFC 1034, section 4.3.2, and RFC 4592).

use crate::name::{DomainName, suffixes};
use crate::record::{RecordData, RecordType};
use std::collections::HashMap;

/// Records of one name and type.
#[derive(Clone, Debug)]
pub(crate) struct RecordSet {
    pub kind: RecordType,
    pub ttl: u32,
    pub records: Vec<RecordData>,
}

/// Addresses that the caller selects at each question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolRecord {
    pub ttl: u32,
    pub pool: usize,
}

/// Records of one name; without any, only names below it have some.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameNode {
    pub sets: Vec<RecordSet>,
    pub pool: Option<PoolRecord>,
}

impl NameNode {
    pub fn set(&self, kind: RecordType) -> Option<&RecordSet> {
        self.sets.iter().find(|set| set.kind == kind)
    }
}

/// Records of a zone, for which its servers are authoritative.
#[derive(Clone, Debug)]
pub struct Zone {
    pub(crate) apex: DomainName,
    /// By names in wire form. Names between the apex and those of records are there, too (RFC 4592, section 2.2.2).
    pub(crate) nodes: HashMap<Box<[u8]>, NameNode>,
    pub(crate) authority: RecordSet,
    /// Seconds for which resolvers may remember that something is absent (RFC 2308, section 5).
    pub(crate) negative_ttl: u32,
}

/// Place of a name.
pub(crate) enum NamePlace<'z> {
    Found(&'z NameNode),
    /// The wildcard that answers for the name.
    Wildcard(&'z NameNode),
    /// A parent is delegated: its name in wire form, and its node.
    Delegated(Vec<u8>, &'z NameNode),
    Absent,
}

impl Zone {
    /// Returns the zone's name.
    pub fn apex(&self) -> &DomainName {
        &self.apex
    }

    /// Finds the place of a name in lower case, which lies in the zone. The work is proportional to the labels that the
    /// zone has of it.
    pub(crate) fn find(&self, name: &[u8], kind: RecordType) -> NamePlace<'_> {
        let below = name.len().saturating_sub(self.apex.wire().len());
        // From the apex downwards.
        let mut path: Vec<&[u8]> = suffixes(name).take_while(|suffix| suffix.len() > name.len() - below).collect();
        path.reverse();
        let mut encloser = self.apex.wire();
        let mut found = self.nodes.get(encloser);
        for suffix in path {
            let Some(node) = self.nodes.get(suffix) else {
                found = None;
                break;
            };
            // The parent answers for DS at the cut itself (RFC 4035, section 3.1.4.1).
            if node.set(RecordType::NS).is_some() && !(kind == RecordType::DS && suffix.len() == name.len()) {
                return NamePlace::Delegated(suffix.to_vec(), node);
            }
            (encloser, found) = (suffix, Some(node));
        }
        match found {
            Some(node) => NamePlace::Found(node),
            None => {
                let wildcard = [&b"\x01*"[..], encloser].concat();
                self.nodes.get(wildcard.as_slice()).map_or(NamePlace::Absent, NamePlace::Wildcard)
            }
        }
    }

    /// Returns the node of a name, without wildcards.
    pub(crate) fn node(&self, name: &DomainName) -> Option<&NameNode> {
        self.nodes.get(name.wire())
    }
}

/// Zones of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerZones {
    zones: Vec<Zone>,
    /// Positions by names in wire form.
    by_name: HashMap<Box<[u8]>, usize>,
}

impl ServerZones {
    /// Adds a zone; returns `false` if its name is taken.
    #[must_use]
    pub fn add(&mut self, zone: Zone) -> bool {
        if self.by_name.contains_key(zone.apex.wire()) {
            return false;
        }
        self.by_name.insert(zone.apex.wire().into(), self.zones.len());
        self.zones.push(zone);
        true
    }

    /// Returns all zones, in the order of their lines.
    pub fn all(&self) -> &[Zone] {
        &self.zones
    }

    /// Returns the zone with the most labels that has a name in wire form and lower case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Zone> {
        suffixes(name).find_map(|suffix| self.by_name.get(suffix)).and_then(|index| self.zones.get(*index))
    }
}
