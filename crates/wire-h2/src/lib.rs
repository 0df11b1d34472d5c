//! HTTP/2 as a sans-io core: octets to events and back (RFC 9113), with HPACK (RFC 7541).
//!
//! No socket, no clock, no randomness. [`Server`] is one connection, and so is [`Client`]: bytes go in through [`Server::receive`],
//! what they mean comes out of [`Server::poll_event`], in the words of `http-types`, and what is to be sent gathers in [`Server::output`]. The caller decides what is
//! answered; frames, flow control, the header tables and the bounds on what a peer may ask of us are decided here.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod client;
mod frame;
pub mod fuzzing;
pub mod hpack;
mod huffman;
mod priority;
mod server;
mod stream;

pub use client::{Client, ClientEvent, ClientLimits};
pub use frame::ErrorCode;
pub use hpack::Encoder;
pub use server::{ConnectionError, Limits, PREFACE, Server};
pub use stream::{ByStream, join};
