//! Writes the request.

use super::{Http, HttpVersion};
use http_engine::head_out::write_number;
use http_engine::{Request, clean};
use http_types::Known;
use http_upstream::caching::{CacheRequest, OWN_CONDITIONS};
use http_upstream::exchange::{Announce, PassPlan};
use http_upstream::target::UpstreamTarget;

/// Fields written by the proxy, in lower case; the client's are dropped.
pub const OWN_FIELDS: &[&str] = &[
    "host",
    "connection",
    "proxy-connection",
    "content-length",
    "transfer-encoding",
    "te",
    "keep-alive",
    "expect",
    "upgrade",
];

/// Writes the head. `false`: the connection must not be reused, because `proxy_set_header` contradicts the body's length
/// (request smuggling), or announces `Connection: close` (RFC 9112, section 9.6). A server that has seen `close` may
/// refuse further requests, even if its response claims `keep-alive`.
pub fn write_request(
    http: &Http,
    plan: &PassPlan,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    announce: Announce,
    out: &mut Vec<u8>,
) -> bool {
    let conf = &http.conf;
    let method = conf.proxy_method.as_ref().map(|method| method.eval(r));
    match method.and_then(|method| r.field_value("proxy_method", b"method", method)) {
        // HEAD as GET goes before the directive, so that the response serves both (nginx: `u->method`).
        _ if CacheRequest::of(r).is_some_and(|asking| asking.as_get) => out.extend_from_slice(b"GET"),
        Some(method) => out.extend_from_slice(&method),
        None => out.extend_from_slice(r.method_name()),
    }
    out.push(b' ');
    out.extend_from_slice(&clean::encode_target(target.uri()));
    out.extend_from_slice(match conf.proxy_http_version {
        HttpVersion::V10 => b" HTTP/1.0\r\n",
        _ => b" HTTP/1.1\r\n",
    });
    let lines = conf.proxy_set_header.as_ref().map(|l| l.0.as_slice()).unwrap_or_default();
    let set = |known: Known| http.set.has(known, b"");
    let is_host = |line: &&super::HeaderLine| line.name.eq_ignore_ascii_case(b"host");
    // First, and once: the last line wins.
    let host = lines.iter().rfind(is_host).map(|line| line.value.eval(r));
    let host = host.and_then(|host| r.field_value("proxy_set_header", b"Host", host));
    match host {
        Some(host) if !host.is_empty() => field(out, b"Host", &host),
        Some(_) if conf.proxy_http_version == HttpVersion::V10 => {}
        _ => field(out, b"Host", target.origin.host.as_bytes()),
    }
    // Configured framing fields may contradict the body that is sent.
    let (mut length_said, mut coding_said) = (None, None);
    let mut closes = false;
    // The usual `Connection ""` needs no allocation.
    let mut value = Vec::new();
    for line in lines.iter().filter(|line| !is_host(line)) {
        value.clear();
        line.value.write(r, &mut value);
        if line.name.eq_ignore_ascii_case(b"content-length") {
            length_said = Some(value.clone());
        } else if line.name.eq_ignore_ascii_case(b"transfer-encoding") {
            coding_said = Some(value.clone());
        }
        if clean::ends_line(&value) || clean::ends_line(&line.name) {
            r.dropped("proxy_set_header", &line.name, &value);
        } else if !value.is_empty() {
            if line.name.eq_ignore_ascii_case(b"connection") {
                closes |= value.split(|c| *c == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
            }
            field(out, &line.name, &value);
        }
    }
    match announce {
        Announce::Length(n) if length_said.is_none() => {
            out.extend_from_slice(b"Content-Length: ");
            write_number(n, out);
            out.extend_from_slice(b"\r\n");
        }
        Announce::Chunked if coding_said.is_none() => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        _ => {}
    }
    let asking = CacheRequest::of(r);
    if let Some(asking) = asking {
        for (known, value) in
            [(Known::IfModifiedSince, &asking.if_modified_since), (Known::IfNoneMatch, &asking.if_none_match)]
        {
            if let Some(value) = value.as_ref().filter(|_| !set(known)) {
                field(out, known.name().as_bytes(), value);
            }
        }
    }
    if plan.conf.pass_request_headers {
        // Consecutive unchanged lines are copied together.
        let mut lines = 0..0;
        for one in &r.head.fields.all {
            let name = one.name.of(&r.buf);
            let is_own = || OWN_CONDITIONS.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(name));
            if http.overridden.has(one.known, name) || (asking.is_some() && is_own()) {
                continue;
            }
            let (start, end) = (one.name.start as usize, one.value.end as usize);
            let between = r.buf.get(one.name.end as usize..one.value.start as usize);
            let is_usual = between == Some(b": ") && r.buf.get(end..end + 2) == Some(b"\r\n");
            if is_usual && lines.end == start {
                lines.end = end + 2;
                continue;
            }
            out.extend_from_slice(r.buf.get(std::mem::take(&mut lines)).unwrap_or_default());
            if is_usual {
                lines = start..end + 2;
            } else {
                // The parser ensures that the value does not end the line.
                field(out, name, one.value.of(&r.buf));
            }
        }
        out.extend_from_slice(r.buf.get(lines).unwrap_or_default());
    }
    out.extend_from_slice(b"\r\n");
    if closes || (length_said.is_none() && coding_said.is_none()) {
        return !closes;
    }
    let length = match announce {
        Announce::Length(n) if n > 0 => n.to_string(),
        _ => String::new(),
    };
    let length_holds = length_said.is_none_or(|said| said == length.as_bytes() || (length.is_empty() && said == b"0"));
    let coding: &[u8] = if announce == Announce::Chunked { b"chunked" } else { b"" };
    length_holds && coding_said.is_none_or(|said| said.eq_ignore_ascii_case(coding))
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
