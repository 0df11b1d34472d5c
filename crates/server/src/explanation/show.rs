//! Formats the trace of a request as text and as JSON.

use serde_json::{Value, json as object};
use std::fmt::Write;

/// File and line.
pub type SourcePlace = Option<(String, u32)>;

pub struct InForce {
    pub text: String,
    pub place: SourcePlace,
}

pub struct Report {
    pub kind: String,
    pub text: String,
    pub place: SourcePlace,
    pub lines: Vec<InForce>,
}

#[derive(Default)]
pub struct RequestTrace {
    pub request: String,
    pub steps: Vec<Report>,
    /// The request would be passed to a server.
    pub passes: Option<InForce>,
    /// The response, with its header fields.
    pub status: Option<u16>,
    pub headers: Vec<(String, String)>,
    pub in_force: Vec<InForce>,
}

/// Column of file and line.
const COLUMN: usize = 72;

pub fn trace_text(told: &RequestTrace) -> String {
    let mut out = format!("{}\n\n", told.request);
    let mut before = "";
    for step in &told.steps {
        let kind = if step.kind == before { "" } else { &step.kind };
        line(&mut out, &format!("{kind:<12} {}", step.text), &step.place);
        for inner in &step.lines {
            line(&mut out, &format!("{:<13}  {}", "", inner.text), &inner.place);
        }
        before = &step.kind;
    }
    match (&told.passes, told.status) {
        (Some(passes), _) => line(&mut out, &format!("{:<13}{}", "proxied to", passes.text), &passes.place),
        (None, Some(status)) => line(&mut out, &format!("{:<13}{status}", "response"), &None),
        (None, None) => line(&mut out, &format!("{:<13}none: the connection is closed", "response"), &None),
    }
    for (name, value) in &told.headers {
        line(&mut out, &format!("{:<13}{name}: {value}", ""), &None);
    }
    if !told.in_force.is_empty() {
        out.push_str("\neffective directives\n");
        for inner in &told.in_force {
            line(&mut out, &format!("  {}", inner.text), &inner.place);
        }
    }
    out
}

fn line(out: &mut String, text: &str, place: &SourcePlace) {
    match place {
        Some((file, number)) if text.chars().count() < COLUMN => {
            let _ = writeln!(out, "{text:<COLUMN$}# {file}:{number}");
        }
        Some((file, number)) => {
            let _ = writeln!(out, "{text}  # {file}:{number}");
        }
        None => {
            let _ = writeln!(out, "{}", text.trim_end());
        }
    }
}

pub fn trace_json(told: &RequestTrace) -> Value {
    let inner = |line: &InForce| {
        let (file, number) = line.place.clone().unzip();
        object!({ "text": line.text, "file": file, "line": number })
    };
    let steps: Vec<Value> = told
        .steps
        .iter()
        .map(|step| {
            let (file, number) = step.place.clone().unzip();
            let lines: Vec<Value> = step.lines.iter().map(inner).collect();
            object!({ "kind": step.kind, "text": step.text, "file": file, "line": number, "directives": lines })
        })
        .collect();
    let headers: Vec<Value> = told.headers.iter().map(|(name, value)| object!([name, value])).collect();
    object!({
        "request": told.request,
        "steps": steps,
        "passes": told.passes.as_ref().map(inner),
        "status": told.status,
        "headers": headers,
        "in_force": told.in_force.iter().map(inner).collect::<Vec<_>>(),
    })
}
