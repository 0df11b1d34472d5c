//! Verified tokens of a thread, by the SHA-256 of the token and its keys. Bounded; the least recently used go first.

use aws_lc_rs::digest::{Context, SHA256};
use jose::{ExpectedClaims, KeySet, SignedToken};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Memory for verified tokens, in bytes for each thread.
pub const VERIFIED_BYTES_MAX: usize = 4 << 20;
/// Bytes of an entry besides its token, whose decoded parts take about four times its length.
const ENTRY_BYTES: usize = 1024;

/// Identity of a token that was verified with these keys.
pub type VerificationId = [u8; 32];

/// Returns the identity: different keys or another expected type make another one.
pub fn verification_id(token: &[u8], expected: ExpectedClaims, sets: &[Arc<KeySet>]) -> VerificationId {
    let mut hash = Context::new(&SHA256);
    hash.update(&[expected as u8]);
    for set in sets {
        hash.update(set.digest());
    }
    // The sets' digests have a fixed length; the number of sets cannot be confused with a token, which has no NUL.
    hash.update(&[0]);
    hash.update(token);
    let mut id = VerificationId::default();
    for (to, from) in id.iter_mut().zip(hash.finish().as_ref()) {
        *to = *from;
    }
    id
}

/// Two generations: entries of the old one that are used move to the new one; a full new one becomes the old one.
#[derive(Default)]
pub struct VerifiedTokens {
    new: HashMap<VerificationId, (Arc<SignedToken>, usize)>,
    old: HashMap<VerificationId, (Arc<SignedToken>, usize)>,
    bytes: usize,
}

impl VerifiedTokens {
    pub fn get(&mut self, id: &VerificationId) -> Option<Arc<SignedToken>> {
        if let Some((token, _)) = self.new.get(id) {
            return Some(token.clone());
        }
        let (token, cost) = self.old.remove(id)?;
        self.insert(*id, token.clone(), cost);
        Some(token)
    }
    pub fn add(&mut self, id: VerificationId, token: &Arc<SignedToken>, length: usize) {
        self.insert(id, token.clone(), length * 4 + ENTRY_BYTES);
    }
    fn insert(&mut self, id: VerificationId, token: Arc<SignedToken>, cost: usize) {
        if self.bytes + cost > VERIFIED_BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.new);
            self.bytes = 0;
        }
        if self.new.insert(id, (token, cost)).is_none() {
            self.bytes += cost;
        }
    }
    pub fn remove(&mut self, id: &VerificationId) {
        if let Some((_, cost)) = self.new.remove(id) {
            self.bytes -= cost;
        }
        self.old.remove(id);
    }
}

thread_local! {
    static TOKENS: RefCell<VerifiedTokens> = RefCell::default();
}

/// Works with the thread's tokens.
pub fn with_verified<R>(work: impl FnOnce(&mut VerifiedTokens) -> R) -> R {
    TOKENS.with_borrow_mut(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str) -> Arc<KeySet> {
        Arc::new(KeySet::parse(format!("{{\"kty\":\"oct\",\"k\":\"{key}\"}}").as_bytes()).expect("a key"))
    }

    fn token() -> Arc<SignedToken> {
        // {"alg":"HS256"}.{} with the key "AA".
        let message = "eyJhbGciOiJIUzI1NiJ9.e30";
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[0]);
        use base64::Engine as _;
        let tag =
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(aws_lc_rs::hmac::sign(&key, message.as_bytes()));
        let text = format!("{message}.{tag}");
        Arc::new(SignedToken::verify(text.as_bytes(), ExpectedClaims::Signed, &[&set("AA")]).expect("verified"))
    }

    #[test]
    fn keys_and_type_belong_to_the_identity() {
        let of = |token: &[u8], expected, keys: &[&str]| {
            verification_id(token, expected, &keys.iter().map(|key| set(key)).collect::<Vec<_>>())
        };
        let ids = [
            of(b"t", ExpectedClaims::Signed, &["AA"]),
            of(b"t", ExpectedClaims::Signed, &["AQ"]),
            of(b"t", ExpectedClaims::Signed, &["AA", "AQ"]),
            of(b"t", ExpectedClaims::Signed, &["AQ", "AA"]),
            of(b"t", ExpectedClaims::Nested, &["AA"]),
            of(b"u", ExpectedClaims::Signed, &["AA"]),
            of(b"t", ExpectedClaims::Signed, &[]),
        ];
        let different: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(different.len(), ids.len());
        assert_eq!(ids[0], of(b"t", ExpectedClaims::Signed, &["AA"]), "the key's text counts, not its object");
    }

    #[test]
    fn memory_is_bounded_and_used_tokens_stay() {
        let (mut all, token) = (VerifiedTokens::default(), token());
        let number = |n: usize| verification_id(&n.to_be_bytes(), ExpectedClaims::Signed, &[]);
        for n in 0..20_000 {
            all.add(number(n), &token, 500);
            assert!(all.get(&number(0)).is_some(), "{n}");
            let entries = all.new.len() + all.old.len();
            assert!(entries * (500 * 4 + ENTRY_BYTES) <= VERIFIED_BYTES_MAX, "{entries}");
        }
        assert!(all.get(&number(1)).is_none() && all.get(&number(19_999)).is_some());
        all.remove(&number(0));
        assert!(all.get(&number(0)).is_none());
    }
}
