//! TLS directives for requests, based on `tls_directives`.

use http_engine::HttpArea;
use tls_directives as shared;

pub use shared::UpstreamTlsRequest;

/// The TLS rows of a protocol's table.
pub type UpstreamTlsConf<'a> = shared::UpstreamTlsConf<'a, HttpArea>;
/// TLS settings towards the servers of a location.
pub type UpstreamTls = shared::UpstreamTls<HttpArea>;
