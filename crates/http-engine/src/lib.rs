//! Request, phases, filters, variables and the plan of the http area.
//!
//! A request is a [`Request`]; `engine.rs` runs it through the phases that its [`Location`] lists; what comes out is a
//! response head (`Request::out`) and a [`Body`] that the connection pulls. Nothing here does network I/O. Features stand in
//! the crate `http-features`; this crate knows none of them.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod answering;
pub mod build;
pub mod clean;
pub mod core_table;
pub mod counting;
pub mod engine;
pub mod exchange;
pub mod file_io;
pub mod files;
pub mod fuzzing;
pub mod head_out;
pub mod hosts;
pub mod path;
pub mod plan;
mod protocols;
pub mod regex;
pub mod request;
pub mod response;
pub mod route;
pub mod session;
pub mod special;
pub mod subrequest;
pub mod template;
pub mod tls;
pub mod trace;
pub mod upstream_slot;
pub mod values;
pub mod variable;
pub mod variables;

pub use build::{BlockPlan, Feature, HttpBuild};
pub use exchange::Exchange;
pub use plan::{
    Background, Filter, FilterOrder, Handler, HandlerOrder, HttpPlan, Listener, Location, Logger, PlanOrder, Server,
    Transform,
};
pub use request::{
    Begun, BodyReader, Connection, Flow, Later, ListenerRef, LocalFuture, RawClient, Request, RequestBody, Tunnel,
    Watch,
};
pub use response::{Body, BodyError, BodySource, FilePart, OpenFile, Piece, Str};
pub use session_engine::{forwarded, listen};
pub use template::Template;

/// Writes out log lines that this thread's loggers hold back (USR1, reload, the end).
pub fn flush_logs(plan: &HttpPlan) {
    for flush in &plan.flushers {
        flush();
    }
}
