//! Frames and header blocks as bytes, faulty ones included: nothing is checked.

use http_types::huffman;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const HEADER: usize = 9;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const PRIORITY_UPDATE: u8 = 16;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const WITH_PRIORITY: u8 = 32;

pub const TABLE_SIZE: u16 = 1;
pub const ENABLE_PUSH: u16 = 2;
pub const MAX_STREAMS: u16 = 3;
pub const INITIAL_WINDOW: u16 = 4;
pub const MAX_FRAME: u16 = 5;

/// Returns a frame whose header states `length`.
pub fn stated_frame(length: usize, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [.., a, b, c] = length.to_be_bytes();
    let [s, t, u, v] = stream.to_be_bytes();
    [&[a, b, c, kind, flags, s, t, u, v], payload].concat()
}

pub fn write_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    stated_frame(payload.len(), kind, flags, stream, payload)
}

pub fn number_frame(kind: u8, stream: u32, value: u32) -> Vec<u8> {
    write_frame(kind, 0, stream, &value.to_be_bytes())
}

pub fn settings_frame(pairs: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        pairs.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    write_frame(SETTINGS, 0, 0, &payload)
}

pub fn goaway(last: u32, code: u32, words: &[u8]) -> Vec<u8> {
    write_frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &code.to_be_bytes(), words].concat())
}

/// Returns a payload between the length of padding and the padding.
pub fn padded(payload: &[u8], padding: u8) -> Vec<u8> {
    [&[padding], payload, &vec![0; usize::from(padding)]].concat()
}

/// Returns a header block in a frame, padded or with a priority, and its rest in CONTINUATION frames from `cuts` on.
pub fn headers_frames(stream: u32, flags: u8, block: &[u8], shape: &Shape) -> Vec<u8> {
    let mut parts = Vec::new();
    let mut rest = block;
    for cut in &shape.cuts {
        let (now, later) = rest.split_at((*cut).min(rest.len()));
        parts.push(now);
        rest = later;
    }
    parts.push(rest);
    let mut out = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let last = if index + 1 == parts.len() { END_HEADERS } else { 0 };
        if index > 0 {
            out.extend(write_frame(CONTINUATION, last, stream, part));
            continue;
        }
        let mut payload = part.to_vec();
        let mut flags = flags | last;
        if let Some((on, weight)) = shape.priority {
            payload.splice(..0, [&on.to_be_bytes()[..], &[weight]].concat());
            flags |= WITH_PRIORITY;
        }
        if let Some(padding) = shape.padding {
            payload = padded(&payload, padding);
            flags |= PADDED;
        }
        out.extend(write_frame(HEADERS, flags, stream, &payload));
    }
    out
}

/// Shape of a header block's frames.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    pub padding: Option<u8>,
    /// Stream that this one depends on, and weight.
    pub priority: Option<(u32, u8)>,
    /// Lengths of the parts before the last.
    pub cuts: Vec<usize>,
}

/// Representation of a field (RFC 7541, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Plain,
    Huffman,
    /// A new entry of the table.
    Kept,
    NeverKept,
}

pub fn integer(mut value: usize, prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    let mask = (1usize << prefix_bits) - 1;
    if value < mask {
        out.push(first | value as u8);
        return;
    }
    out.push(first | mask as u8);
    value -= mask;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn string(text: &[u8], coded: bool, out: &mut Vec<u8>) {
    if coded {
        integer(huffman::encoded_len(text), 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        integer(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

/// Appends a field with a literal name.
pub fn field(name: &[u8], value: &[u8], coding: Coding, out: &mut Vec<u8>) {
    out.push(match coding {
        Coding::Plain | Coding::Huffman => 0,
        Coding::Kept => 0x40,
        Coding::NeverKept => 0x10,
    });
    string(name, coding == Coding::Huffman, out);
    string(value, coding == Coding::Huffman, out);
}

/// Returns a block of fields with literal names.
pub fn literal_block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        field(name.as_bytes(), value.as_bytes(), Coding::Plain, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_padded_and_decoded() {
        let mut block = literal_block(&[(":status", "200")]);
        field(b"a", b"hello", Coding::Huffman, &mut block);
        let shape = Shape { padding: Some(3), priority: Some((0, 9)), cuts: vec![2, 4] };
        let bytes = headers_frames(5, END_STREAM, &block, &shape);
        assert_eq!(bytes[..HEADER], [0, 0, 2 + 1 + 3 + 5, HEADERS, END_STREAM | PADDED | WITH_PRIORITY, 0, 0, 0, 5]);
        let kinds: Vec<u8> = [bytes[3], bytes[20 + 3], bytes[20 + 13 + 3]].into();
        assert_eq!(kinds, [HEADERS, CONTINUATION, CONTINUATION]);
        let limits = http_types::ListLimits { bytes_max: 100, fields_max: 10, field_max: 100 };
        let list = wire_h2::hpack::Decoder::default().decode(&block, &limits).expect("a block");
        assert_eq!(list.iter().last(), Some((&b"a"[..], &b"hello"[..])));
    }
}
