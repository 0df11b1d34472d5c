//! FastCGI records (specification of 1996, 3.3), client side; no I/O.

use base::append::append_bytes;
use bytes::{Buf, Bytes};
use http_upstream::cgi::codec::{BodyRest, MORE_THAN_ANNOUNCED};
use http_upstream::cgi::head::CgiHead;
use http_upstream::cgi::params::Packing;
use std::sync::Arc;
use upstream::{Event, MalformedResponse, RequestFacts, ResponseEnd, ResponseStart, SerialCodec};

const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
/// Role of programs that answer requests.
const RESPONDER: u8 = 1;
const KEEP_CONN: u8 = 1;
const HEADER_BYTES: usize = 8;
const PIECE_BYTES: usize = 32 * 1024;
/// Content of small records that is passed on as one piece, at least, when it has arrived together.
const GATHERED_BYTES: usize = 16 * 1024;

/// Pads records to multiples of eight bytes.
fn padding(length: usize) -> usize {
    length.wrapping_neg() % 8
}

fn put_record(kind: u8, content: &[u8], out: &mut Vec<u8>) {
    let padding = padding(content.len());
    let [high, low] = (content.len() as u16).to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, 0, 1, high, low, padding as u8, 0]);
    append_bytes(out, content);
    out.resize(out.len() + padding, 0);
}

/// FastCGI's parameters: lengths of name and value, one byte or from 128 on four; then both.
pub struct Pairs;

impl Packing for Pairs {
    fn begin(name: usize, out: &mut Vec<u8>) {
        match u8::try_from(name) {
            Ok(short) if short < 128 => out.push(short),
            _ => out.extend_from_slice(&long(name)),
        }
        out.push(0);
    }
    fn value(_: &mut Vec<u8>) {}
    #[inline(always)]
    fn end(start: usize, value: usize, out: &mut Vec<u8>) {
        let place = start + if out.get(start).is_some_and(|first| *first < 128) { 1 } else { 4 };
        match (out.len() - value, out.get_mut(place)) {
            (length @ ..128, Some(place)) => *place = length as u8,
            (length, _) => lengthen(place, length, out),
        }
    }
}

/// Expands a length to four bytes and moves the following bytes.
#[inline(never)]
fn lengthen(place: usize, length: usize, out: &mut Vec<u8>) {
    out.splice(place..=place, long(length));
}

fn long(n: usize) -> [u8; 4] {
    (n as u32 | 1 << 31).to_be_bytes()
}

/// Writes all records before the body; `params` adds parameters as [`Pairs`], over as many records as needed (nginx
/// refuses more than one).
pub fn put_request(keep: bool, out: &mut Vec<u8>, params: impl FnOnce(&mut Vec<u8>)) {
    let keep = if keep { KEEP_CONN } else { 0 };
    out.extend_from_slice(&[VERSION, BEGIN_REQUEST, 0, 1, 0, 8, 0, 0, 0, RESPONDER, keep, 0, 0, 0, 0, 0]);
    let header = out.len();
    out.extend_from_slice(&[VERSION, PARAMS, 0, 1, 0, 0, 0, 0]);
    let start = out.len();
    params(out);
    let length = out.len() - start;
    match u16::try_from(length) {
        // An empty record is the last one.
        Ok(0) => return,
        Ok(short) => {
            let padding = padding(length);
            if let Some([high, low, padded]) = out.get_mut(header + 4..header + 7) {
                [*high, *low] = short.to_be_bytes();
                *padded = padding as u8;
            }
            out.resize(out.len() + padding, 0);
        }
        Err(_) => {
            let all = out.split_off(start);
            out.truncate(header);
            all.chunks(usize::from(u16::MAX)).for_each(|part| put_record(PARAMS, part, out));
        }
    }
    put_record(PARAMS, &[], out);
}

#[derive(Clone, Copy, Debug, Default)]
struct FastcgiRecord {
    kind: u8,
    left: usize,
    padding: usize,
}

impl FastcgiRecord {
    fn new(kind: u8, high: u8, low: u8, padding: u8) -> FastcgiRecord {
        FastcgiRecord { kind, left: usize::from(u16::from_be_bytes([high, low])), padding: usize::from(padding) }
    }
}

enum ResponseState {
    Head,
    Body(BodyRest),
    Excess,
    Ended,
}

pub struct FastCgi {
    asked: RequestFacts,
    keep: bool,
    catch: Arc<[Vec<u8>]>,
    chunk: Bytes,
    header: Vec<u8>,
    record: Option<FastcgiRecord>,
    head: CgiHead,
    window: HeadWindow,
    state: ResponseState,
    reusable: bool,
}

/// nginx's `fastcgi_buffer_size` buffer, which holds all records in front of the body. Text of the standard error stream
/// that ends the received bytes empties the buffer unless a part of the head is in it
/// (`ngx_http_fastcgi_process_header`). A full buffer is an error: it bounds the log lines of a try.
#[derive(Default)]
struct HeadWindow {
    /// Bytes of the chunk that are in the buffer and not yet processed.
    here: usize,
    /// Bytes that fit behind them.
    room: usize,
    has_stdout: bool,
}

impl FastCgi {
    pub fn new(keep: bool, catch: Arc<[Vec<u8>]>) -> FastCgi {
        FastCgi {
            asked: RequestFacts::default(),
            keep,
            catch,
            chunk: Bytes::new(),
            header: Vec::new(),
            record: None,
            head: CgiHead::new(false),
            window: HeadWindow::default(),
            state: ResponseState::Ended,
            reusable: false,
        }
    }
    /// Discards bytes; an emptied buffer is freed.
    fn skip(&mut self, n: usize) {
        self.window.here = self.window.here.saturating_sub(n);
        if n < self.chunk.len() {
            self.chunk.advance(n);
        } else {
            self.chunk = Bytes::new();
        }
    }
    /// Header of the next record; `None`: incomplete.
    fn header(&mut self) -> Result<Option<FastcgiRecord>, MalformedResponse> {
        let is_whole = self.header.is_empty() && self.window.here >= HEADER_BYTES;
        let here = self.chunk.first_chunk().filter(|_| is_whole).copied();
        if let Some([VERSION, kind @ (STDOUT | STDERR | END_REQUEST), 0, 1, high, low, padding, _]) = here {
            self.skip(HEADER_BYTES);
            return Ok(Some(FastcgiRecord::new(kind, high, low, padding)));
        }
        let wanted = (HEADER_BYTES - self.header.len()).min(self.window.here);
        let part = self.chunk.split_to(wanted.min(self.chunk.len()));
        self.window.here -= part.len();
        self.header.extend_from_slice(&part);
        let header = match *self.header.as_slice() {
            [version, ..] if version != VERSION => {
                return Err(format!("upstream sent unsupported FastCGI protocol version: {version}").into());
            }
            [_, kind, ..] if !matches!(kind, STDOUT | STDERR | END_REQUEST) => {
                return Err(format!("upstream sent invalid FastCGI record type: {kind}").into());
            }
            [_, _, high, ..] if high != 0 => {
                return Err(format!("upstream sent unexpected FastCGI request id high byte: {high}").into());
            }
            [_, _, _, low, ..] if low != 1 => {
                return Err(format!("upstream sent unexpected FastCGI request id low byte: {low}").into());
            }
            [_, kind, _, _, high, low, padding, _] => FastcgiRecord::new(kind, high, low, padding),
            _ => return Ok(None),
        };
        self.header.clear();
        Ok(Some(header))
    }
    fn end(&mut self, excess: Option<&'static str>) -> Event {
        self.state = ResponseState::Ended;
        Event::End(ResponseEnd { trailers: Vec::new(), excess })
    }
    fn begun(&self, record: FastcgiRecord) -> Result<(), MalformedResponse> {
        let body = match self.state {
            ResponseState::Head => None,
            ResponseState::Body(left) => Some(left),
            ResponseState::Excess | ResponseState::Ended => return Ok(()),
        };
        let is_short = matches!(body, Some(BodyRest::Bytes(1..)));
        match record.kind {
            END_REQUEST if body.is_none() => {
                Err(format!("upstream sent unexpected FastCGI record: {END_REQUEST}").into())
            }
            END_REQUEST if is_short => Err("upstream prematurely closed FastCGI request".into()),
            STDOUT if record.left == 0 && (body.is_none() || is_short) => {
                Err("upstream prematurely closed FastCGI stdout".into())
            }
            _ => Ok(()),
        }
    }
    fn stderr(&mut self, piece: &Bytes) -> Result<Option<Event>, MalformedResponse> {
        let end = piece.iter().rposition(|c| !matches!(c, b'\n' | b'\r' | b'.' | b' ')).map_or(1, |at| at + 1);
        let text = piece.get(..end).unwrap_or_default();
        let words = [b"FastCGI sent in stderr: \"", text, b"\""].concat();
        let is_head = matches!(self.state, ResponseState::Head);
        let caught = |pattern: &Vec<u8>| !pattern.is_empty() && memchr::memmem::find(text, pattern).is_some();
        if is_head && self.catch.iter().any(caught) {
            return Err(MalformedResponse(String::from_utf8_lossy(&words).into_owned()));
        }
        Ok(Some(Event::Stderr(words)))
    }
    /// Next content bytes of a record; a head is parsed in place.
    fn content(&mut self, record: &mut FastcgiRecord) -> Result<Option<Event>, MalformedResponse> {
        let here = record.left.min(self.chunk.len()).min(self.window.here);
        let mut taken = here;
        let event = match (record.kind, &mut self.state) {
            (STDERR, _) => {
                let piece = self.chunk.slice(..here);
                if here == self.window.here && !self.window.has_stdout {
                    self.window.room = self.asked.head_max;
                }
                self.stderr(&piece)?
            }
            (STDOUT, ResponseState::Head) => {
                self.window.has_stdout = true;
                let piece = self.chunk.get(..here).unwrap_or_default();
                match self.head.push(piece, self.asked.head_max)? {
                    None => None,
                    Some((answer, took)) => {
                        taken = took;
                        let left = BodyRest::of(&answer, self.asked.method)?;
                        let (length, head_bytes) = (left.length(&answer), answer.buf.len());
                        let behind = self.chunk.len() - took;
                        self.state = ResponseState::Body(left);
                        self.window.here = usize::MAX;
                        Some(Event::Head(ResponseStart { answer, head_bytes, length, behind }))
                    }
                }
            }
            (STDOUT, ResponseState::Body(left)) => {
                taken = 0;
                record.left -= here;
                let mut piece = self.chunk.split_to(here);
                if left.take(&mut piece) {
                    self.state = ResponseState::Excess;
                }
                (!piece.is_empty()).then_some(Event::Body(piece))
            }
            _ => None,
        };
        record.left -= taken;
        self.skip(taken);
        Ok(event)
    }
    /// Returns the next event of the buffered bytes; small records of a body are one.
    fn next(&mut self) -> Result<Option<Event>, MalformedResponse> {
        let event = self.step()?;
        let Some(Event::Body(first)) = event else { return Ok(event) };
        if first.len() >= GATHERED_BYTES {
            return Ok(Some(Event::Body(first)));
        }
        let Some(second) = self.record_behind() else { return Ok(Some(Event::Body(first))) };
        let mut piece = [first, second].concat();
        // Asks for the length first: a record that is taken must be used.
        while piece.len() < GATHERED_BYTES
            && let Some(next) = self.record_behind()
        {
            piece.extend_from_slice(&next);
        }
        Ok(Some(Event::Body(piece.into())))
    }
    /// Takes a whole record of the body that follows the present one. Leaves anything else to [`FastCgi::step`].
    fn record_behind(&mut self) -> Option<Bytes> {
        let ResponseState::Body(left @ (BodyRest::Open | BodyRest::Bytes(_))) = &mut self.state else { return None };
        let padding = self.record.map_or(Some(0), |record| (record.left == 0).then_some(record.padding))?;
        let rest = self.chunk.get(padding..)?;
        let [VERSION, STDOUT, 0, 1, high, low, next_padding, _] = *rest.first_chunk()? else { return None };
        let record = FastcgiRecord::new(STDOUT, high, low, next_padding);
        let content = rest.get(HEADER_BYTES..HEADER_BYTES + record.left).filter(|content| !content.is_empty())?;
        if matches!(left, BodyRest::Bytes(n) if *n < content.len() as u64) {
            return None;
        }
        let start = padding + HEADER_BYTES;
        let mut piece = self.chunk.slice(start..start + content.len());
        left.take(&mut piece);
        self.skip(start + piece.len());
        self.record = Some(FastcgiRecord { left: 0, ..record });
        Some(piece)
    }
    /// Moves more bytes of the chunk into the window after all of it is processed. `false`: the chunk is empty.
    fn fill_window(&mut self) -> Result<bool, MalformedResponse> {
        if self.window.here > 0 {
            return Ok(false);
        }
        if self.window.room == 0 {
            return Err("upstream sent too big header".into());
        }
        let more = self.window.room.min(self.chunk.len());
        self.window.here = more;
        self.window.room -= more;
        Ok(more > 0)
    }
    fn step(&mut self) -> Result<Option<Event>, MalformedResponse> {
        loop {
            match self.state {
                ResponseState::Excess => return Ok(Some(self.end(Some(MORE_THAN_ANNOUNCED)))),
                ResponseState::Ended => return Ok(None),
                ResponseState::Head | ResponseState::Body(_) => {}
            }
            let mut record = match self.record {
                Some(record) => record,
                None => {
                    let Some(record) = self.header()? else {
                        if self.fill_window()? {
                            continue;
                        }
                        return Ok(None);
                    };
                    self.begun(record)?;
                    record
                }
            };
            if record.left > 0 && !self.chunk.is_empty() && self.window.here > 0 {
                let event = self.content(&mut record)?;
                self.record = Some(record);
                if event.is_some() {
                    return Ok(event);
                }
                continue;
            }
            let here = self.chunk.len().min(self.window.here);
            let padding = if record.left == 0 { record.padding.min(here) } else { 0 };
            if padding > 0 {
                self.skip(padding);
                record.padding -= padding;
            }
            if record.left > 0 || record.padding > 0 {
                self.record = Some(record);
                if self.fill_window()? {
                    continue;
                }
                return Ok(None);
            }
            self.record = None;
            if record.kind == END_REQUEST {
                self.reusable = self.keep && self.chunk.is_empty();
                return Ok(Some(self.end(None)));
            }
        }
    }
}

impl SerialCodec for FastCgi {
    fn begin(&mut self, asked: &RequestFacts, _: &[u8]) {
        self.asked = *asked;
        self.chunk = Bytes::new();
        self.header.clear();
        self.record = None;
        self.head.reset();
        self.window = HeadWindow { here: 0, room: asked.head_max, has_stdout: false };
        self.state = ResponseState::Head;
        self.reusable = false;
    }
    fn encode_body(&mut self, piece: &[u8], end: bool, out: &mut Vec<u8>) {
        piece.chunks(PIECE_BYTES).for_each(|part| put_record(STDIN, part, out));
        if end {
            put_record(STDIN, &[], out);
        }
    }
    fn decode(&mut self, input: &mut Vec<u8>, _: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse> {
        loop {
            if self.chunk.is_empty() && !input.is_empty() {
                self.chunk = Bytes::from(std::mem::take(input));
            }
            let event = self.next()?;
            if event.is_some() || input.is_empty() || !self.chunk.is_empty() {
                return Ok(event);
            }
        }
    }
    fn closed(&mut self) -> Result<Option<ResponseEnd>, MalformedResponse> {
        let whole = matches!(self.state, ResponseState::Body(BodyRest::Open | BodyRest::Nothing | BodyRest::Bytes(0)));
        Ok((whole && !self.keep).then(ResponseEnd::default))
    }
    fn is_reusable(&self) -> bool {
        self.reusable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_types::Method;
    use http_upstream::cgi::params::put_param;

    fn record(kind: u8, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        put_record(kind, text.as_bytes(), &mut out);
        out
    }

    /// Decodes a response at once or byte by byte.
    fn run(keep: bool, method: Method, bytes: &[u8], step: usize) -> (String, bool) {
        let mut codec = FastCgi::new(keep, [b"caught".to_vec()].into());
        codec.begin(&RequestFacts { method, head_max: 4096, chunked: false }, b"");
        let (mut out, mut input) = (String::new(), Vec::new());
        let mut body = String::new();
        for part in bytes.chunks(step) {
            input.extend_from_slice(part);
            loop {
                match codec.decode(&mut input, &mut Vec::new()) {
                    Ok(None) => break,
                    Ok(Some(Event::Head(begun))) => out += &format!("{} {:?};", begun.answer.head.status, begun.length),
                    Ok(Some(Event::Body(bytes))) => body += &String::from_utf8_lossy(&bytes),
                    Ok(Some(Event::Stderr(_))) => {}
                    Ok(Some(Event::End(end))) => out += &format!("{body};end {};", end.excess.is_some()),
                    Ok(Some(Event::Interim(..))) => out += "interim;",
                    Err(MalformedResponse(words)) => return (out + &words, false),
                }
            }
        }
        (out, codec.is_reusable() && input.is_empty())
    }

    #[test]
    fn responses_in_one_piece_and_octet_by_octet() {
        let body = |n: usize, text: &str| {
            let head = record(STDOUT, &format!("Status: 201 Made\r\nContent-Length: {n}\r\n\r\n{text}"));
            [head, record(STDERR, "careful.\n"), record(STDOUT, ""), record(END_REQUEST, "\0\0\0\0\0\0\0\0")].concat()
        };
        for step in [1, 7, 1000] {
            let whole = body(4, "abcd");
            assert_eq!(run(true, Method::Get, &whole, step), ("201 Exact(4);abcd;end false;".into(), true), "{step}");
            assert_eq!(run(false, Method::Get, &whole, step), ("201 Exact(4);abcd;end false;".into(), false));
            assert_eq!(run(false, Method::Get, &body(2, "abcd"), step).0, "201 Exact(2);ab;end true;");
            let short = run(true, Method::Get, &body(9, "abcd"), step).0;
            assert_eq!(short, "201 Exact(9);upstream prematurely closed FastCGI stdout");
            assert_eq!(run(true, Method::Head, &whole, step), ("201 None;;end false;".into(), true));
        }
    }

    /// Returns the texts of the standard error stream and the end of a response, whose bytes arrive together.
    fn texts(bytes: Vec<u8>) -> (Vec<usize>, String) {
        let mut codec = FastCgi::new(true, [].into());
        codec.begin(&RequestFacts { method: Method::Get, head_max: 4096, chunked: false }, b"");
        let (mut texts, mut input) = (Vec::new(), bytes);
        let end = loop {
            match codec.decode(&mut input, &mut Vec::new()) {
                Ok(Some(Event::Stderr(words))) => texts.push(words.len() - "FastCGI sent in stderr: \"\"".len()),
                Ok(Some(Event::Head(_))) => break "head".into(),
                Ok(Some(_)) => break "body".into(),
                Ok(None) => break "incomplete".into(),
                Err(MalformedResponse(words)) => break words,
            }
        };
        (texts, end)
    }

    #[test]
    fn texts_in_front_of_the_head_are_bounded_as_in_nginx() {
        const TOO_BIG: &str = "upstream sent too big header";
        let head = record(STDOUT, "Status: 200\r\n\r\n");
        // A buffer that ends in a text is empty again.
        let (found, end) = texts([record(STDERR, &"x".repeat(20_000)), head.clone()].concat());
        assert_eq!((found, &*end), (vec![4088, 4096, 4096, 4096, 3624], "head"));
        // 256 records of 16 octets fill the buffer with padding.
        let (found, end) = texts([record(STDERR, "x").repeat(1000), head.clone()].concat());
        assert_eq!((found.len(), &*end), (256, TOO_BIG));
        let (found, end) = texts([record(STDERR, "x").repeat(256), head.clone()].concat());
        assert_eq!((found.len(), &*end), (256, TOO_BIG));
        let (found, end) = texts([record(STDERR, "x").repeat(200), head.clone()].concat());
        assert_eq!((found.len(), &*end), (200, "head"));
        // The buffer ends in the header of a record.
        let (found, end) = texts([record(STDERR, &"x".repeat(4080)), head.clone()].concat());
        assert_eq!((found, &*end), (vec![4080], TOO_BIG));
        // A part of a head stays in the buffer.
        let part = record(STDOUT, "Status: 200\r\n");
        let (found, end) = texts([part, record(STDERR, &"x".repeat(20_000)), head].concat());
        assert_eq!((found, &*end), (vec![4096 - 24 - 8], TOO_BIG));
    }

    #[test]
    fn small_records_become_one_piece() {
        let head = record(STDOUT, "Content-Length: 8\r\n\r\na");
        let rest = ["b", "cd", "efg"].map(|text| record(STDOUT, text)).concat();
        let tail = [record(STDERR, "hm"), record(STDOUT, "hi"), record(END_REQUEST, "\0\0\0\0\0\0\0\0")].concat();
        let mut codec = FastCgi::new(true, [].into());
        codec.begin(&RequestFacts { method: Method::Get, head_max: 4096, chunked: false }, b"");
        let mut input = [head, rest, tail].concat();
        let mut said = Vec::new();
        while let Ok(Some(event)) = codec.decode(&mut input, &mut Vec::new()) {
            said.push(match event {
                Event::Body(piece) => String::from_utf8_lossy(&piece).into_owned(),
                Event::Head(_) => "head".into(),
                Event::Stderr(_) => "said".into(),
                Event::End(end) => format!("end {}", end.excess.is_some()),
                Event::Interim(..) => "interim".into(),
            });
        }
        assert_eq!(said, ["head", "abcdefg", "said", "h", "end true"]);
    }

    #[test]
    fn no_byte_is_lost_whatever_the_lengths_of_records_and_reads() {
        for length in [1, 100, GATHERED_BYTES / 2, GATHERED_BYTES - 1, GATHERED_BYTES, 3 * GATHERED_BYTES, 65_535] {
            let text: String = (0..300_000).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
            let all: Vec<u8> = [record(STDOUT, "Status: 200\r\n\r\n")]
                .into_iter()
                .chain(text.as_bytes().chunks(length).map(|part| record(STDOUT, &String::from_utf8_lossy(part))))
                .chain([record(STDOUT, ""), record(END_REQUEST, "\0\0\0\0\0\0\0\0")])
                .collect::<Vec<_>>()
                .concat();
            for step in [4_096, 32 * 1024, usize::MAX] {
                let (out, reusable) = run(true, Method::Get, &all, step);
                assert_eq!(out.len(), format!("200 UntilClose;{text};end false;").len(), "{length} {step}");
                assert!(out.contains(&text) && reusable, "{length} {step}");
            }
        }
    }

    #[test]
    fn senseless_records_are_refused() {
        for (bytes, words) in [
            (vec![2], "upstream sent unsupported FastCGI protocol version: 2"),
            (vec![1, 9], "upstream sent invalid FastCGI record type: 9"),
            (vec![1, 6, 1], "upstream sent unexpected FastCGI request id high byte: 1"),
            (vec![1, 6, 0, 2], "upstream sent unexpected FastCGI request id low byte: 2"),
            (record(STDOUT, ""), "upstream prematurely closed FastCGI stdout"),
            (record(END_REQUEST, "\0\0\0\0\0\0\0\0"), "upstream sent unexpected FastCGI record: 3"),
            (record(STDERR, "is caught here"), "FastCGI sent in stderr: \"is caught here\""),
        ] {
            for step in [1, 100] {
                if bytes[1..].len() > 8 && bytes[1] == STDERR && step == 1 {
                    continue;
                }
                assert_eq!(run(false, Method::Get, &bytes, step).0, words);
            }
        }
    }

    #[test]
    fn requests_become_records() {
        let mut out = Vec::new();
        put_request(true, &mut out, |out| put_param::<Pairs>(b"A", &[b'x'; 200], out));
        assert_eq!(out[24..30], [1, 0x80, 0, 0, 200, b'A']);
        assert_eq!(out[..16], [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(out[16..24], [1, 4, 0, 1, 0, 206, 2, 0]);
        assert_eq!(out[out.len() - 8..], [1, 4, 0, 1, 0, 0, 0, 0]);
        out.clear();
        FastCgi::new(true, [].into()).encode_body(b"abc", true, &mut out);
        assert_eq!(out, [&[1, 5, 0, 1, 0, 3, 5, 0][..], b"abc\0\0\0\0\0", &[1, 5, 0, 1, 0, 0, 0, 0]].concat());
    }

    #[test]
    fn lengths_of_one_byte_and_of_four() {
        for (name, value) in [(1, 0), (1, 127), (1, 128), (127, 127), (128, 127), (128, 128), (300, 70_000)] {
            let mut out = b"before".to_vec();
            let (name, value) = (vec![b'N'; name], vec![b'v'; value]);
            put_param::<Pairs>(&name, &value, &mut out);
            let length = |n: usize| if n < 128 { vec![n as u8] } else { long(n).to_vec() };
            let wanted = [&b"before"[..], &length(name.len()), &length(value.len()), &name, &value].concat();
            assert!(out == wanted, "{} {}", name.len(), value.len());
        }
    }

    #[test]
    fn parameters_that_need_more_than_one_record() {
        let max = usize::from(u16::MAX);
        for (length, records) in [(0, vec![0]), (max, vec![max, 0]), (max + 1, vec![max, 1, 0])] {
            let mut out = Vec::new();
            put_request(false, &mut out, |out| out.resize(out.len() + length, b'p'));
            let (mut found, mut content) = (Vec::new(), 0);
            let mut rest = &out[16..];
            while let [VERSION, PARAMS, 0, 1, high, low, padding, 0, behind @ ..] = rest {
                let n = usize::from(u16::from_be_bytes([*high, *low]));
                content += behind[..n].iter().filter(|c| **c == b'p').count();
                assert_eq!((n + usize::from(*padding)) % 8, 0);
                rest = &behind[n + usize::from(*padding)..];
                found.push(n);
            }
            assert!(rest.is_empty() && content == length, "{length}: {content}");
            assert_eq!(found, records);
        }
    }
}
