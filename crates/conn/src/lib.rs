//! Drives the protocol cores over sockets: accept, TLS, keep-alive, inline answers, lingering close; the worker threads.
//!
//! `turn.rs` is a thread's loop. A connection is an entry of its thread's poller; its bytes go through a `Link`, as they are or
//! through TLS (`secure.rs`). `inline.rs` answers what can be answered at once; everything else becomes a task (`task.rs`), which
//! reads through `input.rs` and writes through `output.rs`, and makes the connection idle again. A connection that
//! carries many requests at a time is `mux`'s, whatever its protocol; `h2` says when that is HTTP/2. `sim.rs` steps a thread for
//! tests, in time of their own.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod accept;
mod file_out;
mod h2;
mod head_in;
mod inline;
mod input;
mod link;
mod mails;
pub mod mux;
mod output;
mod pace;
pub mod rehearsal;
mod secure;
pub mod sim;
mod streams;
mod task;
pub mod thread;
mod turn;
mod waiting;
mod worker;
