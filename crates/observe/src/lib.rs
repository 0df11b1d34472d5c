//! Error log, log files, clocks as text: what the server tells.

pub mod error_log;
pub mod log_file;

pub use error_log::{ErrorLog, Level};
pub use log_file::{LogFile, LogFiles};
