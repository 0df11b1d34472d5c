//! The configuration that serves: its files, listeners, and the last reloads.

use super::super::data::Data;
use super::super::format;
use super::super::html::{Cell, Column, HtmlTable, Markup, TableRow, Tone, state_badge, words_column};
use super::{Section, place};
use metrics::Lifecycle;

const LOADS: &[Column] = &[words_column("Time"), words_column("Result"), words_column("Reason")];
const LISTENERS: &[Column] =
    &[words_column("Address"), words_column("Protocols"), words_column("Default server"), words_column("Configured")];
const FILES: &[Column] = &[words_column("File")];

pub fn configuration_section(data: &mut Data<'_>) -> Option<Section> {
    let loads = Lifecycle::record().into_iter().rev().enumerate().map(|(index, load)| {
        let time = Cell::text(format::format_time(load.at));
        let (tone, result, why) = match load.result {
            Ok(number) => (Tone::Good, format!("serves as configuration {number}"), Cell::none()),
            Err(why) => (Tone::Bad, "refused, the previous one stayed".into(), Cell::text(why)),
        };
        let row_tone = if tone == Tone::Bad && index == 0 { Tone::Bad } else { Tone::Plain };
        TableRow {
            key: format!("{} {index}", load.at),
            tone: row_tone,
            cells: vec![time, Cell::of(state_badge(tone, result)), why],
        }
    });
    let loads = loads.collect();
    let caption = Markup::new().raw("Starts and reloads, newest first");
    let body = HtmlTable { id: "loads".into(), caption, columns: LOADS, rows: loads }.show();
    let listeners = data.plan.listeners.iter().enumerate().map(|(index, listener)| {
        let mut protocols = Vec::new();
        protocols.push(if listener.quic {
            "HTTP/3 over QUIC"
        } else if listener.ssl {
            "HTTPS"
        } else {
            "HTTP"
        });
        if listener.http2 && !listener.quic {
            protocols.push("HTTP/2");
        }
        if listener.proxy_protocol {
            protocols.push("PROXY protocol");
        }
        let server = data.plan.srv(listener.default_server);
        let name = String::from_utf8_lossy(&server.name).into_owned();
        let name = if name.is_empty() { Cell::text("(no name)") } else { Cell::text(name) };
        let at = place(&data.place(data.plan.loc(server.location).at));
        let cells = vec![Cell::text(&listener.spec.address), Cell::text(protocols.join(", ")), name, at];
        TableRow { key: index.to_string(), tone: Tone::Plain, cells }
    });
    let caption = Markup::new().raw("Listeners of the http block");
    let body =
        body.add(HtmlTable { id: "listeners".into(), caption, columns: LISTENERS, rows: listeners.collect() }.show());
    let files = data.files.iter().enumerate().map(|(index, file)| {
        let cells = vec![place(&file.display().to_string())];
        TableRow { key: index.to_string(), tone: Tone::Plain, cells }
    });
    let caption = Markup::new().raw("Files, in the order of their reading");
    let body = body.add(HtmlTable { id: "files".into(), caption, columns: FILES, rows: files.collect() }.show());
    Some(Section { id: "configuration", title: "Configuration", body })
}
