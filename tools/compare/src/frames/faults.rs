//! Acts with a fault: of the preface, of frames, of header blocks and requests, and of streams' states.

use super::acts::{Act, FrameFields, Maker, push_field, request_fields};
use super::wire::{self, Coding, Shape};

/// A connection whose first octets are wrong.
pub fn preface_fault(maker: &mut Maker) -> Act {
    let whole = |bytes: &[u8]| [wire::PREFACE, bytes].concat();
    let (words, bytes) = match maker.dice.below(7) {
        0 => ("a preface with a wrong end", [&wire::PREFACE[..22], b"X\n"].concat()),
        1 => ("half a preface", wire::PREFACE[..18].to_vec()),
        2 => ("a preface without SETTINGS", wire::PREFACE.to_vec()),
        3 => ("a preface, and PING instead of SETTINGS", whole(&wire::write_frame(wire::PING, 0, 0, b"12345678"))),
        4 => ("two prefaces", whole(&[&wire::settings_frame(&[])[..], wire::PREFACE].concat())),
        5 => ("a preface, and HTTP/1", whole(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")),
        _ => ("a preface with HTTP/1.1", b"PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n".to_vec()),
    };
    maker.act(words, bytes, Vec::new())
}

pub fn draw_fault(maker: &mut Maker) -> Act {
    match maker.dice.below(5) {
        0 => frames(maker),
        1 => fields(maker),
        2 => blocks(maker),
        3 => states(maker),
        _ => limits(maker),
    }
}

/// Frames with wrong lengths, streams, padding or values.
fn frames(maker: &mut Maker) -> Act {
    use wire::{
        ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITY, PRIORITY_UPDATE,
        PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, WITH_PRIORITY, number_frame, settings_frame, stated_frame,
        write_frame,
    };
    let id = maker.next;
    let last = id.saturating_sub(2).max(1);
    let block =
        wire::literal_block(&[(":method", "GET"), (":scheme", "http"), (":path", "/return"), (":authority", "a")]);
    let window = wire::INITIAL_WINDOW;
    let faults: Vec<(&str, Vec<u8>)> = vec![
        ("PING of 7 octets", write_frame(PING, 0, 0, b"1234567")),
        ("PING of 9 octets", write_frame(PING, 0, 0, b"123456789")),
        ("PING with a stream", write_frame(PING, 0, 1, b"12345678")),
        ("PING with ACK", write_frame(PING, ACK, 0, b"12345678")),
        ("SETTINGS of 5 octets", write_frame(SETTINGS, 0, 0, b"12345")),
        ("SETTINGS with a stream", write_frame(SETTINGS, 0, 1, b"")),
        ("SETTINGS with ACK and a payload", write_frame(SETTINGS, ACK, 0, &[0, 4, 0, 0, 0, 1])),
        ("SETTINGS with ACK, again", write_frame(SETTINGS, ACK, 0, b"")),
        ("SETTINGS: window too large", settings_frame(&[(window, 1 << 31)])),
        ("SETTINGS: frame size 16383", settings_frame(&[(wire::MAX_FRAME, 16_383)])),
        ("SETTINGS: frame size 2^24", settings_frame(&[(wire::MAX_FRAME, 1 << 24)])),
        ("SETTINGS: push 2", settings_frame(&[(wire::ENABLE_PUSH, 2)])),
        ("SETTINGS: push 1", settings_frame(&[(wire::ENABLE_PUSH, 1)])),
        ("SETTINGS: window 0, then more", settings_frame(&[(window, 0), (window, 70_000)])),
        ("SETTINGS: table 2^32-1", settings_frame(&[(wire::TABLE_SIZE, u32::MAX)])),
        ("WINDOW_UPDATE of 3 octets", write_frame(WINDOW_UPDATE, 0, 0, b"123")),
        ("WINDOW_UPDATE of 0", number_frame(WINDOW_UPDATE, 0, 0)),
        ("WINDOW_UPDATE of 0 for the last stream", number_frame(WINDOW_UPDATE, last, 0)),
        ("WINDOW_UPDATE of 0 for an idle stream", number_frame(WINDOW_UPDATE, id + 10, 0)),
        ("WINDOW_UPDATE beyond the maximum", number_frame(WINDOW_UPDATE, 0, 0x7fff_ffff)),
        ("WINDOW_UPDATE with the reserved bit", number_frame(WINDOW_UPDATE, 0, 0x8000_0001)),
        ("WINDOW_UPDATE beyond the maximum, of the last stream", number_frame(WINDOW_UPDATE, last, 0x7fff_ffff)),
        ("WINDOW_UPDATE for an idle stream", number_frame(WINDOW_UPDATE, id + 10, 1)),
        ("RST_STREAM of 3 octets", write_frame(RST_STREAM, 0, last, b"123")),
        ("RST_STREAM of 0", number_frame(RST_STREAM, 0, 8)),
        ("RST_STREAM of an idle stream", number_frame(RST_STREAM, id + 10, 8)),
        ("RST_STREAM of the last stream, twice", number_frame(RST_STREAM, last, 8).repeat(2)),
        ("RST_STREAM of the last stream, unknown code", number_frame(RST_STREAM, last, 0xffff)),
        ("PRIORITY of 4 octets", write_frame(PRIORITY, 0, last, b"1234")),
        ("PRIORITY of 0", write_frame(PRIORITY, 0, 0, &[0, 0, 0, 1, 0])),
        ("PRIORITY of itself", write_frame(PRIORITY, 0, 9, &[0, 0, 0, 9, 0])),
        ("PRIORITY of 6 octets", write_frame(PRIORITY, 0, last, b"\0\0\0\x0b12")),
        ("PRIORITY_UPDATE of 3 octets", write_frame(PRIORITY_UPDATE, 0, 0, b"123")),
        ("PRIORITY_UPDATE with a stream", write_frame(PRIORITY_UPDATE, 0, 1, b"\0\0\0\x01u=1")),
        ("GOAWAY", wire::goaway(0, 0, b"")),
        ("GOAWAY with an error", wire::goaway(0, 2, b"words")),
        ("GOAWAY of 7 octets", write_frame(GOAWAY, 0, 0, b"1234567")),
        ("GOAWAY with a stream", write_frame(GOAWAY, 0, 1, b"12345678")),
        ("PUSH_PROMISE", write_frame(PUSH_PROMISE, END_HEADERS, last, &[0, 0, 0, 2, 0x82])),
        ("CONTINUATION alone", write_frame(CONTINUATION, END_HEADERS, last, &block)),
        ("DATA of 0", write_frame(DATA, 0, 0, b"x")),
        ("DATA of an idle stream", write_frame(DATA, END_STREAM, id + 10, b"x")),
        ("DATA of an even stream", write_frame(DATA, END_STREAM, 2, b"x")),
        ("DATA padded and empty", write_frame(DATA, PADDED, last, b"")),
        ("DATA with too much padding", write_frame(DATA, PADDED | END_STREAM, last, &[4, 1, 2, 3])),
        ("DATA with padding alone", write_frame(DATA, PADDED | END_STREAM, last, &[3, 0, 0, 0])),
        ("HEADERS of 0", write_frame(HEADERS, END_STREAM | END_HEADERS, 0, &block)),
        ("HEADERS of an even stream", write_frame(HEADERS, END_STREAM | END_HEADERS, id + 1, &block)),
        ("HEADERS of a stream in the past", write_frame(HEADERS, END_STREAM | END_HEADERS, last, &block)),
        ("HEADERS without a block", write_frame(HEADERS, END_STREAM | END_HEADERS, id, b"")),
        ("HEADERS padded and empty", write_frame(HEADERS, END_STREAM | END_HEADERS | PADDED, id, b"")),
        ("HEADERS with padding alone", write_frame(HEADERS, END_STREAM | END_HEADERS | PADDED, id, &[2, 0, 0])),
        (
            "HEADERS with too much padding",
            write_frame(HEADERS, END_STREAM | END_HEADERS | PADDED, id, &[&[200][..], &block].concat()),
        ),
        ("HEADERS with a short priority", write_frame(HEADERS, END_STREAM | END_HEADERS | WITH_PRIORITY, id, b"1234")),
        (
            "HEADERS that depends on itself",
            wire::headers_frames(id, END_STREAM, &block, &Shape { priority: Some((id, 1)), ..Shape::default() }),
        ),
        ("HEADERS with odd flags", write_frame(HEADERS, 0x92 | END_STREAM | END_HEADERS, id, &block)),
        ("HEADERS, and PING before CONTINUATION", {
            let (first, rest) = block.split_at(20);
            let ping = write_frame(PING, 0, 0, b"12345678");
            [write_frame(HEADERS, END_STREAM, id, first), ping, write_frame(CONTINUATION, END_HEADERS, id, rest)]
                .concat()
        }),
        ("HEADERS, and CONTINUATION of another stream", {
            let (first, rest) = block.split_at(20);
            [write_frame(HEADERS, END_STREAM, id, first), write_frame(CONTINUATION, END_HEADERS, id + 2, rest)].concat()
        }),
        ("HEADERS, and CONTINUATION after the end", {
            [
                write_frame(HEADERS, END_STREAM | END_HEADERS, id, &block),
                write_frame(CONTINUATION, END_HEADERS, id, &[0x82]),
            ]
            .concat()
        }),
        ("HEADERS that waits for CONTINUATION", write_frame(HEADERS, END_STREAM, id, &block)),
        ("half a frame", stated_frame(8, PING, 0, 0, b"1234")),
        ("a frame of 17 MB", stated_frame((1 << 24) - 1, DATA, 0, last, b"")),
        ("HEADERS of 1 MB", stated_frame(1 << 20, HEADERS, END_STREAM | END_HEADERS, id, &block)),
    ];
    let (words, bytes) = faults[maker.dice.below(faults.len())].clone();
    if words.starts_with("HEADERS") {
        maker.open(true);
    }
    maker.act(format!("fault at {last}, {id}: {words}"), bytes, Vec::new())
}

/// A change of a request's fields.
type FieldsChange = (&'static str, fn(&mut FrameFields));

const CHANGES: &[FieldsChange] = &[
    ("no :method", |fields| drop(fields.remove(0))),
    ("no :scheme", |fields| drop(fields.remove(1))),
    ("no :path", |fields| drop(fields.remove(2))),
    ("no :authority", |fields| drop(fields.remove(3))),
    ("no :authority, but host", |fields| fields[3].0 = b"host".into()),
    ("no pseudo-header fields", |fields| fields.drain(..).for_each(drop)),
    ("a second :method", |fields| push_field(fields, ":method", "GET")),
    ("a second :scheme", |fields| push_field(fields, ":scheme", "http")),
    ("a second :path", |fields| push_field(fields, ":path", "/return")),
    ("a second :authority", |fields| push_field(fields, ":authority", "localhost")),
    ("a late :path", |fields| {
        push_field(fields, "x", "y");
        push_field(fields, ":path", "/return");
    }),
    (":scheme behind fields", |fields| {
        let scheme = fields.remove(1);
        push_field(fields, "x", "y");
        fields.push(scheme);
    }),
    (":authority behind fields", |fields| {
        let authority = fields.remove(3);
        push_field(fields, "x", "y");
        fields.push(authority);
    }),
    (":status", |fields| push_field(fields, ":status", "200")),
    (":unknown", |fields| push_field(fields, ":unknown", "x")),
    (":protocol", |fields| push_field(fields, ":protocol", "websocket")),
    ("extended CONNECT", |fields| {
        fields[0].1 = b"CONNECT".into();
        push_field(fields, ":protocol", "websocket");
    }),
    ("CONNECT without path", |fields| {
        fields[0].1 = b"CONNECT".into();
        fields.drain(1..3);
    }),
    ("an empty pseudo-header name", |fields| push_field(fields, ":", "x")),
    ("an empty :method", |fields| fields[0].1.clear()),
    ("an empty :scheme", |fields| fields[1].1.clear()),
    ("an empty :path", |fields| fields[2].1.clear()),
    ("an empty :authority", |fields| fields[3].1.clear()),
    ("an empty :authority, and host", |fields| {
        fields[3].1.clear();
        push_field(fields, "host", "localhost");
    }),
    ("an odd :method", |fields| fields[0].1 = b"GE T".into()),
    ("an odd :scheme", |fields| fields[1].1 = b"1http".into()),
    (":scheme https", |fields| fields[1].1 = b"https".into()),
    (":scheme HTTP", |fields| fields[1].1 = b"HTTP".into()),
    (":scheme ftp", |fields| fields[1].1 = b"ftp".into()),
    (":path *", |fields| fields[2].1 = b"*".into()),
    ("OPTIONS *", |fields| {
        fields[0].1 = b"OPTIONS".into();
        fields[2].1 = b"*".into();
    }),
    (":path without a slash", |fields| fields[2].1 = b"return".into()),
    (":path with a host", |fields| fields[2].1 = b"http://localhost/return".into()),
    (":path with a space", |fields| fields[2].1 = b"/re turn".into()),
    (":path with a control", |fields| fields[2].1 = b"/return\x01".into()),
    (":path with DEL", |fields| fields[2].1 = b"/return\x7f".into()),
    (":path with octets", |fields| fields[2].1 = b"/p/\xe4\xff".into()),
    (":path with a fragment", |fields| fields[2].1 = b"/p/echo#frag?x".into()),
    (":path above the root", |fields| fields[2].1 = b"/../return".into()),
    (":path with bad escapes", |fields| fields[2].1 = b"/%zz".into()),
    (":path with %00", |fields| fields[2].1 = b"/%00".into()),
    (":path with LF", |fields| fields[2].1 = b"/return\n".into()),
    ("an odd :authority", |fields| fields[3].1 = b"a b".into()),
    (":authority with a user", |fields| fields[3].1 = b"u@localhost".into()),
    (":authority with a bad port", |fields| fields[3].1 = b"localhost:99999".into()),
    (":authority with a port", |fields| fields[3].1 = b"localhost:80".into()),
    (":authority with a dot", |fields| fields[3].1 = b"LOCALHOST.".into()),
    (":authority and another host", |fields| push_field(fields, "host", "other")),
    (":authority and the host in capitals", |fields| push_field(fields, "host", "LOCALHOST")),
    (":authority and an empty host", |fields| push_field(fields, "host", "")),
    ("two hosts", |fields| {
        fields.remove(3);
        push_field(fields, "host", "localhost");
        push_field(fields, "host", "localhost");
    }),
    ("an upper-case name", |fields| push_field(fields, "X-Upper", "x")),
    ("an empty name", |fields| push_field(fields, "", "x")),
    ("a name with a space", |fields| push_field(fields, "a b", "x")),
    ("a name with a colon", |fields| push_field(fields, "a:b", "x")),
    ("a name with LF", |fields| push_field(fields, "a\nb", "x")),
    ("a name with NUL", |fields| push_field(fields, "a\0b", "x")),
    ("a name with an odd letter", |fields| push_field(fields, "a(b", "x")),
    ("a name with an octet", |fields| fields.push((b"a\xffb".into(), b"x".into()))),
    ("a name with an underscore", |fields| push_field(fields, "a_b", "x")),
    ("a value with LF", |fields| push_field(fields, "x", "a\nb")),
    ("a value with CR", |fields| push_field(fields, "x", "a\rb")),
    ("a value with NUL", |fields| push_field(fields, "x", "a\0b")),
    ("a value with a control", |fields| push_field(fields, "x", "a\x01b")),
    ("a value with spaces around", |fields| push_field(fields, "x", "  a \t")),
    ("connection", |fields| push_field(fields, "connection", "close")),
    ("keep-alive", |fields| push_field(fields, "keep-alive", "x")),
    ("proxy-connection", |fields| push_field(fields, "proxy-connection", "close")),
    ("transfer-encoding", |fields| push_field(fields, "transfer-encoding", "chunked")),
    ("upgrade", |fields| push_field(fields, "upgrade", "websocket")),
    ("http2-settings", |fields| push_field(fields, "http2-settings", "AA")),
    ("te with gzip", |fields| push_field(fields, "te", "gzip")),
    ("te, empty", |fields| push_field(fields, "te", "")),
    ("te with trailers and more", |fields| push_field(fields, "te", "trailers, gzip")),
    ("te in capitals", |fields| push_field(fields, "te", "TRAILERS")),
    ("content-length with an end", |fields| push_field(fields, "content-length", "5")),
    ("content-length 0", |fields| push_field(fields, "content-length", "0")),
    ("content-length that is none", |fields| push_field(fields, "content-length", "x")),
    ("content-length, negative", |fields| push_field(fields, "content-length", "-1")),
    ("content-length with a sign", |fields| push_field(fields, "content-length", "+0")),
    ("content-length, empty", |fields| push_field(fields, "content-length", "")),
    ("content-length, huge", |fields| push_field(fields, "content-length", "99999999999999999999")),
    ("content-length twice", |fields| {
        push_field(fields, "content-length", "0");
        push_field(fields, "content-length", "0");
    }),
    ("content-length twice, different", |fields| {
        push_field(fields, "content-length", "0");
        push_field(fields, "content-length", "1");
    }),
    ("content-length as a list", |fields| push_field(fields, "content-length", "0, 0")),
    ("an odd range", |fields| push_field(fields, "range", "bytes=4-1")),
    ("authorization twice", |fields| {
        push_field(fields, "authorization", "a");
        push_field(fields, "authorization", "b");
    }),
    ("many cookies", |fields| (0..30).for_each(|_| push_field(fields, "cookie", "a=b"))),
    ("an empty cookie", |fields| push_field(fields, "cookie", "")),
];

/// Requests with faulty fields.
fn fields(maker: &mut Maker) -> Act {
    let path = maker.pick(&["/return", "/p/echo", "/small.txt"]);
    let mut fields = request_fields("GET", path);
    if maker.one_in(3) {
        push_field(&mut fields, "x-first", "1");
    }
    let (words, change) = maker.pick(CHANGES);
    change(&mut fields);
    let id = maker.open(true);
    let bytes = maker.headers(id, &fields, true);
    maker.act(format!("{id}: {path} with {words}"), bytes, vec![id])
}

/// Header blocks that are coded wrong.
fn blocks(maker: &mut Maker) -> Act {
    let base =
        wire::literal_block(&[(":method", "GET"), (":scheme", "http"), (":path", "/return"), (":authority", "a")]);
    let behind = |bytes: &[u8]| [&base[..], bytes].concat();
    let before = |bytes: &[u8]| [bytes, &base[..]].concat();
    let kept = |name: &[u8], value: &[u8]| {
        let mut out = Vec::new();
        wire::field(name, value, Coding::Kept, &mut out);
        out
    };
    let faults: Vec<(&str, Vec<u8>)> = vec![
        ("index 0", behind(&[0x80])),
        ("index 61", behind(&[0x80 | 61])),
        ("index 62", behind(&[0x80 | 62])),
        ("index 70", behind(&[0x80 | 70])),
        ("a name of index 62", behind(&[0x40 | 62, 1, b'x'])),
        ("a name of index 70", behind(&[0x40 | 63, 7, 1, b'x'])),
        ("a long index", behind(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x01])),
        ("an index of 4 octets", behind(&[0xff, 0x80, 0x80, 0x80, 0x01])),
        ("an endless index", behind(&[0xff; 12])),
        ("an index with zeros", behind(&[0xff, 0x80, 0x80, 0x00])),
        ("a table of 0", before(&[0x20])),
        ("a table of 0 and 4096", before(&[0x20, 0x3f, 0xe1, 0x1f])),
        ("a table of 4097", before(&[0x3f, 0xe2, 0x1f])),
        ("a table of 4096", before(&[0x3f, 0xe1, 0x1f])),
        ("a table of 2^28", before(&[0x3f, 0xff, 0xff, 0xff, 0x7f])),
        ("a size update at the end", behind(&[0x20])),
        ("a size update in the middle", [&base[..20], &[0x20], &base[20..]].concat()),
        ("a size update alone", vec![0x20]),
        ("a new entry and its use", behind(&[&kept(b"x-kept", b"k")[..], &[0x80 | 62]].concat())),
        ("a new entry that fills the table, and its use", {
            behind(&[&kept(b"x-kept", &[b'v'; 4_050])[..], &[0x80 | 62]].concat())
        }),
        ("a new entry beyond the table, and its use", {
            behind(&[&kept(b"x-kept", &[b'v'; 4_100])[..], &[0x80 | 62]].concat())
        }),
        ("Huffman: padding of zeros", behind(&[0, 1, b'x', 0x81, 0b0001_1000])),
        ("Huffman: 8 bits of padding", behind(&[0, 1, b'x', 0x82, 0b0001_1111, 0xff])),
        ("Huffman: 16 bits of padding", behind(&[0, 1, b'x', 0x83, 0b0001_1111, 0xff, 0xff])),
        ("Huffman: the end of string", behind(&[0, 1, b'x', 0x84, 0xff, 0xff, 0xff, 0xff])),
        ("Huffman: nothing", behind(&[0, 1, b'x', 0x80])),
        ("Huffman: an empty name", behind(&[0, 0x80, 1, b'x'])),
        ("Huffman: an upper-case name", behind(&[0, 0x81, 0b0100_0011, 1, b'x'])),
        ("a value beyond the block", behind(&[0, 1, b'x', 9, b'y'])),
        ("a name beyond the block", behind(&[0, 9, b'x'])),
        ("a name without a value", behind(&[0, 1, b'x'])),
        ("a literal without a name", behind(&[0])),
        ("a length with no end", behind(&[0, 1, b'x', 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f])),
        ("a length in parts", behind(&[&[0, 1, b'x', 0x7f, 0x80, 0x00][..], &[b'y'; 127]].concat())),
        ("an empty name", behind(&[0, 0, 1, b'x'])),
        ("never indexed", behind(&[0x10, 1, b'x', 1, b'y'])),
        ("static entries", vec![0x82, 0x86, 0x84, 0x41, 1, b'a']),
        ("static entries without :authority's value", vec![0x82, 0x86, 0x84, 0x81]),
        ("the static :status", behind(&[0x88])),
        ("an empty block behind the priority", Vec::new()),
        ("octets of zero", vec![0; 30]),
        ("octets of 0xff", vec![0xff; 30]),
    ];
    let (words, block) = faults[maker.dice.below(faults.len())].clone();
    let id = maker.open(true);
    let shape = maker.shape(&block);
    let bytes = wire::headers_frames(id, wire::END_STREAM, &block, &shape);
    maker.act(format!("{id}: a block with {words} {shape:?}"), bytes, vec![id])
}

/// Frames that do not fit the state of their stream.
fn states(maker: &mut Maker) -> Act {
    let kind = maker.dice.below(14);
    let path = maker.pick(&["/p/echo", "/return", "/small.txt", "/limited/p"]);
    let length = |n: usize| {
        let mut fields = request_fields("POST", path);
        push_field(&mut fields, "content-length", &n.to_string());
        fields
    };
    let id = maker.open(true);
    let (words, bytes): (&str, Vec<u8>) = match kind {
        0 => {
            let head = maker.headers(id, &length(5), false);
            ("a body that is too short", [head, wire::write_frame(wire::DATA, wire::END_STREAM, id, b"abc")].concat())
        }
        1 => {
            let head = maker.headers(id, &length(5), false);
            (
                "a body that is too long",
                [head, wire::write_frame(wire::DATA, wire::END_STREAM, id, b"abcdefgh")].concat(),
            )
        }
        2 => {
            let head = maker.headers(id, &length(5), false);
            let data = wire::write_frame(wire::DATA, 0, id, b"abcdef");
            (
                "a body that is too long, in parts",
                [head, data, wire::write_frame(wire::DATA, wire::END_STREAM, id, b"")].concat(),
            )
        }
        3 => {
            let head = maker.headers(id, &length(0), false);
            ("a body of length 0", [head, wire::write_frame(wire::DATA, wire::END_STREAM, id, b"")].concat())
        }
        4 => {
            let head = maker.headers(id, &request_fields("GET", path), true);
            ("DATA behind the end", [head, wire::write_frame(wire::DATA, wire::END_STREAM, id, b"abc")].concat())
        }
        5 => {
            let head = maker.headers(id, &request_fields("POST", path), false);
            let end = wire::write_frame(wire::DATA, wire::END_STREAM, id, b"abc");
            ("DATA behind the body's end", [head, end.clone(), end].concat())
        }
        6 => {
            let head = maker.headers(id, &request_fields("POST", path), false);
            let reset = wire::number_frame(wire::RST_STREAM, id, 8);
            (
                "DATA behind RST_STREAM",
                [head, reset, wire::write_frame(wire::DATA, wire::END_STREAM, id, b"abc")].concat(),
            )
        }
        7 => {
            let head = maker.headers(id, &request_fields("GET", path), true);
            ("RST_STREAM behind the request", [head, wire::number_frame(wire::RST_STREAM, id, 8)].concat())
        }
        8 => {
            let head = maker.headers(id, &request_fields("POST", path), false);
            let data = wire::write_frame(wire::DATA, 0, id, b"abc");
            let trailers = maker.headers(id, &vec![(b"x-trailer".into(), b"t".into())], true);
            ("trailers", [head, data, trailers].concat())
        }
        9 => {
            let head = maker.headers(id, &request_fields("GET", path), true);
            let again = maker.headers(id, &request_fields("GET", path), true);
            ("a second request on the stream", [head, again].concat())
        }
        10 => {
            let head = maker.headers(id, &request_fields("POST", path), false);
            let empty = wire::write_frame(wire::DATA, 0, id, b"").repeat(20);
            ("empty DATA frames", [head, empty, wire::write_frame(wire::DATA, wire::END_STREAM, id, b"abc")].concat())
        }
        11 => {
            let head = maker.headers(id, &request_fields("GET", "/large.txt"), true);
            let window = wire::settings_frame(&[(wire::INITIAL_WINDOW, 0)]);
            ("a window that shrinks", [head, window].concat())
        }
        12 => {
            // The stream numbers between are closed by this one.
            let far = maker.open(true);
            let head = maker.headers(far, &request_fields("GET", path), true);
            let early = maker.headers(id, &request_fields("GET", path), true);
            ("streams in the wrong order", [head, early].concat())
        }
        _ => {
            let head = maker.headers(id, &request_fields("GET", path), true);
            let goaway = wire::goaway(0, 0, b"");
            let next = maker.open(true);
            (
                "GOAWAY between requests",
                [head, goaway, maker.headers(next, &request_fields("GET", path), true)].concat(),
            )
        }
    };
    let awaits = if matches!(kind, 7 | 11) { Vec::new() } else { vec![id] };
    maker.act(format!("{id}: {path}, {words}"), bytes, awaits)
}

/// Requests that exceed a limit.
fn limits(maker: &mut Maker) -> Act {
    let count = maker.pick(&[5usize, 12, 40]);
    match maker.dice.below(8) {
        0 => {
            let (name, value) =
                (maker.pick(&["x-long", "cookie", "user-agent"]), maker.pick(&[900usize, 1_500, 5_000, 9_000]));
            let mut fields = request_fields("GET", "/return");
            push_field(&mut fields, name, &"v".repeat(value));
            let id = maker.open(true);
            let bytes = maker.headers(id, &fields, true);
            maker.act(format!("{id}: {name} of {value} octets"), bytes, vec![id])
        }
        1 => {
            let length = maker.pick(&[900usize, 1_500, 5_000, 9_000]);
            let id = maker.open(true);
            let bytes = maker.headers(id, &request_fields("GET", &format!("/{}", "p".repeat(length))), true);
            maker.act(format!("{id}: a path of {length} octets"), bytes, vec![id])
        }
        2 => {
            let mut fields = request_fields("GET", "/return");
            (0..count).for_each(|index| push_field(&mut fields, &format!("x-{index}"), &"v".repeat(200)));
            let id = maker.open(true);
            let bytes = maker.headers(id, &fields, true);
            maker.act(format!("{id}: {count} fields of 200 octets"), bytes, vec![id])
        }
        3 => {
            let mut fields = request_fields("GET", "/return");
            let length = maker.pick(&[900usize, 9_000]);
            push_field(&mut fields, &"n".repeat(length), "v");
            let id = maker.open(true);
            let bytes = maker.headers(id, &fields, true);
            maker.act(format!("{id}: a name of {length} octets"), bytes, vec![id])
        }
        4 => {
            let path = maker.pick(&["/return", "/p/echo", "/small.txt"]);
            let mut bytes = Vec::new();
            let ids: Vec<u32> = (0..count)
                .map(|_| {
                    let id = maker.open(true);
                    bytes.extend(wire::headers_frames(
                        id,
                        wire::END_STREAM,
                        &wire::literal_block(&as_text(&request_fields("GET", path))),
                        &Shape::default(),
                    ));
                    id
                })
                .collect();
            maker.act(format!("{count} requests for {path} at once"), bytes, ids)
        }
        5 => {
            let mut bytes = Vec::new();
            for _ in 0..count {
                let id = maker.open(false);
                bytes.extend(wire::headers_frames(
                    id,
                    0,
                    &wire::literal_block(&as_text(&request_fields("POST", "/p/echo"))),
                    &Shape::default(),
                ));
            }
            maker.act(format!("{count} bodies without an end"), bytes, Vec::new())
        }
        6 => {
            let mut fields = request_fields("POST", maker.pick(&["/p/echo", "/limited/p", "/return"]));
            let length = maker.pick(&[66_000usize, 70_000, 140_000]);
            if maker.one_in(2) {
                push_field(&mut fields, "content-length", &length.to_string());
            }
            let id = maker.open(true);
            let mut bytes = maker.headers(id, &fields, false);
            bytes.extend(wire::write_frame(wire::DATA, 0, id, &vec![b'w'; 16_000]).repeat(length / 16_000));
            maker.act(format!("{id}: a body of {length} octets beyond the window"), bytes, vec![id])
        }
        _ => {
            let mut fields = request_fields("POST", "/limited/p");
            push_field(&mut fields, "content-length", "2000");
            let id = maker.open(false);
            let bytes = maker.headers(id, &fields, false);
            maker.act(format!("{id}: a length beyond client_max_body_size"), bytes, Vec::new())
        }
    }
}

fn as_text(fields: &FrameFields) -> Vec<(&str, &str)> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    fields.iter().map(|(name, value)| (text(name), text(value))).collect()
}
