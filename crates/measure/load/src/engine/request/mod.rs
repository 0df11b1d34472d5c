//! Requests and their expected answers: weights, headers, bodies, templates. [`spec`] is their description, [`streamed`] their form over HTTP/2 and HTTP/3,
//! [`calls`] that of calls of gRPC.

mod calls;
mod spec;
mod streamed;

use figures::rng::Rng;
use http_types::Method;
use wire_h1::RequestWriter;

pub use self::spec::{Expect, Fnv, RequestSpec};
use super::grpc::MessageForm;
use super::session::{Extractor, SessionVariables};
use super::template::RequestTemplate;
use crate::protocol::grpc::code_number;

/// Columns of a table of data.
pub const COLUMNS_MAX: usize = 256;

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
