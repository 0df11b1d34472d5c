//! What the areas of a configuration share (http, stream, mail): variables, templates, regular expressions; what is computed, allowed,
//! counted and logged with them; listeners, groups of servers and TLS as directives name them.
//!
//! Everything is generic over the [`Session`] it works on: a request of http, a connection of stream. An area names its own
//! types once (`type Template = session_engine::Template<Request>`), so that a template of one area cannot be evaluated in
//! another, and nothing is looked up or called through a table of functions while a session runs.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod access;
pub mod background;
pub mod first_bytes;
pub mod forwarded;
pub mod geo;
pub mod geoip;
pub mod geoip2;
pub mod hosts;
pub mod levels;
pub mod limit_conn;
pub mod listen;
pub mod log;
pub mod map;
pub mod names;
pub mod real_ip;
pub mod regex;
pub mod relay;
pub mod session;
pub mod sessions;
pub mod split_clients;
pub mod template;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod upstreams;
pub mod variable;
pub mod zones;

/// The version of nginx whose configuration language and behaviour we read.
pub const NGINX_VERSION: &str = "1.31.4";

pub use session::{Session, Slot};
pub use template::Template;
