//! Requests, phases, filters, variables and plan of the http area.
//! `engine.rs` runs a [`Request`] through the phases of its [`Location`] to a head (`Request::out`) and a [`ResponseBody`],
//! which the connection pulls. Performs no network I/O; features are in
//! `http-features` and the crates beside it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod acme_state;
pub mod answering;
pub mod area;
mod block_rules;
pub mod body_memory;
pub mod browsers;
pub mod build;
pub mod clean;
pub mod connection;
pub mod core_table;
pub mod counting;
mod elsewhere;
pub mod engine;
pub mod exchange;
pub mod failed_logins;
pub mod family;
pub mod file_io;
pub mod file_paths;
pub mod files;
pub mod firewall_findings;
pub mod fuzzing;
pub mod handler;
pub mod head_out;
pub mod hosts;
mod line_ends;
pub mod media_types;
pub mod order;
mod outgoing;
pub mod own_request;
pub mod own_socket;
pub mod path;
pub mod plan;
mod protocols;
pub mod regex;
pub mod request;
pub mod response;
pub mod route;
mod route_conditions;
pub mod route_match;
pub mod sampler;
pub mod sampling;
pub mod session;
pub mod span;
pub mod special;
pub mod subrequest;
pub mod template;
pub mod tls;
pub mod trace;
pub mod trace_id;
pub mod tree;
mod tries;
pub mod upstream_slot;
pub mod used_paths;
pub mod values;
pub mod variable;
pub mod variables;

pub use ::area::listen;
pub use ::variables::forwarded;
pub use area::HttpArea;
pub use build::{BlockPlan, Feature, HttpBuild};
pub use connection::{
    BegunHead, BodyReader, ClientConnection, ListenerRef, PartialHead, PipelineState, Tunnel, TunnelFault, TunnelMark,
    Watch, unless_gone,
};
pub use elsewhere::is_denied as is_denied_elsewhere;
pub use handler::{
    BodySource, Exchange, FileGuard, Filter, Flow, Handler, Later, LocalFuture, Logger, ResponseBody, ResponseGuard,
    Transform,
};
pub use order::{FilterOrder, HandlerOrder, PlanOrder};
pub use plan::{Background, HttpPlan, Listener, Location, Server};
pub use request::{CacheCount, Request, RequestBody};
pub use response::{BodyError, FilePart, OpenFile, Piece, Str};
pub use template::HttpTemplate;

/// Writes buffered log lines of this thread's loggers (USR1, reload, exit).
pub fn flush_logs(plan: &HttpPlan) {
    for flush in &plan.flushers {
        flush();
    }
}
