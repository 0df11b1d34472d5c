//! Differences as text and JSON.

use super::{DiffChange, DiffLine, is_move};
use serde_json::{Value, json as object};
use std::fmt::Write;

const COLUMN: usize = 68;

/// Groups by block; `-` was in force, `+` is.
pub fn changes_text(changes: &[DiffChange], colour: bool) -> String {
    let mut out = String::new();
    let mut path: Option<&[String]> = None;
    let (red, green, reset) = if colour { ("\x1b[31m", "\x1b[32m", "\x1b[0m") } else { ("", "", "") };
    for change in changes {
        if path != Some(&change.path) {
            let title = if change.path.is_empty() { "main".to_string() } else { change.path.join(" > ") };
            let _ = writeln!(out, "{}{title}", if out.is_empty() { "" } else { "\n" });
            path = Some(&change.path);
        }
        let named = change.old.iter().chain(&change.new).any(|line| line.text.starts_with(change.what.as_str()));
        if is_move(&change.old, &change.new) {
            let _ = writeln!(out, "  {}: moved, and the order matters", change.what);
        } else if !named && change.what != "allow, deny" && change.what != "rewrite" {
            let _ = writeln!(out, "  {}:", change.what);
        }
        let mut print = |lines: &[DiffLine], sign: &str, colour: &str| {
            for line in lines {
                let text = format!("  {sign} {}", line.text);
                let place = match &line.place {
                    Some((file, number)) => format!("# {file}:{number}"),
                    None => "# default".to_string(),
                };
                let _ = writeln!(out, "{colour}{text:<COLUMN$}{reset} {place}");
            }
        };
        print(&change.old, "-", red);
        print(&change.new, "+", green);
    }
    out
}

pub fn changes_json(changes: &[DiffChange]) -> Value {
    let lines = |lines: &[DiffLine]| -> Vec<Value> {
        let one = |line: &DiffLine| {
            let (file, number) = line.place.clone().unzip();
            object!({ "text": line.text, "file": file, "line": number })
        };
        lines.iter().map(one).collect()
    };
    let one = |change: &DiffChange| object!({ "in": change.path, "what": change.what, "moved": is_move(&change.old, &change.new), "old": lines(&change.old), "new": lines(&change.new) });
    object!({ "same": changes.is_empty(), "changes": changes.iter().map(one).collect::<Vec<_>>() })
}
