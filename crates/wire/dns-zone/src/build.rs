//! Makes a [`Zone`] of lines, and finds contradictions among them.

use crate::name::{DomainName, suffixes};
use crate::record::{AuthorityTimes, RecordData, RecordType, authority_bytes};
use crate::zone::{NameNode, PoolRecord, RecordSet, Zone};
use std::collections::HashMap;

/// Names of a zone, those between the apex and names with records included.
const NODES_MAX: usize = 200_000;
/// Bytes of the records of a name and type: a response over TCP has room for them.
const SET_BYTES_MAX: usize = 48 * 1024;
/// Aliases that an answer follows within a zone.
pub(crate) const CHAIN_MAX: usize = 8;

/// Fault of a zone's lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneFault {
    /// Whole sentence.
    pub reason: String,
    /// Suggestion; empty without one.
    pub hint: String,
}

fn fault<T>(reason: impl Into<String>, hint: impl Into<String>) -> Result<T, ZoneFault> {
    Err(ZoneFault { reason: reason.into(), hint: hint.into() })
}

/// Collects the lines of a zone: [`ZoneBuilder::add`] and [`ZoneBuilder::add_pool`] for each, then
/// [`ZoneBuilder::finish`].
#[derive(Clone, Debug)]
pub struct ZoneBuilder {
    apex: DomainName,
    default_ttl: u32,
    nodes: HashMap<Box<[u8]>, NameNode>,
}

impl ZoneBuilder {
    /// `default_ttl`: seconds, of the SOA record without a line.
    pub fn new(apex: DomainName, default_ttl: u32) -> ZoneBuilder {
        let nodes = HashMap::from([(apex.wire().into(), NameNode::default())]);
        ZoneBuilder { apex, default_ttl, nodes }
    }

    /// Returns the zone's name.
    pub fn apex(&self) -> &DomainName {
        &self.apex
    }

    fn node(&mut self, owner: &DomainName) -> Result<&mut NameNode, ZoneFault> {
        if !owner.is_within(&self.apex) {
            let zone = &self.apex;
            return fault(
                format!("the name \"{owner}.\" is outside of the zone \"{zone}\""),
                "names without a final dot are relative to the zone",
            );
        }
        if suffixes(owner.wire()).skip(1).any(|parent| parent.starts_with(b"\x01*")) {
            return fault(format!("\"*\" in \"{owner}\" is not the first label"), "");
        }
        for parent in suffixes(owner.wire()).take_while(|name| name.len() > self.apex.wire().len()) {
            self.nodes.entry(parent.into()).or_default();
        }
        if self.nodes.len() > NODES_MAX {
            return fault(format!("the zone has more than {NODES_MAX} names"), "");
        }
        match self.nodes.get_mut(owner.wire()) {
            Some(node) => Ok(node),
            None => fault("the name is not known", ""),
        }
    }

    /// Adds records of a name and type; `ttl` in seconds.
    ///
    /// # Errors
    /// The name is outside of the zone; another record of the name contradicts (an alias, a pool, another TTL, the same
    /// data).
    pub fn add(
        &mut self,
        owner: &DomainName,
        kind: RecordType,
        ttl: u32,
        data: Vec<RecordData>,
    ) -> Result<(), ZoneFault> {
        let is_apex = *owner == self.apex;
        if kind == RecordType::SOA && !is_apex {
            return fault("an SOA record belongs to the zone's own name", "its name is \"@\"");
        }
        if kind == RecordType::CNAME && is_apex {
            return fault(
                "the zone's own name cannot be an alias: it has an SOA record (RFC 1034, section 3.6.2)",
                "a pool or an HTTPS record of priority 0 can take the place of the alias",
            );
        }
        if kind == RecordType::NS && owner.is_wildcard() {
            return fault("a wildcard cannot be delegated (RFC 4592, section 4.2)", "");
        }
        let shown = owner.to_string();
        let node = self.node(owner)?;
        let has_alias = node.set(RecordType::CNAME).is_some();
        if has_alias || kind == RecordType::CNAME && (!node.sets.is_empty() || node.pool.is_some()) {
            return fault(
                format!("\"{shown}\" is an alias and cannot have other records (RFC 1034, section 3.6.2)"),
                "keep either its CNAME record or the others",
            );
        }
        if matches!(kind, RecordType::A | RecordType::AAAA) && node.pool.is_some() {
            return fault(format!("\"{shown}\" has a pool, which answers for its addresses"), "");
        }
        if matches!(kind, RecordType::CNAME | RecordType::SOA) && data.len() > 1
            || kind == RecordType::SOA && node.set(kind).is_some()
        {
            return fault(format!("\"{shown}\" has more than one {kind} record"), "");
        }
        let set = match node.sets.iter_mut().find(|set| set.kind == kind) {
            Some(set) if set.ttl != ttl => {
                return fault(
                    format!("records of \"{shown}\" and type {kind} have different TTLs: {} and {ttl}", set.ttl),
                    "records of one name and type have one TTL (RFC 2181, section 5.2)",
                );
            }
            Some(set) => set,
            None => {
                node.sets.push(RecordSet { kind, ttl, records: Vec::new() });
                match node.sets.last_mut() {
                    Some(set) => set,
                    None => return fault("the set is not known", ""),
                }
            }
        };
        for one in data {
            if set.records.iter().any(|known| known.bytes == one.bytes) {
                return fault(format!("\"{shown}\" has this {kind} record already"), "");
            }
            set.records.push(one);
        }
        // Name, type, class, TTL and length of each record.
        let bytes: usize = set.records.iter().map(|one| one.bytes.len() + 12).sum();
        if bytes > SET_BYTES_MAX {
            return fault(format!("the {kind} records of \"{shown}\" have more than {SET_BYTES_MAX} bytes"), "");
        }
        Ok(())
    }

    /// Adds a pool, which answers for a name's addresses; `ttl` in seconds.
    ///
    /// # Errors
    /// The name is outside of the zone, or has addresses, an alias or a pool.
    pub fn add_pool(&mut self, owner: &DomainName, ttl: u32, pool: usize) -> Result<(), ZoneFault> {
        let shown = owner.to_string();
        let node = self.node(owner)?;
        if node.pool.is_some() {
            return fault(format!("\"{shown}\" has a pool already"), "a pool may have several groups");
        }
        for kind in [RecordType::CNAME, RecordType::A, RecordType::AAAA] {
            if node.set(kind).is_some() {
                return fault(
                    format!("\"{shown}\" has a {kind} record, and a pool answers for its addresses"),
                    "keep either the pool or the record",
                );
            }
        }
        node.pool = Some(PoolRecord { ttl, pool });
        Ok(())
    }

    /// Returns the zone and its doubtful places, as warnings.
    ///
    /// # Errors
    /// The zone has no name servers, aliases run in a circle, or records stand below a delegation.
    pub fn finish(mut self) -> Result<(Zone, Vec<ZoneFault>), ZoneFault> {
        let apex = self.apex.clone();
        let top = self.nodes.get(apex.wire()).cloned().unwrap_or_default();
        let Some(servers) = top.set(RecordType::NS) else {
            return fault(
                format!("the zone \"{apex}\" has no name servers"),
                "add a line such as \"@ NS ns1;\", and an address of \"ns1\"",
            );
        };
        let mut warnings = Vec::new();
        let names = servers.records.iter().filter_map(|record| record.target.as_ref());
        for name in names.filter(|name| name.is_within(&apex)) {
            let node = self.nodes.get(name.wire());
            let has = |kind| node.is_some_and(|node| node.set(kind).is_some());
            if !has(RecordType::A) && !has(RecordType::AAAA) {
                warnings.push(ZoneFault {
                    reason: format!("the name server \"{name}\" has no address in the zone \"{apex}\""),
                    hint: "add a line of type A or AAAA".into(),
                });
            }
        }
        self.check_aliases()?;
        self.check_cuts()?;
        let authority = match top.set(RecordType::SOA) {
            Some(set) => set.clone(),
            None => {
                let first = servers.records.iter().find_map(|record| record.target.clone());
                let server = first.unwrap_or_else(|| apex.clone());
                let mailbox = DomainName::parse("hostmaster", Some(&apex)).unwrap_or_else(|_| apex.clone());
                let bytes = authority_bytes(&server, &mailbox, &AuthorityTimes::default());
                let set =
                    RecordSet { kind: RecordType::SOA, ttl: self.default_ttl, records: vec![RecordData::plain(bytes)] };
                if let Some(node) = self.nodes.get_mut(apex.wire()) {
                    node.sets.push(set.clone());
                }
                set
            }
        };
        let last = authority.records.first().and_then(|one| one.bytes.last_chunk::<4>());
        let negative_ttl = last.map_or(0, |octets| u32::from_be_bytes(*octets)).min(authority.ttl);
        Ok((Zone { apex, nodes: self.nodes, authority, negative_ttl }, warnings))
    }

    /// Returns the names in a constant order, so that equal lines have equal faults.
    fn sorted(&self) -> Vec<(&[u8], &NameNode)> {
        let mut all: Vec<(&[u8], &NameNode)> = self.nodes.iter().map(|(wire, node)| (&**wire, node)).collect();
        all.sort_unstable_by_key(|(wire, _)| *wire);
        all
    }

    /// Follows every alias: neither circles nor longer chains than answers follow.
    fn check_aliases(&self) -> Result<(), ZoneFault> {
        for (wire, node) in self.sorted() {
            let mut next = node.set(RecordType::CNAME);
            let mut steps = 0;
            while let Some(set) = next {
                steps += 1;
                if steps > CHAIN_MAX {
                    let name = DomainName::from_wire(wire).map(|name| name.to_string()).unwrap_or_default();
                    return fault(
                        format!("the aliases of \"{name}\" run in a circle, or over more than {CHAIN_MAX} names"),
                        "",
                    );
                }
                let target = set.records.first().and_then(|record| record.target.as_ref());
                next = target.and_then(|name| self.nodes.get(name.wire())).and_then(|node| node.set(RecordType::CNAME));
            }
        }
        Ok(())
    }

    /// Below a delegation only addresses may stand: those of its name servers.
    fn check_cuts(&self) -> Result<(), ZoneFault> {
        for (wire, node) in self.sorted() {
            let is_address = |set: &RecordSet| matches!(set.kind, RecordType::A | RecordType::AAAA);
            let parents = suffixes(wire).skip(1).take_while(|parent| parent.len() > self.apex.wire().len());
            let delegated = |name: &[u8]| self.nodes.get(name).is_some_and(|node| node.set(RecordType::NS).is_some());
            let is_below = parents.into_iter().any(delegated);
            let is_cut = wire.len() > self.apex.wire().len() && delegated(wire);
            let is_wrong = is_below && (node.pool.is_some() || !node.sets.iter().all(is_address))
                || is_cut
                    && (node.pool.is_some()
                        || node.sets.iter().any(|set| !is_address(set) && set.kind != RecordType::NS));
            if is_wrong {
                let name = DomainName::from_wire(wire).map(|name| name.to_string()).unwrap_or_default();
                return fault(
                    format!("\"{name}\" is delegated by NS records to other servers, which answer for its records"),
                    "only addresses of those servers may stand there",
                );
            }
        }
        Ok(())
    }
}
