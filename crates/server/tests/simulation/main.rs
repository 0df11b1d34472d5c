//! The server in simulated time, without sockets: random clients, servers, loops, and a panic at every step.

#[path = "../support/mod.rs"]
mod support;

mod connections;
mod http2;
mod loops;
mod protocol;
mod proxy;
mod steps;
