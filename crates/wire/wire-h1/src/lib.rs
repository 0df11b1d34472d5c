//! HTTP/1.x sans I/O for both roles (RFC 9112, RFC 9110). Heads are tables of offsets into the caller's buffer, so that
//! a grown `RequestHead` needs no allocation. Start with [`HeadParser`], [`check_request`], [`ChunkedDecoder`].
//!
//! Accepts and rejects what nginx does: lenient with a bare LF after a field line and a field line without a colon,
//! strict with a second `Content-Length` and a bare LF in chunked framing.
//!
//! A head of 127 bytes costs 1,300 instructions with method and name recognition, duplicate checks and target split,
//! 1,370 with framing; `examples/head_cost.rs` measures them.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod bytes;
mod chunked;
mod encode;
mod error;
mod fields;
mod framing;
#[doc(hidden)]
pub mod fuzzing;
mod relay;
mod request;
mod request_line;
mod response;
mod scan;

pub use bytes::{is_field_value, is_token};
pub use chunked::{ChunkError, ChunkedDecoder, DecodedChunk, EXTENSIONS_MAX, Role, TRAILERS_MAX};
pub use encode::{LAST_CHUNK, RequestWriter, encode_chunk_head};
pub use error::HeadError;
pub use fields::parse_trailers;
pub use framing::{FramingError, check_request, keep_alive, request_body, response_body, response_keep_alive};
pub use relay::{RelayHead, RelayMemory, RelayRules, relay_response};
pub use request::{HeadLimits, HeadParser, ParseProgress};
pub use response::{ResponseParser, read_status_line};
