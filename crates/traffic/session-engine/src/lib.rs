//! Shared by the areas (http, stream, mail): variables, templates, regular expressions, maps, limits, access rules,
//! logs, listeners, upstream groups and TLS as configured.
//! Generic over the [`AreaTypes`] and its [`Session`] (request or connection), without dynamic dispatch; an area names its types once (`type
//! Template = session_engine::Template<HttpArea>`), so that they cannot mix.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod access;
pub mod acme_clients;
pub mod area;
pub mod authorities;
pub mod background;
pub mod bucket;
pub mod checks;
pub mod first_bytes;
pub mod forwarded;
pub mod geo;
pub mod geoip;
pub mod geoip2;
pub mod hosts;
pub mod inventory;
pub mod keyval;
pub mod levels;
pub mod limit_conn;
pub mod listen;
pub mod log;
pub mod map;
pub mod names;
pub mod proxy_header;
pub mod real_ip;
pub mod regex;
pub mod relay;
pub mod session;
pub mod sessions;
pub mod shared_checks;
pub mod shared_lease;
pub mod shared_limit;
pub mod shared_secret;
pub mod shared_store;
pub mod split_clients;
pub mod template;
#[cfg(test)]
mod testing;
pub mod tls;
mod unopened;
pub mod upstreams;
pub mod variable;
pub mod zones;

/// Version of nginx whose configuration language and behaviour apply.
pub const NGINX_VERSION: &str = "1.31.6";

pub use session::{AreaTypes, Session, SessionOf, SessionSlot};
pub use template::Template;
pub use unopened::unopened_failure;
