//! What the threads of the server run tasks on: an executor for one thread, timers, and sockets that one event queue watches.
//!
//! Every thread that calls [`task::spawn_local`] has an executor of its own; a task never leaves its thread. Two kinds of loop
//! drive it: a worker thread's (`conn::thread`), which serves connections between the tasks, and [`block_on`], for threads
//! that only run tasks, and for tests. Both wait with one system call for everything that a thread can wait for. Time is
//! [`base::clock`]'s: it passes between turns of the loop, never within a poll.
//!
//! Why not tokio's: its loop waits in an event queue of its own, so that a thread with connections beside its tasks waits
//! twice, and it gives no control over what is looked at first (docs/decisions/0061).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod budget;
mod driver;
mod inbox;
pub mod io;
pub mod task;
pub mod time;
pub mod wake;

pub use driver::{Thread, block_on, run};
pub use inbox::{LoopWaker, Remote};
