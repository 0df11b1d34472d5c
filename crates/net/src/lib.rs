//! Sockets, listeners, poller, sendfile, memory: the only crate besides `base` with system calls and `unsafe`.

pub mod allocator;
pub mod datagram;
pub mod listen;
pub mod outbound;
pub mod poller;
pub mod pool;
pub mod process;
pub mod random;
pub mod socket;
pub mod title;
