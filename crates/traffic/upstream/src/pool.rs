//! Idle connections per thread (nginx: `ngx_http_upstream_keepalive_module`).

use crate::codec::{RequestFacts, SerialCodec};
use crate::group::Group;
use crate::keep_alive::KeepAlive;
use crate::scope::Scope;
use base::clock::{self, Instant};
use net::Address;
use runtime::time::Sleep;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use transport::Stream;

/// Owner of connections: groups do not share them, even to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolScope {
    group: u64,
    scope: usize,
}

impl PoolScope {
    pub(crate) fn new(group: &Group, scope: Scope) -> PoolScope {
        PoolScope { group: group.number, scope: scope.number() }
    }
}

/// A group's number is already a keyed hash.
#[derive(Default)]
pub(crate) struct MixedScopes(u64);

impl Hasher for MixedScopes {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = self.0.rotate_left(31) ^ n;
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64((n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }
}

/// A connection of a protocol with one request at a time. [`take_idle`] or [`PooledConnection::new`], [`PooledConnection::begin`] for each
/// request, and [`give_back`] after a complete response; dropped, it closes.
pub struct PooledConnection {
    pub(crate) stream: Stream,
    pub(crate) codec: Box<dyn SerialCodec>,
    pub(crate) idle_timer: IdleTimer,
    pub(crate) requests: u64,
    opened: Instant,
    idle_since: Instant,
    timeout_ms: u64,
    place: PoolScope,
    scope: Scope,
    address: Address,
    /// The group's count of idle connections, if an API shows it.
    idle_count: Option<Arc<AtomicU64>>,
    idle_mark: Option<IdleMark>,
}

/// While it is idle.
struct IdleMark(Arc<AtomicU64>);

impl IdleMark {
    fn new(count: Arc<AtomicU64>) -> IdleMark {
        count.fetch_add(1, Ordering::Relaxed);
        IdleMark(count)
    }
}

impl Drop for IdleMark {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Timer of a connection, armed across waits: moving it is cheap, creating it is not.
#[derive(Debug, Default)]
pub struct IdleTimer {
    sleep: Option<Sleep>,
    waiting: bool,
}

impl IdleTimer {
    /// Begins the measured silence anew, after an event.
    #[inline]
    pub fn renew(&mut self) {
        self.waiting = false;
    }
    /// Tells whether `timeout` passed without events; otherwise arranges a wake-up.
    pub fn poll_over(&mut self, cx: &mut Context<'_>, timeout: Duration) -> bool {
        let sleep = if self.waiting {
            let Some(sleep) = &mut self.sleep else { return false };
            sleep
        } else {
            self.waiting = true;
            let until = clock::now().plus(timeout);
            match &mut self.sleep {
                Some(sleep) => {
                    sleep.reset(until);
                    sleep
                }
                sleep => sleep.insert(runtime::time::sleep_until(until)),
            }
        };
        let over = Pin::new(sleep).poll(cx).is_ready();
        self.waiting &= !over;
        over
    }
    /// Ready when `timeout` has passed without events.
    pub async fn over(&mut self, timeout: Duration) {
        std::future::poll_fn(|cx| if self.poll_over(cx, timeout) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// Interval at which threads close idle connections that expired or were closed by servers.
pub(crate) const SWEEP: Duration = Duration::from_secs(1);

thread_local! {
    static SWEEPING: Cell<bool> = const { Cell::new(false) };
    /// By the number of the group; most recently used ones last.
    #[allow(clippy::vec_box)]
    static IDLE: RefCell<HashMap<u64, VecDeque<Box<PooledConnection>>, BuildHasherDefault<MixedScopes>>> = RefCell::default();
    /// Those of live bindings, by number.
    #[allow(clippy::vec_box)]
    static BOUND: RefCell<HashMap<usize, VecDeque<Box<PooledConnection>>, BuildHasherDefault<MixedScopes>>> = RefCell::default();
}

/// Limits idle connections to one connection of a client, which ends with the binding: a server has authenticated them.
#[derive(Debug)]
pub struct Binding(usize);

impl Binding {
    /// Creates a binding without connections, on the thread of the client's connection, which alone may use it.
    #[expect(clippy::new_without_default, reason = "every binding is another one")]
    pub fn new() -> Binding {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        BOUND.with_borrow_mut(|bound| bound.insert(number, VecDeque::new()));
        Binding(number)
    }
    /// Unique in the process.
    pub fn number(&self) -> usize {
        self.0
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        // Connections are closed outside of the borrow.
        let _closed = BOUND.try_with(|bound| bound.borrow_mut().remove(&self.0));
    }
}

impl PooledConnection {
    /// New connection. Boxed, since it is moved often.
    pub fn new(
        stream: Stream,
        codec: Box<dyn SerialCodec>,
        group: &Group,
        address: Address,
        scope: Scope,
    ) -> Box<PooledConnection> {
        Box::new(PooledConnection {
            stream,
            codec,
            idle_timer: IdleTimer::default(),
            requests: 0,
            opened: clock::now(),
            idle_since: clock::now(),
            timeout_ms: 0,
            place: PoolScope::new(group, scope),
            scope,
            address,
            idle_count: group.extras.roster.as_ref().map(|roster| roster.idle_count().clone()),
            idle_mark: None,
        })
    }
    /// Begins a request, whose encoded head the caller writes.
    pub fn begin(&mut self, asked: &RequestFacts, head: &[u8]) {
        self.requests += 1;
        self.codec.begin(asked, head);
    }
    /// Writes without waiting; see [`Stream::try_write`].
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.stream.try_write(bytes);
        self.idle_timer.renew();
        sent
    }
    /// Reads without waiting; see [`Stream::try_read_buf`].
    pub fn try_read(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let got = self.stream.try_read_buf(input);
        if got.is_ok() {
            self.idle_timer.renew();
        }
        got
    }
    /// Waits for data; `Ready(false)` after `timeout`.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<bool> {
        match self.stream.poll_readable(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if self.idle_timer.poll_over(cx, timeout) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    }
    /// Reusable: nothing arrived or ended.
    fn quiet(&self) -> bool {
        self.stream.is_quiet()
    }
    fn expired(&self, now: Instant) -> bool {
        self.timeout_ms != 0 && now.millis_since(self.idle_since) >= self.timeout_ms
    }
}

/// Takes an idle connection; drops one with any event.
pub fn take_idle(group: &Group, address: &Address, scope: Scope) -> Option<Box<PooledConnection>> {
    let place = PoolScope::new(group, scope);
    if scope.client != 0 {
        return BOUND.with_borrow_mut(|bound| latest(bound.get_mut(&scope.client)?, place, address));
    }
    IDLE.with_borrow_mut(|idle| latest(idle.get_mut(&place.group)?, place, address))
}

/// The most recently used connection is the least likely to be closed.
#[allow(clippy::vec_box)]
#[inline(always)]
fn latest(
    idle: &mut VecDeque<Box<PooledConnection>>,
    place: PoolScope,
    address: &Address,
) -> Option<Box<PooledConnection>> {
    let now = clock::now();
    while let Some(at) = idle.iter().rposition(|c| c.place == place && c.address == *address) {
        let mut connection = idle.remove(at)?;
        connection.idle_mark = None;
        if !connection.expired(now) && connection.quiet() {
            return Some(connection);
        }
    }
    None
}

/// Time since which the thread's oldest idle connection has been idle.
pub(crate) fn idle_since() -> Option<Instant> {
    let kept = IDLE.with_borrow(|idle| idle.values().filter_map(oldest).min());
    let bound = BOUND.with_borrow(|bound| bound.values().filter_map(oldest).min());
    kept.into_iter().chain(bound).min()
}

/// Closes the thread's connection that has been idle longest.
pub(crate) fn close_oldest() {
    let since = idle_since();
    let kept = IDLE.with_borrow_mut(|idle| idle.values_mut().find(|pool| oldest(pool) == since)?.pop_front());
    let found = kept
        .or_else(|| BOUND.with_borrow_mut(|bound| bound.values_mut().find(|pool| oldest(pool) == since)?.pop_front()));
    // Its descriptor is closed without the pools.
    drop(found);
}

#[allow(clippy::vec_box)]
fn oldest(pool: &VecDeque<Box<PooledConnection>>) -> Option<Instant> {
    Some(pool.front()?.idle_since)
}

/// After a clean response, within a `LocalSet`.
pub fn give_back(mut connection: Box<PooledConnection>, keep: &KeepAlive) {
    let now = clock::now();
    if keep.connections == 0
        || connection.requests >= keep.requests_max
        || now.millis_since(connection.opened) >= keep.time_ms
        || connection.scope.is_retired()
        || !connection.quiet()
    {
        return;
    }
    connection.idle_since = now;
    connection.timeout_ms = keep.timeout_ms;
    connection.idle_timer.renew();
    connection.stream.set_idle();
    connection.idle_mark = connection.idle_count.clone().map(IdleMark::new);
    let store = |idle: &mut VecDeque<Box<PooledConnection>>, connection: Box<PooledConnection>| {
        let dropped = if idle.len() >= keep.connections { idle.pop_front() } else { None };
        idle.push_back(connection);
        drop(dropped);
    };
    match connection.scope.client {
        0 => IDLE.with_borrow_mut(|idle| store(idle.entry(connection.place.group).or_default(), connection)),
        client => BOUND.with_borrow_mut(|bound| {
            // The client may have gone during the response.
            if let Some(idle) = bound.get_mut(&client) {
                store(idle, connection);
            }
        }),
    }
    if !SWEEPING.replace(true) {
        runtime::task::spawn_local(sweep());
    }
}

/// Closes connections that expired, that servers closed and that no request will use, while any are idle.
async fn sweep() {
    loop {
        runtime::time::sleep_for(SWEEP).await;
        clock::update();
        let now = clock::now();
        let left = IDLE.with_borrow_mut(|idle| {
            idle.retain(|_, of_group| {
                of_group.retain(|c| !c.expired(now) && !c.scope.is_retired() && c.quiet());
                !of_group.is_empty()
            });
            idle.len()
        });
        let bound = BOUND.with_borrow_mut(|bound| {
            bound.values_mut().for_each(|idle| idle.retain(|c| !c.expired(now) && !c.scope.is_retired() && c.quiet()));
            bound.values().filter(|idle| !idle.is_empty()).count()
        });
        if left + bound == 0 {
            SWEEPING.set(false);
            return;
        }
    }
}
