//! HTTP/1.1 client with pipelining, over `wire-h1`. Servers repeat their head except for `Date`: [`HeadCache`] keeps
//! the last one, so that equal bytes need no parsing.

use std::collections::VecDeque;

use figures::rng::Rng;
use http_types::{BodyLength, Known, Method, ResponseHead};
use wire_h1::{ChunkedDecoder, HeadLimits, ParseProgress, ResponseParser, Role, response_body, response_keep_alive};

/// Limits of a response's head. A server under test may send more than a server accepts.
const LIMITS: HeadLimits = HeadLimits {
    line_max: 64 * 1024,
    field_max: 1 << 20,
    total_max: 1 << 20,
    fields_max: 10_000,
    underscores: true,
    ignore_invalid: true,
};

use super::malformed::{explain_head, quote_line};
use super::{ClientProtocol, EncodedRequest, Event, ProtocolStep, ResponseSummary};
use crate::engine::failure::LoadFailure;
use crate::engine::job::Job;
use crate::engine::request::PreparedRequest;
use crate::engine::session::SessionVariables;

#[derive(Debug)]
pub struct H1 {
    /// Unanswered requests, oldest first.
    waiting: VecDeque<WaitingRequest>,
    state: H1ReadState,
    partial: Vec<u8>,
    /// Head kept for inspection.
    head: Vec<u8>,
    current: ResponseFacts,
    body: u64,
    overhead: u64,
    /// Why the response is malformed.
    complaint: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct WaitingRequest {
    method: Method,
    wants_body: bool,
    wants_head: bool,
}

#[derive(Debug)]
enum H1ReadState {
    Head,
    Exact(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
}

/// On the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ResponseFacts {
    status: u16,
    length: BodyLength,
    reusable: bool,
}

#[derive(Debug, Default)]
pub struct HeadCache {
    bytes: Vec<u8>,
    /// Position of the `Date` value, which may differ.
    date: Option<(usize, usize)>,
    meaning: Option<(Method, ResponseFacts)>,
    head: ResponseHead,
}

impl HeadCache {
    /// Meaning of the head at the start of `input`, if cached.
    #[inline]
    fn find(&self, input: &[u8], method: Method) -> Option<(usize, ResponseFacts)> {
        let (for_method, meaning) = self.meaning?;
        let head = input.get(..self.bytes.len())?;
        if for_method != method {
            return None;
        }
        let same = match self.date {
            None => head == self.bytes,
            Some((from, to)) => {
                head[..from] == self.bytes[..from]
                    && head[to..] == self.bytes[to..]
                    // A line end would change the head.
                    && head[from..to].iter().all(|b| (b' '..=b'~').contains(b))
            }
        };
        same.then_some((self.bytes.len(), meaning))
    }

    fn remember(&mut self, bytes: &[u8], method: Method, meaning: ResponseFacts) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.date = self.head.fields.first(Known::Date).map(|s| (s.start as usize, s.end as usize));
        self.meaning = Some((method, meaning));
    }
}

impl H1 {
    fn method(&self) -> Method {
        self.waiting.front().map_or(Method::Get, |w| w.method)
    }

    fn wants_body(&self) -> bool {
        self.waiting.front().is_some_and(|w| w.wants_body)
    }

    /// Parses a head: its length and meaning, or `None` when incomplete. Fails with the reason.
    fn parse(bytes: &[u8], method: Method, cache: &mut HeadCache) -> Result<Option<(usize, ResponseFacts)>, String> {
        if let Some(found) = cache.find(bytes, method) {
            return Ok(Some(found));
        }
        let mut head = std::mem::take(&mut cache.head);
        let parsed = ResponseParser::default().parse(bytes, &LIMITS, &mut head);
        let result = match parsed {
            Ok(ParseProgress::Done { consumed }) => response_body(&head, bytes, method).map(|length| {
                let reusable = response_keep_alive(&head, bytes) && length != BodyLength::UntilClose;
                Some((consumed, ResponseFacts { status: head.status, length, reusable }))
            }),
            Ok(ParseProgress::Partial) => Ok(None),
            Err(error) => {
                cache.head = head;
                return Err(explain_head(error, &LIMITS, bytes));
            }
        };
        cache.head = head;
        let result =
            result.map_err(|_| "the fields of its head contradict each other in the length of the body".to_string())?;
        if let Some((consumed, meaning)) = result {
            cache.remember(&bytes[..consumed], method, meaning);
        }
        Ok(result)
    }

    fn keep_head(&mut self, bytes: &[u8]) {
        if self.waiting.front().is_some_and(|w| w.wants_head) {
            self.head.clear();
            self.head.extend_from_slice(bytes);
        }
    }

    fn begin(&mut self, meaning: ResponseFacts, head_length: usize) -> Option<Event> {
        self.current = meaning;
        self.overhead += head_length as u64;
        if (100..200).contains(&meaning.status) && meaning.status != 101 {
            return Some(Event::More);
        }
        match meaning.length {
            BodyLength::None | BodyLength::Exact(0) => return Some(self.answer()),
            BodyLength::Exact(length) => self.state = H1ReadState::Exact(length),
            BodyLength::Chunked => {
                self.state = H1ReadState::Chunked(Box::new(ChunkedDecoder::new(Role::Client)));
            }
            BodyLength::UntilClose => self.state = H1ReadState::UntilClose,
        }
        None
    }

    fn answer(&mut self) -> Event {
        self.state = H1ReadState::Head;
        self.waiting.pop_front();
        let answer = ResponseSummary {
            lane: 0,
            status: self.current.status,
            grpc: None,
            body: self.body,
            overhead: self.overhead,
            reusable: self.current.reusable,
        };
        (self.body, self.overhead) = (0, 0);
        Event::Answer(answer)
    }
}

impl ClientProtocol for H1 {
    type Shared = HeadCache;

    const NAME: &'static [u8] = b"http/1.1";
    const MULTIPLEXED: bool = false;

    fn shared(_: &Job, _: &[PreparedRequest]) -> Result<HeadCache, String> {
        Ok(HeadCache::default())
    }

    fn new(_: &HeadCache) -> Self {
        H1 {
            waiting: VecDeque::new(),
            state: H1ReadState::Head,
            partial: Vec::new(),
            head: Vec::new(),
            current: ResponseFacts { status: 0, length: BodyLength::None, reusable: true },
            body: 0,
            overhead: 0,
            complaint: None,
        }
    }

    fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    #[inline]
    fn submit<'a>(
        &mut self,
        request: &'a PreparedRequest,
        sequence: u64,
        variables: &SessionVariables,
        rng: &mut Rng,
        output: &mut Vec<u8>,
    ) -> EncodedRequest<'a> {
        let (wants_body, wants_head) = (request.wants_body(), request.wants_head());
        self.waiting.push_back(WaitingRequest { method: request.method, wants_body, wants_head });
        match request.constant() {
            Some(bytes) => EncodedRequest::Ready(bytes),
            None => {
                request.write(sequence, variables, rng, output);
                EncodedRequest::Written
            }
        }
    }

    fn head(&self) -> &[u8] {
        &self.head
    }

    fn receive(&mut self, input: &[u8], cache: &mut HeadCache) -> Result<ProtocolStep, LoadFailure> {
        let mut at = 0;
        if let H1ReadState::Head = self.state {
            if self.waiting.is_empty() {
                return Err(self.complain(format!("bytes behind the end of the response: {}", quote_line(input))));
            }
            let method = self.method();
            if self.partial.is_empty() {
                match Self::parse(input, method, cache).map_err(|why| self.complain(why))? {
                    Some((length, meaning)) => {
                        at = length;
                        self.keep_head(&input[..length]);
                        if let Some(event) = self.begin(meaning, length) {
                            return Ok(ProtocolStep { consumed: at, event });
                        }
                    }
                    None => {
                        self.partial.extend_from_slice(input);
                        return Ok(ProtocolStep { consumed: input.len(), event: Event::More });
                    }
                }
            } else {
                let before = self.partial.len();
                self.partial.extend_from_slice(input);
                match Self::parse(&self.partial, method, cache).map_err(|why| self.complain(why))? {
                    Some((length, meaning)) => {
                        // An earlier complete head would have been consumed.
                        at = length.saturating_sub(before);
                        let head = std::mem::take(&mut self.partial);
                        self.keep_head(&head[..length]);
                        if let Some(event) = self.begin(meaning, length) {
                            return Ok(ProtocolStep { consumed: at, event });
                        }
                    }
                    None => return Ok(ProtocolStep { consumed: input.len(), event: Event::More }),
                }
            }
        }
        self.body(&input[at..], at)
    }

    fn end_of_input(&mut self) -> Result<Option<ResponseSummary>, LoadFailure> {
        match self.state {
            H1ReadState::UntilClose => match self.answer() {
                Event::Answer(answer) => Ok(Some(ResponseSummary { reusable: false, ..answer })),
                _ => Ok(None),
            },
            H1ReadState::Head if self.waiting.is_empty() => Ok(None),
            H1ReadState::Head if self.partial.is_empty() => Err(LoadFailure::ClosedEarly),
            _ => Err(LoadFailure::Truncated),
        }
    }

    #[inline]
    fn is_due(&self) -> bool {
        matches!(self.state, H1ReadState::Exact(0))
    }

    #[inline]
    fn skippable(&self) -> u64 {
        match self.state {
            H1ReadState::Exact(left) if !self.wants_body() => left,
            _ => 0,
        }
    }

    fn skip(&mut self, count: u64) -> Event {
        let H1ReadState::Exact(left) = &mut self.state else { return Event::More };
        let count = count.min(*left);
        *left -= count;
        self.body += count;
        if *left == 0 { self.answer() } else { Event::More }
    }
}

impl H1 {
    fn complain(&mut self, why: String) -> LoadFailure {
        self.complaint = Some(why);
        LoadFailure::Protocol
    }

    /// Consumes body bytes; `offset` is the position of `rest` in the caller's input.
    fn body(&mut self, rest: &[u8], offset: usize) -> Result<ProtocolStep, LoadFailure> {
        let wants = self.wants_body();
        match &mut self.state {
            H1ReadState::Head => Ok(ProtocolStep { consumed: offset, event: Event::More }),
            H1ReadState::Exact(left) => {
                let take = (*left).min(rest.len() as u64) as usize;
                *left -= take as u64;
                self.body += take as u64;
                let done = *left == 0;
                let range = offset..offset + take;
                let event = match done {
                    // With `left` at 0 the next call reports the answer, even without input.
                    _ if wants && take > 0 => Event::Body { lane: 0, range },
                    true => self.answer(),
                    false => Event::More,
                };
                Ok(ProtocolStep { consumed: offset + take, event })
            }
            H1ReadState::Chunked(decoder) => {
                let decoded = match decoder.decode(rest) {
                    Ok(decoded) => decoded,
                    Err(_) => return Err(self.complain(format!("an invalid chunk at {}", quote_line(rest)))),
                };
                let length = decoded.data.len();
                self.body += length as u64;
                self.overhead += (decoded.consumed - length) as u64;
                let range = offset + decoded.data.start..offset + decoded.data.end;
                let consumed = offset + decoded.consumed;
                let event = match decoded.done {
                    true => self.answer(),
                    false if wants && length > 0 => Event::Body { lane: 0, range },
                    false => Event::More,
                };
                Ok(ProtocolStep { consumed, event })
            }
            H1ReadState::UntilClose => {
                self.body += rest.len() as u64;
                let event =
                    if wants { Event::Body { lane: 0, range: offset..offset + rest.len() } } else { Event::More };
                Ok(ProtocolStep { consumed: offset + rest.len(), event })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> (H1, HeadCache) {
        let cache = HeadCache::default();
        (H1::new(&cache), cache)
    }
    use crate::engine::request::{Expect, RequestSpec};

    fn request(method: &str, wants_body: bool) -> PreparedRequest {
        let mut spec = RequestSpec::get("/");
        spec.method = method.into();
        spec.expect = Expect { contains: wants_body.then(|| "x".into()), ..Expect::default() };
        PreparedRequest::new(&spec, "h", &[], false).unwrap()
    }

    fn feed(
        h1: &mut H1,
        cache: &mut HeadCache,
        input: &[u8],
        size: usize,
    ) -> Result<(Vec<ResponseSummary>, Vec<u8>), LoadFailure> {
        let (mut answers, mut shown) = (Vec::new(), Vec::new());
        for piece in input.chunks(size) {
            let mut at = 0;
            while at < piece.len() || h1.is_due() {
                let step = h1.receive(&piece[at..], cache)?;
                match step.event {
                    Event::Body { range, .. } => shown.extend_from_slice(&piece[at..][range]),
                    Event::Answer(a) => answers.push(a),
                    Event::More => assert!(step.consumed > 0),
                    other => panic!("{other:?}"),
                }
                at += step.consumed;
            }
        }
        Ok((answers, shown))
    }

    fn submit(h1: &mut H1, method: &str, wants_body: bool) {
        h1.submit(&request(method, wants_body), 0, &SessionVariables::default(), &mut Rng::new(1), &mut Vec::new());
    }

    const TWO: &[u8] = b"HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";

    #[test]
    fn pipelined_answers_in_pieces_of_every_size() {
        for size in 1..=TWO.len() {
            for wants in [false, true] {
                let (mut h1, mut cache) = fresh();
                submit(&mut h1, "GET", wants);
                submit(&mut h1, "GET", wants);
                let (answers, shown) = feed(&mut h1, &mut cache, TWO, size).unwrap();
                assert_eq!(answers.len(), 2, "size {size}");
                assert_eq!((answers[0].status, answers[0].body, answers[0].reusable), (200, 5, true));
                assert_eq!((answers[1].status, answers[1].body), (404, 5));
                assert_eq!(answers.iter().map(|a| a.body + a.overhead).sum::<u64>(), TWO.len() as u64);
                assert_eq!(shown, if wants { b"helloabcde".to_vec() } else { Vec::new() });
                assert_eq!(h1.end_of_input(), Ok(None));
            }
        }
    }

    #[test]
    fn the_cache_sees_through_another_date_and_nothing_else() {
        let head =
            |date: &str, length: u32| format!("HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {length}\r\n\r\n");
        let mut cache = HeadCache::default();
        let first = head("Mon, 01 Jan 2024 00:00:00 GMT", 5);
        assert!(H1::parse(first.as_bytes(), Method::Get, &mut cache).unwrap().is_some());
        let later = head("Mon, 01 Jan 2024 00:00:01 GMT", 5);
        assert!(cache.find(later.as_bytes(), Method::Get).is_some());
        assert!(cache.find(later.as_bytes(), Method::Head).is_none(), "no body after HEAD");
        assert!(cache.find(head("Mon, 01 Jan 2024 00:00:01 GMT", 6).as_bytes(), Method::Get).is_none());
        assert!(cache.find(head("Mon, 01 Jan 20\r\nX: 0:00:01 GMT", 5).as_bytes(), Method::Get).is_none());
        assert!(cache.find(&first.as_bytes()[..20], Method::Get).is_none());
    }

    #[test]
    fn bodiless_and_interim_answers() {
        let (mut h1, mut cache) = fresh();
        submit(&mut h1, "HEAD", false);
        submit(&mut h1, "GET", false);
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 304 Not Modified\r\n\
            Connection: close\r\n\r\n";
        let (answers, _) = feed(&mut h1, &mut cache, bytes, 1000).unwrap();
        assert_eq!((answers[0].status, answers[0].body), (200, 0));
        assert_eq!((answers[1].status, answers[1].reusable), (304, false));
    }

    #[test]
    fn the_end_of_input_completes_or_breaks_an_answer() {
        let end = |bytes: &[u8]| {
            let (mut h1, mut cache) = fresh();
            submit(&mut h1, "GET", false);
            feed(&mut h1, &mut cache, bytes, 7).unwrap();
            h1.end_of_input()
        };
        assert_eq!(end(b""), Err(LoadFailure::ClosedEarly));
        assert_eq!(end(b"HTTP/1.1 200 O"), Err(LoadFailure::Truncated));
        assert_eq!(end(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"), Err(LoadFailure::Truncated));
        let answer = end(b"HTTP/1.0 200 OK\r\n\r\nall of it").unwrap().unwrap();
        assert_eq!((answer.body, answer.reusable), (9, false));
    }

    #[test]
    fn unasked_bytes_and_nonsense_are_failures() {
        let (mut h1, mut cache) = fresh();
        assert_eq!(h1.receive(b"HTTP/1.1 200 OK\r\n\r\n", &mut cache), Err(LoadFailure::Protocol));
        assert_eq!(h1.complaint().unwrap(), "bytes behind the end of the response: `HTTP/1.1 200 OK`");
        let twice = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(LIMITS.total_max));
        for (bytes, reason) in [
            (&b"SSH-2.0-nope\r\n"[..], "it begins with `SSH-2.0-nope`, not"),
            (b"\x15\x03\x01\n", "`\\u{15}\\u{3}\\u{1}`"),
            (twice.as_bytes(), "longer than 1048576 bytes"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "length of the body"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "an invalid chunk at `xyz`"),
        ] {
            let (mut h1, mut cache) = fresh();
            submit(&mut h1, "GET", false);
            assert_eq!(feed(&mut h1, &mut cache, bytes, 4 << 20).unwrap_err(), LoadFailure::Protocol);
            let why = h1.complaint().unwrap();
            assert!(why.contains(reason) && why.len() < 200, "{why}");
        }
    }

    #[test]
    fn skipped_bytes_count() {
        let (mut h1, mut cache) = fresh();
        submit(&mut h1, "GET", false);
        h1.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab", &mut cache).unwrap();
        assert_eq!(h1.skippable(), 98);
        assert_eq!(h1.skip(90), Event::More);
        assert!(matches!(h1.skip(8), Event::Answer(a) if a.body == 100));
    }
}
