//! JSON Web Tokens (RFC 7515 to 7519): key sets, verification of signed tokens, decryption of encrypted ones.
//!
//! Only the compact serialization, and only the side of the recipient. Cryptography is that of aws-lc-rs. The crate opens
//! no file and reads no clock; [`SignedToken::times`] is for the caller to judge.
//!
//! The token never chooses what a key is used for: each algorithm belongs to one type of key, and a key's own `use`,
//! `key_ops` and `alg` restrict it further ([`key`]). `none` is no algorithm.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod der;
mod encryption;
pub mod fuzzing;
pub mod key;
mod signature;
#[cfg(test)]
mod tests;
mod token;
mod wrap;

pub use key::{KeySet, KeySetError};
pub use token::{
    ExpectedClaims, SignedToken, TOKEN_BYTES_MAX, Times, TokenFailure, UnverifiedToken, append_text, find_member,
};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Decodes base64url without padding (RFC 7515, appendix C); refuses other spellings of the same bytes.
fn base64url(text: &[u8]) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
