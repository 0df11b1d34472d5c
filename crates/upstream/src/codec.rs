//! What a protocol towards servers is: bytes in, events out. A protocol that answers one request after the other on a connection
//! (HTTP/1, FastCGI, uwsgi, SCGI, memcached) implements [`SerialCodec`]; [`crate::client`] moves its bytes. One that carries many
//! at a time (HTTP/2) is a [`crate::mux`]. Whoever passes requests on sees [`Event`]s, and not which of them it was.

use bytes::Bytes;
use http_types::{BodyLength, Method, ResponseHead};
use std::any::Any;
use std::rc::Rc;

/// The head of a server's response, and the bytes that it points into. Protocols that have no head as HTTP/1 writes it make one of
/// what they were told: it is what caches store.
#[derive(Debug, Default)]
pub struct Answer {
    pub head: ResponseHead,
    pub buf: Bytes,
}

/// A response has begun.
#[derive(Debug)]
pub struct Begun {
    pub answer: Rc<Answer>,
    /// So many of the answer's bytes are the head; others follow where they came along with it.
    pub head_bytes: usize,
    /// Where the body ends, as far as the head says it.
    pub length: BodyLength,
    /// Bytes behind the head that came along with it, as the server framed them.
    pub behind: usize,
}

/// The response is whole.
#[derive(Debug, Default)]
pub struct End {
    /// Fields behind the body, as lines with their ends.
    pub trailers: Vec<u8>,
    /// What is to be said of bytes that should not be there.
    pub excess: Option<&'static str>,
}

/// What a server has said.
#[derive(Debug)]
pub enum Event {
    /// An interim response (1xx but 101), and its length in bytes.
    Interim(Rc<Answer>, usize),
    Head(Begun),
    Body(Bytes),
    End(End),
    /// Something for the error log (FastCGI: what an application writes to its standard error).
    Said(Vec<u8>),
}

/// What a server said does not make sense: words for the error log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

impl<T: Into<String>> From<T> for Wrong {
    fn from(words: T) -> Wrong {
        Wrong(words.into())
    }
}

/// What a codec must know of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    pub method: Method,
    /// The most that the head of the response may take, in bytes.
    pub head_max: usize,
    /// The body is sent as it comes, and nobody knows its length.
    pub chunked: bool,
}

/// The client's side of a protocol on one connection, which answers one request after the other. No I/O. It lives as long as the
/// connection.
pub trait SerialCodec: Any {
    /// A request begins, with these bytes: whatever was known of the one before is over.
    fn begin(&mut self, asked: &Asked, head: &[u8]);
    /// Whether a piece of the request's body becomes other bytes than it is.
    fn frames_body(&self) -> bool {
        true
    }
    /// Frames a piece of the request's body; `end`: it is the last one. Pieces may be empty.
    fn encode_body(&mut self, piece: &[u8], end: bool, out: &mut Vec<u8>);
    /// Takes what it understands from the front of `input`, which keeps its place otherwise; `None`: it takes more bytes. What a
    /// server must be told of is added to `out`.
    ///
    /// # Errors
    /// What is wrong: the connection is of no use any more.
    fn decode(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<Option<Event>, Wrong>;
    /// The server has ended the connection; `Some`: this was the response's end.
    ///
    /// # Errors
    /// As [`SerialCodec::decode`].
    fn closed(&mut self) -> Result<Option<End>, Wrong> {
        Ok(None)
    }
    /// After a whole response: the server waits for another request.
    fn is_reusable(&self) -> bool;
    /// What came behind the head of a response that changes the protocol (101).
    fn take_rest(&mut self) -> Bytes {
        Bytes::new()
    }
}
