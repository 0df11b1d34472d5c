//! TLS without sockets: rustls behind OpenSSL's rules, for servers and upstream connections.
//! [`TlsStream`] converts between ciphertext and plaintext, and a [`Channel`] moves it over a caller's socket; [`ServerRules`] and [`ClientRules`] come from the
//! configuration, and the ClientHello ([`ClientHello`]) selects a server's rules before rustls sees it.
//! Cipher strings ([`ciphers`]), [`groups`] and chains ([`verify`]) follow OpenSSL. What rustls lacks (TLS before 1.2,
//! CBC, RSA key exchange, finite-field groups) causes a warning or an error. Callers read files; nothing blocks but
//! short locks.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod certs;
mod channel;
pub mod ciphers;
mod client;
mod compress;
mod current;
mod der;
mod error;
mod facts;
pub mod fuzzing;
pub mod groups;
mod hello;
pub mod isolation;
pub mod key;
mod key_log;
pub mod ocsp;
mod output;
pub mod pem;
pub mod quic;
pub mod review;
mod server;
mod session;
mod stream;
#[cfg(test)]
mod testing;
pub mod verify;
mod wait;
pub mod x509;

pub use channel::{Channel, ChannelError, Socket};
pub use client::{ClientRules, ClientSettings, Target};
pub use error::TlsError;
pub use facts::{Facts, PeerCertificate, scheme_name};
pub use hello::{ClientHello, HELLO_MAX, Peek, peek_hello};
pub use key_log::KeyLog;
pub use server::{Choice, Protocols, ServerRules, ServerSettings, SessionStore, VerifyClient};
pub use session::{SessionCache, TICKET_KEY_SIZES, TicketKeys};
pub use stream::{ReceivedBytes, TlsStream};
pub use wait::Wait;

use std::sync::Arc;

/// Source of the time in seconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Digest of the rules under which a session may resume.
pub type SessionScope = [u8; 32];

/// Tells whether bytes have the outer shape of an OCSP response (RFC 6960).
pub fn ocsp_response(bytes: &[u8]) -> bool {
    let whole = der::Reader::new(bytes).take(der::SEQUENCE).filter(|e| e.whole.len() == bytes.len());
    whole.is_some_and(|e| der::Reader::new(e.body).take(der::ENUMERATED).is_some())
}

fn hex(bytes: &[u8], digits: &[u8; 16]) -> String {
    let digit = |n: u8| digits.get(usize::from(n)).copied().map_or('0', char::from);
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

pub(crate) fn hex_lower(bytes: &[u8]) -> String {
    hex(bytes, b"0123456789abcdef")
}

pub(crate) fn hex_upper(bytes: &[u8]) -> String {
    hex(bytes, b"0123456789ABCDEF")
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    Some(digits.chunks_exact(2).map(|p| p.iter().fold(0, |n, d| n << 4 | *d as u8)).collect())
}
