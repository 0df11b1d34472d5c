//! Automatic attributes by the stable semantic conventions of HTTP (since version 1.23.0).

use super::facts::{
    protocol_version, request_length, server_address, server_name, span_status, unusual_port, variable_value,
};
use http_engine::Request;
use http_engine::span::TrySpan;
use http_types::Known;
use otlp::TraceSpan;

/// Methods of RFC 9110 and PATCH; others are `_OTHER`.
const METHODS: [&[u8]; 9] = [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];
/// Arguments whose values are secrets: signatures of links to object stores.
const SECRETS: [&[u8]; 4] = [b"AWSAccessKeyId", b"Signature", b"sig", b"X-Goog-Signature"];

/// Method and route.
pub fn span_name(r: &Request) -> Vec<u8> {
    let method = r.method_name();
    let mut out = if METHODS.contains(&method) { method.to_vec() } else { b"HTTP".to_vec() };
    if !r.loc().name.is_empty() {
        out.push(b' ');
        out.extend_from_slice(&r.loc().name);
    }
    out
}

fn method(name: &[u8], span: &mut TraceSpan<'_>) {
    if METHODS.contains(&name) {
        span.text("http.request.method", name);
    } else {
        span.text("http.request.method", "_OTHER");
        span.text("http.request.method_original", name);
    }
}

/// Replaces the values of signatures in a query.
fn redacted(query: &[u8]) -> Vec<u8> {
    let pairs = query.split(|c| *c == b'&').map(|pair| match pair.iter().position(|c| *c == b'=') {
        Some(at) if SECRETS.contains(&pair.get(..at).unwrap_or_default()) => {
            [pair.get(..=at).unwrap_or_default(), b"REDACTED"].concat()
        }
        _ => pair.to_vec(),
    });
    pairs.collect::<Vec<_>>().join(&b'&')
}

pub fn server_attributes(r: &mut Request, span: &mut TraceSpan<'_>) {
    method(r.method_name(), span);
    let uri = r.head.request_uri().of(&r.buf);
    let end = uri.iter().position(|c| *c == b'?');
    span.text("url.path", end.and_then(|at| uri.get(..at)).unwrap_or(uri));
    if let Some(query) = end.and_then(|at| uri.get(at + 1..)).filter(|query| !query.is_empty()) {
        span.text("url.query", redacted(query));
    }
    span.text("url.scheme", if r.connection().tls.is_some() { "https" } else { "http" });
    if let Some(version) = protocol_version(r) {
        // `2` and `3` have no minor version.
        span.text("network.protocol.version", version.strip_suffix(b".0").filter(|v| *v != b"1").unwrap_or(&version));
    }
    if let Some(agent) = r.header(Known::UserAgent) {
        span.text("user_agent.original", agent);
    }
    span.number("http.request.body.size", request_length(r));
    span.number("http.response.body.size", r.accounting.body_bytes_sent());
    let status = span_status(r);
    if status != 0 {
        span.number("http.response.status_code", status.into());
    }
    if status >= 500 {
        span.text("error.type", status.to_string());
    }
    span.text("server.address", server_name(r));
    if let Some(port) = unusual_port(r) {
        span.number("server.port", port.into());
    }
    if let Some(address) = variable_value(r, "remote_addr") {
        span.text("client.address", address);
    }
    // The connection's, even if `real_ip_header` has changed the client's address.
    if let Some(address) = variable_value(r, "realip_remote_addr") {
        span.text("network.peer.address", address);
    }
    let port = variable_value(r, "realip_remote_port").and_then(|port| String::from_utf8(port).ok()?.parse().ok());
    if let Some(port) = port {
        span.number("network.peer.port", port);
    }
}

pub fn client_attributes(one: &TrySpan, span: &mut TraceSpan<'_>) {
    method(one.method.as_bytes(), span);
    if one.status != 0 {
        span.number("http.response.status_code", one.status.into());
    }
    if one.status == 0 || one.status >= 400 {
        span.text("error.type", if one.status == 0 { "_OTHER".to_string() } else { one.status.to_string() });
    }
    let (host, port) = server_address(&one.address);
    for name in ["server.address", "network.peer.address"] {
        span.text(name, host);
    }
    for name in ["server.port", "network.peer.port"] {
        if let Some(port) = port {
            span.number(name, port.into());
        }
    }
    if one.index > 0 {
        span.number("http.request.resend_count", one.index as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted() {
        let text = |query: &str| String::from_utf8(redacted(query.as_bytes())).expect("text");
        assert_eq!(
            text("a=b&sig=x&Signature=y=z&sig&signature=q"),
            "a=b&sig=REDACTED&Signature=REDACTED&sig&signature=q"
        );
        assert_eq!(text(""), "");
    }
}
