//! Certificates with keys: loading, mutual checks, selection by the client's signature schemes.

use crate::isolation;
use crate::key::{self, KeyError};
use crate::pem;
use crate::x509::Certificate;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{NamedGroup, SignatureAlgorithm, SignatureScheme, SupportedCipherSuite};
use std::sync::Arc;

/// Maximum number of certificates per chain.
const CHAIN_MAX: usize = 64;

/// Reason of a failure, after `cannot load certificate "..."`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The certificate cannot be read; OpenSSL's message.
    Certificate(String),
    /// The key cannot be read.
    Key(KeyError),
    /// The key is not that of the certificate.
    Mismatch,
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Certificate(why) => f.write_str(why),
            LoadError::Key(why) => why.fmt(f),
            LoadError::Mismatch => f.write_str("key values mismatch"),
        }
    }
}

/// Parses PEM certificates: `CERTIFICATE`, `X509 CERTIFICATE` and OpenSSL's `TRUSTED CERTIFICATE`. Fails with OpenSSL's
/// message.
pub fn parse_certificates(text: &[u8]) -> Result<Vec<Certificate>, String> {
    let mut all = Vec::new();
    for block in pem::parse_blocks(text).map_err(|why| why.to_string())? {
        let bytes = match block.label.as_str() {
            "CERTIFICATE" | "X509 CERTIFICATE" => block.bytes,
            // Trust settings of OpenSSL follow the certificate.
            "TRUSTED CERTIFICATE" => {
                let first = crate::der::Reader::new(&block.bytes).next().map(|e| e.whole.to_vec());
                first.ok_or("not enough data")?
            }
            _ => continue,
        };
        if all.len() >= 16_384 {
            return Err("too many certificates".into());
        }
        all.push(Certificate::parse(CertificateDer::from(bytes)).map_err(str::to_string)?);
    }
    Ok(all)
}

/// A certificate with its chain and its key.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// The leaf, then the authorities that are sent with it.
    pub chain: Arc<Vec<Certificate>>,
    key: Arc<dyn SigningKey>,
    /// In DER.
    ocsp: Option<Vec<u8>>,
    certified: Arc<CertifiedKey>,
}

impl KeyPair {
    /// Loads a chain and its key from PEM; tries the passwords in order if the key is encrypted.
    pub fn load(certificate: &[u8], key: &[u8], passwords: &[Vec<u8>]) -> Result<KeyPair, LoadError> {
        let chain = Self::chain(certificate)?;
        let key = key::load_key(key, passwords).map_err(LoadError::Key)?;
        Self::join(chain, key)
    }

    /// [`KeyPair::load`] for a key of another process, from a text without private keys ([`isolation`]).
    pub fn load_isolated(certificate: &[u8], key: &[u8]) -> Result<KeyPair, LoadError> {
        let chain = Self::chain(certificate)?;
        Self::join(chain, isolation::load_stand_in(key).map_err(LoadError::Key)?)
    }

    /// Reads a chain from PEM: at least one certificate, at most 64.
    pub fn chain(text: &[u8]) -> Result<Vec<Certificate>, LoadError> {
        let chain = parse_certificates(text).map_err(LoadError::Certificate)?;
        if chain.is_empty() {
            return Err(LoadError::Certificate("no start line:Expecting: TRUSTED CERTIFICATE".into()));
        }
        if chain.len() > CHAIN_MAX {
            return Err(LoadError::Certificate("too many certificates in a chain".into()));
        }
        Ok(chain)
    }

    /// Fails when the key is not the leaf's.
    pub fn join(chain: Vec<Certificate>, key: Arc<dyn SigningKey>) -> Result<KeyPair, LoadError> {
        let leaf = chain.first().ok_or(LoadError::Mismatch)?;
        if let Some(public) = key.public_key()
            && key_bits(public.as_ref()) != key_bits(leaf.spki())
        {
            return Err(LoadError::Mismatch);
        }
        let certified = certified(&chain, &key, None);
        Ok(KeyPair { chain: Arc::new(chain), key, ocsp: None, certified })
    }

    /// Returns the pair with a stapled OCSP response in DER, or without one.
    #[must_use]
    pub fn with_ocsp(&self, response: Option<Vec<u8>>) -> KeyPair {
        let certified = certified(&self.chain, &self.key, response.clone());
        KeyPair { ocsp: response, certified, ..self.clone() }
    }

    /// Returns the stapled OCSP response in DER.
    pub fn ocsp(&self) -> Option<&[u8]> {
        self.ocsp.as_deref()
    }

    /// Returns the certificate itself.
    pub fn leaf(&self) -> Option<&Certificate> {
        self.chain.first()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

fn certified(chain: &[Certificate], key: &Arc<dyn SigningKey>, ocsp: Option<Vec<u8>>) -> Arc<CertifiedKey> {
    let ders = chain.iter().map(|c| c.der().clone()).collect();
    let mut certified = CertifiedKey::new(ders, Arc::new(ReportingKey(Arc::clone(key))));
    certified.ocsp = ocsp;
    Arc::new(certified)
}

/// A key that reports its signature scheme.
#[derive(Debug)]
struct ReportingKey(Arc<dyn SigningKey>);

impl SigningKey for ReportingKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        // The client's order, as OpenSSL; rustls has its own.
        let signer = offered.iter().find_map(|scheme| self.0.choose_scheme(std::slice::from_ref(scheme)))?;
        crate::current::signature(signer.scheme());
        Some(signer)
    }
    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }
    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

/// Bits of the key without its algorithm, which has several encodings.
pub(crate) fn key_bits(spki: &[u8]) -> &[u8] {
    let mut outer = crate::der::Reader::new(spki);
    let mut inner = match outer.enter(crate::der::SEQUENCE) {
        Some(inner) => inner,
        None => return spki,
    };
    inner.next();
    inner.body(crate::der::BIT_STRING).unwrap_or(spki)
}

/// Certificates of a server: the last one of each kind of key.
#[derive(Clone, Debug, Default)]
pub struct CertificateSet {
    pairs: Vec<KeyPair>,
}

impl CertificateSet {
    /// Keeps the last pair of each kind of key, cheap keys first.
    pub fn new(pairs: Vec<KeyPair>) -> CertificateSet {
        let mut set = CertificateSet::default();
        for pair in pairs {
            set.pairs.retain(|p| p.algorithm() != pair.algorithm());
            set.pairs.push(pair);
        }
        // ECDSA and Ed25519 are cheaper and shorter; RSA is the fallback.
        set.pairs.sort_by_key(|p| match p.algorithm() {
            SignatureAlgorithm::ECDSA => 0,
            SignatureAlgorithm::ED25519 => 1,
            _ => 2,
        });
        set
    }

    /// Returns the pairs, in the order of preference.
    pub fn pairs(&self) -> &[KeyPair] {
        &self.pairs
    }

    /// Tells whether there is no certificate.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// Certificates with the server's TLS 1.2 suites: a key must fit a suite as well as a scheme.
#[derive(Debug)]
pub(crate) struct CertificateResolver {
    pub set: Arc<CertificateSet>,
    pub suites: Arc<[SupportedCipherSuite]>,
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let offered = hello.signature_schemes();
        let shared: Vec<_> =
            self.suites.iter().filter(|suite| hello.cipher_suites().contains(&suite.suite())).collect();
        let fits = |p: &&KeyPair| {
            p.key.choose_scheme(offered).is_some()
                && shared.iter().any(|s| match s {
                    SupportedCipherSuite::Tls12(suite) => {
                        p.key.choose_scheme(suite.sign).is_some() && knows_curve(&hello, p)
                    }
                    SupportedCipherSuite::Tls13(_) => true,
                })
        };
        if let Some(pair) = self.set.pairs.iter().find(fits) {
            return Some(Arc::clone(&pair.certified));
        }
        let first = self.set.pairs.first()?;
        let is_of_tls13 = |s: &&SupportedCipherSuite| matches!(s, SupportedCipherSuite::Tls13(_));
        if !knows_curve(&hello, first) && !shared.iter().any(is_of_tls13) {
            let unusable = CertifiedKey::new(first.certified.cert.clone(), Arc::new(UnusableKey));
            return Some(Arc::new(unusable));
        }
        // Without a match rustls reports the error at the right step.
        Some(Arc::clone(&first.certified))
    }
}

/// Tells whether the client lists the curve of an ECDSA certificate, as TLS 1.2 requires (RFC 8422, 5.1). A client without
/// a list accepts all.
fn knows_curve(hello: &ClientHello<'_>, pair: &KeyPair) -> bool {
    const CURVES: [(&[u8], NamedGroup); 3] = [
        (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7], NamedGroup::secp256r1),
        (&[0x2b, 0x81, 4, 0, 0x22], NamedGroup::secp384r1),
        (&[0x2b, 0x81, 4, 0, 0x23], NamedGroup::secp521r1),
    ];
    let curve = pair.leaf().and_then(Certificate::key_curve);
    let group = CURVES.iter().find(|(oid, _)| Some(*oid) == curve).map(|(_, group)| group);
    match (hello.named_groups(), group) {
        (Some(offered), Some(group)) => offered.contains(group),
        _ => true,
    }
}

/// A key that fits no suite of TLS 1.2: rustls answers `handshake_failure`, as OpenSSL.
#[derive(Debug)]
struct UnusableKey;

impl SigningKey for UnusableKey {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        None
    }
    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::Unknown(0)
    }
}

#[derive(Debug)]
pub(crate) struct ClientCertificate(pub KeyPair);

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _roots: &[&[u8]], offered: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(offered).map(|_| Arc::clone(&self.0.certified))
    }
    fn has_certs(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Authority, openssl_v1};

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let authority = Authority::new("root");
        let (a, b) = (authority.server(&["a"]), authority.server(&["b"]));
        assert!(KeyPair::load(a.certificate.as_bytes(), a.key.as_bytes(), &[]).is_ok());
        assert_eq!(KeyPair::load(a.certificate.as_bytes(), b.key.as_bytes(), &[]).err(), Some(LoadError::Mismatch));
        assert!(matches!(KeyPair::load(b"", a.key.as_bytes(), &[]), Err(LoadError::Certificate(_))));
        assert!(matches!(KeyPair::load(a.certificate.as_bytes(), b"", &[]), Err(LoadError::Key(KeyError::NoKey))));
    }

    #[test]
    fn signatures_follow_the_order_of_the_client() {
        let Some(rsa) = openssl_v1("order") else { return };
        let pair = KeyPair::load(rsa.certificate.as_bytes(), rsa.key.as_bytes(), &[]).expect("loads");
        let [short, long] = [SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PSS_SHA512];
        for offered in [[short, long], [long, short]] {
            let signer = pair.certified.key.choose_scheme(&offered).expect("a scheme");
            assert_eq!(signer.scheme(), offered[0]);
        }
    }

    #[test]
    fn version_1_certificates_load() {
        let Some(pair) = openssl_v1("old") else { return };
        let loaded = KeyPair::load(pair.certificate.as_bytes(), pair.key.as_bytes(), &[]).expect("loads");
        assert_eq!(loaded.leaf().map(|c| c.version), Some(1));
    }

    #[test]
    fn the_last_of_a_kind_stays() {
        let authority = Authority::new("root");
        let load = |name: &str| {
            let pair = authority.server(&[name]);
            KeyPair::load(pair.certificate.as_bytes(), pair.key.as_bytes(), &[]).expect("loads")
        };
        let set = CertificateSet::new(vec![load("a"), load("b")]);
        assert_eq!(set.pairs().len(), 1);
        assert_eq!(set.pairs()[0].leaf().map(|c| c.extensions.dns_names.clone()), Some(vec![b"b".to_vec()]));
    }
}
