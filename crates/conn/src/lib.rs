//! Drives the wire cores over sockets: accept, keep-alive, inline answers, lingering close; the worker threads.

pub mod thread;
