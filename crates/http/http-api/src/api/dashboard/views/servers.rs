//! Servers and locations of the http block, with their places in the configuration.

use super::super::data::{Data, count_at};
use super::super::html::{Cell, Column, HtmlTable, Markup, TableRow, Tone, number_column, small_text, words_column};
use super::{Section, place, rate};
use conf_schema::Contexts;
use http_engine::plan::Location;
use serde_json::Value;
use std::cmp::Reverse;

/// A server or location as configured, in the extensions of its [`Location`], if there is a dashboard.
pub struct ConfiguredServer {
    pub context: Contexts,
    pub names: Vec<String>,
    pub listens: Vec<String>,
}

const COLUMNS: &[Column] = &[
    words_column("Server"),
    words_column("Listens on"),
    number_column("5xx"),
    number_column("4xx"),
    number_column("Requests"),
    number_column("Requests/s"),
    number_column("In flight"),
    number_column("Discarded"),
    number_column("Received"),
    number_column("Sent"),
    number_column("TLS failed"),
    words_column("Zone"),
    words_column("Configured"),
];

const LOCATIONS: &[Column] = &[
    words_column("Location"),
    words_column("Server"),
    words_column("Handler"),
    number_column("5xx"),
    number_column("4xx"),
    number_column("Requests"),
    number_column("Requests/s"),
    number_column("Discarded"),
    number_column("Received"),
    number_column("Sent"),
    words_column("Zone"),
    words_column("Configured"),
];

fn label<S: metrics::MetricTable>(zone: Option<&metrics::MetricZone<S>>) -> Option<String> {
    zone?.labels().first().cloned()
}

/// A row with its sort keys: errors first, then requests.
struct RankedServer(TableRow, (u64, u64));

fn ordered(mut all: Vec<RankedServer>) -> Vec<TableRow> {
    all.sort_by_key(|RankedServer(_, rank)| Reverse(*rank));
    all.into_iter().map(|RankedServer(row, _)| row).collect()
}

/// Creates empty cells without a zone.
fn counts(zone: Option<&Value>, names: &[&str]) -> Vec<Cell> {
    let cell = |name: &&str| {
        let Some(zone) = zone else { return Cell::none() };
        let value = count_at(zone, name);
        match *name {
            "/responses/5xx" => Cell::count(value).alarming(Tone::Bad),
            "/responses/4xx" => Cell::count(value),
            "/received" | "/sent" => Cell::bytes(value),
            _ => Cell::count(value),
        }
    };
    names.iter().map(cell).collect()
}

pub fn servers_section(data: &mut Data<'_>) -> Option<Section> {
    let plan = data.plan.clone();
    let zones = data.collection("/http/server_zones");
    let mut rows = Vec::new();
    for (index, server) in plan.servers.iter().enumerate() {
        let location = plan.loc(server.location);
        let Some(written) = location.ext::<ConfiguredServer>() else { continue };
        let name = label(server.zone.as_ref());
        let zone = name.as_ref().and_then(|name| zones.get(name));
        let requests = zone.map(|zone| count_at(zone, "/requests"));
        let per_second = requests.and_then(|requests| data.rates.rate(format!("server {index}"), requests));
        let first = written.names.iter().find(|name| !name.is_empty()).map_or("(no name)", String::as_str);
        let more = written.names.len().saturating_sub(1);
        let title = Markup::of(first);
        let title = if more > 0 { title.raw(" ").add(small_text(format_args!("+{more}"))) } else { title };
        let mut cells = vec![Cell::of(title), Cell::text(written.listens.join(", "))];
        cells.extend(counts(zone, &["/responses/5xx", "/responses/4xx", "/requests"]));
        cells.push(rate(per_second));
        cells.extend(counts(zone, &["/processing", "/discarded", "/received", "/sent"]));
        let failed = zone.map(|zone| count_at(zone, "/ssl/handshakes_failed"));
        cells.push(Cell::maybe(failed));
        cells.push(name.map_or_else(Cell::none, Cell::text));
        cells.push(place(&data.place(location.at)));
        let rank = (zone.map_or(0, |zone| count_at(zone, "/responses/5xx")), requests.unwrap_or(0));
        rows.push(RankedServer(TableRow { key: index.to_string(), tone: Tone::Plain, cells }, rank));
    }
    if rows.is_empty() {
        return None;
    }
    let uncounted = plan.servers.iter().filter(|server| server.zone.is_none()).count();
    let table =
        HtmlTable { id: "servers".into(), caption: Markup::of("Servers"), columns: COLUMNS, rows: ordered(rows) };
    let mut body = table.show();
    let locations = locations(data);
    if !locations.is_empty() {
        let caption = Markup::of("Locations");
        body = body
            .add(HtmlTable { id: "locations".into(), caption, columns: LOCATIONS, rows: ordered(locations) }.show());
    }
    if uncounted > 0 {
        let note = "<p class=\"note\">Servers and locations with <code>status_zone</code> are counted.</p>";
        body = body.raw(note);
    }
    Some(Section { id: "servers", title: "Servers and locations", body })
}

fn modifier(location: &Location) -> &'static str {
    match location {
        Location { exact: true, .. } => "= ",
        Location { regex: true, .. } => "~ ",
        _ => "",
    }
}

fn locations(data: &mut Data<'_>) -> Vec<RankedServer> {
    let plan = data.plan.clone();
    let zones = data.collection("/http/location_zones");
    let mut rows = Vec::new();
    for (index, location) in plan.locations.iter().enumerate() {
        let Some(_) = location.ext::<ConfiguredServer>().filter(|written| written.context == Contexts::location) else {
            continue;
        };
        let name = label(location.zone.as_ref());
        let zone = name.as_ref().and_then(|name| zones.get(name));
        let requests = zone.map(|zone| count_at(zone, "/requests"));
        let per_second = requests.and_then(|requests| data.rates.rate(format!("location {index}"), requests));
        let path = String::from_utf8_lossy(&location.name);
        let title = Markup::new().raw("<code>").raw(modifier(location)).text(path).raw("</code>");
        let server = String::from_utf8_lossy(&plan.srv(location.server).name).into_owned();
        let server = if server.is_empty() { Cell::none() } else { Cell::text(server) };
        let handler = match location.answered_by {
            Some((name, _)) => name,
            None if location.rewrite.is_empty() => "files",
            None => "rewrite rules",
        };
        let mut cells = vec![Cell::of(title), server, Cell::text(handler)];
        cells.extend(counts(zone, &["/responses/5xx", "/responses/4xx", "/requests"]));
        cells.push(rate(per_second));
        cells.extend(counts(zone, &["/discarded", "/received", "/sent"]));
        cells.push(name.map_or_else(Cell::none, Cell::text));
        cells.push(place(&data.place(location.at)));
        let rank = (zone.map_or(0, |zone| count_at(zone, "/responses/5xx")), requests.unwrap_or(0));
        rows.push(RankedServer(TableRow { key: index.to_string(), tone: Tone::Plain, cells }, rank));
    }
    rows
}
