//! The state of the server under the names of nginx's exporter for the commercial edition's API. Names, labels and the
//! values of absent fields (0) are those of its program, whose own documentation has other ones for TLS and
//! `zone_sync`.

use crate::shared::status_tree::{Side, groups, process, zones};
use metrics::MetricKind::{self, Counter, Gauge};
use metrics::WorkerCounts;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use upstream_directives::inventory::Inventory;

/// Version of the API that the exporter reads.
const VERSION: u32 = 9;

/// Status codes that the exporter knows; others are in their classes only.
const CODES: &[u16] = &[
    100, 101, 102, 200, 201, 202, 204, 206, 300, 301, 302, 303, 304, 307, 400, 401, 403, 404, 405, 408, 409, 411, 412,
    413, 414, 415, 416, 429, 444, 494, 495, 496, 497, 499, 500, 501, 502, 503, 504, 507,
];

/// States of a server, by the exporter's number less 1.
const STATES: &[&str] = &["up", "draining", "down", "unavail", "checking", "unhealthy"];

/// A field: the end of its name, its place in the object, kind and description.
type PlusField = (&'static str, &'static str, MetricKind, &'static str);

const TLS: &[PlusField] = &[
    ("ssl_handshakes", "/ssl/handshakes", Counter, "Completed TLS handshakes."),
    ("ssl_handshakes_failed", "/ssl/handshakes_failed", Counter, "Failed TLS handshakes."),
    ("ssl_session_reuses", "/ssl/session_reuses", Counter, "TLS handshakes that resumed a session."),
];

const SERVER: &[PlusField] = &[
    ("processing", "/processing", Gauge, "Requests being processed."),
    ("requests", "/requests", Counter, "Requests received."),
];
/// Metrics of servers and locations.
const TRAFFIC: &[PlusField] = &[
    ("discarded", "/discarded", Counter, "Requests that ended without a response."),
    ("received", "/received", Counter, "Bytes received from clients."),
    ("sent", "/sent", Counter, "Bytes sent to clients."),
];
const STREAM_SERVER: &[PlusField] = &[
    ("processing", "/processing", Gauge, "Active sessions."),
    ("connections", "/connections", Counter, "Connections received."),
    ("discarded", "/discarded", Counter, "Connections that ended without a session."),
    ("received", "/received", Counter, "Bytes received from clients."),
    ("sent", "/sent", Counter, "Bytes sent to clients."),
];
/// Metrics of upstream servers, http and stream.
const PEER: &[PlusField] = &[
    ("active", "/active", Gauge, "Active requests or connections."),
    ("limit", "/max_conns", Gauge, "Maximum number of connections (max_conns); 0: none."),
    ("sent", "/sent", Counter, "Bytes sent to the server."),
    ("received", "/received", Counter, "Bytes received from the server."),
    ("fails", "/fails", Counter, "Failures."),
    ("unavail", "/unavail", Counter, "Times the server became unavailable because of failures."),
    ("response_time", "/response_time", Gauge, "Average time to the end of the response in milliseconds."),
];
/// Metrics of upstream servers with health checks.
const CHECKS: &[PlusField] = &[
    ("health_checks_checks", "/health_checks/checks", Counter, "Health checks."),
    ("health_checks_fails", "/health_checks/fails", Counter, "Failed health checks."),
    ("health_checks_unhealthy", "/health_checks/unhealthy", Counter, "Times the server became unhealthy."),
];
const HTTP_PEER: &[PlusField] = &[
    ("requests", "/requests", Counter, "Requests passed to the server."),
    ("header_time", "/header_time", Gauge, "Average time to the response head in milliseconds."),
];
const STREAM_PEER: &[PlusField] = &[
    ("connections", "/connections", Counter, "Connections passed to the server."),
    ("connect_time", "/connect_time", Gauge, "Average time to connect in milliseconds."),
    ("first_byte_time", "/first_byte_time", Gauge, "Average time to the first byte in milliseconds."),
];
const RESOLVER: &[PlusField] = &[
    ("name", "/requests/name", Counter, "Queries for addresses of names."),
    ("srv", "/requests/srv", Counter, "Queries for SRV records."),
    ("addr", "/requests/addr", Counter, "Queries for names of addresses."),
    ("noerror", "/responses/noerror", Counter, "Successful responses."),
    ("formerr", "/responses/formerr", Counter, "FORMERR responses."),
    ("servfail", "/responses/servfail", Counter, "SERVFAIL responses."),
    ("nxdomain", "/responses/nxdomain", Counter, "NXDOMAIN responses."),
    ("notimp", "/responses/notimp", Counter, "NOTIMP responses."),
    ("refused", "/responses/refused", Counter, "REFUSED responses."),
    ("timedout", "/responses/timedout", Counter, "Queries that timed out."),
    ("unknown", "/responses/unknown", Counter, "Responses with other codes."),
];
const LIMIT_CONN: &[PlusField] = &[
    ("passed", "/passed", Counter, "Passed."),
    ("rejected", "/rejected", Counter, "Rejected."),
    ("rejected_dry_run", "/rejected_dry_run", Counter, "Would have been rejected."),
];
const LIMIT_REQ: &[PlusField] = &[
    ("passed", "/passed", Counter, "Passed."),
    ("delayed", "/delayed", Counter, "Delayed."),
    ("rejected", "/rejected", Counter, "Rejected."),
    ("delayed_dry_run", "/delayed_dry_run", Counter, "Would have been delayed."),
    ("rejected_dry_run", "/rejected_dry_run", Counter, "Would have been rejected."),
];
/// Metrics that later versions of the exporter have added.
const CACHE: &[PlusField] = &[
    ("size", "/size", Gauge, "Size of the cache in bytes."),
    ("max_size", "/max_size", Gauge, "Maximum size of the cache in bytes; 0: none."),
    ("hit_responses", "/hit/responses", Counter, "Responses from the cache."),
    ("stale_responses", "/stale/responses", Counter, "Stale responses."),
    ("updating_responses", "/updating/responses", Counter, "Stale responses during an update."),
    ("revalidated_responses", "/revalidated/responses", Counter, "Revalidated responses."),
    ("miss_responses", "/miss/responses", Counter, "Responses that were not in the cache."),
    ("expired_responses", "/expired/responses", Counter, "Responses for expired entries."),
    ("bypass_responses", "/bypass/responses", Counter, "Responses that bypassed the cache."),
];

struct PlusFamily {
    kind: MetricKind,
    help: &'static str,
    samples: Vec<(Vec<(&'static str, String)>, u64)>,
}

#[derive(Default)]
struct NginxplusPage(BTreeMap<String, PlusFamily>);

type Labels<'a> = &'a [(&'static str, &'a str)];

impl NginxplusPage {
    fn put(&mut self, name: String, kind: MetricKind, help: &'static str, labels: Labels<'_>, value: u64) {
        let family = self.0.entry(name).or_insert_with(|| PlusFamily { kind, help, samples: Vec::new() });
        family.samples.push((labels.iter().map(|(label, value)| (*label, (*value).to_string())).collect(), value));
    }
    fn fields(&mut self, prefix: &str, fields: &[PlusField], object: &Value, labels: Labels<'_>) {
        for (name, place, kind, help) in fields {
            self.put(format!("{prefix}_{name}"), *kind, help, labels, number(object, place));
        }
    }
    fn responses(&mut self, prefix: &str, object: &Value, labels: Labels<'_>) {
        for class in ["1xx", "2xx", "3xx", "4xx", "5xx"] {
            let labels = with(labels, "code", class);
            let count = number(object, &format!("/responses/{class}"));
            self.put(format!("{prefix}_responses"), Counter, "Responses by class.", &labels, count);
        }
        for code in CODES {
            let code = code.to_string();
            let count = number(object, &format!("/responses/codes/{code}"));
            let labels = with(labels, "code", &code);
            self.put(format!("{prefix}_responses_codes"), Counter, "Responses by status code.", &labels, count);
        }
    }
    fn peers(&mut self, side: Side, groups: &Map<String, Value>) {
        let (prefix, peer) = match side {
            Side::Http => ("upstream", "upstream_server"),
            Side::Stream => ("stream_upstream", "stream_upstream_server"),
        };
        for (name, group) in groups {
            let labels = [("upstream", name.as_str())];
            if side == Side::Http {
                let idle = number(group, "/keepalive");
                self.put(format!("{prefix}_keepalives"), Gauge, "Idle connections to servers.", &labels, idle);
            }
            let zombies = number(group, "/zombies");
            self.put(format!("{prefix}_zombies"), Gauge, "Removed servers that finish requests.", &labels, zombies);
            for one in group.get("peers").and_then(Value::as_array).into_iter().flatten() {
                let text = |field: &str| one.get(field).and_then(Value::as_str).unwrap_or_default();
                let labels = with(&labels, "server", text("server"));
                let state = STATES.iter().position(|known| *known == text("state")).map_or(0, |at| at as u64 + 1);
                let help = "1 up, 2 draining, 3 down, 4 unavail, 5 checking, 6 unhealthy.";
                self.put(format!("{peer}_state"), Gauge, help, &labels, state);
                self.fields(peer, PEER, one, &labels);
                if CHECKS.iter().any(|(_, place, ..)| number(one, place) > 0) {
                    self.fields(peer, CHECKS, one, &labels);
                }
                self.fields(peer, TLS, one, &labels);
                match side {
                    Side::Http => {
                        self.fields(peer, HTTP_PEER, one, &labels);
                        self.responses(peer, one, &labels);
                    }
                    Side::Stream => self.fields(peer, STREAM_PEER, one, &labels),
                }
            }
        }
    }
    fn objects(&mut self, prefix: &str, label: &'static str, fields: &[PlusField], all: &Map<String, Value>) {
        for (name, object) in all {
            self.fields(prefix, fields, object, &[(label, name)]);
        }
    }
    fn worker(&mut self, id: usize, counts: &WorkerCounts) {
        let (id, pid) = (id.to_string(), std::process::id().to_string());
        let labels = [("id", id.as_str()), ("pid", pid.as_str())];
        let dropped = counts.accepted.saturating_sub(counts.handled);
        let active = counts.active.saturating_sub(counts.waiting);
        for (name, kind, help, value) in [
            ("connection_accepted", Counter, "Accepted connections.", counts.accepted),
            ("connection_dropped", Counter, "Dropped connections.", dropped),
            ("connection_active", Gauge, "Active connections.", active),
            ("connection_idle", Gauge, "Idle connections.", counts.waiting),
            ("http_requests_total", Counter, "Requests.", counts.requests),
            ("http_requests_current", Gauge, "Requests being processed.", counts.current),
        ] {
            self.put(format!("worker_{name}"), kind, help, &labels, value);
        }
    }
    fn text(&self) -> String {
        let mut out = String::new();
        for (name, family) in &self.0 {
            let kind = family.kind.word();
            let _ = writeln!(out, "# HELP nginxplus_{name} {}\n# TYPE nginxplus_{name} {kind}", family.help);
            for (labels, value) in &family.samples {
                let _ = write!(out, "nginxplus_{name}");
                metrics::write_labels(&mut out, labels.iter().map(|(label, value)| (*label, value.as_str())));
                let _ = writeln!(out, " {value}");
            }
        }
        out
    }
}

fn with<'a>(labels: Labels<'a>, label: &'static str, value: &'a str) -> Vec<(&'static str, &'a str)> {
    labels.iter().copied().chain([(label, value)]).collect()
}

fn number(object: &Value, place: &str) -> u64 {
    object.pointer(place).and_then(Value::as_u64).unwrap_or_default()
}

pub fn nginxplus_page(inventory: &Inventory) -> String {
    let mut page = NginxplusPage::default();
    page.put("up".into(), Gauge, "1 while the server responds.", &[], 1);
    let connections = process::connections_object();
    for (name, kind, help) in [
        ("accepted", Counter, "Accepted connections."),
        ("dropped", Counter, "Dropped connections."),
        ("active", Gauge, "Active connections."),
        ("idle", Gauge, "Idle connections."),
    ] {
        page.put(format!("connections_{name}"), kind, help, &[], number(&connections, &format!("/{name}")));
    }
    let requests = process::requests_object();
    page.put("http_requests_total".into(), Counter, "Requests.", &[], number(&requests, "/total"));
    page.put("http_requests_current".into(), Gauge, "Requests being processed.", &[], number(&requests, "/current"));
    let tls = serde_json::json!({ "ssl": process::ssl_object(VERSION) });
    for (name, place, kind, help) in TLS {
        page.put((*name).into(), *kind, help, &[], number(&tls, place));
    }
    let any = |_: &str| true;
    for (name, zone) in &zones::all_zones(zones::server_object, VERSION, any) {
        let labels = [("server_zone", name.as_str())];
        page.fields("server_zone", SERVER, zone, &labels);
        page.responses("server_zone", zone, &labels);
        page.fields("server_zone", TRAFFIC, zone, &labels);
        page.fields("server_zone", TLS, zone, &labels);
    }
    for (name, zone) in &zones::all_zones(zones::location_object, VERSION, any) {
        let labels = [("location_zone", name.as_str())];
        let requests = number(zone, "/requests");
        page.put("location_zone_requests".into(), Counter, "Requests.", &labels, requests);
        page.responses("location_zone", zone, &labels);
        page.fields("location_zone", TRAFFIC, zone, &labels);
    }
    page.peers(Side::Http, &groups::all_groups(&inventory.http, Side::Http, VERSION));
    page.objects("resolver", "resolver", RESOLVER, &zones::all_zones(zones::resolver_object, VERSION, any));
    page.objects("limit_request", "zone", LIMIT_REQ, &zones::all_zones(zones::limit_reqs, VERSION, any));
    let http = |name: &str| inventory.http.has_limit(name);
    page.objects("limit_connection", "zone", LIMIT_CONN, &zones::all_zones(zones::limit_conns, VERSION, http));
    let caches = zones::all_zones(zones::cache_object, VERSION, any);
    page.objects("cache", "zone", CACHE, &caches);
    for (name, cache) in &caches {
        let cold = u64::from(cache.get("cold").and_then(Value::as_bool).unwrap_or_default());
        page.put("cache_cold".into(), Gauge, "1 until the cache is loaded.", &[("zone", name)], cold);
    }
    if inventory.stream.is_present() {
        stream(&mut page, inventory);
    }
    for (id, counts) in &metrics::worker_counts() {
        page.worker(*id, counts);
    }
    page.text()
}

fn stream(page: &mut NginxplusPage, inventory: &Inventory) {
    for (name, zone) in &zones::all_zones(zones::stream_server, VERSION, |_| true) {
        let labels = [("server_zone", name.as_str())];
        page.fields("stream_server_zone", STREAM_SERVER, zone, &labels);
        for class in ["2xx", "4xx", "5xx"] {
            let count = number(zone, &format!("/sessions/{class}"));
            let labels = with(&labels, "code", class);
            page.put("stream_server_zone_sessions".into(), Counter, "Finished sessions by class.", &labels, count);
        }
        page.fields("stream_server_zone", TLS, zone, &labels);
    }
    page.peers(Side::Stream, &groups::all_groups(&inventory.stream, Side::Stream, VERSION));
    let has = |name: &str| inventory.stream.has_limit(name);
    page.objects("stream_limit_connection", "zone", LIMIT_CONN, &zones::all_zones(zones::limit_conns, VERSION, has));
}
