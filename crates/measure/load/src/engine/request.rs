//! Requests and their expected answers: weights, headers, bodies, templates.

use std::collections::BTreeMap;

use figures::rng::Rng;
use http_types::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wire_h1::RequestWriter;

use super::grpc::{GrpcJob, MessageForm};
use super::session::{Extractor, SessionVariables};
use super::template::RequestTemplate;
use crate::protocol::grpc::code_number;

/// Columns of a table of data.
pub const COLUMNS_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestSpec {
    #[serde(default = "get")]
    pub method: String,
    /// Path and query; may contain templates. Of a call, `grpc` stands in its place.
    #[serde(default)]
    pub path: String,
    #[serde(default = "one")]
    pub weight: f64,
    /// Header fields, `Name: value`; values may contain templates.
    #[serde(default)]
    pub headers: Vec<String>,
    /// Body; may contain templates. `Content-Length` is added.
    #[serde(default)]
    pub body: String,
    /// Number of the server in the job: 0 is its target. Read from the URL in `path`, not from a file.
    #[serde(default, skip_serializing_if = "is_first")]
    pub server: usize,
    /// Body that is no text, without templates; instead of `body`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binary: Vec<u8>,
    #[serde(default)]
    pub expect: Expect,
    /// In a session: variables for later requests and their sources in the answer (see [`Extractor::parse`]).
    #[serde(default)]
    pub extract: BTreeMap<String, String>,
    /// In a session: pause after the answer, as `200ms`.
    #[serde(default)]
    pub think: String,
    /// In a session: sent at the same time as the step before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub parallel: bool,
    /// Method of a call of gRPC, `package.Service/Method`; empty for a request over HTTP.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub grpc: String,
    /// Message of a call, as JSON or as a text of JSON with templates; instead of `body`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
}

fn get() -> String {
    "GET".into()
}

fn is_first(server: &usize) -> bool {
    *server == 0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

fn one() -> f64 {
    1.0
}

impl RequestSpec {
    pub fn get(path: &str) -> RequestSpec {
        RequestSpec {
            method: get(),
            path: path.into(),
            weight: 1.0,
            headers: Vec::new(),
            body: String::new(),
            server: 0,
            binary: Vec::new(),
            expect: Expect::default(),
            extract: BTreeMap::new(),
            think: String::new(),
            parallel: false,
            grpc: String::new(),
            data: Value::Null,
        }
    }
}

/// Conditions of a right answer. An expected 404 is right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Statuses; empty means 200 to 399.
    pub status: Vec<u16>,
    pub length: Option<u64>,
    pub contains: Option<String>,
    /// FNV-1a hash (64 bits, hexadecimal) of the body, as `bench --show` prints it.
    pub hash: Option<String>,
    /// Statuses of a call, by name or number; empty means OK.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grpc: Vec<String>,
}

impl Expect {
    pub fn wants_body(&self) -> bool {
        self.contains.is_some() || self.hash.is_some()
    }

    #[inline]
    pub fn allows(&self, status: u16) -> bool {
        if self.status.is_empty() { (200..400).contains(&status) } else { self.status.contains(&status) }
    }
}

/// FNV-1a, 64 bits; not cryptographic.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(pub u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub fn update(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[derive(Clone, Debug)]
pub struct PreparedRequest {
    pub method: Method,
    pub expect: Expect,
    pub expect_hash: Option<u64>,
    /// Expected status codes of a call; empty means OK.
    pub expect_codes: Vec<u16>,
    /// Values extracted for later requests, and the pause in seconds.
    pub extract: Vec<(String, Extractor)>,
    pub think: f64,
    /// Sent at the same time as the step before.
    pub parallel: bool,
    constant: Option<Vec<u8>>,
    /// HTTP/2 and HTTP/3: scheme, and header block and body of a constant request.
    scheme: &'static str,
    /// Header blocks are QPACK's.
    is_http3: bool,
    constant_streamed: Option<(Vec<u8>, Vec<u8>)>,
    target: RequestTemplate,
    headers: Vec<(Vec<u8>, RequestTemplate)>,
    body: RequestTemplate,
    method_name: Vec<u8>,
    /// Goes in front of the target: the server's origin, towards a proxy.
    prefix: Vec<u8>,
    /// The user's cookies are sent and stored; the server is reached over TLS.
    has_jar: bool,
    is_secure: bool,
    follows: bool,
    /// A call of gRPC; with the form of its messages if they have templates.
    is_grpc: bool,
    form: Option<MessageForm>,
    /// Form of the answers of a call, if they are looked at.
    answer_form: Option<MessageForm>,
}

impl PreparedRequest {
    /// Compiles a description; `host` is the default Host field, `close` asks the server to close. Fails on invalid
    /// templates, headers and methods.
    pub fn new(spec: &RequestSpec, host: &str, common: &[String], close: bool) -> Result<PreparedRequest, String> {
        let mut headers: Vec<(Vec<u8>, RequestTemplate)> = Vec::new();
        let split = |line: &String| -> Result<(Vec<u8>, RequestTemplate), String> {
            let (name, value) = line.split_once(':').ok_or_else(|| format!("header `{line}` has no colon"))?;
            Ok((name.trim().into(), RequestTemplate::parse(value.trim())?))
        };
        let own: Vec<_> = spec.headers.iter().map(split).collect::<Result<_, _>>()?;
        // A request's own fields replace common ones of their name; a repeated field is sent as often as it is given.
        for field in common.iter().map(split) {
            let (name, value) = field?;
            if !own.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)) {
                headers.push((name, value));
            }
        }
        headers.extend(own);
        let has = |name: &[u8]| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut first: Vec<(Vec<u8>, RequestTemplate)> = Vec::new();
        if !has(b"host") {
            first.push((b"Host".to_vec(), RequestTemplate::parse(host)?));
        }
        if close && !has(b"connection") {
            first.push((b"Connection".to_vec(), RequestTemplate::parse("close")?));
        }
        first.extend(headers);
        let expect_hash = match &spec.expect.hash {
            Some(text) => Some(u64::from_str_radix(text, 16).map_err(|_| format!("hash `{text}` is not hexadecimal"))?),
            None => None,
        };
        let extract = spec.extract.iter().map(|(name, from)| Ok((name.clone(), Extractor::parse(from)?)));
        let extract: Vec<(String, Extractor)> = extract.collect::<Result<_, String>>()?;
        let think = match spec.think.as_str() {
            "" => 0.0,
            text => figures::units::parse_seconds(text).ok_or_else(|| format!("think = \"{text}\" is not a time"))?,
        };
        let mut prepared = PreparedRequest {
            extract,
            think,
            parallel: spec.parallel,
            method: method(&spec.method),
            expect: spec.expect.clone(),
            expect_hash,
            expect_codes: spec.expect.grpc.iter().map(|name| code_number(name)).collect::<Result<_, _>>()?,
            constant: None,
            scheme: "",
            is_http3: false,
            constant_streamed: None,
            target: RequestTemplate::parse(if spec.path.is_empty() { "/" } else { &spec.path })?,
            headers: first,
            body: if spec.binary.is_empty() {
                RequestTemplate::parse(&spec.body)?
            } else {
                RequestTemplate::verbatim(&spec.binary)
            },
            method_name: spec.method.as_bytes().to_vec(),
            prefix: Vec::new(),
            has_jar: false,
            is_secure: false,
            follows: false,
            is_grpc: false,
            form: None,
            answer_form: None,
        };
        let mut bytes = Vec::new();
        let mut some = SessionVariables::with_data(&vec![vec!["x".to_string(); COLUMNS_MAX]].into());
        prepared.variables().for_each(|name| some.set(name, b"x".to_vec()));
        if !prepared.write(0, &some, &mut Rng::new(0), &mut bytes) {
            return Err(format!("the request `{} {}` cannot be written as given", spec.method, spec.path));
        }
        prepared.constant = prepared.is_fixed().then_some(bytes);
        Ok(prepared)
    }

    /// Appends the body alone, as a message.
    pub fn write_body(&self, sequence: u64, variables: &SessionVariables, rng: &mut Rng, out: &mut Vec<u8>) {
        self.body.fill(sequence, variables, rng, out);
    }

    /// Appends the request that upgrades a connection to WebSocket (RFC 6455, 4.1), with this request's target and
    /// headers.
    pub fn write_upgrade(&self, key: &str, out: &mut Vec<u8>) {
        let mut upgrade = self.clone();
        (upgrade.method, upgrade.method_name) = (Method::Get, b"GET".to_vec());
        upgrade.body = RequestTemplate::verbatim(b"");
        let own = ["upgrade", "connection", "sec-websocket-key", "sec-websocket-version", "content-length"];
        upgrade.headers.retain(|(name, _)| !own.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes())));
        let fields = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", key)];
        for (name, value) in fields.into_iter().chain([("Sec-WebSocket-Version", "13")]) {
            upgrade.headers.push((name.as_bytes().to_vec(), RequestTemplate::verbatim(value.as_bytes())));
        }
        // Its parts were checked with the request.
        let _ = upgrade.write(0, &SessionVariables::default(), &mut Rng::new(0), out);
    }

    /// Makes the request a call of gRPC, whose body is the JSON of its messages and which ends within `timeout` seconds.
    /// Fails if the JSON has no such message; one with variables is looked at when it is sent.
    pub fn for_grpc(mut self, form: MessageForm, job: &GrpcJob, timeout: f64) -> Result<PreparedRequest, String> {
        (self.method, self.method_name, self.is_grpc) = (Method::Post, b"POST".to_vec(), true);
        let timeout = grpc_timeout(timeout);
        let mut own =
            vec![("Content-Type", "application/grpc"), ("TE", "trailers"), ("grpc-timeout", timeout.as_str())];
        if job.gzip {
            own.extend([("grpc-encoding", "gzip"), ("grpc-accept-encoding", "gzip,identity")]);
        }
        self.answer_form = self.wants_body().then(|| form.clone());
        for (name, value) in own {
            if !self.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())) {
                self.headers.push((name.as_bytes().to_vec(), RequestTemplate::verbatim(value.as_bytes())));
            }
        }
        let mut frames = Vec::new();
        match self.body.constant() {
            Some(json) => {
                form.frame_messages(json, &mut frames)?;
                self.body = RequestTemplate::verbatim(&frames);
            }
            None => {
                if !self.body.has_variables() {
                    let mut json = Vec::new();
                    self.body.fill(0, &SessionVariables::default(), &mut Rng::new(0), &mut json);
                    form.frame_messages(&json, &mut frames)?;
                }
                self.form = Some(form);
            }
        }
        Ok(self.settle())
    }

    /// Reads the messages of an answer to a call as JSON: an object, or an array of a stream. `None` if they are not of the
    /// method.
    pub fn answer_json(&self, body: &[u8]) -> Option<Vec<u8>> {
        self.answer_form.as_ref()?.answer_json(body)
    }

    /// Tells whether the status of a call is the expected one.
    pub fn allows_code(&self, code: u16) -> bool {
        if self.expect_codes.is_empty() { code == 0 } else { self.expect_codes.contains(&code) }
    }

    #[inline]
    pub fn is_grpc(&self) -> bool {
        self.is_grpc
    }

    /// Tells whether target, headers and body have no template.
    pub fn is_fixed(&self) -> bool {
        self.target.constant().is_some()
            && self.body.constant().is_some()
            && self.headers.iter().all(|(_, v)| v.constant().is_some())
    }

    /// Sends and stores the user's cookies; `secure` tells whether the server is reached over TLS.
    pub fn with_cookies(mut self, secure: bool) -> PreparedRequest {
        (self.has_jar, self.is_secure) = (true, secure);
        self.settle()
    }

    /// Asks for the head of every answer, for its `Location`.
    pub fn with_redirects(mut self) -> PreparedRequest {
        self.follows = true;
        self
    }

    /// Addresses a proxy (RFC 9112, 3.2.2): `origin` goes in front of the target, and `authorization` is the value of
    /// `Proxy-Authorization`.
    pub fn through_proxy(mut self, origin: &str, authorization: Option<&str>) -> PreparedRequest {
        self.prefix = origin.as_bytes().to_vec();
        if let Some(value) = authorization {
            let value = RequestTemplate::verbatim(value.as_bytes());
            self.headers.push((b"Proxy-Authorization".to_vec(), value));
        }
        self.settle()
    }

    /// The request with its templates filled, for repetition as it was.
    pub fn fixed(&self, sequence: u64, variables: &SessionVariables, rng: &mut Rng) -> PreparedRequest {
        let mut fill = |template: &RequestTemplate| {
            let mut text = Vec::new();
            template.fill(sequence, variables, rng, &mut text);
            RequestTemplate::verbatim(&text)
        };
        let mut request = self.clone();
        request.body = fill(&self.body);
        request.target = fill(&self.target);
        request.headers = self.headers.iter().map(|(name, value)| (name.clone(), fill(value))).collect();
        request.settle()
    }

    /// The fixed request for another target of its server; `get` turns it into a GET without a body.
    pub fn redirected(&self, target: &[u8], get: bool) -> PreparedRequest {
        let mut request = self.clone();
        request.target = RequestTemplate::verbatim(target);
        if get {
            (request.method, request.method_name) = (Method::Get, b"GET".to_vec());
            request.body = RequestTemplate::verbatim(b"");
            let of_body = |name: &[u8]| name.to_ascii_lowercase().starts_with(b"content-");
            request.headers.retain(|(name, _)| !of_body(name) && !name.eq_ignore_ascii_case(b"transfer-encoding"));
        }
        request.settle()
    }

    /// Target of a fixed request.
    pub fn fixed_target(&self) -> &[u8] {
        self.target.constant().unwrap_or(b"/")
    }

    pub fn method_name(&self) -> &[u8] {
        &self.method_name
    }

    pub fn has_jar(&self) -> bool {
        self.has_jar
    }

    /// Writes the constant forms again after a change.
    fn settle(mut self) -> PreparedRequest {
        let streamed = !self.scheme.is_empty();
        (self.constant, self.constant_streamed) = (None, None);
        if !self.has_jar && self.is_fixed() {
            let mut bytes = Vec::new();
            let clean = self.write(0, &SessionVariables::default(), &mut Rng::new(0), &mut bytes);
            self.constant = clean.then_some(bytes);
        }
        if streamed { self.streamed() } else { self }
    }

    pub fn for_http2(mut self, tls: bool) -> PreparedRequest {
        self.scheme = if tls { "https" } else { "http" };
        self.streamed()
    }

    pub fn for_http3(mut self) -> PreparedRequest {
        (self.scheme, self.is_http3) = ("https", true);
        self.streamed()
    }

    fn streamed(mut self) -> PreparedRequest {
        if self.constant.is_some() {
            let (mut block, mut body) = (Vec::new(), Vec::new());
            self.write_streamed(0, &SessionVariables::default(), &mut Rng::new(0), &mut block, &mut body);
            self.constant_streamed = Some((block, body));
        }
        self
    }

    /// Header block and body for HTTP/2 or HTTP/3, if constant.
    #[inline]
    pub fn constant_streamed(&self) -> Option<(&[u8], &[u8])> {
        self.constant_streamed.as_ref().map(|(block, body)| (block.as_slice(), body.as_slice()))
    }

    /// Appends header block and body for HTTP/2 or HTTP/3, without connection-specific fields and with `Host` as
    /// `:authority` (RFC 9113, 8.2.2 and 8.3.1; RFC 9114, 4.2 and 4.3.1). False if the filled body is no message of gRPC.
    pub fn write_streamed(
        &self,
        sequence: u64,
        variables: &SessionVariables,
        rng: &mut Rng,
        block: &mut Vec<u8>,
        body: &mut Vec<u8>,
    ) -> bool {
        self.body.fill(sequence, variables, rng, body);
        if let Some(form) = &self.form {
            let json = std::mem::take(body);
            if form.frame_messages(&json, body).is_err() {
                return false;
            }
        }
        if self.is_http3 {
            let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            self.each_field(sequence, variables, rng, body.len(), &mut |name, value| {
                fields.push((name.to_vec(), value.to_vec()));
            });
            let mut fields = fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
            block.extend_from_slice(&wire_h3::encoded_section(&mut fields));
        } else {
            let mut encoder = wire_h2::Encoder::stateless();
            self.each_field(sequence, variables, rng, body.len(), &mut |name, value| encoder.field(name, value, block));
        }
        true
    }

    /// Passes the fields of a request with a body of `length` octets to `take`, pseudo-header fields first.
    fn each_field(
        &self,
        sequence: u64,
        variables: &SessionVariables,
        rng: &mut Rng,
        length: usize,
        take: &mut dyn FnMut(&[u8], &[u8]),
    ) {
        let mut text = Vec::new();
        take(b":method", &self.method_name);
        take(b":scheme", self.scheme.as_bytes());
        self.target.fill(sequence, variables, rng, &mut text);
        take(b":path", &text);
        let is = |name: &[u8], other: &[u8]| name.eq_ignore_ascii_case(other);
        if let Some((_, host)) = self.headers.iter().find(|(name, _)| is(name, b"host")) {
            text.clear();
            host.fill(sequence, variables, rng, &mut text);
            take(b":authority", &text);
        }
        for (name, value) in &self.headers {
            let lower = name.to_ascii_lowercase();
            text.clear();
            value.fill(sequence, variables, rng, &mut text);
            if lower == b"host"
                || (self.has_jar && lower == b"cookie")
                || http_types::is_connection_field(&lower, &text)
            {
                continue;
            }
            take(&lower, &text);
        }
        if self.has_jar {
            self.write_jar(sequence, variables, rng, &mut text);
            if !text.is_empty() {
                take(b"cookie", &text);
            }
        }
        let framed = self.headers.iter().any(|(name, _)| is(name, b"content-length"));
        // A call has as many messages as its stream.
        if !framed && !self.is_grpc && (length > 0 || matches!(self.method, Method::Post | Method::Put | Method::Patch))
        {
            take(b"content-length", length.to_string().as_bytes());
        }
    }

    /// Replaces `out` by the request's own cookies and those of the user's jar. The target must be fixed.
    fn write_jar(&self, sequence: u64, variables: &SessionVariables, rng: &mut Rng, out: &mut Vec<u8>) {
        out.clear();
        for (_, value) in self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"cookie")) {
            if !out.is_empty() {
                out.extend_from_slice(b"; ");
            }
            value.fill(sequence, variables, rng, out);
        }
        variables.jar().write_cookies(self.fixed_target(), self.is_secure, out);
    }

    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let values = self.headers.iter().map(|(_, value)| value);
        values.chain([&self.target, &self.body]).flat_map(RequestTemplate::variables)
    }

    pub fn wants_body(&self) -> bool {
        self.expect.wants_body() || self.extract.iter().any(|(_, from)| from.wants_body())
    }
    pub fn wants_head(&self) -> bool {
        self.has_jar || self.follows || self.extract.iter().any(|(_, from)| !from.wants_body())
    }

    #[inline]
    pub fn constant(&self) -> Option<&[u8]> {
        self.constant.as_deref()
    }

    /// Appends one filled request. False when a filling made it unsendable (a constant part was checked).
    pub fn write(&self, sequence: u64, variables: &SessionVariables, rng: &mut Rng, out: &mut Vec<u8>) -> bool {
        let mut body = Vec::new();
        self.body.fill(sequence, variables, rng, &mut body);
        let mut text = Vec::new();
        text.extend_from_slice(&self.prefix);
        self.target.fill(sequence, variables, rng, &mut text);
        let mut writer = RequestWriter::new(out, &self.method_name, &text, 1);
        for (name, value) in &self.headers {
            if self.has_jar && name.eq_ignore_ascii_case(b"cookie") {
                continue;
            }
            text.clear();
            value.fill(sequence, variables, rng, &mut text);
            writer.field(name, &text);
        }
        if self.has_jar {
            self.write_jar(sequence, variables, rng, &mut text);
            if !text.is_empty() {
                writer.field(b"Cookie", &text);
            }
        }
        let framed = self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(b"content-length"));
        if !framed && (!body.is_empty() || matches!(self.method, Method::Post | Method::Put | Method::Patch)) {
            writer.field(b"Content-Length", body.len().to_string().as_bytes());
        }
        let clean = writer.end();
        out.extend_from_slice(&body);
        clean
    }
}

/// Value of `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Requests").
fn grpc_timeout(seconds: f64) -> String {
    for (unit, each) in [("u", 1e6), ("m", 1e3), ("S", 1.0), ("M", 1.0 / 60.0)] {
        let count = (seconds * each).ceil();
        if count < 1e8 {
            return format!("{}{unit}", count.max(1.0));
        }
    }
    "99999999H".into()
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        _ => Method::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_get_is_one_ready_buffer() {
        let p = PreparedRequest::new(&RequestSpec::get("/index.html"), "h:80", &[], false).unwrap();
        assert_eq!(p.constant().unwrap(), b"GET /index.html HTTP/1.1\r\nHost: h:80\r\n\r\n");
        let close = PreparedRequest::new(&RequestSpec::get(""), "h", &["host: other".into()], true).unwrap();
        assert_eq!(close.constant().unwrap(), b"GET / HTTP/1.1\r\nConnection: close\r\nhost: other\r\n\r\n");
    }

    #[test]
    fn bodies_are_framed_and_templates_filled() {
        let mut spec = RequestSpec::get("/a/{{seq}}");
        spec.method = "POST".into();
        spec.body = "n={{seq}}".into();
        let p = PreparedRequest::new(&spec, "h", &[], false).unwrap();
        assert!(p.constant().is_none());
        let mut out = Vec::new();
        assert!(p.write(123, &SessionVariables::default(), &mut Rng::new(1), &mut out));
        assert_eq!(out, b"POST /a/123 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nn=123");
    }

    #[test]
    fn a_binary_body_has_no_templates() {
        let spec = RequestSpec { method: "POST".into(), binary: b"\xff{{seq}}".to_vec(), ..RequestSpec::get("/") };
        let p = PreparedRequest::new(&spec, "h", &[], false).unwrap();
        assert_eq!(p.constant().unwrap(), b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n\xff{{seq}}");
    }

    #[test]
    fn repeated_fields_are_all_sent_and_a_requests_own_replace_common_ones() {
        let common = ["X-A: 1".to_string(), "X-A: 2".into(), "X-B: common".into()];
        let spec = RequestSpec { headers: vec!["x-b: 3".into(), "x-b: 4".into()], ..RequestSpec::get("/") };
        let prepared = PreparedRequest::new(&spec, "h:80", &common, false).unwrap();
        let names: Vec<_> = prepared.headers.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
        assert_eq!(names, ["Host", "X-A", "X-A", "x-b", "x-b"]);
    }

    #[test]
    fn over_http2_fields_are_those_of_http2() {
        let mut spec = RequestSpec::get("/a");
        spec.method = "POST".into();
        spec.body = "12345".into();
        let headers = ["X-Upper: V".to_string(), "Connection: x".into(), "Transfer-Encoding: chunked".into()];
        let p = PreparedRequest::new(&spec, "h:80", &headers, true).unwrap().for_http2(true);
        let (block, body) = p.constant_streamed().unwrap();
        let limits = http_types::ListLimits { bytes_max: 1000, fields_max: 20, field_max: 100 };
        let list = wire_h2::hpack::Decoder::default().decode(block, &limits).unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let fields: Vec<String> = list.iter().map(|(n, v)| format!("{}={}", text(n), text(v))).collect();
        assert_eq!(
            fields,
            [":method=POST", ":scheme=https", ":path=/a", ":authority=h:80", "x-upper=V", "content-length=5"]
        );
        assert_eq!(body, b"12345");
    }

    #[test]
    fn timeouts_of_calls_have_eight_digits() {
        for (seconds, text) in
            [(5.0, "5000000u"), (1e-9, "1u"), (120.0, "120000m"), (200_000.0, "200000S"), (1e30, "99999999H")]
        {
            assert_eq!(grpc_timeout(seconds), text);
        }
    }

    #[test]
    fn nothing_gets_smuggled() {
        assert!(PreparedRequest::new(&RequestSpec::get("/a b"), "h", &[], false).is_err());
        assert!(PreparedRequest::new(&RequestSpec::get("/"), "h", &["X: a\r\nY: b".into()], false).is_err());
        assert!(PreparedRequest::new(&RequestSpec::get("/"), "h", &["no colon".into()], false).is_err());
    }

    #[test]
    fn a_wanted_404_is_right_and_an_unwanted_one_is_not() {
        assert!(!Expect::default().allows(404));
        assert!(Expect { status: vec![404], ..Expect::default() }.allows(404));
        assert!(!Expect { status: vec![404], ..Expect::default() }.allows(200));
    }
}
