//! Connections of multiplexed protocols (HTTP/2, HTTP/3): several requests of a thread share one. `usage.rs` lends and keeps them,
//! `response.rs` translates responses; `h2.rs` and `h3.rs` have the protocols, `quic.rs` the datagrams below HTTP/3.

pub mod h2;
pub mod h3;
mod quic;
mod response;
mod usage;

use crate::client::{Counts, ResponseEvent, Stop};
use crate::codec::RequestFacts;
use crate::pool::IdleTimer;
use std::io;
use std::task::{Context, Poll};

/// A right to start one request on a shared connection.
pub trait Lease {
    /// Leases the connection once more, for a caller that holds on to it between requests. `None`: it has ended, or takes no more
    /// requests.
    fn share(&self) -> Option<Box<dyn Lease>>;
    /// Starts a request; `block`: encoded head.
    fn begin(self: Box<Self>, asked: &RequestFacts, block: Vec<u8>) -> Box<dyn MuxStream>;
}

/// Uses a shared connection.
pub trait MuxStream {
    /// Requests that the connection has served, this one included.
    fn requests(&self) -> u64;
    /// `end`: the last piece.
    fn queue(&mut self, piece: &[u8], end: bool);
    /// Tells whether all queued bytes were handed to the connection.
    fn is_flushed(&self) -> bool;
    /// Starts the request, once the server allows a stream, and hands over queued bytes as windows permit.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>>;
    /// Returns the next event that has arrived; `None`: there is none yet.
    fn poll_now(&mut self) -> Option<ResponseEvent>;
    /// Returns the next event; `Pending` wakes `cx` for it. After the end there is none.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ResponseEvent>;
    /// Returns the timer of silence, which events and writes renew.
    fn idle_timer(&mut self) -> &mut IdleTimer;
    /// Returns the bytes on the wire since the counts were last taken.
    fn counts(&mut self) -> &mut Counts;
}

#[derive(Clone, Debug)]
enum Over {
    Closed,
    Failed(io::ErrorKind, Option<i32>),
    Wrong(String),
}

impl Over {
    fn failed(e: &io::Error) -> Over {
        Over::Failed(e.kind(), e.raw_os_error())
    }
    fn came(self) -> ResponseEvent {
        match self {
            Over::Closed => ResponseEvent::Closed,
            Over::Failed(_, Some(code)) => ResponseEvent::Failed(io::Error::from_raw_os_error(code)),
            Over::Failed(kind, None) => ResponseEvent::Failed(kind.into()),
            Over::Wrong(words) => ResponseEvent::Wrong(words.into()),
        }
    }
}
