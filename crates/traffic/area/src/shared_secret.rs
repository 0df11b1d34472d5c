//! Secrets that servers with equal configurations have in common, without telling them to each other: they seal records of
//! a `shared_store` and of browsers.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};

/// Bytes of a configured secret, for [`read_key_text`].
const KEY_BYTES_MIN: usize = 32;
const KEY_BYTES_MAX: usize = 64 * 1024;

/// A secret for one purpose.
pub struct SharedSecret([u8; 32]);

impl SharedSecret {
    /// Of this process alone.
    pub fn random() -> SharedSecret {
        let mut secret = [0; 32];
        net::random::fill(&mut secret);
        SharedSecret(secret)
    }

    /// Derives the secret of a purpose from a configured one (RFC 5869). `context` is what the secret belongs to, such as
    /// a name. `None` if the library fails.
    pub fn derived(configured: &[u8], purpose: &str, context: &[&str]) -> Option<SharedSecret> {
        let info = [&[purpose][..], context].concat().join("\0");
        let key = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tidegate").extract(configured);
        let mut secret = [0; 32];
        key.expand(&[info.as_bytes()], hkdf::HKDF_SHA256).ok()?.fill(&mut secret).ok()?;
        Some(SharedSecret(secret))
    }

    /// Returns a value that only owners of the secret can compute: HMAC-SHA256 of the purpose and the parts, which are not delimited.
    pub fn tag(&self, purpose: &str, parts: &[&[u8]]) -> hmac::Tag {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut context = hmac::Context::with_key(&key);
        context.update(purpose.as_bytes());
        context.update(&[0]);
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }

    /// Returns the key of a context: random nonces of one key are few, however long the secret is in use.
    fn sealing_key(&self, context: &[u8]) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM, self.tag("seal", &[context]).as_ref()).ok().map(LessSafeKey::new)
    }

    /// Encrypts and authenticates a text, bound to `context`; `None` if the library fails.
    pub fn seal(&self, text: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        net::random::fill(&mut nonce);
        let mut sealed = text.to_vec();
        let key = self.sealing_key(context)?;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), &mut sealed).ok()?;
        Some([&nonce[..], &sealed].concat())
    }

    /// Opens a sealed text; `None` for any other, and for one of another secret or context.
    pub fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let length = self.sealing_key(context)?.open_in_place(nonce, Aad::from(context), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

/// Reads a configured secret from a file's bytes: without white space at its ends, of 32 bytes to 64 KB.
///
/// # Errors
/// A description of the fault.
pub fn read_key_text(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let key = bytes.trim_ascii();
    match key.len() {
        0..KEY_BYTES_MIN => Err(format!("it has less than {KEY_BYTES_MIN} characters")),
        KEY_BYTES_MIN..=KEY_BYTES_MAX => Ok(key.to_vec()),
        _ => Err("it is no file of a key".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_texts_are_bound_to_their_context() {
        let secret = SharedSecret::random();
        let sealed = secret.seal(b"text", b"context").expect("sealed");
        assert_eq!(secret.open(&sealed, b"context").as_deref(), Some(&b"text"[..]));
        assert!(secret.open(&sealed, b"other").is_none());
        assert!(SharedSecret::random().open(&sealed, b"context").is_none());
        for cut in 0..sealed.len() {
            assert!(secret.open(&sealed[..cut], b"context").is_none());
        }
        assert_ne!(Some(sealed), secret.seal(b"text", b"context"));
    }

    #[test]
    fn servers_with_one_configuration_have_one_secret() {
        let secret = |configured: &[u8], purpose: &str, name: &str| {
            SharedSecret::derived(configured, purpose, &[name]).expect("derived")
        };
        let sealed = secret(b"key", "p", "a").seal(b"text", b"c").expect("sealed");
        assert_eq!(secret(b"key", "p", "a").open(&sealed, b"c").as_deref(), Some(&b"text"[..]));
        for other in [secret(b"other", "p", "a"), secret(b"key", "q", "a"), secret(b"key", "p", "b")] {
            assert!(other.open(&sealed, b"c").is_none());
        }
    }

    #[test]
    fn keys_of_files_have_a_least_length() {
        let long = [b'a'; KEY_BYTES_MIN];
        assert_eq!(read_key_text(&[&long[..], b"\r\n"].concat()), Ok(long.to_vec()));
        assert!(read_key_text(&long[1..]).is_err() && read_key_text(&[b'a'; KEY_BYTES_MAX + 1]).is_err());
    }
}
