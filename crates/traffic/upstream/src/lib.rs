//! Upstream groups: balancing, health, names, pooled connections (nginx: `ngx_http_upstream_*`).
//! `balance/` and `health.rs` decide without I/O, from the time and a random number. All threads share a [`Group`]'s
//! state; [`pool`] keeps connections per thread; [`resolver`] and [`names`] resolve names.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod balance;
pub mod client;
pub mod codec;
pub mod edit;
pub mod fuzzing;
pub mod group;
pub mod health;
pub mod history;
pub mod idle;
pub mod line;
pub mod mux;
pub mod names;
pub mod peer;
pub mod pool;
pub mod queue;
mod registry;
pub mod resolver;
pub mod roster;
pub mod scope;
mod secure;
pub mod serial;
pub mod stream;
mod unconnected;

pub use balance::{Attempts, BalanceMethod, Choice, PeerLease};
pub use client::{ClientStream, Connection, Counts, ResponseEvent, Stop};
pub use codec::{Event, MalformedResponse, ReceivedHead, RequestFacts, ResponseEnd, ResponseStart, SerialCodec};
pub use group::{Extras, Group, ResolvedAddress, ServerLine, ServerSource};
pub use history::TimedRecord;
pub use line::{Entry, LineOrigin};
pub use mux::h2::H2Lease;
pub use mux::h3::{ConnectError, H3Lease};
pub use peer::{CheckState, Peer, PeerSpec};
pub use pool::{Binding, IdleTimer, KeepAlive, PooledConnection};
pub use roster::Roster;
pub use scope::Scope;
pub use secure::HandshakeError;
pub use serial::Serial;
pub use stream::{BindAddress, ConnectFuture, ConnectOptions, LocalError, Stream, datagram_socket};
pub use unconnected::{connect_call, is_usual};
