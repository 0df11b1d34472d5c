//! A stream towards a server: one request and its response, whatever the protocol. What is sent is queued and flushed, what comes
//! are events. Dropped unfinished, its connection is closed, or its stream of a connection with many is reset.

use crate::codec::{Asked, Event, Wrong};
use crate::mux::{Mux, MuxStream};
use crate::pool::{IdleTimer, KeepAlive, Pooled};
use crate::serial::Serial;
use crate::stream::Stream;
use bytes::Bytes;
use std::io;
use std::task::{Context, Poll};

/// What a look at the server's side found.
#[derive(Debug)]
pub enum Came {
    Event(Event),
    /// The server has ended the connection before its time.
    Closed,
    Failed(io::Error),
    Wrong(Wrong),
    /// The server has done nothing about the request, and says so: it may be sent to another, whatever it asks for.
    Unprocessed(Wrong),
}

/// Why nothing more can be sent.
#[derive(Debug)]
pub enum Stop {
    /// The server takes nothing more; it may have said why, so that it is read on.
    Refused,
    Failed(io::Error),
}

/// Bytes that went over the connection since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    pub received: u64,
}

/// What a request goes over.
pub enum Connection {
    /// One request at a time.
    Serial(Box<Pooled>),
    /// Many at a time.
    Mux(Mux),
}

/// See the module's documentation.
#[allow(clippy::large_enum_variant, reason = "it is a part of its request's task, and moved once")]
pub enum ClientStream {
    Serial(Serial),
    Mux(Box<MuxStream>),
}

impl ClientStream {
    /// Begins a request: its head, in the protocol's own form, is what is sent first.
    pub fn new(connection: Connection, asked: &Asked, head: Vec<u8>) -> ClientStream {
        match connection {
            Connection::Serial(pooled) => ClientStream::Serial(Serial::new(pooled, asked, head)),
            Connection::Mux(mux) => ClientStream::Mux(Box::new(MuxStream::new(mux, asked, head))),
        }
    }
    /// How many requests the connection has had, this one included.
    pub fn requests(&self) -> u64 {
        match self {
            ClientStream::Serial(stream) => stream.requests(),
            ClientStream::Mux(stream) => stream.requests(),
        }
    }
    /// Queues a piece of the body; `end`: the last one.
    pub fn queue(&mut self, piece: &[u8], end: bool) {
        match self {
            ClientStream::Serial(stream) => stream.queue(piece, end),
            ClientStream::Mux(stream) => stream.queue(piece, end),
        }
    }
    /// The same of a piece that others have, too.
    pub fn queue_shared(&mut self, piece: &Bytes, end: bool) {
        match self {
            ClientStream::Serial(stream) => stream.queue_shared(piece, end),
            ClientStream::Mux(stream) => stream.queue(piece, end),
        }
    }
    /// The same of a piece that may be taken as it is.
    pub fn queue_owned(&mut self, piece: Vec<u8>, end: bool) {
        match self {
            ClientStream::Serial(stream) => stream.queue_owned(piece, end),
            ClientStream::Mux(stream) => stream.queue(&piece, end),
        }
    }
    /// Whether all that was queued has been written.
    pub fn is_flushed(&self) -> bool {
        match self {
            ClientStream::Serial(stream) => stream.is_flushed(),
            ClientStream::Mux(stream) => stream.is_flushed(),
        }
    }
    /// Writes what is queued.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        match self {
            ClientStream::Serial(stream) => stream.poll_flush(cx),
            ClientStream::Mux(stream) => stream.poll_flush(cx),
        }
    }
    /// The request has left. `honest`: what it says of its length is so, and the connection may have another one.
    pub fn sent(&mut self, honest: bool) {
        if let ClientStream::Serial(stream) = self {
            stream.sent(honest);
        }
    }
    /// The buffer of what was sent, for the next request.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        match self {
            ClientStream::Serial(stream) => stream.take_buffer(),
            ClientStream::Mux(_) => Vec::new(),
        }
    }
    /// What is known without another look at the socket.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn buffered(&mut self) -> Result<Option<Event>, Wrong> {
        match self {
            ClientStream::Serial(stream) => stream.buffered(),
            ClientStream::Mux(stream) => match stream.poll_now() {
                None => Ok(None),
                Some(Came::Event(event)) => Ok(Some(event)),
                Some(Came::Wrong(wrong) | Came::Unprocessed(wrong)) => Err(wrong),
                Some(Came::Closed) => Err("upstream prematurely closed connection".into()),
                Some(Came::Failed(e)) => Err(format!("recv() failed ({e})").into()),
            },
        }
    }
    /// What the server says next. One read takes `max` bytes at most, where there are reads of its own.
    pub fn poll_event(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Came> {
        match self {
            ClientStream::Serial(stream) => stream.poll_event(cx, max),
            ClientStream::Mux(stream) => stream.poll_event(cx),
        }
    }
    /// The timer of whoever waits for the server.
    pub fn idle_timer(&mut self) -> &mut IdleTimer {
        match self {
            ClientStream::Serial(stream) => stream.idle_timer(),
            ClientStream::Mux(stream) => &mut stream.idle_timer,
        }
    }
    /// Bytes since the last look.
    pub fn take_counts(&mut self) -> Counts {
        match self {
            ClientStream::Serial(stream) => stream.take_counts(),
            ClientStream::Mux(stream) => std::mem::take(&mut stream.counts),
        }
    }
    /// After the end: the connection is kept for others, unless there is the slightest doubt about it.
    pub fn finish(self, keep: &KeepAlive) {
        match self {
            ClientStream::Serial(stream) => stream.finish(keep),
            // It was never anybody's alone.
            ClientStream::Mux(stream) => drop(stream),
        }
    }
    /// The connection itself, after a 101, and what the server has sent on it since.
    pub fn into_stream(self) -> Option<(Stream, Vec<u8>)> {
        match self {
            ClientStream::Serial(stream) => Some(stream.into_stream()),
            ClientStream::Mux(_) => None,
        }
    }
}
