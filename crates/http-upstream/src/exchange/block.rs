//! The head of an HTTP/2 request as a block of fields. It refers to no table of a connection, so that it can be written before it is
//! known which one it goes over.

use wire_h2::Encoder;

/// A block that is being written.
pub struct HeaderBlock<'a> {
    encoder: Encoder,
    out: &'a mut Vec<u8>,
    name: Vec<u8>,
}

impl<'a> HeaderBlock<'a> {
    /// Begins with what every request says. `authority`: what a `Host` would say.
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
    /// Adds a field, unless it speaks of a connection (RFC 9113, 8.2.2), or its name is none there.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        self.name.clear();
        self.name.extend(name.iter().map(u8::to_ascii_lowercase));
        let is_name = !self.name.is_empty() && self.name.iter().all(|c| *c > b' ' && *c < 0x7f && *c != b':');
        if is_name && !http_types::is_connection_field(&self.name, value) {
            self.encoder.field(&self.name, value, self.out);
        }
    }
}
