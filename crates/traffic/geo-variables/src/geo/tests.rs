//! Tests of tables.

use super::*;
use conf_syntax::{FileId, TreeItem, parse_file};

fn block(body: &str) -> (Result<GeoLookup, String>, Vec<String>) {
    let text = format!("geo $x {{ {body} }}");
    let items = parse_file(FileId(0), text.as_bytes());
    let Some(TreeItem::Directive(d)) = items.into_iter().next() else { panic!("no block") };
    let mut cx = Cx::default();
    let read = read(&mut cx, &d, None, true).map(|(l, _)| l).map_err(|p| format!("{:?}", p.words));
    (read, cx.warnings.into_iter().map(|w| w.text).collect())
}

fn found(lookup: &GeoLookup, address: &str) -> String {
    let address = (!address.is_empty()).then(|| address.parse().expect(address));
    let index = lookup.find(address);
    lookup.values.get(index as usize).map_or("-".into(), |v| String::from_utf8_lossy(v).into_owned())
}

#[test]
fn the_longest_prefix_decides() {
    let (lookup, warnings) = block(
        "default d; 10.0.0.0/8 a; 10.1.0.0/16 b; 10.1.2.3 c; 2001:db8::/32 v6; 255.255.255.255 none; \
         10.2.0.0/16 x; delete 10.2.0.0/16; 0.0.0.0/1 low;",
    );
    let lookup = lookup.expect("parses");
    assert!(warnings.is_empty(), "{warnings:?}");
    for (address, want) in [
        ("10.0.0.1", "a"),
        ("10.1.0.0", "b"),
        ("10.1.2.3", "c"),
        ("10.1.2.4", "b"),
        ("10.2.0.1", "a"),
        ("10.255.255.255", "a"),
        ("11.0.0.0", "low"),
        ("128.0.0.0", "d"),
        ("::ffff:10.1.2.3", "c"),
        ("2001:db8::7", "v6"),
        ("::1", "d"),
        ("", "none"),
    ] {
        assert_eq!(found(&lookup, address), want, "{address}");
    }
}

#[test]
fn without_a_default_nothing_holds_outside() {
    let lookup = block("127.0.0.0/8 x;").0.expect("parses");
    assert_eq!((found(&lookup, "127.1.1.1"), found(&lookup, "128.0.0.0")), ("x".into(), "-".into()));
    assert_eq!((found(&lookup, "126.255.255.255"), found(&lookup, "::1")), ("-".into(), "-".into()));
}

#[test]
fn ranges_with_holes_and_inserts() {
    let (lookup, warnings) = block(
        "ranges; default d; 10.0.0.0-10.2.255.255 a; 10.1.0.5-10.1.0.9 b; 10.1.0.0-10.1.0.1 c; \
         192.0.2.0-192.0.2.9 e; delete 192.0.2.0-192.0.2.9; 255.255.255.255-255.255.255.255 none;",
    );
    let lookup = lookup.expect("parses");
    assert!(warnings.is_empty(), "{warnings:?}");
    for (address, want) in [
        ("9.255.255.255", "d"),
        ("10.0.0.0", "a"),
        ("10.1.0.1", "c"),
        ("10.1.0.2", "a"),
        ("10.1.0.5", "b"),
        ("10.1.0.9", "b"),
        ("10.1.0.10", "a"),
        ("10.2.255.255", "a"),
        ("10.3.0.0", "d"),
        ("192.0.2.1", "d"),
        ("::1", "none"),
        ("", "none"),
    ] {
        assert_eq!(found(&lookup, address), want, "{address}");
    }
}

#[test]
fn complaints_in_nginx_words() {
    for (body, want) in [
        ("127.0.0.0/8 x; ranges;", "the \\\"ranges\\\" directive must be the first directive inside \\\"geo\\\" block"),
        ("x y;", "invalid network \\\"x\\\""),
        ("proxy x;", "invalid network \\\"x\\\""),
        ("a b c;", "invalid number of the geo parameters"),
        ("ranges; 10.0.0.1 x;", "invalid range \\\"10.0.0.1\\\""),
        ("ranges; 10.0.0.2-10.0.0.1 x;", "invalid range"),
        (
            "ranges; 10.0.0.5-10.0.0.9 x; 10.0.0.7-10.0.0.12 y;",
            "range \\\"10.0.0.7-10.0.0.12\\\" overlaps \\\"10.0.0.5-10.0.0.9\\\"",
        ),
    ] {
        let got = block(body).0.err().expect(body);
        assert!(got.contains(want), "{body}: {got}");
    }
    for (body, want) in [
        ("10.0.0.0/8 a; 10.0.0.0/8 b;", "duplicate network \"10.0.0.0/8\", value: \"b\", old value: \"a\""),
        ("10.0.0.1/8 a;", "low address bits of 10.0.0.1/8 are meaningless"),
        ("delete 10.0.0.0/8;", "no network \"10.0.0.0/8\" to delete"),
        ("ranges; delete 10.0.0.0-10.0.0.1;", "no address range \"10.0.0.0-10.0.0.1\" to delete"),
        ("ranges; default a; default b;", "duplicate default geo range value: \"b\", old value: \"a\""),
    ] {
        assert_eq!(block(body).1, [want], "{body}");
    }
}

#[test]
fn flattening_changes_nothing() {
    let mut seed: u64 = 7;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u32
    };
    for _ in 0..200 {
        let networks: Vec<(Cidr, u32)> = (0..20)
            .map(|value| {
                let bits = (next() % 33) as u8;
                let text = format!("{}/{bits}", Ipv4(next() & 0x0303_ffff));
                (Cidr::parse(text.as_bytes()).expect("a network").0, value)
            })
            .collect();
        let body: String = networks
            .iter()
            .map(|(n, v)| format!("{}/{} {v}; ", cidr::number_address(false, n.address), n.bits))
            .collect();
        let lookup = block(&body).0.expect("parses");
        for _ in 0..50 {
            let address = next() & 0x0303_ffff;
            let fits = networks.iter().filter(|(n, _)| n.contains(false, u128::from(address)));
            // The last of equal networks wins.
            let want = fits.max_by_key(|(n, v)| (n.bits, *v)).map_or("-".into(), |(_, v)| v.to_string());
            assert_eq!(found(&lookup, &Ipv4(address).to_string()), want);
        }
    }
}

struct Ipv4(u32);

impl std::fmt::Display for Ipv4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", std::net::Ipv4Addr::from_bits(self.0))
    }
}
