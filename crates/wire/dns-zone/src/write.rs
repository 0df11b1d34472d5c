//! Writes responses: header, question, records up to a limit, EDNS.

use crate::query::{Edns, HEADER_BYTES, INTERNET, Query, ResponseCode};
use crate::record::RecordType;

/// Bytes of a datagram that the server takes and sends: fits into every path (DNS flag day 2020).
pub(crate) const PAYLOAD_BYTES: u16 = 1232;
/// Bytes of an OPT record without options.
const OPT_BYTES: usize = 11;

/// Part of a response that records belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

/// A response in progress. Sections have to be written in their order, EDNS last.
pub(crate) struct ResponseWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    /// Bytes of the whole message.
    limit: usize,
    counts: [u16; 3],
    /// Wire length of the question's name; 0 without a question.
    name_bytes: usize,
}

impl<'o> ResponseWriter<'o> {
    /// Begins a response to a query. `limit`: bytes of the message at most.
    pub fn begin(query: &Query<'_>, limit: usize, out: &'o mut Vec<u8>) -> ResponseWriter<'o> {
        let start = out.len();
        out.extend_from_slice(&query.id.to_be_bytes());
        out.extend_from_slice(&[0x80 | u8::from(query.recursion_desired), 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(query.question);
        ResponseWriter { out, start, limit, counts: [0; 3], name_bytes: query.name.len() }
    }

    /// Returns the bytes that EDNS will take.
    pub fn edns_bytes(edns: Option<&Edns>) -> usize {
        edns.map_or(0, |edns| OPT_BYTES + edns.subnet.as_ref().map_or(0, |subnet| subnet.bytes()))
    }

    /// Appends a record. `owner` is a name in wire form and lower case; the part that it shares with the question becomes
    /// a pointer (RFC 1035, section 4.1.4), which keeps the question's case. Returns `false` without room for it, given
    /// `reserved` bytes that follow.
    #[must_use]
    pub fn record(
        &mut self,
        section: Section,
        owner: &[u8],
        question: &[u8],
        kind: RecordType,
        ttl: u32,
        data: &[u8],
        reserved: usize,
    ) -> bool {
        let before = self.out.len();
        let (own, shared_at) = shared_suffix(owner, question);
        self.out.extend_from_slice(own);
        match shared_at {
            Some(at) => self.out.extend_from_slice(&(0xc000 | (HEADER_BYTES + at) as u16).to_be_bytes()),
            None => self.out.push(0),
        }
        self.out.extend_from_slice(&kind.0.to_be_bytes());
        self.out.extend_from_slice(&INTERNET.to_be_bytes());
        self.out.extend_from_slice(&ttl.to_be_bytes());
        self.out.extend_from_slice(&(data.len() as u16).to_be_bytes());
        self.out.extend_from_slice(data);
        if self.out.len() - self.start + reserved > self.limit {
            self.out.truncate(before);
            return false;
        }
        let count = match section {
            Section::Answer => 0,
            Section::Authority => 1,
            Section::Additional => 2,
        };
        if let Some(count) = self.counts.get_mut(count) {
            *count += 1;
        }
        true
    }

    /// Removes all records: the client has to ask over TCP.
    pub fn truncate(&mut self) {
        self.out.truncate(self.start + HEADER_BYTES + self.name_bytes + 4);
        self.counts = [0; 3];
        self.set(2, |flags| flags | 0x02);
    }

    fn set(&mut self, at: usize, change: impl FnOnce(u8) -> u8) {
        if let Some(octet) = self.out.get_mut(self.start + at) {
            *octet = change(*octet);
        }
    }

    /// Ends the message. `scope_bits`: length of the prefix of the client's address for which the answer holds.
    pub fn finish(mut self, code: ResponseCode, authoritative: bool, edns: Option<&Edns>, scope_bits: u8) {
        if let Some(edns) = edns {
            self.out.push(0);
            self.out.extend_from_slice(&RecordType::OPT.0.to_be_bytes());
            self.out.extend_from_slice(&PAYLOAD_BYTES.to_be_bytes());
            let dnssec_ok = if edns.dnssec_ok { 0x80 } else { 0 };
            self.out.extend_from_slice(&[(code.number() >> 4) as u8, 0, dnssec_ok, 0]);
            let length = edns.subnet.as_ref().map_or(0, |subnet| subnet.bytes());
            self.out.extend_from_slice(&(length as u16).to_be_bytes());
            if let Some(subnet) = &edns.subnet {
                subnet.write(scope_bits, self.out);
            }
        }
        if authoritative {
            self.set(2, |flags| flags | 0x04);
        }
        self.set(3, |_| (code.number() & 15) as u8);
        let [answers, authorities, additional] = self.counts;
        let counts = [answers, authorities, additional + u16::from(edns.is_some())];
        for (at, octet) in counts.into_iter().flat_map(u16::to_be_bytes).enumerate() {
            self.set(6 + at, |_| octet);
        }
    }
}

/// Splits a name into the labels that it has alone and the position in `question` of those that both have. Both are in
/// lower case; the root alone is not shared.
fn shared_suffix<'n>(name: &'n [u8], question: &[u8]) -> (&'n [u8], Option<usize>) {
    for suffix in crate::name::suffixes(name).filter(|suffix| suffix.len() > 1) {
        if let Some(at) = question.len().checked_sub(suffix.len())
            && crate::name::suffixes(question).any(|known| known.len() == suffix.len() && known == suffix)
        {
            return (name.get(..name.len() - suffix.len()).unwrap_or_default(), Some(at));
        }
    }
    (name.get(..name.len().saturating_sub(1)).unwrap_or_default(), None)
}
