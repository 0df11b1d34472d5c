//! Angie's tree of statistics (its API's `/status`), as far as it is counted, as paths with values.

use crate::shared::status_tree::{Side, groups, process, zones};
use metrics::cache;
use serde_json::{Map, Value};
use upstream_directives::inventory::Inventory;

/// Version of nginx's API that has all values.
const VERSION: u32 = 9;

/// Paths that have values; `*` stands for a name, an address or a code.
pub const PATHS: &[&str] = &[
    "/angie/version",
    "/angie/address",
    "/angie/generation",
    "/connections/accepted",
    "/connections/dropped",
    "/connections/active",
    "/connections/idle",
    "/slabs/*/pages/used",
    "/slabs/*/pages/free",
    "/resolvers/*/queries/name",
    "/resolvers/*/queries/srv",
    "/resolvers/*/queries/addr",
    "/resolvers/*/responses/success",
    "/resolvers/*/responses/timedout",
    "/resolvers/*/responses/format_error",
    "/resolvers/*/responses/server_failure",
    "/resolvers/*/responses/not_found",
    "/resolvers/*/responses/unimplemented",
    "/resolvers/*/responses/refused",
    "/resolvers/*/responses/other",
    "/http/server_zones/*/ssl/handshaked",
    "/http/server_zones/*/ssl/reuses",
    "/http/server_zones/*/ssl/timedout",
    "/http/server_zones/*/ssl/failed",
    "/http/server_zones/*/requests/total",
    "/http/server_zones/*/requests/processing",
    "/http/server_zones/*/requests/discarded",
    "/http/server_zones/*/responses/*",
    "/http/server_zones/*/data/received",
    "/http/server_zones/*/data/sent",
    "/http/location_zones/*/requests/total",
    "/http/location_zones/*/requests/discarded",
    "/http/location_zones/*/responses/*",
    "/http/location_zones/*/data/received",
    "/http/location_zones/*/data/sent",
    "/http/upstreams/*/peers/*/server",
    "/http/upstreams/*/peers/*/backup",
    "/http/upstreams/*/peers/*/weight",
    "/http/upstreams/*/peers/*/state",
    "/http/upstreams/*/peers/*/max_conns",
    "/http/upstreams/*/peers/*/selected/current",
    "/http/upstreams/*/peers/*/selected/total",
    "/http/upstreams/*/peers/*/responses/*",
    "/http/upstreams/*/peers/*/data/sent",
    "/http/upstreams/*/peers/*/data/received",
    "/http/upstreams/*/peers/*/health/fails",
    "/http/upstreams/*/peers/*/health/unavailable",
    "/http/upstreams/*/peers/*/health/downtime",
    "/http/upstreams/*/peers/*/health/header_time",
    "/http/upstreams/*/peers/*/health/response_time",
    "/http/upstreams/*/keepalive",
    "/http/upstreams/*/zombies",
    "/http/caches/*/size",
    "/http/caches/*/max_size",
    "/http/caches/*/cold",
    "/http/caches/*/hit/responses",
    "/http/caches/*/hit/bytes",
    "/http/caches/*/stale/responses",
    "/http/caches/*/stale/bytes",
    "/http/caches/*/updating/responses",
    "/http/caches/*/updating/bytes",
    "/http/caches/*/revalidated/responses",
    "/http/caches/*/revalidated/bytes",
    "/http/caches/*/miss/responses",
    "/http/caches/*/miss/bytes",
    "/http/caches/*/expired/responses",
    "/http/caches/*/expired/bytes",
    "/http/caches/*/bypass/responses",
    "/http/caches/*/bypass/bytes",
    "/http/limit_reqs/*/passed",
    "/http/limit_reqs/*/delayed",
    "/http/limit_reqs/*/rejected",
    "/http/limit_conns/*/passed",
    "/http/limit_conns/*/rejected",
    "/stream/server_zones/*/ssl/handshaked",
    "/stream/server_zones/*/ssl/reuses",
    "/stream/server_zones/*/ssl/timedout",
    "/stream/server_zones/*/ssl/failed",
    "/stream/server_zones/*/connections/total",
    "/stream/server_zones/*/connections/processing",
    "/stream/server_zones/*/connections/discarded",
    "/stream/server_zones/*/sessions/success",
    "/stream/server_zones/*/data/received",
    "/stream/server_zones/*/data/sent",
    "/stream/upstreams/*/peers/*/server",
    "/stream/upstreams/*/peers/*/backup",
    "/stream/upstreams/*/peers/*/weight",
    "/stream/upstreams/*/peers/*/state",
    "/stream/upstreams/*/peers/*/max_conns",
    "/stream/upstreams/*/peers/*/selected/current",
    "/stream/upstreams/*/peers/*/selected/total",
    "/stream/upstreams/*/peers/*/data/sent",
    "/stream/upstreams/*/peers/*/data/received",
    "/stream/upstreams/*/peers/*/health/fails",
    "/stream/upstreams/*/peers/*/health/unavailable",
    "/stream/upstreams/*/peers/*/health/downtime",
    "/stream/upstreams/*/zombies",
    "/stream/limit_conns/*/passed",
    "/stream/limit_conns/*/rejected",
];

/// Paths of Angie's tree that are not counted here.
pub const LACKING: &[&str] = &[
    "/slabs/*/slots/8/used",
    "/slabs/*/slots/8/free",
    "/slabs/*/slots/8/reqs",
    "/slabs/*/slots/8/fails",
    "/resolvers/*/sent/a",
    "/http/caches/*/miss/responses_written",
    "/http/caches/*/miss/bytes_written",
    "/http/caches/*/shards/*/size",
    "/http/limit_reqs/*/skipped",
    "/http/limit_reqs/*/exhausted",
    "/http/limit_conns/*/skipped",
    "/http/limit_conns/*/exhausted",
    "/http/upstreams/*/peers/*/health/probes/count",
    "/http/upstreams/*/peers/*/health/probes/fails",
    "/http/upstreams/*/queue/queued",
    "/stream/server_zones/*/connections/passed",
    "/stream/server_zones/*/sessions/invalid",
    "/stream/server_zones/*/sessions/forbidden",
    "/stream/server_zones/*/sessions/internal_error",
    "/stream/server_zones/*/sessions/bad_gateway",
    "/stream/server_zones/*/sessions/service_unavailable",
    "/http/acme_clients/*/state",
];

/// A value and its path, whose names are escaped for labels.
#[derive(Debug, PartialEq, Eq)]
pub struct Leaf {
    pub path: String,
    pub value: String,
}

#[derive(Default)]
struct Leaves(Vec<Leaf>);

impl Leaves {
    /// Adds a field of an object, if it has one; booleans are 0 and 1.
    fn put(&mut self, path: String, object: &Value, field: &str) {
        let value = match object.pointer(field) {
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Bool(is)) => u8::from(*is).to_string(),
            Some(Value::String(text)) => text.clone(),
            _ => return,
        };
        self.0.push(Leaf { path, value });
    }
    fn fields(&mut self, prefix: &str, object: &Value, fields: &[(&str, &str)]) {
        for (name, field) in fields {
            self.put(format!("{prefix}/{name}"), object, field);
        }
    }
    fn codes(&mut self, prefix: &str, object: &Value) {
        let codes = object.pointer("/responses/codes").and_then(Value::as_object);
        for code in codes.into_iter().flat_map(Map::keys) {
            self.put(format!("{prefix}/responses/{code}"), object, &format!("/responses/codes/{code}"));
        }
    }
    fn tls(&mut self, prefix: &str, object: &Value) {
        let fields = [
            ("ssl/handshaked", "/ssl/handshakes"),
            ("ssl/reuses", "/ssl/session_reuses"),
            ("ssl/timedout", "/ssl/handshake_timeout"),
            ("ssl/failed", "/ssl/handshakes_failed"),
        ];
        self.fields(prefix, object, &fields);
    }
    fn upstreams(&mut self, side: Side, prefix: &str, all: &Map<String, Value>) {
        for (name, group) in all {
            let prefix = format!("{prefix}/upstreams/{}", escaped(name));
            for peer in group.get("peers").and_then(Value::as_array).into_iter().flatten() {
                let text = |field: &str| peer.get(field).and_then(Value::as_str).unwrap_or_default();
                let own = format!("{prefix}/peers/{}", escaped(text("server")));
                let selected = if side == Side::Http { "/requests" } else { "/connections" };
                self.fields(
                    &own,
                    peer,
                    &[
                        ("server", "/name"),
                        ("backup", "/backup"),
                        ("weight", "/weight"),
                        ("max_conns", "/max_conns"),
                        ("selected/current", "/active"),
                        ("selected/total", selected),
                        ("data/sent", "/sent"),
                        ("data/received", "/received"),
                        ("health/fails", "/fails"),
                        ("health/unavailable", "/unavail"),
                        ("health/downtime", "/downtime"),
                    ],
                );
                let state = if text("state") == "unavail" { "unavailable" } else { text("state") };
                self.0.push(Leaf { path: format!("{own}/state"), value: state.into() });
                if side == Side::Http {
                    let times = [("health/header_time", "/header_time"), ("health/response_time", "/response_time")];
                    self.fields(&own, peer, &times);
                    self.codes(&own, peer);
                }
            }
            self.fields(&prefix, group, &[("keepalive", "/keepalive"), ("zombies", "/zombies")]);
        }
    }
}

/// As the value of a label.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Collects the tree. `local`: the address that accepted the connection.
pub fn collect_leaves(inventory: &Inventory, local: &str) -> Vec<Leaf> {
    let mut all = Leaves::default();
    let about = process::nginx_object(local);
    all.fields("/angie", &about, &[("version", "/version"), ("address", "/address"), ("generation", "/generation")]);
    let connections = process::connections_object();
    for field in ["accepted", "dropped", "active", "idle"] {
        all.put(format!("/connections/{field}"), &connections, &format!("/{field}"));
    }
    for (name, slab) in &zones::slabs_object(inventory) {
        let fields = [("pages/used", "/pages/used"), ("pages/free", "/pages/free")];
        all.fields(&format!("/slabs/{}", escaped(name)), slab, &fields);
    }
    let any = |_: &str| true;
    for (name, zone) in &zones::all_zones(zones::resolver_object, VERSION, any) {
        let fields = [
            ("queries/name", "/requests/name"),
            ("queries/srv", "/requests/srv"),
            ("queries/addr", "/requests/addr"),
            ("responses/success", "/responses/noerror"),
            ("responses/timedout", "/responses/timedout"),
            ("responses/format_error", "/responses/formerr"),
            ("responses/server_failure", "/responses/servfail"),
            ("responses/not_found", "/responses/nxdomain"),
            ("responses/unimplemented", "/responses/notimp"),
            ("responses/refused", "/responses/refused"),
            ("responses/other", "/responses/unknown"),
        ];
        all.fields(&format!("/resolvers/{}", escaped(name)), zone, &fields);
    }
    http(&mut all, inventory);
    if inventory.stream.is_present() {
        stream(&mut all, inventory);
    }
    all.0
}

fn http(all: &mut Leaves, inventory: &Inventory) {
    let any = |_: &str| true;
    let traffic = [("data/received", "/received"), ("data/sent", "/sent"), ("requests/discarded", "/discarded")];
    for (name, zone) in &zones::all_zones(zones::server_object, VERSION, any) {
        let prefix = format!("/http/server_zones/{}", escaped(name));
        all.tls(&prefix, zone);
        all.fields(&prefix, zone, &[("requests/total", "/requests"), ("requests/processing", "/processing")]);
        all.fields(&prefix, zone, &traffic);
        all.codes(&prefix, zone);
    }
    for (name, zone) in &zones::all_zones(zones::location_object, VERSION, any) {
        let prefix = format!("/http/location_zones/{}", escaped(name));
        all.fields(&prefix, zone, &[("requests/total", "/requests")]);
        all.fields(&prefix, zone, &traffic);
        all.codes(&prefix, zone);
    }
    all.upstreams(Side::Http, "/http", &groups::all_groups(&inventory.http, Side::Http, VERSION));
    for (name, zone) in &zones::all_zones(zones::cache_object, VERSION, any) {
        let prefix = format!("/http/caches/{}", escaped(name));
        all.fields(&prefix, zone, &[("size", "/size"), ("max_size", "/max_size"), ("cold", "/cold")]);
        for status in ["hit", "stale", "updating", "revalidated", "miss", "expired", "bypass"] {
            all.put(format!("{prefix}/{status}/responses"), zone, &format!("/{status}/responses"));
        }
    }
    for zone in metrics::zone_readings::<cache::Of>() {
        let name = zone.labels.first().map(String::as_str).unwrap_or_default();
        for status in ["hit", "stale", "updating", "revalidated", "miss", "expired", "bypass"] {
            let Some(index) = metrics::cache_status(status) else { continue };
            let path = format!("/http/caches/{}/{status}/bytes", escaped(name));
            all.0.push(Leaf { path, value: zone.count_at(cache::SENT, index).to_string() });
        }
    }
    for (name, zone) in &zones::all_zones(zones::limit_reqs, VERSION, any) {
        let fields = [("passed", "/passed"), ("delayed", "/delayed"), ("rejected", "/rejected")];
        all.fields(&format!("/http/limit_reqs/{}", escaped(name)), zone, &fields);
    }
    let has = |name: &str| inventory.http.has_limit(name);
    for (name, zone) in &zones::all_zones(zones::limit_conns, VERSION, has) {
        let fields = [("passed", "/passed"), ("rejected", "/rejected")];
        all.fields(&format!("/http/limit_conns/{}", escaped(name)), zone, &fields);
    }
}

fn stream(all: &mut Leaves, inventory: &Inventory) {
    for (name, zone) in &zones::all_zones(zones::stream_server, VERSION, |_| true) {
        let prefix = format!("/stream/server_zones/{}", escaped(name));
        all.tls(&prefix, zone);
        all.fields(
            &prefix,
            zone,
            &[
                ("connections/total", "/connections"),
                ("connections/processing", "/processing"),
                ("connections/discarded", "/discarded"),
                ("sessions/success", "/sessions/2xx"),
                ("data/received", "/received"),
                ("data/sent", "/sent"),
            ],
        );
    }
    all.upstreams(Side::Stream, "/stream", &groups::all_groups(&inventory.stream, Side::Stream, VERSION));
    let has = |name: &str| inventory.stream.has_limit(name);
    for (name, zone) in &zones::all_zones(zones::limit_conns, VERSION, has) {
        let fields = [("passed", "/passed"), ("rejected", "/rejected")];
        all.fields(&format!("/stream/limit_conns/{}", escaped(name)), zone, &fields);
    }
}

/// Tells whether a path is one of a pattern's, in which `*` stands for any segment.
pub fn matches_path(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some("*"), Some(segment)) if !segment.is_empty() => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_wildcards() {
        assert!(matches_path("/a/*/b", "/a/x/b") && matches_path("/a/b", "/a/b"));
        for path in ["/a//b", "/a/x/c", "/a/x", "/a/x/b/", "a/x/b"] {
            assert!(!matches_path("/a/*/b", path), "{path}");
        }
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }

    /// Values have the paths that `-t` accepts.
    #[test]
    fn every_leaf_is_listed() {
        let _zones = (
            metrics::MetricZone::<metrics::server_zone::Of>::named(&["tree"]),
            metrics::MetricZone::<metrics::cache::Of>::named(&["tree"]),
            metrics::MetricZone::<metrics::resolver::Of>::named(&["tree"]),
            metrics::MetricZone::<metrics::limit_req::Of>::named(&["tree"]),
        );
        let all = collect_leaves(&Inventory::default(), "127.0.0.1:80");
        assert!(all.len() > 40, "{all:?}");
        for leaf in all {
            assert!(PATHS.iter().any(|pattern| matches_path(pattern, &leaf.path)), "{leaf:?}");
        }
        assert!(!LACKING.iter().any(|path| PATHS.iter().any(|pattern| matches_path(pattern, path))));
    }
}
