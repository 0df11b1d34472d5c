//! `$upstream_*`: values of all attempts, separated by commas.

use crate::Builtin;
use crate::session::{StreamSession, Try};
use crate::variables::{write_number, write_seconds};

pub static ROWS: &[Builtin] = &[
    Builtin::one(
        "upstream_addr",
        |s, o| each(s, o, |one, o| o.extend_from_slice(one.address.as_bytes())),
        "The addresses of the upstream servers that were tried; one per attempt.",
    ),
    Builtin::one(
        "upstream_bytes_received",
        |s, o| each(s, o, |one, o| _ = write_number(o, one.bytes_received)),
        "Bytes received from upstream servers; one number per attempt.",
    ),
    Builtin::one(
        "upstream_bytes_sent",
        |s, o| each(s, o, |one, o| _ = write_number(o, one.bytes_sent)),
        "Bytes sent to upstream servers; one number per attempt.",
    ),
    Builtin::one(
        "upstream_connect_time",
        |s, o| each(s, o, |one, o| time(one.connect_ms, o)),
        "Times to connect to upstream servers, in seconds with milliseconds; one per attempt.",
    ),
    Builtin::one(
        "upstream_first_byte_time",
        |s, o| each(s, o, |one, o| time(one.first_byte_ms, o)),
        "Times to the first byte from upstream servers, in seconds with milliseconds; one per attempt.",
    ),
    Builtin::one(
        "upstream_last_addr",
        last_addr,
        "IP address, or path of the socket with `unix:`, of the upstream server that was selected last.",
    ),
    Builtin::one(
        "upstream_session_time",
        |s, o| each(s, o, |one, o| time(one.session_ms, o)),
        "Times to the end of the session with each upstream server, in seconds with milliseconds; one per attempt.",
    ),
];

fn each(s: &StreamSession, out: &mut Vec<u8>, write: impl Fn(&Try, &mut Vec<u8>)) -> bool {
    for (index, one) in s.tries.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        write(one, out);
    }
    !s.tries.is_empty()
}

fn last_addr(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    let Some(peer) = s.tries.last().and_then(|one| one.peer.as_ref()) else { return false };
    out.extend_from_slice(peer.spec.address.host().as_bytes());
    true
}

fn time(ms: Option<u64>, out: &mut Vec<u8>) {
    match ms {
        Some(ms) => _ = write_seconds(out, ms),
        None => out.push(b'-'),
    }
}
