//! Code that several features of this crate use.

pub mod pooled;
