//! Answers queries from zones (RFC 1034, section 4.3.2; RFC 2308; RFC 4592; RFC 6604).

use crate::build::CHAIN_MAX;
use crate::name::DomainName;
use crate::query::{HEADER_BYTES, INTERNET, Query, ResponseCode};
use crate::record::RecordType;
use crate::select::{AddressFamily, Selector};
use crate::write::{PAYLOAD_BYTES, ResponseWriter, Section};
use crate::zone::{NameNode, NamePlace, RecordSet, ServerZones, Zone};
use std::net::IpAddr;

/// Bytes of a response over UDP without EDNS (RFC 1035, section 4.2.1).
const PLAIN_BYTES: usize = 512;
/// Records that a response adds for names in its data.
const ADDED_MAX: usize = 16;
/// Addresses of a pool in a response.
const ADDRESSES_MAX: usize = 32;
/// Seconds for which the answer to ANY may be remembered.
const ANY_TTL: u32 = 3600;

/// Way of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams: responses are bounded by what the client takes, at most 1,232 bytes.
    Udp,
    /// A stream of messages of up to 65,535 bytes.
    Tcp,
}

impl Transport {
    fn limit(self, query: &Query<'_>) -> usize {
        match self {
            Transport::Tcp => usize::from(u16::MAX),
            Transport::Udp => {
                let payload = query.edns.as_ref().map_or(0, |edns| usize::from(edns.payload));
                payload.clamp(PLAIN_BYTES, usize::from(PAYLOAD_BYTES))
            }
        }
    }
}

/// Facts about a response, for logs and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerSummary<'z> {
    /// Code of the response.
    pub code: ResponseCode,
    /// The name exists, without a record of the type.
    pub no_data: bool,
    /// The records had no room: the client asks over TCP.
    pub truncated: bool,
    /// The zone of the name, if it is one of these.
    pub zone: Option<&'z DomainName>,
}

/// Appends the response to a query; answers from `zones` are authoritative.
pub fn answer_query<'z>(
    query: &Query<'_>,
    zones: &'z ServerZones,
    transport: Transport,
    selector: &mut dyn Selector,
    out: &mut Vec<u8>,
) -> AnswerSummary<'z> {
    let writer = ResponseWriter::begin(query, transport.limit(query), out);
    let reserved = ResponseWriter::edns_bytes(query.edns.as_ref());
    let mut answer = Answer {
        query,
        writer,
        reserved,
        selector,
        code: ResponseCode::NoError,
        authoritative: false,
        no_data: false,
        by_place: false,
        truncated: false,
        added: Vec::new(),
    };
    let zone = answer.run(zones);
    let summary = AnswerSummary {
        code: answer.code,
        no_data: answer.no_data,
        truncated: answer.truncated,
        zone: zone.map(|zone| &zone.apex),
    };
    // The answer holds for the whole subnet, and for no wider one, if it depends on it (RFC 7871, section 7.2.1).
    let scope_bits = match query.subnet() {
        Some(subnet) if answer.by_place && !answer.truncated => subnet.source_bits,
        _ => 0,
    };
    let Answer { writer, code, authoritative, .. } = answer;
    writer.finish(code, authoritative, query.edns.as_ref(), scope_bits);
    summary
}

/// Appends a truncated response without records: the client asks over TCP.
pub fn truncate_answer(query: &Query<'_>, out: &mut Vec<u8>) {
    let mut writer = ResponseWriter::begin(query, usize::from(u16::MAX), out);
    writer.truncate();
    writer.finish(ResponseCode::NoError, false, query.edns.as_ref(), 0);
}

/// Appends the response to a message that is no query with one question: its header, with a code. Nothing is appended
/// for less than a header.
pub fn refuse_message(message: &[u8], code: ResponseCode, out: &mut Vec<u8>) {
    let Some([id_high, id_low, flags, ..]) = message.get(..HEADER_BYTES) else { return };
    // The kind of query and "recursion desired" are repeated.
    out.extend_from_slice(&[*id_high, *id_low, 0x80 | flags & 0x79, (code.number() & 15) as u8]);
    out.extend_from_slice(&[0; 8]);
}

struct Answer<'q, 'o, 's> {
    query: &'q Query<'q>,
    writer: ResponseWriter<'o>,
    /// Bytes for EDNS.
    reserved: usize,
    selector: &'s mut dyn Selector,
    code: ResponseCode,
    authoritative: bool,
    no_data: bool,
    by_place: bool,
    truncated: bool,
    /// Names whose addresses follow.
    added: Vec<DomainName>,
}

impl Answer<'_, '_, '_> {
    fn run<'z>(&mut self, zones: &'z ServerZones) -> Option<&'z Zone> {
        if self.query.edns.as_ref().is_some_and(|edns| edns.version != 0) {
            self.code = ResponseCode::BadVers;
            return None;
        }
        let zone = zones.find(&self.query.name).filter(|_| self.query.class == INTERNET);
        let kind = RecordType(self.query.kind);
        let Some(zone) = zone.filter(|_| !matches!(kind, RecordType::AXFR | RecordType::IXFR)) else {
            self.code = ResponseCode::Refused;
            return zone;
        };
        // OPT and the types of queries other than ANY have no records (RFC 6895, section 3.1).
        if kind == RecordType::OPT || (128..255).contains(&kind.0) {
            self.code = ResponseCode::NotImp;
            return Some(zone);
        }
        self.authoritative = true;
        self.follow(zone, kind);
        if self.truncated {
            self.writer.truncate();
        } else {
            self.add_addresses(zone);
        }
        Some(zone)
    }

    fn follow(&mut self, zone: &Zone, kind: RecordType) {
        let mut owner = self.query.name.clone();
        for step in 0..=CHAIN_MAX {
            let node = match zone.find(&owner, kind) {
                NamePlace::Delegated(cut, node) => return self.refer(&cut, node, step == 0),
                NamePlace::Absent => {
                    self.code = ResponseCode::NxDomain;
                    return self.write_authority(zone);
                }
                NamePlace::Found(node) | NamePlace::Wildcard(node) => node,
            };
            let alias = node.set(RecordType::CNAME).filter(|_| !matches!(kind, RecordType::CNAME | RecordType::ANY));
            let Some(alias) = alias else { return self.write_node(zone, &owner, node, kind) };
            self.write_set(Section::Answer, &owner, alias);
            let target = alias.records.first().and_then(|record| record.target.clone());
            match target.filter(|target| target.is_within(&zone.apex)) {
                Some(target) => owner = target.wire().to_vec(),
                // The resolver asks the servers of the target.
                None => return,
            }
        }
    }

    /// Names the servers of a delegated zone.
    fn refer(&mut self, cut: &[u8], node: &NameNode, is_first: bool) {
        if is_first {
            self.authoritative = false;
        }
        if let Some(set) = node.set(RecordType::NS) {
            self.write_set(Section::Authority, cut, set);
        }
    }

    fn write_node(&mut self, zone: &Zone, owner: &[u8], node: &NameNode, kind: RecordType) {
        let family = match kind {
            RecordType::A => Some(AddressFamily::V4),
            RecordType::AAAA => Some(AddressFamily::V6),
            _ => None,
        };
        if let (Some(family), Some(pool)) = (family, node.pool) {
            return self.write_pool(zone, owner, family, pool.pool, pool.ttl);
        }
        if kind == RecordType::ANY && (!node.sets.is_empty() || node.pool.is_some()) {
            // RFC 8482, section 4.2: one short record for all.
            let data = b"\x07RFC8482\x00";
            return self.write(Section::Answer, owner, RecordType::HINFO, ANY_TTL, data);
        }
        match node.set(kind) {
            Some(set) => self.write_set(Section::Answer, owner, set),
            None => {
                self.no_data = true;
                self.write_authority(zone);
            }
        }
    }

    fn write_pool(&mut self, zone: &Zone, owner: &[u8], family: AddressFamily, pool: usize, ttl: u32) {
        let mut addresses = Vec::new();
        let selection = self.selector.select(pool, family, &mut addresses);
        self.by_place |= selection.by_place;
        if selection.failed {
            self.code = ResponseCode::ServFail;
            return;
        }
        addresses.retain(|address| family.has(address));
        if addresses.is_empty() {
            self.no_data = true;
            return self.write_authority(zone);
        }
        for address in addresses.iter().take(ADDRESSES_MAX) {
            match address {
                IpAddr::V4(ip) => self.write(Section::Answer, owner, RecordType::A, ttl, &ip.octets()),
                IpAddr::V6(ip) => self.write(Section::Answer, owner, RecordType::AAAA, ttl, &ip.octets()),
            }
        }
    }

    /// Writes the records of a set; addresses begin with another one each time.
    fn write_set(&mut self, section: Section, owner: &[u8], set: &RecordSet) {
        let turns = matches!(set.kind, RecordType::A | RecordType::AAAA) && set.records.len() > 1;
        let first = if turns { (self.selector.random() % set.records.len() as u64) as usize } else { 0 };
        for record in set.records.iter().cycle().skip(first).take(set.records.len()) {
            self.write(section, owner, set.kind, set.ttl, &record.bytes);
            if let Some(target) = record.target.as_ref().filter(|_| set.kind != RecordType::CNAME) {
                self.added.push(target.clone());
            }
        }
    }

    /// Writes the SOA record, with the time for which the absence may be remembered.
    fn write_authority(&mut self, zone: &Zone) {
        for record in &zone.authority.records {
            self.write(Section::Authority, zone.apex.wire(), RecordType::SOA, zone.negative_ttl, &record.bytes);
        }
    }

    fn write(&mut self, section: Section, owner: &[u8], kind: RecordType, ttl: u32, data: &[u8]) {
        if !self.truncated {
            let question = &self.query.name;
            self.truncated = !self.writer.record(section, owner, question, kind, ttl, data, self.reserved);
        }
    }

    /// Adds addresses of names in the data, as far as they fit: they are not part of the answer.
    fn add_addresses(&mut self, zone: &Zone) {
        let names = std::mem::take(&mut self.added);
        for name in names.iter().filter(|name| name.is_within(&zone.apex)).take(ADDED_MAX) {
            let Some(node) = zone.node(name) else { continue };
            for set in node.sets.iter().filter(|set| matches!(set.kind, RecordType::A | RecordType::AAAA)) {
                for record in &set.records {
                    let fits = self.writer.record(
                        Section::Additional,
                        name.wire(),
                        &self.query.name,
                        set.kind,
                        set.ttl,
                        &record.bytes,
                        self.reserved,
                    );
                    if !fits {
                        return;
                    }
                }
            }
        }
    }
}
