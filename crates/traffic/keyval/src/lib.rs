//! Zones of key-value pairs (nginx: `ngx_http_keyval_module`, `ngx_stream_keyval_module`): shared by all threads, bounded
//! by the zone's size, optionally kept in a file.
//!
//! A request looks a variable up with [`Zone::find`], which takes no lock: the pairs are spread over many small immutable
//! tables, and a change replaces one of them. Changes take one lock for the zone; they come from an API, at a rate far
//! below that of requests. The interface for such an API is [`Zone::add`], [`Zone::fill`], [`Zone::change`],
//! [`Zone::remove`], [`Zone::clear`], [`Zone::get`] and [`Zone::list`].
//!
//! The crate reads no clock: times are milliseconds since 1970, given by the caller, because a state file outlives the
//! process.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod address;
pub mod state_file;
#[cfg(test)]
mod tests;
mod zone;

pub use zone::{Change, ENTRY_BYTES, Matching, Pair, Refusal, VALUE_BYTES_MAX, Zone};
