//! `$ssl_*`: what is known of the connection's TLS.

use http_engine::Request;
use http_engine::variable::Builtin;
use tls::{Facts, PeerCertificate};

fn facts(r: &Request) -> Option<&Facts> {
    r.connection().tls.as_deref()
}

/// A value that is not empty.
fn put(out: &mut Vec<u8>, value: impl AsRef<[u8]>) -> bool {
    out.extend_from_slice(value.as_ref());
    !value.as_ref().is_empty()
}

fn with(r: &Request, out: &mut Vec<u8>, value: impl FnOnce(&Facts) -> Option<String>) -> bool {
    facts(r).and_then(value).is_some_and(|text| put(out, text))
}

fn peer(r: &Request, out: &mut Vec<u8>, value: impl FnOnce(&PeerCertificate) -> String) -> bool {
    with(r, out, |f| f.peer.as_deref().map(value))
}

macro_rules! rows {
    ($($name:literal, $doc:literal, $get:expr;)*) => {
        pub(super) static ROWS: &[Builtin] = &[$(Builtin::one($name, $get, $doc)),*];
    };
}

rows! {
    "ssl_protocol", "The version of TLS of the connection.", |r, out| facts(r).is_some_and(|f| put(out, f.protocol));
    "ssl_cipher", "The cipher suite of the connection, by OpenSSL's name.", |r, out| facts(r).is_some_and(|f| put(out, f.cipher));
    "ssl_ciphers", "The cipher suites that the client offers.", |r, out| with(r, out, |f| Some(f.ciphers()));
    "ssl_curve", "The group of the key exchange.", |r, out| with(r, out, |f| f.curve.clone());
    "ssl_curves", "The groups that the client offers.", |r, out| with(r, out, |f| Some(f.curves()));
    "ssl_sigalg", "The algorithm of the server's signature.", |r, out| with(r, out, |f| f.signature.map(tls::scheme_name));
    "ssl_sigalgs", "The algorithms of signatures that the client offers.", |r, out| with(r, out, |f| Some(f.signature_schemes()));
    "ssl_session_id", "The id of the session, in hexadecimal.", |r, out| with(r, out, |f| Some(f.session_id_hex()));
    "ssl_session_reused", "`r` for a session that was resumed, `.` for a new one.",
        |r, out| facts(r).is_some_and(|f| put(out, if f.resumed { "r" } else { "." }));
    "ssl_early_data", "`1` for a request that came before the handshake ended, and may be a replay.",
        |r, out| facts(r).is_some_and(|f| f.is_early() && put(out, "1"));
    "ssl_server_name", "The name that the client sent in its handshake (SNI).",
        |r, out| facts(r).and_then(|f| f.server_name.as_deref()).is_some_and(|name| put(out, name));
    "ssl_alpn_protocol", "The protocol that was agreed on in the handshake (ALPN).",
        |r, out| facts(r).and_then(|f| f.alpn.as_deref()).is_some_and(|name| put(out, name));
    "ssl_ech_status", "Encrypted ClientHello: not available, always `NOT_TRIED`.",
        |r, out| facts(r).is_some() && put(out, "NOT_TRIED");
    "ssl_ech_outer_server_name", "The outer name of an encrypted ClientHello: always empty.", |_, _| false;
    "ssl_client_cert", "The client's certificate in PEM, each line but the first behind a tab.",
        |r, out| peer(r, out, PeerCertificate::folded);
    "ssl_client_raw_cert", "The client's certificate in PEM.", |r, out| peer(r, out, PeerCertificate::raw);
    "ssl_client_escaped_cert", "The client's certificate in PEM, percent-encoded.",
        |r, out| peer(r, out, PeerCertificate::escaped);
    "ssl_client_s_dn", "The subject of the client's certificate (RFC 2253).", |r, out| peer(r, out, PeerCertificate::subject);
    "ssl_client_i_dn", "The issuer of the client's certificate (RFC 2253).", |r, out| peer(r, out, PeerCertificate::issuer);
    "ssl_client_s_dn_legacy", "The subject in the form of OpenSSL before 1.0.",
        |r, out| peer(r, out, PeerCertificate::subject_legacy);
    "ssl_client_i_dn_legacy", "The issuer in the form of OpenSSL before 1.0.",
        |r, out| peer(r, out, PeerCertificate::issuer_legacy);
    "ssl_client_serial", "The serial number of the client's certificate.", |r, out| peer(r, out, |p| p.certificate.serial_hex());
    "ssl_client_fingerprint", "The SHA-1 digest of the client's certificate.",
        |r, out| peer(r, out, |p| p.certificate.fingerprint());
    "ssl_client_verify", "`SUCCESS`, `FAILED:reason`, or `NONE` without a certificate.",
        |r, out| with(r, out, |f| Some(f.client_verify()));
    "ssl_client_v_start", "When the client's certificate begins to be valid.", |r, out| peer(r, out, PeerCertificate::valid_from);
    "ssl_client_v_end", "When the client's certificate ends.", |r, out| peer(r, out, PeerCertificate::valid_to);
    "ssl_client_v_remain", "Days until the client's certificate ends.",
        |r, out| peer(r, out, |p| p.days_left(base::clock::unix_seconds()).to_string());
    "ssl_client_sigalg", "The algorithm of the client's signature.",
        |r, out| with(r, out, |f| f.peer_signature.map(tls::scheme_name));
}
