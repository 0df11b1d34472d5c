//! Private keys: PKCS#1, SEC1 and PKCS#8, optionally encrypted (`ssl_password_file`).

use crate::ciphers::provider;
use crate::der::{self, INTEGER, OCTET_STRING, OID, Reader, SEQUENCE};
use crate::pem::{self, PemBlock};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::pbkdf2;
use des::TdesEde3;
use des::cipher::{BlockCipherDecrypt, KeyInit};
use md5::{Digest, Md5};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use rustls::sign::SigningKey;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Maximum number of rounds of key derivation.
const ROUNDS_MAX: u32 = 20_000_000;

/// Reason of a failure to load a private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The text has no private key.
    NoKey,
    /// The key is encrypted, and there is no password.
    NeedsPassword,
    /// No password decrypts the key.
    WrongPassword,
    /// The text is malformed; OpenSSL's name of the fault.
    Broken(&'static str),
    /// A kind of key or encryption that is not supported.
    Unsupported(String),
}

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyError::NoKey => f.write_str("unsupported:No supported data to decode. Input type: PEM"),
            KeyError::NeedsPassword => f.write_str("the key is encrypted and there is no \"ssl_password_file\""),
            KeyError::WrongPassword => f.write_str("bad decrypt"),
            KeyError::Broken(why) => f.write_str(why),
            KeyError::Unsupported(what) => f.write_str(what),
        }
    }
}

/// Tells whether the first private key of a text is encrypted.
pub fn is_encrypted(text: &[u8]) -> bool {
    let blocks = pem::parse_blocks(text).unwrap_or_default();
    let key = blocks.iter().find(|b| b.label.ends_with("PRIVATE KEY"));
    key.is_some_and(|b| {
        b.label == "ENCRYPTED PRIVATE KEY" || b.header("Proc-Type").is_some_and(|v| v.ends_with("ENCRYPTED"))
    })
}

/// Loads the first private key, trying passwords in order.
pub fn load_key(text: &[u8], passwords: &[Vec<u8>]) -> Result<Arc<dyn SigningKey>, KeyError> {
    let blocks = pem::parse_blocks(text).map_err(KeyError::Broken)?;
    let block = blocks.iter().find(|b| b.label.ends_with("PRIVATE KEY")).ok_or(KeyError::NoKey)?;
    signing(block, decrypted(block, passwords)?)
}

/// Loads the key of a block, and writes it as PEM without encryption.
pub(crate) fn open(block: &PemBlock, passwords: &[Vec<u8>]) -> Result<(String, Arc<dyn SigningKey>), KeyError> {
    let bytes = decrypted(block, passwords)?;
    let label = if block.label == "ENCRYPTED PRIVATE KEY" { "PRIVATE KEY" } else { &block.label };
    Ok((pem::encode_block(label, &bytes), signing(block, bytes)?))
}

fn decrypted(block: &PemBlock, passwords: &[Vec<u8>]) -> Result<Vec<u8>, KeyError> {
    if block.label == "ENCRYPTED PRIVATE KEY" {
        each(passwords, |password| pkcs8(&block.bytes, password))
    } else if block.header("Proc-Type").is_some_and(|v| v.ends_with("ENCRYPTED")) {
        let info = block.header("DEK-Info").ok_or(KeyError::Broken("not dek info"))?;
        each(passwords, |password| traditional(&block.bytes, info, password))
    } else {
        Ok(block.bytes.clone())
    }
}

fn signing(block: &PemBlock, bytes: Vec<u8>) -> Result<Arc<dyn SigningKey>, KeyError> {
    let der = match block.label.as_str() {
        "RSA PRIVATE KEY" => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(bytes)),
        "EC PRIVATE KEY" => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(bytes)),
        "PRIVATE KEY" | "ENCRYPTED PRIVATE KEY" => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(bytes)),
        other => return Err(KeyError::Unsupported(format!("keys of the kind \"{other}\" are not supported"))),
    };
    provider().key_provider.load_private_key(der).map_err(|why| {
        KeyError::Unsupported(format!(
            "not a key that can be used: RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, and Ed25519 can ({why})"
        ))
    })
}

fn each(
    passwords: &[Vec<u8>],
    decrypt: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, KeyError>,
) -> Result<Vec<u8>, KeyError> {
    if passwords.is_empty() {
        return Err(KeyError::NeedsPassword);
    }
    for password in passwords {
        if let Some(bytes) = decrypt(password)? {
            return Ok(bytes);
        }
    }
    Err(KeyError::WrongPassword)
}

/// `ENCRYPTED PRIVATE KEY`: PBES2 with PBKDF2 and AES or triple DES in CBC (RFC 8018). `None`: wrong password.
fn pkcs8(bytes: &[u8], password: &[u8]) -> Result<Option<Vec<u8>>, KeyError> {
    const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
    const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c];
    const HMAC_WITH: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02];
    const DES_EDE3: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x03, 0x07];
    const AES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01];
    let broken = || KeyError::Broken("not an encrypted private key");
    let mut outer = Reader::new(bytes).enter(SEQUENCE).ok_or_else(broken)?;
    let mut algorithm = outer.enter(SEQUENCE).ok_or_else(broken)?;
    let data = outer.body(OCTET_STRING).ok_or_else(broken)?;
    let oid = algorithm.body(OID).ok_or_else(broken)?;
    if oid != PBES2 {
        return Err(KeyError::Unsupported(format!(
            "its encryption ({}) is not supported; write it anew with \"openssl pkcs8 -topk8 -v2 aes256\"",
            der::dotted(oid)
        )));
    }
    let mut parameters = algorithm.enter(SEQUENCE).ok_or_else(broken)?;
    let mut derivation = parameters.enter(SEQUENCE).ok_or_else(broken)?;
    let mut scheme = parameters.enter(SEQUENCE).ok_or_else(broken)?;
    if derivation.body(OID).ok_or_else(broken)? != PBKDF2 {
        return Err(KeyError::Unsupported(
            "its key derivation is not PBKDF2; write it anew with \"openssl pkcs8 -topk8\"".into(),
        ));
    }
    let mut derivation = derivation.enter(SEQUENCE).ok_or_else(broken)?;
    let salt = derivation.body(OCTET_STRING).ok_or_else(broken)?;
    let rounds =
        derivation.body(INTEGER).and_then(der::small).and_then(|n| u32::try_from(n).ok()).ok_or_else(broken)?;
    let rounds = NonZeroU32::new(rounds).filter(|n| n.get() <= ROUNDS_MAX).ok_or_else(broken)?;
    let _length = derivation.body(INTEGER);
    let digest = match derivation.enter(SEQUENCE) {
        None => pbkdf2::PBKDF2_HMAC_SHA1,
        Some(mut prf) => match prf.body(OID).and_then(|oid| oid.strip_prefix(HMAC_WITH)) {
            Some([7]) => pbkdf2::PBKDF2_HMAC_SHA1,
            Some([9]) => pbkdf2::PBKDF2_HMAC_SHA256,
            Some([10]) => pbkdf2::PBKDF2_HMAC_SHA384,
            Some([11]) => pbkdf2::PBKDF2_HMAC_SHA512,
            _ => return Err(KeyError::Unsupported("the digest of its key derivation is not supported".into())),
        },
    };
    let cipher = scheme.body(OID).ok_or_else(broken)?;
    let iv = scheme.body(OCTET_STRING).ok_or_else(broken)?;
    let (algorithm, length) = match cipher.strip_prefix(AES) {
        Some([2]) => (Cipher::Aes(&AES_128), 16),
        Some([22]) => (Cipher::Aes(&AES_192), 24),
        Some([42]) => (Cipher::Aes(&AES_256), 32),
        _ if cipher == DES_EDE3 => (Cipher::TripleDes, 24),
        _ => {
            return Err(KeyError::Unsupported(format!(
                "its cipher ({}) is not supported; write it anew with \"openssl pkcs8 -topk8 -v2 aes256\"",
                der::dotted(cipher)
            )));
        }
    };
    let mut key = vec![0; length];
    pbkdf2::derive(digest, rounds, salt, password, &mut key);
    Ok(cbc(algorithm, &key, iv, data).filter(|plain| is_key(plain)))
}

/// `Proc-Type: 4,ENCRYPTED`: key by MD5 over password and salt (`EVP_BytesToKey`), AES or triple DES in CBC.
fn traditional(bytes: &[u8], info: &str, password: &[u8]) -> Result<Option<Vec<u8>>, KeyError> {
    let (name, iv) = info.split_once(',').ok_or(KeyError::Broken("bad iv chars"))?;
    let iv = crate::from_hex(iv.trim()).ok_or(KeyError::Broken("bad iv chars"))?;
    let (algorithm, length) = match name.trim() {
        "AES-128-CBC" => (Cipher::Aes(&AES_128), 16),
        "AES-192-CBC" => (Cipher::Aes(&AES_192), 24),
        "AES-256-CBC" => (Cipher::Aes(&AES_256), 32),
        "DES-EDE3-CBC" => (Cipher::TripleDes, 24),
        other => {
            return Err(KeyError::Unsupported(format!(
                "its cipher ({other}) is not supported; write it anew with \"openssl pkcs8 -topk8 -v2 aes256\""
            )));
        }
    };
    let salt = iv.get(..8).ok_or(KeyError::Broken("bad iv chars"))?;
    let mut key: Vec<u8> = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while key.len() < length {
        let mut md5 = Md5::new();
        md5.update(&last);
        md5.update(password);
        md5.update(salt);
        last = md5.finalize().to_vec();
        key.extend_from_slice(&last);
    }
    key.truncate(length);
    Ok(cbc(algorithm, &key, &iv, bytes).filter(|plain| is_key(plain)))
}

/// Detects a wrong password despite valid padding: the plaintext must be one SEQUENCE.
fn is_key(plain: &[u8]) -> bool {
    Reader::new(plain).take(SEQUENCE).is_some_and(|e| e.whole.len() == plain.len())
}

/// Cipher of an encrypted key: CBC with PKCS#7 padding.
#[derive(Clone, Copy)]
enum Cipher {
    Aes(&'static Algorithm),
    /// Cipher of `openssl genrsa -des3`.
    TripleDes,
}

fn cbc(cipher: Cipher, key: &[u8], iv: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match cipher {
        Cipher::Aes(algorithm) => algorithm,
        Cipher::TripleDes => return triple_des(key, iv, data),
    };
    let iv: [u8; 16] = iv.try_into().ok()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(UnboundCipherKey::new(algorithm, key).ok()?).ok()?;
    let mut bytes = data.to_vec();
    let plain = key.decrypt(&mut bytes, DecryptionContext::Iv128(iv.into())).ok()?.len();
    bytes.truncate(plain);
    Some(bytes)
}

fn triple_des(key: &[u8], iv: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    const BLOCK: usize = 8;
    let cipher = TdesEde3::new_from_slice(key).ok()?;
    let mut before: [u8; BLOCK] = iv.try_into().ok()?;
    let mut out = Vec::with_capacity(data.len());
    for encrypted in data.chunks(BLOCK) {
        let encrypted: [u8; BLOCK] = encrypted.try_into().ok()?;
        let mut block = des::cipher::Block::<TdesEde3>::from(encrypted);
        cipher.decrypt_block(&mut block);
        out.extend(block.iter().zip(before).map(|(b, v)| b ^ v));
        before = encrypted;
    }
    let padding = usize::from(*out.last()?);
    if padding == 0 || padding > BLOCK || !out.iter().rev().take(padding).all(|b| usize::from(*b) == padding) {
        return None;
    }
    out.truncate(out.len() - padding);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::openssl;
    use rustls::SignatureAlgorithm;

    #[test]
    fn keys_of_every_form_are_read() {
        for (args, password, algorithm) in [
            (&["genrsa", "2048"][..], None, SignatureAlgorithm::RSA),
            (&["genrsa", "-traditional", "2048"], None, SignatureAlgorithm::RSA),
            (&["genrsa", "-aes128", "-passout", "pass:secret", "2048"], Some("secret"), SignatureAlgorithm::RSA),
            (
                &["genrsa", "-aes256", "-traditional", "-passout", "pass:secret", "2048"],
                Some("secret"),
                SignatureAlgorithm::RSA,
            ),
            (&["genrsa", "-des3", "-passout", "pass:secret", "2048"], Some("secret"), SignatureAlgorithm::RSA),
            (
                &["genrsa", "-des3", "-traditional", "-passout", "pass:secret", "2048"],
                Some("secret"),
                SignatureAlgorithm::RSA,
            ),
            (&["ecparam", "-name", "prime256v1", "-genkey"], None, SignatureAlgorithm::ECDSA),
            (&["genpkey", "-algorithm", "ed25519"], None, SignatureAlgorithm::ED25519),
            (
                &["genpkey", "-algorithm", "ed25519", "-aes-192-cbc", "-pass", "pass:secret"],
                Some("secret"),
                SignatureAlgorithm::ED25519,
            ),
        ] {
            let Some(text) = openssl(args, b"") else { return };
            let passwords: Vec<Vec<u8>> = password.map(|p: &str| vec![b"wrong".to_vec(), p.into()]).unwrap_or_default();
            let key = load_key(&text, &passwords).unwrap_or_else(|why| panic!("{args:?}: {why}"));
            assert_eq!(key.algorithm(), algorithm, "{args:?}");
            assert_eq!(is_encrypted(&text), password.is_some(), "{args:?}");
            if password.is_some() {
                assert_eq!(load_key(&text, &[]).err(), Some(KeyError::NeedsPassword), "{args:?}");
                assert_eq!(load_key(&text, &[b"wrong".to_vec()]).err(), Some(KeyError::WrongPassword), "{args:?}");
            }
        }
    }

    #[test]
    fn texts_without_a_key_are_refused() {
        assert_eq!(load_key(b"", &[]).err(), Some(KeyError::NoKey));
        assert!(matches!(
            load_key(b"-----BEGIN PRIVATE KEY-----\nAQID\n-----END PRIVATE KEY-----\n", &[]).err(),
            Some(KeyError::Unsupported(_))
        ));
    }
}
