//! Idle connections to upstream servers, each thread its own (nginx: `ngx_http_upstream_keepalive_module`).

use crate::stream::{Address, Stream};
use base::clock::{self, Instant};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// How a group keeps connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Idle connections that a thread keeps; 0: none.
    pub connections: usize,
    pub requests_max: u64,
    pub time_ms: u64,
    pub timeout_ms: u64,
    /// `local`: connections are shared only by the location that made them.
    pub local: bool,
}

impl Default for KeepAlive {
    /// nginx's defaults since 1.29.7.
    fn default() -> Self {
        KeepAlive { connections: 32, requests_max: 1000, time_ms: 3_600_000, timeout_ms: 60_000, local: true }
    }
}

impl KeepAlive {
    /// A group that nobody has written down keeps nothing, as in nginx: whoever named only an address has not been asked how
    /// long its server waits, and a request that may not be sent twice would be lost with a connection that ends.
    pub fn none() -> KeepAlive {
        KeepAlive { connections: 0, ..KeepAlive::default() }
    }
}

/// A connection with its history.
#[derive(Debug)]
pub struct Pooled {
    pub stream: Stream,
    pub requests: u64,
    pub opened: Instant,
    idle_since: Instant,
    timeout_ms: u64,
    group: String,
    address: Address,
    scope: usize,
}

/// How often a thread looks at its idle connections: those whose servers have closed them are closed here, too.
const SWEEP: Duration = Duration::from_secs(1);

thread_local! {
    static SWEEPING: Cell<bool> = const { Cell::new(false) };
    static IDLE: RefCell<VecDeque<Pooled>> = const { RefCell::new(VecDeque::new()) };
}

impl Pooled {
    pub fn new(stream: Stream, group: &str, address: Address, scope: usize) -> Pooled {
        Pooled {
            stream,
            requests: 0,
            opened: clock::now(),
            idle_since: clock::now(),
            timeout_ms: 0,
            group: group.into(),
            address,
            scope,
        }
    }
    /// Nothing has come and nothing has ended: it may be used again.
    fn quiet(&self) -> bool {
        let mut probe = Vec::with_capacity(1);
        matches!(self.stream.try_read_buf(&mut probe), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Takes an idle connection out of the pool. A connection on which anything has happened meanwhile is dropped.
pub fn take(group: &str, address: &Address, scope: usize) -> Option<Pooled> {
    IDLE.with_borrow_mut(|idle| {
        let now = clock::now();
        idle.retain(|c| c.timeout_ms == 0 || now.millis_since(c.idle_since) < c.timeout_ms);
        // The most recently used one is the least likely to be closed by the server.
        while let Some(at) = idle.iter().rposition(|c| c.scope == scope && c.group == group && c.address == *address) {
            let connection = idle.remove(at)?;
            if connection.quiet() {
                return Some(connection);
            }
        }
        None
    })
}

/// Gives a connection back after a response that ended cleanly; call it within a `LocalSet`.
pub fn give(mut connection: Pooled, keep: &KeepAlive) {
    let now = clock::now();
    if keep.connections == 0
        || connection.requests >= keep.requests_max
        || now.millis_since(connection.opened) >= keep.time_ms
        || !connection.quiet()
    {
        return;
    }
    connection.idle_since = now;
    connection.timeout_ms = keep.timeout_ms;
    IDLE.with_borrow_mut(|idle| {
        let same = |c: &Pooled| c.group == connection.group && c.scope == connection.scope;
        if idle.iter().filter(|c| same(c)).count() >= keep.connections
            && let Some(oldest) = idle.iter().position(same)
        {
            idle.remove(oldest);
        }
        idle.push_back(connection);
    });
    if !SWEEPING.replace(true) {
        tokio::task::spawn_local(sweep());
    }
}

/// Closes what was idle for too long or was closed by its server, as long as there is anything idle.
async fn sweep() {
    loop {
        tokio::time::sleep(SWEEP).await;
        clock::update();
        let now = clock::now();
        let left = IDLE.with_borrow_mut(|idle| {
            idle.retain(|c| (c.timeout_ms == 0 || now.millis_since(c.idle_since) < c.timeout_ms) && c.quiet());
            idle.len()
        });
        if left == 0 {
            SWEEPING.set(false);
            return;
        }
    }
}
