//! Frames (RFC 9113, 4 and 6).

pub const HEADER: usize = 9;
/// Initial, and least, SETTINGS_MAX_FRAME_SIZE.
pub const FRAME_SIZE: usize = 16_384;
pub const FRAME_SIZE_MAX: u32 = (1 << 24) - 1;
pub const WINDOW_MAX: i64 = (1 << 31) - 1;
/// Sent octets that permit the peer one further frame without content. Peers open windows after each frame of a body
/// (Go's net/http2) or after each read.
pub const OCTETS_PER_IDLE_FRAME: u64 = 256;
/// Frames without content that a sent piece of a body permits the peer: WINDOW_UPDATE for the stream and the connection
/// (Dart's http2), PING to measure the round trip (gRPC). A piece that a window cut short permits none: otherwise a peer
/// that opens windows octet by octet would permit itself further frames.
pub const IDLE_FRAMES_PER_PIECE: u64 = 10;
/// Initial window of a connection and of each stream.
pub const WINDOW: i64 = 65_535;

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
/// RFC 9218, 7.1
pub const PRIORITY_UPDATE: u8 = 16;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const WITH_PRIORITY: u8 = 32;

pub const SETTINGS_HEADER_TABLE_SIZE: u16 = 1;
pub const SETTINGS_ENABLE_PUSH: u16 = 2;
pub const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 3;
pub const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;
pub const SETTINGS_MAX_FRAME_SIZE: u16 = 5;
pub const SETTINGS_MAX_HEADER_LIST_SIZE: u16 = 6;
/// RFC 8441, 3
pub const SETTINGS_ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// RFC 9218, 2.1
pub const SETTINGS_NO_RFC7540_PRIORITIES: u16 = 9;

/// RFC 9113, 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    NoError = 0,
    Protocol = 1,
    Internal = 2,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    RefusedStream = 7,
    Cancel = 8,
    Compression = 9,
    Connect = 10,
    EnhanceYourCalm = 11,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub length: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl Head {
    /// Returns `None` for an incomplete head.
    pub fn read(bytes: &[u8]) -> Option<Head> {
        let [a, b, c, kind, flags, s, t, u, v, ..] = *bytes else { return None };
        Some(Head {
            length: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream: u32::from_be_bytes([s & 0x7f, t, u, v]),
        })
    }
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

pub fn put_head(length: usize, kind: u8, flags: u8, stream: u32, out: &mut Vec<u8>) {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [s, t, u, v] = stream.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags, s, t, u, v]);
}

/// Removes the first `start` octets, which have been written, once they are at least half of the output; returns their
/// number. A socket that never takes everything would let the output grow with all that was ever sent.
pub fn remove_sent(out: &mut Vec<u8>, start: &mut usize) -> usize {
    if *start < out.len() - (*start).min(out.len()) {
        return 0;
    }
    let removed = std::mem::take(start).min(out.len());
    out.drain(..removed);
    removed
}

pub fn put_number(kind: u8, stream: u32, number: u32, out: &mut Vec<u8>) {
    put_head(4, kind, 0, stream, out);
    out.extend_from_slice(&number.to_be_bytes());
}

pub fn read_number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().copied().map(u32::from_be_bytes)
}

/// Returns the payload without padding; `None` if there is more padding than payload.
pub fn strip_padding(head: Head, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(PADDED) {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}
