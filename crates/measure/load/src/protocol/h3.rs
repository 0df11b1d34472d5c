//! HTTP/3 client over `wire-h3` and quinn-proto: a QUIC connection with its handshake and timers. The engine carries its
//! datagrams. Requests are kept in the order of their streams, which is the engine's order.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use figures::rng::Rng;
use http_types::{List, TakenLines};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, TransportConfig, VarInt};
use wire_h3::client::{Client, ClientEvent, ClientLimits};

use super::{ClientProtocol, EncodedRequest, Event, ProtocolStep, ResponseSummary};
use crate::engine::failure::LoadFailure;
use crate::engine::job::Job;
use crate::engine::request::PreparedRequest;
use crate::engine::session::SessionVariables;
use crate::engine::tls;

/// Kept bytes of inspected bodies at most.
const BODY_MAX: usize = 64 * 1024 * 1024;
/// Datagrams of one system call (GSO).
const SEGMENTS_MAX: usize = 10;

pub struct H3 {
    link: Option<Box<QuicLink>>,
    /// Unanswered requests, oldest first.
    lanes: VecDeque<Lane>,
    /// Translates events of the protocol core into events of the engine.
    events: VecDeque<ClientEvent>,
    found: VecDeque<Event>,
    broken: Option<LoadFailure>,
    complaint: Option<String>,
    established: bool,
    /// Requests were sent before the handshake's end.
    early: bool,
    going: bool,
    /// Datagrams or timers have changed the connection; events may be left.
    heard: bool,
    more: bool,
    room: bool,
    output: Vec<u8>,
    /// Sent octets of the output, and the size of its datagrams.
    sent: usize,
    segment: usize,
    head: Vec<u8>,
    body: Vec<u8>,
}

struct QuicLink {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    client: Client,
    peer: SocketAddr,
    base: Instant,
}

pub struct H3Settings {
    config: ClientConfig,
    endpoint: Arc<EndpointConfig>,
    name: String,
    peer: SocketAddr,
    early: bool,
    base: Instant,
}

struct Lane {
    stream: u64,
    status: u16,
    wants_head: bool,
    answered: bool,
    body: u64,
    overhead: u64,
    /// Unsent request body, and the response body if inspected.
    unsent: Vec<u8>,
    kept: Option<Vec<u8>>,
    head: Vec<u8>,
}

impl QuicLink {
    fn instant(&self, now: u64) -> Instant {
        self.base + Duration::from_nanos(now)
    }
}

impl H3 {
    fn lane(&self, stream: u64) -> Option<usize> {
        match self.lanes.front() {
            Some(front) if front.stream == stream => Some(0),
            _ => self.lanes.binary_search_by_key(&stream, |lane| lane.stream).ok(),
        }
    }

    /// Handles the events that datagrams and timers caused.
    fn drive(&mut self) {
        let Some(link) = &mut self.link else { return };
        link.client.drive();
        while let Some(event) = link.client.poll_event() {
            self.events.push_back(event);
        }
        if let Some(error) = link.client.failure() {
            self.complaint = Some(error.words.into());
            self.broken = Some(LoadFailure::Protocol);
        }
        if self.broken.is_some() || self.events.iter().any(|event| matches!(event, ClientEvent::Lost(_))) {
            // The loss of the connection resets its streams, too.
            self.events.retain(|event| !matches!(event, ClientEvent::Reset { .. }));
        }
        let had_room = self.room;
        self.look_for_room();
        if self.room && !had_room {
            self.found.push_back(Event::Room);
        }
    }

    fn look_for_room(&mut self) {
        let open = self.established && !self.going;
        self.room = open && self.link.as_mut().is_some_and(|link| link.client.reserve());
    }

    fn translate(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Connected { early_accepted } => {
                self.established = true;
                self.look_for_room();
                if self.early && !early_accepted {
                    self.complaint = Some("the server refused early data (0-RTT)".into());
                    (self.going, self.room) = (true, false);
                    self.unprocessed(0);
                }
            }
            ClientEvent::Head { stream, status, list, octets } => {
                let Some(lane) = self.lane(stream) else { return };
                let Some(request) = self.lanes.get_mut(lane) else { return };
                request.overhead += octets as u64;
                if status >= 200 {
                    request.begin(status, &list);
                    self.found.push_back(Event::Began { lane });
                }
            }
            ClientEvent::Body(stream) => self.read(stream),
            ClientEvent::Reset { stream, code } => {
                let Some(lane) = self.lane(stream) else { return };
                self.lanes.remove(lane);
                // H3_REQUEST_REJECTED (RFC 9114, 8.1)
                self.found.push_back(match code {
                    0x10b => Event::Unprocessed { lane },
                    _ => {
                        let code = Some(u16::try_from(code).unwrap_or(u16::MAX));
                        Event::Failed { lane, class: LoadFailure::StreamReset, code }
                    }
                });
            }
            ClientEvent::Capacity(stream) => {
                if let Some(lane) = self.lane(stream) {
                    self.send_rest(lane);
                }
            }
            ClientEvent::Goaway(from) => {
                (self.going, self.room) = (true, false);
                self.unprocessed(from);
                self.found.push_back(Event::Room);
            }
            ClientEvent::Lost(why) => {
                self.broken.get_or_insert(match self.established {
                    false => LoadFailure::Tls,
                    true if self.lanes.iter().any(|lane| lane.answered) => LoadFailure::Truncated,
                    true => LoadFailure::ClosedEarly,
                });
                self.complaint.get_or_insert(why);
            }
            ClientEvent::Settings(_) | ClientEvent::Trailers { .. } => {}
        }
    }

    /// Returns requests from stream `from` on, last first: removal must not shift other lanes.
    fn unprocessed(&mut self, from: u64) {
        while let Some(last) = self.lanes.back().filter(|lane| lane.stream >= from).map(|lane| lane.stream) {
            self.lanes.pop_back();
            if let Some(link) = &mut self.link {
                link.client.cancel(last);
            }
            self.found.push_back(Event::Unprocessed { lane: self.lanes.len() });
        }
    }

    fn read(&mut self, stream: u64) {
        let Some(lane) = self.lane(stream) else { return };
        let (Some(link), Some(request)) = (&mut self.link, self.lanes.get_mut(lane)) else { return };
        loop {
            match link.client.take_body(stream) {
                TakenLines::Bytes(bytes) => {
                    request.body += bytes.len() as u64;
                    if let Some(kept) = &mut request.kept
                        && kept.len() < BODY_MAX
                    {
                        kept.extend_from_slice(&bytes);
                    }
                }
                TakenLines::Later => return,
                // The report of the reset or of the broken connection follows.
                TakenLines::Gone => return,
                TakenLines::Broken => {
                    self.lanes.remove(lane);
                    return self.found.push_back(Event::Failed { lane, class: LoadFailure::Truncated, code: None });
                }
                TakenLines::End => return self.finish(lane),
            }
        }
    }

    fn finish(&mut self, lane: usize) {
        let Some(request) = self.lanes.remove(lane) else { return };
        self.head = request.head;
        self.body = request.kept.unwrap_or_default();
        self.found.push_back(Event::Answer(ResponseSummary {
            lane,
            status: request.status,
            grpc: None,
            body: request.body,
            overhead: request.overhead,
            reusable: !self.going || !self.lanes.is_empty(),
        }));
    }

    fn send_rest(&mut self, lane: usize) {
        if let (Some(link), Some(request)) = (&mut self.link, self.lanes.get_mut(lane)) {
            let sent = link.client.send_body(request.stream, &request.unsent, true);
            request.unsent.drain(..sent);
        }
    }
}

impl Lane {
    fn begin(&mut self, status: u16, list: &List) {
        (self.status, self.answered) = (status, true);
        if self.wants_head {
            self.head.extend_from_slice(b"HTTP/3\n");
            for (name, value) in list.iter().skip(1) {
                [name, b": ", value, b"\n"].iter().for_each(|part| self.head.extend_from_slice(part));
            }
        }
    }
}

impl ClientProtocol for H3 {
    type Shared = H3Settings;

    const NAME: &'static [u8] = b"h3";
    const MULTIPLEXED: bool = true;
    const DATAGRAMS: bool = true;

    fn shared(job: &Job, _: &[PreparedRequest]) -> Result<H3Settings, String> {
        let own = job.http3.clone().unwrap_or_default();
        let spec = job.target.tls.clone().unwrap_or_default();
        let mut crypto = (*tls::client_config(&spec, &job.target.host, &[Self::NAME])?.config).clone();
        crypto.enable_early_data = own.early_data;
        let crypto = QuicClientConfig::try_from(crypto)
            .map_err(|_| "HTTP/3 needs the cipher suite TLS_AES_128_GCM_SHA256".to_string())?;
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(VarInt::from_u32(own.stream_window));
        transport.receive_window(VarInt::from_u32(own.connection_window));
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        Ok(H3Settings {
            config,
            endpoint: Arc::new(EndpointConfig::default()),
            name: job.target.host.clone(),
            peer: job.target.address,
            early: own.early_data,
            base: Instant::now(),
        })
    }

    fn new(_: &H3Settings) -> Self {
        H3 {
            link: None,
            lanes: VecDeque::new(),
            events: VecDeque::new(),
            found: VecDeque::new(),
            broken: None,
            complaint: None,
            established: false,
            early: false,
            going: false,
            heard: false,
            more: false,
            room: false,
            output: Vec::new(),
            sent: 0,
            segment: 0,
            head: Vec::new(),
            body: Vec::new(),
        }
    }

    fn begin(&mut self, shared: &mut H3Settings, now: u64) -> Result<(), LoadFailure> {
        let mut endpoint = Endpoint::new(shared.endpoint.clone(), None, true, None);
        let at = shared.base + Duration::from_nanos(now);
        let connected = endpoint.connect(at, shared.config.clone(), shared.peer, &shared.name);
        let (handle, quic) = connected.map_err(|why| {
            self.complaint = Some(why.to_string());
            LoadFailure::Tls
        })?;
        self.early = shared.early && quic.has_0rtt();
        self.established = self.early;
        let client = Client::new(quic, ClientLimits::default());
        self.link = Some(Box::new(QuicLink { endpoint, handle, client, peer: shared.peer, base: shared.base }));
        self.look_for_room();
        Ok(())
    }

    fn is_established(&self) -> bool {
        self.established
    }

    fn take_in(&mut self, datagram: &[u8], now: u64) {
        let Some(link) = &mut self.link else { return };
        let (at, mut reply) = (link.instant(now), Vec::new());
        let event = link.endpoint.handle(at, link.peer, None, None, BytesMut::from(datagram), &mut reply);
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            link.client.quic().handle_event(event);
            (self.heard, self.more) = (true, true);
        }
    }

    fn next_datagrams(&mut self, now: u64) -> usize {
        let Some(link) = self.link.as_mut().filter(|_| self.output.is_empty()) else { return self.segment };
        let at = link.instant(now);
        let quic = link.client.quic();
        while let Some(event) = quic.poll_endpoint_events() {
            if let Some(event) = link.endpoint.handle_event(link.handle, event) {
                quic.handle_event(event);
            }
        }
        if let Some(transmit) = quic.poll_transmit(at, SEGMENTS_MAX, &mut self.output) {
            self.output.truncate(transmit.size);
            self.segment = transmit.segment_size.unwrap_or(transmit.size);
        }
        self.segment
    }

    fn deadline(&mut self) -> Option<u64> {
        let link = self.link.as_mut()?;
        let at = link.client.quic().poll_timeout()?;
        Some(at.saturating_duration_since(link.base).as_nanos() as u64)
    }

    fn expire(&mut self, now: u64) {
        let Some(link) = &mut self.link else { return };
        let at = link.instant(now);
        link.client.quic().handle_timeout(at);
        (self.heard, self.more) = (true, true);
    }

    fn close(&mut self, now: u64) {
        let Some(link) = &mut self.link else { return };
        let at = link.instant(now);
        link.client.close(at);
    }

    fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    fn has_room(&self) -> bool {
        self.room
    }
    fn is_settled(&self) -> bool {
        self.established
    }
    fn is_going(&self) -> bool {
        self.going
    }
    fn output(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or_default()
    }
    fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }
    fn cancel(&mut self, lane: usize) -> bool {
        if let (Some(link), Some(request)) = (&mut self.link, self.lanes.remove(lane)) {
            link.client.cancel(request.stream);
        }
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
        let Some(link) = &mut self.link else { return EncodedRequest::Kept };
        let (mut own_section, mut own_body) = (Vec::new(), Vec::new());
        let (section, body) = match request.constant_streamed() {
            Some(both) => both,
            None => {
                request.write_streamed(sequence, variables, rng, &mut own_section, &mut own_body);
                (own_section.as_slice(), own_body.as_slice())
            }
        };
        // The engine has checked for room; if there is none, the lane is never answered.
        let stream = link.client.open_encoded(section, body.is_empty()).unwrap_or(u64::MAX);
        let sent = if body.is_empty() { 0 } else { link.client.send_body(stream, body, true) };
        self.lanes.push_back(Lane {
            stream,
            status: 0,
            wants_head: request.wants_head(),
            answered: false,
            body: 0,
            overhead: 0,
            unsent: body.get(sent..).unwrap_or_default().to_vec(),
            kept: request.wants_body().then(Vec::new),
            head: Vec::new(),
        });
        self.look_for_room();
        EncodedRequest::Kept
    }

    fn head(&self) -> &[u8] {
        &self.head
    }

    fn receive(&mut self, input: &[u8], _: &mut H3Settings) -> Result<ProtocolStep, LoadFailure> {
        let step = |event| Ok(ProtocolStep { consumed: input.len(), event });
        if std::mem::take(&mut self.heard) {
            self.drive();
        }
        loop {
            if let Some(event) = self.found.pop_front() {
                return step(event);
            }
            // One by one: an answer's head and body are taken before the next.
            let Some(event) = self.events.pop_front() else { break };
            self.translate(event);
        }
        self.more = false;
        match self.broken {
            Some(class) => Err(class),
            None => step(Event::More),
        }
    }

    #[inline]
    fn is_due(&self) -> bool {
        self.more
    }

    fn end_of_input(&mut self) -> Result<Option<ResponseSummary>, LoadFailure> {
        Ok(None)
    }

    fn skippable(&self) -> u64 {
        0
    }
    fn skip(&mut self, _: u64) -> Event {
        Event::More
    }
}
