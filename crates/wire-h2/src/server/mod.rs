//! The server's side of one connection: its state, its bounds, and the bodies of its requests. What comes in is in
//! `receive.rs`, what goes out in `send.rs`; `edge.rs` is what drivers of any protocol know.

mod edge;
mod receive;
mod send;

use crate::frame::{self, ErrorCode};
use crate::hpack::{Decoder, Encoder};
use crate::priority::{Priorities, Priority};
use crate::stream::{ByStream, Stream};
use http_types::{Event, Rank, Taken};
use std::collections::VecDeque;

/// What a client sends first (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bounds on what a client may ask of us.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Streams at a time (`http2_max_concurrent_streams`).
    pub streams_max: u32,
    /// Octets of names and values of a request (nginx: all of `large_client_header_buffers`).
    pub list_max: usize,
    /// Octets of one name and value (nginx: one of them).
    pub field_max: usize,
    /// `max_headers`
    pub fields_max: usize,
    pub underscores: bool,
    pub ignore_invalid: bool,
    /// Octets of a request's body that a client may send before anybody reads it (`http2_body_preread_size`).
    pub stream_window: u32,
    /// Whether it may ask for other protocols in streams (RFC 8441).
    pub extended_connect: bool,
}

impl Default for Limits {
    /// nginx's defaults.
    fn default() -> Self {
        Limits {
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

/// Octets of a frame: a list of large fields may come in one (nginx allows 16 MB, and so do clients that know it). It is what a
/// connection keeps of a frame that is cut off.
pub(super) const FRAME_MAX: usize = 128 * 1024;

/// Streams that we have reset and that are remembered: frames that were on their way are no error.
const RESET_KEPT: usize = 64;

/// What a body that is read may have on its way beside `stream_window`, at least.
const READ_WINDOW: i64 = 65_536;

/// The connection cannot go on; GOAWAY is in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    pub code: ErrorCode,
    /// For the error log.
    pub words: &'static str,
}

/// A header block that is coming.
struct Block {
    stream: u32,
    bytes: Vec<u8>,
    end_stream: bool,
    continuations: u32,
}

/// One connection, as a server has it.
pub struct Server {
    limits: Limits,
    preface: usize,
    /// The beginning of a frame of which the rest has not come.
    pending: Vec<u8>,
    /// What has not come of a large DATA frame.
    rest_of_data: Option<frame::Head>,
    block: Option<Block>,
    decoder: Decoder,
    encoder: Encoder,
    streams: ByStream<Stream>,
    /// The highest stream that the client has begun.
    last: u32,
    settings_acked: bool,
    send_window: i64,
    recv_window: i64,
    peer_window: i64,
    peer_frame: usize,
    events: VecDeque<Event>,
    out: Vec<u8>,
    out_start: usize,
    /// Places in the output where a write of its own begins.
    breaks: VecDeque<usize>,
    reset: VecDeque<u32>,
    /// The last stream whose head took too long; it may still come.
    given_up: Option<u32>,
    /// What the client has said of the order of its streams; most say nothing.
    priorities: Option<Box<Priorities>>,
    idle_frames: u64,
    resets: u64,
    answered: u64,
    sent: u64,
    /// Octets of whole frames that have come, and those among them that brought something: header blocks and bodies.
    received: u64,
    payload: u64,
    going: bool,
    failed: bool,
}

impl Server {
    pub fn new(limits: Limits) -> Server {
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
        // The connection's window is as wide as it can be: streams have their own.
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
            breaks: VecDeque::new(),
            reset: VecDeque::new(),
            given_up: None,
            priorities: None,
            idle_frames: 0,
            resets: 0,
            answered: 0,
            sent: 0,
            received: 0,
            payload: 0,
            going: false,
            failed: false,
        }
    }

    /// The stream of an HTTP/1.1 request that asked for HTTP/2 (`Upgrade: h2c`) is stream 1; it has no body. `settings`: the payload of the
    /// SETTINGS frame that it brought, which is not acknowledged (RFC 7540, 3.2.1).
    ///
    /// # Errors
    /// As [`Server::receive`].
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

    /// Octets to be sent with one write; there may be more for the next.
    pub fn output(&self) -> &[u8] {
        let end = self.breaks.front().copied().unwrap_or(self.out.len());
        self.out.get(self.out_start..end).unwrap_or_default()
    }
    /// Octets that wait to be sent, in all.
    pub fn unsent(&self) -> usize {
        self.out.len() - self.out_start
    }
    /// What follows is sent with a write of its own.
    fn break_output(&mut self) {
        if self.unsent() > 0 && self.breaks.back() != Some(&self.out.len()) {
            self.breaks.push_back(self.out.len());
        }
    }
    /// So many of them were sent.
    pub fn advance(&mut self, n: usize) {
        self.out_start += n;
        self.sent += n as u64;
        while self.breaks.front().is_some_and(|at| *at <= self.out_start) {
            self.breaks.pop_front();
        }
        if self.out_start >= self.out.len() {
            self.out.clear();
            self.out_start = 0;
        }
    }
    /// Gives buffers back: the connection is idle.
    pub fn shrink(&mut self) {
        if self.out.is_empty() {
            self.out = Vec::new();
        }
        self.pending.shrink_to_fit();
        self.streams.shrink_to(8);
    }
    /// Nothing is asked for at the moment.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }
    /// The preface or a header block has begun to come.
    pub fn is_within_head(&self) -> bool {
        // One that was given up takes what time it wants.
        let counts = |stream: u32| !self.reset.contains(&stream);
        let is_head =
            |head: frame::Head| matches!(head.kind, frame::HEADERS | frame::CONTINUATION) && counts(head.stream);
        self.block.as_ref().is_some_and(|block| counts(block.stream))
            || self.preface < PREFACE.len()
            || frame::Head::read(&self.pending).map_or(!self.pending.is_empty(), is_head)
    }
    /// Streams that are open.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }
    /// Extended CONNECT was offered.
    pub fn offers_connect(&self) -> bool {
        self.limits.extended_connect
    }
    /// The client has sent what it must send first.
    pub fn has_preface(&self) -> bool {
        self.preface >= PREFACE.len()
    }
    /// The client has begun a stream, whatever became of it.
    pub fn has_begun(&self) -> bool {
        self.last > 0
    }
    /// Requests that were answered to their end.
    pub fn answered(&self) -> u64 {
        self.answered
    }
    /// No more streams are taken.
    pub fn is_going(&self) -> bool {
        self.going
    }

    /// A stream's place among those that wait for the same room; `None`: the client has said nothing of any.
    pub fn rank(&self, id: u32) -> Option<Rank> {
        let priorities = self.priorities.as_ref()?;
        Some(priorities.key(id, self.streams.get(&id).map_or(Priority::default(), |stream| stream.priority)))
    }

    /// A field has said something of a stream's priority.
    fn set_priority(&mut self, id: u32, field: &[u8]) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.priority = stream.priority.with(field);
            self.priorities.get_or_insert_default().spoken();
        }
    }

    /// What has happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next part of a request's body. What is taken is given back to the client's window.
    pub fn take_body(&mut self, id: u32) -> Taken {
        let Some(stream) = self.streams.get_mut(&id) else { return Taken::Gone };
        if stream.promised.is_some_and(|promised| stream.received > promised) {
            return Taken::Broken;
        }
        // Somebody reads: more than what may come unasked for may be on its way.
        if !std::mem::replace(&mut stream.asked, true) && !stream.recv_closed {
            stream.credit += READ_WINDOW.max(i64::from(self.limits.stream_window));
        }
        if let Some(bytes) = stream.body.pop_front() {
            stream.buffered -= bytes.len();
            stream.taken += bytes.len() as u64;
            stream.credit += bytes.len() as i64;
            self.give_credit(id);
            return Taken::Bytes(bytes);
        }
        match stream.recv_closed {
            true if stream.promised.is_some_and(|promised| stream.received != promised) => Taken::Broken,
            true => Taken::End,
            false => {
                self.give_credit(id);
                Taken::Later
            }
        }
    }

    /// Octets of a request's body that were taken.
    pub fn taken(&self, id: u32) -> u64 {
        self.streams.get(&id).map_or(0, |stream| stream.taken)
    }

    /// What a request's `content-length` says; `take_body` holds the client to it.
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
