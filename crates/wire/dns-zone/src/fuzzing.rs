//! Body of the fuzz target `dns_query`: arbitrary bytes as a query to a zone with all kinds of records.

#![allow(clippy::indexing_slicing, clippy::expect_used, reason = "a panic is the failure that the fuzz target reports")]

use crate::query::HEADER_BYTES;
use crate::record::{RecordType, parse_record};
use crate::{
    AddressFamily, DomainName, Query, ResponseCode, Selection, Selector, ServerZones, Transport, UnreadQuery,
    ZoneBuilder, answer_query, refuse_message,
};
use std::net::IpAddr;
use std::sync::LazyLock;

const LINES: &[(&str, &str, &str)] = &[
    ("@", "NS", "ns1 ns.example.net."),
    ("@", "MX", "10 mail"),
    ("ns1", "A", "192.0.2.1 192.0.2.2"),
    ("ns1", "AAAA", "2001:db8::1"),
    ("mail", "A", "192.0.2.3"),
    ("www", "CNAME", "web"),
    ("far", "CNAME", "web.example.net."),
    ("*.wild", "TXT", "any"),
    ("a.b.c", "TXT", "deep"),
    ("child", "NS", "ns.child"),
    ("ns.child", "A", "192.0.2.4"),
    ("@", "HTTPS", "1 . alpn=h2"),
    ("_s._tcp", "SRV", "1 2 443 web"),
    ("big", "TXT", "x"),
];

/// Zone `example.org`, whose name `web` has a pool.
pub(crate) fn zones() -> ServerZones {
    let apex = DomainName::parse("example.org", None).expect("a name");
    let mut builder = ZoneBuilder::new(apex.clone(), 300);
    for (owner, kind, words) in LINES {
        let owner = DomainName::parse(owner, Some(&apex)).expect("a name");
        let kind = RecordType::of_line(kind).expect("a type");
        let long = "x".repeat(3000);
        let words: Vec<&str> = words.split(' ').map(|word| if word == "x" { long.as_str() } else { word }).collect();
        builder.add(&owner, kind, 300, parse_record(kind, &words, &apex).expect("data")).expect("a record");
    }
    builder.add_pool(&DomainName::parse("web", Some(&apex)).expect("a name"), 30, 0).expect("a pool");
    let mut zones = ServerZones::default();
    assert!(zones.add(builder.finish().expect("a zone").0), "the first zone");
    zones
}

/// Selects the same addresses always.
pub(crate) struct Constant;

impl Selector for Constant {
    fn select(&mut self, _: usize, _: AddressFamily, out: &mut Vec<IpAddr>) -> Selection {
        out.extend([IpAddr::from([192, 0, 2, 10]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 16])]);
        Selection { by_place: true, failed: false }
    }
    fn random(&mut self) -> u64 {
        1
    }
}

/// Panics unless every response has the query's id and question, fits its transport, and is none to a response.
pub fn dns_query(data: &[u8]) {
    static ZONES: LazyLock<ServerZones> = LazyLock::new(zones);
    let query = match Query::read(data) {
        Ok(query) => query,
        Err(UnreadQuery::Dropped) => return,
        Err(UnreadQuery::Refused(code)) => {
            let mut out = Vec::new();
            refuse_message(data, code, &mut out);
            assert!(out.len() == HEADER_BYTES && out[2] & 0x80 != 0, "a header of a response");
            return;
        }
    };
    let mut sizes = Vec::new();
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut out = Vec::new();
        let summary = answer_query(&query, &ZONES, transport, &mut Constant, &mut out);
        let payload = query.edns.as_ref().map_or(512, |edns| usize::from(edns.payload).clamp(512, 1232));
        assert!(transport == Transport::Tcp || out.len() <= payload, "{} bytes", out.len());
        assert!(transport == Transport::Udp || !summary.truncated, "over TCP");
        assert_eq!(out[..2], data[..2], "the id");
        assert!(out[HEADER_BYTES..].starts_with(query.question), "the question, in its case");
        assert_eq!(summary.truncated, out[2] & 2 != 0);
        assert_eq!(out[3] & 15, (summary.code.number() & 15) as u8);
        assert_eq!(Query::read(&out).err(), Some(UnreadQuery::Dropped), "responses are not answered");
        if summary.code == ResponseCode::Refused {
            assert!(out.len() <= data.len() + 11, "no amplification");
        }
        sizes.push(out.len());
    }
    assert!(sizes[0] <= sizes[1], "{sizes:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::question;

    #[test]
    fn queries_with_changed_bytes() {
        let good: Vec<Vec<u8>> = ["www.example.org", "a.wild.example.org", "big.example.org", "x.child.example.org"]
            .iter()
            .flat_map(|name| [question(name, 1, Some(4096)), question(name, 16, None), question(name, 255, Some(512))])
            .collect();
        let mut random = testkit::Random::new(0x9E37_79B9_7F4A_7C15);
        let mut read = 0;
        for _ in 0..50_000 {
            let mut bytes = good[random.below(good.len())].clone();
            for _ in 0..random.below(4usize) {
                let at = random.below(bytes.len());
                bytes[at] = random.octet();
            }
            if random.chance(10) {
                bytes.truncate(random.below(bytes.len()));
            }
            read += usize::from(Query::read(&bytes).is_ok());
            dns_query(&bytes);
        }
        assert!(read > 1000, "only {read} of them were read");
    }
}
