//! Groups of the http area, based on `upstream_directives`.

use super::sticky::Sticky;
use http_engine::HttpTemplate;

pub use area::host_port::host_and_port;

/// A reference to a group, with the http area's rules.
pub type UpstreamRef = upstream_directives::UpstreamRef<RequestRules>;
/// The groups of the http area.
pub type HttpGroups = upstream_directives::AreaGroups<RequestRules>;

/// Evaluated for every request.
#[derive(Default)]
pub struct RequestRules {
    /// Key of `hash`.
    pub key: Option<HttpTemplate>,
    /// `sticky`.
    pub sticky: Option<Sticky>,
}
