//! Properties over generated heads and bodies; `httparse` is the second opinion where its rules and nginx's agree.

use http_types::{RequestHead, ResponseHead};
use proptest::prelude::*;
use wire_h1::{ChunkedDecoder, HeadLimits, HeadParser, ParseProgress, ResponseParser, Role, encode_chunk_head};

fn limits() -> HeadLimits {
    HeadLimits { total_max: 1 << 20, fields_max: 64, ..HeadLimits::default() }
}

type Fields = Vec<(String, String)>;

/// Names that come more than once would be refused by name, not by syntax: these are none of ours.
fn fields() -> impl Strategy<Value = Fields> {
    prop::collection::vec(("x[A-Za-z0-9-]{0,20}", "([!-~]([ -~]{0,40}[!-~])?)?"), 0..12)
}

fn head_text(first: &str, fields: &Fields, end: &str) -> Vec<u8> {
    let mut text = format!("{first}{end}");
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}{end}"));
    }
    text.push_str(end);
    text.into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn requests_as_httparse(
        method in "[A-Z][A-Z-]{0,10}",
        target in "/[!-~]{0,60}",
        minor in 0..2u8,
        fields in fields(),
        end in prop::sample::select(vec!["\r\n", "\n"]),
        tail in "[ -~]{0,20}",
    ) {
        prop_assume!(method != "CONNECT");
        let mut bytes = head_text(&format!("{method} {target} HTTP/1.{minor}"), &fields, end);
        let len = bytes.len();
        bytes.extend_from_slice(tail.as_bytes());
        let mut theirs = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut theirs);
        let parsed = request.parse(&bytes);
        prop_assert_eq!(parsed, Ok(httparse::Status::Complete(len)));
        let mut head = RequestHead::default();
        let ours = HeadParser::default().parse(&bytes, &limits(), &mut head);
        prop_assert_eq!(ours, Ok(ParseProgress::Done { consumed: len }));
        prop_assert_eq!(head.method_span.of(&bytes), request.method.unwrap_or("").as_bytes());
        prop_assert_eq!(head.target.of(&bytes), request.path.unwrap_or("").as_bytes());
        prop_assert_eq!(head.fields.all.len(), request.headers.len());
        for (ours, theirs) in head.fields.all.iter().zip(request.headers.iter()) {
            prop_assert_eq!(ours.name.of(&bytes), theirs.name.as_bytes());
            prop_assert_eq!(ours.value.of(&bytes), theirs.value);
        }
    }

    #[test]
    fn responses_as_httparse(
        status in 100..1000u16,
        reason in "[A-Za-z ]{0,20}",
        fields in fields(),
        end in prop::sample::select(vec!["\r\n", "\n"]),
    ) {
        let bytes = head_text(&format!("HTTP/1.1 {status} {reason}"), &fields, end);
        let mut theirs = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut theirs);
        prop_assert_eq!(response.parse(&bytes), Ok(httparse::Status::Complete(bytes.len())));
        let mut head = ResponseHead::default();
        let ours = ResponseParser::default().parse(&bytes, &limits(), &mut head);
        prop_assert_eq!(ours, Ok(ParseProgress::Done { consumed: bytes.len() }));
        prop_assert_eq!(Some(head.status), response.code);
        prop_assert_eq!(head.reason.of(&bytes), response.reason.unwrap_or("").as_bytes());
        for (ours, theirs) in head.fields.all.iter().zip(response.headers.iter()) {
            prop_assert_eq!(ours.name.of(&bytes), theirs.name.as_bytes());
            prop_assert_eq!(ours.value.of(&bytes), theirs.value);
        }
    }

    /// Whatever httparse and we both take, we take alike: a mutated head is where parsers part.
    #[test]
    fn mutated_requests(
        target in "/[!-~]{0,20}",
        fields in fields(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = head_text(&format!("GET {target} HTTP/1.1"), &fields, "\r\n");
        let at = at.index(bytes.len());
        bytes[at] = byte;
        wire_h1::fuzzing::request(&bytes);
        let mut theirs = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut theirs);
        let mut head = RequestHead::default();
        let keep = HeadLimits { ignore_invalid: false, ..limits() };
        let ours = HeadParser::default().parse(&bytes, &keep, &mut head);
        if let (Ok(httparse::Status::Complete(len)), Ok(ParseProgress::Done { consumed })) = (request.parse(&bytes), ours) {
            prop_assert_eq!(len, consumed);
            prop_assert_eq!(head.fields.all.len(), request.headers.len());
            prop_assert_eq!(head.target.of(&bytes), request.path.unwrap_or("").as_bytes());
        }
    }

    #[test]
    fn any_request(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        wire_h1::fuzzing::request(&bytes);
    }

    #[test]
    fn any_response(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        wire_h1::fuzzing::response(&bytes);
    }

    #[test]
    fn any_chunks(bytes in "[0-9a-f;\r\nx]{0,60}") {
        wire_h1::fuzzing::chunked(bytes.as_bytes());
    }

    /// Encoding and decoding round-trip, in pieces of any size.
    #[test]
    fn chunks_there_and_back(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..8),
        step in 1..40usize,
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            encode_chunk_head(chunk.len(), &mut bytes);
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(wire_h1::LAST_CHUNK);
        let mut decoder = ChunkedDecoder::new(Role::Client);
        let (mut at, mut body) = (0, Vec::new());
        while !decoder.is_done() {
            let piece = &bytes[at..(at + step).min(bytes.len())];
            let found = decoder.decode(piece).unwrap();
            body.extend_from_slice(&piece[found.data]);
            at += found.consumed;
        }
        prop_assert_eq!((at, body), (bytes.len(), chunks.concat()));
    }
}
