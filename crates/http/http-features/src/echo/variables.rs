//! Variables of the module.

use base::clock::Instant;
use http_engine::Request;
use http_engine::variable::Builtin;

/// Start of `$echo_timer_elapsed` after `echo_reset_timer`.
pub struct Timer(pub Instant);

pub struct LoopItem(pub Vec<u8>);

pub static ALL: &[Builtin] = &[
    Builtin::one("echo_it", item, "The current part of the string of `echo_foreach_split`."),
    Builtin::one(
        "echo_timer_elapsed",
        |r, out| {
            let since = r.ext::<Timer>().map_or(r.accounting.started(), |timer| timer.0);
            let elapsed = base::clock::now().millis_since(since);
            put(out, format!("{}.{:03}", elapsed / 1000, elapsed % 1000).as_bytes())
        },
        "Seconds since the request began, or since `echo_reset_timer`, with three decimals.",
    ),
    Builtin::one(
        "echo_request_method",
        |r, out| put(out, r.method_name()),
        "The method of the request or, in a subrequest, of the subrequest.",
    ),
    Builtin::one(
        "echo_client_request_method",
        |r, out| put(out, r.main_method_name()),
        "The method of the client's request.",
    ),
    Builtin::one(
        "echo_request_uri",
        |r, out| {
            out.extend_from_slice(r.target.path());
            if !r.target.args().is_empty() {
                out.push(b'?');
                out.extend_from_slice(r.target.args());
            }
            true
        },
        "The path and arguments of the request or, in a subrequest, of the subrequest.",
    ),
    Builtin::one(
        "echo_request_body",
        |r, out| match r.incoming.body_bytes() {
            Some(body) => put(out, body),
            None => false,
        },
        "The request body, if `echo_read_request_body` has read it into memory.",
    ),
    Builtin::one(
        "echo_client_request_headers",
        |r, out| {
            put(out, r.main_method_name());
            out.push(b' ');
            out.extend_from_slice(r.head.request_uri().of(&r.buf));
            out.push(b' ');
            put(out, r.target.version().name().as_bytes());
            put(out, b"\r\n");
            for (name, value) in r.headers() {
                for part in [name, b": ".as_slice(), value, b"\r\n"] {
                    out.extend_from_slice(part);
                }
            }
            put(out, b"\r\n")
        },
        "The request line and the fields of the client's request, with the empty line behind them.",
    ),
];

fn put(out: &mut Vec<u8>, text: &[u8]) -> bool {
    out.extend_from_slice(text);
    true
}

fn item(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match r.shared::<LoopItem>() {
        Some(item) => put(out, &item.0),
        None => false,
    }
}
