//! Cache of responses: storability, freshness, files, locks, eviction and purging. Knows bytes, field names and times,
//! but no requests and connections.
//! All threads share a zone's index (`zone.rs`, `index.rs`); an entry is a file (`entry.rs`, `store.rs`), and in memory
//! while hot. `loader.rs` fills the index, `manager.rs` evicts, `purge.rs` and `tags.rs` purge.

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
pub mod tags;
pub mod variants;
pub mod vary;
pub mod zone;

pub use entry::Meta;
pub use key::Hash;
pub use purge::Fetch;
pub use store::{Content, EntryDraft, EntryError, StoredEntry};
pub use tags::{EntryTags, TagHash};
pub use zone::{CacheRoot, EntryState, Limits, Lock, Ticket, Zone};
