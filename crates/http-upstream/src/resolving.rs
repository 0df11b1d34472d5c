//! How names are resolved in a location: a [`Resolving`] is kept in `Location::extensions` where `resolver` is set.

pub use session_engine::upstreams::{ResolverLine, Resolving};

/// What the http block itself says; kept in `Cx` while the configuration is read.
pub type HttpResolver = session_engine::upstreams::AreaResolver<super::groups::Rules>;
