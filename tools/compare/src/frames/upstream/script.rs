//! Answers of a server: frames for the request's stream, good ones and faulty ones.

use crate::Dice;
use crate::frames::wire::{self, Coding, Shape};

/// Stream of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The request's.
    Own,
    Connection,
    /// The next one of the client, which is idle.
    Next,
    /// The one before: of an earlier request, or an idle one.
    Before,
    Fixed(u32),
}

impl On {
    pub fn id(self, own: u32) -> u32 {
        match self {
            On::Own => own,
            On::Connection => 0,
            On::Next => own + 2,
            On::Before => own.saturating_sub(2),
            On::Fixed(id) => id,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Move {
    /// A header block in frames.
    Block {
        block: Vec<u8>,
        flags: u8,
        shape: Shape,
        on: On,
    },
    /// A frame; `stated`: the length in its header.
    Frame {
        kind: u8,
        flags: u8,
        on: On,
        payload: Vec<u8>,
        stated: Option<usize>,
    },
    Goaway {
        last: On,
        code: u32,
    },
    /// Octets as they are.
    Raw(Vec<u8>),
    /// Lets the proxy process the frames before.
    Pause,
    /// Waits for the end of the request.
    Await,
    Close,
}

impl Move {
    /// Returns the octets for the request's stream.
    pub fn bytes(&self, own: u32) -> Vec<u8> {
        match self {
            Move::Block { block, flags, shape, on } => wire::headers_frames(on.id(own), *flags, block, shape),
            Move::Frame { kind, flags, on, payload, stated } => {
                wire::stated_frame(stated.unwrap_or(payload.len()), *kind, *flags, on.id(own), payload)
            }
            Move::Goaway { last, code } => wire::goaway(last.id(own), *code, b""),
            Move::Raw(bytes) => bytes.clone(),
            Move::Pause | Move::Await | Move::Close => Vec::new(),
        }
    }
}

/// A move in words.
#[derive(Clone, Debug)]
pub struct FrameMove {
    pub words: String,
    pub act: Move,
}

fn step(words: impl Into<String>, act: Move) -> FrameMove {
    FrameMove { words: words.into(), act }
}

fn frame(kind: u8, flags: u8, on: On, payload: &[u8]) -> Move {
    Move::Frame { kind, flags, on, payload: payload.to_vec(), stated: None }
}

/// Returns a random script: opening frames for a new connection, and the answer.
pub struct Maker<'a> {
    pub dice: &'a mut Dice,
    /// gRPC: trailers matter.
    pub grpc: bool,
}

type ScriptFields = Vec<(&'static str, String)>;

const FIELDS: &[(&str, &str)] = &[
    ("content-type", "text/plain"),
    ("x-own", "o"),
    ("server", "behind"),
    ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
    ("set-cookie", "a=b"),
    ("set-cookie", "c=d"),
    ("location", "/to"),
    ("x_under", "u"),
    ("x-empty", ""),
    ("x-utf", "\u{e4}"),
    ("etag", "\"e\""),
    ("vary", "X"),
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),
    ("link", "</a>; rel=preload"),
    ("grpc-encoding", "identity"),
];

/// Fields that break a response.
const FAULTY: &[(&str, &str)] = &[
    ("X-Upper", "x"),
    ("", "x"),
    ("a b", "x"),
    ("a:b", "x"),
    ("a\nb", "x"),
    ("a\0b", "x"),
    ("a(b", "x"),
    ("x", "a\nb"),
    ("x", "a\rb"),
    ("x", "a\0b"),
    ("x", "a\u{1}b"),
    ("x", "  a "),
    (":status", "201"),
    (":path", "/"),
    (":unknown", "x"),
    (":", "x"),
    ("connection", "close"),
    ("connection", "x-own"),
    ("keep-alive", "timeout=1"),
    ("transfer-encoding", "chunked"),
    ("upgrade", "websocket"),
    ("proxy-connection", "close"),
    ("te", "gzip"),
    ("content-length", "x"),
    ("content-length", ""),
    ("content-length", "-1"),
    ("content-length", "99999999999999999999"),
    ("content-length", "1"),
    ("content-length", "1000"),
    ("content-length", "0"),
    ("content-encoding", "gzip"),
    ("trailer", "x-t"),
    ("x-accel-redirect", "/return"),
    ("status", "500"),
];

const STATUS: &[&str] = &["200", "200", "200", "200", "200", "201", "204", "304", "302", "404", "500", "503", "403"];
const ODD_STATUS: &[&str] =
    &["", "2", "20", "2000", "abc", "099", "000", "199", "999", "600", "-20", " 200", "200 ", "101"];

impl Maker<'_> {
    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.dice.below(all.len())]
    }
    fn one_in(&mut self, n: usize) -> bool {
        self.dice.below(n) == 0
    }
    fn head(&mut self, fields: &ScriptFields, end: bool) -> FrameMove {
        let mut block = Vec::new();
        for (name, value) in fields {
            let coding = self.pick(&[Coding::Plain, Coding::Plain, Coding::Huffman, Coding::NeverKept]);
            wire::field(name.as_bytes(), value.as_bytes(), coding, &mut block);
        }
        let mut shape = Shape::default();
        if self.one_in(6) {
            shape.padding = Some(self.pick(&[0, 1, 200]));
        }
        if self.one_in(8) {
            shape.priority = Some((0, 3));
        }
        if self.one_in(5) {
            shape.cuts = vec![1 + self.dice.below(block.len().max(2) - 1)];
        }
        let shown: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}={value:.40?}")).collect();
        let words = format!("head {}{} {shape:?}", shown.join(" "), if end { ", end" } else { "" });
        step(words, Move::Block { block, flags: u8::from(end), shape, on: On::Own })
    }
    fn data(&mut self, length: usize, end: bool) -> Vec<FrameMove> {
        let body: Vec<u8> = b"0123456789".iter().cycle().take(length).copied().collect();
        let mut out = Vec::new();
        let mut rest = body.as_slice();
        let separately = self.one_in(4);
        while !rest.is_empty() {
            let most = self.pick(&[10, 1_000, 16_000]);
            let (part, later) = rest.split_at(most.min(rest.len()));
            rest = later;
            let last = if end && rest.is_empty() && !separately { wire::END_STREAM } else { 0 };
            let (flags, payload) = match self.one_in(5) {
                true => (last | wire::PADDED, wire::padded(part, self.pick(&[0, 3, 200]))),
                false => (last, part.to_vec()),
            };
            out.push(step(
                format!("data of {}, flags {flags}", part.len()),
                frame(wire::DATA, flags, On::Own, &payload),
            ));
            if out.len() > 8 && !rest.is_empty() {
                // A window's worth of frames is enough.
                let flags = if end && !separately { wire::END_STREAM } else { 0 };
                let rest = std::mem::take(&mut rest);
                for (index, part) in rest.chunks(16_000).enumerate() {
                    let flags = if (index + 1) * 16_000 >= rest.len() { flags } else { 0 };
                    out.push(step(
                        format!("data of {}, flags {flags}", part.len()),
                        frame(wire::DATA, flags, On::Own, part),
                    ));
                }
            }
        }
        if end && (separately || out.is_empty()) {
            out.push(step("end", frame(wire::DATA, wire::END_STREAM, On::Own, b"")));
        }
        out
    }

    /// A response without a fault.
    fn response(&mut self) -> Vec<FrameMove> {
        let mut steps = Vec::new();
        if self.one_in(6) {
            let status = self.pick(&["103", "103", "100", "102"]);
            let fields = vec![(":status", status.to_string()), ("link", "</a>".into())];
            steps.push(self.head(&fields, false));
        }
        let mut fields: ScriptFields = vec![(":status", self.pick(STATUS).into())];
        for _ in 0..self.dice.below(4) {
            let (name, value) = self.pick(FIELDS);
            fields.push((name, value.into()));
        }
        let length = self.pick(&[0usize, 5, 5, 100, 3_000, 40_000]);
        if self.one_in(3) {
            fields.push(("content-length", length.to_string()));
        }
        if self.grpc && self.one_in(5) {
            // Trailers only.
            fields.push(("grpc-status", "5".into()));
            steps.push(self.head(&fields, true));
            return steps;
        }
        let has_trailers = self.one_in(if self.grpc { 2 } else { 4 });
        let ends_at_head = length == 0 && !has_trailers && self.one_in(2);
        steps.push(self.head(&fields, ends_at_head));
        if ends_at_head {
            return steps;
        }
        steps.extend(self.data(length, !has_trailers));
        if has_trailers {
            let fields = vec![("grpc-status", "0".to_string()), ("x-trailer", "t".into())];
            steps.push(self.head(&fields, true));
        }
        steps
    }

    /// Frames that fit everywhere.
    fn harmless(&mut self) -> FrameMove {
        let window = wire::number_frame(wire::WINDOW_UPDATE, 0, 1_000).split_off(wire::HEADER);
        let all: Vec<(&str, Move)> = vec![
            ("PING", frame(wire::PING, 0, On::Connection, b"12345678")),
            ("SETTINGS", frame(wire::SETTINGS, 0, On::Connection, &[0, 3, 0, 0, 0, 9])),
            ("SETTINGS: unknown", frame(wire::SETTINGS, 0, On::Connection, &[0xfa, 0xfa, 0, 0, 0, 9])),
            ("SETTINGS with ACK", frame(wire::SETTINGS, wire::ACK, On::Connection, b"")),
            ("SETTINGS: window 1 MB", frame(wire::SETTINGS, 0, On::Connection, &[0, 4, 0, 0x10, 0, 0])),
            ("more window for the connection", frame(wire::WINDOW_UPDATE, 0, On::Connection, &window)),
            ("more window for the stream", frame(wire::WINDOW_UPDATE, 0, On::Own, &window)),
            ("PRIORITY", frame(wire::PRIORITY, 0, On::Own, &[0, 0, 0, 0, 9])),
            ("an unknown frame", frame(0xfa, 0xff, On::Connection, b"unknown")),
            ("an unknown frame of the stream", frame(0xfa, 0xff, On::Own, b"unknown")),
            ("ALTSVC", frame(10, 0, On::Connection, b"\0\0h2=\":1\"")),
            ("a pause", Move::Pause),
            ("the end of the request", Move::Await),
        ];
        let (words, act) = all[self.dice.below(all.len())].clone();
        step(words, act)
    }

    fn fault(&mut self) -> FrameMove {
        use wire::{
            ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PUSH_PROMISE, RST_STREAM,
            SETTINGS, WINDOW_UPDATE, WITH_PRIORITY,
        };
        let code = self.pick(&[0u32, 0, 1, 2, 5, 7, 7, 8, 11, 13, 99]);
        let ok = wire::literal_block(&[(":status", "200")]);
        let behind = |bytes: &[u8]| [&ok[..], bytes].concat();
        let plain = |block: Vec<u8>| Move::Block { block, flags: 0, shape: Shape::default(), on: On::Own };
        let other = |on: On, flags: u8| Move::Block { block: ok.clone(), flags, shape: Shape::default(), on };
        let stated = |kind, on, payload: &[u8], length| Move::Frame {
            kind,
            flags: 0,
            on,
            payload: payload.to_vec(),
            stated: Some(length),
        };
        let reset = code.to_be_bytes();
        let all: Vec<(String, Move)> = vec![
            (format!("RST_STREAM {code}"), frame(RST_STREAM, 0, On::Own, &reset)),
            (format!("RST_STREAM {code}"), frame(RST_STREAM, 0, On::Own, &reset)),
            (format!("RST_STREAM {code}"), frame(RST_STREAM, 0, On::Own, &reset)),
            (format!("RST_STREAM {code} of the next stream"), frame(RST_STREAM, 0, On::Next, &reset)),
            ("RST_STREAM of 3 octets".into(), frame(RST_STREAM, 0, On::Own, b"123")),
            ("RST_STREAM of 0".into(), frame(RST_STREAM, 0, On::Connection, &reset)),
            (format!("GOAWAY with this stream, {code}"), Move::Goaway { last: On::Own, code }),
            (format!("GOAWAY with this stream, {code}"), Move::Goaway { last: On::Own, code: 0 }),
            (format!("GOAWAY without this stream, {code}"), Move::Goaway { last: On::Before, code }),
            (format!("GOAWAY with all streams, {code}"), Move::Goaway { last: On::Fixed(0x7fff_ffff), code }),
            ("GOAWAY of 7 octets".into(), frame(GOAWAY, 0, On::Connection, b"1234567")),
            ("GOAWAY with a stream".into(), frame(GOAWAY, 0, On::Own, b"12345678")),
            ("the end of the connection".into(), Move::Close),
            ("the end of the connection".into(), Move::Close),
            ("PUSH_PROMISE".into(), frame(PUSH_PROMISE, END_HEADERS, On::Own, &[0, 0, 0, 2, 0x82])),
            ("PING of 7 octets".into(), frame(PING, 0, On::Connection, b"1234567")),
            ("PING with a stream".into(), frame(PING, 0, On::Own, b"12345678")),
            ("PING with ACK".into(), frame(PING, ACK, On::Connection, b"12345678")),
            ("SETTINGS of 5 octets".into(), frame(SETTINGS, 0, On::Connection, b"12345")),
            ("SETTINGS with a stream".into(), frame(SETTINGS, 0, On::Own, b"")),
            ("SETTINGS with ACK and a payload".into(), frame(SETTINGS, ACK, On::Connection, &[0, 4, 0, 0, 0, 1])),
            ("SETTINGS: window too large".into(), frame(SETTINGS, 0, On::Connection, &[0, 4, 0x80, 0, 0, 0])),
            ("SETTINGS: window 0".into(), frame(SETTINGS, 0, On::Connection, &[0, 4, 0, 0, 0, 0])),
            ("SETTINGS: frame size 0".into(), frame(SETTINGS, 0, On::Connection, &[0, 5, 0, 0, 0, 0])),
            ("SETTINGS: push 2".into(), frame(SETTINGS, 0, On::Connection, &[0, 2, 0, 0, 0, 2])),
            ("SETTINGS: push 1".into(), frame(SETTINGS, 0, On::Connection, &[0, 2, 0, 0, 0, 1])),
            ("SETTINGS: no streams".into(), frame(SETTINGS, 0, On::Connection, &[0, 3, 0, 0, 0, 0])),
            ("WINDOW_UPDATE of 0".into(), frame(WINDOW_UPDATE, 0, On::Own, &[0; 4])),
            ("WINDOW_UPDATE of 0, connection".into(), frame(WINDOW_UPDATE, 0, On::Connection, &[0; 4])),
            ("WINDOW_UPDATE of 3 octets".into(), frame(WINDOW_UPDATE, 0, On::Own, &[0; 3])),
            ("WINDOW_UPDATE beyond the maximum".into(), frame(WINDOW_UPDATE, 0, On::Own, &[0x7f, 255, 255, 255])),
            (
                "WINDOW_UPDATE beyond the maximum, connection".into(),
                frame(WINDOW_UPDATE, 0, On::Connection, &[0x7f, 255, 255, 255]),
            ),
            ("WINDOW_UPDATE of the next stream".into(), frame(WINDOW_UPDATE, 0, On::Next, &[0, 0, 0, 1])),
            ("DATA of 0".into(), frame(DATA, 0, On::Connection, b"x")),
            ("DATA of the next stream".into(), frame(DATA, 0, On::Next, b"x")),
            ("DATA of an even stream".into(), frame(DATA, 0, On::Fixed(2), b"x")),
            ("DATA padded and empty".into(), frame(DATA, PADDED, On::Own, b"")),
            ("DATA with too much padding".into(), frame(DATA, PADDED, On::Own, &[9, 1, 2])),
            ("DATA with padding alone".into(), frame(DATA, PADDED, On::Own, &[2, 0, 0])),
            ("DATA, one more".into(), frame(DATA, 0, On::Own, b"more")),
            ("DATA, one more, with an end".into(), frame(DATA, END_STREAM, On::Own, b"more")),
            ("DATA of 20000 octets".into(), frame(DATA, 0, On::Own, &[b'x'; 20_000])),
            ("HEADERS of the next stream".into(), other(On::Next, END_STREAM)),
            ("HEADERS of 0".into(), other(On::Connection, 0)),
            ("HEADERS of an even stream".into(), other(On::Fixed(2), 0)),
            ("HEADERS, one more".into(), other(On::Own, 0)),
            ("HEADERS, one more, with an end".into(), other(On::Own, END_STREAM)),
            ("HEADERS without a block".into(), frame(HEADERS, END_HEADERS, On::Own, b"")),
            ("HEADERS padded and empty".into(), frame(HEADERS, END_HEADERS | PADDED, On::Own, b"")),
            ("HEADERS with too much padding".into(), frame(HEADERS, END_HEADERS | PADDED, On::Own, &[9, 0x88])),
            ("HEADERS with a short priority".into(), frame(HEADERS, END_HEADERS | WITH_PRIORITY, On::Own, b"1234")),
            ("HEADERS that waits for CONTINUATION".into(), frame(HEADERS, 0, On::Own, &ok)),
            ("CONTINUATION alone".into(), frame(CONTINUATION, END_HEADERS, On::Own, &ok)),
            ("CONTINUATION of the next stream".into(), frame(CONTINUATION, END_HEADERS, On::Next, &ok)),
            ("half a frame".into(), stated(PING, On::Connection, b"1234", 8)),
            ("a frame of 17 MB".into(), stated(DATA, On::Own, b"", (1 << 24) - 1)),
            ("HTTP/1".into(), Move::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec())),
            ("index 0".into(), plain(behind(&[0x80]))),
            ("index 62".into(), plain(behind(&[0x80 | 62]))),
            ("a long index".into(), plain(behind(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x01]))),
            ("a table of 0".into(), plain([&[0x20], &ok[..]].concat())),
            ("a table of 4096".into(), plain([&[0x3f, 0xe1, 0x1f], &ok[..]].concat())),
            ("a table of 4097".into(), plain([&[0x3f, 0xe2, 0x1f], &ok[..]].concat())),
            ("a size update at the end".into(), plain(behind(&[0x20]))),
            ("a new entry and its use".into(), plain(behind(&[0x40, 1, b'k', 1, b'v', 0x80 | 62]))),
            ("Huffman: padding of zeros".into(), plain(behind(&[0, 1, b'x', 0x81, 0b0001_1000]))),
            ("Huffman: the end of string".into(), plain(behind(&[0, 1, b'x', 0x84, 255, 255, 255, 255]))),
            ("a value beyond the block".into(), plain(behind(&[0, 1, b'x', 9, b'y']))),
            ("octets of 0xff".into(), plain(vec![0xff; 30])),
            ("a static :status".into(), plain(vec![0x88])),
            ("a block without :status".into(), plain(wire::literal_block(&[("x", "y")]))),
            ("a block of 70 KB".into(), plain(behind(&wire::literal_block(&[("x-large", &"x".repeat(9_000))])))),
        ];
        let (words, act) = all[self.dice.below(all.len())].clone();
        step(words, act)
    }

    /// A response whose head is faulty.
    fn faulty_head(&mut self) -> Vec<FrameMove> {
        let status = if self.one_in(3) { self.pick(ODD_STATUS) } else { self.pick(STATUS) };
        let mut fields: ScriptFields = vec![(":status", status.into())];
        let (name, value) = self.pick(FAULTY);
        fields.push((name, value.into()));
        match self.dice.below(8) {
            0 => drop(fields.remove(0)),
            1 => fields.swap(0, 1),
            2 => fields.push((":status", "200".into())),
            _ => {}
        }
        if self.one_in(4) {
            let (name, value) = self.pick(FAULTY);
            fields.push((name, value.into()));
        }
        let in_trailers = self.one_in(4);
        if in_trailers {
            let head = vec![(":status", "200".to_string())];
            let mut steps = vec![self.head(&head, false)];
            steps.extend(self.data(5, false));
            fields.remove(0);
            let end = !self.one_in(5);
            steps.push(self.head(&fields, end));
            return steps;
        }
        let mut steps = vec![self.head(&fields, false)];
        steps.extend(self.data(5, true));
        steps
    }

    /// Frames that open a connection.
    pub fn opening(&mut self) -> Vec<FrameMove> {
        let settings = |payload: &[u8]| frame(wire::SETTINGS, 0, On::Connection, payload);
        let all: Vec<(&str, Move)> = vec![
            ("SETTINGS: no table", settings(&[0, 1, 0, 0, 0, 0])),
            ("SETTINGS: window 10", settings(&[0, 4, 0, 0, 0, 10])),
            ("SETTINGS: window 0", settings(&[0, 4, 0, 0, 0, 0])),
            ("SETTINGS: one stream", settings(&[0, 3, 0, 0, 0, 1])),
            ("SETTINGS: no streams", settings(&[0, 3, 0, 0, 0, 0])),
            ("SETTINGS: lists of 1 octet", settings(&[0, 6, 0, 0, 0, 1])),
            ("no SETTINGS", Move::Raw(Vec::new())),
            ("PING before SETTINGS", frame(wire::PING, 0, On::Connection, b"12345678")),
            ("GOAWAY before SETTINGS", Move::Goaway { last: On::Connection, code: 0 }),
            ("the end of the connection", Move::Close),
            ("two SETTINGS", Move::Raw([wire::settings_frame(&[]), wire::settings_frame(&[])].concat())),
            ("SETTINGS with ACK alone", frame(wire::SETTINGS, wire::ACK, On::Connection, b"")),
        ];
        if self.one_in(6) {
            let (words, act) = all[self.dice.below(all.len())].clone();
            return vec![step(words, act)];
        }
        vec![
            step("SETTINGS", settings(&[])),
            step("SETTINGS with ACK", frame(wire::SETTINGS, wire::ACK, On::Connection, b"")),
        ]
    }

    pub fn script(&mut self, good: bool) -> Vec<FrameMove> {
        let mut steps = if !good && self.one_in(3) { self.faulty_head() } else { self.response() };
        if self.one_in(3) {
            let at = self.dice.below(steps.len() + 1);
            let harmless = self.harmless();
            steps.insert(at, harmless);
        }
        if self.one_in(4) {
            steps.insert(0, step("the end of the request", Move::Await));
        }
        if !good {
            let at = self.dice.below(steps.len() + 1);
            let fault = self.fault();
            steps.insert(at, fault);
            if self.one_in(3) {
                let at = self.dice.below(steps.len() + 1);
                steps.insert(at, step("a pause", Move::Pause));
            }
            if self.one_in(8) {
                let most = steps.len();
                steps.truncate(1 + self.dice.below(most));
                steps.push(step("the end of the connection", Move::Close));
            }
        }
        steps
    }
}
