//! Code shared by several features.

pub mod joining;
pub mod script_steps;
