//! One request and its response to a server, over any protocol: queued and flushed output, events as input. Dropped
//! unfinished, it closes its connection or resets its stream.

use crate::codec::{Event, MalformedResponse, RequestFacts};
use crate::mux::{Lease, MuxStream};
use crate::pool::{IdleTimer, KeepAlive, PooledConnection};
use crate::serial::Serial;
use crate::stream::Stream;
use bytes::Bytes;
use std::io;
use std::task::{Context, Poll};

#[derive(Debug)]
pub enum ResponseEvent {
    Event(Event),
    /// The server closed early.
    Closed,
    Failed(io::Error),
    Wrong(MalformedResponse),
    /// The server did not process the request: any request may be sent to another server.
    Unprocessed(MalformedResponse),
}

#[derive(Debug)]
pub enum Stop {
    /// The server reads nothing more; its response may tell why.
    Refused,
    Failed(io::Error),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    pub received: u64,
}

pub enum Connection {
    Serial(Box<PooledConnection>),
    Mux(Box<dyn Lease>),
}

#[allow(clippy::large_enum_variant, reason = "it is a part of its request's task, and moved once")]
pub enum ClientStream {
    Serial(Serial),
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
    pub fn queue_shared(&mut self, piece: &Bytes, end: bool) {
        match self {
            ClientStream::Serial(stream) => stream.queue_shared(piece, end),
            ClientStream::Mux(stream) => stream.queue(piece, end),
        }
    }
    pub fn queue_owned(&mut self, piece: Vec<u8>, end: bool) {
        match self {
            ClientStream::Serial(stream) => stream.queue_owned(piece, end),
            ClientStream::Mux(stream) => stream.queue(&piece, end),
        }
    }
    pub fn is_flushed(&self) -> bool {
        match self {
            ClientStream::Serial(stream) => stream.is_flushed(),
            ClientStream::Mux(stream) => stream.is_flushed(),
        }
    }
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
    pub fn take_buffer(&mut self) -> Vec<u8> {
        match self {
            ClientStream::Serial(stream) => stream.take_buffer(),
            ClientStream::Mux(_) => Vec::new(),
        }
    }
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
    pub fn idle_timer(&mut self) -> &mut IdleTimer {
        match self {
            ClientStream::Serial(stream) => stream.idle_timer(),
            ClientStream::Mux(stream) => stream.idle_timer(),
        }
    }
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
