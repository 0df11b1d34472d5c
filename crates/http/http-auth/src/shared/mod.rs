//! Code shared by several features of this crate.

pub mod bucket;
pub mod failed_logins;
