//! Variables of a query and its response, for logs and for the choice of a pool.

use crate::Builtin;
use crate::session::StreamSession;
use dns_zone::record::RecordType;
use dns_zone::{ClientSubnet, Query, ResponseCode};
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use upstream::Group;

/// Facts of a query, kept by its session.
pub struct QueryFacts {
    name: String,
    kind: RecordType,
    subnet: Option<ClientSubnet>,
    /// Address that decides on the place.
    client: Option<IpAddr>,
}

impl QueryFacts {
    /// `peer`: the resolver, whose place counts if it tells no subnet.
    pub fn new(query: &Query<'_>, peer: Option<IpAddr>) -> QueryFacts {
        let subnet = query.subnet().copied();
        let client = subnet.and_then(|subnet| subnet.address).or(peer);
        QueryFacts { name: query.name_text(), kind: RecordType(query.kind), subnet, client }
    }
}

/// Facts of a response, kept by its session.
pub struct ResponseFacts {
    pub code: ResponseCode,
    pub zone: Option<String>,
    /// Group whose servers were answered.
    pub group: Option<Arc<Group>>,
}

pub static ROWS: &[Builtin] = &[
    Builtin::one("dns_name", name, "The name that a DNS query asks for, as the client wrote it."),
    Builtin::one("dns_type", kind, "The type that a DNS query asks for, such as `A` or `TYPE99`."),
    Builtin::one("dns_response_code", code, "The code of a DNS response, such as `NOERROR` or `NXDOMAIN`."),
    Builtin::one(
        "dns_client_subnet",
        subnet,
        "The client's subnet that a resolver tells in its query (EDNS), such as `192.0.2.0/24`.",
    ),
    Builtin::one(
        "dns_client_address",
        client,
        "The address of the client's subnet, or the resolver's address if it tells none: the source for `geo` and `geoip2`.",
    ),
    Builtin::one("dns_zone", zone, "The zone that answered a DNS query."),
    Builtin::one("dns_pool", pool, "The group whose servers a DNS response names."),
];

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) -> bool {
    out.write_fmt(text).is_ok()
}

fn name(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    s.ext::<QueryFacts>().is_some_and(|query| write(out, format_args!("{}", query.name)))
}

fn kind(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    s.ext::<QueryFacts>().is_some_and(|query| write(out, format_args!("{}", query.kind)))
}

fn subnet(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    let subnet = s.ext::<QueryFacts>().and_then(|query| query.subnet);
    let Some((subnet, address)) = subnet.and_then(|subnet| Some((subnet, subnet.address?))) else { return false };
    write(out, format_args!("{address}/{}", subnet.source_bits))
}

fn client(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    let address = s.ext::<QueryFacts>().and_then(|query| query.client);
    address.is_some_and(|address| write(out, format_args!("{address}")))
}

fn code(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    s.ext::<ResponseFacts>().is_some_and(|response| write(out, format_args!("{}", response.code.text())))
}

fn zone(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    let zone = s.ext::<ResponseFacts>().and_then(|response| response.zone.as_ref());
    zone.is_some_and(|zone| write(out, format_args!("{zone}")))
}

fn pool(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    let group = s.ext::<ResponseFacts>().and_then(|response| response.group.as_ref());
    group.is_some_and(|group| write(out, format_args!("{}", group.name)))
}
