//! Upstream groups of the stream area; `session_engine::upstreams` implements them.

use crate::StreamTemplate;
use session_engine::upstreams::AreaResolver;

/// Evaluated by every session.
#[derive(Default)]
pub struct SessionRules {
    pub key: Option<StreamTemplate>,
    /// Time measured by `least_time`.
    pub counts: SessionCounts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionCounts {
    Connect,
    #[default]
    FirstByte,
}

pub type UpstreamRef = session_engine::upstreams::UpstreamRef<SessionRules>;
pub type StreamGroups = session_engine::upstreams::AreaGroups<SessionRules>;
/// Name servers of the stream block; kept in `Cx`.
pub type StreamResolver = AreaResolver<SessionRules>;
