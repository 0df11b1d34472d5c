//! Groups and their servers.

use super::zones::responses_object;
use super::{Side, iso_time};
use metrics::{BOUNDS_MICROS, Reading, Times, peer as row};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use upstream::{CheckState, Peer, ServerSource, TimedRecord};
use upstream_directives::inventory::{AreaInventory, ListedGroup};

/// With a zone, by name.
pub fn all_groups(area: &AreaInventory, side: Side, version: u32) -> Map<String, Value> {
    let groups = area.groups();
    let zoned = groups.iter().filter(|listed| listed.zone.is_some());
    zoned.map(|listed| (listed.group.name.clone(), show_group(listed, side, version))).collect()
}

pub fn show_group(listed: &ListedGroup, side: Side, version: u32) -> Value {
    let group = &listed.group;
    let mut peers: Vec<Arc<Peer>> = group.members().all().cloned().collect();
    peers.sort_by_key(|peer| peer.number);
    let peers: Vec<Value> = peers.iter().map(|peer| server(listed, peer, side, version)).collect();
    let mut all = Map::new();
    all.insert("peers".into(), json!(peers));
    if let Some(roster) = &group.extras.roster {
        all.insert("zombies".into(), json!(roster.zombies()));
        if side == Side::Http {
            all.insert("keepalive".into(), json!(roster.idle()));
        }
    }
    all.insert("zone".into(), json!(listed.zone));
    if let Some(queue) = &group.extras.queue {
        let (size, overflows) = group.queued();
        all.insert("queue".into(), json!({ "size": size, "max_size": queue.max, "overflows": overflows }));
    }
    Value::Object(all)
}

fn state(peer: &Peer) -> &'static str {
    let now = base::clock::now();
    match peer.checks_say() {
        _ if peer.spec.down => "down",
        _ if peer.spec.drain => "draining",
        CheckState::Unhealthy => "unhealthy",
        CheckState::Unknown => "checking",
        CheckState::Healthy if peer.is_ejected(now) || peer.failing(now) => "unavail",
        CheckState::Healthy => "up",
    }
}

fn server(listed: &ListedGroup, peer: &Peer, side: Side, version: u32) -> Value {
    let (spec, history) = (&peer.spec, peer.history());
    let outages = history.outages();
    let lasting = if outages.lasts { base::clock::unix_millis().saturating_sub(outages.start) } else { 0 };
    let mut all = Map::new();
    let mut put = |name: &str, value: Value| _ = all.insert(name.into(), value);
    put("id", json!(peer.number));
    put("server", json!(&*peer.text));
    put("name", json!(spec.name));
    put("backup", json!(spec.backup));
    put("weight", json!(spec.weight));
    put("state", json!(state(peer)));
    put("active", json!(peer.active()));
    if spec.max_conns > 0 {
        put("max_conns", json!(spec.max_conns));
    }
    let lines = listed.group.lines();
    let line = lines.iter().find(|entry| entry.number == peer.line);
    if let Some(ServerSource::Resolved { service: Some(service), .. }) = line.map(|entry| &entry.line.source) {
        put("service", json!(service));
    }
    if let Some(zone) = peer.zone() {
        let zone = zone.reading();
        put("sent", json!(zone.count(row::SENT)));
        put("received", json!(zone.count(row::RECEIVED)));
        put("fails", json!(zone.count(row::FAILS)));
        counts(&zone, side, version, &mut put);
    }
    put("unavail", json!(outages.count));
    put("downtime", json!(outages.ended_ms + lasting));
    if outages.start > 0 {
        put("downstart", json!(iso_time(outages.start)));
    }
    if let Some(at) = history.selected() {
        put("selected", json!(iso_time(at)));
    }
    let checks = history.checks();
    let mut health = Map::new();
    health.insert("checks".into(), json!(checks.checks));
    health.insert("fails".into(), json!(checks.fails));
    health.insert("unhealthy".into(), json!(checks.unhealthy));
    if let Some(passed) = checks.last_passed {
        health.insert("last_passed".into(), json!(passed));
    }
    put("health_checks", Value::Object(health));
    let times: &[(&str, TimedRecord)] = match side {
        Side::Http => &[("header_time", TimedRecord::Header), ("response_time", TimedRecord::Response)],
        Side::Stream => &[
            ("connect_time", TimedRecord::Connect),
            ("first_byte_time", TimedRecord::FirstByte),
            ("response_time", TimedRecord::Response),
        ],
    };
    for (name, what) in times {
        if let Some(ms) = history.average_ms(*what) {
            put(name, json!(ms));
        }
    }
    Value::Object(all)
}

fn counts(zone: &Reading<row::Of>, side: Side, version: u32, put: &mut dyn FnMut(&str, Value)) {
    match side {
        Side::Http => {
            put("requests", json!(zone.count(row::REQUESTS)));
            put("responses", responses_object(zone, row::RESPONSES, version));
            if version >= 9 {
                put("response_time_hist", histogram(&zone.times(row::RESPONSE)));
            }
        }
        Side::Stream => put("connections", json!(zone.count(row::REQUESTS))),
    }
}

/// Counts by limit in milliseconds, not cumulative; the sum in milliseconds.
fn histogram(times: &Times) -> Value {
    let limits = BOUNDS_MICROS.iter().map(|micros| (micros / 1000).to_string()).chain(["inf".to_string()]);
    let buckets: Map<String, Value> = limits.zip(times.buckets.iter().map(|count| json!(count))).collect();
    json!({ "count": times.count(), "sum": times.sum / 1000, "buckets": buckets })
}
