//! Private keys of another process (`ssl_key_isolation`): stand-ins that have signatures made by a [`KeyService`], and the text that takes
//! a key's place in a PEM file. No I/O: the server connects both ends.
//!
//! A service signs and does nothing else: there is no operation that decrypts, and rustls has no key exchange by RSA.

use crate::key::{self, KeyError};
use crate::{der, pem};
use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::sign::Signer;
pub use rustls::sign::SigningKey;
use rustls::{Error, OtherError, SignatureAlgorithm, SignatureScheme};
use std::fmt::Debug;
use std::io;
use std::sync::{Arc, OnceLock};

/// SHA-256 of the public key's bits.
pub type KeyId = [u8; 32];

/// Label of the block that stands for a private key: its public half.
const STAND_IN: &str = "TIDEGATE ISOLATED KEY";
/// Label of the block that stands for a private key that cannot be used.
const REFUSED: &str = "TIDEGATE REFUSED KEY";
/// Header of a stand-in: the file that the key came from, for keys that are loaded at handshakes.
const ORIGIN: &str = "Origin";

/// A process that holds private keys, as others see it.
pub trait KeyService: Send + Sync + Debug {
    /// Signs a message. `origin`: the file to load the key from where the service has forgotten it.
    ///
    /// # Errors
    /// A reason for the error log. The call must have a bounded duration.
    fn sign(&self, id: &KeyId, origin: Option<&str>, scheme: u16, message: &[u8]) -> Result<Vec<u8>, String>;
    /// Reads a file of certificates and keys that variables name; keys are replaced by stand-ins.
    ///
    /// # Errors
    /// The file cannot be read by the process that holds the keys. The call must have a bounded duration.
    fn open(&self, path: &str) -> io::Result<Vec<u8>>;
}

static SERVICE: OnceLock<Arc<dyn KeyService>> = OnceLock::new();

/// Sets the service of this process, once.
pub fn install_service(service: Arc<dyn KeyService>) {
    let _ = SERVICE.set(service);
}

/// [`KeyService::open`] of this process's service.
///
/// # Errors
/// As there, and without a service.
pub fn open_file(path: &str) -> io::Result<Vec<u8>> {
    SERVICE.get().ok_or_else(|| io::Error::other("this process has no connection to the key process"))?.open(path)
}

/// Returns the id of a public key, in the form of a certificate.
pub fn id_of(spki: &[u8]) -> KeyId {
    let mut id = KeyId::default();
    id.copy_from_slice(digest(&SHA256, crate::certs::key_bits(spki)).as_ref());
    id
}

#[derive(Debug)]
struct RemoteKey {
    id: KeyId,
    spki: Vec<u8>,
    origin: Option<Arc<str>>,
    algorithm: SignatureAlgorithm,
    schemes: &'static [SignatureScheme],
}

const RSA_SCHEMES: &[SignatureScheme] = &[
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA256,
];

/// Kind of a public key and its schemes, as rustls orders them; `None` for keys that cannot sign here.
fn kind(spki: &[u8]) -> Option<(SignatureAlgorithm, &'static [SignatureScheme])> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
    const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];
    const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    let mut algorithm = der::Reader::new(spki).enter(der::SEQUENCE)?.enter(der::SEQUENCE)?;
    match algorithm.body(der::OID)? {
        RSA => Some((SignatureAlgorithm::RSA, RSA_SCHEMES)),
        ED25519 => Some((SignatureAlgorithm::ED25519, &[SignatureScheme::ED25519])),
        EC => {
            let schemes: &[SignatureScheme] = match algorithm.body(der::OID)? {
                P256 => &[SignatureScheme::ECDSA_NISTP256_SHA256],
                P384 => &[SignatureScheme::ECDSA_NISTP384_SHA384],
                P521 => &[SignatureScheme::ECDSA_NISTP521_SHA512],
                _ => return None,
            };
            Some((SignatureAlgorithm::ECDSA, schemes))
        }
        _ => None,
    }
}

impl SigningKey for RemoteKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = *self.schemes.iter().find(|scheme| offered.contains(scheme))?;
        Some(Box::new(RemoteSigner { id: self.id, origin: self.origin.clone(), scheme }))
    }
    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(&self.spki[..]))
    }
    fn algorithm(&self) -> SignatureAlgorithm {
        self.algorithm
    }
}

#[derive(Debug)]
struct RemoteSigner {
    id: KeyId,
    origin: Option<Arc<str>>,
    scheme: SignatureScheme,
}

/// Reason of a missing signature.
#[derive(Debug)]
struct NoSignature(String);

impl std::fmt::Display for NoSignature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the key process made no signature: {}", self.0)
    }
}

impl std::error::Error for NoSignature {}

impl Signer for RemoteSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let failed = |why: String| Error::Other(OtherError(Arc::new(NoSignature(why))));
        let service = SERVICE.get().ok_or_else(|| failed("this process has no connection to it".into()))?;
        service.sign(&self.id, self.origin.as_deref(), self.scheme.into(), message).map_err(failed)
    }
    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

/// The result of [`extract_keys`].
#[derive(Debug)]
pub struct ExtractedKeys {
    /// The file without private keys.
    pub text: Vec<u8>,
    /// The private keys, in the order of the file.
    pub keys: Vec<ExtractedKey>,
}

/// A private key of a file.
#[derive(Debug)]
pub struct ExtractedKey {
    /// Id of its public half.
    pub id: KeyId,
    /// The key.
    pub key: Arc<dyn SigningKey>,
    /// The key as PEM, not encrypted.
    pub pem: String,
}

/// Takes private keys out of a PEM file, in the process that holds them. Files without keys are unchanged. `origin` names the file in the
/// stand-ins.
pub fn extract_keys(text: &[u8], passwords: &[Vec<u8>], origin: Option<&str>) -> ExtractedKeys {
    const MARK: &[u8] = b"PRIVATE KEY-----";
    let mut keys = Vec::new();
    if !text.windows(MARK.len()).any(|part| part == MARK) {
        return ExtractedKeys { text: text.to_vec(), keys };
    }
    let blocks = match pem::parse_blocks(text) {
        Ok(blocks) => blocks,
        Err(why) => return ExtractedKeys { text: refused(&KeyError::Broken(why)).into_bytes(), keys },
    };
    let mut out = String::new();
    for block in &blocks {
        if !block.label.ends_with("PRIVATE KEY") {
            out.push_str(&pem::encode_block(&block.label, &block.bytes));
            continue;
        }
        let opened = key::open(block, passwords).and_then(|(pem, key)| {
            let spki = key.public_key().map(|spki| spki.as_ref().to_vec());
            let spki = spki.filter(|spki| kind(spki).is_some());
            let spki = spki.ok_or_else(|| KeyError::Unsupported("a key without a public half".into()))?;
            Ok((ExtractedKey { id: id_of(&spki), key, pem }, spki))
        });
        match opened {
            Ok((key, spki)) => {
                let block = pem::encode_block(STAND_IN, &spki);
                let header = origin.map(|path| format!("{ORIGIN}: {path}\n\n")).unwrap_or_default();
                out.push_str(&block.replacen("-----\n", &format!("-----\n{header}"), 1));
                keys.push(key);
            }
            Err(why) => out.push_str(&refused(&why)),
        }
    }
    ExtractedKeys { text: out.into_bytes(), keys }
}

/// Initialises the library before the process is confined: its random numbers begin with a look for a device.
pub fn prepare_library() {
    let _ = aws_lc_rs::rand::fill(&mut [0; 32]);
}

/// Signs for another process. The scheme is the number of TLS.
///
/// # Errors
/// The key does not have the scheme, or the signature failed.
pub fn sign_with(key: &dyn SigningKey, scheme: u16, message: &[u8]) -> Result<Vec<u8>, String> {
    let signer = key.choose_scheme(&[SignatureScheme::from(scheme)]).ok_or("the key does not have the scheme")?;
    signer.sign(message).map_err(|why| why.to_string())
}

/// Removes all but certificates and stand-ins from a text of [`extract_keys`]. Services that open files for other processes return nothing else.
pub fn certificates_and_keys(text: &[u8]) -> Vec<u8> {
    let kept = |label: &str| label.ends_with("CERTIFICATE") || label == STAND_IN || label == REFUSED;
    let mut out = String::new();
    let (mut inside, text) = (false, String::from_utf8_lossy(text));
    for line in text.lines().map(|line| line.trim_start_matches(pem::BYTE_ORDER_MARK)) {
        if let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.trim_end().strip_suffix("-----")) {
            inside = kept(label);
        }
        if inside {
            out.push_str(line);
            out.push('\n');
        }
        inside &= !line.starts_with("-----END ");
    }
    out.into_bytes()
}

fn refused(why: &KeyError) -> String {
    let kind = match why {
        KeyError::NoKey => "n",
        KeyError::NeedsPassword => "p",
        KeyError::WrongPassword => "w",
        KeyError::Broken(_) | KeyError::Unsupported(_) => "u",
    };
    pem::encode_block(REFUSED, format!("{kind}{why}").as_bytes())
}

/// Loads the first stand-in of a text that [`extract_keys`] made.
///
/// # Errors
/// The reason why the key process could not use the key.
pub fn load_stand_in(text: &[u8]) -> Result<Arc<dyn SigningKey>, KeyError> {
    let blocks = pem::parse_blocks(text).map_err(KeyError::Broken)?;
    let block = blocks.iter().find(|block| block.label == STAND_IN || block.label == REFUSED).ok_or(KeyError::NoKey)?;
    if block.label == REFUSED {
        let (kind, why) = block.bytes.split_first().map_or((b'n', &[][..]), |(kind, why)| (*kind, why));
        return Err(match kind {
            b'p' => KeyError::NeedsPassword,
            b'w' => KeyError::WrongPassword,
            b'u' => KeyError::Unsupported(String::from_utf8_lossy(why).into_owned()),
            _ => KeyError::NoKey,
        });
    }
    let (algorithm, schemes) = kind(&block.bytes).ok_or(KeyError::Broken("not a public key"))?;
    let origin = block.header(ORIGIN).map(Arc::from);
    Ok(Arc::new(RemoteKey { id: id_of(&block.bytes), spki: block.bytes.clone(), origin, algorithm, schemes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::{KeyPair, LoadError};
    use crate::testing::{Authority, openssl};

    #[test]
    fn a_stand_in_has_the_schemes_of_its_key() {
        for args in [
            &["genrsa", "2048"][..],
            &["ecparam", "-name", "prime256v1", "-genkey"],
            &["ecparam", "-name", "secp384r1", "-genkey"],
            &["ecparam", "-name", "secp521r1", "-genkey"],
            &["genpkey", "-algorithm", "ed25519"],
        ] {
            let Some(text) = openssl(args, b"") else { return };
            let found = extract_keys(&text, &[], None);
            let [ExtractedKey { id, key, .. }] = &found.keys[..] else { panic!("{args:?}: {found:?}") };
            let remote = load_stand_in(&found.text).expect("a stand-in");
            assert_eq!(
                (remote.algorithm(), id_of(remote.public_key().expect("public").as_ref())),
                (key.algorithm(), *id)
            );
            let all: Vec<SignatureScheme> = (0..=0xffff_u32).map(|n| SignatureScheme::from(n as u16)).collect();
            let each = |key: &dyn SigningKey| -> Vec<bool> {
                all.iter().map(|one| key.choose_scheme(&[*one]).is_some()).collect()
            };
            assert_eq!(each(&*remote), each(&**key), "{args:?}");
            let first = |key: &dyn SigningKey| key.choose_scheme(&all).map(|signer| signer.scheme());
            assert_eq!(first(&*remote), first(&**key), "{args:?}");
        }
    }

    #[test]
    fn no_private_key_is_left_in_a_text() {
        let authority = Authority::new("root");
        let pair = authority.server(&["a"]);
        let both = format!("{}{}", pair.certificate, pair.key);
        let found = extract_keys(both.as_bytes(), &[], Some("/k.pem"));
        let text = String::from_utf8_lossy(&found.text);
        assert!(!text.contains("PRIVATE"), "{text}");
        let key = load_stand_in(&found.text).expect("a stand-in");
        assert!(KeyPair::join(KeyPair::chain(&found.text).expect("a chain"), key).is_ok());
        let other = extract_keys(authority.server(&["b"]).key.as_bytes(), &[], None);
        let joined =
            KeyPair::join(KeyPair::chain(&found.text).expect("a chain"), load_stand_in(&other.text).expect("a key"));
        assert_eq!(joined.err(), Some(LoadError::Mismatch));
        assert_eq!(extract_keys(pair.certificate.as_bytes(), &[], None).text, pair.certificate.as_bytes());
    }

    #[test]
    fn reasons_survive_the_way() {
        let text = b"-----BEGIN PRIVATE KEY-----\nAQID\n-----END PRIVATE KEY-----\n";
        let why = key::load_key(text, &[]).err();
        assert!(why.is_some());
        assert_eq!(load_stand_in(&extract_keys(text, &[], None).text).err(), why);
        assert_eq!(load_stand_in(&extract_keys(b"nothing", &[], None).text).err(), Some(KeyError::NoKey));
        let broken = extract_keys(b"-----BEGIN PRIVATE KEY-----\nAQID\n", &[], None);
        assert!(broken.keys.is_empty() && load_stand_in(&broken.text).is_err());
        if let Some(locked) = openssl(&["genrsa", "-aes128", "-passout", "pass:secret", "2048"], b"") {
            assert_eq!(load_stand_in(&extract_keys(&locked, &[], None).text).err(), Some(KeyError::NeedsPassword));
            assert_eq!(
                load_stand_in(&extract_keys(&locked, &[b"x".to_vec()], None).text).err(),
                Some(KeyError::WrongPassword)
            );
            let opened = extract_keys(&locked, &[b"secret".to_vec()], None);
            assert!(load_stand_in(&opened.text).is_ok() && key::load_key(opened.keys[0].pem.as_bytes(), &[]).is_ok());
        }
    }

    #[test]
    fn opened_files_give_certificates_and_stand_ins() {
        let text = b"secret words\n-----BEGIN CERTIFICATE-----\nAQ==\n-----END CERTIFICATE-----\nroot:x\n\
                     -----BEGIN DH PARAMETERS-----\nAQ==\n-----END DH PARAMETERS-----\n";
        let kept = certificates_and_keys(text);
        assert_eq!(kept, b"-----BEGIN CERTIFICATE-----\nAQ==\n-----END CERTIFICATE-----\n");
    }
}
