//! Signatures of certificates, revocation lists and handshakes, for any certificate version.

use crate::ciphers::provider;
use rustls::pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};

fn verified(spki: &[u8], algorithm: &dyn SignatureVerificationAlgorithm, message: &[u8], signature: &[u8]) -> bool {
    let spki = SubjectPublicKeyInfoDer::from(spki);
    webpki::RawPublicKeyEntity::try_from(&spki)
        .is_ok_and(|key| key.verify_signature(algorithm, message, signature).is_ok())
}

/// Verifies a signature with the key of `spki`. `algorithm`: contents of the `AlgorithmIdentifier`.
pub fn verify_signature(spki: &[u8], algorithm: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let known = provider().signature_verification_algorithms.all;
    known.iter().filter(|a| a.signature_alg_id().as_ref() == algorithm).any(|a| verified(spki, *a, message, signature))
}

pub(crate) fn handshake(
    spki: &[u8],
    scheme: rustls::SignatureScheme,
    message: &[u8],
    signature: &[u8],
    tls13: bool,
) -> bool {
    let known = provider().signature_verification_algorithms.mapping;
    let Some((_, algorithms)) = known.iter().find(|(s, _)| *s == scheme) else { return false };
    // TLS 1.3 schemes name a curve; TLS 1.2 allows any that fits.
    let count = if tls13 { 1 } else { algorithms.len() };
    algorithms.iter().take(count).any(|a| verified(spki, *a, message, signature))
}
