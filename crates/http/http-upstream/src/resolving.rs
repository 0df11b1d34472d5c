//! Name resolution in a location: a [`ResolveRules`] is in `Location::extensions` if `resolver` is set.

pub use session_engine::upstreams::{ResolveRules, ResolverLine};

/// The http block's own resolver, in `Cx` while the configuration is read.
pub type HttpResolver = session_engine::upstreams::AreaResolver<super::groups::RequestRules>;
