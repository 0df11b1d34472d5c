//! Drives protocol cores over sockets: accepting, TLS, keep-alive, inline responses, lingering close; worker threads.
//! `worker.rs` has a thread's state and the trait `Carrier`, a way of using a socket: HTTP/1 (`inline.rs`), TLS
//! (`handshake.rs`), requests that wait for a server (`waiting.rs`), multiplexed streams (`byte_carrier.rs`,
//! `streams/`), listeners (`accept.rs`), datagrams (`stream_area.rs`).
//! Slow requests become tasks (`task.rs`, `input.rs`, `output.rs`). `turn.rs` is the loop, `command.rs` its commands,
//! `sim.rs` steps it in tests.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod accept;
mod admission;
mod areas;
mod batch;
mod byte_carrier;
mod command;
mod file_out;
mod guard;
mod h2;
mod handshake;
mod head_in;
mod inline;
mod input;
mod intake;
mod linger;
mod lingering;
mod link;
mod mail_area;
mod output;
mod pace;
mod pools;
mod presence;
mod quic;
mod raw;
pub mod rehearsal;
mod room;
mod secure;
mod send_plan;
mod serving;
pub mod sim;
mod spares;
mod steps;
mod stream_area;
mod streams;
mod task;
pub mod thread;
mod turn;
mod turn_state;
mod waiting;
mod worker;

pub use quic::relay;
