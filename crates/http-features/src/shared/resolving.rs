//! How names are resolved in a location; kept in `Location::things` where `resolver` is set.

use std::sync::Arc;
use std::time::Duration;
use upstream::resolver::Resolver;

/// A location's `resolver` and `resolver_timeout`.
#[derive(Clone, Debug)]
pub struct Resolving {
    pub resolver: Arc<Resolver>,
    pub timeout: Duration,
}
