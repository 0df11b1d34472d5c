//! Variables of proxying.

use http_engine::Request;
use http_engine::head_out::write_number;
use http_engine::order::Phase;
use http_engine::variable::Builtin;
use http_upstream::body_store;
use http_upstream::caching::stored_fields;
use http_upstream::target::UrlOrigin;
use http_upstream::upstream_state::{UpstreamState, response_times, write_bytes, write_each, write_seconds};
use std::sync::Arc;

pub static ROWS: &[Builtin] = &[
    Builtin::one(
        "proxy_host",
        |r, o| of(r, o, |s| &s.host) || origin(r, o, |s| &s.host),
        "Host and port of the proxied server, without the protocol's default port.",
    )
    .changeable(),
    Builtin::one(
        "proxy_port",
        |r, o| of(r, o, |s| &s.port) || origin(r, o, |s| &s.port),
        "Port of the proxied server.",
    )
    .changeable(),
    Builtin::one("proxy_add_x_forwarded_for", forwarded_for, "X-Forwarded-For with the client's address appended."),
    Builtin::one(
        "upstream_addr",
        |r, o| write_each(r, o, |t, o| o.extend_from_slice(if t.has_no_socket { b"" } else { t.address().as_bytes() })),
        "The addresses of the upstream servers that were tried; one per attempt.",
    ),
    Builtin::one(
        "upstream_last_addr",
        last_addr,
        "IP address, or path of the socket with `unix:`, of the upstream server that was selected last.",
    ),
    Builtin::one(
        "upstream_last_server_name",
        last_server_name,
        "Name of the upstream server that was selected last, as in its `server` line.",
    ),
    Builtin::one(
        "upstream_status",
        |r, o| write_each(r, o, status),
        "Status codes of the responses of upstream servers, one per attempt.",
    ),
    Builtin::one(
        "upstream_connect_time",
        |r, o| write_each(r, o, |t, o| write_seconds(t.connect_time, o)),
        "Times to connect to upstream servers, in seconds with milliseconds; one per attempt.",
    ),
    Builtin::one(
        "upstream_header_time",
        |r, o| write_each(r, o, |t, o| write_seconds(t.header_time, o)),
        "Times to the response head of upstream servers, in seconds with milliseconds; one per attempt.",
    ),
    Builtin::one(
        "upstream_response_time",
        response_times,
        "Times to the end of the response of upstream servers, in seconds with milliseconds; one per attempt.",
    ),
    Builtin::one(
        "upstream_response_length",
        |r, o| write_each(r, o, |t, o| write_number(t.response_length, o)),
        "Body lengths of the responses of upstream servers, in bytes; one per attempt.",
    ),
    Builtin::one(
        "upstream_bytes_sent",
        |r, o| write_bytes(r, o, |t| t.bytes_sent),
        "Bytes sent to upstream servers; one number per attempt.",
    ),
    Builtin::one(
        "upstream_bytes_received",
        |r, o| write_bytes(r, o, |t| t.bytes_received),
        "Bytes received from upstream servers; one number per attempt.",
    ),
    Builtin::one("request_body_file", body_file, "The path of the temporary file with the request body."),
    Builtin::family("upstream_http_", field, "The field NAME of the upstream server's response."),
    Builtin::family(
        "upstream_trailer_",
        trailer,
        "The trailer field NAME of the upstream server's response; over HTTP/1 only if trailers are passed on.",
    ),
    Builtin::family("upstream_cookie_", cookie, "The cookie NAME that the upstream server set."),
];

fn of(r: &mut Request, out: &mut Vec<u8>, which: impl Fn(&UrlOrigin) -> &Arc<str>) -> bool {
    // After an internal redirect, the new location has passed nothing on.
    let state = r.upstream.get::<UpstreamState>().filter(|_| r.loc().passes);
    let Some(origin) = state.and_then(|state| state.origin.as_ref()).filter(|origin| is_proxied(origin)) else {
        return false;
    };
    let text = which(origin);
    out.extend_from_slice(text.as_bytes());
    !text.is_empty()
}

fn origin(r: &mut Request, out: &mut Vec<u8>, which: impl Fn(&UrlOrigin) -> &Arc<str>) -> bool {
    // A request that an earlier phase answered was not passed on.
    let reached = r.progress.phase() == Phase::Content;
    let Some(origin) = r.loc().ext::<UrlOrigin>().filter(|origin| reached && is_proxied(origin)) else { return false };
    out.extend_from_slice(which(origin).as_bytes());
    true
}

/// Tells if `proxy_pass` names the server: the variables of `ngx_http_proxy_module` are not those of other protocols.
fn is_proxied(origin: &UrlOrigin) -> bool {
    origin.scheme.plain == "http"
}

fn last_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(peer) = UpstreamState::last_peer(r) else { return false };
    out.extend_from_slice(peer.spec.address.host().as_bytes());
    true
}

fn last_server_name(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(peer) = UpstreamState::last_peer(r) else { return false };
    out.extend_from_slice(peer.spec.name.as_bytes());
    true
}

fn status(one: &http_upstream::upstream_state::Try, out: &mut Vec<u8>) {
    if one.status == 0 { out.push(b'-') } else { write_number(u64::from(one.status), out) }
}

fn forwarded_for(r: &mut Request, out: &mut Vec<u8>) -> bool {
    for (name, value) in r.headers() {
        if name.eq_ignore_ascii_case(b"x-forwarded-for") {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
    out.extend_from_slice(r.connection().peer_text().as_bytes());
    true
}

fn field(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    with_fields(r, |fields| join(fields, name, out))
}

/// Fields of the upstream's response, or of the cached one.
fn with_fields(r: &Request, read: impl FnOnce(&[(&[u8], &[u8])]) -> bool) -> bool {
    let read = |head: &http_types::ResponseHead, buf: &[u8]| {
        let fields: Vec<(&[u8], &[u8])> = head.fields.all.iter().map(|f| (f.name.of(buf), f.value.of(buf))).collect();
        read(&fields)
    };
    let answer = r.upstream.get::<UpstreamState>().and_then(|state| state.answer.as_ref());
    match answer.filter(|answer| !answer.head.fields.all.is_empty()) {
        Some(answer) => read(&answer.head, &answer.buf),
        None if UpstreamState::is_hidden(r) => false,
        None => stored_fields(r, read).unwrap_or(false),
    }
}

fn join(fields: &[(&[u8], &[u8])], name: &str, out: &mut Vec<u8>) -> bool {
    let mut found = false;
    for (field, value) in fields {
        let same = field.len() == name.len()
            && field.iter().zip(name.bytes()).all(|(f, n)| f.to_ascii_lowercase() == n || (*f == b'-' && n == b'_'));
        if same {
            if found {
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(value);
            found = true;
        }
    }
    found
}

fn trailer(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    let Some(state) = r.upstream.get::<UpstreamState>() else { return false };
    let fields: Vec<(&[u8], &[u8])> = state
        .trailers
        .split(|c| *c == b'\n')
        .filter_map(|line| {
            let mut sides = line.splitn(2, |c| *c == b':');
            Some((sides.next()?.trim_ascii(), sides.next()?.trim_ascii()))
        })
        .collect();
    join(&fields, name, out)
}

fn cookie(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    with_fields(r, |fields| {
        let cookies = fields.iter().filter(|(f, _)| f.eq_ignore_ascii_case(b"set-cookie"));
        let mut found = cookies.filter_map(|(_, value)| set_cookie(value, name.as_bytes()));
        match found.next() {
            Some(value) => {
                out.extend_from_slice(value);
                true
            }
            None => false,
        }
    })
}

/// Value of a `Set-Cookie` line for this cookie; as in nginx, only spaces may surround the `=`.
fn set_cookie<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let spaces = |text: &'a [u8]| {
        let at = text.iter().position(|c| *c != b' ').unwrap_or(text.len());
        text.get(at..).unwrap_or_default()
    };
    let (start, rest) = line.split_at_checked(name.len())?;
    let rest = start.eq_ignore_ascii_case(name).then_some(rest)?;
    let value = spaces(spaces(rest).strip_prefix(b"=")?);
    value.split(|c| *c == b';').next()
}

fn body_file(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(path) = body_store::stored_body(r).and_then(|store| store.path().map(std::path::Path::to_path_buf)) else {
        return false;
    };
    out.extend_from_slice(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_that_are_set() {
        for (line, want) in [
            (&b"tc=x"[..], Some(&b"x"[..])),
            (b"TC = a b; Path=/", Some(b"a b")),
            (b"tc==;abc", Some(b"=")),
            (b"tc\t=\tx", None),
            (b"=tc=x", None),
            (b"tcx=1", None),
            (b"tc", None),
            (b"t", None),
        ] {
            assert_eq!(set_cookie(line, b"tc"), want, "{}", String::from_utf8_lossy(line));
        }
    }
}
