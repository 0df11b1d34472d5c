//! A client's connection as the engine sees it: its facts, and its interface for handlers.

use area::background::LocalFuture;
use base::clock::Instant;
use bytes::Bytes;
use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Facts of a client connection, shared by its requests. The connection's driver makes it after the accept and replaces
/// it when a PROXY header or a handshake adds facts.
#[derive(Clone, Debug)]
pub struct ClientConnection {
    /// `$connection`; 0 for the server's own requests.
    pub number: u64,
    /// `None` for UNIX-domain sockets.
    pub peer: Option<SocketAddr>,
    /// The local address that accepted the connection.
    pub local: Rc<net::Address>,
    /// The listener that accepted the connection, to be found again in later plans.
    pub listener: ListenerRef,
    /// `$connection_requests`: requests so far, including the current one. Saturates.
    pub requests: Cell<u32>,
    /// TCP_NODELAY is set, or was tried; it is set once.
    pub nodelay: Cell<bool>,
    /// Octets that arrived behind a request.
    pub pipelining: PipelineState,
    /// Time of the accept.
    pub started: Instant,
    /// PROXY protocol header, and its bytes.
    pub proxy: Option<Box<(wire_proxy::Header, Vec<u8>)>>,
    /// Entry in the thread's poller, for `$tcpinfo_*`; `None`: no socket.
    pub socket: Option<net::poller::Key>,
    /// Facts of the completed TLS handshake; `None` in cleartext.
    pub tls: Option<Arc<tls::Facts>>,
    /// Bytes of a head that is not complete yet.
    pub begun: PartialHead,
}

impl ClientConnection {
    /// Returns the client's IP address as text without a port, or `unix:`.
    pub fn peer_text(&self) -> String {
        self.peer.map_or_else(|| "unix:".into(), |a| a.ip().to_string())
    }
    /// Counts a request, and returns its number.
    pub fn count_request(&self) -> u32 {
        self.requests.set(self.requests.get().saturating_add(1));
        self.requests.get()
    }
    /// Returns `false` for the last request that `keepalive_requests` and `keepalive_time` (milliseconds) allow.
    pub fn has_requests_left(&self, requests_max: u64, millis_max: u64, now: Instant) -> bool {
        u64::from(self.requests.get()) < requests_max && now.millis_since(self.started) <= millis_max
    }
}

// With its `Rc` counts it fits the allocators' class of 128 bytes, which dominates idle connections.
const _: () = assert!(size_of::<ClientConnection>() <= 112);

/// Requests that a client has sent ahead, behind others.
#[derive(Clone, Debug, Default)]
pub struct PipelineState {
    seen: Cell<bool>,
    next: Cell<bool>,
}

impl PipelineState {
    /// Notes octets behind a request.
    #[inline]
    pub fn note(&self) {
        self.seen.set(true);
        self.next.set(true);
    }
    /// At a request's begin: tells whether its octets followed those of another request (`$pipe`).
    #[inline]
    pub fn take(&self) -> bool {
        self.next.take()
    }
    /// Tells whether the client has sent requests ahead. Further ones may be in transit, and would turn a close into a
    /// reset, which can destroy responses (nginx: `c->pipeline`).
    #[inline]
    pub fn is_seen(&self) -> bool {
        self.seen.get()
    }
}

/// Names a listener across reloads by address and kind. Caches the index in the latest plan.
#[derive(Clone, Debug)]
pub struct ListenerRef {
    address: Rc<net::Address>,
    /// Generation of the last plan, and index ([`ABSENT`]: none) with a highest bit for datagrams.
    place: Cell<(u32, u32)>,
}

const DATAGRAMS: u32 = 1 << 31;
/// Index of a listener that the plan does not have.
const ABSENT: u32 = DATAGRAMS - 1;

impl ListenerRef {
    /// Names the TCP or UNIX-domain listener of an address.
    pub fn new(address: Rc<net::Address>) -> ListenerRef {
        ListenerRef { address, place: Cell::new((0, ABSENT)) }
    }
    /// Names the listener of datagrams (QUIC) of an address.
    pub fn datagrams(address: Rc<net::Address>) -> ListenerRef {
        ListenerRef { address, place: Cell::new((0, ABSENT | DATAGRAMS)) }
    }
    /// Returns the address of the listener.
    pub fn address(&self) -> &Rc<net::Address> {
        &self.address
    }
    /// Index in a generation's plan; calls `find` (address, datagrams) for a new plan.
    #[inline]
    pub fn index_in(&self, generation: u32, find: impl FnOnce(&net::Address, bool) -> Option<usize>) -> Option<usize> {
        let (known, place) = self.place.get();
        let (kind, index) = (place & DATAGRAMS, place & ABSENT);
        if known == generation && index != ABSENT {
            return Some(index as usize);
        }
        let found = find(&self.address, kind != 0);
        self.place.set((generation, kind | found.map_or(ABSENT, |index| index as u32)));
        found
    }
}

/// Bytes of an incomplete head; empty for most connections.
#[derive(Default)]
#[allow(clippy::box_collection)]
pub struct PartialHead(Cell<Option<Box<BegunHead>>>);

/// Bytes of an incomplete head, and the time of the first one, with which `$request_time` begins.
pub struct BegunHead {
    /// Arrival of the first byte.
    pub since: Instant,
    /// The bytes so far, without spare capacity.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for PartialHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PartialHead({})", self.is_some())
    }
}

impl Clone for PartialHead {
    fn clone(&self) -> Self {
        PartialHead::default()
    }
}

impl PartialHead {
    /// Takes the bytes out, to be completed; leaves none.
    pub fn take(&self) -> Option<BegunHead> {
        self.0.take().map(|begun| *begun)
    }
    /// Copies the bytes without spare capacity.
    pub fn keep(&self, bytes: &[u8], since: Instant) {
        self.0.set((!bytes.is_empty()).then(|| Box::new(BegunHead { since, bytes: bytes.to_vec() })));
    }
    /// Tells whether the client has begun a head.
    pub fn is_some(&self) -> bool {
        let begun = self.0.take();
        let is_some = begun.is_some();
        self.0.set(begun);
        is_some
    }
}

/// Reads a request's body; implemented by the connection.
pub trait BodyReader {
    /// Next bytes; `None` at the end. Fails with a status: 400 (framing), 408, 413, or 499.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, u16>>>;
    /// Sets the maximum wait for further bytes (`client_body_timeout`), when the request enters a location.
    fn set_timeout(&mut self, timeout: Duration);
}

/// Takes over a connection after a response head.
pub trait Tunnel {
    /// Copies bytes between the client and the server until either ends, and returns the counts. Begins after the
    /// response head was sent; dropping the future closes the server's connection.
    fn run(self: Box<Self>, client: Box<dyn area::relay::RelaySide>) -> LocalFuture<TunnelMark>;
}

/// The end of a tunnel.
#[derive(Debug)]
pub struct TunnelMark {
    /// Bytes of the client.
    pub received: u64,
    /// Bytes of the server, without those that came with its head.
    pub from_server: u64,
    /// Bytes sent to the client.
    pub sent: u64,
    /// Neither side sent anything for the idle timeout.
    pub timed_out: bool,
    /// A failed read or write.
    pub broken: Option<TunnelFault>,
}

/// The failed system call that ended a tunnel.
#[derive(Debug)]
pub struct TunnelFault {
    /// The error of the read or write.
    pub error: std::io::Error,
    /// The server's connection failed; otherwise the client's.
    pub of_server: bool,
    /// The call was a read; otherwise a write.
    pub is_read: bool,
    /// The failed connection is a server's that uses TLS.
    pub is_secure: bool,
}

/// Counts the octets of a body with their framing; implemented by the connection.
pub trait BodyOctets {
    /// Octets that were read so far.
    fn octets(&self) -> u64;
}

/// Waits for a handler's work, unless the client of its request leaves first (`None`). A wait without it outlives its connection, and is
/// not among those that `worker_connections` counts.
pub async fn unless_gone<T>(watch: Option<Rc<dyn Watch>>, work: impl Future<Output = T>) -> Option<T> {
    let gone = poll_fn(|cx| watch.as_ref().map_or(Poll::Pending, |watch| watch.poll_gone(cx)));
    tokio::select! {
        biased;
        done = work => Some(done),
        () = gone => None,
    }
}

/// Watches a request's client; implemented by the connection.
pub trait Watch {
    /// Ready once the client has disconnected; until then wakes `cx` for the disconnection.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Tells whether the server itself has closed the connection (`worker_shutdown_timeout`).
    fn is_cut(&self) -> bool {
        false
    }
    /// Sends an interim response (103); ready when all of it was written, or the connection failed.
    fn poll_interim(&self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<()>;
}
