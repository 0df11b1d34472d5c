//! Groups of upstream servers: balancing, passive health, pooled connections (nginx: `ngx_http_upstream_*`).
//!
//! `balance.rs` decides, given the time and a random number, and does no I/O. The state of a [`Group`] is shared by all threads
//! of the process; [`pool`] keeps idle connections, each thread its own; [`resolver`] turns names into addresses.

#![forbid(unsafe_code)]

pub mod balance;
pub mod group;
pub mod pool;
pub mod resolver;
pub mod stream;

pub use balance::{Choice, Method, Tried};
pub use group::{Group, Peer, PeerSpec};
pub use pool::{KeepAlive, Pooled};
pub use stream::{Address, Stream};
