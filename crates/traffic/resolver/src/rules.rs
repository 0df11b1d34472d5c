//! The resolver of a block with its timeout.

use crate::name_resolver::NameResolver;
use std::sync::Arc;
use std::time::Duration;

/// A resolver with its timeout, as a block has them by `resolver` and `resolver_timeout`.
#[derive(Clone, Debug)]
pub struct ResolveRules {
    /// The name servers.
    pub resolver: Arc<NameResolver>,
    /// Longest time until an answer.
    pub timeout: Duration,
}
