use super::*;
use crate::testing::Authority;
use crate::{Clock, ServerSettings};
use quinn_proto::crypto::ServerConfig;
use rustls::quic::ClientConnection;
use std::time::{SystemTime, UNIX_EPOCH};

fn clock() -> Clock {
    Arc::new(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

const PARAMETERS: &[u8] = &[0x0f, 0];

/// An idle connection keeps this of its handshake (decision 0113), beside keys that `rustls` allocates.
#[test]
fn a_finished_handshake_takes_little() {
    assert!(size_of::<Handshake>() <= 512, "{}", size_of::<Handshake>());
    assert_eq!(size_of::<WatchedKey>(), 24);
}

struct TestMeeting {
    rules: Arc<ServerRules>,
    client: ClientConnection,
    server: Box<dyn Session>,
}

impl TestMeeting {
    fn new(reject: bool, alpn: &[&[u8]]) -> TestMeeting {
        let authority = Authority::new("the authority");
        let certificates = vec![authority.server(&["localhost"]).pair()];
        let settings = ServerSettings { certificates, reject_handshake: reject, ..ServerSettings::default() };
        let rules = ServerRules::build(&settings, &clock(), &mut Vec::new()).expect("rules");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.der()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let name = "localhost".try_into().expect("a name");
        let client = ClientConnection::new(Arc::new(config), quic::Version::V1, name, PARAMETERS.to_vec());
        let server = Arc::new(QuicServer::new(2).expect("a suite"));
        let parameters = TransportParameters::read(Side::Client, &mut &PARAMETERS[..0]).expect("defaults");
        TestMeeting { rules, client: client.expect("a client"), server: server.start_session(1, &parameters) }
    }
    fn chooser(&self) -> Chooser {
        let rules = self.rules.clone();
        Rc::new(move |hello| {
            assert_eq!(hello.server_name.as_deref(), Some("localhost"));
            ChosenRules { choice: Choice::Rules(rules.clone()), h3: true, hq: false }
        })
    }
    fn tell_server(&mut self, size: usize) -> Result<bool, TransportError> {
        let mut bytes = Vec::new();
        while self.client.write_hs(&mut bytes).is_some() {}
        let (chooser, server) = (self.chooser(), &mut self.server);
        with_chooser(chooser, || {
            let mut any = false;
            for piece in bytes.chunks(size) {
                any |= server.read_handshake(piece)?;
            }
            Ok(any)
        })
    }
    fn tell_client(&mut self) {
        loop {
            let mut bytes = Vec::new();
            let keys = self.server.write_handshake(&mut bytes);
            self.client.read_hs(&bytes).expect("the server's messages");
            if keys.is_none() {
                break;
            }
        }
    }
}

#[test]
fn handshakes_end_however_the_hello_is_cut() {
    for size in [1, 7, 1000, 100_000] {
        let mut meeting = TestMeeting::new(false, &[b"h3"]);
        assert!(meeting.server.is_handshaking() && meeting.server.transport_parameters().is_ok_and(|p| p.is_none()));
        assert_eq!(meeting.tell_server(size).ok(), Some(false), "pieces of {size}");
        assert!(meeting.server.transport_parameters().is_ok_and(|p| p.is_some()));
        meeting.tell_client();
        assert_eq!(meeting.tell_server(size).ok(), Some(true));
        assert!(!meeting.server.is_handshaking());
        let facts = meeting
            .server
            .handshake_data()
            .and_then(|data| data.downcast::<ConnectionFacts>().ok().and_then(|known| known.facts));
        let facts = facts.expect("facts");
        assert_eq!((facts.protocol, facts.alpn.as_deref()), ("TLSv1.3", Some(&b"h3"[..])));
        assert_eq!((facts.server_name.as_deref(), facts.resumed, facts.is_early()), (Some("localhost"), false, false));
        assert!(facts.cipher.starts_with("TLS_") && meeting.server.next_1rtt_keys().is_some());
    }
}

#[test]
fn refusals_have_their_alerts() {
    let code = |result: Result<bool, TransportError>| result.map_err(|error| u64::from(error.code));
    assert_eq!(code(TestMeeting::new(true, &[b"h3"]).tell_server(1000)), Err(0x100 + 112), "ssl_reject_handshake");
    assert_eq!(code(TestMeeting::new(false, &[b"h2"]).tell_server(1000)), Err(0x100 + 120), "no protocol in common");
    let mut meeting = TestMeeting::new(false, &[b"h3"]);
    assert_eq!(code(meeting.server.read_handshake(b"\x02\0\0\0")), Err(0x100 + 10), "no ClientHello");
    let mut meeting = TestMeeting::new(false, &[b"h3"]);
    assert_eq!(code(meeting.server.read_handshake(b"\x01\xff\xff\xff")), Err(0x100 + 50), "a length beyond all bounds");
    let mut meeting = TestMeeting::new(false, &[b"h3"]);
    let mut bytes = Vec::new();
    while meeting.client.write_hs(&mut bytes).is_some() {}
    assert_eq!(code(meeting.server.read_handshake(&bytes)), Err(0x100 + 80), "without a chooser");
}

#[test]
fn a_decision_ends_with_its_work() {
    let chooser: Chooser = Rc::new(|_| ChosenRules { choice: Choice::Fail, h3: true, hq: false });
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| with_chooser(chooser, || panic!("a test's"))));
    assert!(panicked.is_err() && CHOOSER.with_borrow(Option::is_none));
}

#[test]
fn keys_come_from_their_secret() {
    let sign = |keys: &EndpointKeys| {
        let mut signature = [0; 32];
        keys.reset.sign(b"an id", &mut signature);
        signature
    };
    let (one, again, other) = (EndpointKeys::derive(b"a"), EndpointKeys::derive(b"a"), EndpointKeys::derive(b"b"));
    assert_eq!(sign(&one), sign(&again));
    assert_ne!(sign(&one), sign(&other));
    assert_eq!(sign(&EndpointKeys::of_process()), sign(&EndpointKeys::of_process()));
    let mut sealed = b"a token".to_vec();
    one.token.aead_from_hkdf(b"nonce").seal(&mut sealed, b"").expect("sealed");
    assert!(other.token.aead_from_hkdf(b"nonce").open(&mut sealed.clone(), b"").is_err());
    assert_eq!(again.token.aead_from_hkdf(b"nonce").open(&mut sealed, b"").expect("opened"), b"a token");
}

#[test]
fn clients_are_told_how_many_connection_ids_are_kept() {
    for (configured, told) in [(0, 2), (2, 2), (3, 3), (5, 5), (100, 5)] {
        let server = QuicServer::new(configured).expect("a suite");
        // Parameters that stand before and behind it stay.
        let mut parameters = vec![0x01, 2, 0x40, 0x50, 0x0e, 1, 5, 0x0f, 1, 9];
        limit_active_ids(&mut parameters, server.active_ids);
        assert_eq!(parameters, [0x01, 2, 0x40, 0x50, 0x0e, 1, told, 0x0f, 1, 9]);
    }
    for odd in [&[][..], &[0x0e], &[0x0e, 0x40], &[0x0e, 2, 0x40, 7], &[1, 9, 1]] {
        let mut parameters = odd.to_vec();
        limit_active_ids(&mut parameters, 2);
        assert_eq!(parameters, odd);
    }
}
