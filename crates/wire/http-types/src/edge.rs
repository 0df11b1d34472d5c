//! Edge between a multiplexing core and its driver. Cores are sans-I/O: input goes in, events and output are pulled.
//! [`StreamMux`] is the upper edge, equal for all protocols: streams with head, body and answer. [`ByteCore`] is the
//! lower edge of protocols over a byte stream; datagrams have another.

use crate::head::Version;
use crate::list::{List, MalformedFields, Message};
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Number of a stream on its connection. Never reused.
pub type StreamId = u64;

/// Map by stream. Needs no collision-resistant hash: streams are bounded and their numbers increase.
pub type ByStream<T> = HashMap<StreamId, T, BuildHasherDefault<StreamHasher>>;

/// Hasher of stream numbers: one multiplication.
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

/// Lower-case names with values.
pub type FieldLines<'a, 'f> = &'f mut dyn Iterator<Item = (&'a [u8], &'a [u8])>;

/// Sort key of streams waiting for a window, lowest first: urgency, depth, weight, order.
pub type Rank = (u8, u32, Reverse<u64>, u32);

/// Event of a core.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "heads are what most events are, and none waits for long")]
pub enum Event {
    /// A request with the octets of its head. `end`: without a body.
    Head {
        /// The request's stream.
        stream: StreamId,
        /// The decoded fields.
        list: List,
        /// The valid request, or its fault, to be answered with 400.
        message: Result<Message, MalformedFields>,
        /// No body follows.
        end: bool,
        /// Octets of the head on the wire.
        octets: usize,
    },
    /// See [`StreamMux::take_body`].
    Body(StreamId),
    /// The client has reset the stream, or the core has for a violation.
    Reset(StreamId),
    /// A blocked stream has a window again.
    Capacity(StreamId),
    /// The client has announced its last request.
    Goaway,
}

/// The connection ends; the output informs the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// nginx's message.
    pub words: &'static str,
}

/// Part of a request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenLines {
    /// Further octets.
    Bytes(Bytes),
    /// None have arrived; [`Event::Body`] follows.
    Later,
    /// The body is complete.
    End,
    /// Contradicts its `content-length`.
    Broken,
    /// The stream has ended before its body.
    Gone,
}

/// Result of sending a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentBody {
    /// Octets of the body that were taken; the windows limit them.
    pub taken: usize,
    /// Octets on the wire, with framing.
    pub octets: usize,
}

/// Reason of a reset, which selects the protocol's error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// Unprocessed: the client may retry.
    Refused,
    /// Violation by the client, or a refusal without a response.
    Protocol,
    /// The target of CONNECT has failed.
    Connect,
    /// A fault of the server.
    Internal,
}

/// Upper edge: a connection as streams. Calls for an ended stream have no effect.
pub trait StreamMux {
    /// Returns the protocol version.
    fn version(&self) -> Version;

    /// Next event, in order. Other methods are current only after `None`.
    fn poll_event(&mut self) -> Option<Event>;
    /// Next part of a request body; may reopen the client's window.
    fn take_body(&mut self, stream: StreamId) -> TakenLines;
    /// Consumed octets of a request body.
    fn taken(&self, stream: StreamId) -> u64;
    /// Sets the declared length of a request body, which `take_body` enforces.
    fn promise(&mut self, stream: StreamId, length: u64);

    /// Octets that a stream may send; `None`: ended. After 0, [`Event::Capacity`] follows.
    fn capacity(&mut self, stream: StreamId) -> Option<usize>;
    /// Sends a response head; returns its octets. `end`: nothing follows.
    fn send_head(&mut self, stream: StreamId, status: u16, fields: FieldLines<'_, '_>, end: bool) -> usize;
    /// Sends an interim response (RFC 9110, 15.2).
    fn send_interim(&mut self, stream: StreamId, status: u16, fields: FieldLines<'_, '_>);
    /// Sends body within the windows in frames of up to `frame_max` octets. `end`: ends the stream if all is taken.
    fn send_body(&mut self, stream: StreamId, body: &[u8], frame_max: usize, end: bool) -> SentBody;
    /// [`StreamMux::send_body`] of a shared buffer, which a core may keep instead of a copy.
    fn send_shared(&mut self, stream: StreamId, body: &Bytes, frame_max: usize, end: bool) -> SentBody {
        self.send_body(stream, body, frame_max, end)
    }
    /// Returns their octets.
    fn send_trailers(&mut self, stream: StreamId, fields: FieldLines<'_, '_>) -> usize;
    /// Forgets a stream; resets it unless closed on both sides.
    fn finish(&mut self, stream: StreamId);
    /// Ends a stream at once, with an error code for the client.
    fn reset(&mut self, stream: StreamId, why: ResetReason);
    /// Rank among waiting streams; `None`: the client signalled no priorities.
    fn rank(&self, stream: StreamId) -> Option<Rank>;
    /// Tells whether extended CONNECT is offered (RFC 8441, RFC 9220).
    fn offers_connect(&self) -> bool;

    /// Announces the last request (GOAWAY); later ones are refused.
    fn begin_shutdown(&mut self);
    /// Tells whether the last request was announced (GOAWAY).
    fn is_going(&self) -> bool;
    /// Tells whether no request is active and no response is left to send. Incomplete heads do not count.
    fn is_idle(&self) -> bool;
    /// Tells whether a head is incomplete.
    fn is_within_head(&self) -> bool;
    /// Resets the streams of incomplete heads, of which one has taken too long. Returns `false` if no head is incomplete.
    fn give_up_head(&mut self) -> bool;
    /// Tells whether a request has begun, so that the connection is not new any more.
    fn has_begun(&self) -> bool;
    /// Releases spare memory of an idle connection.
    fn shrink(&mut self);
}

/// Lower edge of a protocol over a byte stream.
pub trait ByteCore: StreamMux {
    /// Takes octets in. After an error, earlier events can still be polled.
    fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolError>;
    /// Tells whether the client has sent the protocol's preface.
    fn has_preface(&self) -> bool;
    /// Octets for one write; more may follow.
    fn output(&self) -> &[u8];
    /// Total unsent octets.
    fn unsent(&self) -> usize {
        self.output().len()
    }
    /// Removes `n` written octets from the front of the output.
    fn advance(&mut self, n: usize);
    /// Frees the memory of written octets, while the socket takes no more.
    fn release_written(&mut self) {}
}
