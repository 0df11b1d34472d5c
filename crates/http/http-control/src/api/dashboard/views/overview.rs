//! Overview: warnings, then traffic, errors, times, connections and worker threads.

use super::super::data::{Data, count};
use super::super::format;
use super::super::history::{Series, Span, quantile};
use super::super::html::{Cell, Column, Markup, Row, Table, Tone, number, words};
use super::super::svg::chart;
use super::alerts as list;
use metrics::{Lifecycle, process};

/// Share of a worker's time above which it has no reserve.
const BUSY_SHARE: f64 = 0.85;
/// Share of requests with 5xx within a minute that is a warning.
const FAILED_SHARE: f64 = 0.01;

pub fn alerts(data: &mut Data<'_>) {
    let (failed, all) = data.history.failed;
    if failed >= 1.0 && failed >= all * FAILED_SHARE {
        let tone = if failed >= all * 0.1 { Tone::Bad } else { Tone::Warn };
        let share = format::percent((failed / all.max(failed)).min(1.0));
        data.alert(tone, "servers", format!("{} of the last minute's requests failed with 5xx", share));
    }
    if let Some(Err(why)) = Lifecycle::record().last().map(|last| last.result.clone()) {
        data.alert(Tone::Bad, "configuration", format!("The last reload was refused: {why}"));
    }
    let respawned = count(&data.api("/processes"), "/respawned");
    if respawned > 0 {
        data.alert(
            Tone::Bad,
            "log",
            format!(
                "{} replaced after an abnormal end",
                format::counted(respawned, "worker process", "worker processes")
            ),
        );
    }
    let keys = Lifecycle::now().key_processes_respawned;
    if keys > 0 {
        data.alert(
            Tone::Bad,
            "log",
            format!("{} replaced after an end or a hang", format::counted(keys, "key process", "key processes")),
        );
    }
    let panics = process::PANICS.sum();
    if panics > 0 {
        data.alert(Tone::Bad, "log", format!("{} ended by a panic", format::counted(panics, "request", "requests")));
    }
    let refused = process::SANDBOX_REFUSED.sum();
    if refused > 0 {
        data.alert(
            Tone::Bad,
            "log",
            format!("The sandbox refused {}", format::counted(refused, "system call", "system calls")),
        );
    }
    let dropped = count(&data.api("/connections"), "/dropped");
    if dropped > 0 {
        let dropped = format::counted(dropped, "connection", "connections");
        let text = format!("{dropped} dropped: worker_connections is exhausted");
        data.alert(Tone::Warn, "overview", text);
    }
    let busy: Vec<usize> =
        data.history.workers.iter().filter(|(_, load)| load.busy > BUSY_SHARE).map(|(n, _)| *n).collect();
    if !busy.is_empty() {
        let text = format!(
            "{} of {} busy for more than 85 % of the time",
            busy.len(),
            format::counted(data.history.workers.len() as u64, "worker thread", "worker threads"),
        );
        data.alert(Tone::Warn, "workers", text);
    }
}

struct Tile {
    name: &'static str,
    value: Markup,
    below: Markup,
    line: Option<Markup>,
    tone: Tone,
}

impl Tile {
    fn show(self) -> Markup {
        let open = Markup::new().raw("<div class=\"tile ").raw(self.tone.class()).raw("\"><h3>").raw(self.name);
        let value = open.raw("</h3><p class=\"value\">").add(self.value).raw("</p><p class=\"below\">").add(self.below);
        value.raw("</p>").add(self.line.unwrap_or_default()).raw("</div>")
    }
}

fn unit(value: Option<f64>, unit: &'static str) -> Markup {
    match value {
        None => Markup::new().raw("<span class=\"none\">–</span>"),
        Some(value) => Markup::of(format::decimal(value)).raw(" <span class=\"unit\">").raw(unit).raw("</span>"),
    }
}

/// A gauge, which is whole at any time.
fn whole(value: Option<f64>) -> Markup {
    value.map_or_else(|| unit(None, ""), |value| Markup::of(format::count(value.round() as u64)))
}

fn sized(value: Option<f64>, per: &'static str) -> Markup {
    let Some(value) = value else { return Markup::new().raw("<span class=\"none\">–</span>") };
    let (number, unit) = format::scaled(value);
    Markup::of(number).raw(" <span class=\"unit\">").raw(unit).raw(per).raw("</span>")
}

fn highest(data: &Data<'_>, series: Series) -> f64 {
    f64::from(data.history.line(series).iter().copied().filter(|v| v.is_finite()).fold(0.0, f32::max))
}

/// Draws the line of a series, with its extent as text.
fn line(data: &Data<'_>, span: Span, name: &str, series: Series, show: impl Fn(f64) -> String) -> Markup {
    let label = format!("{name}, {}: at most {}", span.words(), show(highest(data, series)));
    chart(&[data.history.line(series)], label, span, show)
}

fn tiles(data: &Data<'_>, span: Span) -> Vec<Tile> {
    let history = &data.history;
    let requests = data.api("/http/requests");
    let connections = data.api("/connections");
    let per_second = |value: f64| format!("{}/s", format::decimal(value));
    let bytes = |value: f64| format::bytes(value.round() as u64);
    let now = |series| history.now(series);
    let total = |text: u64| Markup::of(format::count(text)).raw(" total");
    let mut tiles = vec![
        Tile {
            name: "Requests",
            value: unit(now(Series::Requests), "/s"),
            below: total(count(&requests, "/total")),
            line: Some(line(data, span, "Requests per second", Series::Requests, per_second)),
            tone: Tone::Plain,
        },
        Tile {
            name: "Server errors (5xx)",
            value: unit(now(Series::ServerErrors), "/s"),
            below: total(process::HTTP_RESPONSES.sum_at(4)),
            line: Some(line(data, span, "Responses with 5xx per second", Series::ServerErrors, per_second)),
            tone: if now(Series::ServerErrors).is_some_and(|rate| rate > 0.0) { Tone::Bad } else { Tone::Plain },
        },
        Tile {
            name: "Client errors (4xx)",
            value: unit(now(Series::ClientErrors), "/s"),
            below: total(process::HTTP_RESPONSES.sum_at(3)),
            line: Some(line(data, span, "Responses with 4xx per second", Series::ClientErrors, per_second)),
            tone: Tone::Plain,
        },
        Tile {
            name: "Requests in flight",
            value: whole(now(Series::InFlight)),
            below: Markup::of(format::counted(process::TASKS.sum(), "task", "tasks")),
            line: Some(line(data, span, "Requests in flight", Series::InFlight, format::decimal)),
            tone: Tone::Plain,
        },
    ];
    if process::UPSTREAM_REQUESTS.sum() > 0 {
        let at = |share| quantile(&history.minute, share);
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| at(share).map_or_else(|| "–".into(), format::millis));
        let label = format!(
            "Response times of upstream servers, {}: p99 at most {}",
            span.words(),
            format::millis(highest(data, Series::P99))
        );
        let value = Markup::of(&p95).raw(" <span class=\"unit\">p95</span>");
        tiles.push(Tile {
            name: "Upstream response time",
            value,
            below: Markup::of(format_args!("p50 {p50} · p99 {p99}, last minute")),
            line: Some(chart(
                &[Series::P99, Series::P95, Series::P50].map(|series| history.line(series)),
                label,
                span,
                format::millis,
            )),
            tone: Tone::Plain,
        });
        let failures = process::UPSTREAM_FAILURES.sum();
        let retries = process::UPSTREAM_RETRIES.sum();
        tiles.push(Tile {
            name: "Upstream failures",
            value: unit(now(Series::UpstreamFailures), "/s"),
            below: Markup::of(format_args!(
                "{} total, {}",
                format::count(failures),
                format::counted(retries, "retry", "retries")
            )),
            line: Some(line(data, span, "Failed upstream requests per second", Series::UpstreamFailures, per_second)),
            tone: if now(Series::UpstreamFailures).is_some_and(|rate| rate > 0.0) { Tone::Warn } else { Tone::Plain },
        });
    }
    let states = [Series::Reading, Series::Writing, Series::Waiting]
        .map(|series| now(series).map_or_else(|| "–".into(), |value| format::count(value.round() as u64)));
    let [reading, writing, waiting] = &states;
    tiles.push(Tile {
        name: "Client connections",
        value: whole(now(Series::Connections)),
        below: Markup::of(format_args!("{reading} reading, {writing} writing, {waiting} waiting")),
        line: Some(line(data, span, "Connections", Series::Connections, format::decimal)),
        tone: Tone::Plain,
    });
    tiles.push(Tile {
        name: "Accepted connections",
        value: Markup::of(format::count(count(&connections, "/accepted"))),
        below: Markup::of(format::count(count(&connections, "/dropped"))).raw(" dropped"),
        line: None,
        tone: Tone::Plain,
    });
    tiles.push(Tile {
        name: "Sent to clients",
        value: sized(now(Series::Sent), "/s"),
        below: Markup::of(format::bytes(process::HTTP_SENT.sum())).raw(" total"),
        line: Some(line(data, span, "Bytes sent per second", Series::Sent, bytes)),
        tone: Tone::Plain,
    });
    tiles.push(Tile {
        name: "Received from clients",
        value: sized(now(Series::Received), "/s"),
        below: Markup::of(format::bytes(process::HTTP_RECEIVED.sum())).raw(" total"),
        line: Some(line(data, span, "Bytes received per second", Series::Received, bytes)),
        tone: Tone::Plain,
    });
    if process::TLS_HANDSHAKES.sum() + process::TLS_HANDSHAKES_FAILED.sum() > 0 {
        let (reused, failed) = (process::TLS_SESSION_REUSES.sum(), process::TLS_HANDSHAKES_FAILED.sum());
        tiles.push(Tile {
            name: "TLS handshakes",
            value: unit(now(Series::Handshakes), "/s"),
            below: Markup::of(format_args!("{} resumed, {} failed", format::count(reused), format::count(failed))),
            line: Some(line(data, span, "TLS handshakes per second", Series::Handshakes, per_second)),
            tone: Tone::Plain,
        });
    }
    if data.inventory.stream.is_present() || process::MAIL_SESSIONS.sum() > 0 {
        tiles.push(Tile {
            name: "TCP, UDP and mail sessions",
            value: whole(now(Series::Sessions)),
            below: Markup::of(format::count(process::STREAM_SESSIONS_ENDED.sum())).raw(" ended"),
            line: Some(line(data, span, "Sessions", Series::Sessions, format::decimal)),
            tone: Tone::Plain,
        });
    }
    tiles.push(Tile {
        name: "Worker threads busy",
        value: unit(now(Series::Busy).map(|share| share * 100.0), "%"),
        below: unit(
            now(Series::LongTurns),
            format::noun(now(Series::LongTurns), "turn over 1 ms per second", "turns over 1 ms per second"),
        ),
        line: Some(line(data, span, "Worker threads busy", Series::Busy, format::percent)),
        tone: if now(Series::Busy).is_some_and(|share| share > BUSY_SHARE) { Tone::Warn } else { Tone::Plain },
    });
    if let Some(memory) = now(Series::Memory) {
        tiles.push(Tile {
            name: "Memory",
            value: sized(Some(memory), ""),
            below: Markup::new().raw("resident, worker process"),
            line: Some(line(data, span, "Resident memory", Series::Memory, bytes)),
            tone: Tone::Plain,
        });
    }
    tiles
}

const WORKERS: &[Column] = &[
    words("Worker thread"),
    number("Active"),
    number("Idle"),
    number("Accepted"),
    number("Requests"),
    number("Requests/s"),
    number("Busy"),
    number("Turn, mean"),
    number("Turns > 1 ms/s"),
];

fn workers(data: &Data<'_>) -> Markup {
    let all = data.api("/workers");
    let rows = all.as_array().into_iter().flatten().map(|worker| {
        let id = count(worker, "/id");
        let load = data.history.workers.get(&(id as usize));
        let of = |read: fn(&super::super::history::WorkerLoad) -> f64, show: fn(f64) -> String| {
            load.map(read).map_or_else(Cell::none, |value| Cell::number(value, show(value)))
        };
        let is_busy = load.is_some_and(|load| load.busy > BUSY_SHARE);
        Row {
            key: id.to_string(),
            tone: if is_busy { Tone::Warn } else { Tone::Plain },
            cells: vec![
                Cell::number(id as f64, id),
                Cell::count(count(worker, "/connections/active")),
                Cell::count(count(worker, "/connections/idle")),
                Cell::count(count(worker, "/connections/accepted")),
                Cell::count(count(worker, "/http/requests/total")),
                of(|load| load.requests, format::decimal),
                of(|load| load.busy, format::percent),
                of(|load| load.turn_micros / 1000.0, format::millis),
                of(|load| load.long_turns, format::decimal),
            ],
        }
    });
    let caption = Markup::new().raw("Worker threads, last 5 seconds");
    let table = Table { id: "workers".into(), caption, columns: WORKERS, rows: rows.collect() };
    Markup::new().raw("<div id=\"workers\">").add(table.show()).raw("</div>")
}

/// Builds the overview; lines cover `span`, whose history `data` has.
pub fn body(data: &Data<'_>, span: Span) -> Markup {
    let choice = |wanted: Span, link: &'static str| match wanted == span {
        true => {
            Markup::new().raw("<a aria-current=\"true\" href=\"").raw(link).raw("\">").raw(wanted.words()).raw("</a>")
        }
        false => Markup::new().raw("<a href=\"").raw(link).raw("\">").raw(wanted.words()).raw("</a>"),
    };
    let open = Markup::new().raw("<div id=\"alerts\">").add(list(&data.alerts)).raw("</div><p class=\"span\">Lines: ");
    let open = open.add(choice(Span::Minutes, "./")).raw(" ").add(choice(Span::Hour, "./?span=hour"));
    let tiles = open.raw("</p><div class=\"tiles\">").each(tiles(data, span), Tile::show);
    tiles.raw("</div>").add(workers(data))
}
