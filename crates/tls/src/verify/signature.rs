//! Signatures of certificates, revocation lists and handshakes, without asking what version the certificate is of.

use crate::ciphers::provider;
use rustls::pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};

fn verified(spki: &[u8], algorithm: &dyn SignatureVerificationAlgorithm, message: &[u8], signature: &[u8]) -> bool {
    let spki = SubjectPublicKeyInfoDer::from(spki);
    webpki::RawPublicKeyEntity::try_from(&spki)
        .is_ok_and(|key| key.verify_signature(algorithm, message, signature).is_ok())
}

/// Whether `message` was signed with the key of `spki`. `algorithm`: the contents of the `AlgorithmIdentifier`.
pub fn signed(spki: &[u8], algorithm: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let known = provider().signature_verification_algorithms.all;
    known.iter().filter(|a| a.signature_alg_id().as_ref() == algorithm).any(|a| verified(spki, *a, message, signature))
}

/// The same for a signature of the handshake, by its scheme.
pub(crate) fn handshake(
    spki: &[u8],
    scheme: rustls::SignatureScheme,
    message: &[u8],
    signature: &[u8],
    tls13: bool,
) -> bool {
    let known = provider().signature_verification_algorithms.mapping;
    let Some((_, algorithms)) = known.iter().find(|(s, _)| *s == scheme) else { return false };
    // In TLS 1.3 a scheme names one curve, in TLS 1.2 any that fits.
    let count = if tls13 { 1 } else { algorithms.len() };
    algorithms.iter().take(count).any(|a| verified(spki, *a, message, signature))
}
