//! What the directives of TLS share on both sides, towards clients (`ssl_*`) and towards servers (`proxy_ssl_*` and its kin):
//! words, files, certificates that depend on variables.

mod commands;
mod dynamic;
mod files;
mod upstream;
mod values;

pub use commands::{Command, Commanded};
pub use dynamic::Dynamic;
pub use files::{authorities, crls, key_pair, unopened};
pub use upstream::{Said, UpstreamTls, Wanted};
pub use values::{CacheOf, Passwords, Pem, TlsProtocols};

use std::sync::Arc;

/// The wall clock of the threads, in seconds since 1970.
pub fn clock() -> tls::Clock {
    Arc::new(|| u64::try_from(base::clock::unix_seconds()).unwrap_or(0))
}
