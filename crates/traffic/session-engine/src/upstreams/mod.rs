//! Configured server groups: `upstream` blocks and hosts, balancers, name servers, local addresses. The crate
//! `upstream` implements them.

pub mod binding;
pub mod groups;
pub mod hosts;
pub mod managed;
pub mod methods;
pub mod resolving;
pub mod servers;
pub mod state;

pub use binding::{BindTo, Transparent};
pub use groups::{AreaGroups, UpstreamRef, host_and_port};
pub use resolving::{AreaResolver, ResolveRules, ResolverLine};
