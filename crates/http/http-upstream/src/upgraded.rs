//! Upgraded connections (WebSocket, CONNECT): relayed until one side ends. Over HTTP/2 a client that ended its side still
//! receives.

use http_engine::{LocalFuture, Tunnel, Tunnelled};
use session_engine::relay::{Direction, End, HalfClose, Relay, RelayEnd, Terms};
use std::future::poll_fn;
use std::time::Duration;
use upstream::{PeerLease, Stream};

pub const BUFFER_BYTES: usize = 16 * 1024;

pub struct Upgraded {
    pub stream: Stream,
    /// After the response head.
    pub from_server: Vec<u8>,
    /// Idle timeout (`proxy_read_timeout`).
    pub idle: Duration,
    /// Idle timeout while the server does not read.
    pub stalled: Duration,
    pub buffer: usize,
    pub active: PeerLease,
}

impl Tunnel for Upgraded {
    fn run(self: Box<Self>, client: Box<dyn End>) -> LocalFuture<Tunnelled> {
        Box::pin(async move {
            let Upgraded { stream, from_server, idle, stalled, buffer, active: _active } = *self;
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
            let end = poll_fn(|cx| relay.poll(cx)).await;
            Tunnelled {
                received: relay.up.received,
                sent: relay.down.sent,
                timed_out: matches!(end, RelayEnd::Silence),
            }
        })
    }
}
