//! The stream area (nginx: `ngx_stream_*`): TCP and UDP sessions, the phases that they pass through, and its features, one
//! folder each and one line each in `registry.rs`.
//!
//! A session is a task of its thread (`engine.rs`): it reads a PROXY protocol header, asks the handlers of its server, makes
//! the handshake of TLS, looks at the first bytes, and hands its client to what the server answers with (`proxy`, `return`,
//! `pass`). `sessions.rs` is what a worker keeps of all its sessions, `udp.rs` makes sessions of datagrams. `build.rs` makes the
//! plan of the checked configuration. A feature knows the engine and no other feature.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

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
mod geo;
mod geoip;
mod geoip2;
mod limit_conn;
mod map;
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

pub use plan::StreamPlan;
pub use registry::{build, offer_variables, tables, variables};
pub use session::StreamSession;
pub use sessions::{Host, Sessions};

/// A string with variables of a session.
pub type Template = session_engine::Template<StreamSession>;
/// A row of built-in variables of sessions.
pub type Builtin = session_engine::variable::Builtin<StreamSession>;
/// Variables while the configuration is read.
pub type Variables = session_engine::variable::Variables<StreamSession>;
