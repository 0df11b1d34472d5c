//! Caches, limits, servers of the stream block, resolvers, key-value zones.

use super::super::data::{Data, count_at};
use super::super::format;
use super::super::html::{Cell, Column, HtmlTable, Markup, TableRow, Tone, number_column, state_badge, words_column};
use super::{Section, rate};
use metrics::cache;
use serde_json::Value;

/// Part of a key-value zone's memory above which it is nearly full.
const FULL_SHARE: f64 = 0.9;

fn total(value: &Value, names: &[&str], below: &str) -> u64 {
    names.iter().map(|name| count_at(value, &format!("/{name}{below}"))).sum()
}

const CACHES: &[Column] = &[
    words_column("Cache"),
    number_column("Hit ratio"),
    number_column("Hit"),
    number_column("Miss"),
    number_column("Expired"),
    number_column("Stale"),
    number_column("Updating"),
    number_column("Revalidated"),
    number_column("Bypass"),
    number_column("Lookups/s"),
    number_column("Entries"),
    number_column("In memory"),
    number_column("Size"),
    number_column("Limit"),
    words_column("State"),
];

pub fn caches_section(data: &mut Data<'_>) -> Option<Section> {
    let all = data.collection("/http/caches");
    let readings = metrics::zone_readings::<cache::Of>();
    let rows: Vec<TableRow> = all
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
            let (size, max) = (count_at(zone, "/size"), count_at(zone, "/max_size"));
            let is_cold = zone.get("cold").and_then(Value::as_bool).unwrap_or(false);
            let mut cells = vec![Cell::text(name)];
            cells.push(if lookups > 0 { Cell::number(ratio, format::format_percent(ratio)) } else { Cell::none() });
            let names = ["hit", "miss", "expired", "stale", "updating", "revalidated", "bypass"];
            cells.extend(names.map(|name| Cell::count(count_at(zone, &format!("/{name}/responses")))));
            cells.extend([rate(per_second), Cell::count(level(cache::ENTRIES)), Cell::bytes(level(cache::MEMORY))]);
            cells.push(Cell::bytes(size));
            cells.push(if max > 0 { Cell::bytes(max) } else { Cell::none() });
            cells.push(Cell::of(if is_cold {
                state_badge(Tone::Warn, "loading")
            } else {
                state_badge(Tone::Good, "ready")
            }));
            TableRow { key: name.clone(), tone: Tone::Plain, cells }
        })
        .collect();
    section("caches", "Caches", CACHES, rows)
}

fn section(id: &'static str, title: &'static str, columns: &'static [Column], rows: Vec<TableRow>) -> Option<Section> {
    if rows.is_empty() {
        return None;
    }
    let table = HtmlTable { id: id.into(), caption: Markup::new().raw(title), columns, rows };
    Some(Section { id, title, body: table.show() })
}

const LIMITS: &[Column] = &[
    words_column("Zone"),
    words_column("Limits"),
    number_column("Rejected"),
    number_column("Rejected/s"),
    number_column("Delayed"),
    number_column("Passed"),
    number_column("Passed/s"),
    number_column("Would reject (dry run)"),
    number_column("Would delay (dry run)"),
];

pub fn limits_section(data: &mut Data<'_>) -> Option<Section> {
    let kinds = [
        ("/http/limit_reqs", "requests"),
        ("/http/limit_conns", "connections, http"),
        ("/stream/limit_conns", "connections, stream"),
    ];
    let mut rows = Vec::new();
    for (path, kind) in kinds {
        for (name, zone) in data.collection(path) {
            let (passed, rejected) = (count_at(&zone, "/passed"), count_at(&zone, "/rejected"));
            let has_delays = zone.get("delayed").is_some();
            let delay = |name: &str| if has_delays { Cell::count(count_at(&zone, name)) } else { Cell::none() };
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
                Cell::count(count_at(&zone, "/rejected_dry_run")),
                delay("/delayed_dry_run"),
            ];
            rows.push((rejected, TableRow { key: format!("{kind} {name}"), tone: Tone::Plain, cells }));
        }
    }
    rows.sort_by_key(|(rejected, _)| std::cmp::Reverse(*rejected));
    section("limits", "Limits", LIMITS, rows.into_iter().map(|(_, row)| row).collect())
}

const STREAMS: &[Column] = &[
    words_column("Zone"),
    number_column("Sessions"),
    number_column("Active"),
    number_column("5xx"),
    number_column("4xx"),
    number_column("2xx"),
    number_column("Sessions/s"),
    number_column("Discarded"),
    number_column("TLS failed"),
    number_column("Received"),
    number_column("Sent"),
];

pub fn streams_section(data: &mut Data<'_>) -> Option<Section> {
    let mut rows = Vec::new();
    for (name, zone) in data.collection("/stream/server_zones") {
        let all = count_at(&zone, "/connections");
        let per_second = data.rates.rate(format!("stream {name}"), all);
        let cells = vec![
            Cell::text(&name),
            Cell::count(all),
            Cell::count(count_at(&zone, "/processing")),
            Cell::count(count_at(&zone, "/sessions/5xx")).alarming(Tone::Bad),
            Cell::count(count_at(&zone, "/sessions/4xx")),
            Cell::count(count_at(&zone, "/sessions/2xx")),
            rate(per_second),
            Cell::count(count_at(&zone, "/discarded")),
            Cell::count(count_at(&zone, "/ssl/handshakes_failed")),
            Cell::bytes(count_at(&zone, "/received")),
            Cell::bytes(count_at(&zone, "/sent")),
        ];
        rows.push(TableRow { key: name, tone: Tone::Plain, cells });
    }
    section("streams", "TCP and UDP", STREAMS, rows)
}

const RESOLVERS: &[Column] = &[
    words_column("Resolver"),
    number_column("Names"),
    number_column("SRV"),
    number_column("Addresses"),
    number_column("Queries/s"),
    number_column("Answered"),
    number_column("No such name"),
    number_column("Server failure"),
    number_column("Refused"),
    number_column("Timed out"),
    number_column("Other errors"),
];

pub fn resolvers_section(data: &mut Data<'_>) -> Option<Section> {
    let mut rows = Vec::new();
    for (name, zone) in data.collection("/resolvers") {
        let queries = ["/requests/name", "/requests/srv", "/requests/addr"].map(|path| count_at(&zone, path));
        let per_second = data.rates.rate(format!("resolver {name}"), queries.iter().sum());
        let answers = |code: &str| count_at(&zone, &format!("/responses/{code}"));
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
        rows.push(TableRow { key: name, tone: Tone::Plain, cells });
    }
    section("resolvers", "Resolvers", RESOLVERS, rows)
}

const KEYVALS: &[Column] = &[
    words_column("Zone"),
    words_column("Area"),
    number_column("Pairs"),
    number_column("Used"),
    number_column("Size"),
    number_column("Used part"),
];

pub fn keyvals_section(data: &mut Data<'_>) -> Option<Section> {
    let inventory = data.inventory.clone();
    let mut rows = Vec::new();
    for (area, zones) in [("http", inventory.http.keyvals()), ("stream", inventory.stream.keyvals())] {
        for keyval in zones {
            let ((used, pairs), size) = (keyval.zone.usage(), keyval.zone.size());
            let share = used as f64 / size.max(1) as f64;
            let is_full = share > FULL_SHARE;
            if is_full {
                let part = format::format_percent(share);
                data.alert(Tone::Warn, "keyvals", format!("Key-value zone \"{}\" is {part} full", keyval.name));
            }
            let cells = vec![
                Cell::text(&keyval.name),
                Cell::text(area),
                Cell::count(pairs as u64),
                Cell::bytes(used),
                Cell::bytes(size),
                Cell::number(share, format::format_percent(share)),
            ];
            let tone = if is_full { Tone::Warn } else { Tone::Plain };
            rows.push(TableRow { key: format!("{area} {}", keyval.name), tone, cells });
        }
    }
    section("keyvals", "Key-value zones", KEYVALS, rows)
}
