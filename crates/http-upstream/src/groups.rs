//! The groups of the http area; what they are stands in `session_engine::upstreams`.

use super::sticky::Sticky;
use http_engine::Template;

pub use session_engine::upstreams::host_and_port;

pub type UpstreamRef = session_engine::upstreams::UpstreamRef<Rules>;
pub type Groups = session_engine::upstreams::Groups<Rules>;

/// What is computed for every request of a group.
#[derive(Default)]
pub struct Rules {
    /// The key of `hash`.
    pub key: Option<Template>,
    pub sticky: Option<Sticky>,
}
