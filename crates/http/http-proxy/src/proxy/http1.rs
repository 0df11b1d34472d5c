//! HTTP/1 towards a server; `wire-h1` parses heads. No I/O.

use base::append::append_bytes;
use bytes::Bytes;
use http_types::{BodyLength, ResponseHead, Version};
use std::rc::Rc;
use upstream::{Event, MalformedResponse, ReceivedHead, RequestFacts, ResponseEnd, ResponseStart, SerialCodec};
use wire_h1::{ChunkedDecoder, HeadError, HeadLimits, ParseProgress, ResponseParser, Role};

const INTERIM_MAX: usize = 1000;

/// nginx's logged status of a response without a head (`ngx_http_log_status`).
const HEADLESS: u16 = 9;

const MORE_THAN_ANNOUNCED: &str = "upstream sent more data than specified in \"Content-Length\" header";
const AFTER_FINAL_CHUNK: &str = "upstream sent data after final chunk";

enum ResponseState {
    Head,
    /// Remaining bytes of the body.
    BodyRest(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
    Switched,
    Ended,
}

pub struct Http1 {
    asked: RequestFacts,
    parser: ResponseParser,
    head: ResponseHead,
    state: ResponseState,
    /// Bytes received with the head, before further input.
    rest: Bytes,
    keep: bool,
    interim: usize,
}

impl Http1 {
    pub fn new() -> Http1 {
        Http1 {
            asked: RequestFacts::default(),
            parser: ResponseParser::default(),
            head: ResponseHead::default(),
            state: ResponseState::Ended,
            rest: Bytes::new(),
            keep: false,
            interim: 0,
        }
    }
    fn head(&mut self, input: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse> {
        let max = self.asked.head_max;
        let limits = HeadLimits {
            line_max: max,
            field_max: max,
            total_max: max,
            fields_max: 1000,
            underscores: true,
            ignore_invalid: true,
        };
        if input.is_empty() {
            return Ok(None);
        }
        let consumed = match self.parser.parse(input, &limits, &mut self.head) {
            Ok(ParseProgress::Done { consumed }) => consumed,
            Ok(ParseProgress::Partial) => return Ok(None),
            Err(HeadError::InvalidStatusLine) => return Ok(Some(self.headless(input))),
            Err(e) => {
                let mut text = Vec::new();
                e.log(input, &mut text);
                return Err(match e.status() {
                    494 | 414 => "upstream sent too big header".into(),
                    _ => String::from_utf8_lossy(&text)
                        .replace("client sent invalid header line:", "upstream sent invalid header:")
                        .replace("client sent", "upstream sent")
                        .into(),
                });
            }
        };
        self.parser.reset();
        let head = std::mem::take(&mut self.head);
        if (100..200).contains(&head.status) && head.status != 101 {
            self.interim += 1;
            if self.interim > INTERIM_MAX {
                return Err("upstream sent too many interim responses".into());
            }
            let buf = Bytes::copy_from_slice(input.get(..consumed).unwrap_or_default());
            input.drain(..consumed);
            return Ok(Some(Event::Interim(Rc::new(ReceivedHead { head, buf }), consumed)));
        }
        let length = wire_h1::response_body(&head, input, self.asked.method).map_err(|e| {
            let mut words = Vec::new();
            e.upstream_log(&head.fields, input, &mut words);
            MalformedResponse(String::from_utf8_lossy(&words).into_owned())
        })?;
        self.keep = length != BodyLength::UntilClose && wire_h1::response_keep_alive(&head, input);
        let taken = std::mem::take(input);
        // A long-lived connection must not pin the buffer beyond the head.
        let buf = if head.status == 101 { Bytes::copy_from_slice(&taken) } else { Bytes::from(taken) };
        self.rest = buf.slice(consumed..);
        let behind = self.rest.len();
        self.state = match length {
            _ if head.status == 101 => ResponseState::Switched,
            BodyLength::None => ResponseState::BodyRest(0),
            BodyLength::Exact(n) => ResponseState::BodyRest(n),
            BodyLength::Chunked => {
                // A chunk head may continue in the next input.
                *input = std::mem::take(&mut self.rest).into();
                ResponseState::Chunked(Box::new(ChunkedDecoder::new(Role::Client)))
            }
            BodyLength::UntilClose => ResponseState::UntilClose,
        };
        let answer = Rc::new(ReceivedHead { head, buf });
        Ok(Some(Event::Head(ResponseStart { answer, head_bytes: consumed, length, behind })))
    }
    /// Without a status line the server speaks HTTP/0.9: all bytes are body (`ngx_http_proxy_process_status_line`).
    fn headless(&mut self, input: &mut Vec<u8>) -> Event {
        self.parser.reset();
        self.keep = false;
        self.state = ResponseState::UntilClose;
        self.rest = Bytes::from(std::mem::take(input));
        let head = ResponseHead { version: Version::Http09, status: HEADLESS, ..ResponseHead::default() };
        let (behind, length) = (self.rest.len(), BodyLength::UntilClose);
        let answer = Rc::new(ReceivedHead { head, buf: Bytes::new() });
        Event::Head(ResponseStart { answer, head_bytes: 0, length, behind })
    }
    fn end(&mut self, excess: Option<&'static str>, trailers: Vec<u8>) -> Event {
        self.state = ResponseState::Ended;
        Event::End(ResponseEnd { trailers, excess })
    }
    fn chunks(&mut self, input: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse> {
        let ResponseState::Chunked(decoder) = &mut self.state else { return Ok(None) };
        let mut out = Vec::with_capacity(input.len());
        let mut at = 0;
        let mut done = decoder.is_done();
        while at < input.len() && !done {
            let left = input.get(at..).unwrap_or_default();
            let decoded = decoder.decode(left).map_err(|e| MalformedResponse(e.message().into()))?;
            out.extend_from_slice(left.get(decoded.data).unwrap_or_default());
            at += decoded.consumed;
            done = decoded.done;
            if decoded.consumed == 0 {
                break;
            }
        }
        input.drain(..at);
        if !out.is_empty() {
            return Ok(Some(Event::Body(Bytes::from(out))));
        }
        if !done {
            return Ok(None);
        }
        let trailers = decoder.trailers().to_vec();
        let excess = (!input.is_empty()).then_some(AFTER_FINAL_CHUNK);
        Ok(Some(self.end(excess, trailers)))
    }
}

fn take(input: &mut Vec<u8>, n: u64) -> Bytes {
    if input.len() as u64 <= n {
        return Bytes::from(std::mem::take(input));
    }
    let rest = input.split_off(n as usize);
    Bytes::from(std::mem::replace(input, rest))
}

impl SerialCodec for Http1 {
    fn begin(&mut self, asked: &RequestFacts, _: &[u8]) {
        self.asked = *asked;
        self.parser.reset();
        self.state = ResponseState::Head;
        self.rest = Bytes::new();
        self.keep = false;
        self.interim = 0;
    }
    fn frames_body(&self) -> bool {
        self.asked.chunked
    }
    fn encode_body(&mut self, piece: &[u8], end: bool, out: &mut Vec<u8>) {
        if !self.asked.chunked {
            out.extend_from_slice(piece);
            return;
        }
        if !piece.is_empty() {
            wire_h1::encode_chunk_head(piece.len(), out);
            append_bytes(out, piece);
            out.extend_from_slice(b"\r\n");
        }
        if end {
            out.extend_from_slice(wire_h1::LAST_CHUNK);
        }
    }
    fn decode(&mut self, input: &mut Vec<u8>, _: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse> {
        match &mut self.state {
            ResponseState::Head => self.head(input),
            ResponseState::BodyRest(0) => {
                let excess = (!self.rest.is_empty() || !input.is_empty()).then_some(MORE_THAN_ANNOUNCED);
                Ok(Some(self.end(excess, Vec::new())))
            }
            ResponseState::BodyRest(left) => {
                let bytes = match self.rest.is_empty() {
                    true => take(input, *left),
                    false => self.rest.split_to((self.rest.len() as u64).min(*left) as usize),
                };
                *left -= bytes.len() as u64;
                Ok((!bytes.is_empty()).then_some(Event::Body(bytes)))
            }
            ResponseState::Chunked(_) => self.chunks(input),
            ResponseState::UntilClose => {
                let rest = std::mem::take(&mut self.rest);
                let bytes = if rest.is_empty() { Bytes::from(std::mem::take(input)) } else { rest };
                Ok((!bytes.is_empty()).then_some(Event::Body(bytes)))
            }
            ResponseState::Switched | ResponseState::Ended => Ok(None),
        }
    }
    fn closed(&mut self) -> Result<Option<ResponseEnd>, MalformedResponse> {
        Ok(matches!(self.state, ResponseState::UntilClose).then(ResponseEnd::default))
    }
    fn is_reusable(&self) -> bool {
        self.keep && self.rest.is_empty()
    }
    fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: http_types::Method) -> RequestFacts {
        RequestFacts { method, head_max: 4096, chunked: false }
    }

    /// Decodes a response in pieces, one word per event.
    fn events(codec: &mut Http1, pieces: &[&[u8]]) -> Vec<String> {
        let mut out = Vec::new();
        let mut input = Vec::new();
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                match codec.decode(&mut input, &mut Vec::new()) {
                    Ok(Some(Event::Head(begun))) => {
                        out.push(format!("{} {:?}", begun.answer.head.status, begun.length))
                    }
                    Ok(Some(Event::Body(bytes))) => out.push(String::from_utf8_lossy(&bytes).into_owned()),
                    Ok(Some(Event::Interim(answer, _))) => out.push(format!("interim {}", answer.head.status)),
                    Ok(Some(Event::End(end))) => out.push(format!("end {:?}", end.excess)),
                    Ok(Some(other)) => out.push(format!("{other:?}")),
                    Ok(None) => break,
                    Err(wrong) => {
                        out.push(wrong.0);
                        return out;
                    }
                }
            }
        }
        out
    }

    #[test]
    fn every_framing() {
        let mut codec = Http1::new();
        let mut run = |method, pieces: &[&str]| {
            codec.begin(&asked(method), b"");
            let pieces: Vec<&[u8]> = pieces.iter().map(|p| p.as_bytes()).collect();
            (events(&mut codec, &pieces), codec.is_reusable())
        };
        use http_types::Method::{Get, Head};
        let exact = run(Get, &["HTTP/1.1 200 OK\r\nContent-", "Length: 4\r\n\r\nab", "cd"]);
        assert_eq!(exact.0, ["200 Exact(4)", "ab", "cd", "end None"]);
        assert!(exact.1);
        let more = run(Get, &["HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"]);
        assert_eq!(more.0, ["200 Exact(1)", "a", &format!("end Some({MORE_THAN_ANNOUNCED:?})")]);
        assert!(!more.1);
        let chunked = run(Get, &["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r", "\na\r\n0\r\n\r\n"]);
        assert_eq!(chunked.0, ["200 Chunked", "a", "end None"]);
        let head = run(Head, &["HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"]);
        assert_eq!(head.0, ["interim 100", "200 None", "end None"]);
        let both = run(Get, &["HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"]);
        assert!(both.0.len() == 1 && both.0[0].starts_with("upstream sent"), "{both:?}");
        let open = run(Get, &["HTTP/1.0 200 OK\r\n\r\nabc", "d"]);
        assert_eq!(open.0, ["200 UntilClose", "abc", "d"]);
        assert!(codec.closed().expect("no error").is_some());
    }

    #[test]
    fn a_response_without_a_status_line_is_a_body() {
        let mut codec = Http1::new();
        for text in [
            "hello",
            "\r\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/x 200 OK\r\n\r\n",
            "HTTP/1.1 2x0 OK\r\n\r\n",
            "HTTP/1.1 99 O\r\n",
        ] {
            codec.begin(&asked(http_types::Method::Get), b"");
            assert_eq!(events(&mut codec, &[text.as_bytes(), b"more"]), ["9 UntilClose", text, "more"]);
            assert!(codec.closed().expect("no error").is_some() && !codec.is_reusable());
        }
        codec.begin(&asked(http_types::Method::Get), b"");
        assert_eq!(events(&mut codec, &[b"HT"]), Vec::<String>::new());
        assert_eq!(events(&mut codec, &[b"HTxx", b"y"]), ["9 UntilClose", "HTxx", "y"]);
    }
}
