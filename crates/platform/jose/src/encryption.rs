//! Decryption (RFC 7516; RFC 7518, sections 4 and 5).

use crate::base64url;
use crate::key::{Key, Material};
use crate::token::{Header, member};
use crate::wrap::unwrap_192;
use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::key_wrap::{self, AesKek, KeyWrap as _};
use aws_lc_rs::rsa::{
    OAEP_SHA1_MGF1SHA1, OAEP_SHA256_MGF1SHA256, OAEP_SHA384_MGF1SHA384, OAEP_SHA512_MGF1SHA512, OaepAlgorithm,
};

/// `alg`: how the content encryption key is found.
#[derive(Clone, Copy)]
pub enum Management {
    RsaOaep(&'static OaepAlgorithm),
    /// In bytes.
    AesKw(usize),
    AesGcmKw(usize),
    Direct,
}

impl Management {
    pub fn named(name: &str) -> Option<Management> {
        Some(match name {
            "RSA-OAEP" => Management::RsaOaep(&OAEP_SHA1_MGF1SHA1),
            "RSA-OAEP-256" => Management::RsaOaep(&OAEP_SHA256_MGF1SHA256),
            "RSA-OAEP-384" => Management::RsaOaep(&OAEP_SHA384_MGF1SHA384),
            "RSA-OAEP-512" => Management::RsaOaep(&OAEP_SHA512_MGF1SHA512),
            "A128KW" => Management::AesKw(16),
            "A192KW" => Management::AesKw(24),
            "A256KW" => Management::AesKw(32),
            "A128GCMKW" => Management::AesGcmKw(16),
            "A192GCMKW" => Management::AesGcmKw(24),
            "A256GCMKW" => Management::AesGcmKw(32),
            "dir" => Management::Direct,
            _ => return None,
        })
    }
    /// Milliseconds instead of microseconds.
    pub fn is_slow(self) -> bool {
        matches!(self, Management::RsaOaep(_))
    }
    pub fn fits(self, key: &Key) -> bool {
        match (self, &key.material) {
            (Management::RsaOaep(_), Material::Rsa(_, private)) => private.is_some(),
            (Management::AesKw(length) | Management::AesGcmKw(length), Material::Oct(own)) => own.len() == length,
            (Management::Direct, Material::Oct(_)) => true,
            _ => false,
        }
    }
    fn unwrap(self, key: &Key, header: &Header, wrapped: &[u8]) -> Option<Vec<u8>> {
        match (self, &key.material) {
            (Management::RsaOaep(algorithm), Material::Rsa(_, Some(private))) => {
                let mut out = vec![0; private.min_output_size()];
                let cek = private.decrypt(algorithm, wrapped, &mut out, None).ok()?;
                Some(cek.to_vec())
            }
            (Management::AesKw(24), Material::Oct(kek)) => unwrap_192(kek, wrapped),
            (Management::AesKw(length), Material::Oct(kek)) => {
                let cipher = if length == 16 { &key_wrap::AES_128 } else { &key_wrap::AES_256 };
                let mut out = vec![0; wrapped.len()];
                Some(AesKek::new(cipher, kek).ok()?.unwrap(wrapped, &mut out).ok()?.to_vec())
            }
            (Management::AesGcmKw(_), Material::Oct(kek)) => {
                let part = |name| base64url(member(header.members(), name)?.as_bytes());
                gcm(kek, &part("iv")?, b"", wrapped, &part("tag")?)
            }
            (Management::Direct, Material::Oct(cek)) => wrapped.is_empty().then(|| cek.to_vec()),
            _ => None,
        }
    }
}

/// `enc`: the encryption of the content.
#[derive(Clone, Copy)]
pub enum Content {
    /// In bytes.
    Gcm(usize),
    /// Length of each half of the key, and the algorithm of the first half.
    CbcHmac(usize, hmac::Algorithm),
}

impl Content {
    pub fn named(name: &str) -> Option<Content> {
        Some(match name {
            "A128GCM" => Content::Gcm(16),
            "A192GCM" => Content::Gcm(24),
            "A256GCM" => Content::Gcm(32),
            "A128CBC-HS256" => Content::CbcHmac(16, hmac::HMAC_SHA256),
            "A192CBC-HS384" => Content::CbcHmac(24, hmac::HMAC_SHA384),
            "A256CBC-HS512" => Content::CbcHmac(32, hmac::HMAC_SHA512),
            _ => return None,
        })
    }
    fn decrypt(self, cek: &[u8], parts: &Parts<'_>) -> Option<Vec<u8>> {
        match self {
            Content::Gcm(length) if cek.len() == length => {
                gcm(cek, &parts.iv, parts.protected, &parts.ciphertext, &parts.tag)
            }
            Content::CbcHmac(half, algorithm) if cek.len() == half * 2 => {
                let (mac, key) = cek.split_at_checked(half)?;
                let iv: [u8; 16] = parts.iv.as_slice().try_into().ok()?;
                let mut hash = hmac::Context::with_key(&hmac::Key::new(algorithm, mac));
                hash.update(parts.protected);
                hash.update(&parts.iv);
                hash.update(&parts.ciphertext);
                hash.update(&(parts.protected.len() as u64 * 8).to_be_bytes());
                // Before any look at the padding.
                verify_slices_are_equal(hash.sign().as_ref().get(..half)?, &parts.tag).ok()?;
                let cipher = match half {
                    16 => &AES_128,
                    24 => &AES_192,
                    _ => &AES_256,
                };
                let key = PaddedBlockDecryptingKey::cbc_pkcs7(UnboundCipherKey::new(cipher, key).ok()?).ok()?;
                let mut text = parts.ciphertext.clone();
                let plain = key.decrypt(&mut text, DecryptionContext::Iv128(FixedLength::from(iv))).ok()?;
                Some(plain.to_vec())
            }
            _ => None,
        }
    }
}

/// An encrypted token's parts: the protected header as sent, the others decoded.
pub struct Parts<'a> {
    pub protected: &'a [u8],
    pub wrapped: Vec<u8>,
    pub iv: Vec<u8>,
    pub ciphertext: Vec<u8>,
    pub tag: Vec<u8>,
}

/// Decrypts the content with one key. All failures are alike, so that none tells a sender about the key.
pub fn decrypt_content(
    management: Management,
    content: Content,
    key: &Key,
    header: &Header,
    parts: &Parts<'_>,
) -> Option<Vec<u8>> {
    let cek = management.unwrap(key, header, &parts.wrapped)?;
    content.decrypt(&cek, parts)
}

fn gcm(key: &[u8], iv: &[u8], associated: &[u8], text: &[u8], tag: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match key.len() {
        16 => &AES_128_GCM,
        24 => &AES_192_GCM,
        32 => &AES_256_GCM,
        _ => return None,
    };
    if tag.len() != algorithm.tag_len() {
        return None;
    }
    let nonce = Nonce::try_assume_unique_for_key(iv).ok()?;
    let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
    let mut both = [text, tag].concat();
    Some(key.open_in_place(nonce, Aad::from(associated), &mut both).ok()?.to_vec())
}
