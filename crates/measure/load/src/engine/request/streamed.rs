//! Requests over HTTP/2 and HTTP/3: header blocks and bodies.

use figures::rng::Rng;
use http_types::Method;

use super::PreparedRequest;
use crate::engine::session::SessionVariables;

impl PreparedRequest {
    pub fn for_http2(mut self, tls: bool) -> PreparedRequest {
        self.scheme = if tls { "https" } else { "http" };
        self.streamed()
    }

    pub fn for_http3(mut self) -> PreparedRequest {
        (self.scheme, self.is_http3) = ("https", true);
        self.streamed()
    }

    pub(super) fn streamed(mut self) -> PreparedRequest {
        if self.constant.is_some() {
            let (mut block, mut body) = (Vec::new(), Vec::new());
            self.write_streamed(0, &SessionVariables::default(), &mut Rng::new(0), &mut block, &mut body);
            self.constant_streamed = Some((block, body));
        }
        self
    }

    /// Header block and body for HTTP/2 or HTTP/3, if constant.
    #[inline]
    pub fn constant_streamed(&self) -> Option<(&[u8], &[u8])> {
        self.constant_streamed.as_ref().map(|(block, body)| (block.as_slice(), body.as_slice()))
    }

    /// Appends header block and body for HTTP/2 or HTTP/3, without connection-specific fields and with `Host` as
    /// `:authority` (RFC 9113, 8.2.2 and 8.3.1; RFC 9114, 4.2 and 4.3.1). False if the filled body is no message of gRPC.
    pub fn write_streamed(
        &self,
        sequence: u64,
        variables: &SessionVariables,
        rng: &mut Rng,
        block: &mut Vec<u8>,
        body: &mut Vec<u8>,
    ) -> bool {
        self.body.fill(sequence, variables, rng, body);
        if let Some(form) = &self.form {
            let json = std::mem::take(body);
            if form.frame_messages(&json, body).is_err() {
                return false;
            }
        }
        if self.is_http3 {
            let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            self.each_field(sequence, variables, rng, body.len(), &mut |name, value| {
                fields.push((name.to_vec(), value.to_vec()));
            });
            let mut fields = fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
            block.extend_from_slice(&wire_h3::encoded_section(&mut fields));
        } else {
            let mut encoder = wire_h2::Encoder::stateless();
            self.each_field(sequence, variables, rng, body.len(), &mut |name, value| encoder.field(name, value, block));
        }
        true
    }

    /// Passes the fields of a request with a body of `length` octets to `take`, pseudo-header fields first.
    fn each_field(
        &self,
        sequence: u64,
        variables: &SessionVariables,
        rng: &mut Rng,
        length: usize,
        take: &mut dyn FnMut(&[u8], &[u8]),
    ) {
        let mut text = Vec::new();
        take(b":method", &self.method_name);
        take(b":scheme", self.scheme.as_bytes());
        self.target.fill(sequence, variables, rng, &mut text);
        take(b":path", &text);
        let is = |name: &[u8], other: &[u8]| name.eq_ignore_ascii_case(other);
        if let Some((_, host)) = self.headers.iter().find(|(name, _)| is(name, b"host")) {
            text.clear();
            host.fill(sequence, variables, rng, &mut text);
            take(b":authority", &text);
        }
        for (name, value) in &self.headers {
            let lower = name.to_ascii_lowercase();
            text.clear();
            value.fill(sequence, variables, rng, &mut text);
            if lower == b"host"
                || (self.has_jar && lower == b"cookie")
                || http_types::is_connection_field(&lower, &text)
            {
                continue;
            }
            take(&lower, &text);
        }
        if self.has_jar {
            self.write_jar(sequence, variables, rng, &mut text);
            if !text.is_empty() {
                take(b"cookie", &text);
            }
        }
        let framed = self.headers.iter().any(|(name, _)| is(name, b"content-length"));
        // A call has as many messages as its stream.
        if !framed && !self.is_grpc && (length > 0 || matches!(self.method, Method::Post | Method::Put | Method::Patch))
        {
            take(b"content-length", length.to_string().as_bytes());
        }
    }
}
