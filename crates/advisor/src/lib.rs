//! Advice about a configuration that nobody runs: `tidegate lint`, `diff` and `convert` without their command lines.
//!
//! Everything here works on the checked tree of a configuration ([`scope::Scopes`]): which block stands in which, what a
//! block says itself and what it inherits. Nothing opens a socket.

#![forbid(unsafe_code)]

pub mod convert;
pub mod diff;
pub mod lint;
pub mod location;
pub mod pattern;
pub mod scope;
pub mod values;
