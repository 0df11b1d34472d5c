//! Directives of TLS, for requests; what they are stands in `session_engine::tls`.

use http_engine::Request;
use session_engine::tls as shared;

pub use shared::{CacheOf, Command, Passwords, TlsProtocols, Wanted};

pub type Pem = shared::Pem<Request>;
pub type Said<'a> = shared::Said<'a, Request>;
pub type UpstreamTls = shared::UpstreamTls<Request>;
