//! The server's side of one connection: its state and its bounds. Octets that come are in `receive.rs`, answers in `send.rs`; `edge.rs` is
//! the view of drivers of any protocol.

mod edge;
mod hq;
mod receive;
mod send;

use crate::frame::{self, ConnectionError, ErrorCode};
use crate::session::{Session, code};
use crate::stream::{Phase, Stream};
use bytes::Bytes;
use http_types::{ByStream, Event, Priority, Rank};
use quinn_proto::congestion;
use quinn_proto::{Connection, IdleTimeout, StreamId, TransportConfig, VarInt};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sections that may wait for entries of the dynamic table at a time; nginx allows as many as streams.
const BLOCKED_STREAMS_MAX: u64 = 16;
/// Unidirectional streams that a client may have open (nginx: `NGX_HTTP_V3_MAX_UNI_STREAMS`), and as many of reserved types.
const UNI_STREAMS_MAX: u32 = 6;
/// Streams that a client may open before it has shown that it uses them (RFC 9114, 6.1: at least 100). QUIC allocates them: with the
/// unidirectional ones they fit into tables of half the size that nginx's default of 128 takes.
const FIRST_STREAMS: u32 = 100;
/// Open streams at which the rest of the limit is allowed.
const MANY_STREAMS: usize = FIRST_STREAMS as usize / 4;
/// Octets that QUIC keeps until they are acknowledged, at the beginning, at least and at most; see [`Server::drive`].
const SEND_WINDOW_MIN: u64 = 128 * 1024;
const SEND_WINDOW_MAX: u64 = 8 * 1024 * 1024;
/// Octets of TLS messages that come out of order.
const CRYPTO_BUFFER: usize = 64 * 1024;
/// PRIORITY_UPDATE frames of streams that have not begun.
const UPDATES_MAX: usize = 64;

/// How fast a connection sends, and how it takes losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 9438.
    #[default]
    Cubic,
    /// Follows the measured bandwidth and round-trip time, not losses (draft-cardwell-iccrg-bbr-congestion-control).
    Bbr,
    /// RFC 9002, 7.
    NewReno,
}

impl Congestion {
    fn factory(self) -> Arc<dyn congestion::ControllerFactory + Send + Sync> {
        match self {
            Congestion::Cubic => Arc::new(congestion::CubicConfig::default()),
            Congestion::Bbr => Arc::new(congestion::BbrConfig::default()),
            Congestion::NewReno => Arc::new(congestion::NewRenoConfig::default()),
        }
    }
}

/// Bounds on what a client may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Streams at a time (`http3_max_concurrent_streams`).
    pub streams_max: u32,
    /// Octets of a stream that may come before they are read (`http3_stream_buffer_size`).
    pub stream_window: u32,
    /// Octets of names and values of a request (nginx: all of `large_client_header_buffers`).
    pub list_max: usize,
    /// Octets of one name and value (nginx: one of `large_client_header_buffers`).
    pub field_max: usize,
    /// `max_headers`
    pub fields_max: usize,
    pub underscores: bool,
    pub ignore_invalid: bool,
    /// Clients may ask for other protocols in streams (RFC 9220).
    pub extended_connect: bool,
    /// A connection without packets ends after this time.
    pub idle_timeout: Duration,
    pub congestion: Congestion,
}

impl Default for Limits {
    /// nginx's defaults.
    fn default() -> Self {
        Limits {
            streams_max: 128,
            stream_window: 65_536,
            list_max: 32 * 1024,
            field_max: 8 * 1024,
            fields_max: 1000,
            underscores: false,
            ignore_invalid: true,
            extended_connect: true,
            idle_timeout: Duration::from_secs(75),
            congestion: Congestion::Cubic,
        }
    }
}

impl Limits {
    /// The transport's share of these bounds: what `quinn-proto` is to be configured with.
    pub fn transport(&self) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let connection_window = u64::from(self.stream_window) * u64::from(self.streams_max.max(1));
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(self.streams_max.min(FIRST_STREAMS)))
            .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS_MAX))
            .stream_receive_window(VarInt::from_u32(self.stream_window))
            .receive_window(VarInt::from_u64(connection_window).unwrap_or(VarInt::MAX))
            .send_window(SEND_WINDOW_MIN)
            .crypto_buffer_size(CRYPTO_BUFFER)
            .max_idle_timeout(IdleTimeout::try_from(self.idle_timeout).ok())
            .congestion_controller_factory(self.congestion.factory())
            .datagram_receive_buffer_size(None);
        transport
    }
    /// Octets of an encoded section: literals have two lengths each, and Huffman's code is longer than odd texts.
    fn section_max(&self) -> u64 {
        2 * self.list_max as u64 + 4096
    }
}

/// One connection, as a server has it.
pub struct Server {
    session: Session,
    limits: Limits,
    streams: ByStream<Stream>,
    events: VecDeque<Event>,
    /// The first stream that was not accepted.
    next: u64,
    going: bool,
    failed: Option<ConnectionError>,
    /// Why the connection is over.
    lost: Option<quinn_proto::ConnectionError>,
    connected: bool,
    closed: bool,
    resets: u64,
    answered: u64,
    /// Octets that QUIC has taken.
    passed: u64,
    /// The client has spoken of urgency.
    urgency: bool,
    updates: VecDeque<(u64, Priority)>,
    /// Insertions into the decoder's table when blocked sections were last looked at.
    decoded_with: u64,
    blocked_sections: u64,
}

impl Server {
    /// `quic` is configured with [`Limits::transport`].
    pub fn new(quic: Connection, limits: Limits) -> Server {
        let blocked = BLOCKED_STREAMS_MAX.min(u64::from(limits.streams_max));
        let session = Session::new(quic, blocked, limits.list_max as u64, limits.field_max, limits.extended_connect);
        Server {
            session,
            limits,
            streams: ByStream::default(),
            events: VecDeque::new(),
            next: 0,
            going: false,
            failed: None,
            lost: None,
            connected: false,
            closed: false,
            resets: 0,
            answered: 0,
            passed: 0,
            urgency: false,
            updates: VecDeque::new(),
            decoded_with: 0,
            blocked_sections: 0,
        }
    }

    /// The QUIC connection, for the endpoint that carries it. After events and timeouts, call [`Server::drive`].
    pub fn quic(&mut self) -> &mut Connection {
        &mut self.session.quic
    }
    pub fn quic_ref(&self) -> &Connection {
        &self.session.quic
    }

    /// The handshake has ended.
    pub fn is_connected(&self) -> bool {
        self.connected
    }
    /// Requests that come now may be replays: the handshake has not ended (RFC 8470).
    pub fn is_early(&self) -> bool {
        self.session.quic.is_handshaking()
    }
    /// Why the connection cannot go on; [`Server::close`] tells the client.
    pub fn failure(&self) -> Option<ConnectionError> {
        self.failed
    }
    /// Why the connection is over, as QUIC has it.
    pub fn lost(&self) -> Option<&quinn_proto::ConnectionError> {
        self.lost.as_ref()
    }
    /// Streams that are open.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }
    /// Requests that were answered to their end.
    pub fn answered(&self) -> u64 {
        self.answered
    }
    /// Octets of all streams that QUIC has not taken.
    pub fn unsent(&self) -> usize {
        self.streams.values().map(|stream| stream.queued).sum()
    }
    /// True while answers are on their way that the client has not acknowledged: closing would lose them.
    pub fn has_unacknowledged(&mut self) -> bool {
        self.session.quic.streams().send_streams() > self.session.own_streams()
    }
    /// Octets of all streams that QUIC has taken: while [`Server::unsent`] is not 0, it grows with a client that reads.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Ends the connection: for its failure, or because nothing is left to be done.
    pub fn close(&mut self, now: Instant) {
        if !self.closed {
            self.closed = true;
            // nginx's phrase; the log has more to say.
            let (why, words) = self.failed.map_or((ErrorCode::NoError, ""), |error| (error.code, "stream error"));
            self.session.quic.close(now, code(why), Bytes::from_static(words.as_bytes()));
        }
    }

    /// The connection cannot go on: its streams end.
    fn fail(&mut self, error: ConnectionError) {
        if self.failed.is_none() {
            self.failed = Some(error);
            self.drop_streams();
            // The client learns which of its streams are not read.
            let _ = self.session.flush();
        }
    }
    fn drop_streams(&mut self) {
        let all: Vec<(u64, bool)> = self.streams.drain().map(|(id, stream)| (id, stream.ended)).collect();
        for (id, _) in all.iter().filter(|(_, ended)| !ended) {
            self.session.cancel(*id);
        }
        let mut gone: Vec<u64> = all.into_iter().map(|(id, _)| id).collect();
        gone.sort_unstable();
        self.events.extend(gone.into_iter().map(Event::Reset));
    }

    /// No request is under way, and no answer waits for QUIC. Heads that are coming do not count.
    pub fn is_idle(&self) -> bool {
        self.streams.values().all(|stream| stream.phase == Phase::Head)
    }
    /// A request's head has begun to come.
    pub fn is_within_head(&self) -> bool {
        self.streams.values().any(|stream| stream.phase == Phase::Head)
    }

    /// Takes no more streams; those that are there go on.
    pub fn shutdown(&mut self) {
        if self.going || self.failed.is_some() {
            return;
        }
        self.going = true;
        let next = self.next;
        let control = self.session.control();
        let mut id = Vec::with_capacity(8);
        frame::put_varint(next, &mut id);
        frame::put_head(frame::GOAWAY, id.len(), control);
        control.extend_from_slice(&id);
        self.flush();
    }

    fn flush(&mut self) {
        if let Err(error) = self.session.flush() {
            self.fail(error);
        }
    }

    /// A stream's place among those that wait for room; `None`: the client has said nothing of any.
    pub fn rank(&self, id: u64) -> Option<Rank> {
        if !self.urgency {
            return None;
        }
        let priority = self.streams.get(&id).map_or(Priority::default(), |stream| stream.priority);
        let order = if priority.incremental { u32::MAX } else { u32::try_from(id / 4).unwrap_or(u32::MAX) };
        Some((priority.urgency, 0, Reverse(0), order))
    }

    /// A field or a frame has said something of a stream's priority.
    fn set_priority(&mut self, id: u64, priority: Priority) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.priority = priority;
        let is_first = !std::mem::replace(&mut self.urgency, true);
        let affected: Vec<u64> = if is_first { self.streams.keys().copied().collect() } else { vec![id] };
        for id in affected {
            self.rank_in_quic(id);
        }
    }
    /// QUIC sends first the streams of greater numbers, and takes turns among equal ones.
    fn rank_in_quic(&mut self, id: u64) {
        /// Streams of one urgency: those that share come last (RFC 9218, 10).
        const SHARED: u32 = (1 << 24) - 1;
        if let Some((urgency, _, _, order)) = self.rank(id) {
            let place = -(i32::from(urgency) << 24) - order.min(SHARED) as i32;
            let _ = self.session.quic.send_stream(stream_id(id)).set_priority(place);
        }
    }
}

fn stream_id(id: u64) -> StreamId {
    StreamId::from(VarInt::from_u64(id).unwrap_or(VarInt::MAX))
}

/// The send window that a path needs: twice its congestion window, within bounds. A client on a slow path does not have
/// us keep more than that path holds.
fn send_window(congestion_window: u64) -> u64 {
    congestion_window.saturating_mul(2).clamp(SEND_WINDOW_MIN, SEND_WINDOW_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle connection keeps this beside QUIC's state (decision 0113).
    #[test]
    fn a_connection_takes_little_beside_quic() {
        let own = size_of::<Server>() - size_of::<Connection>();
        assert!(own <= 768, "{own}");
    }
}
