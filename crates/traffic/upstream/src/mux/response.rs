//! Response of a multiplexed protocol: from lists of fields to an HTTP/1 head, with checks of the declared length.

use crate::client::ResponseEvent;
use crate::codec::{Event, MalformedResponse, ReceivedHead, RequestFacts, ResponseEnd, ResponseStart};
use bytes::Bytes;
use http_types::{BodyLength, List, Method, ResponseHead};
use std::rc::Rc;
use wire_h1::{HeadLimits, ResponseParser};

/// The response of one stream: [`MuxResponse::head`] for each head, [`MuxResponse::body`] for each piece,
/// [`MuxResponse::finish`] at the end.
pub struct MuxResponse {
    asked: RequestFacts,
    /// Remaining bytes of a declared length.
    left: Option<u64>,
    /// Trailers after the end of the body.
    end: Option<Vec<u8>>,
    ended: bool,
}

impl MuxResponse {
    /// Begins the response to a request.
    pub fn new(asked: &RequestFacts) -> MuxResponse {
        MuxResponse { asked: *asked, left: None, end: None, ended: false }
    }
    /// [`MuxResponse::take_end`] has returned the end.
    pub fn is_ended(&self) -> bool {
        self.ended
    }
    /// Returns `None` before the end has arrived.
    pub fn take_end(&mut self) -> Option<ResponseEvent> {
        let trailers = self.end.take()?;
        self.ended = true;
        Some(ResponseEvent::Event(Event::End(ResponseEnd { trailers, excess: None })))
    }
    /// Fails beyond the declared length.
    pub fn body(&mut self, length: usize) -> Result<(), MalformedResponse> {
        if let Some(left) = &mut self.left {
            *left = left
                .checked_sub(length as u64)
                .ok_or("upstream sent response body larger than indicated content length")?;
        }
        Ok(())
    }
    /// Fails before the declared length.
    pub fn finish(&mut self, trailers: Vec<u8>) -> Result<(), MalformedResponse> {
        if self.left.is_some_and(|left| left > 0) {
            return Err("upstream sent response body smaller than indicated content length".into());
        }
        self.end = Some(trailers);
        Ok(())
    }
    /// Takes a head of `octets`, final or interim. `end`: without a body.
    pub fn head(&mut self, list: &List, end: bool, octets: usize) -> Result<ResponseEvent, MalformedResponse> {
        let (answer, length) = answer(list)?;
        let status = answer.head.status;
        if (100..200).contains(&status) {
            return Ok(ResponseEvent::Event(Event::Interim(Rc::new(answer), octets)));
        }
        let bodiless = self.asked.method == Method::Head || matches!(status, 204 | 304);
        self.left = if bodiless { Some(0) } else { length };
        let length = match length {
            _ if bodiless => BodyLength::None,
            Some(n) => BodyLength::Exact(n),
            None if end => BodyLength::Exact(0),
            // Delimited by the protocol.
            None => BodyLength::Chunked,
        };
        if end {
            self.finish(Vec::new())?;
        }
        let head_bytes = answer.buf.len();
        Ok(ResponseEvent::Event(Event::Head(ResponseStart { answer: Rc::new(answer), head_bytes, length, behind: 0 })))
    }
}

/// Converts trailers to lines of HTTP/1. `protocol`: for the error log.
pub fn trailer_lines(list: &List, protocol: &str) -> Result<Vec<u8>, MalformedResponse> {
    let mut lines = Vec::new();
    for (name, value) in list.iter() {
        check(name, value)?;
        if name.starts_with(b":") {
            return Err(format!("upstream sent {protocol} trailer with pseudo-header").into());
        }
        [name, b": ", value, b"\r\n"].iter().for_each(|part| lines.extend_from_slice(part));
    }
    Ok(lines)
}

/// RFC 9110, 15.2.
pub fn is_interim(list: &List) -> bool {
    list.iter().any(|(name, value)| name == b":status" && value.starts_with(b"1"))
}

/// RFC 9113, 8.2.1.
fn check(name: &[u8], value: &[u8]) -> Result<(), MalformedResponse> {
    let bare = name.strip_prefix(b":").unwrap_or(name);
    let odd = |c: &u8| *c <= b' ' || *c == 0x7f || *c == b':' || c.is_ascii_uppercase();
    let shown = |text: &[u8]| text.escape_ascii().to_string();
    if bare.is_empty() || bare.iter().any(odd) {
        return Err(format!("upstream sent invalid header name: \"{}\"", shown(name)).into());
    }
    if value.iter().any(|c| matches!(c, 0 | b'\r' | b'\n')) {
        return Err(format!("upstream sent invalid header value: \"{}: {}\"", shown(name), shown(value)).into());
    }
    Ok(())
}

/// Builds an HTTP/1 head, and the declared body length.
fn answer(list: &List) -> Result<(ReceivedHead, Option<u64>), MalformedResponse> {
    if list.too_large || list.too_many {
        return Err("upstream sent too big header".into());
    }
    let mut status = None;
    let mut length = None;
    let mut fields = Vec::with_capacity(list.arena.len() + 64);
    let mut any = false;
    for (name, value) in list.iter() {
        check(name, value)?;
        if name == b":status" && status.is_none() && !any {
            let digits =
                std::str::from_utf8(value).ok().filter(|v| v.len() == 3 && v.bytes().all(|c| c.is_ascii_digit()));
            let Some(code) = digits.and_then(|digits| digits.parse::<u16>().ok()).filter(|code| *code >= 100) else {
                return Err(format!("upstream sent invalid :status \"{}\"", value.escape_ascii()).into());
            };
            status = Some(code);
            continue;
        }
        if name.starts_with(b":") {
            return Err(format!("upstream sent invalid pseudo-header \"{}\"", name.escape_ascii()).into());
        }
        any = true;
        if name == b"content-length" {
            let text =
                std::str::from_utf8(value).ok().filter(|v| !v.is_empty() && v.bytes().all(|c| c.is_ascii_digit()));
            match text.and_then(|text| text.parse().ok()) {
                Some(n) if length.is_none() => length = Some(n),
                _ => return Err("upstream sent invalid \"Content-Length\" header".into()),
            }
        }
        if !http_types::is_connection_field(name, value) {
            [name, b": ", value, b"\r\n"].iter().for_each(|part| fields.extend_from_slice(part));
        }
    }
    let Some(status) = status else { return Err("upstream sent no :status header".into()) };
    let line = http_types::status_line(status).map_or_else(|| format!("{status} "), str::to_string);
    let text = [b"HTTP/1.1 ", line.as_bytes(), b"\r\n", &fields, b"\r\n"].concat();
    let max = text.len();
    let limits = HeadLimits {
        line_max: max,
        field_max: max,
        total_max: max,
        fields_max: 1000,
        underscores: true,
        ignore_invalid: true,
    };
    let mut head = ResponseHead::default();
    if ResponseParser::default().parse(&text, &limits, &mut head).is_err() {
        return Err("upstream sent invalid header".into());
    }
    Ok((ReceivedHead { head, buf: Bytes::from(text) }, length))
}
