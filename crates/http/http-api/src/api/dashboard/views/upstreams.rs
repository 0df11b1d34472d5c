//! Groups of servers: state with its reason, requests, times, checks; forms that change them.

use super::super::data::{Data, count_at, text_at};
use super::super::format;
use super::super::html::{
    Cell, Column, HtmlTable, Markup, TableRow, Tone, number_column, small_text, state_badge, words_column,
};
use super::{Section, rate};
use crate::shared::status_tree::Side;
use crate::shared::status_tree::groups::show_group;
use serde_json::Value;
use std::sync::Arc;
use upstream::{CheckState, Peer};
use upstream_directives::inventory::ListedGroup;

/// Version of the API whose fields are shown.
const VERSION: u32 = 9;
/// Groups shown; further ones are counted.
const GROUPS_MAX: usize = 100;

const COLUMNS: &[Column] = &[
    words_column("Server"),
    words_column("State"),
    number_column("Active"),
    number_column("5xx"),
    number_column("4xx"),
    number_column("Requests"),
    number_column("Requests/s"),
    number_column("Fails"),
    number_column("Head, mean"),
    number_column("Response, mean"),
    number_column("Response, p95"),
    words_column("Last check"),
    number_column("Down for"),
    number_column("Weight"),
    number_column("Sent"),
    number_column("Received"),
];

const SESSIONS: &[Column] = &[
    words_column("Server"),
    words_column("State"),
    number_column("Active"),
    number_column("Sessions"),
    number_column("Sessions/s"),
    number_column("Fails"),
    number_column("Connect, mean"),
    number_column("First byte, mean"),
    number_column("Session, mean"),
    words_column("Last check"),
    number_column("Down for"),
    number_column("Weight"),
    number_column("Sent"),
    number_column("Received"),
];

pub fn upstreams_section(data: &mut Data<'_>) -> Option<Section> {
    let inventory = data.inventory.clone();
    let of = |side, groups: Vec<ListedGroup>| groups.into_iter().map(move |group| (side, group));
    let all = of(Side::Http, inventory.http.groups()).chain(of(Side::Stream, inventory.stream.groups()));
    let mut shown: Vec<(Tone, Markup)> = all.map(|(side, listed)| group(data, side, &listed)).collect();
    if shown.is_empty() {
        return None;
    }
    shown.sort_by_key(|(tone, _)| *tone);
    let more = shown.len().saturating_sub(GROUPS_MAX);
    let body = Markup::new().each(shown.into_iter().take(GROUPS_MAX), |(_, group)| group);
    let body = match more {
        0 => body,
        more => body
            .raw("<p class=\"note\">Not shown: ")
            .text(format::format_counted(more as u64, "more group", "more groups"))
            .raw(".</p>"),
    };
    Some(Section { id: "upstreams", title: "Upstreams", body })
}

fn reason(peer: &Peer, state: &str) -> String {
    let now = base::clock::now();
    match state {
        "unavail" if peer.is_ejected(now) => "ejected: fails more often than the others".into(),
        "unavail" => {
            let (fails, ms) = (peer.spec.max_fails, peer.spec.fail_timeout_ms);
            let fails = format::format_counted(u64::from(fails), "failure", "failures");
            format!("{fails} within {}", format::format_duration(ms / 1000))
        }
        "unhealthy" => match peer.history().last_probe() {
            Some((_, Some(why))) => why,
            _ => "a health check failed".into(),
        },
        "checking" => "no health check has ended".into(),
        "down" => "marked as down".into(),
        "draining" => "takes no new clients".into(),
        _ => String::new(),
    }
}

fn tone(state: &str) -> Tone {
    match state {
        "up" => Tone::Good,
        "unavail" | "unhealthy" => Tone::Bad,
        "checking" => Tone::Warn,
        _ => Tone::Plain,
    }
}

fn check(peer: &Peer, now: u64) -> Cell {
    let checks = peer.history().checks();
    let Some((at, failure)) = peer.history().last_probe() else { return Cell::none() };
    let fails = small_text(format_args!(
        "{} of {} failed",
        format::format_count(checks.fails),
        format::format_count(checks.checks)
    ));
    let mark = match &failure {
        None => state_badge(Tone::Good, format_args!("passed {}", format::format_ago(at, now))),
        Some(_) => state_badge(Tone::Bad, format_args!("failed {}", format::format_ago(at, now))),
    };
    let why = failure
        .filter(|_| peer.checks_say() == CheckState::Healthy)
        .map_or_else(Markup::new, |why| Markup::new().raw("<br>").add(small_text(why)));
    Cell::of(mark.add(why).raw("<br>").add(fails))
}

fn group(data: &mut Data<'_>, side: Side, listed: &ListedGroup) -> (Tone, Markup) {
    let group = &listed.group;
    let value = show_group(listed, side, VERSION);
    let mut peers: Vec<Arc<Peer>> = group.members().all().cloned().collect();
    peers.sort_by_key(|peer| peer.number);
    let area = if side == Side::Http { "http" } else { "stream" };
    let mut rows: Vec<TableRow> = Vec::new();
    let mut period = None;
    let described: Vec<&Value> = value.get("peers").and_then(Value::as_array).into_iter().flatten().collect();
    for peer in &peers {
        let known = described.iter().find(|server| count_at(server, "/id") == peer.number);
        if let Some(server) = known {
            rows.push(row(data, (side, area), listed, peer, server, &mut period));
        }
    }
    let worst =
        rows.iter().map(|row| row.tone).filter(|tone| matches!(tone, Tone::Bad | Tone::Warn)).min().unwrap_or_default();
    let out = described
        .iter()
        .filter(|server| matches!(text_at(server, "state"), "unavail" | "unhealthy" | "down" | "draining" | "checking"))
        .count();
    if worst == Tone::Bad && out == rows.len() {
        data.alert(Tone::Bad, "upstreams", format!("No server of upstream \"{}\" is available", group.name));
    }
    rows.sort_by_key(|row| row.tone);
    let caption = Markup::of(&group.name).raw(" ").add(small_text(facts(&value, area, listed, period)));
    let columns = if side == Side::Http { COLUMNS } else { SESSIONS };
    let table = HtmlTable { id: format!("upstream-{area}-{}", identifier(&group.name)), caption, columns, rows };
    let forms = if data.writes { forms(data, (side, area), listed) } else { Markup::new() };
    (worst, table.show().add(forms))
}

/// Makes a name fit for an id: other characters become their code.
fn identifier(name: &str) -> String {
    name.bytes()
        .map(|c| if c.is_ascii_alphanumeric() || c == b'-' { char::from(c).to_string() } else { format!("_{c:x}") })
        .collect()
}

fn facts(value: &Value, area: &str, listed: &ListedGroup, period: Option<&str>) -> String {
    let mut facts = vec![area.to_string()];
    match &listed.zone {
        Some(zone) => facts.push(format!("zone {zone}")),
        None => facts.push("no zone: requests are not counted".into()),
    }
    if let Some(kept) = value.get("keepalive").and_then(Value::as_u64) {
        facts.push(format::format_counted(kept, "idle connection", "idle connections"));
    }
    if count_at(value, "/zombies") > 0 {
        let removed = format::format_counted(count_at(value, "/zombies"), "removed server", "removed servers");
        facts.push(format!("{removed} with requests in progress"));
    }
    if value.get("queue").is_some() {
        let (size, max, lost) =
            (count_at(value, "/queue/size"), count_at(value, "/queue/max_size"), count_at(value, "/queue/overflows"));
        facts.push(format!("queue {size} of {max}, {}", format::format_counted(lost, "overflow", "overflows")));
    }
    if listed.state.is_some() {
        facts.push("kept in a state file".into());
    }
    facts.extend(period.map(|period| format!("times: {period}")));
    facts.join(" · ")
}

/// `period` becomes the words for the period of the times, the longest one of a group.
fn row(
    data: &mut Data<'_>,
    (side, area): (Side, &str),
    listed: &ListedGroup,
    peer: &Peer,
    server: &Value,
    period: &mut Option<&'static str>,
) -> TableRow {
    let state = text_at(server, "state");
    let why = reason(peer, state);
    let name = &listed.group.name;
    if tone(state) == Tone::Bad {
        data.alert(Tone::Warn, "upstreams", format!("{} of upstream \"{name}\" is {state}: {why}", peer.text));
    }
    let title = Markup::of(&peer.text);
    let title = if peer.spec.name == *peer.text { title } else { title.raw("<br>").add(small_text(&peer.spec.name)) };
    let title = if peer.spec.backup { title.raw(" ").add(small_text("backup")) } else { title };
    let mark = state_badge(tone(state), state);
    let mark = if why.is_empty() { mark } else { mark.raw("<br>").add(small_text(why)) };
    let number = |name: &str| server.get(name).and_then(Value::as_u64);
    let active = match number("max_conns") {
        Some(most) => {
            Cell::number(peer.active() as f64, format_args!("{} of {most}", format::format_count(peer.active())))
        }
        None => Cell::count(peer.active()),
    };
    let ms = |name: &str| match number(name) {
        None => Cell::none(),
        Some(0) => Cell::number(0.0, "<1\u{a0}ms"),
        Some(ms) => Cell::number(ms as f64, format::format_millis(ms as f64)),
    };
    let counter = if side == Side::Http { "requests" } else { "connections" };
    let all = number(counter);
    let per_second = all.and_then(|all| data.rates.rate(format!("peer {area} {name} {}", peer.number), all));
    let mut cells = vec![Cell::of(title), Cell::of(mark), active];
    if side == Side::Http {
        cells.push(Cell::maybe(all.map(|_| count_at(server, "/responses/5xx"))).alarming(Tone::Bad));
        cells.push(Cell::maybe(all.map(|_| count_at(server, "/responses/4xx"))));
    }
    cells.extend([Cell::maybe(all), rate(per_second), Cell::maybe(number("fails")).alarming(Tone::Warn)]);
    if side == Side::Http {
        cells.extend(times(data, (area, name), peer, period));
    } else {
        cells.extend([ms("connect_time"), ms("first_byte_time"), ms("response_time")]);
    }
    cells.push(check(peer, data.now));
    let down = count_at(server, "/downtime") / 1000;
    cells.push(Cell::number(down as f64, if down > 0 { format::format_duration(down) } else { "–".into() }));
    cells.push(Cell::count(count_at(server, "/weight")));
    let bytes = |name: &str| number(name).map_or_else(Cell::none, Cell::bytes);
    cells.extend([bytes("sent"), bytes("received")]);
    TableRow { key: peer.number.to_string(), tone: tone(state), cells }
}

/// Returns the cells of the mean times until the head and the end of responses, and of the 95th percentile of the latter,
/// all for one period.
fn times(
    data: &mut Data<'_>,
    (area, group): (&str, &str),
    peer: &Peer,
    period: &mut Option<&'static str>,
) -> [Cell; 3] {
    let Some(zone) = peer.zone().map(|zone| zone.reading()) else { return [Cell::none(), Cell::none(), Cell::none()] };
    let mut recent = |histogram, name: &str| {
        data.rates.recent(format!("{name} {area} {group} {}", peer.number), zone.times(histogram))
    };
    let heads = recent(metrics::peer::HEADER, "header");
    let responses = recent(metrics::peer::RESPONSE, "response");
    match responses.is_last_minute {
        true => *period = period.or(Some("last minute")),
        false => *period = Some("since the counters began"),
    }
    let cell = |ms: Option<f64>| match ms {
        None => Cell::none(),
        Some(ms) if ms < 1.0 => Cell::number(ms, "<1\u{a0}ms"),
        Some(ms) => Cell::number(ms, format::format_millis(ms)),
    };
    [cell(heads.mean()), cell(responses.mean()), cell(responses.quantile(0.95))]
}

/// Forms for the lines of a group, if it can change. The API's paths cannot name groups with a slash.
fn forms(data: &Data<'_>, (side, area): (Side, &'static str), listed: &ListedGroup) -> Markup {
    let (Some(_), Some(roster)) = (&listed.zone, &listed.group.extras.roster) else { return Markup::new() };
    if listed.group.name.contains('/') {
        return Markup::new();
    }
    let generation = roster.generation();
    let servers = data.api(&format!("/{area}/upstreams/{}/servers", listed.group.name));
    let hidden = |action: &'static str, id: Option<u64>| {
        let field = |name: &'static str, value: &dyn std::fmt::Display| {
            Markup::new().raw("<input type=\"hidden\"").attribute("name", name).attribute("value", value).raw(">")
        };
        let fields = field("token", &data.token).add(field("action", &action)).add(field("area", &area));
        let fields = fields.add(field("group", &listed.group.name)).add(field("generation", &generation));
        fields.add(id.map_or_else(Markup::new, |id| field("id", &id)))
    };
    let open = Markup::new().raw("<details class=\"edit\"").attribute("data-key", &listed.group.name);
    let open = open.raw("><summary>Change servers of ").text(&listed.group.name).raw("</summary>");
    let lines = servers.as_array().into_iter().flatten().filter(|server| server.get("parent").is_none());
    let body = open.each(lines, |server| {
        let id = count_at(server, "/id");
        let name = text_at(server, "server");
        let form =
            Markup::new().raw("<form method=\"post\" action=\"./\" class=\"change\"><fieldset><legend>").text(name);
        let form = form.raw("</legend>").add(hidden("change", Some(id)));
        let form = form.add(field("Weight", "weight", "number", &count_at(server, "/weight").to_string()));
        let form = form.add(field(
            "Connections at most (0: any)",
            "max_conns",
            "number",
            &count_at(server, "/max_conns").to_string(),
        ));
        let form =
            form.add(field("Failures at most", "max_fails", "number", &count_at(server, "/max_fails").to_string()));
        let form = form.add(field("within", "fail_timeout", "text", text_at(server, "fail_timeout")));
        let is = |name: &str| server.get(name).and_then(Value::as_bool).unwrap_or(false);
        let state = if is("down") {
            "down"
        } else if is("drain") {
            "drain"
        } else {
            "up"
        };
        let mut choices = vec!["up", "down"];
        if side == Side::Http {
            choices.insert(1, "drain");
        }
        let options = Markup::new().each(choices, |choice: &'static str| {
            let chosen = if choice == state { " selected" } else { "" };
            Markup::new().raw("<option").raw(chosen).raw(">").raw(choice).raw("</option>")
        });
        let form = form.raw("<label>State <select name=\"state\">").add(options).raw("</select></label>");
        let form = form.raw("<button>Change</button></fieldset></form>");
        let removal =
            Markup::new().raw("<form method=\"post\" action=\"./\" class=\"remove\">").add(hidden("remove", Some(id)));
        let removal =
            removal.raw("<label><input type=\"checkbox\" name=\"sure\" value=\"yes\" required> Remove ").text(name);
        form.add(removal).raw("</label><button class=\"danger\">Remove</button></form>")
    });
    let form = body.raw("<form method=\"post\" action=\"./\" class=\"change\"><fieldset><legend>New server</legend>");
    let form = form
        .add(hidden("add", None))
        .add(field("Address", "server", "text", ""))
        .add(field("Weight", "weight", "number", "1"));
    form.raw("<button>Add</button></fieldset></form></details>")
}

fn field(label: &'static str, name: &'static str, kind: &'static str, value: &str) -> Markup {
    let open =
        Markup::new().raw("<label>").raw(label).raw(" <input type=\"").raw(kind).raw("\" name=\"").raw(name).raw("\"");
    let open = match (kind, name) {
        ("number", "weight") => open.raw(" min=\"1\""),
        ("number", _) => open.raw(" min=\"0\""),
        _ => open.raw(" autocomplete=\"off\" size=\"16\""),
    };
    open.attribute("value", value).raw(" required></label>")
}
