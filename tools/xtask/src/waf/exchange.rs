//! A request of a regression test, as a server would hand it to the engine, and the answer of the tests' backend.

use ::waf::{Connection, RuleSet, Services, Transaction};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::sync::Arc;

/// A parsed request.
pub struct RuleExchange {
    method: Vec<u8>,
    uri: Vec<u8>,
    /// "1.1"
    version: String,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

/// The findings of the engine and the status of the backend.
pub struct Outcome {
    ids: Vec<u64>,
    /// Lines of the error log.
    pub log: String,
    pub status: u16,
}

impl Outcome {
    pub fn has(&self, id: u64) -> bool {
        self.ids.contains(&id)
    }
}

/// The answer of the backend.
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// Decodes Base64 with line ends.
fn decode(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    STANDARD.decode(text.split_ascii_whitespace().collect::<String>())
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

impl RuleExchange {
    /// Reads the `input` of a stage; headers that the test leaves out are added, as the tests' runner does.
    pub fn new(input: &Value) -> Result<RuleExchange, String> {
        if let Some(encoded) = input["encoded_request"].as_str().filter(|text| !text.is_empty()) {
            let raw = decode(encoded).map_err(|error| format!("encoded_request: {error}"))?;
            return Ok(RuleExchange::parse(&raw));
        }
        let mut headers: Vec<(Vec<u8>, Vec<u8>)> = match &input["headers"] {
            Value::Object(map) => map.iter().map(|(name, value)| (name.clone().into(), scalar(value).into())).collect(),
            _ => Vec::new(),
        };
        let body = match (input["encoded_data"].as_str(), &input["data"]) {
            (Some(encoded), _) => decode(encoded).map_err(|error| format!("encoded_data: {error}"))?,
            (None, data) => scalar(data).into_bytes(),
        };
        let is_given = |name: &str| {
            let headers = input["headers"].as_object();
            headers.is_some_and(|headers| headers.keys().any(|known| known.eq_ignore_ascii_case(name)))
        };
        if input["autocomplete_headers"].as_bool() != Some(false) && input["stop_magic"].as_bool() != Some(true) {
            let mut add = |name: &str, value: &str| headers.push((name.into(), value.into()));
            if !body.is_empty() && !is_given("content-type") {
                add("Content-Type", "application/x-www-form-urlencoded");
            }
            if !body.is_empty() && !is_given("content-length") && !is_given("transfer-encoding") {
                add("Content-Length", &body.len().to_string());
            }
            if !is_given("connection") {
                add("Connection", "close");
            }
        }
        let text = |name: &str, default: &str| input[name].as_str().unwrap_or(default).to_string();
        Ok(RuleExchange {
            method: text("method", "GET").into(),
            uri: text("uri", "/").into(),
            version: number_of(&text("version", "HTTP/1.1")),
            body: received(&headers, body),
            headers,
        })
    }

    /// Divides the bytes of a request without any checks of a server.
    fn parse(raw: &[u8]) -> RuleExchange {
        let end = raw.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = match end {
            Some(end) => (raw.get(..end).unwrap_or_default(), raw.get(end + 4..).unwrap_or_default()),
            None => (raw, &[][..]),
        };
        let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let first = lines.next().unwrap_or_default();
        let mut words = first.splitn(2, |byte| *byte == b' ');
        let method = words.next().unwrap_or_default().to_vec();
        let rest = words.next().unwrap_or_default();
        let split = rest.iter().rposition(|byte| *byte == b' ').unwrap_or(rest.len());
        let (uri, version) = rest.split_at(split);
        let version = String::from_utf8_lossy(version.get(1..).unwrap_or_default()).into_owned();
        let headers = lines.map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let (name, value) = line.split_at(colon);
            (name.to_vec(), value.get(1..).unwrap_or_default().trim_ascii().to_vec())
        });
        let headers: Vec<_> = headers.filter(|(name, _)| !name.is_empty()).collect();
        let body = received(&headers, body.to_vec());
        let version = number_of(&version);
        RuleExchange { method, uri: uri.to_vec(), version, headers, body }
    }

    fn answer(&self) -> Answer {
        let mut answer =
            Answer { status: 200, headers: vec![("Content-Type".into(), "text/plain".into())], body: Vec::new() };
        if !self.uri.starts_with(b"/reflect") {
            return answer;
        }
        let Ok(wanted) = serde_json::from_slice::<Value>(&self.body) else {
            answer.status = if self.body.is_empty() { 200 } else { 400 };
            return answer;
        };
        if let Some(status) = wanted["status"].as_u64().and_then(|status| u16::try_from(status).ok()) {
            answer.status = status;
        }
        for (name, value) in wanted["headers"].as_object().into_iter().flatten() {
            answer.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            answer.headers.push((name.clone(), scalar(value)));
        }
        answer.body = match wanted["encodedBody"].as_str() {
            Some(encoded) => STANDARD.decode(encoded).unwrap_or_default(),
            None => scalar(&wanted["body"]).into_bytes(),
        };
        answer
    }

    /// Runs all phases; `all_values` evaluates every rule with every value, also if it could not match.
    pub fn run(&self, rules: &Arc<RuleSet>, services: &Arc<Services>, all_values: bool) -> Outcome {
        let connection = Connection {
            client_address: "127.0.0.1".into(),
            client_port: 40_000,
            server_address: "127.0.0.1".into(),
            server_port: 80,
            unique_id: "judge".into(),
            hostname: String::new(),
        };
        let mut transaction = Transaction::new(rules, services, connection);
        if all_values {
            transaction.evaluate_all_values();
        }
        transaction.uri(&self.method, &self.uri, &self.version);
        for (name, value) in &self.headers {
            transaction.request_header(name, value);
        }
        transaction.request_headers();
        transaction.request_body(&self.body);
        let answer = self.answer();
        for (name, value) in &answer.headers {
            transaction.response_header(name.as_bytes(), value.as_bytes());
        }
        transaction.response_headers(answer.status, "HTTP/1.1");
        transaction.response_body(&answer.body);
        transaction.log();
        let logged = transaction.matches().iter().filter(|found| found.logged);
        let mut outcome = Outcome { ids: Vec::new(), log: String::new(), status: answer.status };
        for found in logged {
            outcome.ids.push(found.id);
            outcome.log.push_str(&found.log_line());
            outcome.log.push('\n');
        }
        outcome
    }
}

/// The number of a version; a request line without one is of HTTP/0.9.
fn number_of(version: &str) -> String {
    let number = version.strip_prefix("HTTP/").unwrap_or(version);
    if number.is_empty() { "0.9".into() } else { number.into() }
}

/// The body that a server reads: with a length or in chunks.
fn received(headers: &[(Vec<u8>, Vec<u8>)], body: Vec<u8>) -> Vec<u8> {
    let find =
        |wanted: &[u8]| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value);
    match (find(b"transfer-encoding"), find(b"content-length")) {
        (Some(encoding), _) if encoding.eq_ignore_ascii_case(b"chunked") => dechunk(&body),
        (None, None) => Vec::new(),
        _ => body,
    }
}

fn dechunk(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = body;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let size = String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned();
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16).unwrap_or(0);
        let data = rest.get(end + 2..).unwrap_or_default();
        let Some(chunk) = data.get(..size).filter(|chunk| !chunk.is_empty()) else { break };
        out.extend_from_slice(chunk);
        rest = data.get(size + 2..).unwrap_or_default();
    }
    out
}
