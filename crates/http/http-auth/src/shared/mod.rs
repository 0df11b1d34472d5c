//! Code shared by several features of this crate.

pub mod requirement;
