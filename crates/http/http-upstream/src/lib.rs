//! Below the proxying features (`proxy_pass`, `fastcgi_pass`, ...): `exchange` with servers, `caching`, request bodies
//! (`body_store`), groups of the http area.
//! The crate `upstream` has connections, balancing and health, without requests; `http-proxy` has the directives.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod balancing;
pub mod binding;
pub mod body_store;
pub mod caching;
pub mod cgi;
pub mod exchange;
pub mod groups;
pub mod hosts;
pub mod located;
mod ntlm;
pub mod opening;
pub mod probing;
pub mod resolving;
pub mod slicing;
pub mod sticky;
pub mod sticky_sessions;
pub mod target;
pub mod tls;
pub mod upgraded;
pub mod upstream_state;
pub mod zones;
