//! Failures of a connection, in OpenSSL's words where they exist, for which operators search their logs.

use crate::verify::{RefusedRole, VerifyVerdict};
use rustls::{CertificateError, Error, PeerIncompatible};

/// The reason for the end of a TLS connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsError {
    /// Another protocol (nginx answers 400 or 497).
    NotTls,
    /// The server's rules refuse the handshake (`ssl_reject_handshake`).
    Rejected,
    /// Refused certificate of an upstream server.
    Verify(VerifyVerdict),
    /// The peer has sent this alert (RFC 8446, 6.2).
    Alert(u8),
    /// The peers have no cipher suite in common.
    NoSharedCipher,
    /// The peers have no version in common.
    UnsupportedProtocol,
    /// The peers have no ALPN protocol in common.
    NoApplicationProtocol,
    /// A record that cannot be decrypted.
    BadRecord,
    /// TLS 1.3 ClientHello without `key_share` (RFC 8446, 9.2).
    NoKeyShare,
    /// ClientHello without `signature_algorithms`, which a certificate needs (RFC 8446, 9.2).
    NoSignatureAlgorithms,
    /// Unexpected record or message; rustls sends no alert for some.
    Misbehaved(String),
    /// Another fault, in rustls's words.
    Protocol(String),
    /// The connection has failed before, or the call is not permitted in its state.
    Dead,
}

impl TlsError {
    /// The peer refused our certificate with an alert (RFC 8446, 6.2).
    pub fn is_rejected_certificate(&self) -> bool {
        matches!(self, TlsError::Alert(42..=46 | 48))
    }

    /// nginx's message about a failed handshake.
    pub fn of_handshake(&self) -> String {
        match self {
            TlsError::Rejected => "handshake rejected".into(),
            why => format!("SSL_do_handshake() failed (SSL: {why})"),
        }
    }
}

impl std::fmt::Display for TlsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known =
            |f: &mut std::fmt::Formatter<'_>, code: &str, words: &str| write!(f, "error:{code}:SSL routines::{words}");
        match self {
            TlsError::NotTls => known(f, "0A00009C", "http request"),
            TlsError::Rejected => known(f, "0A0000EA", "callback failed"),
            TlsError::Verify(verdict) => write!(f, "certificate verify error: ({}:{})", verdict.0, verdict.reason()),
            // OpenSSL numbers alerts from 1000.
            TlsError::Alert(n) => {
                write!(
                    f,
                    "error:{:08X}:SSL routines::{}:SSL alert number {n}",
                    0x0A00_03E8_u32 + u32::from(*n),
                    alert(*n)
                )
            }
            TlsError::NoSharedCipher => known(f, "0A0000C1", "no shared cipher"),
            TlsError::UnsupportedProtocol => known(f, "0A000102", "unsupported protocol"),
            TlsError::NoApplicationProtocol => known(f, "0A0000EB", "no application protocol"),
            TlsError::BadRecord => known(f, "0A000119", "decryption failed or bad record mac"),
            TlsError::NoKeyShare => known(f, "0A000065", "no suitable key share"),
            TlsError::NoSignatureAlgorithms => known(f, "0A000076", "no suitable signature algorithm"),
            TlsError::Protocol(why) | TlsError::Misbehaved(why) => f.write_str(why),
            TlsError::Dead => f.write_str("the connection failed before"),
        }
    }
}

impl std::error::Error for TlsError {}

fn alert(number: u8) -> &'static str {
    match number {
        10 => "sslv3 alert unexpected message",
        20 => "sslv3 alert bad record mac",
        21 => "tlsv1 alert decryption failed",
        22 => "tlsv1 alert record overflow",
        30 => "sslv3 alert decompression failure",
        40 => "sslv3 alert handshake failure",
        41 => "sslv3 alert no certificate",
        42 => "sslv3 alert bad certificate",
        43 => "sslv3 alert unsupported certificate",
        44 => "sslv3 alert certificate revoked",
        45 => "sslv3 alert certificate expired",
        46 => "sslv3 alert certificate unknown",
        47 => "sslv3 alert illegal parameter",
        48 => "tlsv1 alert unknown ca",
        49 => "tlsv1 alert access denied",
        50 => "tlsv1 alert decode error",
        51 => "tlsv1 alert decrypt error",
        70 => "tlsv1 alert protocol version",
        71 => "tlsv1 alert insufficient security",
        80 => "tlsv1 alert internal error",
        86 => "tlsv1 alert inappropriate fallback",
        90 => "tlsv1 alert user cancelled",
        100 => "tlsv1 alert no renegotiation",
        109 => "tlsv13 alert missing extension",
        110 => "tlsv1 unsupported extension",
        112 => "tlsv1 unrecognized name",
        115 => "tlsv1 alert unknown psk identity",
        116 => "tlsv13 alert certificate required",
        120 => "tlsv1 alert no application protocol",
        _ => "reason(unknown)",
    }
}

impl From<&Error> for TlsError {
    fn from(why: &Error) -> TlsError {
        match why {
            Error::AlertReceived(alert) => TlsError::Alert(u8::from(*alert)),
            Error::InvalidCertificate(CertificateError::Other(other)) => match other.0.downcast_ref::<RefusedRole>() {
                Some(refused) => TlsError::Verify(refused.0),
                None => TlsError::Protocol(why.to_string()),
            },
            Error::DecryptError => TlsError::BadRecord,
            Error::NoApplicationProtocol => TlsError::NoApplicationProtocol,
            Error::PeerIncompatible(
                PeerIncompatible::NoCipherSuitesInCommon
                | PeerIncompatible::NoKxGroupsInCommon
                | PeerIncompatible::NoSignatureSchemesInCommon
                | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon,
            ) => TlsError::NoSharedCipher,
            Error::PeerIncompatible(
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::Tls13RequiredForQuic
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ) => TlsError::UnsupportedProtocol,
            Error::PeerIncompatible(PeerIncompatible::KeyShareExtensionRequired) => TlsError::NoKeyShare,
            Error::PeerIncompatible(PeerIncompatible::SignatureAlgorithmsExtensionRequired) => {
                TlsError::NoSignatureAlgorithms
            }
            Error::PeerMisbehaved(_) => TlsError::Misbehaved(why.to_string()),
            _ => TlsError::Protocol(why.to_string()),
        }
    }
}

pub(crate) const UNRECOGNIZED_NAME: u8 = 112;
pub(crate) const INTERNAL_ERROR: u8 = 80;
pub(crate) const PROTOCOL_VERSION: u8 = 70;
pub(crate) const UNEXPECTED_MESSAGE: u8 = 10;
pub(crate) const MISSING_EXTENSION: u8 = 109;

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::AlertDescription;

    #[test]
    fn alerts_are_worded_as_openssl_words_them() {
        assert_eq!(
            TlsError::from(&Error::AlertReceived(AlertDescription::HandshakeFailure)).to_string(),
            "error:0A000410:SSL routines::sslv3 alert handshake failure:SSL alert number 40"
        );
        assert_eq!(
            TlsError::Alert(UNRECOGNIZED_NAME).to_string(),
            "error:0A000458:SSL routines::tlsv1 unrecognized name:SSL alert number 112"
        );
        assert_eq!(TlsError::Rejected.of_handshake(), "handshake rejected");
        assert_eq!(
            TlsError::NoSharedCipher.of_handshake(),
            "SSL_do_handshake() failed (SSL: error:0A0000C1:SSL routines::no shared cipher)"
        );
    }
}
