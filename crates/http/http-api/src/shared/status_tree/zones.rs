//! Zones: servers, locations, caches, limits, resolvers, memory.

use super::process::handshakes_object;
use metrics::{Counter, MetricTable, Reading};
use metrics::{cache, limit_conn, limit_req, location_zone, resolver, server_zone, stream_zone};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use upstream_directives::inventory::Inventory;

/// Returns the zones of a set whose name is accepted, by name.
pub fn all_zones<S: MetricTable>(
    show: fn(&Reading<S>, u32) -> Value,
    version: u32,
    has: impl Fn(&str) -> bool,
) -> Map<String, Value> {
    let named = |zone: Reading<S>| (zone.labels.first().cloned().unwrap_or_default(), show(&zone, version));
    metrics::zone_readings::<S>().into_iter().map(named).filter(|(name, _)| has(name)).collect()
}

/// Returns a counter's counts by the names of its label values.
fn by_name<S: MetricTable>(zone: &Reading<S>, counter: Counter<S>, names: &[&str]) -> Map<String, Value> {
    let count = |(index, name): (usize, &&str)| ((*name).to_string(), json!(zone.count_at(counter, index)));
    names.iter().enumerate().map(count).collect()
}

/// Returns the responses by class and by code, and their total.
pub fn responses_object<S: MetricTable>(zone: &Reading<S>, counter: Counter<S>, version: u32) -> Value {
    let mut all = by_name(zone, counter, &["1xx", "2xx", "3xx", "4xx", "5xx"]);
    if version >= 7 {
        let codes: &BTreeMap<u16, u64> = zone.codes();
        let codes = codes.iter().map(|(code, count)| (code.to_string(), json!(count)));
        all.insert("codes".into(), Value::Object(codes.collect()));
    }
    all.insert("total".into(), json!(zone.count(counter)));
    Value::Object(all)
}

pub fn server_object(zone: &Reading<server_zone::Of>, version: u32) -> Value {
    let mut value = json!({
        "processing": zone.level(server_zone::PROCESSING),
        "requests": zone.count(server_zone::REQUESTS),
        "responses": responses_object(zone, server_zone::RESPONSES, version),
        "discarded": zone.count(server_zone::DISCARDED),
        "received": zone.count(server_zone::RECEIVED),
        "sent": zone.count(server_zone::SENT),
    });
    if let (true, Value::Object(all)) = (version >= 8, &mut value) {
        let counts = (zone.count(server_zone::TLS_HANDSHAKES), zone.count(server_zone::TLS_REUSES));
        let failures = |reason| zone.count_at(server_zone::TLS_FAILURES, reason as usize);
        let verify = |reason| zone.count_at(server_zone::TLS_VERIFY_FAILURES, reason as usize);
        all.insert("ssl".into(), handshakes_object(version, counts, failures, verify));
    }
    value
}

pub fn location_object(zone: &Reading<location_zone::Of>, version: u32) -> Value {
    json!({
        "requests": zone.count(location_zone::REQUESTS),
        "responses": responses_object(zone, location_zone::RESPONSES, version),
        "discarded": zone.count(location_zone::DISCARDED),
        "received": zone.count(location_zone::RECEIVED),
        "sent": zone.count(location_zone::SENT),
    })
}

pub fn stream_server(zone: &Reading<stream_zone::Of>, version: u32) -> Value {
    let mut sessions = by_name(zone, stream_zone::SESSIONS, &["2xx", "4xx", "5xx"]);
    let ended = zone.count(stream_zone::SESSIONS);
    sessions.insert("total".into(), json!(ended));
    let (all, processing) = (zone.count(stream_zone::CONNECTIONS), zone.level(stream_zone::PROCESSING));
    let mut value = json!({
        "processing": processing,
        "connections": all,
        "sessions": sessions,
        // Connections that ended without a session's status.
        "discarded": all.saturating_sub(ended + processing),
        "received": zone.count(stream_zone::RECEIVED),
        "sent": zone.count(stream_zone::SENT),
    });
    if let (true, Value::Object(all)) = (version >= 8, &mut value) {
        let counts = (zone.count(stream_zone::TLS_HANDSHAKES), zone.count(stream_zone::TLS_REUSES));
        let failures = |reason| zone.count_at(stream_zone::TLS_FAILURES, reason as usize);
        let verify = |reason| zone.count_at(stream_zone::TLS_VERIFY_FAILURES, reason as usize);
        all.insert("ssl".into(), handshakes_object(version, counts, failures, verify));
    }
    value
}

pub fn cache_object(zone: &Reading<cache::Of>, _: u32) -> Value {
    let names = ["hit", "miss", "expired", "bypass", "stale", "updating", "revalidated"];
    let mut all = Map::new();
    all.insert("size".into(), json!(zone.level(cache::SIZE)));
    if zone.level(cache::SIZE_MAX) > 0 {
        all.insert("max_size".into(), json!(zone.level(cache::SIZE_MAX)));
    }
    all.insert("cold".into(), json!(zone.level(cache::COLD) > 0));
    for (index, name) in names.into_iter().enumerate() {
        all.insert(name.into(), json!({ "responses": zone.count_at(cache::RESPONSES, index) }));
    }
    Value::Object(all)
}

pub fn limit_reqs(zone: &Reading<limit_req::Of>, _: u32) -> Value {
    let names = ["passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run"];
    Value::Object(by_name(zone, limit_req::REQUESTS, &names))
}

pub fn limit_conns(zone: &Reading<limit_conn::Of>, _: u32) -> Value {
    Value::Object(by_name(zone, limit_conn::REQUESTS, &["passed", "rejected", "rejected_dry_run"]))
}

pub fn resolver_object(zone: &Reading<resolver::Of>, _: u32) -> Value {
    let codes = ["noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "timedout", "unknown"];
    json!({
        "requests": by_name(zone, resolver::REQUESTS, &["name", "srv", "addr"]),
        "responses": by_name(zone, resolver::RESPONSES, &codes),
    })
}

/// Zones with an account of their memory. It is not divided into slots.
pub fn slabs_object(inventory: &Inventory) -> Map<String, Value> {
    const PAGE: u64 = 4096;
    let zones = [&inventory.http, &inventory.stream].into_iter().flat_map(|area| area.keyvals());
    let shown = zones.map(|keyval| {
        let (bytes, _) = keyval.zone.usage();
        let used = bytes.div_ceil(PAGE);
        let free = (keyval.zone.size() / PAGE).saturating_sub(used);
        (keyval.name.clone(), json!({ "pages": { "used": used, "free": free }, "slots": {} }))
    });
    shown.collect()
}
