//! Upstream groups of the stream area; `session_engine::upstreams` implements them.

use crate::Template;
use session_engine::upstreams::AreaResolver;

/// Evaluated by every session.
#[derive(Default)]
pub struct Rules {
    pub key: Option<Template>,
    /// Time measured by `least_time`.
    pub counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    Connect,
    #[default]
    FirstByte,
}

pub type UpstreamRef = session_engine::upstreams::UpstreamRef<Rules>;
pub type Groups = session_engine::upstreams::Groups<Rules>;
/// Name servers of the stream block; kept in `Cx`.
pub type StreamResolver = AreaResolver<Rules>;
