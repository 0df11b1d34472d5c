//! Upstream groups: balancing, health, names, pooled connections (nginx: `ngx_http_upstream_*`).
//! `balance/` and `health.rs` decide without I/O, from the time and a random number. All threads share a [`Group`]'s
//! state; [`pool`] keeps connections per thread; [`names`] keeps the addresses of names.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod balance;
pub mod client;
pub mod codec;
pub mod edit;
pub mod group;
pub mod health;
pub mod history;
pub mod idle;
pub mod keep_alive;
pub mod line;
pub mod mux;
pub mod names;
pub mod peer;
pub mod pool;
pub mod queue;
mod registry;
pub mod roster;
pub mod scope;
pub mod serial;
mod unconnected;

pub use balance::{Attempts, BalanceMethod, Choice, PeerLease};
pub use client::{ClientStream, Connection, Counts, ResponseEvent, Stop};
pub use codec::{Event, MalformedResponse, ReceivedHead, RequestFacts, ResponseEnd, ResponseStart, SerialCodec};
pub use group::{Extras, Group, ServerLine, ServerSource};
pub use history::TimedRecord;
pub use keep_alive::KeepAlive;
pub use line::{Entry, LineOrigin};
pub use mux::h2::H2Lease;
pub use mux::h3::{ConnectError, H3Lease};
pub use peer::{CheckState, Peer, PeerSpec};
pub use pool::{Binding, IdleTimer, PooledConnection};
pub use roster::Roster;
pub use scope::Scope;
pub use serial::Serial;
pub use unconnected::{connect_call, is_usual};
