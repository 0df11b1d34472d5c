//! TLS directives of both sides (`ssl_*`, `proxy_ssl_*` and others): values, files, certificates by variables.

mod asking;
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

pub use cache::{OcspCache, Sessions};
pub use commands::{Command, Commanded};
pub use dynamic::Dynamic;
pub use files::{authorities, crls, key_pair, unopened};
pub use key_log::KeyLogFile;
pub use ocsp::AskAuthorities;
pub use server::{Loaders, Ocsp, ServerSaid, ServerTls, Verify, asking, server};
pub use stapling::{Certified, Stapler, Staples};
pub use upstream::{UpstreamTls, UpstreamTlsConf, VerifyNames, Wanted};
pub use values::{CacheOf, Ciphers, Passwords, Pem, TlsProtocols, passwords};
pub use variables::Rows as Variables;

use ::tls::TlsError;
use ::upstream::HandshakeError;
use std::sync::Arc;

/// Wall clock of the threads, in seconds since 1970.
pub fn clock() -> tls::Clock {
    Arc::new(|| u64::try_from(base::clock::unix_seconds()).unwrap_or(0))
}

/// Returns the reason of a refused certificate, as the metrics classify it.
pub fn verify_failure(verdict: ::tls::verify::Verdict) -> metrics::VerifyFailure {
    match verdict {
        ::tls::verify::Verdict::EXPIRED | ::tls::verify::Verdict::NOT_YET_VALID => metrics::VerifyFailure::ExpiredCert,
        ::tls::verify::Verdict::REVOKED => metrics::VerifyFailure::RevokedCert,
        ::tls::verify::Verdict::HOST => metrics::VerifyFailure::HostnameMismatch,
        _ => metrics::VerifyFailure::Other,
    }
}

/// nginx's message about a client's failed handshake.
pub fn handshake_words(why: &HandshakeError) -> String {
    match why {
        HandshakeError::Closed => "peer closed connection in SSL handshake".into(),
        HandshakeError::Io(e) => format!("SSL_do_handshake() failed {}", observe::os(e)),
        HandshakeError::Tls(TlsError::NotTls) => {
            "SSL_do_handshake() failed (SSL: error:0A00010B:SSL routines::wrong version number)".into()
        }
        HandshakeError::Tls(why) => why.of_handshake(),
    }
}
