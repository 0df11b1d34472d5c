//! The metrics of nginx's Prometheus exporter, for existing dashboards.

use crate::process;
use std::fmt::Write as _;

/// Writes the exporter's seven metrics and `nginx_up` in Prometheus's text format.
pub fn exporter_text() -> String {
    let (active, reading) = (process::CONNECTIONS_ACTIVE.sum(), process::CONNECTIONS_READING.sum());
    let writing = process::CONNECTIONS_WRITING.sum();
    let rows: [(&str, &str, &str, u64); 8] = [
        ("nginx_connections_accepted", "counter", "Accepted client connections.", process::CONNECTIONS_ACCEPTED.sum()),
        ("nginx_connections_active", "gauge", "Active client connections.", active),
        ("nginx_connections_handled", "counter", "Handled client connections.", process::CONNECTIONS_HANDLED.sum()),
        ("nginx_connections_reading", "gauge", "Connections reading a request.", reading),
        (
            "nginx_connections_waiting",
            "gauge",
            "Idle connections waiting for a request.",
            active.saturating_sub(reading + writing),
        ),
        ("nginx_connections_writing", "gauge", "Connections writing a response.", writing),
        ("nginx_http_requests_total", "counter", "Requests.", process::HTTP_REQUESTS.sum()),
        ("nginx_up", "gauge", "1 while the server responds.", 1),
    ];
    let mut out = String::new();
    for (name, kind, help, value) in rows {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    out
}
