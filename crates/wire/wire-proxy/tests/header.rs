//! Headers as the protocol's text (haproxy.org, "The PROXY protocol", versions 1 and 2) and nginx have them.

use std::net::SocketAddr;

use wire_proxy::{
    Error, Header, MAX_HEADER, TlvError, TlvName, V1_MAX_HEADER, V2Writer, Version, parse_header, write_v1,
};

fn whole(bytes: &[u8]) -> (Header, usize) {
    match parse_header(bytes) {
        Ok(Some(found)) => found,
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    }
}

fn pair(source: &str, destination: &str) -> (SocketAddr, SocketAddr) {
    (source.parse().unwrap(), destination.parse().unwrap())
}

/// Section 2.1: the line, its words, its end.
#[test]
fn headers_of_version_1_are_parsed() {
    for (line, addresses) in [
        ("PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n", Some(("192.0.2.1:123", "192.0.2.2:5678"))),
        ("PROXY TCP6 2001:Db8::1 ::2 123 0\r\n", Some(("[2001:db8::1]:123", "[::2]:0"))),
        ("PROXY TCP4 ::1 ::2 1 65535\r\n", Some(("[::1]:1", "[::2]:65535"))),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN 1 2 3 4 5 6\r\n", None),
    ] {
        let mut bytes = line.as_bytes().to_vec();
        bytes.extend_from_slice(b"GET / HTTP/1.0\r\n\r\n");
        let (header, consumed) = whole(&bytes);
        assert_eq!((header.version, consumed), (Version::V1, line.len()));
        assert_eq!(header.addresses.map(|a| (a.source, a.destination)), addresses.map(|(s, d)| pair(s, d)), "{line}");
    }
}

#[test]
fn v1_broken() {
    for line in [
        "GET / HTTP/1.0\r\n",
        "PROXYTCP4 192.0.2.1 192.0.2.2 123 5678\r\n",
        "PROXY TCP5 192.0.2.1 192.0.2.2 123 5678\r\n",
        "PROXY TCP4  192.0.2.1 192.0.2.2 123 5678\r\n",
        "PROXY TCP4 192.0.2 192.0.2.2 123 5678\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 123\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 123 65536\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +123 5678\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678 \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\n",
        "PROXY tcp4 192.0.2.1 192.0.2.2 123 5678\r\n",
    ] {
        assert!(matches!(parse_header(line.as_bytes()), Err(Error::Broken(_))), "{line}");
    }
    let mut log = Vec::new();
    parse_header(b"BOGUS\r\nx").unwrap_err().log(&mut log);
    assert_eq!(log, b"broken header: \"BOGUS\"");
}

/// Without a line end no more can come behind 107 bytes, or behind all that is read for a header where the family is unknown.
#[test]
fn v1_limit() {
    for (start, max) in [("PROXY TCP4 ", V1_MAX_HEADER), ("PROXY UNKNOWN ", MAX_HEADER)] {
        let mut line = start.as_bytes().to_vec();
        line.resize(max - 1, b'1');
        assert_eq!(parse_header(&line), Ok(None), "{start}");
        line.push(b'1');
        assert!(parse_header(&line).is_err(), "{start}");
    }
    let mut line = b"PROXY UNKNOWN ".to_vec();
    line.resize(MAX_HEADER - 2, b'x');
    assert_eq!(whole(&[line.as_slice(), b"\r\n"].concat()).1, MAX_HEADER);
}

#[test]
fn v1_zeros_before_numbers() {
    let (header, _) = whole(b"PROXY TCP4 01.2.3.4 192.0.002.010 1 2\r\n");
    let addresses = header.addresses.expect("addresses");
    assert_eq!(
        (addresses.source.to_string(), addresses.destination.to_string()),
        ("1.2.3.4:1".into(), "192.0.2.10:2".into())
    );
    for bad in ["1.2.3", "1.2.3.4.5", "1.2.3.256", "1..2.3", "0x1.2.3.4", "1.2.3.+4"] {
        assert!(parse_header(format!("PROXY TCP4 {bad} 192.0.2.1 1 2\r\n").as_bytes()).is_err(), "{bad}");
    }
}

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend_from_slice(&[command, family, (body.len() >> 8) as u8, body.len() as u8]);
    bytes.extend_from_slice(body);
    bytes
}

/// Section 2.2: commands, families, transports.
#[test]
fn v2_families() {
    let four = [192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 22, 46];
    let (header, consumed) = whole(&v2(0x21, 0x11, &four));
    assert_eq!(consumed, 28);
    let found = header.addresses.unwrap();
    assert_eq!((found.source, found.destination), pair("192.0.2.1:123", "192.0.2.2:5678"));
    let mut six = [0; 36];
    (six[15], six[31], six[33], six[35]) = (1, 2, 3, 4);
    let found = whole(&v2(0x21, 0x21, &six)).0.addresses.unwrap();
    assert_eq!((found.source, found.destination), pair("[::1]:3", "[::2]:4"));
    // LOCAL, an unknown command, UDP, a Unix socket, no family: the connection as it is.
    for (command, family) in [(0x20, 0x11), (0x2f, 0x11), (0x21, 0x12), (0x21, 0x31), (0x21, 0x01)] {
        let (header, consumed) = whole(&v2(command, family, &four));
        assert_eq!((header.addresses, consumed), (None, 28), "{command:x} {family:x}");
    }
}

#[test]
fn v2_broken() {
    assert_eq!(parse_header(&v2(0x31, 0x11, &[])), Err(Error::UnknownVersion(3)));
    assert_eq!(parse_header(&v2(0x21, 0x11, &[0; 11])), Err(Error::Truncated));
    assert_eq!(parse_header(&v2(0x21, 0x21, &[0; 35])), Err(Error::Truncated));
    assert!(whole(&v2(0x21, 0x11, &[0; MAX_HEADER - 16])).1 == MAX_HEADER);
    assert_eq!(parse_header(&v2(0x21, 0x11, &[0; MAX_HEADER - 15])), Err(Error::TooLarge));
    // Said before the rest has come.
    assert_eq!(parse_header(&v2(0x21, 0x11, &[0; 5000])[..16]), Err(Error::TooLarge));
}

/// Section 2.2.1 to 2.2.7, by nginx's names.
#[test]
fn headers_have_tlvs() {
    let ssl = b"\x07\0\0\0\x01\x21\0\x07TLSv1.2\x22\0\x0bexample.com\x23\0\x02AA\x24\0\x02BB\x25\0\x02CC";
    let mut body = vec![0; 12];
    body.extend_from_slice(b"\x01\0\x05ALPN1\x02\0\x0aauthority1\x05\0\x02U1\x20\0");
    body.push(ssl.len() as u8);
    body.extend_from_slice(ssl);
    body.extend_from_slice(b"\x30\0\x02NS\xae\0\x03foo");
    let bytes = v2(0x21, 0x11, &body);
    let (header, _) = whole(&bytes);
    let value = |name: &str| {
        let mut out = Vec::new();
        let found = header.tlv(&bytes, TlvName::of(name)?, &mut out).unwrap();
        found.then(|| String::from_utf8(out).unwrap())
    };
    for (name, wanted) in [
        ("alpn", "ALPN1"),
        ("authority", "authority1"),
        ("unique_id", "U1"),
        ("netns", "NS"),
        ("0xae", "foo"),
        ("0xAE", "foo"),
        ("0x01", "ALPN1"),
        ("ssl_verify", "1"),
        ("ssl_version", "TLSv1.2"),
        ("ssl_cn", "example.com"),
        ("ssl_cipher", "AA"),
        ("ssl_sig_alg", "BB"),
        ("ssl_key_alg", "CC"),
        ("ssl_0x22", "example.com"),
    ] {
        assert_eq!(value(name).as_deref(), Some(wanted), "{name}");
    }
    assert_eq!(value("ssl").unwrap().len(), ssl.len());
    assert_eq!(header.ssl(&bytes).unwrap().unwrap().client, 7);
    for absent in ["0x04", "0x123", "ssl_0x99"] {
        assert_eq!(value(absent), None, "{absent}");
    }
    for unknown in ["", "0x", "0xg", "ssl_", "ssl_alpn", "nope", "ALPN"] {
        assert_eq!(TlvName::of(unknown), None, "{unknown}");
    }
}

#[test]
fn broken_tlvs() {
    for tail in [&b"\x02"[..], b"\x02\0", b"\x02\0\x05abcd"] {
        let bytes = v2(0x21, 0x11, &[&[0; 12], b"\x01\0\x01a".as_slice(), tail].concat());
        let (header, _) = whole(&bytes);
        let mut out = Vec::new();
        assert_eq!(header.tlv(&bytes, TlvName::Kind(1), &mut out), Ok(true));
        assert_eq!(header.tlv(&bytes, TlvName::Kind(2), &mut out), Err(TlvError));
    }
    let bytes = v2(0x21, 0x11, &[&[0; 12], b"\x20\0\x04\x01\0\0\0".as_slice()].concat());
    assert_eq!(whole(&bytes).0.ssl(&bytes), Err(TlvError));
}

#[test]
fn headers_are_written() {
    let mut out = Vec::new();
    write_v1(Some(pair("192.0.2.1:1", "192.0.2.2:80")), &mut out);
    write_v1(Some(pair("[2001:db8::1]:1", "[::1]:65535")), &mut out);
    write_v1(None, &mut out);
    let text = "PROXY TCP4 192.0.2.1 192.0.2.2 1 80\r\nPROXY TCP6 2001:db8::1 ::1 1 65535\r\nPROXY UNKNOWN\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), text);

    let local = V2Writer::new(None).finish().unwrap();
    assert_eq!(whole(&local), (Header { version: Version::V2, addresses: None, tlvs: 0..0 }, local.len()));
    for (from, to, family) in [
        ("192.0.2.1:1", "192.0.2.2:2", 0x11),
        ("[::1]:1", "[::2]:2", 0x21),
        ("[::1]:1", "192.0.2.2:2", 0x21),
        ("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:2", 0x11),
        ("[::ffff:192.0.2.1]:1", "192.0.2.2:2", 0x21),
    ] {
        let mut writer = V2Writer::new(Some(pair(from, to)));
        writer.authority(b"example.com").alpn(b"h2").ssl(1, 1, &[(0x21, b"TLSv1.3")]);
        let bytes = writer.finish().unwrap();
        let (header, consumed) = whole(&bytes);
        assert_eq!((bytes[13], consumed), (family, bytes.len()));
        let mut value = Vec::new();
        assert_eq!(header.tlv(&bytes, TlvName::of("ssl_version").unwrap(), &mut value), Ok(true));
        assert_eq!(value, b"TLSv1.3");
    }
    let mut writer = V2Writer::new(None);
    writer.tlv(0xe0, &[0; 5000]);
    assert_eq!(writer.finish(), None);
}

/// A seeded run of the fuzz target.
#[test]
fn mutated_headers_are_parsed() {
    let mut state = testkit::Random::new(0x2545_f491_4f6c_dd1d);
    let mut next = move |below: usize| state.below(below);
    let words: &[&[u8]] = &[
        b"PROXY ",
        b"TCP4 ",
        b"TCP6 ",
        b"UNKNOWN",
        b"192.0.2.1 ",
        b"::1 ",
        b"1 ",
        b"80",
        b"\r\n",
        b"\r",
        b"\n",
        b"\0\x0c",
        b"\0\x24",
        b"\x21",
        b"\x20",
        b"\x11",
        b"\x21\x11\0\x12\x01\x02\x03\x04\x05\x06\x07\x08\0\x50\0\x51\x01\0\x03abc",
        b"\x01\0\x01a",
        b"\xff",
        b"\r\n\r\n\0\r\nQUIT\n",
    ];
    for round in 0..20_000 {
        let mut input = Vec::new();
        match round % 3 {
            0 => input.extend_from_slice(b"\r\n\r\n\0\r\nQUIT\n"),
            1 => input.extend_from_slice(b"PROXY "),
            _ => {}
        }
        for _ in 0..next(12) {
            input.extend_from_slice(words[next(words.len())]);
        }
        wire_proxy::fuzzing::header(&input);
    }
}
