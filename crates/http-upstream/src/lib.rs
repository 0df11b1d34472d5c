//! Passing requests on to servers, below the features that do (`proxy_pass`, `fastcgi_pass`, ...): what a request is asked of
//! whom (`exchange`), what is stored of the answers (`caching`), bodies on their way (`body_store`), groups of servers as the
//! http area names them.
//!
//! Connections, balancing and health stand in the crate `upstream`, which knows no requests; the directives of each protocol
//! stand in `http-features`.

#![forbid(unsafe_code)]
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
pub mod opening;
pub mod probing;
pub mod resolving;
pub mod slicing;
pub mod sticky;
pub mod tls;
pub mod upgraded;
pub mod upstream_state;
pub mod zones;
