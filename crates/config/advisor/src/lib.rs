//! Static analysis of configurations: `tidegate lint`, `diff` and `convert` without their command lines.
//! Works on the checked tree ([`scope::Scopes`]) with own and inherited lines. Opens no sockets.

#![forbid(unsafe_code)]

pub mod convert;
pub mod diff;
pub mod lint;
pub mod location;
pub mod pattern;
pub mod scope;
pub mod values;
