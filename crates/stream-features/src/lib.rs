//! The stream area (nginx: `ngx_stream_*`): TCP and UDP sessions, their phases, and features in directories, listed in
//! `registry.rs`.
//! A session is a task (`engine.rs`): PROXY protocol, handlers, TLS, preread, content handler (`proxy`, `return`,
//! `pass`). `sessions.rs` holds a worker's sessions, `udp.rs` creates those of datagrams, `build.rs` builds the plan.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod area;
pub mod build;
pub mod client;
mod core_table;
mod engine;
mod first_bytes;
pub mod fuzzing;
mod groups;
mod handshake;
pub mod plan;
pub mod registry;
pub mod session;
pub mod sessions;
pub mod udp;
mod values;
mod variables;

mod access;
mod access_log;
mod acme;
mod dns;
mod geo;
mod geoip;
mod geoip2;
mod health_check;
mod keyval;
mod limit_conn;
mod map;
mod mqtt;
mod pass;
mod proxy;
mod realip;
mod resolver;
mod return_text;
mod set;
mod split_clients;
mod ssl;
mod ssl_preread;
mod status_zone;
#[cfg(test)]
mod tests;
mod upstream_block;

pub use area::{Builtin, StreamArea, StreamTemplate, StreamVariables};
pub use plan::StreamPlan;
pub use registry::{build_stream, offer_variables, stream_tables, stream_variables};
pub use session::StreamSession;
pub use sessions::{Host, StreamSessions};
