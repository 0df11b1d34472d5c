//! Server side of one connection: state and limits. `receive.rs` processes received octets, `send.rs` sends responses,
//! and `edge.rs` is the interface to the drivers of all protocols.

mod edge;
mod hq;
mod receive;
mod send;

use crate::frame::{self, ConnectionError, ErrorCode};
use crate::session::{Session, error_code};
use crate::stream::{Phase, Stream};
use bytes::Bytes;
use http_types::{ByStream, Event, Priority, Rank};
use quinn_proto::congestion;
use quinn_proto::{Connection, IdleTimeout, StreamId, TransportConfig, VarInt};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of sections that wait for entries of the dynamic table; nginx allows as many as streams.
const BLOCKED_STREAMS_MAX: u64 = 16;
/// Maximum number of open unidirectional streams of a client: nginx's `NGX_HTTP_V3_MAX_UNI_STREAMS`, and as many of
/// reserved types.
const UNI_STREAMS_MAX: u32 = 6;
/// Number of request streams that a client may open at first (RFC 9114, 6.1: at least 100). QUIC allocates all
/// permitted streams: with the unidirectional ones, this number needs tables of half the size that nginx's default of
/// 128 would need.
const FIRST_STREAMS: u32 = 100;
/// Number of open streams at which the full limit is granted.
const MANY_STREAMS: usize = FIRST_STREAMS as usize / 4;
/// Send window (unacknowledged octets): minimum, which is also the initial value, and maximum; see [`Server::drive`].
const SEND_WINDOW_MIN: u64 = 128 * 1024;
const SEND_WINDOW_MAX: u64 = 8 * 1024 * 1024;
/// Maximum octets of TLS messages that arrive out of order.
const CRYPTO_BUFFER: usize = 64 * 1024;
/// Maximum number of stored PRIORITY_UPDATE frames for streams that have not begun.
const UPDATES_MAX: usize = 64;

/// Congestion control algorithm of a connection.
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

/// Limits of a client's requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of concurrent request streams (`http3_max_concurrent_streams`).
    pub streams_max: u32,
    /// Maximum unread octets of a stream (`http3_stream_buffer_size`).
    pub stream_window: u32,
    /// Maximum octets of all names and values of a request (nginx: all of `large_client_header_buffers`).
    pub list_max: usize,
    /// Maximum octets of one name and value (nginx: one of `large_client_header_buffers`).
    pub field_max: usize,
    /// `max_headers`
    pub fields_max: usize,
    /// Accepts underscores in names (`underscores_in_headers`).
    pub underscores: bool,
    /// Drops fields with invalid names (`ignore_invalid_headers`).
    pub ignore_invalid: bool,
    /// Permits extended CONNECT, for other protocols in streams (RFC 9220).
    pub extended_connect: bool,
    /// Time without packets after which a connection ends.
    pub idle_timeout: Duration,
    /// Congestion control (`quic_congestion_control`).
    pub congestion: Congestion,
}

impl Default for Limits {
    /// Returns nginx's defaults.
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
    /// Returns the `quinn-proto` configuration that enforces the transport's part of these limits.
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
    /// Returns the maximum octets of an encoded section: each literal adds two lengths, and Huffman coding can lengthen
    /// a text.
    fn section_max(&self) -> u64 {
        2 * self.list_max as u64 + 4096
    }
}

/// Server side of one connection. Contains the `quinn_proto::Connection`, whose owner drives both, without I/O and with
/// the owner's time.
///
/// # Order of calls
///
/// [`Server::quic`] lends the connection: for events of the endpoint, timeouts and transmits. After events and
/// timeouts, call [`Server::drive`], then `StreamMux::poll_event` until there is none, then look at [`Server::failure`]
/// and [`Server::lost`]. Responses go to QUIC when they are sent, as far as it takes them; `drive` sends the rest when
/// there is room again. After any of these calls, and after [`Server::close`], the owner polls QUIC's endpoint events,
/// transmits and timeout: nothing leaves otherwise. The connection is over when its endpoint events say that it is
/// drained.
///
/// With [`Server::await_protocol`], [`Server::speak`] must precede the first stream.
pub struct Server {
    session: Session,
    limits: Limits,
    streams: ByStream<Stream>,
    /// Sum of the streams' `queued`.
    queued: u32,
    events: VecDeque<Event>,
    /// First stream that was not accepted.
    next: u64,
    going: bool,
    failed: Option<ConnectionError>,
    /// Why the connection is over.
    lost: Option<quinn_proto::ConnectionError>,
    connected: bool,
    closed: bool,
    resets: u64,
    answered: u64,
    /// Octets that QUIC has accepted.
    passed: u64,
    /// The client has sent a priority.
    urgency: bool,
    updates: VecDeque<(u64, Priority)>,
    /// Insertions into the decoder's table at the last check of blocked sections.
    decoded_with: u64,
    blocked_sections: u32,
}

impl Server {
    /// Creates the server side of `quic`, which must be configured with [`Limits::transport`].
    pub fn new(quic: Connection, limits: Limits) -> Server {
        let blocked = BLOCKED_STREAMS_MAX.min(u64::from(limits.streams_max));
        let session = Session::new(quic, blocked, limits.list_max as u64, limits.field_max, limits.extended_connect);
        Server {
            session,
            limits,
            streams: ByStream::default(),
            queued: 0,
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

    /// Returns the QUIC connection, for the endpoint that carries it. The endpoint calls [`Server::drive`] after events
    /// and timeouts.
    pub fn quic(&mut self) -> &mut Connection {
        &mut self.session.quic
    }
    /// Returns the QUIC connection for questions.
    pub fn quic_ref(&self) -> &Connection {
        &self.session.quic
    }

    /// Tells whether the handshake is complete.
    pub fn is_connected(&self) -> bool {
        self.connected
    }
    /// Tells whether requests may be replays, because the handshake is not complete (RFC 8470).
    pub fn is_early(&self) -> bool {
        self.session.quic.is_handshaking()
    }
    /// Returns the error that ends the connection; [`Server::close`] sends it to the client.
    pub fn failure(&self) -> Option<ConnectionError> {
        self.failed
    }
    /// Returns QUIC's reason for the end of the connection.
    pub fn lost(&self) -> Option<&quinn_proto::ConnectionError> {
        self.lost.as_ref()
    }
    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }
    /// Returns the number of requests with a complete response.
    pub fn answered(&self) -> u64 {
        self.answered
    }
    /// Returns the queued octets of all streams, which QUIC has not accepted yet.
    pub fn unsent(&self) -> usize {
        self.queued as usize
    }
    /// Tells whether responses are unacknowledged, which a close would lose.
    pub fn has_unacknowledged(&mut self) -> bool {
        self.session.quic.streams().send_streams() > self.session.own_streams()
    }
    /// Returns the octets of all streams that QUIC has accepted. While [`Server::unsent`] is not 0, this number grows
    /// only if the client reads.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Closes the connection, after a failure or at the end of its work.
    pub fn close(&mut self, now: Instant) {
        if !self.closed {
            self.closed = true;
            // Sends nginx's phrase; the log has the details.
            let (why, words) = self.failed.map_or((ErrorCode::NoError, ""), |error| (error.code, "stream error"));
            self.session.quic.close(now, error_code(why), Bytes::from_static(words.as_bytes()));
        }
    }

    /// Records a connection error and ends all streams.
    fn fail(&mut self, error: ConnectionError) {
        if self.failed.is_none() {
            self.failed = Some(error);
            self.drop_streams();
            // Cancels the streams' sections, so that the client knows which are not read.
            let _ = self.session.flush();
        }
    }
    fn drop_streams(&mut self) {
        self.queued = 0;
        let all: Vec<(u64, bool)> = self.streams.drain().map(|(id, stream)| (id, stream.ended)).collect();
        for (id, _) in all.iter().filter(|(_, ended)| !ended) {
            self.session.cancel(*id);
        }
        let mut gone: Vec<u64> = all.into_iter().map(|(id, _)| id).collect();
        gone.sort_unstable();
        self.events.extend(gone.into_iter().map(Event::Reset));
    }

    /// Tells whether no request is active and no response is queued. Incomplete heads do not count.
    pub fn is_idle(&self) -> bool {
        self.streams.values().all(|stream| stream.phase == Phase::Head)
    }
    /// Tells whether a request's head is incomplete.
    pub fn is_within_head(&self) -> bool {
        self.streams.values().any(|stream| stream.phase == Phase::Head)
    }

    /// Accepts no more streams; existing ones continue.
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

    /// Returns a stream's rank among those that wait for capacity; `None` if the client has sent no priority.
    pub fn rank(&self, id: u64) -> Option<Rank> {
        if !self.urgency {
            return None;
        }
        let priority = self.streams.get(&id).map_or(Priority::default(), |stream| stream.priority);
        let order = if priority.incremental { u32::MAX } else { u32::try_from(id / 4).unwrap_or(u32::MAX) };
        Some((priority.urgency, 0, Reverse(0), order))
    }

    /// Sets a stream's priority, from a field or a frame.
    fn set_priority(&mut self, id: u64, priority: Priority) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.priority = priority;
        let is_first = !std::mem::replace(&mut self.urgency, true);
        let affected: Vec<u64> = if is_first { self.streams.keys().copied().collect() } else { vec![id] };
        for id in affected {
            self.rank_in_quic(id);
        }
    }
    /// Passes a stream's priority to QUIC, which sends streams with higher numbers first, and alternates between equal
    /// ones.
    fn rank_in_quic(&mut self, id: u64) {
        /// Within an urgency, incremental streams come last (RFC 9218, 10).
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

/// Returns the send window of a path: twice the congestion window, within limits. A client on a slow path thus occupies
/// no more memory than the path can use.
fn send_window(congestion_window: u64) -> u64 {
    congestion_window.saturating_mul(2).clamp(SEND_WINDOW_MIN, SEND_WINDOW_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size of an idle connection, in addition to QUIC's state (decision 0113).
    #[test]
    fn a_connection_takes_little_beside_quic() {
        let own = size_of::<Server>() - size_of::<Connection>();
        assert!(own <= 768, "{own}");
    }
}
