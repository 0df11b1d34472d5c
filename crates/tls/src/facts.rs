//! What is known of a connection's TLS once its handshake is done: the source of the `$ssl_*` variables.

use crate::verify::Verdict;
use crate::x509::{Certificate, name, time};
use crate::{ciphers, groups, pem};

/// Facts of one connection. Small: it lives as long as the connection.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `TLSv1.2`, `TLSv1.3`.
    pub protocol: &'static str,
    /// OpenSSL's name.
    pub cipher: &'static str,
    /// OpenSSL's name of the group of the key exchange.
    pub curve: Option<String>,
    /// As the client sent it.
    pub server_name: Option<Box<str>>,
    pub alpn: Option<Box<[u8]>>,
    pub resumed: bool,
    pub session_id: Box<[u8]>,
    /// What the client offered.
    pub client_ciphers: Box<[u16]>,
    pub client_groups: Box<[u16]>,
    pub client_signature_schemes: Box<[u16]>,
    pub peer: Option<Box<PeerCertificate>>,
    /// The fingerprint of the rules: a request under other rules must not profit from this certificate.
    pub rules: crate::Scope,
}

/// The certificate of the other side, and what it is worth.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    pub certificate: Certificate,
    pub verdict: Verdict,
}

/// Values of GREASE (RFC 8701) are sent by browsers and mean nothing; OpenSSL shows them as numbers, and so do we.
fn number(id: u16) -> String {
    format!("0x{id:04x}")
}

impl Facts {
    /// `$ssl_ciphers`.
    pub fn ciphers(&self) -> String {
        let names: Vec<String> = self
            .client_ciphers
            .iter()
            .map(|id| ciphers::name(*id).map_or_else(|| number(*id), str::to_string))
            .collect();
        names.join(":")
    }

    /// `$ssl_curves`.
    pub fn curves(&self) -> String {
        let names: Vec<String> = self.client_groups.iter().map(|id| groups::name(*id)).collect();
        names.join(":")
    }

    /// `$ssl_session_id`, in lower-case hexadecimal.
    pub fn session_id_hex(&self) -> String {
        crate::hex_lower(&self.session_id)
    }

    /// `$ssl_client_verify`: `NONE`, `SUCCESS` or `FAILED:reason`.
    pub fn client_verify(&self) -> String {
        match &self.peer {
            None => "NONE".into(),
            Some(peer) if peer.verdict.is_ok() => "SUCCESS".into(),
            Some(peer) => format!("FAILED:{}", peer.verdict.reason()),
        }
    }
}

impl PeerCertificate {
    /// `$ssl_client_raw_cert`: PEM without the last line's end.
    pub fn raw(&self) -> String {
        let mut text = pem::encode("CERTIFICATE", self.certificate.der());
        text.truncate(text.trim_end().len());
        text
    }

    /// `$ssl_client_cert`: every line but the first begins with a tab, so that it can stand in a header field.
    pub fn folded(&self) -> String {
        self.raw().replace('\n', "\n\t")
    }

    /// `$ssl_client_escaped_cert`: percent-encoded, with the last line's end.
    pub fn escaped(&self) -> String {
        let text = pem::encode("CERTIFICATE", self.certificate.der());
        let mut out = String::with_capacity(text.len() * 3 / 2);
        for byte in text.bytes() {
            // What may stand in a part of a URI (`NGX_ESCAPE_URI_COMPONENT`).
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                out.push(char::from(byte));
            } else {
                out.push('%');
                out.push_str(&crate::hex_upper(&[byte]));
            }
        }
        out
    }

    pub fn subject(&self) -> String {
        name::rfc2253(self.certificate.subject())
    }
    pub fn issuer(&self) -> String {
        name::rfc2253(self.certificate.issuer())
    }
    pub fn subject_legacy(&self) -> String {
        name::oneline(self.certificate.subject())
    }
    pub fn issuer_legacy(&self) -> String {
        name::oneline(self.certificate.issuer())
    }
    pub fn valid_from(&self) -> String {
        time::print(self.certificate.not_before)
    }
    pub fn valid_to(&self) -> String {
        time::print(self.certificate.not_after)
    }
    /// `$ssl_client_v_remain`: whole days, 0 when it has ended. `now`: seconds since 1970.
    pub fn days_left(&self, now: i64) -> i64 {
        ((self.certificate.not_after - now) / 86_400).max(0)
    }
}
