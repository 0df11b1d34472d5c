//! Bodies of the fuzz targets: arbitrary bytes in, a panic when an invariant fails. Run under libFuzzer from `fuzz/`,
//! and with a seeded generator below.

use crate::verify::{Purpose, RevocationList, Trust, matches_host};
use crate::x509::{Certificate, name};
use crate::{Peek, ciphers, hello, key, pem};
use rustls::pki_types::CertificateDer;

/// A ClientHello is found only in complete input, and not earlier than announced.
pub fn client_hello(data: &[u8]) {
    let mut at = 0;
    while let Peek::More(missing) = hello::peek_hello(data.get(..at).unwrap_or_default()) {
        for early in at..at.saturating_add(missing).min(data.len()) {
            assert!(matches!(
                hello::peek_hello(data.get(..early).unwrap_or_default()),
                Peek::More(_) | Peek::NotTls | Peek::Broken(_)
            ));
        }
        at = at.saturating_add(missing);
        if at > data.len() {
            break;
        }
    }
    if let Peek::Hello(_) = hello::peek_hello(data) {
        for cut in (0..data.len()).rev().take(8) {
            let earlier = hello::peek_hello(data.get(..cut).unwrap_or_default());
            assert!(matches!(earlier, Peek::More(_) | Peek::Hello(_)), "{earlier:?}");
        }
    }
}

/// The first flight of a QUIC client takes bounded memory.
pub fn quic_first(data: &[u8]) {
    crate::quic::fuzz_first(data);
}

/// A cipher string selects each suite once, or fails.
pub fn cipher_string(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(list) = ciphers::evaluate_ciphers(text) {
        let mut ids: Vec<u16> = list.suites.iter().map(|s| s.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), list.suites.len());
        assert!(!ids.is_empty());
    }
}

/// A parsed certificate can be printed and verified, and is never trusted.
pub fn certificate(data: &[u8]) {
    let Ok(parsed) = Certificate::parse(CertificateDer::from(data.to_vec())) else { return };
    let _ = (name::format_rfc2253(parsed.subject()), name::format_oneline(parsed.issuer()), parsed.serial_hex());
    let _ = matches_host(&parsed, "a.example");
    let trust = Trust { depth: 3, ..Trust::default() };
    assert!(!trust.verify(&[parsed.clone(), parsed], 1_800_000_000, Purpose::Client).is_ok());
}

/// PEM blocks survive being written and read again; lists and keys can be read or fail.
pub fn pem_text(data: &[u8]) {
    if let Ok(blocks) = pem::parse_blocks(data) {
        for block in blocks {
            let again = pem::parse_blocks(pem::encode_block("X", &block.bytes).as_bytes()).unwrap_or_default();
            assert_eq!(again.first().map(|b| &b.bytes), Some(&block.bytes));
        }
    }
    let _ = RevocationList::all(data);
    let _ = key::load_key(data, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Authority;

    fn bend(seed: &[u8], rounds: u64, target: fn(&[u8])) {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = move |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n.max(1)
        };
        target(seed);
        for _ in 0..rounds {
            let mut bytes = seed.to_vec();
            for _ in 0..=draw(4) {
                let at = draw(bytes.len());
                match draw(4) {
                    0 => bytes.truncate(at),
                    1 if !bytes.is_empty() => bytes[at] = draw(256) as u8,
                    2 => bytes.insert(at, draw(256) as u8),
                    _ if !bytes.is_empty() => bytes[at] ^= 1 << draw(8),
                    _ => {}
                }
            }
            target(&bytes);
        }
    }

    #[test]
    fn bent_bytes_break_nothing() {
        let authority = Authority::new("root");
        let leaf = authority.server(&["a.example"]);
        bend(&leaf.certificate_der(), 20_000, certificate);
        bend(leaf.certificate.as_bytes(), 2_000, pem_text);
        bend(leaf.key.as_bytes(), 500, pem_text);
        bend(b"HIGH:!aNULL:+RSA:-ECDHE+AESGCM:@STRENGTH:DEFAULT", 500, cipher_string);
        let clock: crate::Clock = std::sync::Arc::new(|| 1_800_000_000);
        let rules =
            crate::ClientRules::build(&crate::ClientSettings::default(), &clock, &mut Vec::new()).expect("rules");
        let target = crate::Target { peer: "p".into(), name: "a.example".into(), send_name: true, alpn: Vec::new() };
        let client = crate::TlsStream::client(&rules, &target, None).expect("a client");
        bend(client.output(), 200, client_hello);
    }
}
