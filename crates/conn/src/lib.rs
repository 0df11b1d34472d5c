//! Drives the wire cores over sockets: accept, keep-alive, inline answers, lingering close; the worker threads.
//!
//! A connection is an entry of its thread's parking lot. `inline.rs` answers what can be answered at once; everything else
//! becomes a task (`task.rs`), which reads through `input.rs` and writes through `output.rs`, and parks the connection again.

#![forbid(unsafe_code)]

mod accept;
mod file_out;
mod h2;
mod head_in;
mod inline;
mod input;
mod link;
mod output;
mod pace;
mod secure;
pub mod sim;
mod task;
pub mod thread;
mod turn;
mod world;
