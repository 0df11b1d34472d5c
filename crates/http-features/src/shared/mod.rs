//! What several features need, below them all.

pub mod compress;
pub mod gzip_ok;
pub mod joining;
pub mod media_types;
pub mod script_steps;
pub mod static_coded;
