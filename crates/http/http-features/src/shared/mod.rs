//! Code shared by several features.

pub mod acme_state;
pub mod authorities;
pub mod bucket;
pub mod compress;
pub mod failed_logins;
pub mod gzip_ok;
pub mod joining;
pub mod media_types;
pub mod script_steps;
pub mod static_coded;
pub mod status_tree;
