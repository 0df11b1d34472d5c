//! HTTP/2 client over `wire-h2`. Requests are kept in the order of their streams, which is the engine's order.

use std::collections::VecDeque;

use bytes::Bytes;
use figures::rng::Rng;
use http_types::{List, Method};
use wire_h2::{Client, ClientEvent, ClientLimits};

use super::grpc::GrpcAnswer;
use super::malformed::quote_line;
use super::{ClientProtocol, EncodedRequest, Event, ProtocolStep, ResponseSummary};
use crate::engine::failure::LoadFailure;
use crate::engine::grpc::split_message;
use crate::engine::job::Job;
use crate::engine::request::PreparedRequest;
use crate::engine::session::SessionVariables;

/// Streams before the server's SETTINGS (RFC 9113, 6.5.2 recommends at least 100).
const UNSETTLED_MAX: usize = 100;
/// Kept bytes of inspected bodies at most.
const BODY_MAX: usize = 64 * 1024 * 1024;

pub struct H2 {
    client: Client,
    /// Unanswered requests, oldest first.
    lanes: VecDeque<Lane>,
    /// Failure of the connection, reported after earlier events.
    broken: Option<LoadFailure>,
    /// Why the connection failed.
    complaint: Option<String>,
    more: bool,
    streams_max: usize,
    /// Head of the last answer; of a call, the text of its status.
    head: Vec<u8>,
    body: Vec<u8>,
    /// Nanoseconds between the messages of a call; 0: all at once.
    interval: u64,
}

#[derive(Debug)]
pub struct H2Settings {
    interval: u64,
    limits: ClientLimits,
    /// The server's limit of streams on earlier connections, so that new ones need not wait for SETTINGS.
    learned: Option<usize>,
}

struct Lane {
    stream: u32,
    status: u16,
    method: Method,
    wants_head: bool,
    answered: bool,
    body: u64,
    overhead: u64,
    /// Declared content length.
    promised: Option<u64>,
    /// Unsent request body, and the response body if inspected.
    unsent: Vec<u8>,
    /// Messages of a call that wait for their time, and the time of the next (0: not yet known).
    later: Bytes,
    next: u64,
    grpc: Option<GrpcAnswer>,
    kept: Option<Vec<u8>>,
    head: Vec<u8>,
}

fn status(value: &[u8]) -> Option<u16> {
    std::str::from_utf8(value).ok().filter(|v| v.len() == 3)?.parse().ok()
}

impl H2 {
    fn lane(&self, stream: u32) -> Option<usize> {
        match self.lanes.front() {
            Some(front) if front.stream == stream => Some(0),
            _ => self.lanes.binary_search_by_key(&stream, |lane| lane.stream).ok(),
        }
    }

    /// Takes in a head. False: it is interim, or the first message of a call is what begins the answer.
    fn begin(&mut self, lane: usize, list: &List, octets: usize, end: bool) -> Result<bool, LoadFailure> {
        let Some(request) = self.lanes.get_mut(lane) else { return Ok(false) };
        request.overhead += octets as u64;
        let first = list.iter().next().filter(|(name, _)| *name == b":status");
        let code = first.and_then(|(_, value)| status(value)).ok_or(LoadFailure::Protocol)?;
        if (100..200).contains(&code) {
            return Ok(false);
        }
        (request.status, request.answered) = (code, true);
        for (name, value) in list.iter() {
            if name == b"content-length" {
                let length = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
                request.promised = Some(length.ok_or(LoadFailure::Protocol)?);
            }
        }
        if request.method == Method::Head || code == 304 {
            request.promised = None;
        }
        if request.wants_head {
            request.head.extend_from_slice(b"HTTP/2\n");
            for (name, value) in list.iter().skip(1) {
                [name, b": ", value, b"\n"].iter().for_each(|part| request.head.extend_from_slice(part));
            }
        }
        match &mut request.grpc {
            // An answer without a body has its trailers in the head.
            Some(answer) => answer.take_fields(list).map(|()| end),
            None => Ok(true),
        }
    }

    fn finish(&mut self, lane: usize) -> Event {
        let Some(request) = self.lanes.remove(lane) else { return Event::More };
        self.client.forget(request.stream);
        if request.promised.is_some_and(|length| length != request.body) {
            return Event::Failed { lane, class: LoadFailure::Truncated, code: None };
        }
        let grpc = match request.grpc.map(|answer| answer.finish(request.status)).transpose() {
            Ok(end) => end,
            Err(class) => return Event::Failed { lane, class, code: None },
        };
        self.head = request.head;
        let grpc = grpc.map(|(end, text)| {
            self.head = text;
            end
        });
        self.body = request.kept.unwrap_or_default();
        Event::Answer(ResponseSummary {
            lane,
            status: request.status,
            grpc,
            body: request.body,
            overhead: request.overhead,
            reusable: !self.client.is_going() || !self.lanes.is_empty(),
        })
    }

    fn drop_lane(&mut self, lane: usize) {
        if let Some(request) = self.lanes.remove(lane) {
            self.client.forget(request.stream);
        }
    }

    fn malformed(&mut self, lane: usize) -> Event {
        self.drop_lane(lane);
        Event::Failed { lane, class: LoadFailure::Protocol, code: None }
    }

    fn send_rest(&mut self, lane: usize) {
        if let Some(request) = self.lanes.get_mut(lane) {
            let sent = self.client.send_body(request.stream, &request.unsent, request.later.is_empty());
            request.unsent.drain(..sent);
        }
    }

    /// Translates a core event; `None` if irrelevant to the engine.
    fn translate(&mut self, event: ClientEvent) -> Option<Event> {
        match event {
            ClientEvent::Head { stream, list, end, octets } => {
                let lane = self.lane(stream)?;
                match self.begin(lane, &list, octets, end) {
                    Ok(false) => None,
                    Ok(true) if end => Some(self.finish(lane)),
                    Ok(true) => Some(Event::Began { lane }),
                    Err(_) => Some(self.malformed(lane)),
                }
            }
            ClientEvent::Body { stream, bytes, end, octets } => {
                self.client.consumed(stream, bytes.len());
                let lane = self.lane(stream)?;
                let request = self.lanes.get_mut(lane)?;
                if let Some(kept) = &mut request.kept
                    && kept.len() < BODY_MAX
                {
                    kept.extend_from_slice(&bytes);
                }
                let (before, after) = match &mut request.grpc {
                    None => (1, Ok(1)),
                    Some(answer) => (answer.messages(), answer.take_body(&bytes)),
                };
                match after {
                    Err(_) => Some(self.malformed(lane)),
                    Ok(messages) => {
                        let began = (before == 0 && messages > 0).then_some(Event::Began { lane });
                        self.grown(lane, bytes.len(), octets, end).or(began)
                    }
                }
            }
            ClientEvent::Counted { stream, length, end, octets } => {
                let lane = self.lane(stream)?;
                self.grown(lane, length, octets, end)
            }
            ClientEvent::Trailers { stream, octets, list } => {
                let lane = self.lane(stream)?;
                if let Some(answer) = &mut self.lanes.get_mut(lane)?.grpc
                    && answer.take_fields(&list).is_err()
                {
                    return Some(self.malformed(lane));
                }
                self.grown(lane, 0, octets, true)
            }
            ClientEvent::Reset { stream, unprocessed, code } => {
                let lane = self.lane(stream)?;
                self.drop_lane(lane);
                Some(match unprocessed {
                    true => Event::Unprocessed { lane },
                    false => {
                        let code = Some(u16::try_from(code).unwrap_or(u16::MAX));
                        Event::Failed { lane, class: LoadFailure::StreamReset, code }
                    }
                })
            }
            ClientEvent::Capacity(stream) => {
                let lane = self.lane(stream)?;
                self.send_rest(lane);
                None
            }
            ClientEvent::Goaway => Some(Event::Room),
        }
    }

    fn grown(&mut self, lane: usize, length: usize, octets: usize, end: bool) -> Option<Event> {
        let request = self.lanes.get_mut(lane)?;
        request.body += length as u64;
        request.overhead += octets.saturating_sub(length) as u64;
        if end { Some(self.finish(lane)) } else { None }
    }
}

impl ClientProtocol for H2 {
    type Shared = H2Settings;

    const NAME: &'static [u8] = b"h2";
    const MULTIPLEXED: bool = true;

    fn shared(job: &Job, requests: &[PreparedRequest]) -> Result<H2Settings, String> {
        let own = job.http2.clone().unwrap_or_default();
        let limits = ClientLimits {
            streams_max: job.pipeline.max(1),
            stream_window: own.stream_window,
            connection_window: own.connection_window,
            table: own.table,
            // Messages of calls are counted.
            count_bodies: job.grpc.is_none() && !requests.iter().any(PreparedRequest::wants_body),
            ..ClientLimits::default()
        };
        let interval = job.grpc.as_ref().map_or(0, |grpc| (grpc.interval * 1e9) as u64);
        Ok(H2Settings { interval, limits, learned: None })
    }

    fn new(shared: &H2Settings) -> Self {
        H2 {
            client: Client::new(shared.limits),
            lanes: VecDeque::new(),
            broken: None,
            complaint: None,
            more: false,
            streams_max: shared.learned.unwrap_or(UNSETTLED_MAX),
            head: Vec::new(),
            body: Vec::new(),
            interval: shared.interval,
        }
    }

    fn has_room(&self) -> bool {
        self.client.has_room() && (self.client.is_settled() || self.lanes.len() < self.streams_max)
    }
    fn is_settled(&self) -> bool {
        self.client.is_settled()
    }
    fn is_going(&self) -> bool {
        self.client.is_going()
    }
    fn output(&self) -> &[u8] {
        self.client.output()
    }
    fn advance(&mut self, count: usize) {
        self.client.advance(count);
    }
    fn deadline(&mut self) -> Option<u64> {
        if self.interval == 0 {
            return None;
        }
        // A call that has just begun learns the time with its first call of `expire`.
        self.lanes.iter().filter(|lane| !lane.later.is_empty()).map(|lane| lane.next.max(1)).min()
    }
    fn expire(&mut self, now: u64) {
        for lane in 0..self.lanes.len() {
            let Some(request) = self.lanes.get_mut(lane).filter(|lane| !lane.later.is_empty()) else { continue };
            if request.next == 0 {
                request.next = now + self.interval;
                continue;
            }
            while request.next <= now && !request.later.is_empty() {
                let length = split_message(&request.later).0.len();
                request.unsent.extend_from_slice(&request.later.split_to(length));
                request.next += self.interval;
            }
            self.send_rest(lane);
        }
    }
    fn cancel(&mut self, lane: usize) -> bool {
        self.drop_lane(lane);
        true
    }
    fn take_body(&mut self, body: &mut Vec<u8>) {
        std::mem::swap(body, &mut self.body);
        self.body.clear();
    }

    fn submit<'a>(
        &mut self,
        request: &'a PreparedRequest,
        sequence: u64,
        variables: &SessionVariables,
        rng: &mut Rng,
        _: &mut Vec<u8>,
    ) -> EncodedRequest<'a> {
        let (mut own_block, mut own_body) = (Vec::new(), Vec::new());
        let (block, body) = match request.constant_streamed() {
            Some(both) => both,
            None => {
                if !request.write_streamed(sequence, variables, rng, &mut own_block, &mut own_body) {
                    return EncodedRequest::Unsendable;
                }
                (own_block.as_slice(), own_body.as_slice())
            }
        };
        // The engine has checked for room; if there is none, the lane is never answered.
        let stream = self.client.open(block, body.is_empty()).unwrap_or(u32::MAX);
        let (now, later) = if self.interval > 0 && request.is_grpc() { split_message(body) } else { (body, &[][..]) };
        let sent = if now.is_empty() { 0 } else { self.client.send_body(stream, now, later.is_empty()) };
        self.lanes.push_back(Lane {
            stream,
            status: 0,
            method: request.method,
            wants_head: request.wants_head(),
            answered: false,
            body: 0,
            overhead: 0,
            promised: None,
            unsent: now.get(sent..).unwrap_or_default().to_vec(),
            later: Bytes::copy_from_slice(later),
            next: 0,
            grpc: request.is_grpc().then(GrpcAnswer::default),
            kept: request.wants_body().then(Vec::new),
            head: Vec::new(),
        });
        EncodedRequest::Kept
    }

    fn head(&self) -> &[u8] {
        &self.head
    }

    fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    fn receive(&mut self, input: &[u8], shared: &mut H2Settings) -> Result<ProtocolStep, LoadFailure> {
        if !input.is_empty() && self.broken.is_none() {
            let settled = self.client.is_settled();
            if let Err(error) = self.client.receive(input) {
                self.broken = Some(LoadFailure::Protocol);
                self.complaint = Some(match settled {
                    true => error.words.into(),
                    false => format!("it begins with {}, not with SETTINGS", quote_line(input)),
                });
            }
            self.more = true;
            if !settled && self.client.is_settled() {
                shared.learned = Some(self.client.streams_max());
                return Ok(ProtocolStep { consumed: input.len(), event: Event::Room });
            }
        }
        while let Some(event) = self.client.poll_event() {
            if let Some(event) = self.translate(event) {
                return Ok(ProtocolStep { consumed: input.len(), event });
            }
        }
        self.more = false;
        match self.broken {
            Some(class) => Err(class),
            None => Ok(ProtocolStep { consumed: input.len(), event: Event::More }),
        }
    }

    #[inline]
    fn is_due(&self) -> bool {
        self.more
    }

    fn end_of_input(&mut self) -> Result<Option<ResponseSummary>, LoadFailure> {
        if self.lanes.is_empty() {
            return Ok(None);
        }
        match self.lanes.iter().any(|lane| lane.answered) {
            true => Err(LoadFailure::Truncated),
            false => Err(LoadFailure::ClosedEarly),
        }
    }

    fn skippable(&self) -> u64 {
        0
    }
    fn skip(&mut self, _: u64) -> Event {
        Event::More
    }
}
