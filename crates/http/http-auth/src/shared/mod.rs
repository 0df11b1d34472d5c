//! Code shared by several features of this crate.

pub mod failed_logins;
pub mod requirement;
