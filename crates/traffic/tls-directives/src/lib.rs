//! TLS directives of both sides (`ssl_*`, `proxy_ssl_*` and others): values, files, certificates by variables.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod acme_clients;
mod asking;
pub mod authorities;
mod cache;
mod commands;
mod dynamic;
mod files;
mod key_log;
mod loaded;
mod ocsp;
pub mod report;
mod server;
mod shared_tickets;
mod stapling;
mod tables;
mod upstream;
mod values;
mod variables;

pub use self::upstream::{UpstreamTls, UpstreamTlsConf, UpstreamTlsRequest, VerifyNames};
pub use self::variables::Rows as Variables;
pub use ::variables::Template;
pub use cache::{OcspCache, SslSessionCache};
pub use commands::{CommandRules, ConfCommand};
pub use dynamic::Dynamic;
pub use files::{key_pair, load_authorities, load_crls, unopened_message};
pub use key_log::KeyLogFile;
pub use ocsp::AskAuthorities;
pub use server::{Loaders, Ocsp, ServerSaid, ServerTls, Verify, client_ocsp, server_rules};
pub use stapling::{StapleOwner, Stapler, Staples};
pub use values::{CacheOf, Ciphers, Passwords, Pem, TlsProtocols, split_passwords};

use ::tls::TlsError;
use std::sync::Arc;
use transport::HandshakeError;

/// Wall clock of the threads, in seconds since 1970.
pub fn wall_clock() -> tls::Clock {
    Arc::new(|| u64::try_from(base::clock::unix_seconds()).unwrap_or(0))
}

/// Returns the reason of a refused certificate, as the metrics classify it.
pub fn verify_failure(verdict: ::tls::verify::VerifyVerdict) -> metrics::VerifyFailure {
    match verdict {
        ::tls::verify::VerifyVerdict::EXPIRED | ::tls::verify::VerifyVerdict::NOT_YET_VALID => {
            metrics::VerifyFailure::ExpiredCert
        }
        ::tls::verify::VerifyVerdict::REVOKED => metrics::VerifyFailure::RevokedCert,
        ::tls::verify::VerifyVerdict::HOST => metrics::VerifyFailure::HostnameMismatch,
        _ => metrics::VerifyFailure::Other,
    }
}

/// nginx's message about a client's failed handshake.
pub fn handshake_words(why: &HandshakeError) -> String {
    match why {
        HandshakeError::Closed => "peer closed connection in SSL handshake".into(),
        HandshakeError::Io(e) => format!("SSL_do_handshake() failed {}", observe::os_error(e)),
        HandshakeError::Tls(TlsError::NotTls) => {
            "SSL_do_handshake() failed (SSL: error:0A00010B:SSL routines::wrong version number)".into()
        }
        HandshakeError::Tls(why) => why.of_handshake(),
    }
}
