//! Connections to servers that this process could not open: nginx's log lines, and the status 500 without another server.

use observe::{Severity, os_error};
use std::io;
use transport::{BindAddress, LocalError};

/// Returns level and words of a failure before connect(); `None` for failures of connect() itself.
pub fn unopened_failure(e: &io::Error) -> Option<(Severity, String)> {
    Some(match LocalError::of(e)? {
        LocalError::Bind { from, error } => {
            (Severity::Crit, format!("bind({}) failed {}", BindAddress(*from), os_error(error)))
        }
        LocalError::Socket(e) => (Severity::Alert, format!("socket() failed {}", os_error(e))),
        full @ LocalError::Connections(_) => (Severity::Alert, full.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_before_connect_have_lines_of_nginx() {
        let words = |e: LocalError| unopened_failure(&io::Error::other(e));
        let code = io::Error::from_raw_os_error;
        let bind =
            |from: &str| LocalError::Bind { from: from.parse().expect("address"), error: code(libc::EADDRINUSE) };
        assert_eq!(
            words(bind("192.0.2.1:0")),
            Some((Severity::Crit, "bind(192.0.2.1) failed (98: Address already in use)".into()))
        );
        assert_eq!(
            words(bind("[::1]:80")),
            Some((Severity::Crit, "bind([::1]:80) failed (98: Address already in use)".into()))
        );
        assert_eq!(
            words(LocalError::Socket(code(libc::EMFILE))),
            Some((Severity::Alert, "socket() failed (24: Too many open files)".into()))
        );
        assert_eq!(
            words(LocalError::Connections(512)),
            Some((Severity::Alert, "512 worker_connections are not enough".into()))
        );
        assert_eq!(unopened_failure(&code(libc::ECONNREFUSED)), None);
    }
}
