//! The audit log: native parts and JSON, as values; the caller writes them.

use crate::message::{RuleMatch, printable};
use crate::moment::Moment;
use crate::rule::EngineState;
use crate::set::AuditFormat;
use serde_json::{Map, Value, json};

/// The facts of a transaction that the audit log shows.
pub(crate) struct AuditFacts<'t> {
    pub moment: Moment,
    pub unique_id: &'t str,
    pub client: (&'t str, u16),
    pub server: (&'t str, u16),
    pub method: &'t [u8],
    pub uri: &'t [u8],
    /// "1.1"
    pub version: &'t [u8],
    pub request_headers: Vec<(&'t [u8], &'t [u8])>,
    pub request_body: &'t [u8],
    pub status: u16,
    pub response_headers: Vec<(&'t [u8], &'t [u8])>,
    pub response_body: &'t [u8],
    pub matches: &'t [RuleMatch],
    pub parts: &'t str,
    pub engine: EngineState,
    pub components: &'t [String],
    pub connector: &'t str,
}

/// The entry of the audit log, with a newline at its end. `boundary` divides the native parts.
pub(crate) fn entry(facts: &AuditFacts, format: AuditFormat, boundary: &str) -> String {
    match format {
        AuditFormat::Native => native(facts, boundary),
        AuditFormat::Json => format!("{}\n", document(facts)),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn dash_if_empty(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".into() } else { text(bytes) }
}

fn native(facts: &AuditFacts, boundary: &str) -> String {
    let has = |part: char| facts.parts.contains(part);
    let mut out = String::new();
    let mut part = |letter: char, content: &str| out.push_str(&format!("--{boundary}-{letter}--\n{content}\n"));
    let (client, client_port) = facts.client;
    let (server, server_port) = facts.server;
    let head =
        format!("[{}] {} {client} {client_port} {server} {server_port}", facts.moment.log_form(), facts.unique_id);
    part('A', &head);
    let headers = |list: &[(&[u8], &[u8])]| {
        let lines = list.iter().map(|(name, value)| format!("{}: {}\n", text(name), text(value)));
        lines.collect::<String>()
    };
    if has('B') {
        let line = format!("{} {} HTTP/{}", dash_if_empty(facts.method), text(facts.uri), text(facts.version));
        part('B', &format!("{line}\n{}", headers(&facts.request_headers)));
    }
    if has('C') && !facts.request_body.is_empty() {
        part('C', &format!("{}\n", text(facts.request_body)));
    }
    if has('E') && !facts.response_body.is_empty() {
        part('E', &format!("{}\n", printable(facts.response_body, false)));
    }
    if has('F') {
        let line = format!("HTTP/{} {}", text(facts.version), facts.status);
        part('F', &format!("{line}\n{}", headers(&facts.response_headers)));
    }
    if has('H') {
        let lines = facts.matches.iter().map(|found| format!("{}\n", found.log_line()));
        part('H', &lines.collect::<String>());
    }
    part('Z', "");
    out
}

fn document(facts: &AuditFacts) -> Value {
    let has = |part: char| facts.parts.contains(part);
    let headers = |list: &[(&[u8], &[u8])]| {
        Value::Object(list.iter().map(|(name, value)| (text(name), Value::from(text(value)))).collect::<Map<_, _>>())
    };
    let version: f64 = text(facts.version).parse().unwrap_or(0.0);
    let mut request = object([
        ("method", dash_if_empty(facts.method).into()),
        ("http_version", version.into()),
        ("uri", text(facts.uri).into()),
    ]);
    let mut response = object([("http_code", facts.status.into())]);
    let add = |map: &mut Map<String, Value>, part: char, name: &str, value: Value| {
        if has(part) {
            map.insert(name.into(), value);
        }
    };
    add(&mut request, 'C', "body", text(facts.request_body).into());
    add(&mut request, 'B', "headers", headers(&facts.request_headers));
    add(&mut response, 'E', "body", text(facts.response_body).into());
    add(&mut response, 'F', "headers", headers(&facts.response_headers));
    let mut transaction = object([
        ("client_ip", facts.client.0.into()),
        ("time_stamp", facts.moment.text_form().into()),
        ("client_port", facts.client.1.into()),
        ("host_ip", facts.server.0.into()),
        ("host_port", facts.server.1.into()),
        ("unique_id", facts.unique_id.into()),
        ("request", request.into()),
        ("response", response.into()),
    ]);
    let engine = match facts.engine {
        EngineState::On => "Enabled",
        EngineState::Off => "Disabled",
        EngineState::DetectionOnly => "DetectionOnly",
    };
    let producer = json!({
        "modsecurity": "",
        "connector": facts.connector,
        "secrules_engine": engine,
        "components": facts.components,
    });
    add(&mut transaction, 'H', "producer", producer);
    add(&mut transaction, 'H', "messages", facts.matches.iter().map(message).collect());
    json!({ "transaction": transaction })
}

fn object<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    entries.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

fn message(found: &RuleMatch) -> Value {
    json!({
        "message": found.message,
        "details": {
            "match": found.cause,
            "reference": found.reference,
            "ruleId": found.id.to_string(),
            "file": &*found.file,
            "lineNumber": found.line.to_string(),
            "data": found.data,
            "severity": found.severity.unwrap_or(0).to_string(),
            "ver": &*found.version,
            "rev": &*found.revision,
            "tags": found.tags,
            "maturity": found.maturity.to_string(),
            "accuracy": found.accuracy.to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use crate::*;
    use std::sync::Arc;

    fn audited(format: &str) -> String {
        let text = format!(
            "SecRuleEngine On\nSecRequestBodyAccess On\nSecAuditEngine RelevantOnly\nSecAuditLogFormat {format}\nSecAuditLogParts ABCFHZ\n\
             SecRule ARGS x \"id:1,phase:2,deny,msg:'m',severity:3\""
        );
        let texts = [RuleText { name: "a.conf".into(), text }];
        let rules = RuleSet::compile(&texts, &NoFiles).expect("rules").0;
        let connection =
            Connection { client_address: "192.0.2.1".into(), unique_id: "u".into(), ..Connection::default() };
        let mut transaction = Transaction::new(&rules, &Arc::new(Services::default()), connection);
        transaction.uri(b"GET", b"/?a=x", "1.1");
        transaction.request_header(b"Host", b"h");
        transaction.request_headers();
        transaction.request_body(b"");
        transaction.log();
        assert!(transaction.is_audited());
        transaction.audit_text("12345678")
    }

    #[test]
    fn native_entries_have_parts() {
        let text = audited("Native");
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("--")).collect();
        assert_eq!(heads, ["--12345678-A--", "--12345678-B--", "--12345678-F--", "--12345678-H--", "--12345678-Z--"]);
        assert!(text.contains("GET /?a=x HTTP/1.1\nHost: h\n"));
        assert!(text.contains("Access denied with code 403 (phase 2)"));
    }

    #[test]
    fn json_entries_have_messages() {
        let value: serde_json::Value = serde_json::from_str(&audited("JSON")).expect("JSON");
        let transaction = &value["transaction"];
        assert_eq!(transaction["request"]["headers"]["Host"], "h");
        assert_eq!(transaction["response"]["http_code"], 403);
        assert_eq!(transaction["messages"][0]["details"]["ruleId"], "1");
        assert_eq!(transaction["producer"]["secrules_engine"], "Enabled");
    }
}
