//! Answers of a zone, read by a reader of their own.

use crate::fuzzing::{Constant, zones};
use crate::record::{RecordType, parse_record};
use crate::*;
use std::net::IpAddr;

/// A query of class IN; `payload`: EDNS with this size.
pub(crate) fn question(name: &str, kind: u16, payload: Option<u16>) -> Vec<u8> {
    with_options(name, kind, payload, &[])
}

fn with_options(name: &str, kind: u16, payload: Option<u16>, options: &[u8]) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(payload.is_some())];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0, 1]);
    if let Some(payload) = payload {
        out.extend_from_slice(&[0, 0, 41]);
        out.extend_from_slice(&payload.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(options.len() as u16).to_be_bytes());
        out.extend_from_slice(options);
    }
    out
}

#[derive(Debug, PartialEq, Eq)]
struct TestResponse {
    flags: u16,
    question: String,
    /// Owner, type, TTL and data of the three sections.
    sections: [Vec<(String, u16, u32, Vec<u8>)>; 3],
}

impl TestResponse {
    fn code(&self) -> u16 {
        let upper = self.sections[2].iter().find(|record| record.1 == 41).map_or(0, |record| record.2 >> 24);
        self.flags & 15 | (upper as u16) << 4
    }
    fn is_authoritative(&self) -> bool {
        self.flags & 0x0400 != 0
    }
    fn addresses(&self) -> Vec<String> {
        let address = |record: &(String, u16, u32, Vec<u8>)| match record.3.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(&record.3[..]).expect("4")).to_string(),
            _ => IpAddr::from(<[u8; 16]>::try_from(&record.3[..]).expect("16")).to_string(),
        };
        self.sections[0].iter().filter(|record| matches!(record.1, 1 | 28)).map(address).collect()
    }
    fn owners(&self, section: usize) -> Vec<(&str, u16)> {
        self.sections[section].iter().map(|(owner, kind, ..)| (owner.as_str(), *kind)).collect()
    }
}

fn read_name(bytes: &[u8], mut at: usize) -> (String, usize) {
    let (mut labels, mut end) = (Vec::new(), None);
    loop {
        let length = usize::from(bytes[at]);
        if length >= 0xc0 {
            end.get_or_insert(at + 2);
            at = (length & 0x3f) << 8 | usize::from(bytes[at + 1]);
        } else if length == 0 {
            return (labels.join("."), end.unwrap_or(at + 1));
        } else {
            labels.push(String::from_utf8_lossy(&bytes[at + 1..][..length]).into_owned());
            at += 1 + length;
        }
    }
}

fn read(bytes: &[u8]) -> TestResponse {
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    assert_eq!(number(0), 0x1234, "the id");
    let (question, mut at) = read_name(bytes, 12);
    at += 4;
    let mut sections = [Vec::new(), Vec::new(), Vec::new()];
    for (section, records) in sections.iter_mut().enumerate() {
        for _ in 0..number(6 + 2 * section) {
            let (owner, end) = read_name(bytes, at);
            let ttl = u32::from(number(end + 4)) << 16 | u32::from(number(end + 6));
            let length = usize::from(number(end + 8));
            records.push((owner, number(end), ttl, bytes[end + 10..][..length].to_vec()));
            at = end + 10 + length;
        }
    }
    assert_eq!(at, bytes.len(), "nothing behind the records");
    TestResponse { flags: number(2), question, sections }
}

fn ask_zones(zones: &ServerZones, query: &[u8], transport: Transport) -> TestResponse {
    let query = Query::read(query).expect("a query");
    let mut out = Vec::new();
    answer_query(&query, zones, transport, &mut Constant, &mut out);
    read(&out)
}

fn ask(name: &str, kind: RecordType) -> TestResponse {
    ask_zones(&zones(), &question(name, kind.0, Some(1232)), Transport::Udp)
}

#[test]
fn records_have_the_case_of_the_question() {
    let said = ask("NS1.eXample.Org", RecordType::A);
    assert_eq!((said.code(), said.is_authoritative()), (0, true));
    assert_eq!(said.question, "NS1.eXample.Org");
    // Sets of addresses rotate.
    assert_eq!(said.addresses(), ["192.0.2.2", "192.0.2.1"]);
    assert_eq!(said.owners(0), [("NS1.eXample.Org", 1), ("NS1.eXample.Org", 1)]);
}

#[test]
fn absent_names_and_types_come_with_the_authority() {
    for (name, kind, code) in [
        ("none.example.org", RecordType::A, 3),
        ("ns1.example.org", RecordType::TXT, 0),
        ("b.c.example.org", RecordType::A, 0),
        ("x.a.b.c.example.org", RecordType::A, 3),
    ] {
        let said = ask(name, kind);
        assert_eq!((said.code(), said.is_authoritative()), (code, true), "{name}");
        assert_eq!((said.owners(0), said.owners(1)), (vec![], vec![("example.org", 6)]), "{name}");
        assert_eq!(said.sections[1][0].2, 60, "the negative time to live");
    }
}

#[test]
fn wildcards_answer_for_absent_names_only() {
    for (name, code, answers) in [
        ("a.wild.example.org", 0, 1),
        ("a.b.wild.example.org", 0, 1),
        // The wildcard's own parent has no records, and other names no wildcard.
        ("wild.example.org", 0, 0),
        ("*.wild.example.org", 0, 1),
        ("a.wildly.example.org", 3, 0),
    ] {
        let said = ask(name, RecordType::TXT);
        assert_eq!((said.code(), said.sections[0].len()), (code, answers), "{name}");
        assert!(said.owners(0).iter().all(|(owner, _)| *owner == name), "{name}");
    }
    assert_eq!(ask("a.wild.example.org", RecordType::A).owners(1), [("example.org", 6)], "no such type");
}

#[test]
fn aliases_are_followed_within_the_zone() {
    let said = ask("www.example.org", RecordType::A);
    assert_eq!(said.owners(0), [("www.example.org", 5), ("web.example.org", 1)]);
    assert_eq!(said.sections[0][1].2, 30);
    let said = ask("far.example.org", RecordType::A);
    assert_eq!((said.code(), said.owners(0)), (0, vec![("far.example.org", 5)]));
    assert_eq!(said.owners(1), []);
    assert_eq!(ask("www.example.org", RecordType::CNAME).owners(0), [("www.example.org", 5)]);
    // The code is that of the last name (RFC 6604).
    let said = ask("www.example.org", RecordType::TXT);
    assert_eq!((said.code(), said.owners(1)), (0, vec![("example.org", 6)]));
}

#[test]
fn delegations_name_their_servers_with_addresses() {
    for name in ["child.example.org", "a.b.child.example.org", "ns.child.example.org"] {
        let said = ask(name, RecordType::A);
        assert_eq!((said.code(), said.is_authoritative()), (0, false), "{name}");
        assert_eq!((said.owners(0), said.owners(1)), (vec![], vec![("child.example.org", 2)]), "{name}");
        assert_eq!(said.owners(2)[0], ("ns.child.example.org", 1), "{name}");
    }
    assert!(ask("child.example.org", RecordType::DS).is_authoritative(), "the parent answers for DS");
}

#[test]
fn names_in_data_bring_their_addresses() {
    assert_eq!(ask("example.org", RecordType::MX).owners(2), [("mail.example.org", 1), ("", 41)]);
    let said = ask("example.org", RecordType::NS);
    assert_eq!(said.sections[0].len(), 2);
    assert_eq!(said.sections[2].len(), 4, "two of type A, one AAAA, EDNS");
}

#[test]
fn refused_and_unknown_queries() {
    for (name, kind, code) in [
        ("example.com", RecordType::A, 5),
        ("org", RecordType::NS, 5),
        ("example.org", RecordType::AXFR, 5),
        ("example.org", RecordType::IXFR, 5),
        ("example.org", RecordType(250), 4),
        ("example.org", RecordType::OPT, 4),
    ] {
        let said = ask(name, kind);
        assert_eq!((said.code(), said.is_authoritative()), (code, false), "{name} {kind}");
    }
    let mut chaos = question("version.bind", 16, None);
    *chaos.last_mut().expect("a class") = 3;
    assert_eq!(ask_zones(&zones(), &chaos, Transport::Udp).code(), 5);
    let mut internal = question("example.org", 6, None);
    *internal.last_mut().expect("a class") = 255;
    assert_eq!(ask_zones(&zones(), &internal, Transport::Udp).code(), 5, "class ANY");
    let any = ask("example.org", RecordType::ANY);
    assert_eq!((any.owners(0), &any.sections[0][0].3[..]), (vec![("example.org", 13)], &b"\x07RFC8482\0"[..]));
    assert_eq!(ask("none.example.org", RecordType::ANY).code(), 3);
}

#[test]
fn messages_that_are_no_queries() {
    let good = question("example.org", 1, Some(1232));
    let with = |at: usize, octet: u8| {
        let mut bytes = good.clone();
        bytes[at] = octet;
        Query::read(&bytes).err()
    };
    let refused = |code| Some(UnreadQuery::Refused(code));
    assert_eq!(with(2, 0x80), Some(UnreadQuery::Dropped), "a response");
    assert_eq!(Query::read(&good[..11]).err(), Some(UnreadQuery::Dropped), "less than a header");
    assert_eq!(with(2, 4 << 3), refused(ResponseCode::NotImp), "NOTIFY");
    assert_eq!(with(2, 5 << 3), refused(ResponseCode::NotImp), "UPDATE");
    for (at, octet, why) in [
        (5, 0, "no question"),
        (5, 2, "two questions"),
        (7, 1, "an answer"),
        (9, 2, "two authorities"),
        (11, 2, "a record is missing"),
        (11, 0, "bytes behind the records"),
        (12, 0xc0, "a pointer"),
        (12, 64, "a long label"),
        (29, 1, "EDNS with a name"),
    ] {
        assert_eq!(with(at, octet), refused(ResponseCode::FormErr), "{why}");
    }
    for length in 12..good.len() {
        assert_eq!(Query::read(&good[..length]).err(), refused(ResponseCode::FormErr), "{length} bytes");
    }
    let mut twice = [&good[..], &good[29..]].concat();
    twice[11] = 2;
    assert_eq!(Query::read(&twice).err(), refused(ResponseCode::FormErr), "EDNS twice");
    let mut out = Vec::new();
    refuse_message(&good, ResponseCode::FormErr, &mut out);
    assert_eq!(out, [0x12, 0x34, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn edns_versions_and_flags() {
    let mut query = question("ns1.example.org", 1, Some(1232));
    let version_at = query.len() - 5;
    query[version_at] = 1;
    let said = ask_zones(&zones(), &query, Transport::Udp);
    assert_eq!((said.code(), said.sections[0].len()), (16, 0), "BADVERS");
    query[version_at] = 0;
    query[version_at + 1] = 0x80;
    let said = ask_zones(&zones(), &query, Transport::Udp);
    assert_eq!((said.code(), said.sections[2][0].2), (0, 0x8000), "DO is repeated");
    let said = ask_zones(&zones(), &question("ns1.example.org", 1, None), Transport::Udp);
    assert_eq!(said.sections[2], [], "EDNS only for clients that have it");
}

#[test]
fn answers_hold_for_the_subnet_on_which_they_depend() {
    let subnet = |family: u8, source: u8, octets: &[u8]| {
        [&[0, 8, 0, 4 + octets.len() as u8, 0, family, source, 0][..], octets].concat()
    };
    let scope = |name: &str, option: &[u8]| {
        let said = ask_zones(&zones(), &with_options(name, 1, Some(1232), option), Transport::Udp);
        let data = said.sections[2].iter().find(|record| record.1 == 41).expect("EDNS").3.clone();
        assert_eq!((&data[..7], &data[8..]), (&option[..7], &option[8..]), "the subnet is repeated");
        data[7]
    };
    let v4 = subnet(1, 24, &[198, 51, 100]);
    assert_eq!(scope("www.example.org", &v4), 24, "a pool, behind an alias");
    assert_eq!(scope("ns1.example.org", &v4), 0, "records hold for all");
    assert_eq!(scope("none.example.org", &v4), 0);
    assert_eq!(scope("web.example.org", &subnet(2, 56, &[0x20, 1, 0xd, 0xb8, 0, 0, 1])), 56);
    assert_eq!(scope("web.example.org", &subnet(1, 0, &[])), 0, "the client wants to stay unknown");
    assert_eq!(scope("web.example.org", &subnet(0, 0, &[])), 0);
    let read = with_options("a", 1, Some(512), &subnet(1, 20, &[198, 51, 0x60]));
    let address = Query::read(&read).expect("a query").subnet().and_then(|subnet| subnet.address);
    assert_eq!(address, Some(IpAddr::from([198, 51, 96, 0])));
    for wrong in [
        subnet(1, 33, &[1, 2, 3, 4, 5]),
        subnet(1, 24, &[198, 51]),
        subnet(1, 24, &[198, 51, 100, 0]),
        subnet(1, 20, &[198, 51, 0x64]),
        subnet(3, 8, &[1]),
        subnet(0, 8, &[1]),
        vec![0, 8, 0, 4, 0, 1, 0, 1],
        vec![0, 8, 0, 2, 0, 1],
        [subnet(1, 8, &[1]), subnet(1, 8, &[1])].concat(),
    ] {
        let bytes = with_options("a", 1, Some(512), &wrong);
        assert_eq!(Query::read(&bytes).err(), Some(UnreadQuery::Refused(ResponseCode::FormErr)), "{wrong:?}");
    }
}

#[test]
fn responses_beyond_the_size_of_datagrams_ask_for_tcp() {
    let query = |payload| question("big.example.org", 16, payload);
    for payload in [None, Some(0), Some(512), Some(4096)] {
        let said = ask_zones(&zones(), &query(payload), Transport::Udp);
        assert_eq!((said.flags & 0x0200, said.code(), said.sections[0].len()), (0x0200, 0, 0), "{payload:?}");
    }
    let said = ask_zones(&zones(), &query(None), Transport::Tcp);
    assert_eq!((said.flags & 0x0200, said.sections[0].len()), (0, 1));
    let bytes = query(Some(512));
    let mut out = Vec::new();
    truncate_answer(&Query::read(&bytes).expect("a query"), &mut out);
    assert_eq!((read(&out).flags & 0x0200, out.len()), (0x0200, bytes.len()), "no longer than the query");
}

#[test]
fn pools_without_servers() {
    struct Nothing(bool);
    impl Selector for Nothing {
        fn select(&mut self, _: usize, _: AddressFamily, _: &mut Vec<IpAddr>) -> Selection {
            Selection { by_place: false, failed: self.0 }
        }
        fn random(&mut self) -> u64 {
            0
        }
    }
    let bytes = question("web.example.org", 28, Some(1232));
    let said = |failed| {
        let mut out = Vec::new();
        answer_query(&Query::read(&bytes).expect("a query"), &zones(), Transport::Udp, &mut Nothing(failed), &mut out);
        read(&out)
    };
    assert_eq!((said(true).code(), said(true).owners(1)), (2, vec![]), "SERVFAIL");
    assert_eq!((said(false).code(), said(false).owners(1)), (0, vec![("example.org", 6)]), "no data");
}

#[test]
fn the_zone_with_the_most_labels_answers() {
    let zone = |name: &str| {
        let apex = DomainName::parse(name, None).expect("a name");
        let mut builder = ZoneBuilder::new(apex.clone(), 60);
        let data = parse_record(RecordType::NS, &["ns.example.net."], &apex).expect("data");
        builder.add(&apex, RecordType::NS, 60, data).expect("a record");
        builder.finish().expect("a zone").0
    };
    let mut all = ServerZones::default();
    assert!(all.add(zone("example.org")) && all.add(zone("a.example.org")) && !all.add(zone("Example.org")));
    let owner = |name: &str| ask_zones(&all, &question(name, 1, None), Transport::Udp).sections[1][0].0.clone();
    assert_eq!(owner("b.a.example.org"), "a.example.org");
    assert_eq!(owner("b.example.org"), "example.org");
}

#[test]
fn zones_whose_lines_contradict_each_other() {
    let refused = |lines: &[(&str, &str, &str)]| {
        let apex = DomainName::parse("example.org", None).expect("a name");
        let mut builder = ZoneBuilder::new(apex.clone(), 60);
        for (owner, kind, words) in lines.iter().chain(&[("@", "NS", "ns.example.net.")]) {
            let owner = DomainName::parse(owner, Some(&apex)).expect("a name");
            let words: Vec<&str> = words.split(' ').collect();
            let added = match *kind {
                "pool" => builder.add_pool(&owner, 60, 0),
                _ => {
                    let (kind, ttl) =
                        kind.split_once(' ').map_or((*kind, 60), |(kind, ttl)| (kind, ttl.parse().expect("a TTL")));
                    let kind = RecordType::of_line(kind).expect("a type");
                    builder.add(&owner, kind, ttl, parse_record(kind, &words, &apex).expect("data"))
                }
            };
            if let Err(fault) = added {
                return fault.reason;
            }
        }
        builder.finish().map_or_else(|fault| fault.reason, |(_, warnings)| format!("{} warnings", warnings.len()))
    };
    assert_eq!(refused(&[("a", "A", "192.0.2.1"), ("a", "TXT", "x")]), "0 warnings");
    assert_eq!(refused(&[("@", "NS", "ns1")]), "1 warnings", "a server without an address");
    for (lines, reason) in [
        (&[("a.example.net.", "A", "192.0.2.1")][..], "the name \"a.example.net.\" is outside of the zone"),
        (&[("a.*.b", "A", "192.0.2.1")], "\"*\" in \"a.*.b.example.org\" is not the first label"),
        (&[("@", "CNAME", "a")], "the zone's own name cannot be an alias"),
        (&[("a", "A", "192.0.2.1"), ("a", "CNAME", "b")], "\"a.example.org\" is an alias"),
        (&[("a", "CNAME", "b"), ("a", "TXT", "b")], "\"a.example.org\" is an alias"),
        (
            &[("a", "A", "192.0.2.1"), ("a", "A 30", "192.0.2.2")],
            "records of \"a.example.org\" and type A have different",
        ),
        (&[("a", "A", "192.0.2.1"), ("a", "A", "192.0.2.1")], "\"a.example.org\" has this A record already"),
        (&[("a", "A", "192.0.2.1"), ("a", "pool", "")], "\"a.example.org\" has a A record, and a pool"),
        (&[("a", "pool", ""), ("a", "AAAA", "::1")], "\"a.example.org\" has a pool, which answers"),
        (&[("a", "pool", ""), ("a", "pool", "")], "\"a.example.org\" has a pool already"),
        (&[("a", "CNAME", "b"), ("b", "CNAME", "a")], "the aliases of \""),
        (&[("a", "SOA", "ns host")], "an SOA record belongs to the zone's own name"),
        (&[("c", "NS", "ns.c"), ("x.c", "TXT", "x")], "\"x.c.example.org\" is delegated"),
        (&[("c", "NS", "ns.c"), ("c", "TXT", "x")], "\"c.example.org\" is delegated"),
        (&[("*", "NS", "ns.c")], "a wildcard cannot be delegated"),
    ] {
        let found = refused(lines);
        assert!(found.starts_with(reason), "{found}\n{reason}");
    }
    let apex = DomainName::parse("example.org", None).expect("a name");
    assert_eq!(
        ZoneBuilder::new(apex, 60).finish().expect_err("no servers").reason,
        "the zone \"example.org\" has no name servers"
    );
}
