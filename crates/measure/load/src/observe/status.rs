//! Status of a server: nginx's `stub_status` page (ngx_http_stub_status_module), or Prometheus metrics.

use std::collections::HashMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::bench::requests::RequestUrl;
use crate::engine::job::{Job, Target, Tls};
use crate::engine::request::RequestSpec;
use crate::lab::probe;

/// Counters since the server's start, and present values; `None` if not on the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Accepted and handled connections, and requests.
    pub accepted: Option<f64>,
    pub handled: Option<f64>,
    pub requests: Option<f64>,
    /// Present connections: all, and by state.
    pub active: Option<f64>,
    pub reading: Option<f64>,
    pub writing: Option<f64>,
    pub waiting: Option<f64>,
    /// CPU seconds and resident bytes (metrics only).
    pub cpu: Option<f64>,
    pub memory: Option<f64>,
    /// Signatures of the key process, failed ones, seconds that threads waited for it, and its replacements (metrics only).
    pub signatures: Option<f64>,
    pub signatures_failed: Option<f64>,
    pub signature_wait: Option<f64>,
    pub keys_respawned: Option<f64>,
}

impl Status {
    pub fn parse(text: &str) -> Result<Status, String> {
        let status = if text.starts_with("Active connections:") { Status::stub(text) } else { Status::metrics(text) };
        if status == Status::default() {
            return Err("the page is neither stub_status nor metrics (location = /status { stub_status; })".into());
        }
        Ok(status)
    }

    fn stub(text: &str) -> Status {
        let mut status = Status::default();
        let mut lines = text.lines();
        let number = |word: Option<&str>| word.and_then(|w| w.parse::<f64>().ok());
        while let Some(line) = lines.next() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["Active", "connections:", n] => status.active = number(Some(n)),
                ["server", "accepts", "handled", "requests", ..] => {
                    let mut counts = lines.next().unwrap_or("").split_whitespace();
                    status.accepted = number(counts.next());
                    status.handled = number(counts.next());
                    status.requests = number(counts.next());
                }
                ["Reading:", reading, "Writing:", writing, "Waiting:", waiting] => {
                    status.reading = number(Some(reading));
                    status.writing = number(Some(writing));
                    status.waiting = number(Some(waiting));
                }
                _ => {}
            }
        }
        status
    }

    /// Reads Tidegate's metrics, those of nginx's exporter, client libraries and others. A page with several names of a
    /// figure (`metrics format=all`) counts it once.
    fn metrics(text: &str) -> Status {
        let mut sums: HashMap<&str, f64> = HashMap::new();
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let name = &line[..line.find(['{', ' ', '\t']).unwrap_or(line.len())];
            let rest = line.rfind('}').map_or(&line[name.len()..], |at| &line[at + 1..]);
            let Some(value) = rest.split_whitespace().next().and_then(|v| v.parse::<f64>().ok()) else { continue };
            *sums.entry(name).or_default() += value;
        }
        let figure = |names: &[&str]| names.iter().find_map(|name| sums.get(name).copied());
        Status {
            accepted: figure(&[
                "tidegate_connections_accepted_total",
                "nginx_connections_accepted",
                "nginx_connections_accepted_total",
            ]),
            handled: figure(&[
                "tidegate_connections_handled_total",
                "nginx_connections_handled",
                "nginx_connections_handled_total",
            ]),
            requests: figure(&[
                "tidegate_http_requests_total",
                "nginx_http_requests_total",
                "http_requests_total",
                "haproxy_process_requests_total",
            ]),
            active: figure(&["tidegate_connections_active", "nginx_connections_active"]),
            reading: figure(&["tidegate_connections_reading", "nginx_connections_reading"]),
            writing: figure(&["tidegate_connections_writing", "nginx_connections_writing"]),
            waiting: figure(&["tidegate_connections_waiting", "nginx_connections_waiting"]),
            cpu: figure(&["tidegate_process_cpu_seconds_total", "process_cpu_seconds_total"]),
            memory: figure(&["tidegate_process_resident_memory_bytes", "process_resident_memory_bytes"]),
            signatures: figure(&["tidegate_key_signatures_total"]),
            signatures_failed: figure(&["tidegate_key_signatures_failed_total"]),
            signature_wait: figure(&["tidegate_key_wait_seconds_total"]),
            keys_respawned: figure(&["tidegate_key_processes_respawned_total"]),
        }
    }
}

#[derive(Clone, Debug)]
pub struct StatusText {
    url: RequestUrl,
    address: std::net::SocketAddr,
    tls: Option<Tls>,
    begin: Instant,
}

impl StatusText {
    /// Fails when the URL is invalid or its host does not resolve.
    pub fn new(url: &str) -> Result<StatusText, String> {
        let url = RequestUrl::parse(url)?;
        let address = crate::bench::requests::resolve_name(&url.host, url.port)?;
        let tls = url.tls.then(Tls::default);
        Ok(StatusText { url, address, tls, begin: Instant::now() })
    }

    pub fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    pub fn url(&self) -> &RequestUrl {
        &self.url
    }

    /// Seconds since creation, and the page's present values.
    pub fn read(&self) -> Result<(f64, Status), String> {
        let target = Target {
            host: self.url.host.clone(),
            port: self.url.port,
            address: self.address,
            tls: self.tls.clone(),
            proxy: None,
            unix: None,
            sources: Vec::new(),
        };
        let host = target.authority();
        let request = RequestSpec::get(&self.url.path);
        let fetched = probe::fetch_body(&Job::closed(target, 1, 1.0), &request);
        let (seen, body) = fetched.map_err(|why| format!("{host}{}: {why}", self.url.path))?;
        if seen.status != 200 {
            return Err(format!("{}{} answers {}", host, self.url.path, seen.status));
        }
        Ok((self.begin.elapsed().as_secs_f64(), Status::parse(&String::from_utf8_lossy(&body))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_as_tidegate_writes_them() {
        let text = "# TYPE tidegate_connections_handled_total counter\n\
                    tidegate_connections_accepted_total 9\n\
                    tidegate_connections_handled_total{area=\"http\"} 7\n\
                    tidegate_connections_handled_total{area=\"stream\"} 1\n\
                    tidegate_key_signatures_total 8\ntidegate_key_signatures_failed_total 1\n\
                    tidegate_key_wait_seconds_total 0.004\ntidegate_key_processes_respawned_total 2\n\
                    tidegate_connections_active 4\ntidegate_connections_waiting 3\n\
                    tidegate_http_requests_total{version=\"1.1\"} 20\ntidegate_http_requests_total{version=\"2\"} 5\n\
                    tidegate_process_cpu_seconds_total 1.5\nprocess_cpu_seconds_total 1.5\nnginx_http_requests_total 25\n";
        let status = Status::parse(text).expect("metrics");
        assert_eq!((status.accepted, status.handled, status.requests), (Some(9.0), Some(8.0), Some(25.0)));
        assert_eq!((status.active, status.waiting, status.reading), (Some(4.0), Some(3.0), None));
        assert_eq!(status.cpu, Some(1.5), "counted once");
        assert_eq!((status.signatures, status.signatures_failed), (Some(8.0), Some(1.0)));
        assert_eq!((status.signature_wait, status.keys_respawned), (Some(0.004), Some(2.0)));
    }

    #[test]
    fn stub_status_as_nginx_writes_it() {
        let text = "Active connections: 291 \nserver accepts handled requests\n 16630948 16630946 31070465 \n\
                    Reading: 6 Writing: 179 Waiting: 106 \n";
        let s = Status::parse(text).unwrap();
        assert_eq!((s.active, s.accepted, s.handled), (Some(291.0), Some(16_630_948.0), Some(16_630_946.0)));
        assert_eq!(
            (s.requests, s.reading, s.writing, s.waiting),
            (Some(31_070_465.0), Some(6.0), Some(179.0), Some(106.0))
        );
        assert_eq!(s.cpu, None);
    }

    #[test]
    fn metrics_of_exporters() {
        let text = "# HELP nginx_http_requests_total x\n# TYPE nginx_http_requests_total counter\nnginx_http_requests_total 12\n\
                    http_requests_total{code=\"200\",path=\"/a b}\"} 5 1700000000\nhttp_requests_total{code=\"500\"} 2\n\
                    process_cpu_seconds_total 1.5e1\nother 3\n";
        let s = Status::parse(text).unwrap();
        assert_eq!((s.requests, s.cpu, s.active), (Some(12.0), Some(15.0), None));
        assert!(Status::parse("<html>hello</html>").is_err() && Status::parse("").is_err());
    }
}
