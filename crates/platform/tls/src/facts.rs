//! TLS facts after the handshake, for the `$ssl_*` variables.

use crate::verify::VerifyVerdict;
use crate::x509::{Certificate, name, time};
use crate::{ciphers, groups, pem};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Facts of a connection; small, since they live as long.
#[derive(Debug, Default)]
pub struct Facts {
    /// OpenSSL's names: `TLSv1.2`, `TLSv1.3`.
    pub protocol: &'static str,
    /// OpenSSL's name of the cipher suite.
    pub cipher: &'static str,
    /// OpenSSL's name of the key exchange group.
    pub curve: Option<String>,
    /// The client's name in the ClientHello, if it has one.
    pub server_name: Option<Box<str>>,
    /// Selected ALPN protocol.
    pub alpn: Option<Box<[u8]>>,
    /// The session was resumed.
    pub resumed: bool,
    /// Id of the session, or the digest of its ticket; may be empty.
    pub session_id: Box<[u8]>,
    /// Suites of the ClientHello.
    pub client_ciphers: Box<[u16]>,
    /// Groups of the ClientHello.
    pub client_groups: Box<[u16]>,
    /// Signature schemes of the ClientHello.
    pub client_signature_schemes: Box<[u16]>,
    /// Scheme of the server's signature; none for a resumed session.
    pub signature: Option<u16>,
    /// Scheme of the peer's signature; none without a certificate of the peer.
    pub peer_signature: Option<u16>,
    /// The peer's certificate; none if it has sent none.
    pub peer: Option<Box<PeerCertificate>>,
    /// The handshake has not ended: data may be replayed (`$ssl_early_data`).
    pub early: AtomicBool,
    /// [`crate::ServerRules::asks`]: this certificate does not count for servers with other requirements.
    pub rules: crate::SessionScope,
    /// Cached server of `server_name`; opaque, 0 when empty.
    pub server: AtomicU64,
}

/// The certificate of a peer, and the result of its verification.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    /// The certificate.
    pub certificate: Certificate,
    /// The result of its verification.
    pub verdict: VerifyVerdict,
    /// Path from leaf to anchor, kept for `ssl_ocsp`.
    pub path: Vec<Certificate>,
    /// Result of the OCSP check; `Some`: reason for refusal.
    pub asked: OnceLock<Option<&'static str>>,
}

/// A number as OpenSSL shows it, including GREASE (RFC 8701).
fn number(id: u16) -> String {
    format!("0x{id:04x}")
}

/// Name of a signature scheme (IANA), or its number.
pub fn scheme_name(id: u16) -> String {
    let known = match id {
        0x0201 => "rsa_pkcs1_sha1",
        0x0203 => "ecdsa_sha1",
        0x0401 => "rsa_pkcs1_sha256",
        0x0403 => "ecdsa_secp256r1_sha256",
        0x0501 => "rsa_pkcs1_sha384",
        0x0503 => "ecdsa_secp384r1_sha384",
        0x0601 => "rsa_pkcs1_sha512",
        0x0603 => "ecdsa_secp521r1_sha512",
        0x0804 => "rsa_pss_rsae_sha256",
        0x0805 => "rsa_pss_rsae_sha384",
        0x0806 => "rsa_pss_rsae_sha512",
        0x0807 => "ed25519",
        0x0808 => "ed448",
        0x0809 => "rsa_pss_pss_sha256",
        0x080a => "rsa_pss_pss_sha384",
        0x080b => "rsa_pss_pss_sha512",
        0x0904 => "mldsa44",
        0x0905 => "mldsa65",
        0x0906 => "mldsa87",
        _ => return number(id),
    };
    known.into()
}

impl Facts {
    /// Tells whether the handshake has not ended, so that requests may be replays.
    pub fn is_early(&self) -> bool {
        self.early.load(Ordering::Relaxed)
    }

    /// `$ssl_ciphers`: names of the client's suites, separated by colons.
    pub fn ciphers(&self) -> String {
        let names: Vec<String> = self
            .client_ciphers
            .iter()
            .map(|id| ciphers::cipher_name(*id).map_or_else(|| number(*id), str::to_string))
            .collect();
        names.join(":")
    }

    /// `$ssl_curves`: names of the client's groups, separated by colons.
    pub fn curves(&self) -> String {
        let names: Vec<String> = self.client_groups.iter().map(|id| groups::group_name(*id)).collect();
        names.join(":")
    }

    /// Names of the client's signature schemes, separated by colons.
    pub fn signature_schemes(&self) -> String {
        let names: Vec<String> = self.client_signature_schemes.iter().map(|id| scheme_name(*id)).collect();
        names.join(":")
    }

    /// `$ssl_session_id`.
    pub fn session_id_hex(&self) -> String {
        crate::hex_lower(&self.session_id)
    }

    /// `$ssl_client_verify`: `NONE`, `SUCCESS` or `FAILED:reason`.
    pub fn client_verify(&self) -> String {
        match &self.peer {
            None => "NONE".into(),
            Some(peer) => match peer.fault() {
                None => "SUCCESS".into(),
                Some(reason) => format!("FAILED:{reason}"),
            },
        }
    }
}

impl PeerCertificate {
    /// Returns the reason to refuse the certificate: its verification, then its OCSP check.
    pub fn fault(&self) -> Option<&'static str> {
        if !self.verdict.is_ok() {
            return Some(self.verdict.reason());
        }
        self.asked.get().copied().flatten()
    }

    /// `$ssl_client_raw_cert`: PEM.
    pub fn raw(&self) -> String {
        pem::encode_block("CERTIFICATE", self.certificate.der())
    }

    /// `$ssl_client_cert`: later lines begin with a tab, for header fields.
    pub fn folded(&self) -> String {
        self.raw().trim_end().replace('\n', "\n\t")
    }

    /// `$ssl_client_escaped_cert`: percent-encoded, with the last line end.
    pub fn escaped(&self) -> String {
        let text = pem::encode_block("CERTIFICATE", self.certificate.der());
        let mut out = String::with_capacity(text.len() * 3 / 2);
        for byte in text.bytes() {
            // Unreserved characters (`NGX_ESCAPE_URI_COMPONENT`).
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                out.push(char::from(byte));
            } else {
                out.push('%');
                out.push_str(&crate::hex_upper(&[byte]));
            }
        }
        out
    }

    /// `$ssl_client_s_dn`.
    pub fn subject(&self) -> String {
        name::format_rfc2253(self.certificate.subject())
    }
    /// `$ssl_client_i_dn`.
    pub fn issuer(&self) -> String {
        name::format_rfc2253(self.certificate.issuer())
    }
    /// `$ssl_client_s_dn_legacy`.
    pub fn subject_legacy(&self) -> String {
        name::format_oneline(self.certificate.subject())
    }
    /// `$ssl_client_i_dn_legacy`.
    pub fn issuer_legacy(&self) -> String {
        name::format_oneline(self.certificate.issuer())
    }
    /// `$ssl_client_v_start`.
    pub fn valid_from(&self) -> String {
        time::print_time(self.certificate.not_before)
    }
    /// `$ssl_client_v_end`.
    pub fn valid_to(&self) -> String {
        time::print_time(self.certificate.not_after)
    }
    /// `$ssl_client_v_remain`: whole days, 0 after the end. `now`: seconds since 1970.
    pub fn days_left(&self, now: i64) -> i64 {
        ((self.certificate.not_after - now) / 86_400).max(0)
    }
}
