//! Records and messages that end a connection with an alert.

use super::*;

#[test]
fn a_broken_record_ends_the_connection_with_an_alert() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let client = client_rules(&verifying(&authority), &clock);
    let mut pair = StreamPair::new(always(&rules(&settings, &clock)), &client, &target("localhost"));
    pair.exchange();
    pair.client.send(&[IoSlice::new(b"x")]).expect("sent");
    let mut bent = pair.client.output().to_vec();
    *bent.last_mut().expect("bytes") ^= 1;
    assert!(matches!(pair.server.receive(&mut bent, &mut Vec::new()), Err(TlsError::BadRecord)));
    assert!(pair.server.wants_write(), "an alert");
    assert_eq!(pair.server.send(&[IoSlice::new(b"y")]), Err(TlsError::Dead));
}

fn last_alert(output: &[u8]) -> Option<[u8; 2]> {
    match output {
        [.., 0x15, 3, 3, 0, 2, level, number] => Some([*level, *number]),
        _ => None,
    }
}

fn without(hello: &[u8], kind: u16) -> Vec<u8> {
    let number = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    let mut at = 5 + 4 + 2 + 32;
    at += 1 + usize::from(hello[at]);
    at += 2 + number(at);
    at += 1 + usize::from(hello[at]);
    let head = hello[..at].to_vec();
    let end = at + 2 + number(at);
    at += 2;
    let mut kept = Vec::new();
    while at < end {
        let next = at + 4 + number(at + 2);
        if number(at) != usize::from(kind) {
            kept.extend_from_slice(&hello[at..next]);
        }
        at = next;
    }
    let mut all = [&head[..], &(kept.len() as u16).to_be_bytes(), &kept].concat();
    let (record, message) = ((all.len() - 5) as u16, (all.len() - 9) as u16);
    all[3..5].copy_from_slice(&record.to_be_bytes());
    all[7..9].copy_from_slice(&message.to_be_bytes());
    all
}

/// RFC 8446, 9.2; without TLS 1.3, rustls decides.
#[test]
fn an_extension_that_tls_1_3_demands_is_missed_by_its_alert() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let rules = rules(&settings, &clock);
    let client = client_rules(&verifying(&authority), &clock);
    let hello = TlsStream::client(&client, &target("localhost"), None).expect("a client").output().to_vec();
    for (kind, error, words) in [
        (51, TlsError::NoKeyShare, "error:0A000065:SSL routines::no suitable key share"),
        (13, TlsError::NoSignatureAlgorithms, "error:0A000076:SSL routines::no suitable signature algorithm"),
    ] {
        let mut server = TlsStream::server();
        let given = give(&mut server, &always(&rules), &mut without(&hello, kind), &mut Vec::new());
        assert_eq!((given, error.to_string().as_str()), (Err(error), words));
        assert_eq!(server.output(), [0x15, 3, 3, 0, 2, 2, 109]);
    }
    let mut server = TlsStream::server();
    let mut old = without(&without(&hello, 43), 13);
    assert!(give(&mut server, &always(&rules), &mut old, &mut Vec::new()).is_err());
    assert_eq!(server.output(), [0x15, 3, 3, 0, 2, 2, 40]);
}

/// Other records between parts of a message (RFC 5246, 6.2.1; RFC 8446, 5.1).
#[test]
fn records_between_the_parts_of_a_message_are_answered_with_an_alert() {
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let settings = ServerSettings { protocols: Protocols { tls13: false, ..Protocols::default() }, ..settings };
    let rules = rules(&settings, &clock);
    let client = client_rules(&verifying(&authority), &clock);
    let between: [&[u8]; 3] = [&[23, 3, 3, 0, 0], &[20, 3, 3, 0, 1, 1], &[21, 3, 3, 0, 2, 1, 90]];
    for between in between {
        let mut pair = StreamPair::new(always(&rules), &client, &target("localhost"));
        let mut hello = pair.client.output().to_vec();
        pair.client.advance(hello.len());
        give(&mut pair.server, &pair.chooser, &mut hello, &mut Vec::new()).expect("a hello");
        let mut flight = pair.server.output().to_vec();
        pair.server.advance(flight.len());
        pair.client.receive(&mut flight, &mut Vec::new()).expect("a flight");
        let answer = pair.client.output().to_vec();
        let length = usize::from(u16::from_be_bytes([answer[3], answer[4]]));
        let (message, cut) = (&answer[5..5 + length], 9);
        let part = |part: &[u8]| [&[22, 3, 3][..], &(part.len() as u16).to_be_bytes(), part].concat();
        let mut cut_up = [&part(&message[..cut])[..], between, &part(&message[cut..])].concat();
        let failed = pair.server.receive(&mut cut_up, &mut Vec::new()).expect_err("an interleaved message");
        assert!(matches!(failed, TlsError::Misbehaved(_)), "{failed:?}");
        assert_eq!(last_alert(pair.server.output()), Some([2, 10]), "{between:?}");
    }
}

/// A TLS 1.3 record of padding only has no type (RFC 8446, 5.4).
#[test]
fn a_record_without_a_type_is_answered_with_an_alert() {
    use rustls::ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
    use rustls::crypto::cipher::OutboundPlainMessage;
    use rustls::{AlertDescription, ContentType, SupportedCipherSuite};
    let (clock, _) = clock();
    let (authority, settings) = simple();
    let rules = rules(&settings, &clock);
    let client = client_rules(&verifying(&authority), &clock);
    let config = client.config(&target("localhost"), None).expect("a configuration");
    let mut config = (*config).clone();
    config.enable_secret_extraction = true;
    let config = Arc::new(config);
    for padding in [0, 40] {
        let mut client = UnbufferedClientConnection::new(Arc::clone(&config), "localhost".try_into().expect("a name"))
            .expect("a client");
        let mut server = TlsStream::server();
        let chooser = always(&rules);
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        for _ in 0..50 {
            let status = client.process_tls_records(&mut to_client);
            let discard = status.discard;
            if let ConnectionState::EncodeTlsData(mut data) = status.state.expect("a state") {
                let mut room = vec![0; 20_000];
                let n = data.encode(&mut room).expect("encoded");
                to_server.extend_from_slice(&room[..n]);
            } else {
                give(&mut server, &chooser, &mut std::mem::take(&mut to_server), &mut Vec::new()).expect("taken");
            }
            to_client.drain(..discard);
            to_client.extend_from_slice(server.output());
            server.advance(server.output().len());
        }
        assert!(!server.is_handshaking() && !client.is_handshaking());
        let Some(SupportedCipherSuite::Tls13(suite)) = client.negotiated_cipher_suite() else { panic!("TLS 1.3") };
        let (secrets, _) = client.dangerous_into_kernel_connection().expect("secrets");
        let open = |secret| match secret {
            Aes128Gcm { key, iv } | Aes256Gcm { key, iv } | Chacha20Poly1305 { key, iv } => (key, iv),
            _ => panic!("a cipher without a name"),
        };
        let ((mine, my_iv), (its, its_iv)) = (open(secrets.tx.1), open(secrets.rx.1));
        let payload = vec![0; padding];
        let nothing = OutboundPlainMessage {
            typ: ContentType::Unknown(0),
            version: ProtocolVersion::TLSv1_2,
            payload: payload[..].into(),
        };
        let mut encrypter = suite.aead_alg.encrypter(mine, my_iv);
        let record = encrypter.encrypt(nothing, secrets.tx.0).expect("encrypted");
        let mut record = record.encode();
        let failed = server.receive(&mut record, &mut Vec::new()).expect_err("no type");
        assert!(matches!(failed, TlsError::Misbehaved(_)), "{failed:?}");
        let mut reader = suite.aead_alg.decrypter(its, its_iv);
        let answer = server.output().to_vec();
        let mut body = answer[5..].to_vec();
        let header = rustls::crypto::cipher::InboundOpaqueMessage::new(
            ContentType::ApplicationData,
            ProtocolVersion::TLSv1_2,
            &mut body,
        );
        let alert = reader.decrypt(header, secrets.rx.0).expect("an alert");
        assert_eq!(
            (alert.typ, alert.payload),
            (ContentType::Alert, &[2, u8::from(AlertDescription::UnexpectedMessage)][..])
        );
    }
}

/// Answers without waiting for the rest, which may never come.
#[test]
fn a_record_of_another_type_ends_a_client_hello_at_once() {
    let (clock, _) = clock();
    let (authority, _) = simple();
    let client = client_rules(&verifying(&authority), &clock);
    let hello = TlsStream::client(&client, &target("localhost"), None).expect("a client").output().to_vec();
    for first in [1, 2, 4, 30, 100] {
        for between in [&[23, 3, 3, 0, 0][..], &[20, 3, 3, 0, 1, 1]] {
            for step in [1, 100_000] {
                let parts = [&[22, 3, 1, 0, first][..], &hello[5..5 + usize::from(first)], between].concat();
                let mut server = TlsStream::server();
                let mut ended = false;
                for part in parts.chunks(step) {
                    ended = ended || server.receive(&mut part.to_vec(), &mut Vec::new()).is_err();
                }
                assert!(ended, "{first} {between:?} {step}");
                assert_eq!(server.output(), [0x15, 3, 3, 0, 2, 2, 10], "{first} {between:?} {step}");
            }
        }
    }
}
