//! TLS directives for requests, based on `session_engine::tls`.

use http_engine::HttpArea;
use session_engine::tls as shared;

pub use shared::UpstreamTlsRequest;

pub type UpstreamTlsConf<'a> = shared::UpstreamTlsConf<'a, HttpArea>;
pub type UpstreamTls = shared::UpstreamTls<HttpArea>;
