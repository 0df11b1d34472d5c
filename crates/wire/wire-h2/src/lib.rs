//! HTTP/2 sans I/O (RFC 9113), with HPACK (RFC 7541).
//! [`Server`] and [`Client`] are connections: octets enter by `receive`, events leave by `poll_event` in terms of
//! `http-types`, and `output` gathers what to send. Frames, flow control, header tables and bounds on the peer are
//! decided here, responses by the caller.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod client;
mod frame;
pub mod fuzzing;
pub mod hpack;
mod priority;
mod server;
mod stream;

pub use client::{Client, ClientEvent, ClientLimits};
pub use frame::ErrorCode;
pub use hpack::Encoder;
pub use server::{ConnectionError, PREFACE, Server, ServerLimits};
pub use stream::{ByStream, join_piece};
