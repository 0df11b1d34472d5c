//! Traces: W3C trace context ([`context`]), spans ([`TraceSpan`]), and their export by OTLP ([`Exporter`]).
//!
//! Worker threads push spans into a bounded [`Queue`]; the control thread makes batches of them and sends these over `http-client`.
//! This crate knows no directive and no request.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod context;
mod endpoint;
mod export;
pub mod fuzzing;
pub mod proto;
mod queue;
mod send;
mod span;

pub use endpoint::{Endpoint, ExportProtocol};
pub use export::{Exporter, Settings};
pub use queue::Queue;
pub use span::{SpanHead, TraceKind, TraceSpan};
