//! Code shared by several features.

pub mod joining;
pub mod prefixes;
pub mod script_steps;
