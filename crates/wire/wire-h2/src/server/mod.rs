//! Server side of a connection: state, bounds, request bodies; `receive.rs` reads frames, `send.rs` writes them,
//! `edge.rs` serves drivers.

mod edge;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use crate::frame::{self, ErrorCode};
use crate::hpack::{Decoder, Encoder};
use crate::priority::Priorities;
use crate::stream::{ByStream, Stream};
use http_types::{Event, Priority, Rank, TakenLines};
use std::collections::VecDeque;

/// Client connection preface (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Limits of a server's connection; they bound its memory.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Concurrent streams (`http2_max_concurrent_streams`).
    pub streams_max: u32,
    /// Octets of names and values per request (nginx: all of `large_client_header_buffers`).
    pub list_max: usize,
    /// Octets of one name and value (nginx: one of them).
    pub field_max: usize,
    /// Number of fields per request (`max_headers`).
    pub fields_max: usize,
    /// Accepts underscores in names (`underscores_in_headers`).
    pub underscores: bool,
    /// Drops fields with invalid names (`ignore_invalid_headers`).
    pub ignore_invalid: bool,
    /// Octets of a request body before it is read (`http2_body_preread_size`).
    pub stream_window: u32,
    /// Allows extended CONNECT (RFC 8441).
    pub extended_connect: bool,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            streams_max: 128,
            list_max: 32 * 1024,
            field_max: 8 * 1024,
            fields_max: 1000,
            underscores: false,
            ignore_invalid: true,
            stream_window: 65_536,
            extended_connect: true,
        }
    }
}

/// Octets of a frame, and of an incomplete one kept: large field lists may come in one (nginx: 16 MB).
pub(super) const FRAME_MAX: usize = 128 * 1024;

/// Remembered reset streams: frames in transit are no error.
const RESET_KEPT: usize = 64;

/// Least receive window of a body being read, besides `stream_window`.
const READ_WINDOW: i64 = 65_536;

/// The connection ends; GOAWAY is in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// Code that GOAWAY carries.
    pub code: ErrorCode,
    /// nginx's message.
    pub words: &'static str,
}

/// Unused octets of the output's memory that a waiting connection keeps.
const OUT_KEPT: usize = 4096;

struct HeaderBlock {
    stream: u32,
    bytes: Vec<u8>,
    end_stream: bool,
    continuations: u32,
}

/// Server side of a connection, without I/O.
///
/// Octets of the client go to [`Server::receive`]; then [`Server::poll_event`] until `None`. After each call that may
/// send, [`Server::output`] is written and removed with [`Server::advance`]. Each stream of an `Event::Head` ends with
/// [`Server::finish`] or [`Server::reset`].
pub struct Server {
    limits: ServerLimits,
    preface: usize,
    pending: Vec<u8>,
    /// Remainder of a large DATA frame.
    rest_of_data: Option<frame::Head>,
    block: Option<HeaderBlock>,
    decoder: Decoder,
    encoder: Encoder,
    streams: ByStream<Stream>,
    last: u32,
    settings_acked: bool,
    send_window: i64,
    recv_window: i64,
    peer_window: i64,
    peer_frame: usize,
    events: VecDeque<Event>,
    out: Vec<u8>,
    out_start: usize,
    /// A stream waits for its window or the connection's since the output was empty.
    stalled: bool,
    /// Offsets in the output at which a separate write starts.
    breaks: VecDeque<usize>,
    reset: VecDeque<u32>,
    /// Last stream whose head took too long; it may still arrive.
    given_up: Option<u32>,
    /// Priorities that the client signalled.
    priorities: Option<Box<Priorities>>,
    idle_frames: u64,
    resets: u64,
    answered: u64,
    sent: u64,
    /// Bodies sent that left their windows open; the client may acknowledge each at once.
    pieces: u64,
    /// Octets of complete frames, and of those with header blocks and bodies.
    received: u64,
    payload: u64,
    going: bool,
    failed: bool,
}

impl Server {
    /// Begins a connection: SETTINGS and the connection's window are in the output.
    pub fn new(limits: ServerLimits) -> Server {
        let mut out = Vec::with_capacity(256);
        let settings = [
            (frame::SETTINGS_MAX_CONCURRENT_STREAMS, limits.streams_max),
            (frame::SETTINGS_INITIAL_WINDOW_SIZE, limits.stream_window),
            (frame::SETTINGS_MAX_FRAME_SIZE, FRAME_MAX as u32),
            (frame::SETTINGS_ENABLE_CONNECT_PROTOCOL, 1),
        ];
        let settings = settings.get(..settings.len() - usize::from(!limits.extended_connect)).unwrap_or_default();
        frame::put_head(settings.len() * 6, frame::SETTINGS, 0, 0, &mut out);
        for (name, value) in settings {
            out.extend_from_slice(&name.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        // As wide as possible: streams have their own.
        frame::put_number(frame::WINDOW_UPDATE, 0, (frame::WINDOW_MAX - frame::WINDOW) as u32, &mut out);
        Server {
            limits,
            preface: 0,
            pending: Vec::new(),
            rest_of_data: None,
            block: None,
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            streams: ByStream::default(),
            last: 0,
            settings_acked: false,
            send_window: frame::WINDOW,
            recv_window: frame::WINDOW_MAX,
            peer_window: frame::WINDOW,
            peer_frame: frame::FRAME_SIZE,
            events: VecDeque::new(),
            out,
            out_start: 0,
            stalled: false,
            breaks: VecDeque::new(),
            reset: VecDeque::new(),
            given_up: None,
            priorities: None,
            idle_frames: 0,
            resets: 0,
            answered: 0,
            sent: 0,
            pieces: 0,
            received: 0,
            payload: 0,
            going: false,
            failed: false,
        }
    }

    /// Starts stream 1 for an `Upgrade: h2c` request, without a body. `settings`: payload of its SETTINGS, which is not
    /// acknowledged (RFC 7540, 3.2.1).
    pub fn upgraded(&mut self, settings: &[u8]) -> Result<(), ConnectionError> {
        let result = self.apply(settings);
        if let Err(error) = &result {
            self.failed = true;
            self.goaway(error.code);
        }
        let mut stream = Stream::new(1, self.peer_window, 0);
        stream.recv_closed = true;
        self.streams.insert(1, stream);
        self.last = 1;
        result
    }

    /// Returns octets for one write; more may follow.
    pub fn output(&self) -> &[u8] {
        let end = self.breaks.front().copied().unwrap_or(self.out.len());
        self.out.get(self.out_start..end).unwrap_or_default()
    }
    /// Returns the number of octets to be written.
    pub fn unsent(&self) -> usize {
        self.out.len() - self.out_start
    }
    fn break_output(&mut self) {
        if self.unsent() > 0 && self.breaks.back() != Some(&self.out.len()) {
            self.breaks.push_back(self.out.len());
        }
    }
    /// Removes `n` written octets from the front of the output.
    pub fn advance(&mut self, n: usize) {
        self.sent += n as u64;
        self.out_start += n;
        while self.breaks.front().is_some_and(|at| *at <= self.out_start) {
            self.breaks.pop_front();
        }
        let removed = frame::remove_sent(&mut self.out, &mut self.out_start);
        self.breaks.iter_mut().for_each(|at| *at -= removed);
        // The next octets follow a frame of the client.
        if self.out.is_empty() && std::mem::take(&mut self.stalled) && self.out.capacity() > OUT_KEPT {
            self.out = Vec::new();
        }
    }
    /// Moves octets that the socket does not take to memory of their own size.
    pub fn release_written(&mut self) {
        if self.out.capacity() - self.unsent() > OUT_KEPT {
            let start = std::mem::take(&mut self.out_start);
            self.out = self.out.get(start..).unwrap_or_default().to_vec();
            self.breaks.iter_mut().for_each(|at| *at -= start);
        }
    }
    /// Releases spare memory of an idle connection.
    pub fn shrink(&mut self) {
        if self.out.is_empty() {
            self.out = Vec::new();
        }
        self.pending.shrink_to_fit();
        self.streams.shrink_to(8);
    }
    /// Tells whether no stream is open.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }
    /// Tells whether the preface or a header block is incomplete.
    pub fn is_within_head(&self) -> bool {
        // A given-up block may take any time.
        let counts = |stream: u32| !self.reset.contains(&stream);
        let is_head =
            |head: frame::Head| matches!(head.kind, frame::HEADERS | frame::CONTINUATION) && counts(head.stream);
        self.block.as_ref().is_some_and(|block| counts(block.stream))
            || self.preface < PREFACE.len()
            || frame::Head::read(&self.pending).map_or(!self.pending.is_empty(), is_head)
    }
    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }
    /// Tells whether extended CONNECT is offered.
    pub fn offers_connect(&self) -> bool {
        self.limits.extended_connect
    }
    /// Tells whether the client's preface has arrived.
    pub fn has_preface(&self) -> bool {
        self.preface >= PREFACE.len()
    }
    /// Tells whether a request has begun.
    pub fn has_begun(&self) -> bool {
        self.last > 0
    }
    /// Returns the number of complete responses.
    pub fn answered(&self) -> u64 {
        self.answered
    }
    /// Tells whether GOAWAY was sent.
    pub fn is_going(&self) -> bool {
        self.going
    }

    /// Rank among streams that wait for a window; `None`: no priorities signalled.
    pub fn rank(&self, id: u32) -> Option<Rank> {
        let priorities = self.priorities.as_ref()?;
        Some(priorities.key(id, self.streams.get(&id).map_or(Priority::default(), |stream| stream.priority)))
    }

    fn set_priority(&mut self, id: u32, field: &[u8]) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.priority = stream.priority.with(field);
            self.priorities.get_or_insert_default().spoken();
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Next part of a request body; reopens the client's window.
    pub fn take_body(&mut self, id: u32) -> TakenLines {
        let Some(stream) = self.streams.get_mut(&id) else { return TakenLines::Gone };
        if stream.promised.is_some_and(|promised| stream.received > promised) {
            return TakenLines::Broken;
        }
        // A reader exists: widens the window beyond the unrequested octets.
        if !std::mem::replace(&mut stream.asked, true) && !stream.recv_closed {
            stream.credit += READ_WINDOW.max(i64::from(self.limits.stream_window));
        }
        if let Some(bytes) = stream.body.pop_front() {
            stream.buffered -= bytes.len();
            stream.taken += bytes.len() as u64;
            stream.credit += bytes.len() as i64;
            self.give_credit(id);
            return TakenLines::Bytes(bytes);
        }
        match stream.recv_closed {
            true if stream.promised.is_some_and(|promised| stream.received != promised) => TakenLines::Broken,
            true => TakenLines::End,
            false => {
                self.give_credit(id);
                TakenLines::Later
            }
        }
    }

    /// Consumed octets of a request body.
    pub fn taken(&self, id: u32) -> u64 {
        self.streams.get(&id).map_or(0, |stream| stream.taken)
    }

    /// Sets the declared length of a request body, which `take_body` enforces.
    pub fn promise(&mut self, id: u32, length: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.promised = Some(length);
        }
    }

    fn give_credit(&mut self, id: u32) {
        let least = i64::from(self.limits.stream_window / 2).max(1);
        let Some(stream) = self.streams.get_mut(&id).filter(|s| !s.recv_closed) else { return };
        if stream.credit >= least || (stream.credit > 0 && stream.recv_window <= 0) {
            let more = std::mem::take(&mut stream.credit);
            stream.recv_window += more;
            frame::put_number(frame::WINDOW_UPDATE, id, more as u32, &mut self.out);
        }
    }
}
