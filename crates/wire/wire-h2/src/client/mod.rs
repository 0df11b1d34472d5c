//! Client side of a connection: state, bounds, sending; `receive.rs` reads frames.

mod receive;

use crate::frame::{self, ErrorCode};
use crate::hpack::Decoder;
use crate::server::{ConnectionError, PREFACE};
use base::append::append_bytes;
use bytes::Bytes;
use http_types::List;
use std::collections::{HashMap, VecDeque};

/// Limits of a client's connection; they bound its memory.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Concurrent streams at most, whatever the server allows.
    pub streams_max: usize,
    /// Octets of names and values per response.
    pub list_max: usize,
    /// Octets of one name, and of one value.
    pub field_max: usize,
    /// Number of fields per response.
    pub fields_max: usize,
    /// Unread octets per response: bounds the memory of a stream.
    pub stream_window: u32,
    /// Unread octets over all streams; at least 65,535.
    pub connection_window: u32,
    /// Octets of the server encoder's table.
    pub table: u32,
    /// Counts ([`ClientEvent::Counted`]) and discards bodies; windows reopen at once.
    pub count_bodies: bool,
}

impl Default for ClientLimits {
    fn default() -> Self {
        ClientLimits {
            streams_max: 100,
            list_max: 128 * 1024,
            field_max: 64 * 1024,
            fields_max: 1000,
            stream_window: 256 * 1024,
            // As wide as possible: streams have their own.
            connection_window: frame::WINDOW_MAX as u32,
            // No table: many connections, and short paths to servers.
            table: 0,
            count_bodies: false,
        }
    }
}

/// Event of a client's connection, in the order of the frames.
#[derive(Debug)]
pub enum ClientEvent {
    /// Head, or an interim one, with the octets of its frames. `end`: without a body.
    Head {
        /// The stream.
        stream: u32,
        /// Decoded fields, `:status` among them.
        list: List,
        /// The response has no body.
        end: bool,
        /// Octets of the frames.
        octets: usize,
    },
    /// Part of a body; [`Client::consumed`] reopens the window.
    Body {
        /// The stream.
        stream: u32,
        /// Octets of the body.
        bytes: Bytes,
        /// The body ends with them.
        end: bool,
        /// Octets of the frame.
        octets: usize,
    },
    /// Discarded body octets ([`ClientLimits::count_bodies`]), possibly of several frames.
    Counted {
        /// The stream.
        stream: u32,
        /// Octets of the body.
        length: usize,
        /// The body ends with them.
        end: bool,
        /// Octets of the frames.
        octets: usize,
    },
    /// Trailers, with which the response ends.
    Trailers {
        /// The stream.
        stream: u32,
        /// Decoded fields.
        list: List,
        /// Octets of the frames.
        octets: usize,
    },
    /// The stream ended. `unprocessed`: the server did nothing about the request.
    Reset {
        /// The stream.
        stream: u32,
        /// Error code (RFC 9113, 7).
        code: u32,
        /// Any request may be sent again on another connection.
        unprocessed: bool,
    },
    /// A blocked stream has a window again.
    Capacity(u32),
    /// The server has announced its last stream.
    Goaway,
}

#[derive(Debug)]
struct ClientStream {
    send_window: i64,
    recv_window: i64,
    /// Read octets not yet returned to the window.
    credit: i64,
    send_closed: bool,
    recv_closed: bool,
    answered: bool,
    interim: u32,
    blocked: bool,
}

struct HeaderBlock {
    stream: u32,
    bytes: Vec<u8>,
    end_stream: bool,
    continuations: u32,
    octets: usize,
}

/// Client side of a connection, without I/O.
///
/// Octets of the server go to [`Client::receive`]; then [`Client::poll_event`] until `None`. After each call that may
/// send, [`Client::output`] is written and removed with [`Client::advance`]. Each stream of [`Client::open`] ends with
/// [`Client::forget`].
pub struct Client {
    limits: ClientLimits,
    pending: Vec<u8>,
    block: Option<HeaderBlock>,
    decoder: Decoder,
    streams: HashMap<u32, ClientStream>,
    next: u32,
    settled: bool,
    send_window: i64,
    recv_window: i64,
    recv_window_max: i64,
    peer_window: i64,
    peer_frame: usize,
    peer_streams: usize,
    events: VecDeque<ClientEvent>,
    out: Vec<u8>,
    out_start: usize,
    idle_frames: u64,
    /// Received frames with content.
    useful: u64,
    /// Octets sent.
    sent: u64,
    /// Bodies sent that left their windows open; the server may acknowledge each at once.
    pieces: u64,
    going: bool,
    failed: bool,
}

impl Client {
    /// Begins a connection: preface, SETTINGS and the connection's window are in the output.
    pub fn new(limits: ClientLimits) -> Client {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(PREFACE);
        let settings = [
            (frame::SETTINGS_HEADER_TABLE_SIZE, limits.table),
            (frame::SETTINGS_ENABLE_PUSH, 0),
            (frame::SETTINGS_INITIAL_WINDOW_SIZE, limits.stream_window),
        ];
        frame::put_head(settings.len() * 6, frame::SETTINGS, 0, 0, &mut out);
        for (name, value) in settings {
            out.extend_from_slice(&name.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        let connection_window = i64::from(limits.connection_window).clamp(frame::WINDOW, frame::WINDOW_MAX);
        if connection_window > frame::WINDOW {
            frame::put_number(frame::WINDOW_UPDATE, 0, (connection_window - frame::WINDOW) as u32, &mut out);
        }
        Client {
            limits,
            pending: Vec::new(),
            block: None,
            decoder: Decoder::with_table(limits.table as usize),
            streams: HashMap::new(),
            next: 1,
            settled: false,
            send_window: frame::WINDOW,
            recv_window: connection_window,
            recv_window_max: connection_window,
            peer_window: frame::WINDOW,
            peer_frame: frame::FRAME_SIZE,
            peer_streams: usize::MAX,
            events: VecDeque::new(),
            out,
            out_start: 0,
            idle_frames: 0,
            useful: 0,
            sent: 0,
            pieces: 0,
            going: false,
            failed: false,
        }
    }

    /// Returns the octets to be written.
    pub fn output(&self) -> &[u8] {
        self.out.get(self.out_start..).unwrap_or_default()
    }
    /// Removes `n` written octets from the front of the output.
    pub fn advance(&mut self, n: usize) {
        self.sent += n as u64;
        self.out_start += n;
        frame::remove_sent(&mut self.out, &mut self.out_start);
    }
    /// Releases spare memory of an idle connection.
    pub fn shrink(&mut self) {
        if self.out.is_empty() {
            self.out = Vec::new();
        }
        self.pending.shrink_to_fit();
        self.streams.shrink_to(4);
    }
    /// Tells whether no stream is open.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }
    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }
    /// Tells whether the connection takes no more streams: GOAWAY, an error, or no stream number left.
    pub fn is_going(&self) -> bool {
        self.going || self.failed || self.next > u32::MAX / 2
    }
    /// Tells whether another stream can be opened now.
    pub fn has_room(&self) -> bool {
        !self.is_going() && self.streams.len() < self.streams_max()
    }
    /// Tells whether the connection's window has room for a body.
    pub fn has_window(&self) -> bool {
        self.send_window > 0
    }
    /// Concurrent streams that both sides allow.
    pub fn streams_max(&self) -> usize {
        self.limits.streams_max.min(self.peer_streams)
    }
    /// Tells whether the server's SETTINGS have arrived.
    pub fn is_settled(&self) -> bool {
        self.settled
    }
    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Starts a stream; `block` must not refer to the dynamic table. `end`: without a body. `None`: no room.
    pub fn open(&mut self, block: &[u8], end: bool) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        let id = self.next;
        self.next += 2;
        self.streams.insert(
            id,
            ClientStream {
                send_window: self.peer_window,
                recv_window: i64::from(self.limits.stream_window),
                credit: 0,
                send_closed: end,
                recv_closed: false,
                answered: false,
                interim: 0,
                blocked: false,
            },
        );
        let mut parts = block.chunks(self.peer_frame).peekable();
        let mut kind = frame::HEADERS;
        while let Some(part) = parts.next() {
            let first = if kind == frame::HEADERS && end { frame::END_STREAM } else { 0 };
            let last = if parts.peek().is_none() { frame::END_HEADERS } else { 0 };
            frame::put_head(part.len(), kind, first | last, id, &mut self.out);
            self.out.extend_from_slice(part);
            kind = frame::CONTINUATION;
        }
        Some(id)
    }

    /// Octets that a stream may send; `None`: ended. After 0, [`ClientEvent::Capacity`] follows.
    pub fn capacity(&mut self, id: u32) -> Option<usize> {
        let window = self.send_window;
        let stream = self.streams.get_mut(&id).filter(|stream| !stream.send_closed)?;
        let capacity = usize::try_from(window.min(stream.send_window)).unwrap_or(0);
        stream.blocked = capacity == 0;
        Some(capacity)
    }

    /// Sends body within the windows; returns the octets taken. `end`: the last, if all is taken.
    pub fn send_body(&mut self, id: u32, body: &[u8], end: bool) -> usize {
        let Some(capacity) = self.capacity(id) else { return 0 };
        let n = body.len().min(capacity);
        let (now, later) = body.split_at(n);
        let ends = end && later.is_empty();
        if now.is_empty() && !ends {
            return 0;
        }
        let mut parts = now.chunks(self.peer_frame).peekable();
        if parts.peek().is_none() {
            frame::put_head(0, frame::DATA, frame::END_STREAM, id, &mut self.out);
        }
        while let Some(part) = parts.next() {
            let flags = if ends && parts.peek().is_none() { frame::END_STREAM } else { 0 };
            frame::put_head(part.len(), frame::DATA, flags, id, &mut self.out);
            append_bytes(&mut self.out, part);
        }
        self.send_window -= n as i64;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send_window -= n as i64;
            self.pieces += u64::from(self.send_window.min(stream.send_window) > 0);
            stream.blocked = !later.is_empty();
            stream.send_closed = ends;
        }
        n
    }

    /// Reopens the window after `n` consumed octets.
    pub fn consumed(&mut self, id: u32, n: usize) {
        let least = i64::from(self.limits.stream_window / 2);
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.recv_closed) else { return };
        stream.credit += n as i64;
        if stream.credit >= least.max(1) {
            let more = std::mem::take(&mut stream.credit);
            stream.recv_window += more;
            frame::put_number(frame::WINDOW_UPDATE, id, more as u32, &mut self.out);
        }
    }

    /// Forgets a stream; resets it unless closed on both sides.
    pub fn forget(&mut self, id: u32) {
        let Some(stream) = self.streams.remove(&id) else { return };
        let is_over = stream.send_closed && stream.recv_closed;
        if !is_over && !self.failed {
            let code = if stream.recv_closed { ErrorCode::NoError } else { ErrorCode::Cancel };
            frame::put_number(frame::RST_STREAM, id, code as u32, &mut self.out);
        }
    }

    fn goaway(&mut self, code: ErrorCode) {
        self.going = true;
        frame::put_head(8, frame::GOAWAY, 0, 0, &mut self.out);
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(&(code as u32).to_be_bytes());
    }

    /// Takes all octets in. On [`ConnectionError`] the output should still be sent.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        if self.failed {
            return Ok(());
        }
        let result = self.read(bytes);
        if let Err(error) = &result {
            self.goaway(error.code);
            self.failed = true;
        }
        result
    }
}

#[cfg(test)]
mod tests;
