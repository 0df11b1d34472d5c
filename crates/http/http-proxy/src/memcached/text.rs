//! memcached's text protocol, `get` only; no I/O.

use bytes::Bytes;
use http_types::{BodyLength, ResponseHead};
use std::rc::Rc;
use upstream::{Event, MalformedResponse, ReceivedHead, RequestFacts, ResponseEnd, ResponseStart, SerialCodec};
use wire_h1::{HeadLimits, ResponseParser};

const TRAILER: &[u8] = b"\r\nEND\r\n";

/// Writes the request; percent-encodes bytes that would end the key, as in nginx.
pub fn put_get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"get ");
    out.append(&mut escape_key(key));
    out.extend_from_slice(b"\r\n");
}

pub fn escape_key(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len());
    for c in key {
        match c {
            0..=b' ' | b'%' => out.extend_from_slice(format!("%{c:02X}").as_bytes()),
            c => out.push(*c),
        }
    }
    out
}

enum ResponseState {
    Head,
    /// Remaining bytes of the value.
    Value(u64),
    /// Received bytes of the trailer.
    Trailer(usize),
    Ended,
}

pub struct MemcachedReader {
    gzip_flag: u32,
    head_max: usize,
    key: Vec<u8>,
    state: ResponseState,
    reusable: bool,
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    let plain = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(word).ok().filter(|_| plain)?.parse().ok()
}

fn answer(text: String) -> ReceivedHead {
    let mut head = ResponseHead::default();
    // Always valid; an empty head would be harmless.
    let _ = ResponseParser::default().parse(text.as_bytes(), &HeadLimits::default(), &mut head);
    ReceivedHead { head, buf: text.into() }
}

impl MemcachedReader {
    pub fn new(gzip_flag: u32) -> MemcachedReader {
        MemcachedReader { gzip_flag, head_max: 0, key: Vec::new(), state: ResponseState::Ended, reusable: false }
    }
    fn head(&mut self, input: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse> {
        let end = memchr::memchr(b'\n', input);
        // Refuses a long line however it arrives.
        if end.unwrap_or(input.len()) > self.head_max {
            return Err("upstream sent too big header".into());
        }
        let Some(lf) = end else { return Ok(None) };
        let taken: Vec<u8> = input.drain(..=lf).collect();
        let line = taken.strip_suffix(b"\r\n");
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        let invalid = || {
            MalformedResponse(format!(
                "memcached sent invalid response: \"{}\"",
                text(line.unwrap_or(&taken)).trim_end()
            ))
        };
        let line = line.ok_or_else(invalid)?;
        if line == b"END" {
            let answer = Rc::new(answer("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into()));
            let head_bytes = answer.buf.len();
            self.state = ResponseState::Trailer(TRAILER.len());
            let length = BodyLength::Exact(0);
            return Ok(Some(Event::Head(ResponseStart { answer, head_bytes, length, behind: 0 })));
        }
        let rest = line.strip_prefix(b"VALUE ").ok_or_else(invalid)?;
        let about = |what: &str| {
            let (line, key) = (text(line), text(&self.key));
            MalformedResponse(format!("memcached sent invalid {what} in response \"{line}\" for key \"{key}\""))
        };
        let rest = rest.strip_prefix(self.key.as_slice()).ok_or_else(|| about("key"))?;
        let rest = rest.strip_prefix(b" ").ok_or_else(invalid)?;
        let space = rest.iter().position(|c| *c == b' ').ok_or_else(invalid)?;
        let (flags, length) = rest.split_at(space);
        let mut coded = "";
        if self.gzip_flag != 0 {
            let flags: u32 = number(flags).ok_or_else(|| about("flags"))?;
            if flags & self.gzip_flag != 0 {
                coded = "Content-Encoding: gzip\r\n";
            }
        }
        // Up to the largest file offset, as in nginx.
        let length: Option<u64> = number(length.get(1..).unwrap_or_default());
        let length = length.filter(|length| *length <= i64::MAX as u64).ok_or_else(|| about("length"))?;
        self.state = ResponseState::Value(length);
        let answer = Rc::new(answer(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{coded}\r\n")));
        let head_bytes = answer.buf.len();
        let (length, behind) = (BodyLength::Exact(length), input.len());
        Ok(Some(Event::Head(ResponseStart { answer, head_bytes, length, behind })))
    }
}

impl SerialCodec for MemcachedReader {
    fn begin(&mut self, asked: &RequestFacts, head: &[u8]) {
        self.head_max = asked.head_max;
        self.key = head.strip_prefix(b"get ").and_then(|h| h.strip_suffix(b"\r\n")).unwrap_or_default().to_vec();
        self.state = ResponseState::Head;
        self.reusable = false;
    }
    fn frames_body(&self) -> bool {
        false
    }
    fn encode_body(&mut self, _: &[u8], _: bool, _: &mut Vec<u8>) {}
    fn decode(&mut self, input: &mut Vec<u8>, _: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse> {
        match self.state {
            ResponseState::Head => self.head(input),
            ResponseState::Value(left) if left > 0 => {
                if input.is_empty() {
                    return Ok(None);
                }
                let n = (input.len() as u64).min(left);
                let rest = input.split_off(n as usize);
                let piece = Bytes::from(std::mem::replace(input, rest));
                self.state = ResponseState::Value(left - n);
                Ok(Some(Event::Body(piece)))
            }
            ResponseState::Value(_) => {
                self.state = ResponseState::Trailer(0);
                self.decode(input, &mut Vec::new())
            }
            ResponseState::Trailer(at) => {
                let wanted = TRAILER.get(at..).unwrap_or_default();
                let n = wanted.len().min(input.len());
                if input.get(..n) != wanted.get(..n) {
                    // The value is complete; the connection is not reusable.
                    self.state = ResponseState::Ended;
                    return Ok(Some(Event::End(ResponseEnd {
                        trailers: Vec::new(),
                        excess: Some("memcached sent invalid trailer"),
                    })));
                }
                input.drain(..n);
                self.state = ResponseState::Trailer(at + n);
                if at + n < TRAILER.len() {
                    return Ok(None);
                }
                self.reusable = true;
                self.state = ResponseState::Ended;
                Ok(Some(Event::End(ResponseEnd::default())))
            }
            ResponseState::Ended => Ok(None),
        }
    }
    fn is_reusable(&self) -> bool {
        self.reusable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(response: &[u8], step: usize) -> (String, bool) {
        let mut codec = MemcachedReader::new(2);
        let mut request = Vec::new();
        put_get(b"/a b%", &mut request);
        assert_eq!(request, b"get /a%20b%25\r\n");
        codec.begin(&RequestFacts { head_max: 4096, ..RequestFacts::default() }, &request);
        let (mut input, mut out) = (Vec::new(), String::new());
        for part in response.chunks(step) {
            input.extend_from_slice(part);
            loop {
                match codec.decode(&mut input, &mut Vec::new()) {
                    Ok(None) => break,
                    Ok(Some(Event::Head(begun))) => {
                        let head = &begun.answer.head;
                        out += &format!("{} {:?} {};", head.status, begun.length, head.fields.all.len());
                    }
                    Ok(Some(Event::Body(bytes))) => out += &String::from_utf8_lossy(&bytes),
                    Ok(Some(Event::End(end))) => out += &format!(";end {:?}", end.excess),
                    Ok(Some(_)) => out += "?",
                    Err(MalformedResponse(words)) => return (words, false),
                }
            }
        }
        (out, codec.is_reusable() && input.is_empty())
    }

    #[test]
    fn values_are_read_in_pieces() {
        for step in [1, 5, 1000] {
            let found = run(b"VALUE /a%20b%25 0 3\r\nabc\r\nEND\r\n", step);
            assert_eq!(found, ("200 Exact(3) 1;abc;end None".into(), true), "{step}");
            let coded = run(b"VALUE /a%20b%25 2 1\r\nx\r\nEND\r\n", step);
            assert_eq!(coded, ("200 Exact(1) 2;x;end None".into(), true));
            assert_eq!(run(b"END\r\n", step), ("404 Exact(0) 1;;end None".into(), true));
            let broken = run(b"VALUE /a%20b%25 0 1\r\nxy\nEND\r\n", step);
            assert_eq!(broken, ("200 Exact(1) 1;x;end Some(\"memcached sent invalid trailer\")".into(), false));
            assert!(run(b"VALUE /b 0 1\r\n", step).0.starts_with("memcached sent invalid key in response"));
            assert!(run(b"VALUE /a%20b%25 x 1\r\n", step).0.starts_with("memcached sent invalid flags"));
            assert!(run(b"VALUE /a%20b%25 0 -1\r\n", step).0.starts_with("memcached sent invalid length"));
            let beyond = run(b"VALUE /a%20b%25 0 9223372036854775808\r\n", step);
            assert!(beyond.0.starts_with("memcached sent invalid length"));
            assert_eq!(run(b"ERROR\r\n", step).0, "memcached sent invalid response: \"ERROR\"");
            let long = [b"VALUE /a%20b%25 0 ", &[b'0'; 4096][..], b"3\r\n"].concat();
            for step in [step, 10_000] {
                assert_eq!(run(&long, step).0, "upstream sent too big header", "{step}");
            }
        }
    }
}
