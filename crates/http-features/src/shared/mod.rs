//! What several features need, below them all.

pub mod balancing;
pub mod binding;
pub mod body_store;
pub mod caching;
pub mod cgi;
pub mod compress;
pub mod exchange;
pub mod groups;
pub mod gzip_ok;
pub mod hosts;
pub mod joining;
pub mod located;
pub mod media_types;
pub mod opening;
pub mod probing;
pub mod resolving;
pub mod script_steps;
pub mod slicing;
pub mod static_coded;
pub mod sticky;
pub mod tls;
pub mod upgraded;
pub mod upstream_state;
pub mod zones;
