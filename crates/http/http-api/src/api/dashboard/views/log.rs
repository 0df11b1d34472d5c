//! Dashboard section with the latest lines of all error logs, newest first.

use super::super::data::Data;
use super::super::html::{Cell, Column, HtmlTable, Markup, TableRow, Tone, state_badge, words_column};
use super::Section;
use observe::Severity;
use observe::tail::{TailLine, tail_lines};

const COLUMNS: &[Column] = &[words_column("Time"), words_column("Level"), words_column("Message")];

fn tone(level: Severity) -> Tone {
    match level {
        Severity::Stderr | Severity::Emerg | Severity::Alert | Severity::Crit => Tone::Bad,
        Severity::Error | Severity::Warn => Tone::Warn,
        _ => Tone::Plain,
    }
}

pub fn log_section(_: &mut Data<'_>) -> Option<Section> {
    let rows = tail_lines().iter().rev().map(row).collect();
    let caption = Markup::new().raw("Latest lines of the error logs");
    let table = HtmlTable { id: "log".into(), caption, columns: COLUMNS, rows };
    let empty = "<p class=\"note\">Lines since this process first served a dashboard, down to the level of each \
                 <code>error_log</code>. Fewer lines below <code>warn</code> are kept.</p>";
    Some(Section { id: "log", title: "Error log", body: table.show().raw(empty) })
}

fn row(line: &TailLine) -> TableRow {
    let text = String::from_utf8_lossy(&line.text);
    // Splits "2026/01/02 03:04:05 [warn] 1#2: message".
    let (time, rest) = text.split_at_checked(19).unwrap_or(("", &text));
    let head = format!(" [{}] ", line.level.name());
    let words = rest.strip_prefix(head.as_str()).unwrap_or(rest);
    let message = Markup::new().raw("<code>").text(words).raw("</code>");
    TableRow {
        key: line.number.to_string(),
        tone: if tone(line.level) == Tone::Bad { Tone::Bad } else { Tone::Plain },
        cells: vec![Cell::text(time), Cell::of(state_badge(tone(line.level), line.level.name())), Cell::of(message)],
    }
}
