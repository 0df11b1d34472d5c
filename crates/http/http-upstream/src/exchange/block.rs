//! Request head as a header block without dynamic table references, written before the connection is known.

use wire_h2::Encoder;

pub struct HeaderBlock<'a> {
    encoder: Encoder,
    out: &'a mut Vec<u8>,
    name: Vec<u8>,
}

impl<'a> HeaderBlock<'a> {
    /// Starts a block with the pseudo-header fields. `authority`: the value of `Host`.
    pub fn new(
        method: &[u8],
        tls: bool,
        path: &[u8],
        authority: Option<&[u8]>,
        out: &'a mut Vec<u8>,
    ) -> HeaderBlock<'a> {
        let mut block = HeaderBlock { encoder: Encoder::stateless(), out, name: Vec::new() };
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
