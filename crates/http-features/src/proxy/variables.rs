//! The variables of proxying.

use crate::shared::upstream_state::{UpstreamState, each, seconds};
use http_engine::Request;
use http_engine::head_out::number;
use http_engine::variable::Builtin;
use http_engine::variables::{find_cookie, peer_text};

pub static ROWS: &[Builtin] = &[
    Builtin::one("proxy_host", |r, o| of(r, o, |s| &s.host), "Host and port of the proxied server."),
    Builtin::one("proxy_port", |r, o| of(r, o, |s| &s.port), "Port of the proxied server."),
    Builtin::one("proxy_add_x_forwarded_for", forwarded_for, "X-Forwarded-For with the client's address appended."),
    Builtin::one(
        "upstream_addr",
        |r, o| each(r, o, |t, o| o.extend_from_slice(t.address.as_bytes())),
        "Servers asked.",
    ),
    Builtin::one("upstream_status", |r, o| each(r, o, status), "Their status codes."),
    Builtin::one("upstream_connect_time", |r, o| each(r, o, |t, o| seconds(t.connect_ms, o)), "Times to connect."),
    Builtin::one("upstream_header_time", |r, o| each(r, o, |t, o| seconds(t.header_ms, o)), "Times to the head."),
    Builtin::one("upstream_response_time", |r, o| each(r, o, |t, o| seconds(t.response_ms, o)), "Times to the end."),
    Builtin::one("upstream_response_length", |r, o| each(r, o, |t, o| number(t.response_length, o)), "Body lengths."),
    Builtin::one("upstream_bytes_sent", |r, o| each(r, o, |t, o| number(t.bytes_sent, o)), "Bytes sent to servers."),
    Builtin::one("upstream_bytes_received", |r, o| each(r, o, |t, o| number(t.bytes_received, o)), "Bytes received."),
    Builtin::family("upstream_http_", field, "The server's response header NAME."),
    Builtin::family("upstream_cookie_", cookie, "The cookie NAME that the server set."),
];

fn of(r: &mut Request, out: &mut Vec<u8>, which: impl Fn(&UpstreamState) -> &Vec<u8>) -> bool {
    let Some(state) = r.thing::<UpstreamState>() else { return false };
    out.extend_from_slice(which(state));
    !which(state).is_empty()
}

fn status(one: &crate::shared::upstream_state::Try, out: &mut Vec<u8>) {
    if one.status == 0 { out.push(b'-') } else { number(u64::from(one.status), out) }
}

fn forwarded_for(r: &mut Request, out: &mut Vec<u8>) -> bool {
    for (name, value) in r.headers() {
        if name.eq_ignore_ascii_case(b"x-forwarded-for") {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
    out.extend_from_slice(peer_text(r.connection()).as_bytes());
    true
}

fn field(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    let Some(state) = r.thing::<UpstreamState>() else { return false };
    let mut found = false;
    for (field, value) in &state.fields {
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

fn cookie(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    let Some(state) = r.thing::<UpstreamState>() else { return false };
    let cookies = state.fields.iter().filter(|(f, _)| f.eq_ignore_ascii_case(b"set-cookie"));
    let mut found = cookies.filter_map(|(_, v)| {
        let first = v.split(|c| *c == b';').next()?;
        find_cookie(first, name.as_bytes())
    });
    match found.next_back() {
        Some(value) => {
            out.extend_from_slice(value);
            true
        }
        None => false,
    }
}
