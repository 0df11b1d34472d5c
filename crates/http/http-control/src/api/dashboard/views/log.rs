//! Dashboard section with the latest lines of all error logs, newest first.

use super::super::data::Data;
use super::super::html::{Cell, Column, Markup, Row, Table, Tone, badge, words};
use super::Section;
use observe::Level;
use observe::tail::{TailLine, lines};

const COLUMNS: &[Column] = &[words("Time"), words("Level"), words("Message")];

fn tone(level: Level) -> Tone {
    match level {
        Level::Stderr | Level::Emerg | Level::Alert | Level::Crit => Tone::Bad,
        Level::Error | Level::Warn => Tone::Warn,
        _ => Tone::Plain,
    }
}

pub fn section(_: &mut Data<'_>) -> Option<Section> {
    let rows = lines().iter().rev().map(row).collect();
    let caption = Markup::new().raw("Latest lines of the error logs");
    let table = Table { id: "log".into(), caption, columns: COLUMNS, rows };
    let empty = "<p class=\"note\">Lines since this process first served a dashboard, down to the level of each \
                 <code>error_log</code>. Fewer lines below <code>warn</code> are kept.</p>";
    Some(Section { id: "log", title: "Error log", body: table.show().raw(empty) })
}

fn row(line: &TailLine) -> Row {
    let text = String::from_utf8_lossy(&line.text);
    // Splits "2026/01/02 03:04:05 [warn] 1#2: message".
    let (time, rest) = text.split_at_checked(19).unwrap_or(("", &text));
    let head = format!(" [{}] ", line.level.name());
    let words = rest.strip_prefix(head.as_str()).unwrap_or(rest);
    let message = Markup::new().raw("<code>").text(words).raw("</code>");
    Row {
        key: line.number.to_string(),
        tone: if tone(line.level) == Tone::Bad { Tone::Bad } else { Tone::Plain },
        cells: vec![Cell::text(time), Cell::of(badge(tone(line.level), line.level.name())), Cell::of(message)],
    }
}
