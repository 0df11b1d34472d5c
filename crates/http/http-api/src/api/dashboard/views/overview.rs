//! Overview: warnings, then traffic, errors, times, connections and worker threads.

use super::super::data::{Data, count_at};
use super::super::format;
use super::super::history::{HistorySpan, Series, bucket_quantile};
use super::super::html::{Cell, Column, HtmlTable, Markup, TableRow, Tone, number_column, words_column};
use super::super::svg::draw_chart;
use super::alerts as list;
use metrics::{Lifecycle, process};

/// Share of a worker's time above which it has no reserve.
const BUSY_SHARE: f64 = 0.85;
/// Share of requests with 5xx within a minute that is a warning.
const FAILED_SHARE: f64 = 0.01;

pub fn collect_alerts(data: &mut Data<'_>) {
    let (failed, all) = data.history.failed;
    if failed >= 1.0 && failed >= all * FAILED_SHARE {
        let tone = if failed >= all * 0.1 { Tone::Bad } else { Tone::Warn };
        let share = format::format_percent((failed / all.max(failed)).min(1.0));
        data.alert(tone, "servers", format!("{} of the last minute's requests failed with 5xx", share));
    }
    if let Some(Err(why)) = Lifecycle::record().last().map(|last| last.result.clone()) {
        data.alert(Tone::Bad, "configuration", format!("The last reload was refused: {why}"));
    }
    let respawned = count_at(&data.api("/processes"), "/respawned");
    if respawned > 0 {
        data.alert(
            Tone::Bad,
            "log",
            format!(
                "{} replaced after an abnormal end",
                format::format_counted(respawned, "worker process", "worker processes")
            ),
        );
    }
    let keys = Lifecycle::now().key_processes_respawned;
    if keys > 0 {
        data.alert(
            Tone::Bad,
            "log",
            format!("{} replaced after an end or a hang", format::format_counted(keys, "key process", "key processes")),
        );
    }
    let panics = process::PANICS.sum();
    if panics > 0 {
        data.alert(
            Tone::Bad,
            "log",
            format!("{} ended by a panic", format::format_counted(panics, "request", "requests")),
        );
    }
    let refused = process::SANDBOX_REFUSED.sum();
    if refused > 0 {
        data.alert(
            Tone::Bad,
            "log",
            format!("The sandbox refused {}", format::format_counted(refused, "system call", "system calls")),
        );
    }
    let dropped = count_at(&data.api("/connections"), "/dropped");
    if dropped > 0 {
        let dropped = format::format_counted(dropped, "connection", "connections");
        let text = format!("{dropped} dropped: worker_connections is exhausted");
        data.alert(Tone::Warn, "overview", text);
    }
    let busy: Vec<usize> =
        data.history.workers.iter().filter(|(_, load)| load.busy > BUSY_SHARE).map(|(n, _)| *n).collect();
    if !busy.is_empty() {
        let text = format!(
            "{} of {} busy for more than 85 % of the time",
            busy.len(),
            format::format_counted(data.history.workers.len() as u64, "worker thread", "worker threads"),
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
        Some(value) => Markup::of(format::format_decimal(value)).raw(" <span class=\"unit\">").raw(unit).raw("</span>"),
    }
}

/// A gauge, which is whole at any time.
fn whole(value: Option<f64>) -> Markup {
    value.map_or_else(|| unit(None, ""), |value| Markup::of(format::format_count(value.round() as u64)))
}

fn sized(value: Option<f64>, per: &'static str) -> Markup {
    let Some(value) = value else { return Markup::new().raw("<span class=\"none\">–</span>") };
    let (number, unit) = format::scale_bytes(value);
    Markup::of(number).raw(" <span class=\"unit\">").raw(unit).raw(per).raw("</span>")
}

fn highest(data: &Data<'_>, series: Series) -> f64 {
    f64::from(data.history.line(series).iter().copied().filter(|v| v.is_finite()).fold(0.0, f32::max))
}

/// Draws the line of a series, with its extent as text.
fn line(data: &Data<'_>, span: HistorySpan, name: &str, series: Series, show: impl Fn(f64) -> String) -> Markup {
    let label = format!("{name}, {}: at most {}", span.words(), show(highest(data, series)));
    draw_chart(&[data.history.line(series)], label, span, show)
}

fn tiles(data: &Data<'_>, span: HistorySpan) -> Vec<Tile> {
    let history = &data.history;
    let requests = data.api("/http/requests");
    let connections = data.api("/connections");
    let per_second = |value: f64| format!("{}/s", format::format_decimal(value));
    let bytes = |value: f64| format::format_bytes(value.round() as u64);
    let now = |series| history.now(series);
    let total = |text: u64| Markup::of(format::format_count(text)).raw(" total");
    let mut tiles = vec![
        Tile {
            name: "Requests",
            value: unit(now(Series::Requests), "/s"),
            below: total(count_at(&requests, "/total")),
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
            below: Markup::of(format::format_counted(process::TASKS.sum(), "task", "tasks")),
            line: Some(line(data, span, "Requests in flight", Series::InFlight, format::format_decimal)),
            tone: Tone::Plain,
        },
    ];
    if process::UPSTREAM_REQUESTS.sum() > 0 {
        let at = |share| bucket_quantile(&history.minute, share);
        let [p50, p95, p99] =
            [0.5, 0.95, 0.99].map(|share| at(share).map_or_else(|| "–".into(), format::format_millis));
        let label = format!(
            "Response times of upstream servers, {}: p99 at most {}",
            span.words(),
            format::format_millis(highest(data, Series::P99))
        );
        let value = Markup::of(&p95).raw(" <span class=\"unit\">p95</span>");
        tiles.push(Tile {
            name: "Upstream response time",
            value,
            below: Markup::of(format_args!("p50 {p50} · p99 {p99}, last minute")),
            line: Some(draw_chart(
                &[Series::P99, Series::P95, Series::P50].map(|series| history.line(series)),
                label,
                span,
                format::format_millis,
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
                format::format_count(failures),
                format::format_counted(retries, "retry", "retries")
            )),
            line: Some(line(data, span, "Failed upstream requests per second", Series::UpstreamFailures, per_second)),
            tone: if now(Series::UpstreamFailures).is_some_and(|rate| rate > 0.0) { Tone::Warn } else { Tone::Plain },
        });
    }
    let states = [Series::Reading, Series::Writing, Series::Waiting]
        .map(|series| now(series).map_or_else(|| "–".into(), |value| format::format_count(value.round() as u64)));
    let [reading, writing, waiting] = &states;
    tiles.push(Tile {
        name: "Client connections",
        value: whole(now(Series::Connections)),
        below: Markup::of(format_args!("{reading} reading, {writing} writing, {waiting} waiting")),
        line: Some(line(data, span, "Connections", Series::Connections, format::format_decimal)),
        tone: Tone::Plain,
    });
    tiles.push(Tile {
        name: "Accepted connections",
        value: Markup::of(format::format_count(count_at(&connections, "/accepted"))),
        below: Markup::of(format::format_count(count_at(&connections, "/dropped"))).raw(" dropped"),
        line: None,
        tone: Tone::Plain,
    });
    tiles.push(Tile {
        name: "Sent to clients",
        value: sized(now(Series::Sent), "/s"),
        below: Markup::of(format::format_bytes(process::HTTP_SENT.sum())).raw(" total"),
        line: Some(line(data, span, "Bytes sent per second", Series::Sent, bytes)),
        tone: Tone::Plain,
    });
    tiles.push(Tile {
        name: "Received from clients",
        value: sized(now(Series::Received), "/s"),
        below: Markup::of(format::format_bytes(process::HTTP_RECEIVED.sum())).raw(" total"),
        line: Some(line(data, span, "Bytes received per second", Series::Received, bytes)),
        tone: Tone::Plain,
    });
    if process::TLS_HANDSHAKES.sum() + process::TLS_HANDSHAKES_FAILED.sum() > 0 {
        let (reused, failed) = (process::TLS_SESSION_REUSES.sum(), process::TLS_HANDSHAKES_FAILED.sum());
        tiles.push(Tile {
            name: "TLS handshakes",
            value: unit(now(Series::Handshakes), "/s"),
            below: Markup::of(format_args!(
                "{} resumed, {} failed",
                format::format_count(reused),
                format::format_count(failed)
            )),
            line: Some(line(data, span, "TLS handshakes per second", Series::Handshakes, per_second)),
            tone: Tone::Plain,
        });
    }
    if data.inventory.stream.is_present() || process::MAIL_SESSIONS.sum() > 0 {
        tiles.push(Tile {
            name: "TCP, UDP and mail sessions",
            value: whole(now(Series::Sessions)),
            below: Markup::of(format::format_count(process::STREAM_SESSIONS_ENDED.sum())).raw(" ended"),
            line: Some(line(data, span, "Sessions", Series::Sessions, format::format_decimal)),
            tone: Tone::Plain,
        });
    }
    tiles.push(Tile {
        name: "Worker threads busy",
        value: unit(now(Series::Busy).map(|share| share * 100.0), "%"),
        below: unit(
            now(Series::LongTurns),
            format::choose_noun(now(Series::LongTurns), "turn over 1 ms per second", "turns over 1 ms per second"),
        ),
        line: Some(line(data, span, "Worker threads busy", Series::Busy, format::format_percent)),
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
    words_column("Worker thread"),
    number_column("Active"),
    number_column("Idle"),
    number_column("Accepted"),
    number_column("Requests"),
    number_column("Requests/s"),
    number_column("Busy"),
    number_column("Turn, mean"),
    number_column("Turns > 1 ms/s"),
];

fn workers(data: &Data<'_>) -> Markup {
    let all = data.api("/workers");
    let rows = all.as_array().into_iter().flatten().map(|worker| {
        let id = count_at(worker, "/id");
        let load = data.history.workers.get(&(id as usize));
        let of = |read: fn(&super::super::history::WorkerLoad) -> f64, show: fn(f64) -> String| {
            load.map(read).map_or_else(Cell::none, |value| Cell::number(value, show(value)))
        };
        let is_busy = load.is_some_and(|load| load.busy > BUSY_SHARE);
        TableRow {
            key: id.to_string(),
            tone: if is_busy { Tone::Warn } else { Tone::Plain },
            cells: vec![
                Cell::number(id as f64, id),
                Cell::count(count_at(worker, "/connections/active")),
                Cell::count(count_at(worker, "/connections/idle")),
                Cell::count(count_at(worker, "/connections/accepted")),
                Cell::count(count_at(worker, "/http/requests/total")),
                of(|load| load.requests, format::format_decimal),
                of(|load| load.busy, format::format_percent),
                of(|load| load.turn_micros / 1000.0, format::format_millis),
                of(|load| load.long_turns, format::format_decimal),
            ],
        }
    });
    let caption = Markup::new().raw("Worker threads, last 5 seconds");
    let table = HtmlTable { id: "workers".into(), caption, columns: WORKERS, rows: rows.collect() };
    Markup::new().raw("<div id=\"workers\">").add(table.show()).raw("</div>")
}

/// Builds the overview; lines cover `span`, whose history `data` has.
pub fn overview_body(data: &Data<'_>, span: HistorySpan) -> Markup {
    let choice = |wanted: HistorySpan, link: &'static str| match wanted == span {
        true => {
            Markup::new().raw("<a aria-current=\"true\" href=\"").raw(link).raw("\">").raw(wanted.words()).raw("</a>")
        }
        false => Markup::new().raw("<a href=\"").raw(link).raw("\">").raw(wanted.words()).raw("</a>"),
    };
    let open = Markup::new().raw("<div id=\"alerts\">").add(list(&data.alerts)).raw("</div><p class=\"span\">Lines: ");
    let open = open.add(choice(HistorySpan::Minutes, "./")).raw(" ").add(choice(HistorySpan::Hour, "./?span=hour"));
    let tiles = open.raw("</p><div class=\"tiles\">").each(tiles(data, span), Tile::show);
    tiles.raw("</div>").add(workers(data))
}
