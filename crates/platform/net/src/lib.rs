//! Sockets, listeners, poller, sendfile, memory: the only crate with `unsafe`.

#![warn(missing_docs)]

mod address;
pub mod allocator;
pub mod budget;
pub mod confine;
pub mod datagram;
#[cfg(debug_assertions)]
pub mod faults;
pub mod listen;
pub mod outbound;
pub mod packets;
pub mod poller;
pub mod pool;
pub mod process;
pub mod random;
pub mod socket;
pub mod title;

pub use address::Address;
