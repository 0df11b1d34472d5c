//! Frames, stream types and settings (RFC 9114, 6.2 and 7; RFC 9204, 4.2).

use std::fmt;

/// DATA.
pub const DATA: u64 = 0x0;
/// HEADERS.
pub const HEADERS: u64 = 0x1;
/// CANCEL_PUSH.
pub const CANCEL_PUSH: u64 = 0x3;
/// SETTINGS.
pub const SETTINGS: u64 = 0x4;
/// PUSH_PROMISE.
pub const PUSH_PROMISE: u64 = 0x5;
/// GOAWAY.
pub const GOAWAY: u64 = 0x7;
/// MAX_PUSH_ID.
pub const MAX_PUSH_ID: u64 = 0xd;
/// PRIORITY_UPDATE frames for requests and for pushes (RFC 9218, 7.2).
pub const PRIORITY_UPDATE: u64 = 0xf_0700;
/// PRIORITY_UPDATE of a push (RFC 9218, 7.2).
pub const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;

/// Frame types of HTTP/2 without a meaning in HTTP/3 (RFC 9114, 7.2.8): PRIORITY, PING, WINDOW_UPDATE, CONTINUATION.
pub fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// Type of the control stream.
pub const STREAM_CONTROL: u64 = 0x0;
/// Type of a push stream.
pub const STREAM_PUSH: u64 = 0x1;
/// Type of QPACK's encoder stream.
pub const STREAM_ENCODER: u64 = 0x2;
/// Type of QPACK's decoder stream.
pub const STREAM_DECODER: u64 = 0x3;

/// Octets of the encoder's table that the sender can decode.
pub const SETTINGS_QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
/// Octets of a field section that the sender accepts.
pub const SETTINGS_MAX_FIELD_SECTION_SIZE: u64 = 0x6;
/// Sections that may wait for entries of the table.
pub const SETTINGS_QPACK_BLOCKED_STREAMS: u64 = 0x7;
/// RFC 9220, 3
pub const SETTINGS_ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// Error codes of streams and connections (RFC 9114, 8.1; RFC 9204, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// H3_NO_ERROR.
    NoError = 0x100,
    /// H3_GENERAL_PROTOCOL_ERROR.
    GeneralProtocol = 0x101,
    /// H3_INTERNAL_ERROR.
    Internal = 0x102,
    /// H3_STREAM_CREATION_ERROR.
    StreamCreation = 0x103,
    /// H3_CLOSED_CRITICAL_STREAM.
    ClosedCriticalStream = 0x104,
    /// H3_FRAME_UNEXPECTED.
    FrameUnexpected = 0x105,
    /// H3_FRAME_ERROR.
    Frame = 0x106,
    /// H3_EXCESSIVE_LOAD.
    ExcessiveLoad = 0x107,
    /// H3_ID_ERROR.
    Id = 0x108,
    /// H3_SETTINGS_ERROR.
    Settings = 0x109,
    /// H3_MISSING_SETTINGS.
    MissingSettings = 0x10a,
    /// H3_REQUEST_REJECTED: the request was not processed.
    RequestRejected = 0x10b,
    /// H3_REQUEST_CANCELLED.
    RequestCancelled = 0x10c,
    /// H3_REQUEST_INCOMPLETE.
    RequestIncomplete = 0x10d,
    /// H3_MESSAGE_ERROR.
    Message = 0x10e,
    /// H3_CONNECT_ERROR.
    Connect = 0x10f,
    /// H3_VERSION_FALLBACK.
    VersionFallback = 0x110,
    /// QPACK_DECOMPRESSION_FAILED.
    DecompressionFailed = 0x200,
    /// QPACK_ENCODER_STREAM_ERROR.
    EncoderStream = 0x201,
    /// QPACK_DECODER_STREAM_ERROR.
    DecoderStream = 0x202,
}

/// A violation that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// Code for the peer.
    pub code: ErrorCode,
    /// For the error log.
    pub words: &'static str,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:x})", self.words, self.code as u32)
    }
}

impl std::error::Error for ConnectionError {}

/// Makes an error.
pub const fn connection_error(code: ErrorCode, words: &'static str) -> ConnectionError {
    ConnectionError { code, words }
}

/// Largest value of a variable-length integer (RFC 9000, 16).
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Reads a variable-length integer and returns it with its length, or `None` if octets are missing.
pub fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1usize << (first >> 6);
    let rest = bytes.get(1..length)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, octet| value << 8 | u64::from(*octet));
    Some((value, length))
}

/// Appends a variable-length integer; values are limited to [`VARINT_MAX`].
pub fn put_varint(value: u64, out: &mut Vec<u8>) {
    let value = value.min(VARINT_MAX);
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Appends the type and the length of a frame.
pub fn put_head(kind: u64, length: usize, out: &mut Vec<u8>) {
    put_varint(kind, out);
    put_varint(length as u64, out);
}

/// Returns the octets of [`put_head`] for a type below 64. A buffer of exactly a frame's octets becomes `Bytes` without a
/// further allocation.
pub fn head_length(length: usize) -> usize {
    1 + match length {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// A peer's settings, with defaults for absent ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// SETTINGS_QPACK_MAX_TABLE_CAPACITY in octets.
    pub table_capacity: u64,
    /// SETTINGS_QPACK_BLOCKED_STREAMS.
    pub blocked_streams: u64,
    /// SETTINGS_MAX_FIELD_SECTION_SIZE in octets; `None`: no limit was named.
    pub section_size: Option<u64>,
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 9220).
    pub extended_connect: bool,
}

/// Maximum number of settings in one frame. Each setting may occur once (RFC 9114, 7.2.4).
const SETTINGS_MAX: usize = 64;

impl Settings {
    /// Reads the payload of a SETTINGS frame.
    ///
    /// # Errors
    /// H3_SETTINGS_ERROR for repeated settings, settings of HTTP/2, values out of range and more than 64 settings;
    /// H3_FRAME_ERROR for a payload that ends inside a setting.
    pub fn read(mut payload: &[u8]) -> Result<Settings, ConnectionError> {
        const WRONG: ConnectionError =
            connection_error(ErrorCode::Settings, "client sent SETTINGS frame with incorrect value");
        const CUT: ConnectionError =
            connection_error(ErrorCode::Settings, "client sent SETTINGS frame with incorrect length");
        let mut settings = Settings::default();
        let mut seen: Vec<u64> = Vec::new();
        while !payload.is_empty() {
            let (name, used) = read_varint(payload).ok_or(CUT)?;
            payload = payload.get(used..).unwrap_or_default();
            let (value, used) = read_varint(payload).ok_or(CUT)?;
            payload = payload.get(used..).unwrap_or_default();
            if seen.contains(&name) || seen.len() >= SETTINGS_MAX {
                return Err(WRONG);
            }
            seen.push(name);
            match name {
                SETTINGS_QPACK_MAX_TABLE_CAPACITY => settings.table_capacity = value,
                SETTINGS_QPACK_BLOCKED_STREAMS => settings.blocked_streams = value,
                SETTINGS_MAX_FIELD_SECTION_SIZE => settings.section_size = Some(value),
                SETTINGS_ENABLE_CONNECT_PROTOCOL if value > 1 => return Err(WRONG),
                SETTINGS_ENABLE_CONNECT_PROTOCOL => settings.extended_connect = value == 1,
                // 7.2.4.1: settings of HTTP/2 that HTTP/3 reserves.
                0x0 | 0x2..=0x5 => return Err(WRONG),
                _ => {}
            }
        }
        Ok(settings)
    }

    /// Appends a SETTINGS frame.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(16);
        let mut put = |name: u64, value: u64| {
            put_varint(name, &mut payload);
            put_varint(value, &mut payload);
        };
        if self.table_capacity > 0 {
            put(SETTINGS_QPACK_MAX_TABLE_CAPACITY, self.table_capacity);
        }
        if self.blocked_streams > 0 {
            put(SETTINGS_QPACK_BLOCKED_STREAMS, self.blocked_streams);
        }
        if let Some(size) = self.section_size {
            put(SETTINGS_MAX_FIELD_SECTION_SIZE, size);
        }
        if self.extended_connect {
            put(SETTINGS_ENABLE_CONNECT_PROTOCOL, 1);
        }
        put_head(SETTINGS, payload.len(), out);
        out.extend_from_slice(&payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_rfc_9000() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(read_varint(bytes), Some((value, bytes.len())));
            assert_eq!(read_varint(&bytes[..bytes.len() - 1]), None);
            let mut out = Vec::new();
            put_varint(value, &mut out);
            assert_eq!(out, bytes);
        }
        assert_eq!(read_varint(&[0x40, 0x25]), Some((37, 2)));
        let mut out = Vec::new();
        put_varint(u64::MAX, &mut out);
        assert_eq!(read_varint(&out), Some((VARINT_MAX, 8)));
    }

    #[test]
    fn a_frames_head_has_the_length_that_was_told() {
        for length in [0, 63, 64, 16_383, 16_384, 1 << 30] {
            let mut out = Vec::new();
            put_head(HEADERS, length, &mut out);
            assert_eq!(out.len(), head_length(length), "{length}");
        }
    }

    #[test]
    fn settings_come_once_and_are_of_http3() {
        let all =
            Settings { table_capacity: 4096, blocked_streams: 16, section_size: Some(70_000), extended_connect: true };
        let mut out = Vec::new();
        all.put(&mut out);
        let (kind, used) = read_varint(&out).unwrap();
        let (length, more) = read_varint(&out[used..]).unwrap();
        assert_eq!((kind, length as usize), (SETTINGS, out.len() - used - more));
        assert_eq!(Settings::read(&out[used + more..]), Ok(all));
        assert_eq!(Settings::read(&[]), Ok(Settings::default()));
        assert_eq!(Settings::read(&[0x21, 0x05]), Ok(Settings::default()), "reserved settings are ignored");
        for bad in [&[1, 5, 1, 5][..], &[2, 0], &[4, 1], &[8, 2], &[1], &[1, 0x40]] {
            assert_eq!(Settings::read(bad).map_err(|e| e.code), Err(ErrorCode::Settings), "{bad:?}");
        }
        let many: Vec<u8> = (0x40..0x40 + 65u64).fold(Vec::new(), |mut out, name| {
            put_varint(name, &mut out);
            out.push(0);
            out
        });
        assert!(Settings::read(&many).is_err());
    }
}
