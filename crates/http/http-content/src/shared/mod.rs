//! Code that several features of this crate use.

pub mod film;
pub mod pooled;
