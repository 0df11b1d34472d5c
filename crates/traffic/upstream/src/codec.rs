//! Interface of upstream protocols with one request at a time (HTTP/1, FastCGI, uwsgi, SCGI, memcached): a
//! [`SerialCodec`] turns bytes into events, and [`crate::client`] drives it. [`crate::mux`] has the protocols with
//! concurrent requests (HTTP/2, HTTP/3).

use bytes::Bytes;
use http_types::{BodyLength, Method, ResponseHead};
use std::any::Any;
use std::rc::Rc;

/// A response head and its bytes. Protocols without an HTTP/1 head create the bytes, because caches store them.
#[derive(Debug, Default)]
pub struct ReceivedHead {
    /// The parsed head; its spans refer to `buf`.
    pub head: ResponseHead,
    /// The bytes from the head's first one on; more may follow the head.
    pub buf: Bytes,
}

/// The final head of a response.
#[derive(Debug)]
pub struct ResponseStart {
    /// The head and its bytes.
    pub answer: Rc<ReceivedHead>,
    /// Length of the head, in bytes of [`ReceivedHead::buf`].
    pub head_bytes: usize,
    /// Length of the body, by the rules of HTTP/1.
    pub length: BodyLength,
    /// Bytes already received after the head, including the protocol's framing.
    pub behind: usize,
}

/// The end of a response.
#[derive(Debug, Default)]
pub struct ResponseEnd {
    /// Trailer fields, with line breaks.
    pub trailers: Vec<u8>,
    /// Error log message about unexpected bytes after the response.
    pub excess: Option<&'static str>,
}

/// A part of a response. Heads and the end come once each, in this order: `Interim`, `Head`, `Body`, `End`.
#[derive(Debug)]
pub enum Event {
    /// Interim response (1xx except 101), and its length in bytes.
    Interim(Rc<ReceivedHead>, usize),
    /// The final head.
    Head(ResponseStart),
    /// A piece of the body, without the protocol's framing.
    Body(Bytes),
    /// The complete end of the response.
    End(ResponseEnd),
    /// Message for the error log (FastCGI's standard error).
    Stderr(Vec<u8>),
}

/// Error for a malformed response, with the error log message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedResponse(pub String);

impl<T: Into<String>> From<T> for MalformedResponse {
    fn from(words: T) -> MalformedResponse {
        MalformedResponse(words.into())
    }
}

/// Facts about a request that its response depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts {
    /// Method sent to the server: responses to HEAD have no body.
    pub method: Method,
    /// Maximum size of the response head in bytes.
    pub head_max: usize,
    /// The request's body is sent in chunks.
    pub chunked: bool,
}

/// Client side of a protocol with one request at a time, without I/O. One codec serves all requests of a connection.
pub trait SerialCodec: Any {
    /// Begins a request, whose encoded head the caller sends. To be called before any other method, also for each
    /// further request of the connection.
    fn begin(&mut self, asked: &RequestFacts, head: &[u8]);
    /// Tells whether [`SerialCodec::encode_body`] changes the bytes of a body; if not, pieces are sent as they are.
    fn frames_body(&self) -> bool {
        true
    }
    /// Encodes a piece of the request body, which may be empty. `end` marks the last piece.
    fn encode_body(&mut self, piece: &[u8], end: bool, out: &mut Vec<u8>);
    /// Consumes the next event from the front of `input`; returns `None` if more bytes are needed. Appends protocol
    /// replies to `out`.
    ///
    /// # Errors
    /// The response is malformed; the connection must not be reused.
    fn decode(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse>;
    /// Handles the server's close. Returns `Some` if the close ends the response.
    fn closed(&mut self) -> Result<Option<ResponseEnd>, MalformedResponse> {
        Ok(None)
    }
    /// Tells, after a response, whether the connection can be reused.
    fn is_reusable(&self) -> bool;
    /// Takes the bytes that followed the head of a 101 response.
    fn take_rest(&mut self) -> Bytes {
        Bytes::new()
    }
}
