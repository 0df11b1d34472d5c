//! Decides how responses leave, for every protocol, and enforces promised body lengths.

use crate::link::Link;
use http_engine::file_io::Aio;
use http_engine::files::KERNEL_COPY_BYTES;
use http_engine::{FilePart, Request, ResponseBody};

/// The way in which a response leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendPlan {
    /// Head and a body of this length are in memory: one write ends the request. The body may be a single chunk
    /// (`Reply::chunked`).
    Whole(usize),
    /// [`SendPlan::Whole`] with later work: tunnel, background work, `post_action`.
    Followed(usize),
    /// Piece by piece, by a task.
    Pieces,
}

impl SendPlan {
    /// `max`: body octets per write.
    #[inline]
    pub fn of(r: &Request, body: &ResponseBody, max: usize) -> SendPlan {
        let length = match body {
            ResponseBody::Empty => 0,
            ResponseBody::Bytes(bytes) if bytes.len() <= max => bytes.len(),
            _ => return SendPlan::Pieces,
        };
        SendPlan::of_length(r, length)
    }
    /// Plans a body of this length that one call can send.
    #[inline]
    pub fn of_length(r: &Request, length: usize) -> SendPlan {
        let core = &r.loc().core;
        let is_short =
            !r.reply.is_head_only() && r.out.content_length().is_some_and(|promised| promised != length as u64);
        let is_paced = r.reply.limit_rate().is_some() || (core.rate_limited && length > 0);
        if is_short || is_paced || r.reply.expects_trailers() || !r.out.trailers().is_empty() {
            return SendPlan::Pieces;
        }
        if r.reply.has_tunnel() || r.has_background() || core.conf.post_action.is_some() {
            return SendPlan::Followed(length);
        }
        SendPlan::Whole(length)
    }
}

/// Returns the part of a file that the kernel sends from its page cache, in one call if the socket has room: of cleartext over
/// HTTP/1, where no directive asks for reads by threads, direct reads or pieces. [`KERNEL_COPY_BYTES`] at least, if the bytes are in
/// memory, too.
#[inline]
pub fn kernel_part<'a>(link: &Link, r: &Request, body: &'a ResponseBody) -> Option<&'a FilePart> {
    let ResponseBody::File(part) = body else { return None };
    let conf = &r.loc().core.conf;
    let is_short = part.length < KERNEL_COPY_BYTES && part.file.content.is_some();
    let is_plain = conf.sendfile
        && conf.aio == Aio::Off
        && conf.directio.0.is_none()
        && conf.read_ahead.0 == 0
        && (conf.sendfile_max_chunk.0 == 0 || part.length <= conf.sendfile_max_chunk.0);
    let is_declared = r.out.content_length() == Some(part.length);
    (is_plain && is_declared && !is_short && link.has_sendfile()).then_some(part)
}

/// Chunked framing of a body that is in memory, without trailers.
pub enum SingleChunk {
    /// The body is not chunked, or only the head is sent.
    Unframed,
    /// Octets of the only chunk; 0: the last chunk alone.
    Framed(usize),
}

impl SingleChunk {
    /// Returns the framing of a body.
    pub fn of(r: &Request, body: &ResponseBody) -> SingleChunk {
        if !r.reply.is_chunked() || r.reply.is_head_only() {
            return SingleChunk::Unframed;
        }
        SingleChunk::Framed(body.length().and_then(|length| usize::try_from(length).ok()).unwrap_or(0))
    }
    /// Appends the octets before the body.
    pub fn begin(&self, out: &mut Vec<u8>) {
        if let SingleChunk::Framed(length) = self {
            wire_h1::encode_chunk_head(*length, out);
        }
    }
    /// Returns the octets after the body.
    pub fn end(&self) -> &'static [u8] {
        match self {
            SingleChunk::Unframed => b"",
            SingleChunk::Framed(0) => b"0\r\n\r\n",
            SingleChunk::Framed(_) => b"\r\n0\r\n\r\n",
        }
    }
}

/// Promised body length less sent octets.
pub struct PromisedLength(Option<u64>);

impl PromisedLength {
    /// Begins with the length in the response's head; no promise without one, or for a head alone.
    pub fn of(r: &Request) -> PromisedLength {
        PromisedLength(r.out.content_length().filter(|_| !r.reply.is_head_only()))
    }
    /// Subtracts a piece. False: exceeds the promise, which an HTTP/1 client would read as its next response.
    #[must_use]
    pub fn take(&mut self, length: u64) -> bool {
        let Some(left) = &mut self.0 else { return true };
        let fits = length <= *left;
        *left = left.saturating_sub(length);
        fits
    }
    /// Tells whether octets are missing.
    pub fn is_short(&self) -> bool {
        self.0.is_some_and(|left| left > 0)
    }
    /// Tells whether a length was promised and all of it was sent.
    pub fn is_kept(&self) -> bool {
        self.0 == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_kept_to_the_octet() {
        let mut promised = PromisedLength(Some(5));
        assert!(promised.take(3) && promised.is_short() && !promised.is_kept());
        assert!(!promised.take(3), "one more than was promised");
        let mut promised = PromisedLength(Some(5));
        assert!(promised.take(5) && promised.is_kept() && !promised.is_short());
        let mut unknown = PromisedLength(None);
        assert!(unknown.take(u64::MAX) && !unknown.is_short() && !unknown.is_kept());
    }
}
