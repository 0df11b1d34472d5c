//! Groups of the http area, based on `session_engine::upstreams`.

use super::sticky::Sticky;
use http_engine::Template;

pub use session_engine::upstreams::host_and_port;

pub type UpstreamRef = session_engine::upstreams::UpstreamRef<Rules>;
pub type Groups = session_engine::upstreams::Groups<Rules>;

/// Evaluated for every request.
#[derive(Default)]
pub struct Rules {
    pub key: Option<Template>,
    pub sticky: Option<Sticky>,
}
