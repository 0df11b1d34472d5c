//! Stored responses: what may be stored and for how long, where it lies, who may fetch it anew, when it goes.
//!
//! The crate knows bytes, names of header fields and times, but no request and no connection: `http-features` asks it. The
//! index of a zone is shared by all threads (`zone.rs` over the shards of `index.rs`); an entry is a file with a head of our
//! own (`entry.rs`, `store.rs`), and while it is hot its bytes are kept beside its place in the index. `loader.rs` fills the
//! index after a start, `manager.rs` takes entries out, `purge.rs` on demand.

#![forbid(unsafe_code)]

pub mod entry;
pub mod freshness;
pub mod fuzzing;
mod index;
pub mod key;
pub mod loader;
pub mod manager;
pub mod purge;
pub mod store;
pub mod strict;
pub mod variants;
pub mod vary;
pub mod zone;

pub use entry::Meta;
pub use key::Hash;
pub use store::{Content, Draft, Stored, Trouble};
pub use zone::{Limits, Lock, Place, Seen, Ticket, Zone};
