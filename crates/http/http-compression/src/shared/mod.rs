//! Code shared by several features of this crate.

pub mod compress;
pub mod gzip_ok;
pub mod static_coded;
