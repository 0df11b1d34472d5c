//! TLS directives for requests, based on `session_engine::tls`.

use http_engine::HttpArea;
use session_engine::tls as shared;

pub use shared::UpstreamTlsRequest;

/// The TLS rows of a protocol's table.
pub type UpstreamTlsConf<'a> = shared::UpstreamTlsConf<'a, HttpArea>;
/// TLS settings towards the servers of a location.
pub type UpstreamTls = shared::UpstreamTls<HttpArea>;
