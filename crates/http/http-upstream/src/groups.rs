//! Groups of the http area, based on `session_engine::upstreams`.

use super::sticky::Sticky;
use http_engine::HttpTemplate;

pub use session_engine::upstreams::host_and_port;

pub type UpstreamRef = session_engine::upstreams::UpstreamRef<RequestRules>;
pub type HttpGroups = session_engine::upstreams::AreaGroups<RequestRules>;

/// Evaluated for every request.
#[derive(Default)]
pub struct RequestRules {
    pub key: Option<HttpTemplate>,
    pub sticky: Option<Sticky>,
}
