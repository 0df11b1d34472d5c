//! Name resolution in a location: a [`ResolveRules`] is in `Location::extensions` if `resolver` is set.

pub use resolver::ResolveRules;
pub use upstream_directives::ResolverLine;

/// The http block's own resolver, in `Cx` while the configuration is read.
pub type HttpResolver = upstream_directives::AreaResolver<super::groups::RequestRules>;
