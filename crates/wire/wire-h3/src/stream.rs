//! One request stream: frames in, octets out.

use crate::frame::ConnectionError;
use crate::reader::MessageReader;
use crate::session::{Read, Session};
use bytes::Bytes;
use http_types::Priority;
use quinn_proto::StreamId;
use std::collections::VecDeque;

/// Octets of a stream that QUIC has not taken; the driver waits while there are as many.
pub const QUEUED_MAX: usize = 64 * 1024;
/// Octets of all streams of a client's connection that QUIC has not taken, above which each stream may queue
/// [`QUEUED_LEAST`]: a request of 60 octets whose response the client does not read would hold [`QUEUED_MAX`].
pub const CONNECTION_QUEUED_MAX: usize = 512 * 1024;
/// Octets that each stream may queue beside streams that their client does not read. Fewer would wake the sources of many
/// large responses more often.
pub const QUEUED_LEAST: usize = 16 * 1024;

/// Where a stream's message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The head has not come whole, or waits for entries of the dynamic table.
    Head,
    /// The head is complete: body and trailers follow.
    Body,
}

/// A request stream of either side.
#[derive(Debug)]
pub struct Stream {
    /// Progress of the received message.
    pub phase: Phase,
    /// Parser of the received frames.
    pub reader: MessageReader,
    /// Octets that were read and not parsed.
    pub input: Bytes,
    /// Octets of the body that come next.
    pub front: Bytes,
    /// A section that refers to entries that have not come, and the number of insertions it waits for.
    pub blocked_section: Option<(Vec<u8>, u64)>,
    /// QUIC has no more octets.
    pub is_read: bool,
    /// The peer has ended its side, and all of it was parsed.
    pub ended: bool,
    /// The end stands inside a frame.
    pub cut: bool,
    /// The final response's head was sent.
    pub answering: bool,
    /// The request's `content-length`, and octets of body that were parsed.
    pub promised: Option<u64>,
    /// Octets of the body that were parsed.
    pub received: u64,
    /// Octets of the body that the driver has taken.
    pub taken: u64,
    /// The driver waits for body.
    pub hungry: bool,
    /// Octets for QUIC that it has not taken.
    pub out: VecDeque<Bytes>,
    /// Octets in `out`.
    pub queued: usize,
    /// Nothing follows `out`.
    pub fin: bool,
    /// QUIC has the end of this side.
    pub fin_sent: bool,
    /// The driver waits for room.
    pub starved: bool,
    /// The driver has no more to do with the stream.
    pub released: bool,
    /// Priority by RFC 9218.
    pub priority: Priority,
}

impl Stream {
    /// Begins a stream. `section_max`: octets of an encoded section.
    pub fn new(section_max: u64) -> Stream {
        Stream {
            phase: Phase::Head,
            reader: MessageReader::new(section_max),
            input: Bytes::new(),
            front: Bytes::new(),
            blocked_section: None,
            is_read: false,
            ended: false,
            cut: false,
            answering: false,
            promised: None,
            received: 0,
            taken: 0,
            hungry: false,
            out: VecDeque::new(),
            queued: 0,
            fin: false,
            fin_sent: false,
            starved: false,
            released: false,
            priority: Priority::default(),
        }
    }

    /// Reads the next octets of this stream, whose number is `id`.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub fn read_next(&mut self, id: StreamId, session: &mut Session) -> Result<Read, ConnectionError> {
        if self.is_read { Ok(Read::End) } else { session.read(id, &mut self.is_read) }
    }

    /// Puts octets behind those that wait.
    pub fn queue(&mut self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            self.queued += bytes.len();
            self.out.push_back(bytes);
        }
    }
    /// Returns the octets that may be queued below [`QUEUED_MAX`].
    pub fn room(&self) -> usize {
        QUEUED_MAX.saturating_sub(self.queued)
    }
    /// The body is more or less than its `content-length`.
    pub fn is_broken(&self) -> bool {
        self.cut && self.ended
            || self
                .promised
                .is_some_and(|promised| self.received > promised || (self.ended && self.received != promised))
    }
}
