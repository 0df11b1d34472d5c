//! Reads one response from a connection, within limits.

use crate::failure::{ClientFailure, ClientStep};
use http_types::{BodyLength, Method, ResponseHead};
use runtime::time::with_timeout;
use std::time::Duration;
use transport::Stream;
use wire_h1::{ChunkedDecoder, HeadLimits, ParseProgress, ResponseParser, Role};

/// Interim responses (1xx) before the final one.
const INTERIM_MAX: usize = 100;
/// Maximum bytes per read.
const READ_BYTES: usize = 16 * 1024;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In octets.
    pub head: usize,
    /// In octets.
    pub body: usize,
    /// Time without a byte from the server.
    pub idle: Duration,
}

impl Default for Limits {
    /// 16 KB of head, 1 MB of body, 60 seconds.
    fn default() -> Self {
        Limits { head: 16 * 1024, body: 1024 * 1024, idle: Duration::from_secs(60) }
    }
}

/// With the whole body.
#[derive(Clone, Debug, Default)]
pub struct Response {
    pub head: ResponseHead,
    /// For the head's spans.
    pub bytes: Vec<u8>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The name in any case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields(name).first().copied()
    }

    /// The names in any case.
    pub fn fields(&self, name: &str) -> Vec<&[u8]> {
        let named = |field: &&http_types::Field| field.name.of(&self.bytes).eq_ignore_ascii_case(name.as_bytes());
        self.head.fields.all.iter().filter(named).map(|field| field.value.of(&self.bytes)).collect()
    }

    /// `field` as text; `None` for one that is not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.field(name)?).ok()
    }
}

/// Writes a request.
///
/// # Errors
/// [`ClientFailure::TimedOut`], [`ClientFailure::Io`].
pub async fn send_request(stream: &Stream, bytes: &[u8], limit: Duration) -> Result<(), ClientFailure> {
    let sent =
        with_timeout(limit, stream.write_all(bytes)).await.map_err(|_| ClientFailure::TimedOut(ClientStep::Send))?;
    sent.map_err(|e| ClientFailure::Io(ClientStep::Send, e))
}

/// Reads the response to one request.
pub struct Reader<'a> {
    stream: &'a Stream,
    limits: Limits,
    method: Method,
    /// Bytes that have been received, and not been taken as a body.
    buf: Vec<u8>,
    length: BodyLength,
    keep_alive: bool,
}

impl<'a> Reader<'a> {
    /// Reads the response to a request with this method.
    pub fn new(stream: &'a Stream, method: Method, limits: Limits) -> Reader<'a> {
        let buf = Vec::with_capacity(4096);
        Reader { stream, limits, method, buf, length: BodyLength::None, keep_alive: false }
    }

    /// Receives bytes; 0 at the end of the connection.
    async fn more(&mut self) -> Result<usize, ClientFailure> {
        self.buf.reserve(READ_BYTES);
        let read = with_timeout(self.limits.idle, self.stream.read_buf(&mut self.buf)).await;
        read.map_err(|_| ClientFailure::TimedOut(ClientStep::Receive))?
            .map_err(|e| ClientFailure::Io(ClientStep::Receive, e))
    }

    /// Reads the final head, and returns it with its bytes.
    ///
    /// # Errors
    /// [`ClientFailure`].
    pub async fn head(&mut self) -> Result<(ResponseHead, Vec<u8>), ClientFailure> {
        let max = self.limits.head;
        let limits = HeadLimits {
            line_max: max,
            field_max: max,
            total_max: max,
            fields_max: 1000,
            underscores: true,
            ignore_invalid: true,
        };
        let (mut head, mut parser, mut interim) = (ResponseHead::default(), ResponseParser::default(), 0);
        loop {
            if !self.buf.is_empty() {
                match parser.parse(&self.buf, &limits, &mut head) {
                    Ok(ParseProgress::Done { consumed }) if (100..200).contains(&head.status) && head.status != 101 => {
                        interim += 1;
                        if interim > INTERIM_MAX {
                            return Err(ClientFailure::Interim);
                        }
                        self.buf.drain(..consumed);
                        (head, parser) = (ResponseHead::default(), ResponseParser::default());
                        continue;
                    }
                    Ok(ParseProgress::Done { consumed }) => {
                        self.length = wire_h1::response_body(&head, &self.buf, self.method)
                            .map_err(|e| ClientFailure::Framing(e.upstream_message()))?;
                        self.keep_alive = wire_h1::response_keep_alive(&head, &self.buf);
                        let rest = self.buf.split_off(consumed);
                        return Ok((head, std::mem::replace(&mut self.buf, rest)));
                    }
                    Ok(ParseProgress::Partial) => {}
                    Err(_) => return Err(ClientFailure::Malformed),
                }
            }
            if self.more().await? == 0 {
                return Err(ClientFailure::Closed);
            }
        }
    }

    /// Reads the body, at most its limit; `true`: it is complete.
    ///
    /// # Errors
    /// [`ClientFailure`].
    pub async fn body(&mut self) -> Result<(Vec<u8>, bool), ClientFailure> {
        let mut body = Vec::new();
        let mut decoder = ChunkedDecoder::new(Role::Client);
        loop {
            let mut ended = false;
            match self.length {
                BodyLength::None => {
                    // Bytes of a body that the status excludes are dropped with the connection.
                    self.keep_alive &= self.buf.is_empty();
                    return Ok((body, true));
                }
                BodyLength::Exact(n) => {
                    body.append(&mut self.buf);
                    ended = body.len() as u64 >= n;
                    if body.len() as u64 > n {
                        return Err(ClientFailure::Excess);
                    }
                }
                BodyLength::UntilClose => body.append(&mut self.buf),
                BodyLength::Chunked => {
                    let mut at = 0;
                    while at < self.buf.len() && !ended {
                        let left = self.buf.get(at..).unwrap_or_default();
                        let decoded = decoder.decode(left).map_err(|e| ClientFailure::Framing(e.message()))?;
                        body.extend_from_slice(left.get(decoded.data).unwrap_or_default());
                        at += decoded.consumed;
                        ended = decoded.done;
                    }
                    self.buf.drain(..at);
                }
            }
            if ended && !self.buf.is_empty() {
                return Err(ClientFailure::Excess);
            }
            if body.len() > self.limits.body || ended {
                ended &= body.len() <= self.limits.body;
                body.truncate(self.limits.body);
                return Ok((body, ended));
            }
            if self.more().await? == 0 {
                return match self.length {
                    BodyLength::UntilClose => Ok((body, true)),
                    _ => Err(ClientFailure::Cut),
                };
            }
        }
    }

    /// Reads head and body.
    ///
    /// # Errors
    /// [`ClientFailure`]; a body beyond its limit is [`ClientFailure::TooLarge`].
    pub async fn response(&mut self) -> Result<Response, ClientFailure> {
        let (head, bytes) = self.head().await?;
        match self.body().await? {
            (body, true) => Ok(Response { head, bytes, body }),
            _ => Err(ClientFailure::TooLarge),
        }
    }

    /// Tells whether the connection may carry another request, once the body is complete.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive && !matches!(self.length, BodyLength::UntilClose)
    }
}
