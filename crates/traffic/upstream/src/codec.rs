//! Interface of upstream protocols: bytes in, events out. [`SerialCodec`] is for one request at a time (HTTP/1,
//! FastCGI, uwsgi, SCGI, memcached), driven by [`crate::client`]; HTTP/2 is [`crate::mux`].

use bytes::Bytes;
use http_types::{BodyLength, Method, ResponseHead};
use std::any::Any;
use std::rc::Rc;

/// Response head with its bytes. Protocols without an HTTP/1 head create one, for caches.
#[derive(Debug, Default)]
pub struct ReceivedHead {
    pub head: ResponseHead,
    pub buf: Bytes,
}

#[derive(Debug)]
pub struct ResponseStart {
    pub answer: Rc<ReceivedHead>,
    /// Bytes of the head within the answer's.
    pub head_bytes: usize,
    pub length: BodyLength,
    /// Received bytes behind the head, as framed.
    pub behind: usize,
}

#[derive(Debug, Default)]
pub struct ResponseEnd {
    /// With line ends.
    pub trailers: Vec<u8>,
    /// Message about unexpected bytes.
    pub excess: Option<&'static str>,
}

#[derive(Debug)]
pub enum Event {
    /// Interim response (1xx except 101), and its length in bytes.
    Interim(Rc<ReceivedHead>, usize),
    Head(ResponseStart),
    Body(Bytes),
    End(ResponseEnd),
    /// Message for the error log (FastCGI's standard error).
    Said(Vec<u8>),
}

/// Malformed response, with an error log message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedResponse(pub String);

impl<T: Into<String>> From<T> for MalformedResponse {
    fn from(words: T) -> MalformedResponse {
        MalformedResponse(words.into())
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts {
    pub method: Method,
    /// In bytes.
    pub head_max: usize,
    pub chunked: bool,
}

/// Client side of a protocol with one request at a time; no I/O. Lives as long as the connection.
pub trait SerialCodec: Any {
    fn begin(&mut self, asked: &RequestFacts, head: &[u8]);
    fn frames_body(&self) -> bool {
        true
    }
    /// The piece may be empty; `end`: the last.
    fn encode_body(&mut self, piece: &[u8], end: bool, out: &mut Vec<u8>);
    /// Consumes the front of `input`; `None`: needs more. Appends replies to `out`. After an error the connection is
    /// unusable.
    fn decode(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse>;
    /// Handles the server's close; `Some`: the response ended thereby.
    fn closed(&mut self) -> Result<Option<ResponseEnd>, MalformedResponse> {
        Ok(None)
    }
    /// After a response: tells whether the connection is reusable.
    fn is_reusable(&self) -> bool;
    /// Bytes behind the head of a 101 response.
    fn take_rest(&mut self) -> Bytes {
        Bytes::new()
    }
}
