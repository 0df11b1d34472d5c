//! Verifiers for rustls, which delegate to OpenSSL's rules in `chain.rs` and `host.rs`.

use super::{AlternativeName, Purpose, Trust, VerifyVerdict, host, signature};
use crate::Clock;
use crate::ciphers::provider;
use crate::x509::Certificate;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerMisbehaved, SignatureScheme,
};
use std::sync::Arc;

pub(crate) fn parse_all<'a>(
    certificates: impl IntoIterator<Item = &'a CertificateDer<'a>>,
) -> Result<Vec<Certificate>, Error> {
    certificates
        .into_iter()
        .map(|der| {
            let owned = CertificateDer::from(der.as_ref().to_vec());
            Certificate::parse(owned).map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))
        })
        .collect()
}

fn handshake(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    tls13: bool,
) -> Result<HandshakeSignatureValid, Error> {
    let parsed = parse_all([certificate])?;
    let spki = parsed.first().map(Certificate::spki).unwrap_or_default();
    let pkcs1 = matches!(
        signed.scheme,
        SignatureScheme::RSA_PKCS1_SHA256 | SignatureScheme::RSA_PKCS1_SHA384 | SignatureScheme::RSA_PKCS1_SHA512
    );
    // TLS 1.3 has no PKCS#1 v1.5 signatures (RFC 8446, 4.2.3).
    if tls13 && pkcs1 {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    }
    if signature::handshake(spki, signed.scheme, message, signed.signature(), tls13) {
        Ok(HandshakeSignatureValid::assertion())
    } else {
        Err(Error::InvalidCertificate(CertificateError::BadSignature))
    }
}

fn schemes() -> Vec<SignatureScheme> {
    provider().signature_verification_algorithms.supported_schemes()
}

/// Accepts every client that has its certificate's key. As in nginx, the verdict is in `$ssl_client_verify`, and
/// requests get 400 if a valid certificate is required.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    pub subjects: Vec<DistinguishedName>,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }
    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        parse_all(std::iter::once(leaf).chain(others))?;
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = handshake(message, certificate, signed, false)?;
        crate::current::peer_signature(signed.scheme);
        Ok(valid)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = handshake(message, certificate, signed, true)?;
        crate::current::peer_signature(signed.scheme);
        Ok(valid)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}

/// Carries a server certificate's verdict through rustls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusedRole(pub VerifyVerdict);

impl std::fmt::Display for RefusedRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.reason())
    }
}
impl std::error::Error for RefusedRole {}

/// Verifies upstream servers by [`Trust`] and name, or not at all.
#[derive(Clone)]
pub(crate) struct ServerVerifier {
    /// `None`: `proxy_ssl_verify off`.
    pub trust: Option<Arc<Trust>>,
    /// `proxy_ssl_name`; rustls gets a valid host name instead.
    pub name: String,
    /// Names in place of `name`, of which the certificate must have one; empty: `name` holds.
    pub names: Arc<[AlternativeName]>,
    /// See [`crate::ClientSettings::addresses`].
    pub addresses: bool,
    pub clock: Clock,
}

impl std::fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerVerifier").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = parse_all(std::iter::once(leaf).chain(others))?;
        let Some(trust) = &self.trust else { return Ok(ServerCertVerified::assertion()) };
        let mut verdict = trust.verify(&chain, (self.clock)() as i64, Purpose::Server);
        let matches = |leaf| match self.name.parse() {
            _ if !self.names.is_empty() => self.names.iter().any(|name| name.is_of(leaf)),
            Ok(address) if self.addresses => host::matches_address(leaf, address),
            _ => host::matches_host(leaf, &self.name),
        };
        if verdict.is_ok() && !chain.first().is_some_and(matches) {
            verdict = VerifyVerdict::HOST;
        }
        if verdict.is_ok() {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(RefusedRole(verdict))))))
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        handshake(message, certificate, signed, false)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        handshake(message, certificate, signed, true)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}

/// Accepts every server that has its certificate's key, for clients that send no secrets. Certificates of X.509
/// version 1 are readable, too.
#[derive(Debug)]
pub struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        handshake(message, certificate, signed, false)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        handshake(message, certificate, signed, true)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}
