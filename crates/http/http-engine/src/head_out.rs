//! Writes a response head for HTTP/1 in nginx's order of lines (nginx: `ngx_http_header_filter_module.c`).

use crate::clean;
use crate::request::Request;
use crate::response::{HeadSlot, OutHead, Str};
use http_types::Version;
use net::Address;
use observe::clock;
use std::cell::RefCell;
use std::net::SocketAddr;

/// Drops `Last-Modified` from responses other than 200, 206 and 304, and keep-alive from the last response of a
/// connection (`closing`). Must precede [`pass_fields`]; [`write_head`] includes it.
pub fn prepare_head(r: &mut Request, closing: bool) {
    if !matches!(r.out.status, 200 | 206 | 304) {
        r.out.last_modified = None;
    }
    if closing {
        r.reply.keep_alive = false;
    }
}

/// Writes nothing for HTTP/0.9.
pub fn write_head(r: &mut Request, closing: bool, out: &mut Vec<u8>) {
    if r.target.version < Version::Http10 {
        return;
    }
    let start = out.len();
    prepare_head(r, closing);
    out.extend_from_slice(b"HTTP/1.1 ");
    match r.out.status_line.as_ref().filter(|line| !line.ends_line()) {
        Some(line) => out.extend_from_slice(line.bytes()),
        None => match http_types::status_line(r.out.status) {
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
    pass_fields(r, true, &mut Http1(out));
    out.extend_from_slice(b"\r\n");
    r.accounting.header_size = (out.len() - start) as u64;
}

/// Receiver of response fields, one call for each field line.
pub trait FieldSink {
    /// Takes a field line. Neither part has a line end.
    fn field(&mut self, name: &[u8], value: &[u8]);
    /// As [`FieldSink::field`], for a constant name; `start`: the name and `": "`, which HTTP/1 copies at once.
    #[inline]
    fn known(&mut self, start: &'static [u8], value: &[u8]) {
        self.field(start.strip_suffix(b": ").unwrap_or(start), value);
    }
    /// Takes the field lines of an upstream server, in HTTP/1 syntax.
    fn lines(&mut self, lines: &[u8]) {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let (name, value) = line.split_at(colon);
            self.field(name, value.strip_prefix(b":").unwrap_or_default().trim_ascii());
        }
    }
}

impl<F: FnMut(&[u8], &[u8])> FieldSink for F {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self(name, value);
    }
}

struct Http1<'a>(&'a mut Vec<u8>);

impl FieldSink for Http1<'_> {
    #[inline]
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.reserve(name.len() + value.len() + 4);
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(value);
        self.0.extend_from_slice(b"\r\n");
    }
    #[inline(always)]
    fn known(&mut self, start: &'static [u8], value: &[u8]) {
        self.0.reserve(start.len() + value.len() + 2);
        self.0.extend_from_slice(start);
        self.0.extend_from_slice(value);
        self.0.extend_from_slice(b"\r\n");
    }
    #[inline]
    fn lines(&mut self, lines: &[u8]) {
        self.0.extend_from_slice(lines);
    }
}

/// Passes response fields to `sink` in nginx's order, without line breaks. `connection`: includes connection fields,
/// absent from HTTP/2 and HTTP/3.
pub fn pass_fields(r: &mut Request, connection: bool, sink: &mut impl FieldSink) {
    let plan = r.plan_rc();
    let core = &plan.loc(r.scope.location).core;
    let o = &r.out;
    if o.server.is_empty() && !o.no_server {
        sink.known(b"Server: ", &core.signature);
    }
    if o.date.is_empty() && !o.no_date {
        clock::cached_at(base::clock::unix_seconds(), |now| sink.known(b"Date: ", &now.http));
    }
    if !o.content_type.is_empty() && !o.content_type.ends_line() {
        if !o.charset.is_empty() && !clean::ends_line(o.charset.bytes()) {
            sink.known(b"Content-Type: ", &[o.content_type.bytes(), b"; charset=", o.charset.bytes()].concat());
        } else {
            sink.known(b"Content-Type: ", o.content_type.bytes());
        }
    }
    if let Some(length) = o.content_length {
        sink.known(b"Content-Length: ", digits(length, &mut [0; 20]));
    }
    if o.last_modified_text.is_empty()
        && let Some(modified) = o.last_modified
    {
        sink.known(b"Last-Modified: ", &date_text(modified));
    }
    if o.location.is_empty() && !r.reply.old_location.is_empty() {
        r.out.location = std::mem::take(&mut r.reply.old_location);
    }
    // A redirect made absolute has a fixed position, and so has every one over HTTP/2 and HTTP/3; others keep theirs.
    let is_list = matches!(r.target.version, Version::Http20 | Version::Http30);
    let own_location = r.out.location.bytes().starts_with(b"/") && core.conf.absolute_redirect;
    if own_location {
        let absolute = location(r);
        sink.known(b"Location: ", &absolute);
        r.out.location = absolute.into();
    } else if is_list && !r.out.location.is_empty() {
        sink.known(b"Location: ", &clean::encode_line_ends(r.out.location.bytes()));
    }
    if connection {
        connection_fields(r, sink);
    }
    r.out.settle();
    let o = &r.out;
    if o.vary_encoding {
        sink.known(b"Vary: ", b"Accept-Encoding");
    }
    if !o.lines.is_empty() {
        sink.lines(&o.lines);
    }
    // Of the location in its fixed position there is no second one.
    let is_due = |slot: HeadSlot| o.holds(slot) && !(slot == HeadSlot::Location && (own_location || is_list));
    let mut slots = o.slots();
    for (index, field) in o.fields.iter().enumerate() {
        while let Some(((slot, before), rest)) = slots.split_first()
            && *before <= index
        {
            slots = rest;
            if is_due(*slot) {
                write_slot(o, *slot, sink);
            }
        }
        let (name, value) = (field.name.bytes(), field.value.bytes());
        // Last line of defence: features check their fields, with the directive's name.
        if field.value.ends_line() || field.name.ends_line() {
            r.dropped("response head", name, value);
            continue;
        }
        sink.field(name, value);
    }
    for (slot, _) in slots {
        if is_due(*slot) {
            write_slot(o, *slot, sink);
        }
    }
}

fn connection_fields(r: &Request, sink: &mut impl FieldSink) {
    if r.reply.chunked {
        sink.known(b"Transfer-Encoding: ", b"chunked");
    }
    if r.out.status == 101 {
        sink.known(b"Connection: ", b"upgrade");
    } else if r.reply.keep_alive {
        sink.known(b"Connection: ", b"keep-alive");
        let header = r.loc().core.conf.keepalive_timeout.header.unwrap_or(0);
        if header != 0 {
            let mut value = b"timeout=".to_vec();
            write_number(header, &mut value);
            sink.known(b"Keep-Alive: ", &value);
        }
    } else {
        sink.known(b"Connection: ", b"close");
    }
}

fn write_slot(o: &OutHead, slot: HeadSlot, sink: &mut impl FieldSink) {
    let (start, value): (&'static [u8], &Str) = match slot {
        HeadSlot::Location => {
            return write_named(o, slot, b"Location: ", &clean::encode_line_ends(o.location.bytes()), sink);
        }
        HeadSlot::AcceptRanges => return write_named(o, slot, b"Accept-Ranges: ", b"bytes", sink),
        HeadSlot::Server => (b"Server: ", &o.server),
        HeadSlot::Date => (b"Date: ", &o.date),
        HeadSlot::LastModified => (b"Last-Modified: ", &o.last_modified_text),
        HeadSlot::Etag => (b"ETag: ", &o.etag),
        HeadSlot::ContentEncoding => (b"Content-Encoding: ", &o.content_encoding),
    };
    if !value.ends_line() {
        write_named(o, slot, start, value.bytes(), sink);
    }
}

/// Writes a slot with its usual name, unless an upstream server spells it otherwise.
#[inline]
fn write_named(o: &OutHead, slot: HeadSlot, start: &'static [u8], value: &[u8], sink: &mut impl FieldSink) {
    match o.spelling(slot) {
        None => sink.known(start, value),
        Some(name) => sink.field(name, value),
    }
}

/// Appends a number in decimal digits.
pub fn write_number(n: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(digits(n, &mut [0; 20]));
}

fn digits(mut n: u64, buf: &mut [u8; 20]) -> &[u8] {
    let mut at = buf.len();
    for place in buf.iter_mut().rev() {
        at -= 1;
        *place = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    buf.get(at..).unwrap_or_default()
}

fn location(r: &Request) -> Vec<u8> {
    let mut url = Vec::with_capacity(128);
    let out = &mut url;
    let target = r.out.location.bytes();
    let plan = r.plan_rc();
    let conf = &plan.loc(r.scope.location).core.conf;
    let tls = r.connection().tls.is_some();
    out.extend_from_slice(if tls { b"https://" } else { b"http://" });
    if conf.server_name_in_redirect {
        out.extend_from_slice(&r.srv().name);
    } else if !r.target.host.is_empty() {
        out.extend_from_slice(&r.target.host);
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
        write_number(u64::from(address.port()), out);
    }
    out.extend_from_slice(&clean::encode_line_ends(target));
    url
}

/// Caches recent texts, because a site's files are requested repeatedly.
pub fn date_text(seconds: i64) -> [u8; 29] {
    const KEPT: usize = 64;
    thread_local! {
        static TEXTS: RefCell<[(i64, [u8; 29]); KEPT]> = const { RefCell::new([(i64::MIN, [0; 29]); KEPT]) };
    }
    TEXTS.with_borrow_mut(|texts| {
        let Some(slot) = texts.get_mut(seconds.rem_euclid(KEPT as i64) as usize) else {
            return clock::http_time(seconds);
        };
        if slot.0 != seconds {
            *slot = (seconds, clock::http_time(seconds));
        }
        slot.1
    })
}
