//! A thread's configuration and listening sockets.

use http_engine::{HttpPlan, ListenerRef};
use mail_features::MailPlan;
use net::Address;
use net::listen::ListenSpec;
use net::poller::Key;
use observe::ErrorLog;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use stream_features::StreamPlan;

/// A listening socket of a thread.
#[derive(Debug)]
pub struct BoundSocket {
    /// Address and options.
    pub spec: ListenSpec,
    /// The socket.
    pub fd: OwnedFd,
    /// Shared by several threads (UNIX-domain sockets): wakes one at a time (EPOLLEXCLUSIVE).
    pub shared: bool,
}

/// Configuration since start or reload; requests in flight keep their plan.
#[derive(Clone, Debug)]
pub struct ServeLoop {
    /// Plan of the http area.
    pub http: Option<Arc<HttpPlan>>,
    /// Plan of the stream area.
    pub stream: Option<Arc<StreamPlan>>,
    /// Plan of the mail area.
    pub mail: Option<Arc<MailPlan>>,
    /// Error log of the process, for messages without a location.
    pub error_log: Arc<ErrorLog>,
    /// `worker_connections`.
    pub connections_max: usize,
    /// `multi_accept`.
    pub multi_accept: bool,
    /// `worker_shutdown_timeout` in milliseconds: how long older connections may stay after a reload; 0: forever.
    pub shutdown_timeout_ms: u64,
    /// `stall_threshold` in milliseconds: longer turns of the event loop are logged; 0: none.
    pub stall_threshold_ms: u64,
}

/// Cached listener index, with its plan's generation.
pub type ListenPlace = Cell<(u32, Option<usize>)>;

/// Carrier of a listening socket of streams.
pub struct ListenSocket {
    /// Address of the socket.
    pub listener: ListenerRef,
    /// Shared by several threads: see [`BoundSocket::shared`].
    pub shared: bool,
    /// Paused until [`Worker::paused_until`](crate::worker::Worker::paused_until), for lack of descriptors or
    /// connections.
    pub paused: Cell<bool>,
    /// Place in the stream plan.
    pub stream: ListenPlace,
    /// Place in the mail plan.
    pub mail: ListenPlace,
}

/// An open socket, found at reload by address and kind.
pub struct ListenState {
    /// Entry in the poller.
    pub key: Key,
    /// Address.
    pub address: Address,
    /// `None`: datagrams.
    pub accepting: Option<Rc<ListenSocket>>,
}

impl ListenState {
    /// Address; true for datagrams.
    pub fn place(&self) -> (Address, bool) {
        (self.address.clone(), self.accepting.is_none())
    }
}
