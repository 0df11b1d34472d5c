//! Automatic attributes of nginx's `ngx_otel_module`: semantic conventions of HTTP, version 1.16.0.

use super::facts::{
    protocol_version, request_length, server_address, server_name, span_status, unusual_port, variable_value,
};
use http_engine::Request;
use http_engine::span::TrySpan;
use http_types::Known;
use otlp::TraceSpan;

pub fn server_attributes(r: &mut Request, span: &mut TraceSpan<'_>) {
    span.text("http.method", r.method_name());
    span.text("http.target", r.head.request_uri().of(&r.buf));
    span.text("http.scheme", if r.connection().tls.is_some() { "https" } else { "http" });
    if let Some(version) = protocol_version(r) {
        span.text("http.flavor", version);
    }
    if let Some(agent) = r.header(Known::UserAgent) {
        span.text("http.user_agent", agent);
    }
    span.number("http.request_content_length", request_length(r));
    span.number("http.response_content_length", r.accounting.body_bytes_sent());
    let status = span_status(r);
    if status != 0 {
        span.number("http.status_code", status.into());
    }
    span.text("net.host.name", server_name(r));
    if let Some(port) = unusual_port(r) {
        span.number("net.host.port", port.into());
    }
    if let Some(address) = variable_value(r, "remote_addr") {
        span.text("net.sock.peer.addr", address);
    }
    if let Some(peer) = r.connection().peer {
        span.number("net.sock.peer.port", peer.port().into());
    }
}

pub fn client_attributes(one: &TrySpan, span: &mut TraceSpan<'_>) {
    span.text("http.method", one.method.as_bytes());
    if one.status != 0 {
        span.number("http.status_code", one.status.into());
    }
    let (host, port) = server_address(&one.address);
    span.text("net.sock.peer.addr", host);
    if let Some(port) = port {
        span.number("net.sock.peer.port", port.into());
    }
    if one.index > 0 {
        span.number("http.resend_count", one.index as u64);
    }
}
