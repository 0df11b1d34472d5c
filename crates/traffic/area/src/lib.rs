//! Shared by the areas http, stream and mail beside variables: listeners, inherited levels, access rules, limits and their zones,
//! key-value pairs, sessions of a thread, first bytes and relayed bytes, the shared store; and an area as the process sees
//! it ([`plan`]).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod access;
pub mod background;
pub mod binding;
pub mod bucket;
pub mod first_bytes;
pub mod host_port;
pub mod keyval;
pub mod levels;
pub mod limit_conn;
pub mod listed;
pub mod listen;
pub mod plan;
pub mod proxy_header;
pub mod real_ip;
pub mod relay;
pub mod sessions;
pub mod shared_lease;
pub mod shared_limit;
pub mod shared_secret;
pub mod shared_store;
mod unopened;
pub mod zones;

pub use unopened::unopened_failure;
