//! Request head as a header block without dynamic table references, written before the connection is known.

use wire_h2::Encoder;
use wire_h3::SectionWriter;

/// Protocol of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// HPACK.
    Http2,
    /// QPACK.
    Http3,
}

enum BlockWriter {
    Http2(Encoder),
    Http3(SectionWriter),
}

impl BlockWriter {
    fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match self {
            BlockWriter::Http2(encoder) => encoder.field(name, value, out),
            BlockWriter::Http3(section) => section.field(name, value, out),
        }
    }
}

/// Writer of a header block, of HPACK or QPACK. Fields are in the order of the calls.
pub struct HeaderBlock<'a> {
    encoder: BlockWriter,
    out: &'a mut Vec<u8>,
    name: Vec<u8>,
}

impl<'a> HeaderBlock<'a> {
    /// Starts a block with the pseudo-header fields. `authority`: the value of `Host`.
    pub fn new(
        coding: Coding,
        method: &[u8],
        tls: bool,
        path: &[u8],
        authority: Option<&[u8]>,
        out: &'a mut Vec<u8>,
    ) -> HeaderBlock<'a> {
        let encoder = match coding {
            Coding::Http2 => BlockWriter::Http2(Encoder::stateless()),
            Coding::Http3 => BlockWriter::Http3(SectionWriter::new(out)),
        };
        let mut block = HeaderBlock { encoder, out, name: Vec::new() };
        block.put(b":method", method);
        block.put(b":scheme", if tls { b"https" } else { b"http" });
        block.put(b":path", path);
        if let Some(authority) = authority {
            block.put(b":authority", authority);
        }
        block
    }
    fn put(&mut self, name: &[u8], value: &[u8]) {
        self.encoder.field(name, value, self.out);
    }
    /// Adds a field, except connection-specific ones (RFC 9113, 8.2.2) and invalid names.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        self.name.clear();
        self.name.extend(name.iter().map(u8::to_ascii_lowercase));
        let is_name = !self.name.is_empty() && self.name.iter().all(|c| *c > b' ' && *c < 0x7f && *c != b':');
        if is_name && !http_types::is_connection_field(&self.name, value) {
            self.encoder.field(&self.name, value, self.out);
        }
    }
}
