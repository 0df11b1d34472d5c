//! Upgraded connections (WebSocket, CONNECT): relayed until one side ends. Over HTTP/2 a client that ended its side still
//! receives.

use area::relay::{Direction, HalfClose, Relay, RelayEnd, RelaySide, Terms};
use http_engine::{LocalFuture, Tunnel, TunnelFault, TunnelMark};
use std::future::poll_fn;
use std::time::Duration;
use transport::Stream;
use upstream::PeerLease;

pub(crate) const BUFFER_BYTES: usize = 16 * 1024;

/// An upgraded connection to a server.
pub struct UpgradedTunnel {
    /// The connection.
    pub stream: Stream,
    /// After the response head.
    pub from_server: Vec<u8>,
    /// Idle timeout (`proxy_read_timeout`).
    pub idle: Duration,
    /// Idle timeout while the server does not read.
    pub stalled: Duration,
    /// Bytes of the buffer for each direction.
    pub buffer: usize,
    /// The server, in use until the end.
    pub active: PeerLease,
}

impl Tunnel for UpgradedTunnel {
    fn run(self: Box<Self>, client: Box<dyn RelaySide>) -> LocalFuture<TunnelMark> {
        Box::pin(async move {
            let UpgradedTunnel { stream, from_server, idle, stalled, buffer, active: _active } = *self;
            // Interactive input must not wait for acknowledgements.
            stream.hurry();
            let half_close = if client.closes_by_halves() { HalfClose::Client } else { HalfClose::Neither };
            let terms = Terms {
                buffer_bytes: buffer,
                half_close,
                timeout_ms: idle.as_millis() as u64,
                stalled_ms: stalled.as_millis() as u64,
            };
            let down = Direction::new(from_server, 0, 0);
            let mut relay = Relay::new(client, &stream, Direction::default(), down, terms);
            let mut unread = None;
            let end = poll_fn(|cx| {
                let end = relay.poll(cx);
                unread = unread.take().or_else(|| relay.take_broken());
                end
            })
            .await;
            let fault = |error, of_server, is_read| {
                Some(TunnelFault { error, of_server, is_read, is_secure: of_server && stream.is_secure() })
            };
            let timed_out = matches!(end, RelayEnd::Silence);
            let broken = match (end, unread) {
                (RelayEnd::Broken(e, to_client), _) => fault(e, !to_client, false),
                (_, Some((e, of_server))) => fault(e, of_server, true),
                _ => None,
            };
            TunnelMark {
                received: relay.up.received,
                from_server: relay.down.received,
                sent: relay.down.sent,
                timed_out,
                // Other errors of a client are its protocol's.
                broken: broken.filter(|fault| fault.of_server || fault.error.raw_os_error().is_some()),
            }
        })
    }
}
