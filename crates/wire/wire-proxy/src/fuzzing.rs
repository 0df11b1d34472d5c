//! Body of the fuzz target: arbitrary bytes in, a panic when an invariant fails.

#![allow(clippy::indexing_slicing, clippy::expect_used, reason = "a panic is what a fuzz target is for")]

use crate::{MAX_HEADER, TlvName, V2Writer, Version, parse_header, write_v1};

/// A header ends at the earliest completing byte, regardless of later ones, and equals itself when written again.
pub fn header(data: &[u8]) {
    let whole = parse_header(data);
    let prefix = (0..=data.len()).find_map(|end| match parse_header(&data[..end]) {
        Ok(None) => None,
        other => Some(other),
    });
    match (&whole, prefix.unwrap_or(Ok(None))) {
        (Err(_), early) => assert!(early.is_err()),
        (Ok(whole), early) => assert_eq!(Ok(whole), early.as_ref()),
    }
    let Ok(Some((header, consumed))) = whole else {
        assert!(whole.is_err() || data.len() < MAX_HEADER);
        return;
    };
    assert!(consumed <= data.len().min(MAX_HEADER));
    for name in ["alpn", "ssl", "ssl_verify", "ssl_cn", "0x05", "ssl_0x21", "0xfff"] {
        let _ = header.tlv(data, TlvName::of(name).expect("a known name"), &mut Vec::new());
    }
    let Some(addresses) = header.addresses else {
        assert!(header.tlvs.is_empty());
        return;
    };
    let pair = (addresses.source, addresses.destination);
    let mut again = Vec::new();
    match header.version {
        Version::V1 => write_v1(Some(pair), &mut again),
        Version::V2 => {
            let mut writer = V2Writer::new(Some(pair));
            for tlv in header.tlvs(data).map_while(Result::ok) {
                writer.tlv(tlv.kind, tlv.value);
            }
            match writer.finish() {
                Some(bytes) => again = bytes,
                None => return,
            }
        }
    }
    let (read, _) = parse_header(&again).expect("our own header").expect("a whole header");
    let canonical = |a: std::net::SocketAddr| (a.ip().to_canonical(), a.port());
    let read = read.addresses.expect("addresses");
    assert_eq!(canonical(read.source), canonical(pair.0));
    assert_eq!(canonical(read.destination), canonical(pair.1));
}
