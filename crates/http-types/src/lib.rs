//! What messages of HTTP consist of, whatever their version: methods, fields, heads, decoded header lists. And the edge between
//! the core of a protocol and what drives it ([`StreamMux`], [`ByteCore`]).
//!
//! A head is a table of places in the buffer that it was read into: nothing is copied, and nothing is allocated once the
//! table has grown. Nothing here reads a socket, a clock or a configuration.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod edge;
mod fields;
mod head;
mod known;
mod list;
mod status;

pub use edge::{
    ByStream, ByteCore, Event, FieldLines, ProtocolError, Rank, StreamHasher, StreamId, StreamMux, Taken, Why,
};
pub use fields::{FIELDS_MAX, Field, Fields};
pub use head::{BodyLength, HEAD_MAX, Method, RequestHead, ResponseHead, Span, Version};
pub use known::{Known, KnownSet, NAMES, NameSet, Words, known, known_words, words};
pub use list::{List, ListLimits, Malformed, Message, Place, is_connection_field, request};
pub use status::status_line;
