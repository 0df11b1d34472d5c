//! State that several nodes share: maps of records, permits of limits, and leases. What the nodes have to agree on lives
//! in an engine that exists (Redis, Valkey, a folder); this crate contains no protocol of its own between nodes.
//!
//! ```text
//! request ─▶ local zone ◀─ apply ─ MapReplica ◀─▶ StoreAgent (a thread) ◀─▶ Store: redis | files | memory
//!        └─▶ PermitPool  ◀──────── grants ────────────┘
//! ```
//!
//! A request never waits for the store: it looks into a local zone, or takes a permit that is there. The [`StoreAgent`]
//! has a thread of its own, which connects, repeats, subscribes and compares; without a store it holds the records that it has to send.
//!
//! Maps converge: the record with the newest [`Version`] wins on every node and in the store, also after a partition. A
//! removal is a record, too ([`MapRecord::value`] is `None`), kept for [`REMOVAL_LIFETIME`].
//!
//! Order of calls: [`StoreAddress::parse`], [`StoreAgent::start`], then [`StoreAgent::share_map`] and
//! [`StoreAgent::share_permits`] for each zone, at any time.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod address;
mod agent;
#[cfg(test)]
mod fault_tests;
mod files;
mod map_replica;
mod memory;
mod permits;
mod record;
mod redis_connection;
mod redis_scripts;
mod redis_store;
#[cfg(test)]
mod redis_tests;
mod state;
mod store;
mod store_calls;
#[cfg(test)]
mod tests;

pub use address::{AddressFault, RedisMode, StoreAddress};
pub use agent::{AgentOptions, StoreAgent, StoreReport};
pub use map_replica::{LocalMap, LocalValue, MapReplica, REMOVAL_LIFETIME};
pub use memory::MemoryStore;
pub use permits::{PermitPool, PermitRule, PermitVerdict, StoreLoss};
pub use record::{MapRecord, NodeClock, Version};
pub use state::{MapState, StoreState};
pub use store::{PermitGrant, PermitRequest, Store, StoreFailure, Subscription};
pub use store_calls::StoreAnswer;
