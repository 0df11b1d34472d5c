//! Caches, limits, servers of the stream block, resolvers, key-value zones.

use super::super::data::{Data, count};
use super::super::format;
use super::super::html::{Cell, Column, Markup, Row, Table, Tone, badge, number, words};
use super::{Section, rate};
use metrics::cache;
use serde_json::Value;

/// Part of a key-value zone's memory above which it is nearly full.
const FULL_SHARE: f64 = 0.9;

fn total(value: &Value, names: &[&str], below: &str) -> u64 {
    names.iter().map(|name| count(value, &format!("/{name}{below}"))).sum()
}

const CACHES: &[Column] = &[
    words("Cache"),
    number("Hit ratio"),
    number("Hit"),
    number("Miss"),
    number("Expired"),
    number("Stale"),
    number("Updating"),
    number("Revalidated"),
    number("Bypass"),
    number("Lookups/s"),
    number("Entries"),
    number("In memory"),
    number("Size"),
    number("Limit"),
    words("State"),
];

pub fn caches(data: &mut Data<'_>) -> Option<Section> {
    let all = data.collection("/http/caches");
    let readings = metrics::readings::<cache::Of>();
    let rows: Vec<Row> = all
        .iter()
        .map(|(name, zone)| {
            let hits = total(zone, &["hit", "stale", "updating", "revalidated"], "/responses");
            let lookups = hits + total(zone, &["miss", "expired", "bypass"], "/responses");
            let per_second = data.rates.rate(format!("cache {name}"), lookups);
            let ratio = hits as f64 / lookups.max(1) as f64;
            let level = |gauge| {
                let reading = readings.iter().find(|reading| reading.labels.first() == Some(name));
                reading.map_or(0, |reading| reading.level(gauge))
            };
            let (size, max) = (count(zone, "/size"), count(zone, "/max_size"));
            let is_cold = zone.get("cold").and_then(Value::as_bool).unwrap_or(false);
            let mut cells = vec![Cell::text(name)];
            cells.push(if lookups > 0 { Cell::number(ratio, format::percent(ratio)) } else { Cell::none() });
            let names = ["hit", "miss", "expired", "stale", "updating", "revalidated", "bypass"];
            cells.extend(names.map(|name| Cell::count(count(zone, &format!("/{name}/responses")))));
            cells.extend([rate(per_second), Cell::count(level(cache::ENTRIES)), Cell::bytes(level(cache::MEMORY))]);
            cells.push(Cell::bytes(size));
            cells.push(if max > 0 { Cell::bytes(max) } else { Cell::none() });
            cells.push(Cell::of(if is_cold { badge(Tone::Warn, "loading") } else { badge(Tone::Good, "ready") }));
            Row { key: name.clone(), tone: Tone::Plain, cells }
        })
        .collect();
    section("caches", "Caches", CACHES, rows)
}

fn section(id: &'static str, title: &'static str, columns: &'static [Column], rows: Vec<Row>) -> Option<Section> {
    if rows.is_empty() {
        return None;
    }
    let table = Table { id: id.into(), caption: Markup::new().raw(title), columns, rows };
    Some(Section { id, title, body: table.show() })
}

const LIMITS: &[Column] = &[
    words("Zone"),
    words("Limits"),
    number("Rejected"),
    number("Rejected/s"),
    number("Delayed"),
    number("Passed"),
    number("Passed/s"),
    number("Would reject (dry run)"),
    number("Would delay (dry run)"),
];

pub fn limits(data: &mut Data<'_>) -> Option<Section> {
    let kinds = [
        ("/http/limit_reqs", "requests"),
        ("/http/limit_conns", "connections, http"),
        ("/stream/limit_conns", "connections, stream"),
    ];
    let mut rows = Vec::new();
    for (path, kind) in kinds {
        for (name, zone) in data.collection(path) {
            let (passed, rejected) = (count(&zone, "/passed"), count(&zone, "/rejected"));
            let has_delays = zone.get("delayed").is_some();
            let delay = |name: &str| if has_delays { Cell::count(count(&zone, name)) } else { Cell::none() };
            let rejected_rate = data.rates.rate(format!("{path} {name} rejected"), rejected);
            let passed_rate = data.rates.rate(format!("{path} {name} passed"), passed);
            let cells = vec![
                Cell::text(&name),
                Cell::text(kind),
                Cell::count(rejected).alarming(Tone::Warn),
                rate(rejected_rate),
                delay("/delayed"),
                Cell::count(passed),
                rate(passed_rate),
                Cell::count(count(&zone, "/rejected_dry_run")),
                delay("/delayed_dry_run"),
            ];
            rows.push((rejected, Row { key: format!("{kind} {name}"), tone: Tone::Plain, cells }));
        }
    }
    rows.sort_by_key(|(rejected, _)| std::cmp::Reverse(*rejected));
    section("limits", "Limits", LIMITS, rows.into_iter().map(|(_, row)| row).collect())
}

const STREAMS: &[Column] = &[
    words("Zone"),
    number("Sessions"),
    number("Active"),
    number("5xx"),
    number("4xx"),
    number("2xx"),
    number("Sessions/s"),
    number("Discarded"),
    number("TLS failed"),
    number("Received"),
    number("Sent"),
];

pub fn streams(data: &mut Data<'_>) -> Option<Section> {
    let mut rows = Vec::new();
    for (name, zone) in data.collection("/stream/server_zones") {
        let all = count(&zone, "/connections");
        let per_second = data.rates.rate(format!("stream {name}"), all);
        let cells = vec![
            Cell::text(&name),
            Cell::count(all),
            Cell::count(count(&zone, "/processing")),
            Cell::count(count(&zone, "/sessions/5xx")).alarming(Tone::Bad),
            Cell::count(count(&zone, "/sessions/4xx")),
            Cell::count(count(&zone, "/sessions/2xx")),
            rate(per_second),
            Cell::count(count(&zone, "/discarded")),
            Cell::count(count(&zone, "/ssl/handshakes_failed")),
            Cell::bytes(count(&zone, "/received")),
            Cell::bytes(count(&zone, "/sent")),
        ];
        rows.push(Row { key: name, tone: Tone::Plain, cells });
    }
    section("streams", "TCP and UDP", STREAMS, rows)
}

const RESOLVERS: &[Column] = &[
    words("Resolver"),
    number("Names"),
    number("SRV"),
    number("Addresses"),
    number("Queries/s"),
    number("Answered"),
    number("No such name"),
    number("Server failure"),
    number("Refused"),
    number("Timed out"),
    number("Other errors"),
];

pub fn resolvers(data: &mut Data<'_>) -> Option<Section> {
    let mut rows = Vec::new();
    for (name, zone) in data.collection("/resolvers") {
        let queries = ["/requests/name", "/requests/srv", "/requests/addr"].map(|path| count(&zone, path));
        let per_second = data.rates.rate(format!("resolver {name}"), queries.iter().sum());
        let answers = |code: &str| count(&zone, &format!("/responses/{code}"));
        let mut cells = vec![Cell::text(&name)];
        cells.extend(queries.map(Cell::count));
        cells.extend([
            rate(per_second),
            Cell::count(answers("noerror")),
            Cell::count(answers("nxdomain")),
            Cell::count(answers("servfail")).alarming(Tone::Warn),
            Cell::count(answers("refused")).alarming(Tone::Warn),
            Cell::count(answers("timedout")).alarming(Tone::Warn),
            Cell::count(answers("formerr") + answers("notimp") + answers("unknown")),
        ]);
        rows.push(Row { key: name, tone: Tone::Plain, cells });
    }
    section("resolvers", "Resolvers", RESOLVERS, rows)
}

const KEYVALS: &[Column] =
    &[words("Zone"), words("Area"), number("Pairs"), number("Used"), number("Size"), number("Used part")];

pub fn keyvals(data: &mut Data<'_>) -> Option<Section> {
    let inventory = data.inventory.clone();
    let mut rows = Vec::new();
    for (area, zones) in [("http", inventory.http.keyvals()), ("stream", inventory.stream.keyvals())] {
        for keyval in zones {
            let ((used, pairs), size) = (keyval.zone.usage(), keyval.zone.size());
            let share = used as f64 / size.max(1) as f64;
            let is_full = share > FULL_SHARE;
            if is_full {
                let part = format::percent(share);
                data.alert(Tone::Warn, "keyvals", format!("Key-value zone \"{}\" is {part} full", keyval.name));
            }
            let cells = vec![
                Cell::text(&keyval.name),
                Cell::text(area),
                Cell::count(pairs as u64),
                Cell::bytes(used),
                Cell::bytes(size),
                Cell::number(share, format::percent(share)),
            ];
            let tone = if is_full { Tone::Warn } else { Tone::Plain };
            rows.push(Row { key: format!("{area} {}", keyval.name), tone, cells });
        }
    }
    section("keyvals", "Key-value zones", KEYVALS, rows)
}
