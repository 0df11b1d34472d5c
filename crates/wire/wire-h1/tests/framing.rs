//! Where one message ends and the next begins (RFC 9112, 6 and 7): framing, chunked bodies, and each family of request
//! smuggling by its name.

use http_types::{BodyLength, Fields, Method, RequestHead, ResponseHead, status_line};
use wire_h1::{
    ChunkError, ChunkedDecoder, FramingError, HeadError, HeadLimits, HeadParser, LAST_CHUNK, ParseProgress,
    RequestWriter, ResponseParser, Role, TRAILERS_MAX, check_request, encode_chunk_head, parse_trailers, request_body,
    response_body, response_keep_alive,
};

enum Refused {
    Head(HeadError),
    Framing(FramingError),
}

fn body(fields: &str) -> Result<BodyLength, Refused> {
    framed("HTTP/1.1", fields)
}

fn framed(version: &str, fields: &str) -> Result<BodyLength, Refused> {
    let bytes = format!("POST / {version}\r\nHost: a\r\n{fields}\r\n").into_bytes();
    let mut head = RequestHead::default();
    match HeadParser::default().parse(&bytes, &HeadLimits::default(), &mut head) {
        Ok(ParseProgress::Done { .. }) => check_request(&head, &bytes, false).map_err(Refused::Framing),
        Ok(ParseProgress::Partial) => panic!("partial: {fields}"),
        Err(error) => Err(Refused::Head(error)),
    }
}

fn status(result: Result<BodyLength, Refused>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(Refused::Head(error)) => error.status(),
        Err(Refused::Framing(error)) => error.status(),
    }
}

/// RFC 9112, 6.2; RFC 9110, 8.6.
#[test]
fn content_length() {
    for (value, wanted) in [("0", 0), ("5", 5), ("007", 7), ("9223372036854775807", i64::MAX as u64)] {
        assert_eq!(body(&format!("Content-Length: {value}\r\n")).ok(), Some(BodyLength::Exact(wanted)));
    }
    for value in [
        "",
        "-1",
        "+1",
        "0x10",
        "1 2",
        "1,1",
        "5, 5",
        "1.0",
        "9223372036854775808",
        "99999999999999999999",
        "\t5",
        "5\t",
    ] {
        assert_eq!(status(body(&format!("Content-Length: {value}\r\n"))), 400, "{value:?}");
    }
    assert_eq!(body("").ok(), Some(BodyLength::None));
}

/// RFC 9112, 6.1.
#[test]
fn transfer_encoding() {
    for value in ["chunked", "CHUNKED", "  Chunked  "] {
        assert_eq!(body(&format!("Transfer-Encoding: {value}\r\n")).ok(), Some(BodyLength::Chunked));
    }
    for value in [
        "",
        "identity",
        "gzip",
        "gzip, chunked",
        "chunked, identity",
        "chunked;q=1",
        "\tchunked",
        "chunked\t",
        "\"chunked\"",
    ] {
        assert_eq!(status(body(&format!("Transfer-Encoding: {value}\r\n"))), 501, "{value:?}");
    }
}

#[test]
fn log_lines() {
    let bytes = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nContent-Length: x\r\n\r\n";
    let mut head = RequestHead::default();
    assert!(HeadParser::default().parse(bytes, &HeadLimits::default(), &mut head).is_ok());
    let mut log = Vec::new();
    FramingError::UnknownTransferEncoding.log(&head.fields, bytes, &mut log);
    log.push(b'\n');
    FramingError::InvalidContentLength.upstream_log(&head.fields, bytes, &mut log);
    let wanted = "client sent unknown \"Transfer-Encoding\": \"gzip\"\n\
        upstream sent invalid \"Content-Length\" header: \"Content-Length: x\"";
    assert_eq!(String::from_utf8(log).unwrap(), wanted);
}

/// CL.TE and TE.CL: both lengths, whichever comes first.
#[test]
fn smuggling_cl_te() {
    assert_eq!(status(body("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")), 400);
    assert_eq!(status(body("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")), 400);
    assert_eq!(status(body("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n")), 400);
}

/// TE.TE: one of two codings is disguised.
#[test]
fn smuggling_te_te() {
    for fields in [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\ntransfer-ENCODING: x\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: y\r\n\tTransfer-Encoding: chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\n chunked\r\n",
        "Transfer-Encoding: \0chunked\r\n",
    ] {
        assert_eq!(status(body(fields)), 400, "{fields:?}");
    }
    for fields in
        ["Transfer-Encoding: xchunked\r\n", "Transfer-Encoding:\x0bchunked\r\n", "Transfer-Encoding: chunked,\r\n"]
    {
        assert_eq!(status(body(fields)), 501, "{fields:?}");
    }
    // A name that is ignored frames nothing, and must not reach the next server as a length either: it is not in the
    // table.
    assert_eq!(body("Transfer_Encoding: chunked\r\nContent_Length: 5\r\n").ok(), Some(BodyLength::None));
    assert_eq!(status(body("Content-Length\x0b: 5\r\n")), 400);
}

/// CL.CL: two lengths, in two fields or in one.
#[test]
fn smuggling_cl_cl() {
    assert_eq!(status(body("Content-Length: 5\r\nContent-Length: 6\r\n")), 400);
    assert_eq!(status(body("Content-Length: 5\r\ncontent-length: 5\r\n")), 400);
    assert_eq!(status(body("Content-Length: 5, 6\r\n")), 400);
    // Without the parser's own check the framing would still refuse.
    let bytes = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    let mut head = RequestHead::default();
    assert!(HeadParser::default().parse(bytes, &HeadLimits::default(), &mut head).is_ok());
    head.fields.push(head.fields.all[1]);
    assert_eq!(request_body(&head, bytes), Err(FramingError::DuplicateContentLength));
}

/// HTTP/1.0 with a transfer coding (RFC 9112, 6.1).
#[test]
fn smuggling_http10_te() {
    assert_eq!(status(framed("HTTP/1.0", "Transfer-Encoding: chunked\r\n")), 400);
    assert_eq!(status(framed("HTTP/1.0", "Transfer-Encoding: x\r\n")), 400);
}

/// 0.CL: a body where the next server expects none. We frame it, whatever the method.
#[test]
fn smuggling_0_cl() {
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    let mut head = RequestHead::default();
    assert!(HeadParser::default().parse(bytes, &HeadLimits::default(), &mut head).is_ok());
    assert_eq!(check_request(&head, bytes, false), Ok(BodyLength::Exact(5)));
    let bytes = b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    assert!(HeadParser::default().parse(bytes, &HeadLimits::default(), &mut head).is_ok());
    assert_eq!(check_request(&head, bytes, false), Err(FramingError::ConnectNotAllowed));
    assert_eq!(check_request(&head, bytes, true), Err(FramingError::ConnectWithBody));
}

/// Decodes in pieces of `step` bytes. Returns the body or the error, and the remaining bytes.
fn decode(input: &[u8], step: usize) -> Result<(Vec<u8>, bool, usize), ChunkError> {
    let mut decoder = ChunkedDecoder::new(Role::Server);
    let (mut at, mut body) = (0, Vec::new());
    while at < input.len() {
        let piece = &input[at..(at + step).min(input.len())];
        let found = decoder.decode(piece)?;
        body.extend_from_slice(&piece[found.data.clone()]);
        at += found.consumed;
        if found.done {
            return Ok((body, true, at));
        }
    }
    Ok((body, false, at))
}

/// RFC 9112, 7.1.
#[test]
fn chunked_bodies_are_decoded() {
    for (input, wanted) in [
        (&b"5\r\nhello\r\n0\r\n\r\n"[..], &b"hello"[..]),
        (b"0\r\n\r\n", b""),
        (b"000\r\n\r\n", b""),
        (b"5;ext=\"1\"\r\nhello\r\n6 \t;x\r\n world\r\n0;last\r\n\r\n", b"hello world"),
        (b"A\r\n0123456789\r\na\r\n0123456789\r\n0\r\nT: v\r\nU: w\r\n\r\n", b"01234567890123456789"),
        (b"0000000000000000000001\r\nx\r\n0\r\n\r\n", b"x"),
    ] {
        for step in 1..=input.len() {
            assert_eq!(decode(&[input, b"GET /"].concat()[..], step), Ok((wanted.to_vec(), true, input.len())));
        }
    }
}

/// Bare LF in chunked framing, as nginx since 1.29.4, and every other byte out of place (RFC 9112, 7.1).
#[test]
fn smuggling_chunk_framing() {
    let invalid = Err(ChunkError::Invalid(Role::Server));
    for input in [
        &b"5\nhello\r\n0\r\n\r\n"[..],
        b"5\r\nhello\n0\r\n\r\n",
        b"5;a\nhello\r\n0\r\n\r\n",
        b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\n\r\n",
        b"5\r\nhello\r\n0\r\n\n",
        b"5\r\nhello\r\n0\r\nA: b\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello!\r\n0\r\n\r\n",
        b"5\rhello\r\n0\r\n\r\n",
        b"\r\n5\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5,5\r\nhello\r\n0\r\n\r\n",
        b";\r\n",
        b"g\r\n",
    ] {
        for step in [1, 3, input.len()] {
            assert_eq!(decode(input, step), invalid, "{}", input.escape_ascii());
        }
    }
    for size in ["ffffffffffffffff", "8000000000000000", "800000000000000", "10000000000000005"] {
        assert_eq!(decode(format!("{size}\r\nx").as_bytes(), 99), Err(ChunkError::TooLarge(Role::Server)), "{size}");
    }
    assert!(decode(b"7ffffffffffffff\r\nx", 99).is_ok());
}

#[test]
fn data_pays_for_chunk_extensions() {
    let chunk = format!("100;chunk-signature={}\r\n{}\r\n", "0".repeat(64), "x".repeat(0x100));
    let body = chunk.repeat(1000) + "0\r\n\r\n";
    assert_eq!(decode(body.as_bytes(), 4096).map(|(data, ..)| data.len()), Ok(256_000));
}

/// Chunk extensions and trailers are bounded (RFC 9112, 7.1.1 and 7.1.2).
#[test]
fn chunk_extension_flood() {
    let flood = "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n".repeat(1000);
    assert_eq!(decode(flood.as_bytes(), 4096), Err(ChunkError::Extensions(Role::Server)));
    assert_eq!(decode(&[b'0'; 20_000], 4096), Err(ChunkError::Extensions(Role::Server)));
    let mut trailers = b"0\r\nA: ".to_vec();
    trailers.resize(TRAILERS_MAX + 100, b'x');
    assert_eq!(decode(&trailers, 4096), Err(ChunkError::Trailers(Role::Server)));
    let mut decoder = ChunkedDecoder::new(Role::Client);
    assert_eq!(decoder.decode(b"0\r\nA: b\r\nC: d\r\n\r\n").map(|d| d.done), Ok(true));
    assert_eq!(decoder.trailers(), b"A: b\r\nC: d\r\n");
    let mut fields = Fields::default();
    assert_eq!(parse_trailers(decoder.trailers(), &mut fields), Ok(()));
    assert_eq!(fields.by_name(decoder.trailers(), b"c").unwrap().value.of(decoder.trailers()), b"d");
    assert!(parse_trailers(b"A: b\r\n C: d\r\n", &mut fields).is_err());
    assert_eq!((ChunkError::Invalid(Role::Client).status(), ChunkError::Invalid(Role::Server).status()), (502, 400));
}

/// Data may go past the decoder.
#[test]
fn chunk_data_spliced() {
    let mut decoder = ChunkedDecoder::new(Role::Client);
    assert_eq!(decoder.remaining_hint(), 5);
    assert_eq!(decoder.decode(b"10\r\n").map(|d| d.consumed), Ok(4));
    assert_eq!((decoder.data_left(), decoder.remaining_hint()), (16, 16 + 7));
    decoder.skip(10);
    decoder.skip(6);
    assert_eq!((decoder.data_left(), decoder.remaining_hint()), (0, 7));
    assert_eq!(decoder.decode(b"\r\n0\r\n\r\n").map(|d| (d.consumed, d.done)), Ok((7, true)));
}

fn response(text: &str) -> Result<(ResponseHead, Vec<u8>), HeadError> {
    let bytes = text.as_bytes().to_vec();
    let mut head = ResponseHead::default();
    match ResponseParser::default().parse(&bytes, &HeadLimits::default(), &mut head)? {
        ParseProgress::Done { .. } => Ok((head, bytes)),
        ParseProgress::Partial => panic!("partial: {text}"),
    }
}

/// RFC 9112, 4, as nginx reads it.
#[test]
fn status_lines() {
    for (line, status, reason) in [
        ("HTTP/1.1 200 OK", 200, "OK"),
        ("HTTP/1.1 200", 200, ""),
        ("HTTP/1.1 200 ", 200, ""),
        ("HTTP/1.0   404 Not Found", 404, "Not Found"),
        ("HTTP/1.1 403.1 IIS", 403, ".1 IIS"),
        ("HTTP/2.0 200 x", 200, "x"),
        ("HTTP/1.1 099 low", 99, "low"),
    ] {
        for end in ["\r\n", "\n"] {
            let (head, bytes) = response(&format!("{line}{end}A: b{end}{end}")).unwrap();
            assert_eq!((head.status, head.reason.of(&bytes)), (status, reason.as_bytes()), "{line}");
        }
    }
    for line in [
        "http/1.1 200 OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000",
        "HTTP/1.1200 OK",
        "HTTP/1 200 OK",
        "ICY 200 OK",
        "HTTP/0.9 200",
    ] {
        assert_eq!(response(&format!("{line}\r\n\r\n")).unwrap_err(), HeadError::InvalidStatusLine, "{line}");
    }
    let early = ResponseParser::default().parse(b"<htm", &HeadLimits::default(), &mut ResponseHead::default());
    assert_eq!(early, Err(HeadError::InvalidStatusLine));
    // A second status line is skipped, names that a client may not send are kept.
    let (head, bytes) = response("HTTP/1.1 200 OK\r\nHTTP/1.1 200 OK\r\nX_Y: 1\r\na.b: 2\r\n\r\n").unwrap();
    assert_eq!(head.fields.all.len(), 2);
    assert_eq!(head.status_line.of(&bytes), b"200 OK");
}

/// RFC 9112, 6.3, in its order.
#[test]
fn response_framing() {
    use BodyLength::{Chunked, Exact, None, UntilClose};
    for (text, request, wanted) in [
        ("200 OK\r\nContent-Length: 5\r\n", Method::Get, Ok(Exact(5))),
        ("200 OK\r\nContent-Length: 5\r\n", Method::Head, Ok(None)),
        ("304 x\r\nContent-Length: 5\r\n", Method::Get, Ok(None)),
        ("204 x\r\nTransfer-Encoding: chunked\r\n", Method::Get, Ok(None)),
        ("100 Continue\r\n", Method::Post, Ok(None)),
        ("101 x\r\n", Method::Get, Ok(None)),
        ("200 x\r\n", Method::Connect, Ok(None)),
        ("407 x\r\nContent-Length: 5\r\n", Method::Connect, Ok(Exact(5))),
        ("200 OK\r\nTransfer-Encoding: Chunked\r\n", Method::Get, Ok(Chunked)),
        ("200 OK\r\n", Method::Get, Ok(UntilClose)),
        (
            "200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            Method::Head,
            Err(FramingError::ContentLengthAndTransferEncoding),
        ),
        ("200 OK\r\nTransfer-Encoding: gzip\r\n", Method::Get, Err(FramingError::UnknownTransferEncoding)),
        (
            "200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
            Method::Get,
            Err(FramingError::DuplicateContentLength),
        ),
        ("200 OK\r\nContent-Length: x\r\n", Method::Get, Err(FramingError::InvalidContentLength)),
    ] {
        let (head, bytes) = response(&format!("HTTP/1.1 {text}\r\n")).unwrap();
        assert_eq!(response_body(&head, &bytes, request), wanted, "{text}");
    }
}

#[test]
fn response_persistence() {
    for (text, wanted) in [
        ("HTTP/1.1 200 OK\r\n\r\n", true),
        ("HTTP/1.0 200 OK\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n", false),
        ("HTTP/1.1 101 x\r\nConnection: upgrade\r\n\r\n", false),
    ] {
        let (head, bytes) = response(text).unwrap();
        assert_eq!(response_keep_alive(&head, &bytes), wanted, "{text}");
    }
}

#[test]
fn chunks_are_written() {
    let mut out = Vec::new();
    for len in [1, 15, 16, 255, 4096, usize::MAX] {
        out.clear();
        encode_chunk_head(len, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), format!("{len:x}\r\n"));
    }
    out.clear();
    encode_chunk_head(0, &mut out);
    assert!(out.is_empty());
    assert_eq!(decode(LAST_CHUNK, 9), Ok((Vec::new(), true, 5)));

    let mut writer = RequestWriter::new(&mut out, b"GET", b"/a?b", 1);
    writer.field(b"Host", b"example.com").field(b"X_y.z", b"");
    assert!(writer.end());
    assert_eq!(out, b"GET /a?b HTTP/1.1\r\nHost: example.com\r\nX_y.z: \r\n\r\n");
    for (method, target, name, value) in [
        ("GET", "/a b", "A", "b"),
        ("GET", "/\r\n", "A", "b"),
        ("G T", "/", "A", "b"),
        ("GET", "", "A", "b"),
        ("GET", "/", "A:", "b"),
        ("GET", "/", "", "b"),
        ("GET", "/", "A", "b\r\nC: d"),
        ("GET", "/", "A", "b\nC: d"),
        ("GET", "/", "A", "b\0"),
    ] {
        let mut out = Vec::new();
        let mut writer = RequestWriter::new(&mut out, method.as_bytes(), target.as_bytes(), 0);
        writer.field(name.as_bytes(), value.as_bytes());
        assert!(!writer.end(), "{method} {target} {name} {value:?}");
    }
}

#[test]
fn statuses_have_reasons() {
    for status in 0..1000 {
        if let Some(line) = status_line(status) {
            assert!(line.starts_with(&format!("{status} ")));
        }
    }
    assert_eq!(status_line(302), Some("302 Moved Temporarily"));
    assert_eq!(status_line(405), Some("405 Not Allowed"));
    assert_eq!(status_line(503), Some("503 Service Temporarily Unavailable"));
    assert_eq!((status_line(203), status_line(418), status_line(494)), (None, None, None));
}
