//! Encrypters whose plaintext arrives in slices.
//!
//! rustls copies the plaintext of a record behind the record's header of 5 octets, which is slow for long pieces of buffers that begin at
//! a page ([`base::append`]).

use base::append::SLICE;
use rustls::crypto::cipher::{
    AeadKey, Iv, KeyBlockShape, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundOpaqueMessage,
    OutboundPlainMessage, Tls12AeadAlgorithm, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{
    CipherSuiteCommon, ConnectionTrafficSecrets, Error, SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite,
};

/// Slices of a record (16,384 octets at most).
const SLICES_MAX: usize = 8;

/// Returns the suite with sliced plaintext. It lives as long as the process: call it once for each suite.
pub(super) fn sliced(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    match suite {
        SupportedCipherSuite::Tls13(suite) => SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
            common: common(&suite.common),
            hkdf_provider: suite.hkdf_provider,
            aead_alg: Box::leak(Box::new(Sliced13(suite.aead_alg))),
            quic: suite.quic,
        }))),
        SupportedCipherSuite::Tls12(suite) => SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
            common: common(&suite.common),
            prf_provider: suite.prf_provider,
            kx: suite.kx,
            sign: suite.sign,
            aead_alg: Box::leak(Box::new(Sliced12(suite.aead_alg))),
        }))),
    }
}

fn common(of: &CipherSuiteCommon) -> CipherSuiteCommon {
    CipherSuiteCommon {
        suite: of.suite,
        hash_provider: of.hash_provider,
        confidentiality_limit: of.confidentiality_limit,
    }
}

struct Sliced13(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for Sliced13 {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Encrypter(self.0.encrypter(key, iv)))
    }
    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.0.decrypter(key, iv)
    }
    fn key_len(&self) -> usize {
        self.0.key_len()
    }
    fn extract_keys(&self, key: AeadKey, iv: Iv) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }
    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct Sliced12(&'static dyn Tls12AeadAlgorithm);

impl Tls12AeadAlgorithm for Sliced12 {
    fn encrypter(&self, key: AeadKey, iv: &[u8], extra: &[u8]) -> Box<dyn MessageEncrypter> {
        Box::new(Encrypter(self.0.encrypter(key, iv, extra)))
    }
    fn decrypter(&self, key: AeadKey, iv: &[u8]) -> Box<dyn MessageDecrypter> {
        self.0.decrypter(key, iv)
    }
    fn key_block_shape(&self) -> KeyBlockShape {
        self.0.key_block_shape()
    }
    fn extract_keys(
        &self,
        key: AeadKey,
        iv: &[u8],
        explicit: &[u8],
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv, explicit)
    }
    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct Encrypter(Box<dyn MessageEncrypter>);

impl MessageEncrypter for Encrypter {
    fn encrypt(&mut self, message: OutboundPlainMessage<'_>, seq: u64) -> Result<OutboundOpaqueMessage, Error> {
        let OutboundChunks::Single(whole) = message.payload else { return self.0.encrypt(message, seq) };
        if whole.len() <= SLICE || whole.len() > SLICE * SLICES_MAX {
            return self.0.encrypt(message, seq);
        }
        let mut slices = [&[][..]; SLICES_MAX];
        for (slice, part) in slices.iter_mut().zip(whole.chunks(SLICE)) {
            *slice = part;
        }
        let payload = OutboundChunks::new(&slices);
        self.0.encrypt(OutboundPlainMessage { payload, ..message }, seq)
    }
    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        self.0.encrypted_payload_len(payload_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{ContentType, ProtocolVersion};
    use std::sync::{Arc, Mutex};

    /// Copies plaintext, and notes the lengths of its slices.
    struct Copier(Arc<Mutex<Vec<usize>>>);

    impl MessageEncrypter for Copier {
        fn encrypt(&mut self, message: OutboundPlainMessage<'_>, _: u64) -> Result<OutboundOpaqueMessage, Error> {
            let lengths = match &message.payload {
                OutboundChunks::Single(whole) => vec![whole.len()],
                OutboundChunks::Multiple { chunks, .. } => chunks.iter().map(|chunk| chunk.len()).collect(),
            };
            *self.0.lock().expect("no panic") = lengths;
            let payload = rustls::crypto::cipher::PrefixedPayload::from(&message.payload.to_vec()[..]);
            Ok(OutboundOpaqueMessage::new(message.typ, message.version, payload))
        }
        fn encrypted_payload_len(&self, payload_len: usize) -> usize {
            payload_len
        }
    }

    #[test]
    fn long_records_are_sliced_and_stay_whole() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut encrypter = Encrypter(Box::new(Copier(seen.clone())));
        let plain: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        for (length, slices) in [
            (0, vec![0]),
            (2048, vec![2048]),
            (2049, vec![2048, 1, 0, 0, 0, 0, 0, 0]),
            (16_384, vec![2048; 8]),
            (16_385, vec![16_385]),
        ] {
            let message = OutboundPlainMessage {
                typ: ContentType::ApplicationData,
                version: ProtocolVersion::TLSv1_2,
                payload: OutboundChunks::Single(&plain[..length]),
            };
            let record = encrypter.encrypt(message, 0).expect("encrypts");
            assert_eq!(record.payload.as_ref(), &plain[..length]);
            assert_eq!(*seen.lock().expect("no panic"), slices, "{length}");
        }
    }

    #[test]
    fn suites_keep_their_facts() {
        let original = rustls::crypto::aws_lc_rs::default_provider();
        for suite in original.cipher_suites {
            let twin = sliced(suite);
            assert_eq!((twin.suite(), twin.version()), (suite.suite(), suite.version()));
        }
    }
}
