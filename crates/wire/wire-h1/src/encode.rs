//! Writes chunk heads and requests.

use crate::bytes::{is_field_value, is_token};

/// Last chunk with an empty trailer section (RFC 9112, 7.1).
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends a chunk's size line; nothing for 0, which would end the body ([`LAST_CHUNK`]).
pub fn encode_chunk_head(len: usize, out: &mut Vec<u8>) {
    if len == 0 {
        return;
    }
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4);
    for i in (0..digits).rev() {
        let nibble = (len >> (i * 4)) as u8 & 15;
        out.push(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 });
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a request head into the caller's buffer. Omits fields that would change the framing (empty name; CR, LF or
/// NUL in the value); [`RequestWriter::end`] reports them.
#[derive(Debug)]
pub struct RequestWriter<'a> {
    out: &'a mut Vec<u8>,
    clean: bool,
}

impl<'a> RequestWriter<'a> {
    /// Writes the request line; `minor` is 0 or 1.
    pub fn new(out: &'a mut Vec<u8>, method: &[u8], target: &[u8], minor: u8) -> Self {
        let clean = is_token(method) && !target.is_empty() && !target.iter().any(|&b| b <= b' ' || b == 0x7f);
        out.extend_from_slice(method);
        out.push(b' ');
        out.extend_from_slice(target);
        out.extend_from_slice(if minor == 0 { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" });
        RequestWriter { out, clean }
    }

    /// Appends a field, or notes that it cannot be sent.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        if name.is_empty() || name.iter().any(|&b| b <= b' ' || b == b':' || b == 0x7f) || !is_field_value(value) {
            self.clean = false;
            return self;
        }
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Ends the head. False if a field was omitted: the request must not be sent.
    #[must_use]
    pub fn end(self) -> bool {
        self.out.extend_from_slice(b"\r\n");
        self.clean
    }
}
