//! Error log, log files, syslog, and times as text.

#![forbid(unsafe_code)]

pub mod clock;
mod detail;
pub mod error_log;
pub mod error_log_value;
mod json_line;
pub mod log_file;
mod nginx_json;
pub mod ring;
pub mod syslog;
pub mod tail;

pub use detail::Detail;
pub use error_log::{
    ErrorLog, LineFormat, LogTarget, Severity, Sink, format_line, level_of_all, os_error, set_level, set_process_log,
};
pub use error_log_value::{ErrorLogLines, MainLog, STDERR_USED};
pub use log_file::{DefaultAccessLog, LogFile, LogFiles};
pub use syslog::SyslogTarget;
