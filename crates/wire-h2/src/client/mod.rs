//! The client's side of one connection: its state, its bounds, and what is sent. What comes in is in `receive.rs`.

mod receive;

use crate::frame::{self, ErrorCode};
use crate::hpack::Decoder;
use crate::server::{ConnectionError, PREFACE};
use bytes::Bytes;
use http_types::List;
use std::collections::{HashMap, VecDeque};

/// Bounds on what a server may ask of us.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Streams at a time, whatever the server allows.
    pub streams_max: usize,
    /// Octets of names and values of a response's fields.
    pub list_max: usize,
    /// Octets of one name and of one value.
    pub field_max: usize,
    pub fields_max: usize,
    /// Octets of a response that may come before anybody reads it: what a stream takes of memory at most.
    pub stream_window: u32,
    /// Octets that may be on their way over all streams together; 65,535 at least.
    pub connection_window: u32,
    /// Octets of the table that the server's encoder may use.
    pub table: u32,
    /// Bodies are counted ([`ClientEvent::Counted`]) and dropped: nobody wants to see them, and windows are opened at once.
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
            // As wide as it can be: streams have their own.
            connection_window: frame::WINDOW_MAX as u32,
            // Connections are many, and the way to a server is short: no table is worth its memory.
            table: 0,
            count_bodies: false,
        }
    }
}

/// What the server has done.
#[derive(Debug)]
pub enum ClientEvent {
    /// A response's head, or an interim one. `end`: it has no body. `octets`: of the frames it came in.
    Head { stream: u32, list: List, end: bool, octets: usize },
    /// A part of a body; what was read of it is to be given back with [`Client::consumed`].
    Body { stream: u32, bytes: Bytes, end: bool, octets: usize },
    /// So many octets of a body came, and were dropped ([`ClientLimits::count_bodies`]). Several frames may be one event.
    Counted { stream: u32, length: usize, end: bool, octets: usize },
    /// Fields behind a body.
    Trailers { stream: u32, list: List, octets: usize },
    /// The stream is gone. `unprocessed`: the server has done nothing about its request.
    Reset { stream: u32, code: u32, unprocessed: bool },
    /// Something may be sent again on a stream that had no window.
    Capacity(u32),
    /// No stream can be begun any more.
    Goaway,
}

/// A stream that is not forgotten.
#[derive(Debug)]
struct Stream {
    send_window: i64,
    recv_window: i64,
    /// Read, and not yet given back to the server's window.
    credit: i64,
    send_closed: bool,
    recv_closed: bool,
    /// The head that counts has come.
    answered: bool,
    /// Responses that have come before it.
    interim: u32,
    blocked: bool,
}

/// A header block that is coming.
struct Block {
    stream: u32,
    bytes: Vec<u8>,
    end_stream: bool,
    continuations: u32,
    octets: usize,
}

/// One connection, as a client has it.
pub struct Client {
    limits: ClientLimits,
    pending: Vec<u8>,
    block: Option<Block>,
    decoder: Decoder,
    streams: HashMap<u32, Stream>,
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
    /// Frames that brought something.
    useful: u64,
    going: bool,
    failed: bool,
}

impl Client {
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
            going: false,
            failed: false,
        }
    }

    /// Octets to be sent.
    pub fn output(&self) -> &[u8] {
        self.out.get(self.out_start..).unwrap_or_default()
    }
    /// So many of them were sent.
    pub fn advance(&mut self, n: usize) {
        self.out_start += n;
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
        self.streams.shrink_to(4);
    }
    /// No stream is open.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }
    /// Streams that are open.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }
    /// No more streams can be begun.
    pub fn is_going(&self) -> bool {
        self.going || self.failed || self.next > u32::MAX / 2
    }
    /// Another stream can be begun now.
    pub fn has_room(&self) -> bool {
        !self.is_going() && self.streams.len() < self.streams_max()
    }
    /// Streams at a time that both sides allow.
    pub fn streams_max(&self) -> usize {
        self.limits.streams_max.min(self.peer_streams)
    }
    /// The server's first SETTINGS have come: what it allows is known.
    pub fn is_settled(&self) -> bool {
        self.settled
    }
    /// What has happened, in order.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Begins a stream with a header block that refers to no dynamic table. `end`: the request has no body. `None`: there is no room.
    pub fn open(&mut self, block: &[u8], end: bool) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        let id = self.next;
        self.next += 2;
        self.streams.insert(
            id,
            Stream {
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

    /// How much may be sent on a stream now; `None`: it is gone. At 0, [`ClientEvent::Capacity`] follows when there is more.
    pub fn capacity(&mut self, id: u32) -> Option<usize> {
        let window = self.send_window;
        let stream = self.streams.get_mut(&id).filter(|stream| !stream.send_closed)?;
        let capacity = usize::try_from(window.min(stream.send_window)).unwrap_or(0);
        stream.blocked = capacity == 0;
        Some(capacity)
    }

    /// Sends body, as much as the windows take; how much that was. `end`: it is the last, when all of it was taken.
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
            self.out.extend_from_slice(part);
        }
        self.send_window -= n as i64;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send_window -= n as i64;
            stream.blocked = !later.is_empty();
            stream.send_closed = ends;
        }
        n
    }

    /// So many octets of a body have left towards whoever reads it: the server may send as many more.
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

    /// The caller has no more to do with a stream. One that is not closed on both sides is reset.
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

    /// Takes octets in; all of them are used.
    ///
    /// # Errors
    /// [`ConnectionError`]; what is in the output should still be sent.
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
