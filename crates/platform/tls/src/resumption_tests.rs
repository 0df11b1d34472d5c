//! Tests of what sessions remember and forget, and of certificates that a client of TLS 1.2 cannot verify.

use super::*;

fn tls12(settings: &ServerSettings) -> ServerSettings {
    ServerSettings { protocols: Protocols { tls12: true, tls13: false, older: false }, ..settings.clone() }
}

#[test]
fn a_resumed_session_of_tls_1_2_keeps_its_key_exchange() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let cache = SessionStore::Cache(Arc::new(SessionCache::new(1 << 20)));
    let tickets = Some(Arc::new(TicketKeys::automatic()));
    for (sessions, tickets) in [(cache, None), (SessionStore::None, tickets)] {
        let settings = ServerSettings { sessions, tickets, groups: "secp384r1".into(), ..tls12(&settings) };
        let rules = rules(&settings, &clock);
        let client = client_rules(&verifying(&authority), &clock);
        // A client replaces its ticket by that of the resumption.
        for resumed in [false, true, true] {
            let mut pair = StreamPair::new(always(&rules), &client, &target("localhost"));
            pair.exchange();
            assert_eq!((pair.facts().resumed, pair.facts().curve.as_deref()), (resumed, Some("secp384r1")));
            assert_eq!(pair.facts().curves().is_empty(), resumed);
        }
    }
}

#[test]
fn tickets_of_refused_clients_resume_and_are_refused_again() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let other = Authority::new("other");
    let settings = ServerSettings {
        tickets: Some(Arc::new(TicketKeys::automatic())),
        verify: VerifyClient::Optional,
        client_authorities: vec![authority.certificate()],
        ..settings
    };
    let rules = rules(&settings, &clock);
    let certificate = Some(other.client("user").pair());
    let client = client_rules(&ClientSettings { certificate, ..verifying(&authority) }, &clock);
    for resumed in [false, true] {
        let mut pair = StreamPair::new(always(&rules), &client, &target("localhost"));
        pair.exchange();
        assert_eq!(pair.facts().resumed, resumed);
        assert_eq!(pair.facts().client_verify(), "FAILED:unable to verify the first certificate");
    }
}

#[test]
fn optional_no_ca_keeps_sessions_of_unknown_authorities() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let other = Authority::new("other");
    let settings = ServerSettings {
        sessions: SessionStore::Cache(Arc::new(SessionCache::new(1 << 20))),
        verify: VerifyClient::OptionalNoCa,
        client_authorities: vec![authority.certificate()],
        ..settings
    };
    let rules = rules(&settings, &clock);
    let certificate = Some(other.client("user").pair());
    let client = client_rules(&ClientSettings { certificate, ..verifying(&authority) }, &clock);
    assert!(twice(&rules, &rules, &client).0);
}

#[test]
fn a_connection_that_fails_later_is_not_handshaking() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let rules = rules(&settings, &clock);
    let mut pair = StreamPair::new(always(&rules), &client_rules(&verifying(&authority), &clock), &target("localhost"));
    pair.exchange();
    assert!(pair.server.receive(&mut [23, 3, 3, 0, 1, 0], &mut Vec::new()).is_err());
    assert!(!pair.server.is_handshaking());
}

#[test]
fn a_client_of_tls_1_2_gets_no_certificate_of_a_curve_that_it_does_not_list() {
    let (clock, _) = clock();
    let (_, settings) = simple();
    let settings = tls12(&settings);
    let client = |groups: &str| ClientSettings { groups: groups.into(), ..ClientSettings::default() };
    let only_x25519 = client_rules(&client("X25519"), &clock);
    let mut pair = StreamPair::new(always(&rules(&settings, &clock)), &only_x25519, &target("localhost"));
    assert_eq!(pair.run(), Err(TlsError::NoSharedCipher));
    let listed = client_rules(&client("X25519:prime256v1"), &clock);
    StreamPair::new(always(&rules(&settings, &clock)), &listed, &target("localhost")).exchange();
    // TLS 1.3 has the curve in the signature scheme.
    let newer = ServerSettings { protocols: Protocols::default(), ..settings.clone() };
    StreamPair::new(always(&rules(&newer, &clock)), &only_x25519, &target("localhost")).exchange();
    // An RSA certificate beside it is taken instead.
    let Some(rsa) = openssl_v1("curve") else { return };
    let mut certificates = settings.certificates.clone();
    certificates.push(rsa.pair());
    let both = rules(&ServerSettings { certificates, ..settings }, &clock);
    let mut pair = StreamPair::new(always(&both), &only_x25519, &target("localhost"));
    pair.exchange();
    assert!(pair.facts().cipher.starts_with("ECDHE-RSA-"), "{}", pair.facts().cipher);
}
