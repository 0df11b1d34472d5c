//! HTTP/1.x as a sans-io core, both roles: bytes to heads and bodies and back (RFC 9112, RFC 9110).
//!
//! No socket, no clock, no randomness, no allocation per request once the caller's [`RequestHead`] has grown: heads are
//! tables of offsets into the buffer that the caller read into. Framing is decided here and nowhere else.
//!
//! What is accepted and what is refused is nginx's choice, not the grammar's: the same bytes must get the same answer
//! from both. Where nginx is lenient (a bare LF ends a field line, a field line without a colon is a field with an
//! empty value) so are we; where it is strict (any second `Content-Length`, a bare LF in chunked framing) so are we.
//! What heads are made of stands in `http-types`. Start with [`HeadParser`], then [`check_request`], then [`ChunkedDecoder`].
//!
//! # Cost
//!
//! A head of 127 bytes (a request line of 40, `Host` and three more fields) costs 1,300 instructions by callgrind's
//! count, the recognition of methods and names, the checks for duplicates and the split of the target included; 1,370
//! with framing and keep-alive decided. `httparse`, which does none of that, needs 1,420 for the same bytes.
//! `examples/head_cost.rs` repeats the count.

#![forbid(unsafe_code)]
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
pub use chunked::{ChunkError, ChunkedDecoder, Decoded, EXTENSIONS_MAX, Role, TRAILERS_MAX};
pub use encode::{LAST_CHUNK, RequestWriter, encode_chunk_head};
pub use error::HeadError;
pub use fields::parse_trailers;
pub use framing::{FramingError, check_request, keep_alive, request_body, response_body, response_keep_alive};
pub use relay::{RelayHead, RelayRules, relay};
pub use request::{HeadLimits, HeadParser, Progress};
pub use response::{ResponseParser, read_status_line};
