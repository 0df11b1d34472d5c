//! Queries: header, one question, EDNS with the client's subnet (RFC 1035, 6891, 7871, 9619).

use crate::name::{end_of_name, write_text};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a message's header.
pub(crate) const HEADER_BYTES: usize = 12;
const OPT: u16 = 41;
const OPTION_CLIENT_SUBNET: u16 = 8;
/// Records besides the question that are looked at; a query has one or two (EDNS, a signature).
const RECORDS_MAX: u32 = 8;
/// Class of the Internet.
pub(crate) const INTERNET: u16 = 1;

/// Codes of responses (RFC 1035, section 4.1.1, and RFC 6891, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseCode {
    /// The name exists.
    NoError,
    /// The query cannot be read.
    FormErr,
    /// A pool has no server that may be answered.
    ServFail,
    /// The name does not exist.
    NxDomain,
    /// The kind of query (`NOTIFY`, `UPDATE`) is not implemented.
    NotImp,
    /// The name is in no zone, or the query asks for a transfer.
    Refused,
    /// The version of EDNS is not 0.
    BadVers,
}

impl ResponseCode {
    /// Number in the header, and upper bits for EDNS.
    pub(crate) fn number(self) -> u16 {
        match self {
            ResponseCode::NoError => 0,
            ResponseCode::FormErr => 1,
            ResponseCode::ServFail => 2,
            ResponseCode::NxDomain => 3,
            ResponseCode::NotImp => 4,
            ResponseCode::Refused => 5,
            ResponseCode::BadVers => 16,
        }
    }
    /// Name as `dig` writes it.
    pub fn text(self) -> &'static str {
        match self {
            ResponseCode::NoError => "NOERROR",
            ResponseCode::FormErr => "FORMERR",
            ResponseCode::ServFail => "SERVFAIL",
            ResponseCode::NxDomain => "NXDOMAIN",
            ResponseCode::NotImp => "NOTIMP",
            ResponseCode::Refused => "REFUSED",
            ResponseCode::BadVers => "BADVERS",
        }
    }
}

/// A message that is no query with one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadQuery {
    /// A response, or shorter than a header: never answered, so that two servers cannot answer each other for ever.
    Dropped,
    /// Answered by [`crate::refuse`] with this code.
    Refused(ResponseCode),
}

/// Network of the client for whom a resolver asks (RFC 7871).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSubnet {
    /// Address family as sent: 0 without an address, 1 for IPv4, 2 for IPv6.
    pub(crate) family: u16,
    /// The address, with zero bits behind the prefix; `None` with a prefix of length 0.
    pub address: Option<IpAddr>,
    /// Length of the prefix in bits.
    pub source_bits: u8,
}

impl ClientSubnet {
    /// Reads the option's data.
    fn read(data: &[u8]) -> Option<ClientSubnet> {
        let [high, low, source_bits, scope_bits, octets @ ..] = data else { return None };
        let family = u16::from_be_bytes([*high, *low]);
        let width = match family {
            0 => 0,
            1 => 32,
            2 => 128,
            _ => return None,
        };
        if *source_bits > width || *scope_bits != 0 || octets.len() != usize::from(source_bits.div_ceil(8)) {
            return None;
        }
        let spare = octets.len() * 8 - usize::from(*source_bits);
        if octets.last().is_some_and(|last| last.trailing_zeros() < spare as u32) {
            return None;
        }
        let mut whole = [0; 16];
        whole.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
        let [a, b, c, d, ..] = whole;
        let address = match family {
            _ if *source_bits == 0 => None,
            1 => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
            _ => Some(IpAddr::V6(Ipv6Addr::from(whole))),
        };
        Some(ClientSubnet { family, address, source_bits: *source_bits })
    }

    /// Appends the option for a response: the subnet, and the length of the prefix for which the answer holds.
    pub(crate) fn write(&self, scope_bits: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(&OPTION_CLIENT_SUBNET.to_be_bytes());
        let length = self.source_bits.div_ceil(8);
        out.extend_from_slice(&(4 + u16::from(length)).to_be_bytes());
        out.extend_from_slice(&self.family.to_be_bytes());
        out.extend_from_slice(&[self.source_bits, scope_bits]);
        match self.address {
            Some(IpAddr::V4(ip)) => out.extend(ip.octets().iter().take(length.into())),
            Some(IpAddr::V6(ip)) => out.extend(ip.octets().iter().take(length.into())),
            None => {}
        }
    }

    /// Bytes of the option in a response.
    pub(crate) fn bytes(&self) -> usize {
        8 + usize::from(self.source_bits.div_ceil(8))
    }
}

/// EDNS of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// Bytes of a datagram that the client takes.
    pub payload: u16,
    pub(crate) version: u8,
    /// The flag DO, which responses repeat (RFC 3225, section 3).
    pub(crate) dnssec_ok: bool,
    /// Subnet of the client, if the resolver tells it.
    pub subnet: Option<ClientSubnet>,
}

/// A query with one question of class IN or another.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    pub(crate) id: u16,
    pub(crate) recursion_desired: bool,
    /// Name, type and class, as sent: responses repeat the name's case.
    pub(crate) question: &'a [u8],
    /// Name in wire form and lower case.
    pub(crate) name: Vec<u8>,
    /// Type of the records.
    pub kind: u16,
    pub(crate) class: u16,
    /// EDNS, if the client has it.
    pub edns: Option<Edns>,
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at.checked_add(2)?)?;
    pair.try_into().ok().map(u16::from_be_bytes)
}

impl<'a> Query<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// The message is a response, no query, or malformed: see [`UnreadQuery`].
    pub fn read(bytes: &'a [u8]) -> Result<Query<'a>, UnreadQuery> {
        let header = bytes.get(..HEADER_BYTES).ok_or(UnreadQuery::Dropped)?;
        let flags = number(header, 2).ok_or(UnreadQuery::Dropped)?;
        if flags & 0x8000 != 0 {
            return Err(UnreadQuery::Dropped);
        }
        if flags >> 11 & 15 != 0 {
            return Err(UnreadQuery::Refused(ResponseCode::NotImp));
        }
        Query::read_question(bytes, flags).ok_or(UnreadQuery::Refused(ResponseCode::FormErr))
    }

    fn read_question(bytes: &'a [u8], flags: u16) -> Option<Query<'a>> {
        let count = |at| number(bytes, at);
        let (questions, answers, authorities, additional) = (count(4)?, count(6)?, count(8)?, count(10)?);
        // A reader of an incremental transfer (IXFR) sends its SOA in the authority section; it is refused later.
        if questions != 1 || answers != 0 || authorities > 1 {
            return None;
        }
        let name_end = end_of_name(bytes, HEADER_BYTES)?;
        let end = name_end + 4;
        let mut query = Query {
            id: number(bytes, 0)?,
            recursion_desired: flags & 0x0100 != 0,
            question: bytes.get(HEADER_BYTES..end)?,
            name: bytes.get(HEADER_BYTES..name_end)?.to_ascii_lowercase(),
            kind: number(bytes, name_end)?,
            class: number(bytes, name_end + 2)?,
            edns: None,
        };
        let records = u32::from(authorities) + u32::from(additional);
        if records > RECORDS_MAX {
            return None;
        }
        let mut at = end;
        for _ in 0..records {
            at = query.read_record(bytes, at)?;
        }
        (at == bytes.len()).then_some(query)
    }

    /// Reads EDNS and skips other records; returns the record's end.
    fn read_record(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let fixed = end_of_compressed(bytes, at)?;
        let (kind, payload) = (number(bytes, fixed)?, number(bytes, fixed + 2)?);
        let data_at = fixed + 10;
        let end = data_at + usize::from(number(bytes, fixed + 8)?);
        let data = bytes.get(data_at..end)?;
        if kind != OPT {
            return Some(end);
        }
        if self.edns.is_some() || fixed != at + 1 {
            return None;
        }
        let version = *bytes.get(fixed + 5)?;
        let dnssec_ok = number(bytes, fixed + 6)? & 0x8000 != 0;
        let mut edns = Edns { payload, version, dnssec_ok, subnet: None };
        // The options of other versions may differ.
        let mut rest = if version == 0 { data } else { &[] };
        while !rest.is_empty() {
            let (code, length) = (number(rest, 0)?, usize::from(number(rest, 2)?));
            let option = rest.get(4..4 + length)?;
            if code == OPTION_CLIENT_SUBNET {
                if edns.subnet.is_some() {
                    return None;
                }
                edns.subnet = Some(ClientSubnet::read(option)?);
            }
            rest = rest.get(4 + length..)?;
        }
        self.edns = Some(edns);
        Some(end)
    }

    /// Returns the name as the client wrote it, without a final dot.
    pub fn name_text(&self) -> String {
        let mut text = String::new();
        // A string takes all text.
        let _ = write_text(self.question, &mut text);
        text
    }

    /// Returns the client's subnet, if the resolver tells it.
    pub fn subnet(&self) -> Option<&ClientSubnet> {
        self.edns.as_ref()?.subnet.as_ref()
    }
}

/// Returns the end of a name that may end with a pointer.
fn end_of_compressed(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    loop {
        let length = *bytes.get(end)?;
        match length & 0xc0 {
            0 if length == 0 => return Some(end + 1),
            0 => end += 1 + usize::from(length),
            0xc0 => return bytes.get(end + 1).map(|_| end + 2),
            _ => return None,
        }
        if end - at > crate::name::NAME_BYTES_MAX {
            return None;
        }
    }
}
