//! Frames (RFC 9113, 4 and 6).

/// Octets of a frame's head.
pub const HEADER: usize = 9;
/// Initial, and least, SETTINGS_MAX_FRAME_SIZE.
pub const FRAME_SIZE: usize = 16_384;
/// Largest SETTINGS_MAX_FRAME_SIZE.
pub const FRAME_SIZE_MAX: u32 = (1 << 24) - 1;
/// Largest window.
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

/// DATA.
pub const DATA: u8 = 0;
/// HEADERS.
pub const HEADERS: u8 = 1;
/// PRIORITY.
pub const PRIORITY: u8 = 2;
/// RST_STREAM.
pub const RST_STREAM: u8 = 3;
/// SETTINGS.
pub const SETTINGS: u8 = 4;
/// PUSH_PROMISE.
pub const PUSH_PROMISE: u8 = 5;
/// PING.
pub const PING: u8 = 6;
/// GOAWAY.
pub const GOAWAY: u8 = 7;
/// WINDOW_UPDATE.
pub const WINDOW_UPDATE: u8 = 8;
/// CONTINUATION.
pub const CONTINUATION: u8 = 9;
/// RFC 9218, 7.1
pub const PRIORITY_UPDATE: u8 = 16;

/// Flag of DATA and HEADERS: the sender's side of the stream ends.
pub const END_STREAM: u8 = 1;
/// Flag of SETTINGS and PING: an acknowledgement.
pub const ACK: u8 = 1;
/// Flag of HEADERS and CONTINUATION: the block ends.
pub const END_HEADERS: u8 = 4;
/// Flag of DATA and HEADERS: padding follows the content.
pub const PADDED: u8 = 8;
/// Flag of HEADERS: dependency and weight precede the block.
pub const WITH_PRIORITY: u8 = 32;

/// Octets of the encoder's table that the sender can decode.
pub const SETTINGS_HEADER_TABLE_SIZE: u16 = 1;
/// 1 permits the server to push.
pub const SETTINGS_ENABLE_PUSH: u16 = 2;
/// Streams that the sender accepts at a time.
pub const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 3;
/// Window of new streams.
pub const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;
/// Largest payload that the sender accepts.
pub const SETTINGS_MAX_FRAME_SIZE: u16 = 5;
/// Octets of a header list that the sender accepts.
pub const SETTINGS_MAX_HEADER_LIST_SIZE: u16 = 6;
/// RFC 8441, 3
pub const SETTINGS_ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// RFC 9218, 2.1
pub const SETTINGS_NO_RFC7540_PRIORITIES: u16 = 9;

/// RFC 9113, 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// NO_ERROR.
    NoError = 0,
    /// PROTOCOL_ERROR.
    Protocol = 1,
    /// INTERNAL_ERROR.
    Internal = 2,
    /// FLOW_CONTROL_ERROR.
    FlowControl = 3,
    /// STREAM_CLOSED.
    StreamClosed = 5,
    /// FRAME_SIZE_ERROR.
    FrameSize = 6,
    /// REFUSED_STREAM: the request was not processed.
    RefusedStream = 7,
    /// CANCEL.
    Cancel = 8,
    /// COMPRESSION_ERROR.
    Compression = 9,
    /// CONNECT_ERROR.
    Connect = 10,
    /// ENHANCE_YOUR_CALM: the peer causes too much work.
    EnhanceYourCalm = 11,
}

/// Head of a frame (RFC 9113, 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Octets of the payload.
    pub length: usize,
    /// Type.
    pub kind: u8,
    /// Flags, whose meaning depends on the type.
    pub flags: u8,
    /// Stream; 0: the connection.
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
    /// Tells whether a flag is set.
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame's head; the payload of `length` octets must follow.
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

/// Appends a frame with a number as its payload: RST_STREAM, WINDOW_UPDATE.
pub fn put_number(kind: u8, stream: u32, number: u32, out: &mut Vec<u8>) {
    put_head(4, kind, 0, stream, out);
    out.extend_from_slice(&number.to_be_bytes());
}

/// Reads the number at the start of a payload; `None` if it is too short.
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
