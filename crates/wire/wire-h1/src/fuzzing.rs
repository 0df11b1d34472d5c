//! Bodies of the fuzz targets: arbitrary bytes in, a panic when an invariant fails. Run under libFuzzer from `fuzz/`,
//! and with a seeded generator in `cargo test`.

#![allow(clippy::indexing_slicing, reason = "a panic is what a fuzz target is for")]

use crate::fields::{FieldLine, any_line, usual_line};
use crate::relay::{RelayMemory, RelayRules, relay_response};
use crate::request_line;
use crate::{
    ChunkError, ChunkedDecoder, DecodedChunk, HeadError, HeadLimits, HeadParser, ParseProgress, ResponseParser, Role,
    check_request, keep_alive, read_status_line, response_body, response_keep_alive,
};
use http_types::{BodyLength, Known, Method, NameSet, RequestHead, ResponseHead, Span, known_name};

/// Small limits, so that short inputs reach them.
const TIGHT: HeadLimits =
    HeadLimits { line_max: 64, field_max: 48, total_max: 256, fields_max: 8, underscores: false, ignore_invalid: true };

/// Parsing a request head whole, by bytes or in two parts is equal; spans are valid.
pub fn request(data: &[u8]) {
    let lenient = HeadLimits { underscores: true, ignore_invalid: false, ..HeadLimits::default() };
    for limits in [HeadLimits::default(), lenient, TIGHT] {
        let mut head = RequestHead::default();
        let mut parser = HeadParser::default();
        let whole = parser.parse(data, &limits, &mut head);
        let mut dripped = RequestHead::default();
        let drip = feed(data, 1, |buf, p: &mut HeadParser| p.parse(buf, &limits, &mut dripped));
        let mut halved = RequestHead::default();
        let halves = feed(data, data.len() / 2, |buf, p: &mut HeadParser| p.parse(buf, &limits, &mut halved));
        same(whole, drip);
        same(whole, halves);
        if let Ok(ParseProgress::Done { consumed }) = whole {
            assert_eq!(format!("{head:?}"), format!("{dripped:?}"));
            assert_eq!(format!("{head:?}"), format!("{halved:?}"));
            assert!(consumed <= data.len() && consumed <= limits.total_max);
            assert!(head.fields.all.len() <= limits.fields_max);
            check_head(&head, data);
        }
    }
    shortcuts(data);
}

fn shortcuts(data: &[u8]) {
    let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', data).map(|lf| lf + 1)).take(64);
    for start in starts {
        if let Some((field, next)) = usual_line(data, start) {
            match any_line(data, start, false, false) {
                Some((FieldLine::Field(other), end)) => assert_eq!((field, next), (other, end)),
                _ => panic!("the quick way took a field line that the thorough one does not take"),
            }
        }
        let mut quick = RequestHead::default();
        if let Some(next) = request_line::usual(data, start, &mut quick) {
            let mut thorough = RequestHead::default();
            let line = &data[start..next - 2];
            assert_eq!(request_line::any(line, start, &mut thorough), Ok(()));
            assert_eq!(format!("{quick:?}"), format!("{thorough:?}"));
        }
    }
}

fn check_head(head: &RequestHead, data: &[u8]) {
    let inside =
        |inner: Span, outer: Span| outer.start <= inner.start && inner.start <= inner.end && inner.end <= outer.end;
    assert!(inside(head.method_span, head.line) && inside(head.target, head.line));
    for part in [head.path, head.args, head.authority, head.scheme] {
        assert!(part.is_empty() || inside(part, head.target));
    }
    assert_eq!(Method::of(head.method_span.of(data)), head.method);
    assert!(matches!(head.request_uri().of(data).first(), Some(b'/' | b'?')));
    let path = head.path.of(data);
    assert!(path.is_empty() || path[0] == b'/');
    let plain = path.starts_with(b"/")
        && !path.contains(&b'%')
        && !path.windows(2).any(|w| w == b"//" || w == b"/.")
        && !head.target.of(data).contains(&b'#');
    assert_eq!(head.complex, !plain);
    for field in &head.fields.all {
        let name = field.name.of(data);
        assert!(!name.is_empty() && name.iter().all(|&b| b > b' ' && b != 0x7f && b != b':'));
        assert_eq!(field.known, known_name(name));
        let value = field.value.of(data);
        assert!(crate::is_field_value(value) && !value.starts_with(b" ") && !value.ends_with(b" "));
        assert!(head.fields.first(field.known).is_some());
    }
    let _ = keep_alive(head, data);
    if let Ok(BodyLength::Chunked) = check_request(head, data, true) {
        assert!(head.fields.first(Known::ContentLength).is_none());
    }
}

/// Parsing a response head whole or by bytes is equal, and the relay agrees with the parser.
pub fn response(data: &[u8]) {
    for limits in [HeadLimits::default(), TIGHT] {
        let mut head = ResponseHead::default();
        let mut parser = ResponseParser::default();
        let whole = parser.parse(data, &limits, &mut head);
        let mut dripped = ResponseHead::default();
        let drip = feed(data, 1, |buf, p: &mut ResponseParser| p.parse(buf, &limits, &mut dripped));
        same(whole, drip);
        if let Ok(ParseProgress::Done { consumed }) = whole {
            assert_eq!(format!("{head:?}"), format!("{dripped:?}"));
            assert!(consumed <= data.len() && head.status < 1000);
            for request in [Method::Get, Method::Head, Method::Connect] {
                let _ = response_body(&head, data, request);
            }
            let _ = response_keep_alive(&head, data);
        }
    }
    without_line(data);
    relayed(data);
}

fn relayed(data: &[u8]) {
    let hidden: NameSet = [&b"date"[..], b"server"].into_iter().collect();
    let rules = RelayRules { id: 1, hidden: &hidden, cookies: true, head_max: 4096 };
    let (mut lines, mut again, mut memory) = (Vec::new(), Vec::new(), RelayMemory::default());
    let first = relay_response(data, &rules, &mut memory, &mut lines);
    assert_eq!(first, relay_response(data, &rules, &mut memory, &mut again));
    let Some(fast) = first else { return };
    assert_eq!(lines, again);
    let mut head = ResponseHead::default();
    let parsed = ResponseParser::default().parse(data, &HeadLimits::default(), &mut head);
    assert_eq!(parsed, Ok(ParseProgress::Done { consumed: fast.consumed }));
    assert_eq!((head.status, head.status_line), (fast.status, fast.status_line));
    assert_eq!(response_body(&head, data, Method::Get).ok(), Some(BodyLength::Exact(fast.length)));
    assert_eq!(response_keep_alive(&head, data), fast.keep_alive);
    let passes =
        |known| !matches!(known, Known::ContentLength | Known::ContentType | Known::Connection | Known::KeepAlive);
    let kept = head.fields.all.iter().filter(|f| passes(f.known) && !hidden.has(f.known, f.name.of(data)));
    let want: Vec<u8> = kept.flat_map(|f| [f.name.of(data), b": ", f.value.of(data), b"\r\n"].concat()).collect();
    assert_eq!(lines, want);
}

fn without_line(data: &[u8]) {
    const LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";
    let (mut alone, mut behind) = (ResponseHead::default(), ResponseHead::default());
    let whole = ResponseParser::of_fields().parse(data, &HeadLimits::default(), &mut alone);
    let text = [LINE, data].concat();
    let other = ResponseParser::default().parse(&text, &HeadLimits::default(), &mut behind);
    if let (Ok(ParseProgress::Done { consumed }), Ok(ParseProgress::Done { consumed: more })) = (whole, other) {
        assert_eq!(consumed + LINE.len(), more);
        let said = |head: &ResponseHead, buf: &[u8]| {
            let each = head.fields.all.iter().map(|f| (f.name.of(buf).to_vec(), f.value.of(buf).to_vec(), f.known));
            each.collect::<Vec<_>>()
        };
        assert_eq!(said(&alone, data), said(&behind, &text));
    } else if !matches!(whole, Err(HeadError::FieldTooLong(_) | HeadError::HeadTooLarge)) {
        assert_eq!(whole.is_ok(), other.is_ok());
    }
    let mut line = ResponseHead::default();
    if read_status_line(data, &mut line).is_ok() {
        assert!(data.starts_with(b"HTTP/") && line.status < 1000 && line.status_line.end as usize <= data.len());
    }
}

/// A chunked body decodes equally in any pieces.
pub fn chunked(data: &[u8]) {
    let whole = decode(data, data.len().max(1));
    for step in [1, 2, 7] {
        assert_eq!(whole, decode(data, step));
    }
    if let Ok((body, _, _, Some(consumed))) = &whole {
        assert!(body.len() < *consumed && *consumed <= data.len());
        let end = &data[*consumed - 4..*consumed];
        assert!(end == b"\r\n\r\n" || data[..*consumed].ends_with(b"\r\n"));
    }
}

type FuzzBody = (Vec<u8>, Vec<u8>, u64, Option<usize>);

fn decode(data: &[u8], step: usize) -> Result<FuzzBody, ChunkError> {
    let mut decoder = ChunkedDecoder::new(Role::Server);
    let mut body = Vec::new();
    let (mut at, mut end) = (0, 0);
    loop {
        if at == end {
            if end == data.len() {
                return Ok((body, decoder.trailers().to_vec(), decoder.remaining_hint(), None));
            }
            end = (end + step).min(data.len());
        }
        let input = &data[at..end];
        let DecodedChunk { consumed, data: piece, done } = decoder.decode(input)?;
        assert!(consumed <= input.len() && piece.end <= consumed && (consumed > 0 || done));
        body.extend_from_slice(&input[piece]);
        at += consumed;
        if done {
            return Ok((body, decoder.trailers().to_vec(), decoder.remaining_hint(), Some(at)));
        }
        assert!(decoder.remaining_hint() > 0);
    }
}

fn feed<P: Default>(
    data: &[u8],
    step: usize,
    mut parse: impl FnMut(&[u8], &mut P) -> Result<ParseProgress, HeadError>,
) -> Result<ParseProgress, HeadError> {
    let mut parser = P::default();
    let mut end = 0;
    loop {
        end = (end + step.max(1)).min(data.len());
        match parse(&data[..end], &mut parser) {
            Ok(ParseProgress::Partial) if end < data.len() => {}
            other => return other,
        }
    }
}

/// Compares results; of an overlong line a slow feed has seen only the start.
fn same(whole: Result<ParseProgress, HeadError>, parts: Result<ParseProgress, HeadError>) {
    assert_eq!(whole, parts);
}
