//! Task runtime of the server's threads: an executor per thread, timers, and sockets in one event queue. Tasks never
//! leave their thread.
//! Driven by a worker's loop (`worker::thread`), between connections, or by [`block_on`]; both wait with one system call.
//! Time is [`base::clock`]'s: it advances between turns, never within a poll.
//! tokio would need a second event queue and gives no control over the order of work (docs/decisions/0061).

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod budget;
mod driver;
mod inbox;
pub mod io;
pub mod task;
pub mod time;
pub mod wake;

pub use driver::{Thread, block_on, run_future};
pub use inbox::{LoopWaker, Remote};
