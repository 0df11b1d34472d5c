//! The edge between a protocol's core and its driver, for protocols whose connections carry many requests at a time.
//!
//! A core is sans-io: what comes goes in, events are pulled out, and what is to be sent is taken from it. [`StreamMux`] is its upper
//! edge, the same for all protocols: requests are streams, with a head, a body, an answer. The lower edge says how octets come and go:
//! [`ByteCore`] for a stream of bytes. (A protocol over datagrams has another lower edge and the same upper one.)

use crate::head::Version;
use crate::list::{List, Malformed, Message};
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Names a stream within its connection.
pub type StreamId = u64;

/// What is kept by stream. Their numbers need no hash that is hard to guess: there are as many as may be open at a time, and each that is
/// opened has a higher number than all before.
pub type ByStream<T> = HashMap<StreamId, T, BuildHasherDefault<StreamHasher>>;

/// Spreads stream numbers (Fibonacci hashing).
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamHasher(u64);

impl Hasher for StreamHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, id: u32) {
        self.write_u64(u64::from(id));
    }
    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

/// Fields as a core sends them: names in lower case, with their values.
pub type FieldLines<'a, 'f> = &'f mut dyn Iterator<Item = (&'a [u8], &'a [u8])>;

/// What a stream is sorted by among those that wait for the same room: what comes first is less. Urgency, place, weight, order.
pub type Rank = (u8, u32, Reverse<u64>, u32);

/// What the client has done.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "heads are what most events are, and none waits for long")]
pub enum Event {
    /// A request. `end`: it has no body.
    Head {
        stream: StreamId,
        list: List,
        message: Result<Message, Malformed>,
        end: bool,
        /// Octets of the head as it came.
        octets: usize,
    },
    /// Body has come, or its end; see [`StreamMux::take_body`].
    Body(StreamId),
    /// The stream is gone.
    Reset(StreamId),
    /// Something may be sent again on a stream that had no window.
    Capacity(StreamId),
    /// The client begins no more streams.
    Goaway,
}

/// The connection cannot go on. What the client is told of it is in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// For the error log.
    pub words: &'static str,
}

/// What may be taken of a request's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    Bytes(Bytes),
    /// Nothing has come yet.
    Later,
    End,
    /// It is not what its `content-length` said.
    Broken,
    /// The stream is gone.
    Gone,
}

/// Why we end a stream before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing was done about it: it may be asked again.
    Refused,
    /// The client has not kept to the rules, or is refused without a word.
    Protocol,
    /// The connection behind a CONNECT is broken.
    Connect,
    /// We have failed.
    Internal,
}

/// The upper edge: a connection as streams. What is asked of a stream that is gone does nothing.
pub trait StreamMux {
    /// What requests say their version is.
    fn version(&self) -> Version;

    /// What has happened, in order. Until it is `None`, nothing else may be expected to be up to date.
    fn poll_event(&mut self) -> Option<Event>;
    /// The next part of a request's body. What is taken may be given back to the client's window.
    fn take_body(&mut self, stream: StreamId) -> Taken;
    /// Octets of a request's body that were taken.
    fn taken(&self, stream: StreamId) -> u64;
    /// What a request's `content-length` says; `take_body` holds the client to it.
    fn promise(&mut self, stream: StreamId, length: u64);

    /// How much may be sent on a stream now; `None`: it is gone. At 0, [`Event::Capacity`] follows when there is more.
    fn capacity(&mut self, stream: StreamId) -> Option<usize>;
    /// Sends a response's head; how many octets that are. `end`: nothing follows.
    fn send_head(&mut self, stream: StreamId, status: u16, fields: FieldLines<'_, '_>, end: bool) -> usize;
    /// Sends a response that comes before the answer (RFC 9110, 15.2).
    fn send_interim(&mut self, stream: StreamId, status: u16, fields: FieldLines<'_, '_>);
    /// Sends body, as much as the windows take, in frames of `frame_max` octets at most; how much that was. `end`: it is the last, when all
    /// of it was taken.
    fn send_body(&mut self, stream: StreamId, body: &[u8], frame_max: usize, end: bool) -> usize;
    /// Sends what stands behind a body; how many octets that are.
    fn send_trailers(&mut self, stream: StreamId, fields: FieldLines<'_, '_>) -> usize;
    /// The driver has no more to do with a stream. One that is not closed on both sides is reset.
    fn finish(&mut self, stream: StreamId);
    /// Ends a stream for a reason of ours.
    fn reset(&mut self, stream: StreamId, why: Why);
    /// A stream's place among those that wait; `None`: the client has not said anything about any.
    fn rank(&self, stream: StreamId) -> Option<Rank>;
    /// Requests may ask for another protocol (extended CONNECT: RFC 8441, RFC 9220).
    fn offers_connect(&self) -> bool;

    /// Takes no more streams; those that are there go on.
    fn begin_shutdown(&mut self);
    /// No more streams are taken.
    fn is_going(&self) -> bool;
    /// Nothing is asked for at the moment.
    fn is_idle(&self) -> bool;
    /// A head has begun to come.
    fn is_within_head(&self) -> bool;
    /// A head takes too long: its stream is ended. `false`: none is coming.
    fn give_up_head(&mut self) -> bool;
    /// The client has begun a stream, whatever became of it.
    fn has_begun(&self) -> bool;
    /// Gives buffers back: the connection is idle.
    fn shrink(&mut self);
}

/// The lower edge of a protocol over a stream of bytes.
pub trait ByteCore: StreamMux {
    /// Takes octets in.
    ///
    /// # Errors
    /// The connection cannot go on; what has come before is still to be had from [`StreamMux::poll_event`].
    fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolError>;
    /// The client has sent what it must send first.
    fn has_preface(&self) -> bool;
    /// Octets to be sent with one write; when they are sent, there may be more.
    fn output(&self) -> &[u8];
    /// Octets that wait to be sent, in all.
    fn unsent(&self) -> usize {
        self.output().len()
    }
    /// So many of them were sent.
    fn advance(&mut self, n: usize);
}
