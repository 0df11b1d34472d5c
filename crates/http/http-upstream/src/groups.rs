//! Groups of the http area, based on `session_engine::upstreams`.

use super::sticky::Sticky;
use http_engine::HttpTemplate;

pub use session_engine::upstreams::host_and_port;

/// A reference to a group, with the http area's rules.
pub type UpstreamRef = session_engine::upstreams::UpstreamRef<RequestRules>;
/// The groups of the http area.
pub type HttpGroups = session_engine::upstreams::AreaGroups<RequestRules>;

/// Evaluated for every request.
#[derive(Default)]
pub struct RequestRules {
    /// Key of `hash`.
    pub key: Option<HttpTemplate>,
    /// `sticky`.
    pub sticky: Option<Sticky>,
}
