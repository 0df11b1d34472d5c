//! Zones: servers, locations, caches, limits, resolvers, memory.

use super::answer::{Answer, Refused, collection, selected};
use super::ask::{Ask, Verb};
use super::path::{EndPoint, Side};
use super::server::handshakes;
use metrics::{Counter, Reading, Tabled};
use metrics::{cache, limit_conn, limit_req, location_zone, resolver, server_zone, stream_zone};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Counts of a label's values, by their names.
fn by_name<S: Tabled>(zone: &Reading<S>, counter: Counter<S>, names: &[&str]) -> Map<String, Value> {
    let count = |(index, name): (usize, &&str)| ((*name).to_string(), json!(zone.count_at(counter, index)));
    names.iter().enumerate().map(count).collect()
}

/// Responses by class, by code, and all.
pub fn responses<S: Tabled>(zone: &Reading<S>, counter: Counter<S>, version: u32) -> Value {
    let mut all = by_name(zone, counter, &["1xx", "2xx", "3xx", "4xx", "5xx"]);
    if version >= 7 {
        let codes: &BTreeMap<u16, u64> = zone.codes();
        let codes = codes.iter().map(|(code, count)| (code.to_string(), json!(count)));
        all.insert("codes".into(), Value::Object(codes.collect()));
    }
    all.insert("total".into(), json!(zone.count(counter)));
    Value::Object(all)
}

fn server(zone: &Reading<server_zone::Of>, version: u32) -> Value {
    let mut value = json!({
        "processing": zone.level(server_zone::PROCESSING),
        "requests": zone.count(server_zone::REQUESTS),
        "responses": responses(zone, server_zone::RESPONSES, version),
        "discarded": zone.count(server_zone::DISCARDED),
        "received": zone.count(server_zone::RECEIVED),
        "sent": zone.count(server_zone::SENT),
    });
    if let (true, Value::Object(all)) = (version >= 8, &mut value) {
        let counts = (zone.count(server_zone::TLS_HANDSHAKES), zone.count(server_zone::TLS_REUSES));
        let failures = |reason| zone.count_at(server_zone::TLS_FAILURES, reason as usize);
        let verify = |reason| zone.count_at(server_zone::TLS_VERIFY_FAILURES, reason as usize);
        all.insert("ssl".into(), handshakes(version, counts, failures, verify));
    }
    value
}

fn location(zone: &Reading<location_zone::Of>, version: u32) -> Value {
    json!({
        "requests": zone.count(location_zone::REQUESTS),
        "responses": responses(zone, location_zone::RESPONSES, version),
        "discarded": zone.count(location_zone::DISCARDED),
        "received": zone.count(location_zone::RECEIVED),
        "sent": zone.count(location_zone::SENT),
    })
}

fn stream_server(zone: &Reading<stream_zone::Of>, version: u32) -> Value {
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
        all.insert("ssl".into(), handshakes(version, counts, failures, verify));
    }
    value
}

fn cache(zone: &Reading<cache::Of>, _: u32) -> Value {
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

fn limit_reqs(zone: &Reading<limit_req::Of>, _: u32) -> Value {
    let names = ["passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run"];
    Value::Object(by_name(zone, limit_req::REQUESTS, &names))
}

fn limit_conns(zone: &Reading<limit_conn::Of>, _: u32) -> Value {
    Value::Object(by_name(zone, limit_conn::REQUESTS, &["passed", "rejected", "rejected_dry_run"]))
}

fn resolver(zone: &Reading<resolver::Of>, _: u32) -> Value {
    let codes = ["noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "timedout", "unknown"];
    json!({
        "requests": by_name(zone, resolver::REQUESTS, &["name", "srv", "addr"]),
        "responses": by_name(zone, resolver::RESPONSES, &codes),
    })
}

/// A kind of zones that the metrics have.
struct Kind<'a, S> {
    show: fn(&Reading<S>, u32) -> Value,
    /// The zones that belong to the end-point.
    has: &'a dyn Fn(&str) -> bool,
    missing: Refused,
}

impl<S: Tabled> Kind<'_, S> {
    fn run(self, ask: &Ask, name: Option<&str>, version: u32) -> Result<Answer, Refused> {
        let fields = ask.fields.as_deref();
        let all = metrics::readings::<S>();
        let label = |zone: &Reading<S>| zone.labels.first().cloned().unwrap_or_default();
        let mut mine = all.iter().filter(|zone| (self.has)(&label(zone)));
        let Some(name) = name else {
            if ask.verb != Verb::Get {
                return Err(Refused::method());
            }
            let all = mine.map(|zone| (label(zone), (self.show)(zone, version))).collect();
            return Ok(Answer::json(&collection(all, fields)));
        };
        let zone = mine.find(|zone| label(zone) == name).ok_or(self.missing)?;
        if ask.verb == Verb::Delete {
            metrics::reset_zones::<S>(&[name]);
            return Ok(Answer::done());
        }
        Ok(Answer::json(&selected((self.show)(zone, version), fields)))
    }
}

pub fn run(ask: &Ask, end: &EndPoint<'_>, version: u32) -> Result<Answer, Refused> {
    let missing = |code: &'static str, text: &str| Refused::new(404, code, text);
    let any = |_: &str| true;
    match *end {
        EndPoint::ServerZones(Side::Http, name) => {
            let missing = missing("ServerZoneNotFound", "server zone not found");
            Kind { show: server, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::ServerZones(Side::Stream, name) => {
            let missing = missing("ServerZoneNotFound", "server zone not found");
            Kind { show: stream_server, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::LocationZones(name) => {
            let missing = missing("LocationZoneNotFound", "location zone not found");
            Kind { show: location, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::Caches(name) => {
            let missing = missing("CacheNotFound", "cache not found");
            Kind { show: cache, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::LimitReqs(name) => {
            let missing = missing("LimitReqNotFound", "limit_req not found");
            Kind { show: limit_reqs, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::LimitConns(side, name) => {
            let area = ask.area(side);
            let has = |name: &str| area.has_limit(name);
            let missing = missing("LimitConnNotFound", "limit_conn not found");
            Kind { show: limit_conns, has: &has, missing }.run(ask, name, version)
        }
        EndPoint::Resolvers(name) => {
            let missing = missing("ResolverZoneNotFound", "resolver zone not found");
            Kind { show: resolver, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::Slabs(name) => slabs(ask, name),
        _ => Err(Refused::method()),
    }
}

/// Zones with an account of their memory. It is not divided into slots.
fn slabs(ask: &Ask, name: Option<&str>) -> Result<Answer, Refused> {
    const PAGE: u64 = 4096;
    let zones = [&ask.inventory.http, &ask.inventory.stream].into_iter().flat_map(|area| area.keyvals());
    let shown = zones.map(|keyval| {
        let (bytes, _) = keyval.zone.usage();
        let used = bytes.div_ceil(PAGE);
        let free = (keyval.zone.size() / PAGE).saturating_sub(used);
        (keyval.name.clone(), json!({ "pages": { "used": used, "free": free }, "slots": {} }))
    });
    let all: Map<String, Value> = shown.collect();
    let fields = ask.fields.as_deref();
    match (name, ask.verb) {
        (None, Verb::Get) => Ok(Answer::json(&collection(all, fields))),
        (None, _) => Err(Refused::method()),
        (Some(name), verb) => {
            let missing = || Refused::new(404, "SlabNotFound", "slab not found");
            let zone = all.get(name).ok_or_else(missing)?;
            // Only slots have counts that a reset would clear.
            Ok(if verb == Verb::Get { Answer::json(&selected(zone.clone(), fields)) } else { Answer::done() })
        }
    }
}
