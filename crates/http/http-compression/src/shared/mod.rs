//! Code shared by several features of this crate.

pub mod compress;
mod deflate;
pub mod encoder;
pub mod gzip_ok;
pub mod static_coded;
