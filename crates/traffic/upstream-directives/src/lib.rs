//! Groups of servers as they are configured, in all areas: `upstream` blocks and hosts, balancers, name servers, state files,
//! health checks, and the inventory of a configuration for the API. The crate `upstream` implements them.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod checks;
pub mod groups;
pub mod hosts;
pub mod inventory;
pub mod managed;
pub mod methods;
pub mod resolving;
pub mod servers;
pub mod shared_checks;
pub mod state;

pub use groups::{AreaGroups, UpstreamRef};
pub use resolving::{AreaResolver, ResolverLine};
