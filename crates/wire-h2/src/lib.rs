//! HTTP/2 as a sans-io core: octets to events and back (RFC 9113), with HPACK (RFC 7541).
//!
//! No socket, no clock, no randomness. [`Server`] is one connection, and so is [`Client`]: bytes go in through [`Server::receive`],
//! what they mean comes out of [`Server::poll_event`], and what is to be sent gathers in [`Server::output`]. The caller decides what is
//! answered; frames, flow control, the header tables and the bounds on what a peer may ask of us are decided here.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod client;
mod frame;
pub mod fuzzing;
pub mod hpack;
mod huffman;
mod priority;
mod request;
mod server;
mod stream;

pub use client::{Client, ClientEvent, ClientLimits};
pub use frame::ErrorCode;
pub use hpack::{Encoder, List, Place};
pub use request::{Malformed, Request, is_connection_field, request};
pub use server::{ConnectionError, Event, Limits, PREFACE, Server, Taken};
pub use stream::ByStream;
