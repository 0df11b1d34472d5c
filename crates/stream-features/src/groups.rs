//! The groups of servers of the stream area; what they are stands in `session_engine::upstreams`.

use crate::Template;
use session_engine::upstreams::AreaResolver;

/// What is computed for every session of a group.
#[derive(Default)]
pub struct Rules {
    /// The key of `hash`.
    pub key: Option<Template>,
    /// The time that `least_time` counts.
    pub counts: Counts,
}

/// Which of the first times of a session is told to balancers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    Connect,
    #[default]
    FirstByte,
}

pub type UpstreamRef = session_engine::upstreams::UpstreamRef<Rules>;
pub type Groups = session_engine::upstreams::Groups<Rules>;
/// What the stream block itself says of name servers; kept in `Cx`.
pub type StreamResolver = AreaResolver<Rules>;
