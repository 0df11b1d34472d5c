//! Kinds of keys, and the key of an account (RFC 8555, section 6.2; RFC 7518; RFC 7638).

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A kind of key, with its size in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// 256, 384 or 521.
    Ecdsa(u16),
    /// 2,048, 3,072 or 4,096.
    Rsa(u16),
}

impl Default for Algorithm {
    fn default() -> Self {
        Algorithm::Ecdsa(256)
    }
}

impl Algorithm {
    /// Parses `ecdsa[:size]` and `rsa[:size]`; `None` for other words.
    ///
    /// # Errors
    /// nginx-acme's message for an unsupported size.
    pub fn parse(text: &str) -> Option<Result<Algorithm, String>> {
        let (name, size) = text.split_once(':').map_or((text, None), |(name, size)| (name, Some(size)));
        Some(match (name, size) {
            ("ecdsa", None | Some("256")) => Ok(Algorithm::Ecdsa(256)),
            ("ecdsa", Some("384")) => Ok(Algorithm::Ecdsa(384)),
            ("ecdsa", Some("521")) => Ok(Algorithm::Ecdsa(521)),
            ("ecdsa", Some(size)) => Err(format!("unsupported curve \"{size}\"")),
            ("rsa", None | Some("2048")) => Ok(Algorithm::Rsa(2048)),
            ("rsa", Some("3072")) => Ok(Algorithm::Rsa(3072)),
            ("rsa", Some("4096")) => Ok(Algorithm::Rsa(4096)),
            ("rsa", Some(size)) => Err(format!("unsupported key size \"{size}\"")),
            _ => return None,
        })
    }

    /// Generates a key for a certificate. RSA takes up to seconds: see [`crate::AcmeSession::order`].
    ///
    /// # Errors
    /// The library's message.
    pub fn generate(self) -> Result<rcgen::KeyPair, String> {
        let made = match self {
            Algorithm::Ecdsa(384) => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            Algorithm::Ecdsa(521) => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
            Algorithm::Ecdsa(_) => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Algorithm::Rsa(bits) => {
                let size = match bits {
                    4096 => rcgen::RsaKeySize::_4096,
                    3072 => rcgen::RsaKeySize::_3072,
                    _ => rcgen::RsaKeySize::_2048,
                };
                rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size)
            }
        };
        made.map_err(|e| e.to_string())
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Algorithm::Ecdsa(bits) => write!(f, "ecdsa:{bits}"),
            Algorithm::Rsa(bits) => write!(f, "rsa:{bits}"),
        }
    }
}

enum PrivateKey {
    Ecdsa(EcdsaKeyPair, u16),
    Rsa(Box<RsaKeyPair>),
}

/// The key that signs an account's requests.
pub struct AccountKey {
    pair: PrivateKey,
    pkcs8: Vec<u8>,
    jwk: String,
    thumbprint: String,
}

impl std::fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountKey").field("thumbprint", &self.thumbprint).finish_non_exhaustive()
    }
}

fn curve(bits: u16) -> &'static EcdsaSigningAlgorithm {
    match bits {
        384 => &ECDSA_P384_SHA384_FIXED_SIGNING,
        521 => &ECDSA_P521_SHA512_FIXED_SIGNING,
        _ => &ECDSA_P256_SHA256_FIXED_SIGNING,
    }
}

impl AccountKey {
    /// Generates a key.
    ///
    /// # Errors
    /// The library could not.
    pub fn generate(algorithm: Algorithm) -> Result<AccountKey, String> {
        let failed = |_| "key generation failed".to_string();
        match algorithm {
            Algorithm::Ecdsa(bits) => {
                let pair = EcdsaKeyPair::generate(curve(bits)).map_err(failed)?;
                let pkcs8 = pair.to_pkcs8v1().map_err(failed)?.as_ref().to_vec();
                AccountKey::new(PrivateKey::Ecdsa(pair, bits), pkcs8)
            }
            Algorithm::Rsa(bits) => {
                let size = match bits {
                    4096 => KeySize::Rsa4096,
                    3072 => KeySize::Rsa3072,
                    _ => KeySize::Rsa2048,
                };
                let pair = RsaKeyPair::generate(size).map_err(failed)?;
                let pkcs8 = pair.as_der().map_err(failed)?.as_ref().to_vec();
                AccountKey::new(PrivateKey::Rsa(Box::new(pair)), pkcs8)
            }
        }
    }

    /// Loads a PEM text: PKCS#8, SEC 1 or PKCS#1, unencrypted.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn load(pem: &[u8]) -> Result<AccountKey, String> {
        for block in tls::pem::parse_blocks(pem)? {
            let der = &block.bytes;
            match block.label.as_str() {
                "PRIVATE KEY" | "EC PRIVATE KEY" => {
                    for bits in [256, 384, 521] {
                        let pair = match block.label.as_str() {
                            "PRIVATE KEY" => EcdsaKeyPair::from_pkcs8(curve(bits), der),
                            _ => EcdsaKeyPair::from_private_key_der(curve(bits), der),
                        };
                        if let Ok(pair) = pair {
                            let pkcs8 = pair.to_pkcs8v1().map_err(|e| e.to_string())?.as_ref().to_vec();
                            return AccountKey::new(PrivateKey::Ecdsa(pair, bits), pkcs8);
                        }
                    }
                    let pair = RsaKeyPair::from_pkcs8(der).map_err(|e| e.to_string())?;
                    return AccountKey::new(PrivateKey::Rsa(Box::new(pair)), der.clone());
                }
                "RSA PRIVATE KEY" => {
                    let pair = RsaKeyPair::from_der(der).map_err(|e| e.to_string())?;
                    let pkcs8 = pair.as_der().map_err(|e| e.to_string())?.as_ref().to_vec();
                    return AccountKey::new(PrivateKey::Rsa(Box::new(pair)), pkcs8);
                }
                "ENCRYPTED PRIVATE KEY" => return Err("encrypted keys are not supported".into()),
                _ => {}
            }
        }
        Err("no private key".into())
    }

    fn new(pair: PrivateKey, pkcs8: Vec<u8>) -> Result<AccountKey, String> {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        // Members in the order of RFC 7638, section 3: the text is hashed.
        let jwk = match &pair {
            PrivateKey::Ecdsa(pair, bits) => {
                let point = pair.public_key().as_ref().get(1..).unwrap_or_default();
                let (x, y) = point.split_at(point.len() / 2);
                format!(r#"{{"crv":"P-{bits}","kty":"EC","x":"{}","y":"{}"}}"#, encode(x), encode(y))
            }
            PrivateKey::Rsa(pair) => {
                let (n, e) = rsa_numbers(pair.public_key().as_ref()).ok_or("an invalid RSA key")?;
                format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, encode(e), encode(n))
            }
        };
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, jwk.as_bytes());
        Ok(AccountKey { pair, pkcs8, thumbprint: encode(digest.as_ref()), jwk })
    }

    /// Returns the key in PKCS#8, as PEM.
    pub fn pem(&self) -> String {
        tls::pem::encode_block("PRIVATE KEY", &self.pkcs8)
    }
    /// Returns the public key as JSON (RFC 7517).
    pub fn jwk(&self) -> &str {
        &self.jwk
    }
    /// Returns the thumbprint of RFC 7638, in base64url.
    pub fn thumbprint(&self) -> &str {
        &self.thumbprint
    }
    /// Returns the algorithm's name in JWS.
    pub(crate) fn name(&self) -> &'static str {
        match &self.pair {
            PrivateKey::Ecdsa(_, 384) => "ES384",
            PrivateKey::Ecdsa(_, 521) => "ES512",
            PrivateKey::Ecdsa(..) => "ES256",
            PrivateKey::Rsa(_) => "RS256",
        }
    }
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let failed = |_| "signing failed".to_string();
        match &self.pair {
            PrivateKey::Ecdsa(pair, _) => {
                Ok(pair.sign(&SystemRandom::new(), message).map_err(failed)?.as_ref().to_vec())
            }
            PrivateKey::Rsa(pair) => {
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut out).map_err(failed)?;
                Ok(out)
            }
        }
    }
}

/// Modulus and exponent of an RSAPublicKey (RFC 8017, A.1.1), without leading zeros.
fn rsa_numbers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (sequence, _) = element(der, 0x30)?;
    let (n, rest) = element(sequence, 0x02)?;
    let (e, _) = element(rest, 0x02)?;
    let bare = |number| -> &[u8] {
        let start = <[u8]>::iter(number).take_while(|byte| **byte == 0).count();
        number.get(start..).unwrap_or_default()
    };
    Some((bare(n), bare(e)))
}

/// The content of a DER element with this tag, and the bytes behind it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        _ if first < 0x80 => (usize::from(first), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |n, byte| n << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    (found == tag).then(|| rest.split_at_checked(length))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_keys_are_checked() {
        assert_eq!(Algorithm::parse("ecdsa"), Some(Ok(Algorithm::Ecdsa(256))));
        assert_eq!(Algorithm::parse("rsa:4096"), Some(Ok(Algorithm::Rsa(4096))));
        assert_eq!(Algorithm::parse("ecdsa:234"), Some(Err("unsupported curve \"234\"".into())));
        assert_eq!(Algorithm::parse("rsa:1024"), Some(Err("unsupported key size \"1024\"".into())));
        assert_eq!(Algorithm::parse("file.key"), None);
    }

    #[test]
    fn keys_survive_their_pem_text() {
        for algorithm in [Algorithm::Ecdsa(256), Algorithm::Ecdsa(384), Algorithm::Ecdsa(521), Algorithm::Rsa(2048)] {
            let key = AccountKey::generate(algorithm).expect("generated");
            let again = AccountKey::load(key.pem().as_bytes()).expect("loaded");
            assert_eq!((key.jwk(), key.thumbprint(), key.name()), (again.jwk(), again.thumbprint(), again.name()));
            assert_eq!(key.thumbprint().len(), 43);
        }
        assert!(AccountKey::load(b"no key").is_err());
        let made = Algorithm::Ecdsa(384).generate().expect("generated");
        assert_eq!(AccountKey::load(made.serialize_pem().as_bytes()).expect("loaded").name(), "ES384");
    }

    /// The example of RFC 7638, section 3.1.
    #[test]
    fn the_thumbprint_of_the_rfc() {
        let jwk = concat!(
            r#"{"e":"AQAB","kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L"#,
            r#"6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAt"#,
            r#"aSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw"#,
            r#"0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"}"#
        );
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, jwk.as_bytes());
        assert_eq!(URL_SAFE_NO_PAD.encode(digest), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    }
}
