//! Code shared by several features of this crate.

pub mod page_thread;
pub mod status_tree;
