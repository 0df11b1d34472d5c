//! Groups of the http area, based on `session_engine::upstreams`.

use super::sticky::Sticky;
use http_engine::Template;

pub use session_engine::upstreams::host_and_port;

/// A reference to a group, with the http area's rules.
pub type UpstreamRef = session_engine::upstreams::UpstreamRef<Rules>;
/// The groups of the http area.
pub type Groups = session_engine::upstreams::Groups<Rules>;

/// Evaluated for every request.
#[derive(Default)]
pub struct Rules {
    /// Key of `hash`.
    pub key: Option<Template>,
    /// `sticky`.
    pub sticky: Option<Sticky>,
}
