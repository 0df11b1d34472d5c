//! Zones of key-value pairs (nginx: `ngx_http_keyval_module`, `ngx_stream_keyval_module`): shared by all threads, bounded
//! by the zone's size, optionally kept in a file.
//!
//! A request looks a variable up with [`KeyvalZone::find`], which takes no lock: the pairs are spread over many small immutable
//! tables, and a change replaces one of them. Changes take one lock for the zone; they come from an API, at a rate far
//! below that of requests. The interface for such an API is [`KeyvalZone::add`], [`KeyvalZone::fill`], [`KeyvalZone::change`],
//! [`KeyvalZone::remove`], [`KeyvalZone::clear`], [`KeyvalZone::get`] and [`KeyvalZone::list`].
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

pub use zone::{ENTRY_BYTES, KeyMatch, KeyvalPair, KeyvalZone, PairChange, Refusal, VALUE_BYTES_MAX};
