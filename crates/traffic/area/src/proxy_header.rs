//! PROXY protocol headers of version 2 for servers behind stream and mail sessions (nginx: `ngx_proxy_protocol_v2_write`).

use std::net::SocketAddr;
use tls::Facts;
use wire_proxy::V2Writer;

/// Flags and subtypes of the SSL field, and OpenSSL's numbers for its verification result.
const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERT_CONN: u8 = 0x02;
const CLIENT_CERT_SESS: u8 = 0x04;
const VERSION: u8 = 0x21;
const COMMON_NAME: u8 = 0x22;
const CIPHER: u8 = 0x23;
const UNSPECIFIED: u32 = 1;
const REVOKED: u32 = 23;

/// Returns a header with the client's and the server's address, and with the facts of the client's TLS connection: server name,
/// ALPN protocol, version, cipher, and name and verification result of its certificate. `None` if they exceed the maximum length.
/// `has_datagrams`: the client's are datagrams.
///
/// nginx also writes the algorithms of its own certificate.
pub fn version_2(
    addresses: Option<(SocketAddr, SocketAddr)>,
    facts: Option<&Facts>,
    has_datagrams: bool,
) -> Option<Vec<u8>> {
    let mut writer = V2Writer::new(addresses);
    if has_datagrams {
        writer.datagrams();
    }
    let Some(facts) = facts else { return writer.finish() };
    if let Some(name) = &facts.server_name {
        writer.authority(name.as_bytes());
    }
    if let Some(protocol) = facts.alpn.as_deref().filter(|protocol| !protocol.is_empty()) {
        writer.alpn(protocol);
    }
    let (mut client, mut verify) = (CLIENT_SSL, UNSPECIFIED);
    let mut common_name = None;
    if let Some(peer) = &facts.peer {
        client |= CLIENT_CERT_SESS | if facts.resumed { 0 } else { CLIENT_CERT_CONN };
        verify = match peer.verdict.is_ok() {
            true if peer.asked.get().copied().flatten().is_some() => REVOKED,
            _ => u32::from(peer.verdict.0),
        };
        common_name = tls::x509::name::common_names(peer.certificate.subject()).into_iter().next();
    }
    let fields = [(VERSION, Some(facts.protocol)), (COMMON_NAME, common_name.as_deref()), (CIPHER, Some(facts.cipher))];
    let fields: Vec<(u8, &[u8])> =
        fields.iter().filter_map(|(kind, value)| Some((*kind, value.as_ref()?.as_bytes()))).collect();
    writer.ssl(client, verify, &fields);
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(facts: Option<&Facts>) -> (wire_proxy::Header, Vec<u8>) {
        let pair = ("10.0.0.1:1000".parse().expect("client"), "10.0.0.2:993".parse().expect("server"));
        let bytes = version_2(Some(pair), facts, false).expect("fits");
        let (header, length) = wire_proxy::parse_header(&bytes).expect("valid").expect("whole");
        assert_eq!(length, bytes.len());
        (header, bytes)
    }

    #[test]
    fn datagrams_have_their_own_transport() {
        let start = |addresses: Option<[&str; 2]>, has_datagrams| {
            let pair = addresses.map(|pair| pair.map(|address| address.parse().expect("an address")).into());
            version_2(pair, None, has_datagrams).and_then(|bytes| bytes.get(12..14).map(<[u8]>::to_vec))
        };
        let (v4, v6) = (Some(["10.0.0.1:1", "10.0.0.2:2"]), Some(["[::1]:1", "[::2]:2"]));
        assert_eq!([start(v4, false), start(v6, false)], [Some(vec![0x21, 0x11]), Some(vec![0x21, 0x21])]);
        assert_eq!([start(v4, true), start(v6, true)], [Some(vec![0x21, 0x12]), Some(vec![0x21, 0x22])]);
        assert_eq!(start(None, true), Some(vec![0x20, 0]));
    }

    #[test]
    fn the_facts_of_tls_are_fields() {
        let facts = Facts {
            protocol: "TLSv1.3",
            cipher: "TLS_AES_128_GCM_SHA256",
            server_name: Some("mx.example".into()),
            alpn: Some(b"imap"[..].into()),
            ..Facts::default()
        };
        let (header, bytes) = read(Some(&facts));
        let find = |kind| header.tlvs(&bytes).find(kind);
        assert_eq!(find(0x02), Ok(Some(&b"mx.example"[..])));
        assert_eq!(find(0x01), Ok(Some(&b"imap"[..])));
        let info = header.ssl(&bytes).expect("valid").expect("an SSL field");
        assert_eq!((info.client, info.verify), (CLIENT_SSL, UNSPECIFIED));
        assert_eq!(info.tlvs().find(VERSION), Ok(Some(&b"TLSv1.3"[..])));
        assert_eq!(info.tlvs().find(CIPHER), Ok(Some(&b"TLS_AES_128_GCM_SHA256"[..])));
        assert_eq!(info.tlvs().find(COMMON_NAME), Ok(None));
    }

    #[test]
    fn a_client_certificate_has_a_name_and_a_result() {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "client.example");
        let made = params.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("made");
        let certificate = tls::x509::Certificate::parse(made.der().clone()).expect("a certificate");
        let peer = |verdict| {
            let (certificate, path, asked) = (certificate.clone(), Vec::new(), std::sync::OnceLock::new());
            Some(Box::new(tls::PeerCertificate { certificate, verdict, path, asked }))
        };
        let ssl = |facts: &Facts| {
            let (header, bytes) = read(Some(facts));
            let info = header.ssl(&bytes).expect("valid").expect("an SSL field");
            assert_eq!(info.tlvs().find(COMMON_NAME), Ok(Some(&b"client.example"[..])));
            (info.client, info.verify)
        };
        let mut facts = Facts { peer: peer(tls::verify::VerifyVerdict::OK), ..Facts::default() };
        assert_eq!(ssl(&facts), (7, 0));
        facts.resumed = true;
        assert_eq!(ssl(&facts), (5, 0));
        let _ = facts.peer.as_ref().expect("it").asked.set(Some("certificate revoked"));
        assert_eq!(ssl(&facts), (5, REVOKED));
        facts.peer = peer(tls::verify::VerifyVerdict::SELF_SIGNED);
        assert_eq!(ssl(&facts), (5, 18));
    }

    #[test]
    fn a_connection_in_clear_has_addresses_only() {
        let (header, bytes) = read(None);
        assert_eq!(header.ssl(&bytes).map(|info| info.is_none()), Ok(true));
        assert_eq!(header.tlvs(&bytes).find(0x02), Ok(None));
    }
}
