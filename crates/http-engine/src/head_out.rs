//! Writes a response head for HTTP/1 (nginx: `ngx_http_header_filter_module.c`): the order of its lines is nginx's.

use crate::clean;
use crate::request::Request;
use crate::response::{OutHead, Slot};
use net::listen::Address;
use observe::clock;
use std::cell::RefCell;
use std::net::SocketAddr;
use wire_h1::Version;

/// Appends the head to `out`. HTTP/0.9 has none.
pub fn write(r: &mut Request, closing: bool, out: &mut Vec<u8>) {
    if r.version < Version::Http10 {
        return;
    }
    let start = out.len();
    let plan = r.plan_rc();
    let core = &plan.locations[r.location].core;
    if !matches!(r.out.status, 200 | 206 | 304) {
        r.out.last_modified = None;
    }
    if closing {
        r.keep_alive = false;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    match r.out.status_line.as_ref().filter(|line| !clean::ends_line(line.bytes())) {
        Some(line) => out.extend_from_slice(line.bytes()),
        None => match wire_h1::status_line(r.out.status) {
            Some(line) => out.extend_from_slice(line.as_bytes()),
            None => {
                let status = r.out.status;
                out.extend_from_slice(&[
                    b'0' + (status / 100 % 10) as u8,
                    b'0' + (status / 10 % 10) as u8,
                    b'0' + (status % 10) as u8,
                    b' ',
                ]);
            }
        },
    }
    out.extend_from_slice(b"\r\n");
    let o = &r.out;
    if o.server.bytes().is_empty() && !o.no_server {
        out.extend_from_slice(&core.server_line);
    }
    if o.date.bytes().is_empty() && !o.no_date {
        out.extend_from_slice(b"Date: ");
        clock::cached_at(base::clock::unix_seconds(), |now| out.extend_from_slice(&now.http));
        out.extend_from_slice(b"\r\n");
    }
    if !o.content_type.bytes().is_empty() && !clean::ends_line(o.content_type.bytes()) {
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(o.content_type.bytes());
        if !o.charset.bytes().is_empty() && !clean::ends_line(o.charset.bytes()) {
            out.extend_from_slice(b"; charset=");
            out.extend_from_slice(o.charset.bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
    if let Some(length) = o.content_length {
        out.extend_from_slice(b"Content-Length: ");
        number(length, out);
        out.extend_from_slice(b"\r\n");
    }
    if o.last_modified_text.bytes().is_empty()
        && let Some(modified) = o.last_modified
    {
        line(out, b"Last-Modified: ", &date_text(modified));
    }
    if o.location.bytes().is_empty() && !r.old_location.bytes().is_empty() && matches!(o.status, 301..=308) {
        r.out.location = std::mem::take(&mut r.old_location);
    }
    // What is made absolute is ours, and stands here; another one stands where it was set.
    let own_location = r.out.location.bytes().starts_with(b"/") && core.conf.absolute_redirect;
    if own_location {
        location(r, out);
    }
    if r.chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if r.out.status == 101 {
        out.extend_from_slice(b"Connection: upgrade\r\n");
    } else if r.keep_alive {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
        let header = core.conf.keepalive_timeout.header;
        if header != 0 {
            out.extend_from_slice(b"Keep-Alive: timeout=");
            number(header, out);
            out.extend_from_slice(b"\r\n");
        }
    } else {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    r.out.settle();
    let o = &r.out;
    if o.vary_encoding {
        out.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
    let mut slots = o.slots().filter(|(slot, _)| !(own_location && *slot == Slot::Location)).peekable();
    for (index, field) in o.fields.iter().enumerate() {
        while let Some((slot, _)) = slots.next_if(|(_, before)| *before <= index) {
            write_slot(o, slot, out);
        }
        let (name, value) = (field.name.bytes(), field.value.bytes());
        // Features have seen to it already, and said which directive it was: this is for what they forgot.
        if clean::ends_line(value) || clean::ends_line(name) {
            r.dropped("response head", name, value);
            continue;
        }
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    for (slot, _) in slots {
        write_slot(o, slot, out);
    }
    out.extend_from_slice(b"\r\n");
    r.header_size = (out.len() - start) as u64;
}

fn write_slot(o: &OutHead, slot: Slot, out: &mut Vec<u8>) {
    match slot {
        Slot::Location => line(out, b"Location: ", &clean::encoded(o.location.bytes())),
        Slot::Server => line(out, b"Server: ", o.server.bytes()),
        Slot::Date => line(out, b"Date: ", o.date.bytes()),
        Slot::LastModified => line(out, b"Last-Modified: ", o.last_modified_text.bytes()),
        Slot::Etag => line(out, b"ETag: ", o.etag.bytes()),
        Slot::ContentEncoding => line(out, b"Content-Encoding: ", o.content_encoding.bytes()),
        Slot::AcceptRanges => out.extend_from_slice(b"Accept-Ranges: bytes\r\n"),
    }
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if clean::ends_line(value) {
        return;
    }
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Decimal digits.
pub fn number(mut n: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The `Location` line of a path, which becomes an absolute URL.
fn location(r: &mut Request, out: &mut Vec<u8>) {
    let value = std::mem::take(&mut r.out.location);
    let target = value.bytes();
    let plan = r.plan_rc();
    let conf = &plan.locations[r.location].core.conf;
    out.extend_from_slice(b"Location: ");
    let start = out.len();
    let tls = r.connection().tls.is_some();
    out.extend_from_slice(if tls { b"https://" } else { b"http://" });
    if conf.server_name_in_redirect {
        out.extend_from_slice(&r.srv().name);
    } else if !r.host.is_empty() {
        out.extend_from_slice(&r.host);
    } else {
        match &*r.connection().local {
            Address::Ip(SocketAddr::V4(v4)) => out.extend_from_slice(v4.ip().to_string().as_bytes()),
            Address::Ip(SocketAddr::V6(v6)) => out.extend_from_slice(format!("[{}]", v6.ip()).as_bytes()),
            Address::Unix(path) => out.extend_from_slice(format!("unix:{}", path.display()).as_bytes()),
        }
    }
    if conf.port_in_redirect
        && let Address::Ip(address) = &*r.connection().local
        && address.port() != if tls { 443 } else { 80 }
    {
        out.push(b':');
        number(u64::from(address.port()), out);
    }
    out.extend_from_slice(&clean::encoded(target));
    // For the log: what was sent.
    r.out.location = out.get(start..).unwrap_or_default().to_vec().into();
    out.extend_from_slice(b"\r\n");
}

/// A time as text; the last few are remembered, because a site's files are asked for again and again.
pub fn date_text(seconds: i64) -> [u8; 29] {
    const KEPT: usize = 64;
    thread_local! {
        static TEXTS: RefCell<[(i64, [u8; 29]); KEPT]> = const { RefCell::new([(i64::MIN, [0; 29]); KEPT]) };
    }
    TEXTS.with_borrow_mut(|texts| {
        let slot = &mut texts[seconds.rem_euclid(KEPT as i64) as usize];
        if slot.0 != seconds {
            *slot = (seconds, clock::http_time(seconds));
        }
        slot.1
    })
}
