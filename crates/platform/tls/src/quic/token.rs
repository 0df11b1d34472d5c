//! Address validation tokens (RFC 9000, 8.1): their keys, and the record that accepts each of them once.

use quinn_proto::crypto::{AeadKey, CryptoError, HandshakeTokenKey};
use quinn_proto::{TokenLog, TokenReuseError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// First octet of a token's content in `quinn-proto` that marks tokens of Retry packets.
const RETRY: u8 = 0;
/// Content of an impossible Retry token, with the address 0.0.0.0:0, an empty connection id and the time 0.
const INVALID_RETRY: [u8; 17] = [0; 17];

/// Adds the kind of each token in cleartext, so that the kind of a token with an unknown key is known, too. A client
/// with an invalid Retry token accepts no further Retry: its connection is closed with INVALID_TOKEN, as in nginx. A
/// token from an earlier connection may come from another server, or from before a restart: its client gets a Retry
/// (8.1.3).
pub struct TokenKey(pub aws_lc_rs::hkdf::Prk);

impl HandshakeTokenKey for TokenKey {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        Box::new(MarkedToken(self.0.aead_from_hkdf(random_bytes)))
    }
}

struct MarkedToken(Box<dyn AeadKey>);

impl AeadKey for MarkedToken {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        let kind = data.first().copied().unwrap_or_default();
        self.0.seal(data, additional_data)?;
        data.push(kind);
        Ok(())
    }
    fn open<'a>(&self, data: &'a mut [u8], additional_data: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let (kind, sealed) = data.split_last_mut().ok_or(CryptoError)?;
        let kind = *kind;
        // Decrypts a copy, because a failure overwrites the octets.
        let mut copy = sealed.to_vec();
        match self.0.open(&mut copy, additional_data) {
            Ok(opened) => {
                let to = sealed.get_mut(..opened.len()).ok_or(CryptoError)?;
                to.copy_from_slice(opened);
                Ok(to)
            }
            Err(_) if kind == RETRY => {
                let to = sealed.get_mut(..INVALID_RETRY.len()).ok_or(CryptoError)?;
                to.copy_from_slice(&INVALID_RETRY);
                Ok(to)
            }
            Err(why) => Err(why),
        }
    }
}

/// Bits of one generation of [`UsedTokens`]: 128 KB.
const BITS: usize = 1 << 20;
const WORDS: usize = BITS / 64;

/// Used tokens of NEW_TOKEN frames, in two Bloom filters with two bits per token: one for tokens issued in the current
/// period (one token lifetime), one for the period before. After 100,000 used tokens in a period, an unused token is
/// refused with a probability of 3 %; its client gets a Retry. The memory is allocated with the first token.
#[derive(Default)]
pub struct UsedTokens(Mutex<[Generation; 2]>);

#[derive(Default)]
struct Generation {
    /// Number of the period: token lifetimes from 1970 to the issue of its tokens.
    number: u64,
    bits: Vec<u64>,
}

impl Generation {
    /// Marks a token as used. Returns `false` if it may have been marked before.
    fn mark(&mut self, nonce: u128) -> bool {
        self.bits.resize(WORDS, 0);
        let mut is_new = false;
        // Uses the halves of the random nonce as hashes.
        for place in [nonce as usize % BITS, (nonce >> 64) as usize % BITS] {
            if let Some(word) = self.bits.get_mut(place / 64) {
                is_new |= *word & 1 << (place % 64) == 0;
                *word |= 1 << (place % 64);
            }
        }
        is_new
    }
}

impl TokenLog for UsedTokens {
    fn check_and_insert(&self, nonce: u128, issued: SystemTime, lifetime: Duration) -> Result<(), TokenReuseError> {
        let since = issued.duration_since(UNIX_EPOCH).map_err(|_| TokenReuseError)?;
        let number = since.as_secs() / lifetime.as_secs().max(1);
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [present, before] = &mut *generations;
        if number > present.number {
            std::mem::swap(present, before);
            // After a pause of two lifetimes, no token of the older filter is valid.
            *present = Generation { number, bits: Vec::new() };
        }
        let generation = [present, before].into_iter().find(|generation| generation.number == number);
        if generation.is_some_and(|generation| generation.mark(nonce)) { Ok(()) } else { Err(TokenReuseError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quic::EndpointKeys;

    #[test]
    fn a_broken_retry_token_is_told_from_tokens_of_other_keys() {
        let keys = EndpointKeys::derive(b"secret");
        let other = EndpointKeys::derive(b"another");
        let sealed = |kind: u8| {
            let mut data = [&[kind][..], &[7; 30]].concat();
            assert!(keys.token.aead_from_hkdf(b"nonce").seal(&mut data, &[]).is_ok());
            data
        };
        for kind in [RETRY, 1] {
            let mut data = sealed(kind);
            let opened = keys.token.aead_from_hkdf(b"nonce").open(&mut data, &[]).map(|opened| opened.to_vec());
            assert_eq!(opened.ok(), Some([&[kind][..], &[7; 30]].concat()));
            let mut data = sealed(kind);
            let opened = other.token.aead_from_hkdf(b"nonce").open(&mut data, &[]).map(|opened| opened.to_vec());
            assert_eq!(opened.ok(), (kind == RETRY).then(|| INVALID_RETRY.to_vec()));
        }
        for mut short in [Vec::new(), vec![RETRY], vec![RETRY; 12], vec![1; 40]] {
            assert!(keys.token.aead_from_hkdf(b"nonce").open(&mut short, &[]).is_err());
        }
    }

    #[test]
    fn tokens_are_used_once() {
        const LIFETIME: Duration = Duration::from_secs(600);
        let used = UsedTokens::default();
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let use_it = |nonce: u128, seconds| used.check_and_insert(nonce, at(seconds), LIFETIME).is_ok();
        let nonce = |n: u128| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        assert!(use_it(nonce(1), 6000) && !use_it(nonce(1), 6000));
        // The next period: tokens of the period before stay known.
        assert!(use_it(nonce(2), 6600) && !use_it(nonce(1), 6000) && use_it(nonce(3), 6599));
        assert!(use_it(nonce(4), 7200) && !use_it(nonce(2), 6600));
        // Older tokens are refused, because their use may be forgotten.
        assert!(!use_it(nonce(5), 6000));
        let refused = (10..50_000).filter(|n| !use_it(nonce(*n), 7200)).count();
        assert!(refused < 1000, "{refused}");
    }
}
