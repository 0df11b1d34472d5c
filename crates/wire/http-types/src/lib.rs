//! HTTP messages of any version: methods, fields, heads, decoded header lists, and the interface between a core and its
//! driver ([`StreamMux`], [`ByteCore`]).
//! Heads are tables of offsets into their buffer: nothing is copied, and a grown table needs no allocation. Performs no
//! I/O and knows no configuration.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod edge;
mod fields;
mod head;
pub mod huffman;
mod known;
mod list;
mod priority;
mod status;

pub use edge::{
    ByStream, ByteCore, Event, FieldLines, ProtocolError, Rank, ResetReason, SentBody, StreamHasher, StreamId,
    StreamMux, TakenLines,
};
pub use fields::{FIELDS_MAX, Field, Fields};
pub use head::{BodyLength, HEAD_MAX, Method, RequestHead, ResponseHead, Span, Version};
pub use known::{Known, KnownSet, NAMES, NameSet, Words, known_name, known_words, name_words};
pub use list::{
    List, ListLimits, ListPlace, MalformedFields, Message, RequestFault, is_connection_field, request_message,
};
pub use priority::Priority;
pub use status::status_line;
