//! Observes this machine through /proc: the server's processes, kernel counters, hardware. Unreadable values are
//! reported as unknown, never as zero.

pub mod kernel;
pub mod machine;
pub mod processes;
pub mod status;
