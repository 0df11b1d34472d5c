//! Imported requests, and the session file that they become.

use std::fmt::Write as _;

use serde::Serialize;

use crate::bench::requests::RequestUrl;
use crate::engine::request::{PreparedRequest, RequestSpec};

/// Requests of an imported document, in their order.
#[derive(Clone, Debug, Default)]
pub struct ImportedSession {
    pub steps: Vec<ImportedStep>,
    /// Place and reason of everything that no step has.
    pub left_out: Vec<String>,
    /// Scheme and authority of the server; empty if the document has none.
    pub origin: String,
    /// Names of `${name}` that the document has no value for.
    pub unknown: Vec<String>,
}

/// One request. Path, headers and body are templates already.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ImportedStep {
    #[serde(skip)]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub method: String,
    pub path: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub think: String,
    #[serde(skip_serializing_if = "is_alone")]
    pub parallel: bool,
    #[serde(skip_serializing_if = "ImportedStatus::is_empty")]
    pub expect: ImportedStatus,
}

fn is_alone(parallel: &bool) -> bool {
    !*parallel
}

/// A session file with one step.
#[derive(Serialize)]
struct StepTable<'a> {
    step: [&'a ImportedStep; 1],
}

/// Statuses of a right answer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ImportedStatus {
    pub status: Vec<u16>,
}

impl ImportedStatus {
    fn is_empty(&self) -> bool {
        self.status.is_empty()
    }
}

impl ImportedSession {
    /// Notes something left out at a place.
    pub fn leave_out(&mut self, place: &str, reason: impl AsRef<str>) {
        self.left_out.push(format!("{place}: {}", reason.as_ref()));
    }

    /// Notes a name without a value; returns its place in the template.
    pub fn unknown_value(&mut self, name: &str) -> String {
        let name: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        if !self.unknown.contains(&name) {
            self.unknown.push(name.clone());
        }
        format!("${{{name}}}")
    }

    /// Adds a step if it can be sent; otherwise notes why not.
    pub fn push_step(&mut self, place: &str, step: ImportedStep) {
        let spec = RequestSpec {
            method: if step.method.is_empty() { "GET".into() } else { step.method.clone() },
            headers: step.headers.clone(),
            body: step.body.clone(),
            ..RequestSpec::get(&step.path)
        };
        match PreparedRequest::new(&spec, "h", &[], false) {
            Ok(_) => self.steps.push(step),
            Err(why) => self.leave_out(place, why),
        }
    }

    /// The session file; `file` names the document in its head. Fails if a step cannot be written.
    pub fn session_text(&self, file: &str) -> Result<String, String> {
        let url = if self.origin.is_empty() { "URL" } else { &self.origin };
        let mut out = format!("# Imported from {}: tidegate bench {url} --session FILE\n", comment(file));
        if !self.unknown.is_empty() {
            let names = self.unknown.join(", ");
            let _ = writeln!(out, "# Values to give with --data FILE: {names}");
        }
        for step in &self.steps {
            let table = toml::to_string(&StepTable { step: [step] }).map_err(|e| format!("{}: {e}", step.path))?;
            let _ = write!(out, "\n# {}\n{table}", comment(&step.name));
        }
        Ok(out)
    }
}

fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

/// Writes a text so that a template, and the columns of data, take it as it is.
pub fn escape_braces(text: &str) -> String {
    text.replace("{{", "{{lbrace}}").replace("${", "{{dollar}}{")
}

/// Reads a URL: its origin without the scheme's port, and its path.
pub fn split_url(text: &str) -> Result<(String, String), String> {
    let lower = text.to_ascii_lowercase();
    if !lower.starts_with("http://") && !lower.starts_with("https://") {
        let scheme = text.split(':').next().unwrap_or_default();
        return Err(format!("`{scheme}` is no request over HTTP"));
    }
    let url = RequestUrl::parse(text)?;
    let scheme = if url.tls { "https" } else { "http" };
    let usual = if url.tls { 443 } else { 80 };
    let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.to_ascii_lowercase() };
    let port = if url.port == usual { String::new() } else { format!(":{}", url.port) };
    Ok((format!("{scheme}://{host}{port}"), url.path))
}

/// Escapes a value for a query or a form (application/x-www-form-urlencoded, without `+`).
pub fn escape_form(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            // Placeholders stay.
            b'$' | b'{' | b'}' => out.push(byte as char),
            other => drop(write!(out, "%{other:02X}")),
        }
    }
    out
}
