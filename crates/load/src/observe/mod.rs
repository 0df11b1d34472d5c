//! Looking at this machine through /proc: the server's processes, the kernel's counters, the hardware.
//!
//! Everything is best effort: what cannot be read is reported as unknown, never as zero.

pub mod kernel;
pub mod machine;
pub mod processes;
pub mod status;
