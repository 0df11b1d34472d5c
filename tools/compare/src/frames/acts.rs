//! Sessions of clients: acts that send good frames, and one or two that send faulty ones (`faults.rs`).

use super::faults;
use super::wire::{self, Coding, Shape};
use crate::Dice;

/// Frames that are sent together.
#[derive(Clone, Debug)]
pub struct Act {
    pub words: String,
    pub bytes: Vec<u8>,
    /// Streams whose end is awaited; none: until nothing comes.
    pub awaits: Vec<u32>,
    /// Sent together with the next act.
    pub joined: bool,
}

#[derive(Clone, Debug)]
pub struct FrameSession {
    /// Last number of the client's address.
    pub from: u8,
    pub acts: Vec<Act>,
    /// Cuts writes into parts, at places by this seed.
    pub cut: Option<u64>,
}

impl std::fmt::Display for FrameSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for act in &self.acts {
            let joined = if act.joined { " (joined)" } else { "" };
            write!(f, "\n    > {}{joined}", act.words)?;
        }
        if self.cut.is_some() {
            write!(f, "\n    > in parts")?;
        }
        Ok(())
    }
}

/// A stream that the client has opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenedStream {
    pub id: u32,
    /// The client has sent its end.
    pub ended: bool,
}

/// Generates acts, with the state that they leave behind.
pub struct Maker<'a> {
    pub dice: &'a mut Dice,
    pub next: u32,
    pub opened: Vec<OpenedStream>,
}

pub type FrameFields = Vec<(Vec<u8>, Vec<u8>)>;

pub const PATHS: &[&str] = &[
    "/small.txt",
    "/page.txt",
    "/large.txt",
    "/empty.txt",
    "/missing",
    "/return",
    "/redirect",
    "/status/204",
    "/closed",
    "/p/echo?a=b",
    "/p/echo",
    "/p/large",
    "/p/closed",
    "/p/short",
    "/limited/p",
    "/a%20b/../small.txt?x",
    "/folder",
];

const METHODS: &[&str] =
    &["GET", "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "DELETE", "PUT", "TRACE", "CONNECT", "FOO", "get"];

const EXTRA: &[(&str, &str)] = &[
    ("accept", "*/*"),
    ("user-agent", "curl"),
    ("x-own", "own value"),
    ("cookie", "a=b"),
    ("cookie", "c=d"),
    ("te", "trailers"),
    ("range", "bytes=1-4"),
    ("range", "bytes=9999999-"),
    ("if-none-match", "*"),
    ("if-modified-since", "Tue, 14 Nov 2023 22:13:20 GMT"),
    ("if-match", "\"x\""),
    ("expect", "100-continue"),
    ("accept-encoding", "gzip"),
    ("priority", "u=1, i"),
    ("x_under", "u"),
    ("x.dot", "d"),
    ("x-empty", ""),
    ("x-space", " a b "),
    ("x-utf", "\u{e4}"),
    ("host", "localhost"),
];

pub fn request_fields(method: &str, path: &str) -> FrameFields {
    [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        .map(|(name, value)| (name.into(), value.into()))
        .into()
}

pub fn push_field(fields: &mut FrameFields, name: &str, value: &str) {
    fields.push((name.into(), value.into()));
}

/// Returns the path of a request, and its method.
fn shown(fields: &FrameFields) -> String {
    let one = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let value =
            if value.len() > 60 { format!("({} octets)", value.len()) } else { value.escape_ascii().to_string() };
        format!("{}={value}", name.escape_ascii())
    };
    fields.iter().map(one).collect::<Vec<_>>().join(" ")
}

impl Maker<'_> {
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.dice.below(all.len())]
    }
    pub fn one_in(&mut self, n: usize) -> bool {
        self.dice.below(n) == 0
    }
    /// Returns a new stream.
    pub fn open(&mut self, ended: bool) -> u32 {
        let id = self.next;
        self.next += 2;
        self.opened.push(OpenedStream { id, ended });
        id
    }
    pub fn end(&mut self, id: u32) {
        self.opened.iter_mut().filter(|opened| opened.id == id).for_each(|opened| opened.ended = true);
    }
    pub fn act(&mut self, words: impl Into<String>, bytes: Vec<u8>, awaits: Vec<u32>) -> Act {
        let joined = self.one_in(4);
        Act { words: words.into(), bytes, awaits, joined }
    }
    pub fn block(&mut self, fields: &FrameFields) -> Vec<u8> {
        let mut out = Vec::new();
        let all_plain = self.one_in(3);
        for (name, value) in fields {
            let coding = match self.dice.below(5) {
                _ if all_plain => Coding::Plain,
                0 | 1 => Coding::Huffman,
                2 => Coding::Kept,
                3 => Coding::NeverKept,
                _ => Coding::Plain,
            };
            wire::field(name, value, coding, &mut out);
        }
        out
    }
    pub fn shape(&mut self, block: &[u8]) -> Shape {
        let mut shape = Shape::default();
        if self.one_in(4) {
            shape.padding = Some(self.pick(&[0, 1, 7, 255]));
        }
        if self.one_in(5) {
            shape.priority = Some((self.pick(&[0, 1, 3, 99]), self.pick(&[0, 15, 255])));
        }
        if self.one_in(4) {
            // nginx needs a few octets in each part.
            let parts = 1 + self.dice.below(3);
            shape.cuts = (0..parts).map(|_| 1 + self.dice.below(block.len().max(2) - 1)).collect();
            if self.one_in(4) {
                shape.cuts.push(0);
            }
        }
        shape
    }
    /// Returns HEADERS with the fields, in a random shape.
    pub fn headers(&mut self, id: u32, fields: &FrameFields, end: bool) -> Vec<u8> {
        let block = self.block(fields);
        let shape = self.shape(&block);
        wire::headers_frames(id, if end { wire::END_STREAM } else { 0 }, &block, &shape)
    }
    /// Returns DATA frames.
    pub fn data(&mut self, id: u32, mut body: &[u8], end: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let separately = self.one_in(4);
        while !body.is_empty() {
            let most = self.pick(&[1, 100, 5_000, 16_000]);
            let (part, rest) = body.split_at(most.min(body.len()));
            body = rest;
            let end = if end && rest.is_empty() && !separately { wire::END_STREAM } else { 0 };
            if self.one_in(5) {
                let padding = self.pick(&[0, 1, 100, 255]);
                out.extend(wire::write_frame(wire::DATA, end | wire::PADDED, id, &wire::padded(part, padding)));
            } else {
                out.extend(wire::write_frame(wire::DATA, end, id, part));
            }
            if part.len() == 1 && out.len() > 1_000 {
                out.extend(wire::write_frame(wire::DATA, end, id, body));
                break;
            }
        }
        if end && (separately || out.is_empty()) {
            out.extend(wire::write_frame(wire::DATA, wire::END_STREAM, id, b""));
        }
        out
    }

    fn get(&mut self) -> Act {
        let (method, path) = (self.pick(METHODS), self.pick(PATHS));
        let mut fields = request_fields(method, path);
        let more = self.dice.below(4);
        for _ in 0..more {
            let (name, value) = self.pick(EXTRA);
            push_field(&mut fields, name, value);
        }
        let id = self.open(true);
        let bytes = self.headers(id, &fields, true);
        self.act(format!("{id}: {}", shown(&fields)), bytes, vec![id])
    }

    pub fn body(&mut self) -> Vec<u8> {
        let length = self.pick(&[0, 1, 5, 5, 1_000, 1_001, 9_000, 20_000, 60_000]);
        b"0123456789".iter().cycle().take(length).copied().collect()
    }

    fn post(&mut self) -> Act {
        let path = self.pick(&["/p/echo", "/p/echo", "/limited/p", "/return", "/small.txt", "/closed", "/p/closed"]);
        let method = self.pick(&["POST", "POST", "PUT", "GET"]);
        let mut fields = request_fields(method, path);
        let body = self.body();
        if !self.one_in(3) {
            push_field(&mut fields, "content-length", &body.len().to_string());
        }
        let id = self.open(true);
        let mut bytes = self.headers(id, &fields, false);
        bytes.extend(self.data(id, &body, true));
        self.act(format!("{id}: {} and {} octets", shown(&fields), body.len()), bytes, vec![id])
    }

    /// A request whose body stays open.
    fn begin(&mut self) -> Act {
        let path = self.pick(&["/p/echo", "/return", "/small.txt", "/limited/p"]);
        let mut fields = request_fields("POST", path);
        if self.one_in(3) {
            push_field(&mut fields, "content-length", "100");
        }
        let id = self.open(false);
        let mut bytes = self.headers(id, &fields, false);
        let sent = self.pick(&[0usize, 0, 10]);
        if sent > 0 {
            bytes.extend(wire::write_frame(wire::DATA, 0, id, &vec![b'x'; sent]));
        }
        self.act(format!("{id}: {} and {sent} octets, without an end", shown(&fields)), bytes, Vec::new())
    }

    /// The end of an open body.
    fn continued(&mut self) -> Option<Act> {
        let id = self.opened.iter().rev().find(|opened| !opened.ended)?.id;
        self.end(id);
        let body = vec![b'y'; self.pick(&[0, 10, 90, 100])];
        let bytes = self.data(id, &body, true);
        Some(self.act(format!("{id}: the rest of the body, {} octets", body.len()), bytes, vec![id]))
    }

    fn connection(&mut self) -> Act {
        let id = self.next.saturating_sub(2).max(1);
        let (words, bytes): (&str, Vec<u8>) = match self.dice.below(13) {
            0 => ("PING", wire::write_frame(wire::PING, 0, 0, b"12345678")),
            1 => ("PING with odd flags", wire::write_frame(wire::PING, 0xfe, 0, b"12345678")),
            2 => ("SETTINGS: nothing", wire::settings_frame(&[])),
            3 => ("SETTINGS: table 0", wire::settings_frame(&[(wire::TABLE_SIZE, 0)])),
            4 => {
                ("SETTINGS: table 0, then 100", wire::settings_frame(&[(wire::TABLE_SIZE, 0), (wire::TABLE_SIZE, 100)]))
            }
            5 => ("SETTINGS: unknown", wire::settings_frame(&[(0xfafa, 7), (6, 100_000), (wire::MAX_STREAMS, 0)])),
            6 => ("SETTINGS: window 1 MB", wire::settings_frame(&[(wire::INITIAL_WINDOW, 1 << 20)])),
            7 => (
                "SETTINGS: frames of 1 MB",
                wire::settings_frame(&[(wire::MAX_FRAME, 1 << 20), (wire::ENABLE_PUSH, 0)]),
            ),
            8 => ("a window of 1 MB more for the connection", wire::number_frame(wire::WINDOW_UPDATE, 0, 1 << 20)),
            9 => ("a window of 1 MB more for the last stream", wire::number_frame(wire::WINDOW_UPDATE, id, 1 << 20)),
            10 => ("PRIORITY", wire::write_frame(wire::PRIORITY, 0, self.next, &[0, 0, 0, 0, 100])),
            11 => ("a frame of an unknown type", wire::write_frame(0xfa, 0xff, self.pick(&[0, 1, 9]), b"unknown")),
            _ => ("PRIORITY_UPDATE", wire::write_frame(wire::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 9, b'u', b'=', b'0'])),
        };
        self.act(words, bytes, Vec::new())
    }

    fn good(&mut self) -> Act {
        match self.dice.below(10) {
            0..=3 => self.get(),
            4 | 5 => self.post(),
            6 => self.begin(),
            7 => self.continued().unwrap_or_else(|| self.get()),
            8 => self.connection(),
            _ => match self.opened.iter().rev().find(|opened| !opened.ended).map(|opened| opened.id) {
                Some(id) => {
                    self.end(id);
                    let code = self.pick(&[0, 2, 8, 5]);
                    self.act(
                        format!("{id}: RST_STREAM {code}"),
                        wire::number_frame(wire::RST_STREAM, id, code),
                        Vec::new(),
                    )
                }
                None => self.get(),
            },
        }
    }
}

/// Returns a random session of the client with this address.
pub fn draw_session(dice: &mut Dice, from: u8) -> FrameSession {
    const MOST: usize = 5;
    let mut maker = Maker { dice, next: 1, opened: Vec::new() };
    let mut acts = Vec::new();
    if maker.one_in(25) {
        acts.push(faults::preface_fault(&mut maker));
    } else {
        let first: &[(u16, u32)] = maker.pick(&[
            &[][..],
            &[(wire::INITIAL_WINDOW, 1 << 20)],
            &[(wire::INITIAL_WINDOW, 0)],
            &[(wire::INITIAL_WINDOW, 100)],
        ]);
        let mut bytes = wire::PREFACE.to_vec();
        bytes.extend(wire::settings_frame(first));
        if maker.one_in(2) {
            bytes.extend(wire::number_frame(wire::WINDOW_UPDATE, 0, 1 << 20));
        }
        let joined = maker.one_in(2);
        acts.push(Act { words: format!("preface, SETTINGS {first:?}"), bytes, awaits: Vec::new(), joined });
    }
    if !maker.one_in(6) {
        let joined = maker.one_in(2);
        acts.push(Act {
            words: "SETTINGS with ACK".into(),
            bytes: wire::write_frame(wire::SETTINGS, wire::ACK, 0, b""),
            awaits: Vec::new(),
            joined,
        });
    }
    let good = 1 + maker.dice.below(MOST);
    let faulty = maker.dice.below(3);
    let mut kinds: Vec<bool> = (0..good + faulty).map(|index| index < faulty).collect();
    for index in (1..kinds.len()).rev() {
        let other = maker.dice.below(index + 1);
        kinds.swap(index, other);
    }
    for is_faulty in kinds {
        let act = if is_faulty { faults::draw_fault(&mut maker) } else { maker.good() };
        acts.push(act);
    }
    if let Some(last) = acts.last_mut() {
        last.joined = false;
    }
    let cut = maker.one_in(4).then(|| maker.dice.below(usize::MAX) as u64);
    FrameSession { from, acts, cut }
}
