//! TLS directives for requests, based on `session_engine::tls`.

use http_engine::Request;
use session_engine::tls as shared;

pub use shared::Wanted;

pub type Said<'a> = shared::Said<'a, Request>;
pub type UpstreamTls = shared::UpstreamTls<Request>;
