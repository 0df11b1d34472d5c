//! Cipher suites: OpenSSL's names and cipher-string language, and those that rustls supports.
//! A string is evaluated over OpenSSL's whole list and then reduced, so that `-`, `+` and `@STRENGTH` order as in
//! OpenSSL.

mod attributes;
mod parse;
mod sliced;
mod table;

pub use parse::{CipherList, evaluate_ciphers};

use rustls::{CipherSuite, SupportedCipherSuite};
use std::sync::Arc;

/// A suite of SSLv3 to TLS 1.2 as bits of [`attributes`].
#[derive(Debug, PartialEq, Eq)]
pub struct Suite {
    /// Number of the suite.
    pub id: u16,
    /// OpenSSL's name.
    pub name: &'static str,
    pub(crate) version: u8,
    pub(crate) kx: u16,
    pub(crate) auth: u16,
    pub(crate) enc: u32,
    pub(crate) mac: u16,
    pub(crate) class: u8,
}

/// TLS 1.3 suites in OpenSSL's default order (`Ciphersuites` of `ssl_conf_command`).
pub const TLS13: [(u16, &str); 3] =
    [(0x1302, "TLS_AES_256_GCM_SHA384"), (0x1303, "TLS_CHACHA20_POLY1305_SHA256"), (0x1301, "TLS_AES_128_GCM_SHA256")];

const SIGNALS: [(u16, &str); 2] = [(0x00ff, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"), (0x5600, "TLS_FALLBACK_SCSV")];

/// OpenSSL's name of a suite; `None` if unknown (`$ssl_ciphers` shows the number).
pub fn cipher_name(id: u16) -> Option<&'static str> {
    TLS13
        .iter()
        .chain(&SIGNALS)
        .find(|(known, _)| *known == id)
        .map(|(_, name)| *name)
        .or_else(|| table::SUITES.iter().find(|s| s.id == id).map(|s| s.name))
}

/// Returns the suite of a number; `None`: rustls lacks it.
pub fn supported_suite(id: u16) -> Option<SupportedCipherSuite> {
    provider().cipher_suites.iter().copied().find(|s| u16::from(s.suite()) == id)
}

/// Negotiable TLS 1.2 suites in OpenSSL's default order, for messages.
pub fn supported_names() -> Vec<&'static str> {
    table::SUITES.iter().filter(|s| supported_suite(s.id).is_some()).map(|s| s.name).collect()
}

/// Suites of a cipher string that rustls lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostSuites {
    /// Words that select only unavailable suites.
    pub words: Vec<String>,
    /// Loses suites with elliptic-curve key exchange and CBC.
    pub ecdhe_cbc: bool,
    /// Loses suites with RSA key exchange.
    pub rsa: bool,
    /// Loses suites with finite-field Diffie-Hellman.
    pub dhe: bool,
}

impl LostSuites {
    /// Tells whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        *self == LostSuites::default()
    }
    /// Adds the losses of another string.
    pub fn add(&mut self, other: LostSuites) {
        for word in other.words {
            if !self.words.contains(&word) {
                self.words.push(word);
            }
        }
        self.ecdhe_cbc |= other.ecdhe_cbc;
        self.rsa |= other.rsa;
        self.dhe |= other.dhe;
    }
}

/// Suites of a cipher string that rustls lacks; empty for a string that OpenSSL refuses.
pub fn lost_suites(text: &str) -> LostSuites {
    use attributes::{auth, encryption as enc, key_exchange as kx};
    let Ok(list) = evaluate_ciphers(text) else { return LostSuites::default() };
    let of_certificates = |suite: &Suite| matches!(suite.auth, auth::RSA | auth::ECDSA);
    let missing: Vec<_> =
        list.suites.iter().filter(|suite| of_certificates(suite) && supported_suite(suite.id).is_none()).collect();
    let cbc = enc::AES128 | enc::AES256 | enc::CAMELLIA128 | enc::CAMELLIA256;
    let any = |of: &dyn Fn(&Suite) -> bool| missing.iter().any(|suite| of(suite));
    let is_lost = |word: &&str| {
        let alone = evaluate_ciphers(word).map(|list| list.suites).unwrap_or_default();
        !alone.is_empty() && alone.iter().all(|suite| supported_suite(suite.id).is_none())
    };
    let words = text.split(parse::separator).filter(|word| word.starts_with(|c: char| c.is_ascii_alphanumeric()));
    LostSuites {
        words: words.filter(is_lost).map(String::from).collect(),
        ecdhe_cbc: any(&|suite| suite.kx == kx::ECDHE && suite.enc & cbc != 0),
        rsa: any(&|suite| suite.kx == kx::RSA),
        dhe: any(&|suite| suite.kx == kx::DHE),
    }
}

/// Returns OpenSSL's name of a suite, or `(NONE)`.
pub fn name_of(suite: CipherSuite) -> &'static str {
    cipher_name(u16::from(suite)).unwrap_or("(NONE)")
}

/// The crypto library with all features, which configurations restrict.
pub(crate) fn provider() -> &'static Arc<rustls::crypto::CryptoProvider> {
    static PROVIDER: std::sync::OnceLock<Arc<rustls::crypto::CryptoProvider>> = std::sync::OnceLock::new();
    PROVIDER.get_or_init(|| {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.cipher_suites.iter_mut().for_each(|suite| *suite = sliced::sliced(*suite));
        Arc::new(provider)
    })
}
