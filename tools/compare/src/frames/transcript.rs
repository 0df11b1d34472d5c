//! Frames that a server or a client sends, in a form that can be compared: in order per stream, header blocks decoded, data joined.

use super::wire;
use http_types::ListLimits;
use std::collections::BTreeMap;
use wire_h2::hpack::Decoder;

/// Octets of data that are shown; longer data shows as its length and hash.
const SHOWN_MAX: usize = 400;
const LIMITS: ListLimits = ListLimits { bytes_max: 1 << 20, fields_max: 10_000, field_max: 1 << 20 };

#[derive(Default)]
struct TranscriptStream {
    lines: Vec<String>,
    data: Vec<u8>,
    has_data: bool,
    ended: bool,
}

impl TranscriptStream {
    fn end_data(&mut self) {
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) && !data.is_empty() {
            self.lines.push(format!("data {}", shown_bytes(&data)));
        }
    }
}

/// One direction of a connection.
pub struct Transcript {
    decoder: Decoder,
    pending: Vec<u8>,
    /// Octets of a preface that are still expected.
    preface: usize,
    connection: Vec<String>,
    streams: BTreeMap<u32, TranscriptStream>,
    block: Option<(u32, u8, Vec<u8>)>,
    acks: usize,
    /// Settings are shown; those of clients announce their own limits.
    shows_settings: bool,
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3))
}

pub fn shown_bytes(bytes: &[u8]) -> String {
    if bytes.len() > SHOWN_MAX {
        return format!("{} octets, hash {:x}", bytes.len(), hash(bytes));
    }
    bytes.escape_ascii().to_string()
}

fn read_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().copied().map_or(0, u32::from_be_bytes)
}

impl Transcript {
    pub fn of_server() -> Transcript {
        Transcript::new(0)
    }
    pub fn of_client() -> Transcript {
        Transcript::new(wire::PREFACE.len())
    }
    fn new(preface: usize) -> Transcript {
        Transcript {
            decoder: Decoder::default(),
            pending: Vec::new(),
            preface,
            connection: Vec::new(),
            streams: BTreeMap::new(),
            block: None,
            acks: 0,
            shows_settings: preface == 0,
        }
    }

    /// Takes received bytes; returns the frames that are complete, as kind, flags, stream and payload.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
        self.pending.extend_from_slice(bytes);
        if self.preface > 0 {
            if self.pending.len() < self.preface {
                return Vec::new();
            }
            let preface: Vec<u8> = self.pending.drain(..std::mem::take(&mut self.preface)).collect();
            if preface != wire::PREFACE {
                self.connection.push(format!("preface {}", preface.escape_ascii()));
            }
        }
        let mut frames = Vec::new();
        while let [a, b, c, kind, flags, s, t, u, v, rest @ ..] = self.pending.as_slice() {
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            let Some(payload) = rest.get(..length) else { break };
            let (kind, flags, stream) = (*kind, *flags, u32::from_be_bytes([*s, *t, *u, *v]));
            let payload = payload.to_vec();
            self.pending.drain(..wire::HEADER + length);
            self.note(kind, flags, stream, &payload);
            frames.push((kind, flags, stream, payload));
        }
        frames
    }

    fn note(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        match kind {
            wire::DATA => {
                let stream = self.streams.entry(id).or_default();
                stream.has_data = true;
                stream.data.extend_from_slice(payload);
                if flags & wire::END_STREAM != 0 {
                    stream.end_data();
                    stream.lines.push("end".into());
                    stream.ended = true;
                }
            }
            wire::HEADERS | wire::CONTINUATION => {
                let part = if flags & wire::WITH_PRIORITY != 0 && kind == wire::HEADERS {
                    payload.get(5..).unwrap_or_default()
                } else {
                    payload
                };
                let (_, first, mut block) = self.block.take().unwrap_or((id, flags, Vec::new()));
                block.extend_from_slice(part);
                if flags & wire::END_HEADERS == 0 {
                    self.block = Some((id, first, block));
                    return;
                }
                let text = match self.decoder.decode(&block, &LIMITS) {
                    Ok(list) => {
                        list.iter().map(|(name, value)| field(name, value)).collect::<Vec<_>>().join("\n      ")
                    }
                    Err(broken) => format!("a block that cannot be decoded: {broken:?}"),
                };
                let stream = self.streams.entry(id).or_default();
                stream.end_data();
                stream.lines.push(format!("head {text}"));
                if first & wire::END_STREAM != 0 {
                    stream.lines.push("end".into());
                    stream.ended = true;
                }
            }
            wire::RST_STREAM => {
                let stream = self.streams.entry(id).or_default();
                stream.end_data();
                stream.lines.push(format!("reset {}", read_u32(payload)));
                stream.ended = true;
            }
            wire::SETTINGS if !self.shows_settings => {}
            wire::SETTINGS if flags & wire::ACK != 0 => self.acks += 1,
            wire::SETTINGS => self.connection.push(format!("settings {}", setting_pairs(payload))),
            wire::PING => self.connection.push(format!("ping {flags} {}", payload.escape_ascii())),
            wire::GOAWAY => {
                let code = read_u32(payload.get(4..).unwrap_or_default());
                self.connection.push(format!("goaway {} code {code}", read_u32(payload)));
            }
            // How far a window opens, and when, is a matter of buffers.
            wire::WINDOW_UPDATE => {}
            _ => self.connection.push(format!("frame {kind} {flags} of {id}: {}", payload.escape_ascii())),
        }
    }

    /// Tells whether a stream has ended.
    pub fn has_ended(&self, id: u32) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.ended)
    }

    /// Adds a line about the connection.
    pub fn say(&mut self, words: &str) {
        self.connection.push(words.into());
    }

    /// Returns what a client asked on a stream.
    pub fn request(&mut self, id: u32) -> String {
        let Some(stream) = self.streams.get_mut(&id) else { return String::new() };
        stream.end_data();
        let is_whole = stream.lines.iter().any(|line| line == "end");
        let lines: Vec<&str> = stream
            .lines
            .iter()
            .map(String::as_str)
            .filter(|line| !line.starts_with("reset "))
            // How much of a body goes before a fault is a matter of buffers.
            .map(|line| if line.starts_with("data ") && !is_whole { "a part of the body" } else { line })
            .collect();
        lines.join("\n    ")
    }

    pub fn text(&mut self) -> String {
        let mut out = String::new();
        for line in &self.connection {
            out += &format!("    {line}\n");
        }
        if self.acks > 0 {
            out += &format!("    {} settings acknowledged\n", self.acks);
        }
        if self.pending.starts_with(b"HTTP/1") {
            let answer = crate::normal::normal_answer(&self.pending, &|text| text.to_string());
            out += &format!("    {}\n", shown_bytes(&answer));
        } else if !self.pending.is_empty() || self.block.is_some() {
            out += &format!("    a part of a frame: {}\n", shown_bytes(&self.pending));
        }
        for (id, stream) in &mut self.streams {
            stream.end_data();
            out += &format!("  stream {id}\n");
            for line in &stream.lines {
                out += &format!("    {line}\n");
            }
        }
        out
    }
}

/// Returns the settings but those that announce Tidegate's own limits.
fn setting_pairs(payload: &[u8]) -> String {
    const MAX_FRAME_SIZE: u16 = 5;
    const CONNECT_PROTOCOL: u16 = 8;
    let mut pairs: Vec<String> = Vec::new();
    for pair in payload.chunks(6) {
        let name = pair.first_chunk().copied().map_or(0, u16::from_be_bytes);
        if !matches!(name, MAX_FRAME_SIZE | CONNECT_PROTOCOL) {
            pairs.push(format!("{name}={}", read_u32(pair.get(2..).unwrap_or_default())));
        }
    }
    pairs.sort();
    pairs.join(" ")
}

/// Returns a field; dates differ from run to run.
fn field(name: &[u8], value: &[u8]) -> String {
    let value = match name {
        b"date" => "now".into(),
        b"expires" => "later".into(),
        b"server" if value.starts_with(b"nginx/") => "nginx".into(),
        _ => shown_bytes(value),
    };
    format!("{}: {value}", name.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::wire::{END_HEADERS, END_STREAM, Shape, headers_frames, literal_block, write_frame};

    #[test]
    fn data_is_joined_and_streams_are_apart() {
        let of = |bytes: &[u8]| {
            let mut transcript = Transcript::of_server();
            transcript.feed(bytes);
            transcript.text()
        };
        let head =
            |id: u32| headers_frames(id, 0, &literal_block(&[(":status", "200"), ("date", "x")]), &Shape::default());
        let one = [
            head(1),
            head(3),
            write_frame(wire::DATA, 0, 3, b"a"),
            write_frame(wire::DATA, 0, 1, b"b"),
            write_frame(wire::DATA, END_STREAM, 3, b"c"),
        ]
        .concat();
        let other = [
            head(3),
            write_frame(wire::DATA, 0, 3, b"ac"),
            head(1),
            write_frame(wire::DATA, END_STREAM, 3, b""),
            write_frame(wire::DATA, 0, 1, b"b"),
        ]
        .concat();
        assert_eq!(of(&one), of(&other));
        assert!(of(&one).contains("head :status: 200\n      date: now\n    data b\n  stream 3"), "{}", of(&one));
        let cut = [write_frame(wire::HEADERS, 0, 1, &[0x88]), write_frame(wire::CONTINUATION, END_HEADERS, 1, &[0x89])]
            .concat();
        assert!(of(&cut).contains("head :status: 200\n      :status: 204"));
        assert_ne!(of(&cut), of(&cut[..cut.len() - 1]));
    }
}
