//! Tests of both roles in memory: handshakes, records cut at every byte, resumption, early data, refusals.

use super::*;
use crate::server::{ServerSettings, SessionStore};
use crate::testing::{Authority, openssl_v1};
use crate::verify::VerifyVerdict;
use crate::{ClientSettings, Clock, Protocols, SessionCache, TicketKeys};
use std::sync::atomic::{AtomicU64, Ordering};

fn clock() -> (Clock, Arc<AtomicU64>) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    // Certificates created during the test are valid.
    let now = now + 60;
    let time = Arc::new(AtomicU64::new(now));
    let read = Arc::clone(&time);
    (Arc::new(move || read.load(Ordering::Relaxed)), time)
}

fn rules(settings: &ServerSettings, clock: &Clock) -> Arc<ServerRules> {
    ServerRules::build(settings, clock, &mut Vec::new()).expect("rules")
}

#[path = "alert_tests.rs"]
mod alerts;
#[path = "resumption_tests.rs"]
mod resumption;

type Chooser = Arc<dyn Fn(&ClientHello) -> Choice>;

fn give(
    server: &mut TlsStream,
    chooser: &Chooser,
    bytes: &mut [u8],
    plain: &mut Vec<u8>,
) -> Result<ReceivedBytes, TlsError> {
    let received = server.receive(bytes, plain)?;
    if !received.hello {
        return Ok(received);
    }
    let choice = chooser(server.hello().expect("a hello"));
    server.choose(choice, false, plain)
}

fn always(rules: &Arc<ServerRules>) -> Chooser {
    let rules = Arc::clone(rules);
    Arc::new(move |_| Choice::Rules(Arc::clone(&rules)))
}

fn client_rules(settings: &ClientSettings, clock: &Clock) -> Arc<ClientRules> {
    ClientRules::build(settings, clock, &mut Vec::new()).expect("rules")
}

fn target(name: &str) -> Target {
    Target { peer: "127.0.0.1:443".into(), name: name.into(), send_name: true, alpn: Vec::new() }
}

struct StreamPair {
    chooser: Chooser,
    server: TlsStream,
    client: TlsStream,
    at_server: Vec<u8>,
    at_client: Vec<u8>,
    early: bool,
    /// Octets per `receive`.
    cut: usize,
}

impl StreamPair {
    fn new(chooser: Chooser, rules: &ClientRules, target: &Target) -> StreamPair {
        let client = TlsStream::client(rules, target, None).expect("a client");
        let server = TlsStream::server();
        StreamPair {
            chooser,
            server,
            client,
            at_server: Vec::new(),
            at_client: Vec::new(),
            early: false,
            cut: usize::MAX,
        }
    }

    fn run(&mut self) -> Result<(), TlsError> {
        loop {
            let (to_server, to_client) = (self.client.output().to_vec(), self.server.output().to_vec());
            if to_server.is_empty() && to_client.is_empty() {
                return Ok(());
            }
            self.client.advance(to_server.len());
            self.server.advance(to_client.len());
            let mut result = Ok(());
            for part in to_server.chunks(self.cut) {
                match give(&mut self.server, &self.chooser, &mut part.to_vec(), &mut self.at_server) {
                    Ok(received) => self.early |= received.early,
                    Err(why) => result = result.and(Err(why)),
                }
            }
            for part in to_client.chunks(self.cut) {
                if let Err(why) = self.client.receive(&mut part.to_vec(), &mut self.at_client) {
                    result = result.and(Err(why));
                }
            }
            if result.is_err() {
                let alert = self.server.output().to_vec();
                self.server.advance(alert.len());
                let _ = self.client.receive(&mut alert.clone(), &mut self.at_client);
                return result;
            }
        }
    }

    fn exchange(&mut self) {
        self.run().expect("a handshake");
        self.client.send(&[IoSlice::new(b"ask")]).expect("sent");
        self.server.send(&[IoSlice::new(b"ans"), IoSlice::new(b"wer")]).expect("sent");
        self.run().expect("carried");
        assert_eq!((&self.at_server[..], &self.at_client[..]), (&b"ask"[..], &b"answer"[..]));
    }

    fn facts(&self) -> &Facts {
        self.server.facts().expect("a handshake")
    }
}

fn simple() -> (Authority, ServerSettings) {
    let authority = Authority::new("root");
    let settings =
        ServerSettings { certificates: vec![authority.server(&["localhost"]).pair()], ..ServerSettings::default() };
    (authority, settings)
}

fn verifying(authority: &Authority) -> ClientSettings {
    ClientSettings { verify: true, trusted: vec![authority.certificate()], ..ClientSettings::default() }
}

#[test]
fn both_versions_carry_bytes_however_they_are_cut() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    for (tls12, tls13, protocol) in [(true, true, "TLSv1.3"), (true, false, "TLSv1.2")] {
        let settings = ServerSettings { protocols: Protocols { tls12, tls13, older: false }, ..settings.clone() };
        let rules = rules(&settings, &clock);
        for cut in [1, 2, 3, 5, 7, 100, 4096, usize::MAX] {
            let client = client_rules(&verifying(&authority), &clock);
            let mut pair = StreamPair::new(always(&rules), &client, &target("localhost"));
            pair.cut = cut;
            pair.exchange();
            assert_eq!(pair.facts().protocol, protocol);
            assert_eq!(pair.facts().server_name.as_deref(), Some("localhost"));
            assert_eq!(pair.facts().curve.as_deref(), Some(if tls13 { "X25519MLKEM768" } else { "X25519" }));
            assert!(
                pair.facts().cipher.ends_with("AES256-GCM-SHA384") || pair.facts().cipher.starts_with("TLS_AES_256")
            );
            assert!(!pair.facts().resumed);
            let body: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
            pair.at_client.clear();
            pair.server.send(&[IoSlice::new(b"head"), IoSlice::new(&body), IoSlice::new(b"tail")]).expect("sent");
            pair.run().expect("carried");
            assert_eq!(pair.at_client, [&b"head"[..], &body, b"tail"].concat(), "{cut}");
            pair.server.close_notify().expect("closed");
            pair.run().expect("carried");
            assert!(!pair.client.wants_read());
            pair.client.close_notify().expect("closed");
            pair.run().expect("carried");
            assert!(!pair.server.wants_read());
        }
    }
}

#[test]
fn output_can_be_written_in_parts() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let client = client_rules(&verifying(&authority), &clock);
    let mut pair = StreamPair::new(always(&rules(&settings, &clock)), &client, &target("localhost"));
    pair.exchange();
    pair.at_client.clear();
    pair.server.send(&[IoSlice::new(&[7; 40_000])]).expect("sent");
    let mut steps = 0;
    while pair.server.wants_write() {
        let mut part = pair.server.output()[..pair.server.output().len().min(999)].to_vec();
        pair.server.advance(part.len());
        pair.client.receive(&mut part, &mut pair.at_client).expect("taken");
        if steps == 3 {
            pair.server.send(&[IoSlice::new(b"end")]).expect("sent");
        }
        steps += 1;
    }
    assert!(steps > 40);
    assert_eq!(pair.at_client.len(), 40_003);
    pair.server.shrink();
    pair.client.shrink();
    assert_eq!(pair.server.output.bytes.capacity() + pair.server.pending.capacity(), 0);
    // Of a socket that never takes everything, the buffer keeps the rest only.
    for _ in 0..1000 {
        pair.server.send(&[IoSlice::new(&[7; 20_000])]).expect("sent");
        pair.server.advance(20_000);
    }
    assert!(pair.server.output.bytes.capacity() < 256 * 1024);
}

#[test]
fn records_are_as_long_as_the_buffer_size() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let settings = ServerSettings { buffer_size: 1400, ..settings };
    let client = client_rules(&verifying(&authority), &clock);
    let mut pair = StreamPair::new(always(&rules(&settings, &clock)), &client, &target("localhost"));
    pair.exchange();
    pair.server.send(&[IoSlice::new(&[7; 3000])]).expect("sent");
    let out = pair.server.output();
    let first = usize::from(u16::from_be_bytes([out[3], out[4]]));
    assert_eq!(first, 1400 + 17);
}

#[test]
fn certificates_of_version_1_serve_and_are_verified_by_common_name() {
    let (clock, _) = clock();
    let Some(old) = openssl_v1("old.example") else { return };
    let anchor = crate::x509::Certificate::parse(old.certificate_der()).expect("read");
    for tls13 in [true, false] {
        let protocols = Protocols { tls12: !tls13, tls13, older: false };
        let settings = ServerSettings { certificates: vec![old.pair()], protocols, ..ServerSettings::default() };
        let rules = rules(&settings, &clock);
        let trusting = ClientSettings { verify: true, trusted: vec![anchor.clone()], ..ClientSettings::default() };
        StreamPair::new(always(&rules), &client_rules(&trusting, &clock), &target("old.example")).exchange();
        let mut wrong = StreamPair::new(always(&rules), &client_rules(&trusting, &clock), &target("other.example"));
        assert_eq!(wrong.run(), Err(TlsError::Verify(VerifyVerdict::HOST)));
        let strange = ClientSettings { trusted: vec![Authority::new("x").certificate()], ..trusting };
        let mut strange = StreamPair::new(always(&rules), &client_rules(&strange, &clock), &target("old.example"));
        assert_eq!(strange.run(), Err(TlsError::Verify(VerifyVerdict::SELF_SIGNED)));
    }
}

#[test]
fn a_server_is_verified_by_one_of_its_alternative_names() {
    use crate::verify::AlternativeName::{Dns, Uri};
    let (clock, _) = clock();
    let authority = Authority::new("root");
    let mut params = rcgen::CertificateParams::new(vec!["*.b.example".to_string()]).expect("names");
    params.subject_alt_names.push(rcgen::SanType::URI("spiffe://cluster/web".try_into().expect("a URI")));
    params.distinguished_name.push(rcgen::DnType::CommonName, "common.example");
    let settings = ServerSettings { certificates: vec![authority.issue(params).pair()], ..ServerSettings::default() };
    let rules = rules(&settings, &clock);
    let of = |names: &[crate::verify::AlternativeName], name: &str| {
        let settings = ClientSettings { verify_names: names.to_vec(), ..verifying(&authority) };
        StreamPair::new(always(&rules), &client_rules(&settings, &clock), &target(name)).run()
    };
    let uri = |text: &str| Uri(text.to_string());
    let dns = |text: &str| Dns(text.to_string());
    assert_eq!(of(&[uri("spiffe://cluster/web")], "other.example"), Ok(()));
    assert_eq!(of(&[dns("other.example"), dns("a.b.example")], "other.example"), Ok(()));
    assert_eq!(of(&[], "a.b.example"), Ok(()));
    for wrong in [
        vec![],
        vec![dns("other.example")],
        vec![dns("common.example")],
        vec![dns("spiffe://cluster/web")],
        vec![uri("spiffe://cluster/we"), uri("spiffe://cluster/web/"), uri("spiffe://Cluster/web")],
        vec![uri("a.b.example")],
    ] {
        assert_eq!(of(&wrong, "other.example"), Err(TlsError::Verify(VerifyVerdict::HOST)), "{wrong:?}");
    }
    // The name of the connection does not count beside others.
    assert_eq!(of(&[dns("other.example")], "a.b.example"), Err(TlsError::Verify(VerifyVerdict::HOST)));
}

#[test]
fn the_rules_are_chosen_by_name_or_the_handshake_is_rejected() {
    let (clock, _) = clock();
    let authority = Authority::new("root");
    let of = |name: &str| {
        let settings =
            ServerSettings { certificates: vec![authority.server(&[name]).pair()], ..ServerSettings::default() };
        rules(&settings, &clock)
    };
    let (a, b) = (of("a.example"), of("b.example"));
    let chooser: Chooser = Arc::new(move |hello| match hello.server_name.as_deref() {
        Some("a.example") => Choice::Rules(Arc::clone(&a)),
        Some("b.example") => Choice::Rules(Arc::clone(&b)),
        _ => Choice::Reject,
    });
    let client = client_rules(&verifying(&authority), &clock);
    for name in ["a.example", "b.example"] {
        StreamPair::new(Arc::clone(&chooser), &client, &target(name)).exchange();
    }
    let mut pair = StreamPair::new(Arc::clone(&chooser), &client, &target("c.example"));
    assert_eq!(pair.run(), Err(TlsError::Rejected));
    let mut client = TlsStream::client(&client, &target("c.example"), None).expect("a client");
    let answer = client.receive(&mut [0x15, 3, 3, 0, 2, 2, 112], &mut Vec::new());
    assert_eq!(answer, Err(TlsError::Alert(112)));
}

#[test]
fn other_protocols_are_recognised() {
    let mut server = TlsStream::server();
    assert_eq!(server.receive(&mut b"GET / HTTP/1.1\r\n".to_vec(), &mut Vec::new()), Err(TlsError::NotTls));
    assert!(!server.wants_write(), "no alert for those who would not understand it");
    assert_eq!(server.receive(&mut [1], &mut Vec::new()), Err(TlsError::Dead));
}

#[test]
fn clients_of_older_versions_are_told_so() {
    let mut body = vec![3, 2];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    let mut hello = vec![0x16, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    hello.extend(body);
    let mut server = TlsStream::server();
    assert_eq!(server.receive(&mut hello, &mut Vec::new()), Err(TlsError::UnsupportedProtocol));
    assert_eq!(server.output(), [0x15, 3, 3, 0, 2, 2, 70]);
}

/// Two connections of a client: whether the second resumed, and both session ids.
fn twice(first: &Arc<ServerRules>, second: &Arc<ServerRules>, client: &ClientRules) -> (bool, String, String) {
    let mut one = StreamPair::new(always(first), client, &target("localhost"));
    one.exchange();
    let mut two = StreamPair::new(always(second), client, &target("localhost"));
    two.exchange();
    (two.facts().resumed, one.facts().session_id_hex(), two.facts().session_id_hex())
}

#[test]
fn sessions_resume_from_the_cache_and_from_tickets_and_end_with_their_time() {
    let (clock, time) = clock();
    let (authority, settings) = simple();
    for tls13 in [true, false] {
        let protocols = Protocols { tls12: !tls13, tls13, older: false };
        let cache = SessionStore::Cache(Arc::new(SessionCache::new(1 << 20)));
        let tickets = Arc::new(TicketKeys::automatic());
        for (sessions, tickets) in [(cache, None), (SessionStore::None, Some(tickets))] {
            let settings = ServerSettings { protocols, sessions, tickets, ..settings.clone() };
            let rules = rules(&settings, &clock);
            let client = client_rules(&verifying(&authority), &clock);
            let (resumed, one, two) = twice(&rules, &rules, &client);
            assert!(resumed, "{tls13}");
            // As OpenSSL: a new session of TLS 1.2 with a ticket has no id.
            let first = if tls13 || settings.tickets.is_none() { 64 } else { 0 };
            assert_eq!((one.len(), two.len()), (first, 64));
            if !tls13 && settings.tickets.is_none() {
                assert_eq!(one, two);
            }
            time.fetch_add(301, Ordering::Relaxed);
            let mut late = StreamPair::new(always(&rules), &client, &target("localhost"));
            late.exchange();
            assert!(!late.facts().resumed);
            let settings = ClientSettings { session_reuse: false, ..verifying(&authority) };
            assert!(!twice(&rules, &rules, &client_rules(&settings, &clock)).0);
        }
        let none = ServerSettings { protocols, ..settings.clone() };
        let rules = rules(&none, &clock);
        assert!(!twice(&rules, &rules, &client_rules(&verifying(&authority), &clock)).0);
    }
}

#[test]
fn no_session_crosses_to_a_server_with_other_rules() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    for tls13 in [true, false] {
        let shared = ServerSettings {
            protocols: Protocols { tls12: !tls13, tls13, older: false },
            sessions: SessionStore::Cache(Arc::new(SessionCache::new(1 << 20))),
            ..settings.clone()
        };
        let with_tickets = ServerSettings { tickets: Some(Arc::new(TicketKeys::automatic())), ..shared.clone() };
        for settings in [shared, with_tickets] {
            let open = rules(&settings, &clock);
            let again = rules(&settings, &clock);
            let asking = ServerSettings {
                verify: VerifyClient::On,
                client_authorities: vec![authority.certificate()],
                ..settings.clone()
            };
            let asking = rules(&asking, &clock);
            let client = client_rules(&verifying(&authority), &clock);
            assert!(twice(&open, &again, &client).0, "the same rules, built anew by a reload");
            let client = client_rules(&verifying(&authority), &clock);
            assert!(!twice(&open, &asking, &client).0);
        }
    }
}

#[test]
fn clients_are_verified_and_their_verdict_survives_resumption() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let other = Authority::new("other");
    for tls13 in [true, false] {
        let settings = ServerSettings {
            protocols: Protocols { tls12: !tls13, tls13, older: false },
            sessions: SessionStore::Cache(Arc::new(SessionCache::new(1 << 20))),
            verify: VerifyClient::On,
            client_authorities: vec![authority.certificate()],
            ..settings.clone()
        };
        let rules = rules(&settings, &clock);
        for (issuer, want) in [
            (Some(&authority), "SUCCESS"),
            (Some(&other), "FAILED:unable to verify the first certificate"),
            (None, "NONE"),
        ] {
            let certificate = issuer.map(|i| i.client("user").pair());
            let client = client_rules(&ClientSettings { certificate, ..verifying(&authority) }, &clock);
            for resumed in [false, true] {
                let mut pair = StreamPair::new(always(&rules), &client, &target("localhost"));
                pair.exchange();
                assert_eq!(pair.facts().client_verify(), want, "{tls13} {resumed}");
                // The cache forgets the sessions of refused clients.
                let resumed = resumed && want == "SUCCESS";
                assert_eq!(pair.facts().resumed, resumed, "{tls13} {want}");
                let signed =
                    if resumed || issuer.is_none() { None } else { Some("ecdsa_secp256r1_sha256".to_string()) };
                assert_eq!(pair.facts().peer_signature.map(crate::scheme_name), signed);
                if let Some(peer) = &pair.facts().peer {
                    assert_eq!((peer.subject(), peer.subject_legacy()), ("CN=user".into(), "/CN=user".into()));
                }
            }
        }
    }
}

#[test]
fn early_data_is_marked_answered_and_not_taken_twice() {
    early_data_with(VerifyClient::Off);
    early_data_with(VerifyClient::Optional);
}

/// Exchanges early data with a server that verifies clients according to `verify`.
fn early_data_with(verify: VerifyClient) {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let tickets = Some(Arc::new(TicketKeys::automatic()));
    let client_authorities = vec![authority.certificate()];
    let settings = ServerSettings { early_data: true, tickets, verify, client_authorities, ..settings };
    let rules = rules(&settings, &clock);
    let client = client_rules(&verifying(&authority), &clock);
    let config = client.config(&target("localhost"), None).expect("a configuration");
    let mut config = (*config).clone();
    config.enable_early_data = true;
    let config = Arc::new(config);
    let connect = || UnbufferedClientConnection::new(Arc::clone(&config), "localhost".try_into().expect("a name"));
    // With `close` the server closes at once, before the handshake ends (RFC 8446, 6.1).
    let over = |early: &[u8], close: bool| {
        let mut client = connect().expect("a client");
        let mut server = TlsStream::server();
        let chooser = always(&rules);
        let (mut to_server, mut to_client, mut at_server) = (Vec::new(), Vec::new(), Vec::new());
        let (mut said, mut marked, mut told, mut at_client) = (false, false, false, Vec::new());
        for _ in 0..100 {
            let status = client.process_tls_records(&mut to_client);
            let discard = status.discard;
            match status.state.expect("a state") {
                ConnectionState::EncodeTlsData(mut data) => {
                    let mut room = vec![0; 20_000];
                    let n = data.encode(&mut room).expect("encoded");
                    to_server.extend_from_slice(&room[..n]);
                    to_client.drain(..discard);
                    continue;
                }
                ConnectionState::TransmitTlsData(mut data) => {
                    if let (false, Some(mut traffic)) = (said, data.may_encrypt_early_data()) {
                        let mut room = vec![0; 20_000];
                        let n = traffic.encrypt(early, &mut room).expect("encrypted");
                        to_server.extend_from_slice(&room[..n]);
                        said = true;
                    }
                    data.done();
                }
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        at_client.extend_from_slice(record.expect("decrypted").payload);
                    }
                }
                ConnectionState::PeerClosed => told = true,
                _ => {
                    if to_server.is_empty() && server.output().is_empty() && discard == 0 {
                        break;
                    }
                }
            }
            to_client.drain(..discard);
            let received =
                give(&mut server, &chooser, &mut std::mem::take(&mut to_server), &mut at_server).expect("taken");
            if received.early {
                marked = true;
                assert!(server.facts().is_some_and(|f| f.is_early()));
                // The answer does not wait for the client's Finished, as in nginx.
                server.send(&[IoSlice::new(b"answer")]).expect("sent");
                if close {
                    assert!(server.is_handshaking());
                    server.close_notify().expect("closed");
                }
            }
            to_client.extend_from_slice(server.output());
            let n = server.output().len();
            server.advance(n);
        }
        assert!(server.facts().is_some_and(|f| !f.is_early()));
        assert_eq!((told, &at_client[..]), (close, if marked { b"answer" } else { &b""[..] }));
        (said && marked, at_server)
    };
    assert_eq!(over(b"early", false), (false, Vec::new()));
    assert_eq!(over(b"early", false), (true, b"early".to_vec()));
    assert_eq!(over(b"early", true), (true, b"early".to_vec()));
}

/// Rejected early data is skipped (RFC 8446, 4.2.10).
#[test]
fn early_data_that_is_not_taken_is_skipped() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let with =
        ServerSettings { early_data: true, tickets: Some(Arc::new(TicketKeys::automatic())), ..settings.clone() };
    let without = ServerSettings { tickets: Some(Arc::new(TicketKeys::automatic())), ..settings };
    let (with, without) = (rules(&with, &clock), rules(&without, &clock));
    let client = client_rules(&verifying(&authority), &clock);
    let config = client.config(&target("localhost"), None).expect("a configuration");
    let mut config = (*config).clone();
    config.enable_early_data = true;
    let config = Arc::new(config);
    let over = |rules: &Arc<ServerRules>, records: &[usize], step: usize| {
        let mut client = UnbufferedClientConnection::new(Arc::clone(&config), "localhost".try_into().expect("a name"))
            .expect("a client");
        let mut server = TlsStream::server();
        let chooser = always(rules);
        let (mut to_server, mut to_client, mut at_server) = (Vec::new(), Vec::new(), Vec::new());
        let mut said = false;
        for _ in 0..200 {
            let status = client.process_tls_records(&mut to_client);
            let discard = status.discard;
            match status.state.expect("a state") {
                ConnectionState::EncodeTlsData(mut data) => {
                    let mut room = vec![0; 20_000];
                    let n = data.encode(&mut room).expect("encoded");
                    to_server.extend_from_slice(&room[..n]);
                    to_client.drain(..discard);
                    continue;
                }
                ConnectionState::TransmitTlsData(mut data) => {
                    if let (false, Some(mut traffic)) = (said, data.may_encrypt_early_data()) {
                        for length in records {
                            let mut room = vec![0; 20_000];
                            let n = traffic.encrypt(&vec![b'x'; *length], &mut room).expect("encrypted");
                            to_server.extend_from_slice(&room[..n]);
                        }
                        said = true;
                    }
                    data.done();
                }
                _ => {
                    if to_server.is_empty() && server.output().is_empty() && discard == 0 {
                        break;
                    }
                }
            }
            to_client.drain(..discard);
            for part in std::mem::take(&mut to_server).chunks_mut(step) {
                let mut part = part.to_vec();
                give(&mut server, &chooser, &mut part, &mut at_server).expect("taken");
            }
            to_client.extend_from_slice(server.output());
            let n = server.output().len();
            server.advance(n);
        }
        (said, !server.is_handshaking())
    };
    for step in [100_000, 700] {
        for records in [&[5_000][..], &[6_000], &[16_000], &[4_000, 4_000], &[100; 100]] {
            assert!(over(&with, &[], step).1);
            assert_eq!(over(&without, records, step), (true, true), "{records:?} in pieces of {step}");
        }
    }
}

#[test]
fn old_protocols_warn_or_refuse() {
    let (clock, _) = clock();
    let (_, settings) = simple();
    let mut warnings = Vec::new();
    let stock = ServerSettings {
        protocols: Protocols { tls12: true, tls13: true, older: true },
        prefer_server_ciphers: true,
        ..settings.clone()
    };
    ServerRules::build(&stock, &clock, &mut warnings).expect("Debian's configuration starts");
    assert_eq!(
        warnings,
        ["\"ssl_protocols\": versions before TLSv1.2 are not available, TLSv1.2 and TLSv1.3 will be used"]
    );
    let only_old =
        ServerSettings { protocols: Protocols { tls12: false, tls13: false, older: true }, ..settings.clone() };
    assert!(ServerRules::build(&only_old, &clock, &mut Vec::new()).is_err());
    let cbc = |tls13| ServerSettings {
        protocols: Protocols { tls12: true, tls13, older: false },
        ciphers: "AES128-SHA".into(),
        ..settings.clone()
    };
    assert!(
        ServerRules::build(&cbc(false), &clock, &mut Vec::new())
            .expect_err("none")
            .contains("ECDHE-RSA-AES128-GCM-SHA256")
    );
    let mut warnings = Vec::new();
    assert!(ServerRules::build(&cbc(true), &clock, &mut warnings).is_ok() && warnings.len() == 1);
}

#[test]
fn ciphers_and_groups_are_those_of_the_rules() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let settings = ServerSettings {
        protocols: Protocols { tls12: true, tls13: false, older: false },
        ciphers: "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256".into(),
        groups: "secp384r1".into(),
        prefer_server_ciphers: true,
        alpn: vec![b"http/1.1".to_vec()],
        ..settings
    };
    let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let client = client_rules(&ClientSettings { alpn, ..verifying(&authority) }, &clock);
    let rules = rules(&settings, &clock);
    let mut pair = StreamPair::new(always(&rules), &client, &target("localhost"));
    pair.exchange();
    let facts = pair.facts();
    assert_eq!((facts.cipher, facts.curve.as_deref()), ("ECDHE-ECDSA-CHACHA20-POLY1305", Some("secp384r1")));
    assert_eq!(facts.alpn.as_deref(), Some(&b"http/1.1"[..]));
    assert!(facts.ciphers().contains("ECDHE-RSA-AES256-GCM-SHA384:"));
    assert!(facts.curves().starts_with("X25519MLKEM768:X25519:prime256v1:secp384r1"));
}

#[test]
fn the_certificate_is_one_that_the_client_can_verify() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let Some(rsa) = openssl_v1("rsa") else { return };
    let both = vec![rsa.pair(), authority.server(&["localhost"]).pair()];
    let settings = ServerSettings {
        certificates: both,
        protocols: Protocols { tls12: true, tls13: false, older: false },
        ..settings
    };
    let rules = rules(&settings, &clock);
    for (ciphers, want) in
        [("ECDHE+aRSA+AES128", "ECDHE-RSA-AES128-GCM-SHA256"), ("ECDHE+ECDSA+AES128", "ECDHE-ECDSA-AES128-GCM-SHA256")]
    {
        let client = client_rules(&ClientSettings { ciphers: ciphers.into(), ..ClientSettings::default() }, &clock);
        let mut pair = StreamPair::new(always(&rules), &client, &target("localhost"));
        pair.exchange();
        assert_eq!(pair.facts().cipher, want);
    }
}
