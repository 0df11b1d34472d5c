//! Variables of the core module (nginx: `ngx_stream_variables.c`).

use crate::Builtin;
use crate::session::StreamSession;
use net::Address;
use observe::clock;
use std::io::Write as _;
use std::net::SocketAddr;

pub static CORE: &[Builtin] = &[
    Builtin::one("binary_remote_addr", binary_remote_addr, "The client's address as 4 or 16 bytes."),
    Builtin::one("bytes_received", |s, o| write_number(o, s.received), "Bytes received from the client."),
    Builtin::one("bytes_sent", |s, o| write_number(o, s.sent), "Bytes sent to the client."),
    Builtin::one("connection", |s, o| write_number(o, s.number), "The connection's number."),
    Builtin::one("hostname", |_, o| put(o, net::process::host_name()), "The machine's host name."),
    Builtin::one(
        "msec",
        |_, o| write_seconds(o, base::clock::unix_millis()),
        "The current time in seconds since 1970, with milliseconds.",
    ),
    Builtin::one(
        "nginx_version",
        |_, o| put(o, variables::NGINX_VERSION.as_bytes()),
        "The nginx version that this version of Tidegate corresponds to.",
    ),
    Builtin::one("pid", |_, o| write_number(o, u64::from(std::process::id())), "The worker's process id."),
    Builtin::one(
        "protocol",
        |s, o| put(o, if s.udp { b"UDP" } else { b"TCP" }),
        "The protocol of the session: `TCP` or `UDP`.",
    ),
    Builtin::one(
        "proxy_protocol_addr",
        |s, o| ip(o, proxied(s, false)),
        "The client's address from the PROXY protocol header.",
    ),
    Builtin::one(
        "proxy_protocol_port",
        |s, o| proxied_port(o, proxied(s, false)),
        "The client's port from the PROXY protocol header.",
    ),
    Builtin::one(
        "proxy_protocol_server_addr",
        |s, o| ip(o, proxied(s, true)),
        "The server's address from the PROXY protocol header.",
    ),
    Builtin::one(
        "proxy_protocol_server_port",
        |s, o| proxied_port(o, proxied(s, true)),
        "The server's port from the PROXY protocol header.",
    ),
    Builtin::family("proxy_protocol_tlv_", tlv, "A TLV from the PROXY protocol header, by name or as `0xNN`."),
    Builtin::one("remote_addr", |s, o| put(o, s.peer_text().as_bytes()), "The client's address."),
    Builtin::one("remote_port", remote_port, "The client's port."),
    Builtin::one("server_addr", server_addr, "The address that accepted the connection."),
    Builtin::one("server_name", server_name, "The first name of the server."),
    Builtin::one("server_port", server_port, "The port that accepted the connection."),
    Builtin::one("session_time", session_time, "Seconds since the session began, with milliseconds."),
    Builtin::one("status", status, "The session's status: 200, 400, 403, 500, 502 or 503."),
    Builtin::one("time_iso8601", |_, o| time(o, |now| &now.iso8601), "Local time in the ISO 8601 format."),
    Builtin::one("time_local", |_, o| time(o, |now| &now.log), "Local time in the format of access logs."),
];

fn put(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    out.extend_from_slice(bytes);
    true
}

pub fn write_number(out: &mut Vec<u8>, n: u64) -> bool {
    write!(out, "{n}").is_ok()
}

pub fn write_seconds(out: &mut Vec<u8>, ms: u64) -> bool {
    write!(out, "{}.{:03}", ms / 1000, ms % 1000).is_ok()
}

fn ip(out: &mut Vec<u8>, address: Option<SocketAddr>) -> bool {
    address.is_some_and(|a| write!(out, "{}", a.ip()).is_ok())
}

fn port(out: &mut Vec<u8>, address: Option<SocketAddr>) -> bool {
    address.is_some_and(|a| write_number(out, u64::from(a.port())))
}

/// Port 0 means none: the value is empty, as in nginx.
fn proxied_port(out: &mut Vec<u8>, address: Option<SocketAddr>) -> bool {
    address.is_some_and(|a| a.port() == 0 || write_number(out, u64::from(a.port())))
}

fn time(out: &mut Vec<u8>, which: impl Fn(&clock::Strings) -> &[u8]) -> bool {
    clock::cached_at(base::clock::unix_seconds(), |now| put(out, which(now)))
}

fn binary_remote_addr(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    match s.peer {
        Some(SocketAddr::V4(a)) => put(out, &a.ip().octets()),
        Some(SocketAddr::V6(a)) => put(out, &a.ip().octets()),
        None => put(out, b"unix:"),
    }
}

fn proxied(s: &StreamSession, server: bool) -> Option<SocketAddr> {
    let (header, _) = s.proxy.as_deref()?;
    let addresses = header.addresses.as_ref()?;
    Some(if server { addresses.destination } else { addresses.source })
}

fn tlv(s: &mut StreamSession, name: &str, out: &mut Vec<u8>) -> bool {
    let Some((header, buf)) = s.proxy.as_deref() else { return false };
    let Some(name) = wire_proxy::TlvName::of(name) else { return false };
    header.tlv(buf, name, out).unwrap_or(false)
}

fn remote_port(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    port(out, s.peer.filter(|peer| peer.port() != 0));
    true
}

fn server_addr(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    match &*s.local {
        Address::Ip(a) => write!(out, "{}", a.ip()).is_ok(),
        Address::Unix(path) => write!(out, "unix:{}", path.display()).is_ok(),
    }
}

fn server_name(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    put(out, &s.srv().name)
}

fn server_port(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    if let Address::Ip(a) = &*s.local {
        write_number(out, u64::from(a.port()));
    }
    true
}

fn session_time(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    write_seconds(out, base::clock::now().millis_since(s.started))
}

fn status(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    write!(out, "{:03}", s.status).is_ok()
}
