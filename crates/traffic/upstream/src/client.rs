//! One request and its response to a server, over any protocol: queued and flushed output, events as input. Dropped
//! unfinished, it closes its connection or resets its stream.

use crate::codec::{Event, MalformedResponse, RequestFacts};
use crate::keep_alive::KeepAlive;
use crate::mux::{Lease, MuxStream};
use crate::pool::{IdleTimer, PooledConnection};
use crate::serial::Serial;
use bytes::Bytes;
use std::io;
use std::task::{Context, Poll};
use transport::Stream;

/// Input of [`ClientStream::poll_event`]. After any variant but `Event` the stream must be dropped.
#[derive(Debug)]
pub enum ResponseEvent {
    /// A part of the response.
    Event(Event),
    /// The server closed early.
    Closed,
    /// A failed system call.
    Failed(io::Error),
    /// The response is malformed.
    Wrong(MalformedResponse),
    /// The server did not process the request: any request may be sent to another server.
    Unprocessed(MalformedResponse),
}

/// The end of the output: the request cannot be sent completely.
#[derive(Debug)]
pub enum Stop {
    /// The server reads nothing more; its response may tell why.
    Refused,
    /// A failed system call.
    Failed(io::Error),
}

/// Bytes on the wire, TLS excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent to the server.
    pub sent: u64,
    /// Received from the server.
    pub received: u64,
}

/// A connection that is ready for a request.
pub enum Connection {
    /// For this request alone.
    Serial(Box<PooledConnection>),
    /// Shared with requests of the same thread.
    Mux(Box<dyn Lease>),
}

/// A request in progress. Its user queues the request's pieces and calls [`ClientStream::poll_flush`] until flushed,
/// and [`ClientStream::poll_event`] at the same time: a server may respond early.
///
/// Calls of one stream come from one task. After the end of the response, [`ClientStream::finish`] keeps the
/// connection.
#[allow(clippy::large_enum_variant, reason = "it is a part of its request's task, and moved once")]
pub enum ClientStream {
    /// A request with a connection of its own.
    Serial(Serial),
    /// A request that shares its connection.
    Mux(Box<dyn MuxStream>),
}

impl ClientStream {
    /// `head` is in the protocol's form.
    pub fn new(connection: Connection, asked: &RequestFacts, head: Vec<u8>) -> ClientStream {
        match connection {
            Connection::Serial(pooled) => ClientStream::Serial(Serial::new(pooled, asked, head)),
            Connection::Mux(lease) => ClientStream::Mux(lease.begin(asked, head)),
        }
    }
    /// Returns the number of requests that the connection has served, this one included.
    pub fn requests(&self) -> u64 {
        match self {
            ClientStream::Serial(stream) => stream.requests(),
            ClientStream::Mux(stream) => stream.requests(),
        }
    }
    /// `end`: the last piece.
    pub fn queue(&mut self, piece: &[u8], end: bool) {
        match self {
            ClientStream::Serial(stream) => stream.queue(piece, end),
            ClientStream::Mux(stream) => stream.queue(piece, end),
        }
    }
    /// As [`ClientStream::queue`], for a shared piece: serial protocols send long ones uncopied.
    pub fn queue_shared(&mut self, piece: &Bytes, end: bool) {
        match self {
            ClientStream::Serial(stream) => stream.queue_shared(piece, end),
            ClientStream::Mux(stream) => stream.queue(piece, end),
        }
    }
    /// As [`ClientStream::queue`], for a piece that the stream may keep.
    pub fn queue_owned(&mut self, piece: Vec<u8>, end: bool) {
        match self {
            ClientStream::Serial(stream) => stream.queue_owned(piece, end),
            ClientStream::Mux(stream) => stream.queue(&piece, end),
        }
    }
    /// Tells whether all queued bytes were written to the socket or handed to the shared connection.
    pub fn is_flushed(&self) -> bool {
        match self {
            ClientStream::Serial(stream) => stream.is_flushed(),
            ClientStream::Mux(stream) => stream.is_flushed(),
        }
    }
    /// Writes queued bytes; ready once [`ClientStream::is_flushed`].
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        match self {
            ClientStream::Serial(stream) => stream.poll_flush(cx),
            ClientStream::Mux(stream) => stream.poll_flush(cx),
        }
    }
    /// Marks the request as sent. `honest`: its announced length is correct, so the connection is reusable.
    pub fn sent(&mut self, honest: bool) {
        if let ClientStream::Serial(stream) = self {
            stream.sent(honest);
        }
    }
    /// Takes the empty buffer of the written output, for reuse; nothing is taken before all is written.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        match self {
            ClientStream::Serial(stream) => stream.take_buffer(),
            ClientStream::Mux(_) => Vec::new(),
        }
    }
    /// Returns the next event among bytes that were received already, without a system call. `None`: more bytes are
    /// needed.
    pub fn buffered(&mut self) -> Result<Option<Event>, MalformedResponse> {
        match self {
            ClientStream::Serial(stream) => stream.buffered(),
            ClientStream::Mux(stream) => match stream.poll_now() {
                None => Ok(None),
                Some(ResponseEvent::Event(event)) => Ok(Some(event)),
                Some(ResponseEvent::Wrong(wrong) | ResponseEvent::Unprocessed(wrong)) => Err(wrong),
                Some(ResponseEvent::Closed) => Err("upstream prematurely closed connection".into()),
                Some(ResponseEvent::Failed(e)) => Err(format!("recv() failed ({e})").into()),
            },
        }
    }
    /// A read takes up to `max` bytes on serial connections.
    pub fn poll_event(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<ResponseEvent> {
        match self {
            ClientStream::Serial(stream) => stream.poll_event(cx, max),
            ClientStream::Mux(stream) => stream.poll_event(cx),
        }
    }
    /// Returns the timer of silence, which events and writes renew.
    pub fn idle_timer(&mut self) -> &mut IdleTimer {
        match self {
            ClientStream::Serial(stream) => stream.idle_timer(),
            ClientStream::Mux(stream) => stream.idle_timer(),
        }
    }
    /// Takes the counts since the last call.
    pub fn take_counts(&mut self) -> Counts {
        match self {
            ClientStream::Serial(stream) => stream.take_counts(),
            ClientStream::Mux(stream) => std::mem::take(stream.counts()),
        }
    }
    /// Ends a request; keeps the connection unless in doubt.
    pub fn finish(self, keep: &KeepAlive) {
        match self {
            ClientStream::Serial(stream) => stream.finish(keep),
            ClientStream::Mux(stream) => drop(stream),
        }
    }
    /// Connection after a 101, with the bytes received since.
    pub fn into_stream(self) -> Option<(Stream, Vec<u8>)> {
        match self {
            ClientStream::Serial(stream) => Some(stream.into_stream()),
            ClientStream::Mux(_) => None,
        }
    }
}
