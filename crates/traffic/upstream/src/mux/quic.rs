//! Datagrams of one QUIC connection to a server: a connected socket with an endpoint of its own.

use base::clock;
use bytes::BytesMut;
use net::Address;
use net::outbound::Outbound;
use net::packets::{OutgoingPackets, PacketSocket};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Transmit, TransportConfig,
    VarInt,
};
use runtime::budget;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tls::quic::ClientCrypto;
use transport::{ConnectOptions, LocalError, datagram_socket};

/// Unread bytes of a stream, which stop the server.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Unacknowledged bytes of all streams.
const SEND_WINDOW: u64 = 1024 * 1024;
/// Unidirectional streams of the server: it needs three.
const UNI_STREAMS_MAX: u32 = 16;
/// Maximum silence; a server may say less.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Pings keep a connection through a slow response; the pool closes idle ones.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum number of datagrams per GSO send.
const SEGMENTS_MAX: usize = 16;
/// Maximum number of sends per turn.
const SENDS_MAX: usize = 16;

/// The socket and the endpoint of one QUIC connection. The `quinn_proto::Connection` belongs to the caller and is lent
/// to each call.
///
/// [`QuicLink::receive`] first; then, after any change of the connection, [`QuicLink::transmit`] until it returns `true`, and
/// timers by `Connection::poll_timeout`. Returns of `false` are continued with [`QuicLink::poll_room`].
pub struct QuicLink {
    // Closed before `outbound`, whose descriptor is the registered one.
    socket: PacketSocket,
    outbound: Outbound,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    peer: SocketAddr,
    /// A send that the socket had no room for.
    blocked: Option<(Transmit, Vec<u8>)>,
    buf: Vec<u8>,
    segments: usize,
}

/// Returns the time of this turn.
pub fn turn_now() -> Instant {
    clock::as_std(clock::now())
}

fn transport(streams_max: usize) -> Arc<TransportConfig> {
    static CONFIG: OnceLock<Arc<TransportConfig>> = OnceLock::new();
    CONFIG
        .get_or_init(|| {
            let mut transport = TransportConfig::default();
            transport
                .max_concurrent_bidi_streams(VarInt::from_u32(0))
                .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS_MAX))
                .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
                .receive_window(VarInt::from_u32(STREAM_WINDOW.saturating_mul(streams_max as u32)))
                .send_window(SEND_WINDOW)
                .max_idle_timeout(IDLE_MAX.try_into().ok())
                .keep_alive_interval(Some(PING_INTERVAL))
                .datagram_receive_buffer_size(None);
            Arc::new(transport)
        })
        .clone()
}

impl QuicLink {
    /// Opens a socket and begins the handshake. Fails as socket(), bind() and connect(), and with rules that QUIC
    /// cannot follow.
    pub fn open(
        to: SocketAddr,
        options: &ConnectOptions,
        crypto: ClientCrypto,
        streams_max: usize,
    ) -> io::Result<(QuicLink, Connection)> {
        static ENDPOINT: OnceLock<Arc<EndpointConfig>> = OnceLock::new();
        let fd = datagram_socket(&Address::Ip(to), options)?;
        let copy = fd.try_clone().map_err(LocalError::socket)?;
        let socket = PacketSocket::new(copy, options.receive_buffer > 0)?;
        let outbound = Outbound::datagrams(fd)?;
        let config = ENDPOINT.get_or_init(Arc::default).clone();
        let mut endpoint = Endpoint::new(config, None, true, None);
        let mut client = ClientConfig::new(crypto.config);
        client.transport_config(transport(streams_max));
        let (handle, connection) = endpoint.connect(turn_now(), client, to, &crypto.name).map_err(io::Error::other)?;
        let segments = socket.segments_max().min(SEGMENTS_MAX);
        let link = QuicLink { socket, outbound, endpoint, handle, peer: to, blocked: None, buf: Vec::new(), segments };
        Ok((link, connection))
    }

    /// Handles received datagrams within the turn's budget. Fails as recvmmsg(), such as with `ConnectionRefused`.
    pub fn receive(&mut self, quic: &mut Connection, cx: &mut Context<'_>) -> io::Result<()> {
        while self.outbound.poll_readable(cx).is_ready() {
            let (now, peer) = (turn_now(), self.peer);
            let (endpoint, mut replies) = (&mut self.endpoint, Vec::new());
            let received = self.socket.receive(|packet| {
                let ecn = quinn_proto::EcnCodepoint::from_bits(packet.ecn);
                let mut reply = Vec::new();
                match endpoint.handle(now, peer, None, ecn, BytesMut::from(packet.bytes), &mut reply) {
                    Some(DatagramEvent::ConnectionEvent(_, event)) => quic.handle_event(event),
                    Some(DatagramEvent::Response(transmit)) => replies.push((transmit, reply)),
                    _ => {}
                }
            });
            for (transmit, reply) in replies {
                // Loss of one is the network's usual.
                let _ = self.send(&transmit, &reply);
            }
            match received {
                Ok(_) if budget::is_left() => {}
                Ok(_) => {
                    cx.waker().wake_by_ref();
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.outbound.drained(),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends what QUIC has to send. `false`: more is left for another turn, or for a writable socket.
    pub fn transmit(&mut self, quic: &mut Connection) -> bool {
        if let Some((transmit, bytes)) = self.blocked.take()
            && self.send(&transmit, &bytes).is_err()
        {
            self.blocked = Some((transmit, bytes));
            return false;
        }
        let now = turn_now();
        for _ in 0..SENDS_MAX {
            while let Some(event) = quic.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    quic.handle_event(event);
                }
            }
            let mut bytes = std::mem::take(&mut self.buf);
            bytes.clear();
            let Some(transmit) = quic.poll_transmit(now, self.segments, &mut bytes) else {
                self.buf = bytes;
                return true;
            };
            if self.send(&transmit, &bytes).is_err() {
                self.blocked = Some((transmit, bytes));
                return false;
            }
            self.buf = bytes;
        }
        false
    }

    fn send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let sent = self.socket.send(&OutgoingPackets {
            bytes: bytes.get(..transmit.size).unwrap_or(bytes),
            to: transmit.destination,
            from: None,
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
            segment: transmit.segment_size,
        });
        if sent.is_err() {
            self.outbound.blocked();
        }
        sent
    }

    /// Arranges the rest of [`QuicLink::transmit`].
    pub fn poll_room(&self, cx: &mut Context<'_>) {
        if self.blocked.is_none() || matches!(self.outbound.poll_writable(cx), Poll::Ready(())) {
            cx.waker().wake_by_ref();
        }
    }
}
