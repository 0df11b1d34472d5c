//! `$ssl_*`: TLS facts of the connection.

use std::marker::PhantomData;
use tls::{Facts, PeerCertificate};
use variables::variable::Builtin;
use variables::{AreaTypes, Session};

fn facts<S: Session>(s: &S) -> Option<&Facts> {
    s.tls()
}

fn put(out: &mut Vec<u8>, value: impl AsRef<[u8]>) -> bool {
    out.extend_from_slice(value.as_ref());
    !value.as_ref().is_empty()
}

fn with<S: Session>(r: &S, out: &mut Vec<u8>, value: impl FnOnce(&Facts) -> Option<String>) -> bool {
    facts(r).and_then(value).is_some_and(|text| put(out, text))
}

fn peer<S: Session>(r: &S, out: &mut Vec<u8>, value: impl FnOnce(&PeerCertificate) -> String) -> bool {
    with(r, out, |f| f.peer.as_deref().map(value))
}

pub struct Rows<A>(PhantomData<fn(A)>);

impl<A: AreaTypes> Rows<A> {
    pub const ALL: &'static [Builtin<A>] = &[
        Builtin::one(
            "ssl_protocol",
            |r, out| facts(r).is_some_and(|f| put(out, f.protocol)),
            "The version of TLS of the connection.",
        )
        .changeable(),
        Builtin::one(
            "ssl_cipher",
            |r, out| facts(r).is_some_and(|f| put(out, f.cipher)),
            "The cipher suite of the connection, by OpenSSL's name.",
        )
        .changeable(),
        Builtin::one(
            "ssl_ciphers",
            |r, out| with(r, out, |f| Some(f.ciphers())),
            "The cipher suites that the client offers.",
        )
        .changeable(),
        Builtin::one("ssl_curve", |r, out| with(r, out, |f| f.curve.clone()), "The group of the key exchange.")
            .changeable(),
        Builtin::one("ssl_curves", |r, out| with(r, out, |f| Some(f.curves())), "The groups that the client offers.")
            .changeable(),
        Builtin::one(
            "ssl_sigalg",
            |r, out| with(r, out, |f| f.signature.map(tls::scheme_name)),
            "The algorithm of the server's signature.",
        )
        .changeable(),
        Builtin::one(
            "ssl_sigalgs",
            |r, out| with(r, out, |f| Some(f.signature_schemes())),
            "The signature algorithms that the client offers.",
        )
        .changeable(),
        Builtin::one(
            "ssl_session_id",
            |r, out| with(r, out, |f| Some(f.session_id_hex())),
            "The id of the session, in hexadecimal.",
        )
        .changeable(),
        Builtin::one(
            "ssl_session_reused",
            |r, out| facts(r).is_some_and(|f| put(out, if f.resumed { "r" } else { "." })),
            "`r` if the session was resumed, otherwise `.`.",
        )
        .changeable(),
        Builtin::one(
            "ssl_early_data",
            |r, out| facts(r).is_some_and(|f| f.is_early() && put(out, "1")),
            "`1` for a request that arrived before the handshake ended, and may be a replay.",
        )
        .changeable(),
        Builtin::one(
            "ssl_server_name",
            |r, out| facts(r).and_then(|f| f.server_name.as_deref()).is_some_and(|name| put(out, name)),
            "The name that the client sent in its handshake (SNI).",
        )
        .changeable(),
        Builtin::one(
            "ssl_alpn_protocol",
            |r, out| facts(r).and_then(|f| f.alpn.as_deref()).is_some_and(|name| put(out, name)),
            "The protocol that the handshake selected (ALPN).",
        )
        .changeable(),
        Builtin::one(
            "ssl_ech_status",
            |r, out| facts(r).is_some() && put(out, "NOT_TRIED"),
            "The status of Encrypted ClientHello: always `NOT_TRIED`, because it is not available.",
        )
        .changeable(),
        Builtin::one(
            "ssl_ech_outer_server_name",
            |_, _| false,
            "The outer name of an encrypted ClientHello: always empty.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_cert",
            |r, out| peer(r, out, PeerCertificate::folded),
            "The client's certificate in PEM; all lines except the first begin with a tab.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_raw_cert",
            |r, out| peer(r, out, PeerCertificate::raw),
            "The client's certificate in PEM.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_escaped_cert",
            |r, out| peer(r, out, PeerCertificate::escaped),
            "The client's certificate in PEM, percent-encoded.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_s_dn",
            |r, out| peer(r, out, PeerCertificate::subject),
            "The subject of the client's certificate (RFC 2253).",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_i_dn",
            |r, out| peer(r, out, PeerCertificate::issuer),
            "The issuer of the client's certificate (RFC 2253).",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_s_dn_legacy",
            |r, out| peer(r, out, PeerCertificate::subject_legacy),
            "The subject of the client's certificate, in the format of OpenSSL before 1.0.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_i_dn_legacy",
            |r, out| peer(r, out, PeerCertificate::issuer_legacy),
            "The issuer of the client's certificate, in the format of OpenSSL before 1.0.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_serial",
            |r, out| peer(r, out, |p| p.certificate.serial_hex()),
            "The serial number of the client's certificate.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_fingerprint",
            |r, out| peer(r, out, |p| p.certificate.fingerprint()),
            "The SHA-1 digest of the client's certificate.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_verify",
            |r, out| with(r, out, |f| Some(f.client_verify())),
            "`SUCCESS`, `FAILED:reason`, or `NONE` without a certificate.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_v_start",
            |r, out| peer(r, out, PeerCertificate::valid_from),
            "The start of the client certificate's validity.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_v_end",
            |r, out| peer(r, out, PeerCertificate::valid_to),
            "The end of the client certificate's validity.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_v_remain",
            |r, out| peer(r, out, |p| p.days_left(base::clock::unix_seconds()).to_string()),
            "Days until the client's certificate expires.",
        )
        .changeable(),
        Builtin::one(
            "ssl_client_sigalg",
            |r, out| with(r, out, |f| f.peer_signature.map(tls::scheme_name)),
            "The algorithm of the client's signature.",
        )
        .changeable(),
    ];
}
