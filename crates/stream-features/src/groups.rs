//! Upstream groups of the stream area; `upstream_directives` implements them.

use crate::StreamTemplate;
use upstream_directives::AreaResolver;

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

pub type UpstreamRef = upstream_directives::UpstreamRef<SessionRules>;
pub type StreamGroups = upstream_directives::AreaGroups<SessionRules>;
/// Name servers of the stream block; kept in `Cx`.
pub type StreamResolver = AreaResolver<SessionRules>;
