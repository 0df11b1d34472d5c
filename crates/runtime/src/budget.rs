//! The budget of a task: see [`net::budget`]. It is counted where the system calls are, so that no loop can leave a call out.

pub use net::budget::*;
