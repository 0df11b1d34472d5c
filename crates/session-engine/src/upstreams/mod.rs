//! Groups of servers as a configuration names them: `upstream` blocks and hosts, their servers and balancers, name servers,
//! and where connections to them are made from. What groups do stands in the crate `upstream`.

pub mod binding;
pub mod groups;
pub mod hosts;
pub mod methods;
pub mod resolving;
pub mod servers;

pub use binding::{BindTo, Transparent};
pub use groups::{Groups, UpstreamRef, host_and_port};
pub use resolving::{AreaResolver, ResolverLine, Resolving};
