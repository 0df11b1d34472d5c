//! Formats of the display, with the module's names, on which dashboards rely.

use super::counters::{CACHE, StatusKey, StatusNode};
use metrics::process;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

pub struct TrafficStatus<'a> {
    pub zone: &'a str,
    pub bytes_max: u64,
    pub bytes_used: u64,
    pub sum_key: &'a str,
    pub buckets: &'a [u64],
    pub nodes: &'a BTreeMap<Arc<StatusKey>, StatusNode>,
}

/// Quotes a JSON string, also usable as a Prometheus label without control characters.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Replaces control characters by spaces.
fn label(text: &str) -> String {
    quoted(&text.replace(|c: char| c.is_control() && c != '\n', " "))
}

/// Active, reading, writing, waiting, accepted, handled connections, and requests.
fn connections() -> [(&'static str, u64); 7] {
    let (active, reading) = (process::CONNECTIONS_ACTIVE.sum(), process::CONNECTIONS_READING.sum());
    let writing = process::CONNECTIONS_WRITING.sum();
    [
        ("active", active),
        ("reading", reading),
        ("writing", writing),
        ("waiting", active.saturating_sub(reading + writing)),
        ("accepted", process::CONNECTIONS_ACCEPTED.sum()),
        ("handled", process::CONNECTIONS_HANDLED.sum()),
        ("requests", process::HTTP_REQUESTS.sum()),
    ]
}

fn node_json(node: &StatusNode) -> String {
    let pairs = |names: &mut dyn Iterator<Item = (&str, u64)>| {
        names.map(|(name, value)| format!("\"{name}\":{value}")).collect::<Vec<_>>().join(",")
    };
    let responses = pairs(&mut CLASSES.iter().copied().zip(node.responses));
    let cache = pairs(&mut CACHE.iter().map(|(name, _)| *name).zip(node.cache));
    format!(
        "\"requestCounter\":{},\"inBytes\":{},\"outBytes\":{},\"responses\":{{{responses},{cache}}},\
         \"requestMsecCounter\":{},\"requestMsec\":{}",
        node.requests,
        node.bytes_in,
        node.bytes_out,
        node.request_ms,
        StatusNode::mean(node.request_ms, node.requests)
    )
}

impl TrafficStatus<'_> {
    fn servers(&self) -> impl Iterator<Item = (&str, &StatusNode)> {
        self.nodes.iter().filter_map(|(key, node)| match &**key {
            StatusKey::Server(name) => Some((name.as_str(), node)),
            _ => None,
        })
    }
    fn groups(&self, upstreams: bool) -> BTreeMap<&str, Vec<(&str, &StatusNode)>> {
        let mut groups: BTreeMap<&str, Vec<(&str, &StatusNode)>> = BTreeMap::new();
        for (key, node) in self.nodes {
            match &**key {
                StatusKey::Filter(group, name) if !upstreams => groups.entry(group).or_default().push((name, node)),
                StatusKey::Upstream(group, name) if upstreams => groups.entry(group).or_default().push((name, node)),
                _ => {}
            }
        }
        groups
    }

    pub fn json(&self) -> String {
        let mut sum = StatusNode::default();
        let mut servers = Vec::new();
        for (name, node) in self.servers() {
            sum.sum(node);
            servers.push(format!("{}:{{{}}}", quoted(name), node_json(node)));
        }
        servers.push(format!("{}:{{{}}}", quoted(self.sum_key), node_json(&sum)));
        let filters: Vec<String> = self
            .groups(false)
            .into_iter()
            .map(|(group, nodes)| {
                let nodes = nodes.iter().map(|(name, node)| format!("{}:{{{}}}", quoted(name), node_json(node)));
                format!("{}:{{{}}}", quoted(group), nodes.collect::<Vec<_>>().join(","))
            })
            .collect();
        let upstreams: Vec<String> = self
            .groups(true)
            .into_iter()
            .map(|(group, nodes)| {
                let nodes = nodes.iter().map(|(name, node)| {
                    let mean = StatusNode::mean(node.response_ms, node.requests);
                    format!(
                        "{{\"server\":{},{},\"responseMsecCounter\":{},\"responseMsec\":{mean}}}",
                        quoted(name),
                        node_json(node),
                        node.response_ms
                    )
                });
                format!("{}:[{}]", quoted(group), nodes.collect::<Vec<_>>().join(","))
            })
            .collect();
        let connections: Vec<String> =
            connections().iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!(
            "{{\"hostName\":{},\"moduleVersion\":\"tidegate\",\"nowMsec\":{},\"connections\":{{{}}},\
             \"sharedZones\":{{\"name\":{},\"maxSize\":{},\"usedSize\":{},\"usedNode\":{}}},\
             \"serverZones\":{{{}}},\"filterZones\":{{{}}},\"upstreamZones\":{{{}}}}}",
            quoted(&String::from_utf8_lossy(net::process::host_name())),
            base::clock::unix_millis(),
            connections.join(","),
            quoted(self.zone),
            self.bytes_max,
            self.bytes_used,
            self.nodes.len(),
            servers.join(","),
            filters.join(","),
            upstreams.join(",")
        )
    }

    pub fn prometheus(&self) -> String {
        let mut out = String::new();
        let mut head = |out: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        };
        head(&mut out, "nginx_vts_main_connections", "gauge", "Connections by status");
        for (status, value) in connections() {
            let _ = writeln!(out, "nginx_vts_main_connections{{status=\"{status}\"}} {value}");
        }
        head(&mut out, "nginx_vts_main_shm_usage_bytes", "gauge", "Octets of the zone");
        let sizes =
            [("max_size", self.bytes_max), ("used_size", self.bytes_used), ("used_node", self.nodes.len() as u64)];
        for (shared, value) in sizes {
            let _ = writeln!(out, "nginx_vts_main_shm_usage_bytes{{shared=\"{shared}\"}} {value}");
        }
        let servers = self.servers().map(|(name, node)| (format!("host={}", label(name)), node));
        self.family(&mut out, &mut head, "server", servers.collect());
        let labels = |names: [&str; 2], group: &str, name: &str| {
            format!("{}={},{}={}", names[0], label(group), names[1], label(name))
        };
        let of = |upstreams: bool, names: [&'static str; 2]| -> Vec<(String, &StatusNode)> {
            let groups = self.groups(upstreams).into_iter();
            groups.flat_map(|(g, nodes)| nodes.into_iter().map(move |(n, node)| (labels(names, g, n), node))).collect()
        };
        self.family(&mut out, &mut head, "filter", of(false, ["filter", "filter_name"]));
        let upstreams = of(true, ["upstream", "backend"]);
        self.family(&mut out, &mut head, "upstream", upstreams.clone());
        if !upstreams.is_empty() {
            head(&mut out, "nginx_vts_upstream_response_seconds_total", "counter", "Seconds of responses");
            for (labels, node) in upstreams {
                let seconds = node.response_ms as f64 / 1000.0;
                let _ = writeln!(out, "nginx_vts_upstream_response_seconds_total{{{labels}}} {seconds:.3}");
            }
        }
        out
    }

    fn family(
        &self,
        out: &mut String,
        head: &mut impl FnMut(&mut String, &str, &str, &str),
        of: &str,
        nodes: Vec<(String, &StatusNode)>,
    ) {
        if nodes.is_empty() {
            return;
        }
        let name = |what: &str| format!("nginx_vts_{of}_{what}");
        let bytes = name("bytes_total");
        head(out, &bytes, "counter", "Octets by direction");
        for (labels, node) in &nodes {
            let _ = writeln!(out, "{bytes}{{{labels},direction=\"in\"}} {}", node.bytes_in);
            let _ = writeln!(out, "{bytes}{{{labels},direction=\"out\"}} {}", node.bytes_out);
        }
        let requests = name("requests_total");
        head(out, &requests, "counter", "Requests by class of status");
        for (labels, node) in &nodes {
            for (class, count) in CLASSES.iter().zip(node.responses) {
                let _ = writeln!(out, "{requests}{{{labels},code=\"{class}\"}} {count}");
            }
            let _ = writeln!(out, "{requests}{{{labels},code=\"total\"}} {}", node.requests);
        }
        let seconds = name("request_seconds_total");
        head(out, &seconds, "counter", "Seconds of requests");
        for (labels, node) in &nodes {
            let _ = writeln!(out, "{seconds}{{{labels}}} {:.3}", node.request_ms as f64 / 1000.0);
        }
        if of != "upstream" {
            let cache = name("cache_total");
            head(out, &cache, "counter", "Requests by state of the cache");
            for (labels, node) in &nodes {
                for ((state, _), count) in CACHE.iter().zip(node.cache) {
                    let _ = writeln!(out, "{cache}{{{labels},status=\"{state}\"}} {count}");
                }
            }
        }
        if !self.buckets.is_empty() {
            let times = name("request_duration_seconds");
            head(out, &times, "histogram", "Times of requests");
            for (labels, node) in &nodes {
                for (bound, count) in self.buckets.iter().zip(&node.buckets) {
                    let bound = *bound as f64 / 1000.0;
                    let _ = writeln!(out, "{times}_bucket{{{labels},le=\"{bound:.3}\"}} {count}");
                }
                let _ = writeln!(out, "{times}_bucket{{{labels},le=\"+Inf\"}} {}", node.requests);
                let _ = writeln!(out, "{times}_sum{{{labels}}} {:.3}", node.request_ms as f64 / 1000.0);
                let _ = writeln!(out, "{times}_count{{{labels}}} {}", node.requests);
            }
        }
    }

    pub fn html(&self) -> String {
        let escape =
            |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        let mut out = String::from(
            "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>Traffic status</title>\n\
             <style>body{font-family:sans-serif}td,th{padding:2px 8px;text-align:right}th:first-child,td:first-child{text-align:left}</style>\n\
             </head><body>\n<h1>Traffic status</h1>\n<p>Connections:",
        );
        for (name, value) in connections() {
            let _ = write!(out, " {name} {value},");
        }
        out.pop();
        out.push_str("</p>\n");
        let mut table = |title: &str, rows: &[(String, &StatusNode)]| {
            if rows.is_empty() {
                return;
            }
            let _ = write!(out, "<h2>{title}</h2>\n<table><tr><th>name<th>requests<th>in<th>out<th>mean ms");
            CLASSES.iter().for_each(|class| {
                let _ = write!(out, "<th>{class}");
            });
            for (name, node) in rows {
                let mean = StatusNode::mean(node.request_ms, node.requests);
                let (requests, bytes_in, bytes_out) = (node.requests, node.bytes_in, node.bytes_out);
                let name = escape(name);
                let _ = write!(out, "</tr>\n<tr><td>{name}<td>{requests}<td>{bytes_in}<td>{bytes_out}<td>{mean}");
                node.responses.iter().for_each(|count| {
                    let _ = write!(out, "<td>{count}");
                });
            }
            out.push_str("</tr></table>\n");
        };
        let rows = |groups: BTreeMap<&str, Vec<(&str, &StatusNode)>>| -> Vec<(String, StatusNode)> {
            let flat = groups.into_iter().flat_map(|(group, nodes)| nodes.into_iter().map(move |one| (group, one)));
            flat.map(|(group, (name, node))| (format!("{group} {name}"), node.clone())).collect()
        };
        table("Servers", &self.servers().map(|(name, node)| (name.to_string(), node)).collect::<Vec<_>>());
        for (title, upstreams) in [("Filters", false), ("Upstreams", true)] {
            let rows = rows(self.groups(upstreams));
            table(title, &rows.iter().map(|(name, node)| (name.clone(), node)).collect::<Vec<_>>());
        }
        out.push_str("</body></html>\n");
        out
    }
}
