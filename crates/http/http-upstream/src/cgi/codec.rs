//! Codec of protocols whose responses end with the connection: uwsgi and SCGI. Sans-I/O.

use super::head::CgiHead;
use bytes::Bytes;
use http_types::{BodyLength, Method};
use upstream::{Event, MalformedResponse, ReceivedHead, RequestFacts, ResponseEnd, ResponseStart, SerialCodec};

/// nginx's message about a body that is longer than announced.
pub const MORE_THAN_ANNOUNCED: &str = "upstream sent more data than specified in \"Content-Length\" header";

/// Bytes of a response body that are still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRest {
    /// No body; further bytes are dropped.
    Nothing,
    /// This many.
    Bytes(u64),
    /// Until the end of the stream.
    Open,
}

impl BodyRest {
    /// Fails on an invalid or repeated `Content-Length` or `Transfer-Encoding`, and on both together. As in nginx, chunks
    /// are not decoded: the body has them.
    pub fn of(answer: &ReceivedHead, method: Method) -> Result<BodyRest, MalformedResponse> {
        let (head, buf) = (&answer.head, &answer.buf);
        let length = wire_h1::response_body(head, buf, method).map_err(|why| {
            let mut words = Vec::new();
            why.upstream_log(&head.fields, buf, &mut words);
            String::from_utf8_lossy(&words).into_owned()
        })?;
        Ok(match length {
            _ if matches!(head.status, 204 | 304) => BodyRest::Bytes(0),
            _ if method == Method::Head => BodyRest::Nothing,
            BodyLength::Exact(n) => BodyRest::Bytes(n),
            _ => BodyRest::Open,
        })
    }
    /// Returns the length for the exchange. Statuses 204 and 304 have no body.
    pub fn length(self, answer: &ReceivedHead) -> BodyLength {
        match self {
            _ if matches!(answer.head.status, 204 | 304) => BodyLength::None,
            BodyRest::Nothing => BodyLength::None,
            BodyRest::Bytes(n) => BodyLength::Exact(n),
            BodyRest::Open => BodyLength::UntilClose,
        }
    }
    /// Truncates a piece to the remaining length; returns `true` if there was more.
    pub fn take(&mut self, piece: &mut Bytes) -> bool {
        match self {
            BodyRest::Nothing => {
                piece.clear();
                false
            }
            BodyRest::Open => false,
            BodyRest::Bytes(left) => {
                let more = piece.len() as u64 > *left;
                piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece.len() as u64;
                more
            }
        }
    }
}

enum State {
    Head,
    Body(BodyRest),
    Excess,
    Ended,
}

/// Codec of uwsgi and SCGI: one request per connection, whose close ends the response.
pub struct ClosingStream {
    asked: RequestFacts,
    head: CgiHead,
    state: State,
    rest: Bytes,
}

impl Default for ClosingStream {
    fn default() -> Self {
        ClosingStream::new()
    }
}

impl ClosingStream {
    /// Creates a codec of a new connection.
    pub fn new() -> ClosingStream {
        ClosingStream {
            asked: RequestFacts::default(),
            head: CgiHead::new(true),
            state: State::Ended,
            rest: Bytes::new(),
        }
    }
}

impl ClosingStream {
    fn end(&mut self, excess: Option<&'static str>) -> Event {
        self.state = State::Ended;
        Event::End(ResponseEnd { trailers: Vec::new(), excess })
    }
}

impl SerialCodec for ClosingStream {
    fn begin(&mut self, asked: &RequestFacts, _: &[u8]) {
        self.asked = *asked;
        self.head.reset();
        self.state = State::Head;
        self.rest = Bytes::new();
    }
    fn frames_body(&self) -> bool {
        false
    }
    fn encode_body(&mut self, piece: &[u8], _: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(piece);
    }
    fn decode(&mut self, input: &mut Vec<u8>, _: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse> {
        match &mut self.state {
            State::Head => {
                if input.is_empty() {
                    return Ok(None);
                }
                let Some((answer, took)) = self.head.push(input, self.asked.head_max)? else {
                    input.clear();
                    return Ok(None);
                };
                let left = BodyRest::of(&answer, self.asked.method)?;
                let (length, head_bytes, behind) = (left.length(&answer), answer.buf.len(), input.len() - took);
                self.rest = Bytes::from(std::mem::take(input)).split_off(took);
                self.state = State::Body(left);
                Ok(Some(Event::Head(ResponseStart { answer, head_bytes, length, behind })))
            }
            State::Body(left) => {
                let mut piece = std::mem::take(&mut self.rest);
                if piece.is_empty() {
                    piece = Bytes::from(std::mem::take(input));
                }
                let more = left.take(&mut piece);
                let whole = *left == BodyRest::Bytes(0);
                if more {
                    self.state = State::Excess;
                }
                if !piece.is_empty() {
                    return Ok(Some(Event::Body(piece)));
                }
                Ok(whole.then(|| self.end(more.then_some(MORE_THAN_ANNOUNCED))))
            }
            State::Excess => Ok(Some(self.end(Some(MORE_THAN_ANNOUNCED)))),
            State::Ended => Ok(None),
        }
    }
    fn closed(&mut self) -> Result<Option<ResponseEnd>, MalformedResponse> {
        Ok(matches!(self.state, State::Body(BodyRest::Open | BodyRest::Nothing | BodyRest::Bytes(0)))
            .then(ResponseEnd::default))
    }
    fn is_reusable(&self) -> bool {
        false
    }
}
