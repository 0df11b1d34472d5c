//! The budget of a task: see [`net::budget`], which charges every system call.

pub use net::budget::*;
