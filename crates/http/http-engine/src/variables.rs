//! The core module's variables (nginx: `ngx_http_variables.c`), one row each.

use crate::area::Builtin;
use crate::file_paths;
use crate::head_out::write_number;
use crate::path;
use crate::request::{Request, RequestBody};
use crate::values::NGINX_VERSION;
use http_types::{BodyLength, Known, Method, Version};
use net::Address;
use observe::clock;
use std::io::Write as _;
use std::net::SocketAddr;

/// Table of the core module's variables.
pub static CORE: &[Builtin] = &[
    Builtin::family("arg_", arg, "The argument NAME of the query."),
    Builtin::one("args", args, "The query.").settable(set_args),
    Builtin::one("query_string", args, "The query."),
    Builtin::one("is_args", is_args, "`?` if there is a query, otherwise empty."),
    Builtin::one("binary_remote_addr", binary_remote_addr, "The client's address as 4 or 16 bytes."),
    Builtin::one("body_bytes_sent", body_bytes_sent, "Bytes of the body sent to the client."),
    Builtin::one("bytes_sent", bytes_sent, "Bytes sent to the client."),
    Builtin::one("connection", connection, "The connection's number."),
    Builtin::one("connection_requests", connection_requests, "Requests made through the connection so far."),
    Builtin::one("connection_time", connection_time, "Age of the connection in seconds, with milliseconds."),
    Builtin::one("content_length", content_length, "The request's Content-Length."),
    Builtin::one("content_type", content_type, "The request's Content-Type."),
    Builtin::family("cookie_", cookie, "The cookie NAME."),
    Builtin::one("document_root", document_root, "The root or alias of the location."),
    Builtin::one("document_uri", uri, "Same as `$uri`."),
    Builtin::one("uri", uri, "The canonical path; it changes with internal redirects."),
    Builtin::one(
        "host",
        host,
        "The host from the request line or, without one, from the `Host` field; otherwise the server's name.",
    ),
    Builtin::one("hostname", hostname, "The machine's host name."),
    Builtin::family("http_", http, "The request field NAME, in lower case and with underscores instead of hyphens."),
    Builtin::one("https", https, "`on` for connections over TLS, otherwise empty."),
    Builtin::one("is_request_port", is_request_port, "`:` if `$request_port` has a value, otherwise empty."),
    Builtin::one("request_port", request_port, "The port in the request's host."),
    Builtin::one(
        "limit_rate",
        limit_rate,
        "The response's rate limit in bytes per second; setting the variable changes the limit.",
    )
    .settable(set_limit_rate),
    Builtin::one("msec", msec, "The current time in seconds since 1970, with milliseconds."),
    Builtin::one("nginx_version", nginx_version, "The nginx version that this version of Tidegate corresponds to."),
    Builtin::one("pid", pid, "The worker's process id."),
    Builtin::one("pipe", pipe, "`p` for a pipelined request, otherwise `.`."),
    Builtin::one("proxy_protocol_addr", proxy_protocol_addr, "The client's address from the PROXY protocol header."),
    Builtin::one("proxy_protocol_port", proxy_protocol_port, "The client's port from the PROXY protocol header."),
    Builtin::one(
        "proxy_protocol_server_addr",
        proxy_protocol_server_addr,
        "The server's address from the PROXY protocol header.",
    ),
    Builtin::one(
        "proxy_protocol_server_port",
        proxy_protocol_server_port,
        "The server's port from the PROXY protocol header.",
    ),
    Builtin::family(
        "proxy_protocol_tlv_",
        proxy_protocol_tlv,
        "A TLV from the PROXY protocol header, by name or as `0xNN`.",
    ),
    Builtin::one("realpath_root", realpath_root, "The root or alias with symbolic links resolved."),
    Builtin::one("remote_addr", remote_addr, "The client's address."),
    Builtin::one("remote_port", remote_port, "The client's port."),
    Builtin::one("remote_user", remote_user, "The user name of basic authentication."),
    Builtin::one("request", request, "The request line."),
    Builtin::one(
        "request_body",
        // An announced empty body has a value; a body that was not announced has none.
        |r, o| {
            r.incoming
                .body_bytes
                .clone()
                .is_some_and(|b| put(o, &b) && (r.incoming.body_length.is_some() || !b.is_empty()))
        },
        "The request body, if it was read into memory.",
    ),
    Builtin::one(
        "request_completion",
        request_completion,
        "`OK` if the response was sent completely, otherwise empty.",
    ),
    Builtin::one("request_filename", request_filename, "The file that the URI maps to."),
    Builtin::one("request_id", request_id, "The request's id: 16 random bytes in hexadecimal."),
    Builtin::one("request_length", request_length, "Length of the request in bytes: request line, fields and body."),
    Builtin::one("request_method", request_method, "The request method, such as `GET` or `POST`."),
    Builtin::one("request_time", request_time, "Seconds since the request began, with milliseconds."),
    Builtin::one("request_uri", request_uri, "The request URI with its arguments, as the client sent it."),
    Builtin::one("scheme", scheme, "The scheme: `http` or `https`."),
    Builtin::family("sent_http_", sent_http, "The response field NAME."),
    Builtin::family("sent_trailer_", sent_trailer, "The response's trailer field NAME."),
    Builtin::one("server_addr", server_addr, "The address that accepted the connection."),
    Builtin::one("server_name", server_name, "The first name of the server."),
    Builtin::one("server_port", server_port, "The port that accepted the connection."),
    Builtin::one("server_protocol", server_protocol, "The request's protocol version, such as `HTTP/1.1`."),
    Builtin::one("status", status, "The response's status."),
    Builtin::one("tcpinfo_rtt", |r, o| tcpinfo(r, 0, o), "The TCP connection's round-trip time in microseconds."),
    Builtin::one("tcpinfo_rttvar", |r, o| tcpinfo(r, 1, o), "The variation of the round-trip time in microseconds."),
    Builtin::one("tcpinfo_snd_cwnd", |r, o| tcpinfo(r, 2, o), "The TCP connection's congestion window in segments."),
    Builtin::one("tcpinfo_rcv_space", |r, o| tcpinfo(r, 3, o), "The TCP connection's receive space in bytes."),
    Builtin::one("time_iso8601", time_iso8601, "Local time in the ISO 8601 format."),
    Builtin::one("time_local", time_local, "Local time in the format of access logs."),
];

fn put(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    out.extend_from_slice(bytes);
    true
}

fn put_some(out: &mut Vec<u8>, bytes: Option<&[u8]>) -> bool {
    bytes.is_some_and(|b| put(out, b))
}

fn put_number(out: &mut Vec<u8>, n: u64) -> bool {
    write_number(n, out);
    true
}

fn millis(out: &mut Vec<u8>, ms: u64) -> bool {
    write_number(ms / 1000, out);
    let ms = ms % 1000;
    put(out, &[b'.', b'0' + (ms / 100) as u8, b'0' + (ms / 10 % 10) as u8, b'0' + (ms % 10) as u8])
}

fn arg(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    put_some(out, find_arg(&r.target.args, name.as_bytes()).filter(|_| !name.is_empty()))
}

/// Returns the value of the first argument of this name that has `=`; names in any case, values undecoded (nginx:
/// `ngx_http_arg`).
pub fn find_arg<'a>(args: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    args.split(|c| *c == b'&').find_map(|pair| {
        let (key, value) = pair.split_at_checked(name.len())?;
        if !key.eq_ignore_ascii_case(name) {
            return None;
        }
        value.strip_prefix(b"=")
    })
}

fn args(r: &mut Request, out: &mut Vec<u8>) -> bool {
    // Without a question mark there is no query, not even an empty one.
    put(out, &r.target.args) && (!r.target.args.is_empty() || r.target.args_given)
}

fn set_args(r: &mut Request, value: Vec<u8>) {
    r.target.args = value;
    r.target.args_given = true;
    r.target.path_changed = true;
}

fn is_args(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if !r.target.args.is_empty() {
        out.push(b'?');
    }
    true
}

fn binary_remote_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match r.connection().peer {
        Some(SocketAddr::V4(a)) => put(out, &a.ip().octets()),
        Some(SocketAddr::V6(a)) => put(out, &a.ip().octets()),
        None => put(out, b"unix:"),
    }
}

fn body_bytes_sent(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put_number(out, r.accounting.body_bytes_sent)
}

fn bytes_sent(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put_number(out, r.accounting.bytes_sent)
}

fn connection(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put_number(out, r.connection().number)
}

fn connection_requests(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let number = if r.incoming.ordinal == 0 { r.connection().requests.get() } else { r.incoming.ordinal };
    put_number(out, u64::from(number))
}

fn connection_time(r: &mut Request, out: &mut Vec<u8>) -> bool {
    millis(out, base::clock::now().millis_since(r.connection().started))
}

fn content_length(r: &mut Request, out: &mut Vec<u8>) -> bool {
    // nginx: `ngx_http_discard_request_body`, before the response's head; nothing is left of the body.
    let is_discarded = !matches!(r.out.status, 0 | 444)
        && !r.incoming.malformed
        && r.incoming.body_length == Some(BodyLength::Chunked)
        && matches!(r.incoming.body, RequestBody::Unread(_))
        && !matches!(r.target.version, Version::Http20 | Version::Http30);
    let received = r.incoming.body_received.or(is_discarded.then_some(0));
    put_some(out, r.header(Known::ContentLength)) || received.is_some_and(|n| put_number(out, n))
}

fn content_type(r: &mut Request, out: &mut Vec<u8>) -> bool {
    http(r, "content_type", out)
}

fn cookie(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    let found = r
        .headers()
        .filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"))
        .find_map(|(_, value)| find_cookie(value, name.as_bytes()));
    put_some(out, found)
}

/// Returns the value of a cookie in a `Cookie` field, without surrounding blanks; names in any case (nginx:
/// `ngx_http_parse_multi_header_lines`).
pub fn find_cookie<'a>(header: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    header.split(|c| *c == b';').find_map(|pair| {
        let pair = pair.trim_ascii_start();
        let (key, rest) = pair.split_at_checked(name.len())?;
        if !key.eq_ignore_ascii_case(name) {
            return None;
        }
        rest.trim_ascii_start().strip_prefix(b"=").map(<[u8]>::trim_ascii)
    })
}

fn document_root(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let core = &r.loc().core;
    if let Some(path) = core.root.path.as_literal() {
        return put(out, path);
    }
    let core = core.clone();
    core.root.write(r, out);
    true
}

fn realpath_root(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let mut root = Vec::new();
    document_root(r, &mut root);
    match std::fs::canonicalize(path::bytes_path(&root)) {
        Ok(path) => put(out, path.as_os_str().as_encoded_bytes()),
        Err(_) => false,
    }
}

fn uri(r: &mut Request, out: &mut Vec<u8>) -> bool {
    // Not found after a malformed request line, or malformed fields over HTTP/2 and HTTP/3; empty for a path above the root.
    let is_list = matches!(r.target.version, Version::Http20 | Version::Http30);
    let none = r.head.method_span.is_empty() || (is_list && r.head.line.is_empty());
    put(out, &r.target.path) && !(r.target.path.is_empty() && none)
}

fn host(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if r.target.host.is_empty() { put(out, &r.srv().name) } else { put(out, &r.target.host) }
}

fn hostname(_: &mut Request, out: &mut Vec<u8>) -> bool {
    put(out, net::process::host_name())
}

fn http(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    let separator: &[u8] = if name == "cookie" { b"; " } else { b", " };
    let start = out.len();
    let mut found = false;
    for (field, value) in r.headers() {
        if same_name(field, name) {
            if found {
                out.extend_from_slice(separator);
            }
            out.extend_from_slice(value);
            found = true;
        }
    }
    debug_assert!(found || out.len() == start);
    found
}

/// Case-insensitive, dashes as underscores.
fn same_name(field: &[u8], name: &str) -> bool {
    field.len() == name.len()
        && field.iter().zip(name.bytes()).all(|(f, n)| f.to_ascii_lowercase() == n || (*f == b'-' && n == b'_'))
}

fn https(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if r.connection().tls.is_some() {
        put(out, b"on");
    }
    true
}

fn request_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if let Some(port) = r.target.host_port {
        write_number(u64::from(port), out);
    }
    true
}

fn is_request_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if r.target.host_port.is_some() {
        out.push(b':');
    }
    true
}

fn limit_rate(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let rate = match r.reply.limit_rate {
        Some(rate) => rate,
        None => {
            let core = r.loc().core.clone();
            core.conf.limit_rate.get(r)
        }
    };
    put_number(out, rate)
}

fn set_limit_rate(r: &mut Request, value: Vec<u8>) {
    r.reply.limit_rate = conf_schema::value::parse_size(&value);
}

fn msec(_: &mut Request, out: &mut Vec<u8>) -> bool {
    millis(out, base::clock::unix_millis())
}

fn nginx_version(_: &mut Request, out: &mut Vec<u8>) -> bool {
    put(out, NGINX_VERSION.as_bytes())
}

fn pid(_: &mut Request, out: &mut Vec<u8>) -> bool {
    put_number(out, u64::from(std::process::id()))
}

fn pipe(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put(out, if r.incoming.pipelined { b"p" } else { b"." })
}

fn proxy_ip(r: &Request, server: bool) -> Option<SocketAddr> {
    let (header, _) = r.connection().proxy.as_deref()?;
    let addresses = header.addresses.as_ref()?;
    Some(if server { addresses.destination } else { addresses.source })
}

fn put_ip(out: &mut Vec<u8>, address: Option<SocketAddr>) -> bool {
    address.is_some_and(|a| write!(out, "{}", a.ip()).is_ok())
}

fn put_port(out: &mut Vec<u8>, address: Option<SocketAddr>) -> bool {
    address.is_some_and(|a| put_number(out, u64::from(a.port())))
}

/// Port 0 has an empty value, as in nginx.
fn put_proxied_port(out: &mut Vec<u8>, address: Option<SocketAddr>) -> bool {
    address.is_some_and(|a| a.port() == 0 || put_number(out, u64::from(a.port())))
}

fn proxy_protocol_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put_ip(out, proxy_ip(r, false))
}

fn proxy_protocol_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put_proxied_port(out, proxy_ip(r, false))
}

fn proxy_protocol_server_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put_ip(out, proxy_ip(r, true))
}

fn proxy_protocol_server_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put_proxied_port(out, proxy_ip(r, true))
}

fn proxy_protocol_tlv(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    let Some((header, buf)) = r.connection().proxy.as_deref() else { return false };
    let Some(name) = wire_proxy::TlvName::of(name) else { return false };
    header.tlv(buf, name, out).unwrap_or(false)
}

/// Optimized, as many upstream requests contain one.
fn put_ipv4(out: &mut Vec<u8>, octets: [u8; 4]) {
    out.reserve(15);
    for (i, n) in octets.into_iter().enumerate() {
        if i > 0 {
            out.push(b'.');
        }
        if n >= 100 {
            out.push(b'0' + n / 100);
        }
        if n >= 10 {
            out.push(b'0' + n / 10 % 10);
        }
        out.push(b'0' + n % 10);
    }
}

fn remote_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match r.connection().peer {
        Some(SocketAddr::V4(a)) => {
            put_ipv4(out, a.ip().octets());
            true
        }
        Some(SocketAddr::V6(a)) => write!(out, "{}", a.ip()).is_ok(),
        None => put(out, b"unix:"),
    }
}

fn remote_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    // An address from a header may lack a port.
    put_port(out, r.connection().peer.filter(|peer| peer.port() != 0));
    true
}

/// Returns user and password of a well-formed basic authentication header.
pub fn basic_credentials(r: &Request) -> Option<(Vec<u8>, Vec<u8>)> {
    let value = match r.target.method {
        Method::Connect => r.header(Known::ProxyAuthorization)?,
        _ => r.header(Known::Authorization)?,
    };
    let (scheme, encoded) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = decode_base64(encoded.trim_ascii())?;
    let mut parts = decoded.splitn(2, |c| *c == b':');
    let (user, password) = (parts.next()?, parts.next()?);
    (!user.is_empty()).then(|| (user.to_vec(), password.to_vec()))
}

fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0);
    for c in text {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    (text.len() % 4 != 1).then_some(out)
}

fn remote_user(r: &mut Request, out: &mut Vec<u8>) -> bool {
    basic_credentials(r).is_some_and(|(user, _)| put(out, &user))
}

fn request(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let line = r.head.line.of(&r.buf);
    !line.is_empty() && put(out, line)
}

fn request_completion(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put(out, if r.accounting.completed { b"OK" } else { b"" })
}

fn request_filename(r: &mut Request, out: &mut Vec<u8>) -> bool {
    file_paths::mapped_path(r).is_ok_and(|path| put(out, &path))
}

fn request_id(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let id = *r.accounting.id.get_or_insert_with(net::random::bytes16);
    for byte in id {
        let hex = |n: u8| if n < 10 { b'0' + n } else { b'a' + n - 10 };
        out.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
    }
    true
}

fn request_length(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put_number(out, r.incoming.length_so_far())
}

pub(crate) fn request_method(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let name = r.main_method_name();
    !name.is_empty() && put(out, name)
}

fn request_time(r: &mut Request, out: &mut Vec<u8>) -> bool {
    millis(out, base::clock::now().millis_since(r.accounting.started))
}

fn request_uri(r: &mut Request, out: &mut Vec<u8>) -> bool {
    // Not found after a malformed request line.
    !r.head.target.is_empty() && put(out, r.head.request_uri().of(&r.buf))
}

fn scheme(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put(out, if r.connection().tls.is_some() { b"https" } else { b"http" })
}

fn sent_http(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    let o = &r.out;
    match name {
        "content_type" if !o.content_type.bytes().is_empty() => {
            put(out, o.content_type.bytes());
            if !o.charset.bytes().is_empty() {
                put(out, b"; charset=");
                put(out, o.charset.bytes());
            }
            return true;
        }
        "content_length" => return o.content_length.is_some_and(|n| put_number(out, n)),
        "location" if !o.location.bytes().is_empty() => return put(out, o.location.bytes()),
        "last_modified" if !o.last_modified_text.bytes().is_empty() => return put(out, o.last_modified_text.bytes()),
        "last_modified" => return o.last_modified.is_some_and(|t| put(out, &clock::http_time(t))),
        "etag" if !o.etag.bytes().is_empty() => return put(out, o.etag.bytes()),
        "content_encoding" if !o.content_encoding.bytes().is_empty() => return put(out, o.content_encoding.bytes()),
        "accept_ranges" if o.accept_ranges == Some(true) => return put(out, b"bytes"),
        "server" if !o.server.bytes().is_empty() => return put(out, o.server.bytes()),
        "date" if !o.date.bytes().is_empty() => return put(out, o.date.bytes()),
        "connection" => {
            let value: &[u8] = match (o.status, r.reply.keep_alive) {
                (101, _) => b"upgrade",
                (_, true) => b"keep-alive",
                (_, false) => b"close",
            };
            return put(out, value);
        }
        "keep_alive" => {
            let header = r.loc().core.conf.keepalive_timeout.header.unwrap_or(0);
            return r.reply.keep_alive && header != 0 && write!(out, "timeout={header}").is_ok();
        }
        "transfer_encoding" => return r.reply.chunked && put(out, b"chunked"),
        _ => {}
    }
    joined(&r.out.fields, name, out)
}

fn joined(fields: &[crate::response::OutField], name: &str, out: &mut Vec<u8>) -> bool {
    let mut found = false;
    for field in fields.iter().filter(|f| same_name(f.name.bytes(), name)) {
        if found {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(field.value.bytes());
        found = true;
    }
    found
}

fn sent_trailer(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    joined(&r.out.trailers, name, out)
}

fn server_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match &*r.connection().local {
        Address::Ip(a) => write!(out, "{}", a.ip()).is_ok(),
        Address::Unix(path) => write!(out, "unix:{}", path.display()).is_ok(),
    }
}

fn server_name(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put(out, &r.srv().name)
}

fn server_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if let Address::Ip(a) = &*r.connection().local {
        write_number(u64::from(a.port()), out);
    }
    true
}

fn server_protocol(r: &mut Request, out: &mut Vec<u8>) -> bool {
    // Empty after an error in the protocol's name; not found without a protocol (HTTP/0.9).
    let protocol = r.head.protocol;
    let none = r.target.version == Version::Http09 && protocol.start == protocol.end;
    !none && protocol.start > 0 && put(out, r.head.protocol.of(&r.buf))
}

fn status(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let status = if r.progress.error_status != 0 { r.progress.error_status } else { r.out.status };
    let status = if status == 0 && r.target.version == Version::Http09 { 9 } else { status };
    put(out, &[b'0' + (status / 100 % 10) as u8, b'0' + (status / 10 % 10) as u8, b'0' + (status % 10) as u8])
}

fn tcpinfo(r: &mut Request, field: usize, out: &mut Vec<u8>) -> bool {
    let value = r.connection().socket.and_then(net::outbound::tcp_info).and_then(|info| info.get(field).copied());
    value.is_some_and(|value| put_number(out, u64::from(value)))
}

fn time_iso8601(_: &mut Request, out: &mut Vec<u8>) -> bool {
    clock::cached_at(base::clock::unix_seconds(), |now| put(out, &now.iso8601))
}

fn time_local(_: &mut Request, out: &mut Vec<u8>) -> bool {
    clock::cached_at(base::clock::unix_seconds(), |now| put(out, &now.log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_text() {
        for n in 0..=255 {
            let octets = [n, 255 - n, n / 10, n / 100];
            let mut out = Vec::new();
            put_ipv4(&mut out, octets);
            assert_eq!(String::from_utf8_lossy(&out), std::net::Ipv4Addr::from(octets).to_string());
        }
    }
}
