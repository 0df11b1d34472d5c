//! Memory of responses that are made in memory, and of compressors: one budget with a limit per connection and one for the process
//! (`generated_body_memory`).
//!
//! A feature asks before it makes a body ([`reserve_memory`]), corrects the size when it is known ([`Reservation::resize`]), and ties the
//! reservation to the body's bytes ([`Reservation::hold`]), whose last reference gives it back: a client that does not read
//! occupies its own connection's share, and further requests wait, in order, with next to nothing. A connection that
//! holds nothing gets a reservation of any size within the process's limit, and a process that holds nothing one of any size.
//!
//! Subrequests count, and do not wait. Compressors between two steps, and includes of a page beside the first one, take part with
//! [`try_reserve`], which does not wait.

use crate::handler::{Flow, ResponseBody};
use crate::request::Request;
use crate::values::MemoryLimits;
use bytes::Bytes;
use observe::Severity;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Limits of the request's location; the default ones for a request without a plan, as in tests.
pub fn memory_limits(r: &Request) -> MemoryLimits {
    const DEFAULT: MemoryLimits = MemoryLimits { connection: 2 << 20, process: 256 << 20 };
    r.scope.plan.as_ref().map_or(DEFAULT, |plan| plan.loc(r.scope.location).core.conf.generated_body_memory)
}

/// Number of the request's connection.
fn connection(r: &Request) -> u64 {
    r.scope.connection.as_ref().map_or(0, |connection| connection.number)
}

/// Why a response gets no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMemory {
    /// The client has left: 499.
    ClientLeft,
    /// Other responses kept the memory for `send_timeout`, which is logged: 503.
    TimedOut,
}

impl NoMemory {
    /// Returns the status of the response: 499 or 503.
    pub fn status(self) -> u16 {
        match self {
            NoMemory::ClientLeft => 499,
            NoMemory::TimedOut => 503,
        }
    }
}

#[derive(Default)]
struct Budget {
    used: u64,
    /// Connections that hold or wait for memory, by number.
    connections: HashMap<u64, Share>,
    /// Connections whose first waiter lacks the process's memory alone, in order.
    crowded: VecDeque<u64>,
    next_id: u64,
}

/// Share of a connection.
#[derive(Default)]
struct Share {
    used: u64,
    waiting: VecDeque<MemoryWait>,
    is_crowded: bool,
}

struct MemoryWait {
    id: u64,
    bytes: u64,
    limits: MemoryLimits,
    waker: Waker,
}

static BUDGET: LazyLock<Mutex<Budget>> = LazyLock::new(Mutex::default);

fn budget() -> MutexGuard<'static, Budget> {
    BUDGET.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Budget {
    fn fits_connection(share: &Share, bytes: u64, limits: &MemoryLimits) -> bool {
        share.used == 0 || share.used.saturating_add(bytes) <= limits.connection
    }
    fn fits_process(&self, bytes: u64, limits: &MemoryLimits) -> bool {
        self.used == 0 || self.used.saturating_add(bytes) <= limits.process
    }
    /// Takes memory at once, unless earlier requests wait for it.
    fn take(&mut self, connection: u64, bytes: u64, limits: &MemoryLimits) -> bool {
        let share = self.connections.get(&connection);
        let fits_connection =
            share.is_none_or(|share| share.waiting.is_empty() && Budget::fits_connection(share, bytes, limits));
        if !fits_connection || !self.crowded.is_empty() || !self.fits_process(bytes, limits) {
            return false;
        }
        self.add(connection, bytes);
        true
    }
    fn add(&mut self, connection: u64, bytes: u64) {
        self.used += bytes;
        self.connections.entry(connection).or_default().used += bytes;
    }
    fn wait(&mut self, connection: u64, bytes: u64, limits: MemoryLimits, waker: Waker) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.connections.entry(connection).or_default().waiting.push_back(MemoryWait { id, bytes, limits, waker });
        self.grant(connection, false);
        id
    }
    /// Gives memory back, and passes it on.
    fn release(&mut self, connection: u64, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        if let Some(share) = self.connections.get_mut(&connection) {
            share.used = share.used.saturating_sub(bytes);
        }
        self.grant(connection, false);
        self.pass_on();
    }
    /// Serves the connections that wait for the process's memory, in order.
    fn pass_on(&mut self) {
        while let Some(first) = self.crowded.pop_front() {
            if let Some(share) = self.connections.get_mut(&first) {
                share.is_crowded = false;
            }
            let waiting = self.crowded.len();
            self.grant(first, true);
            if self.crowded.len() > waiting {
                // It waits on, before the others.
                self.crowded.rotate_right(1);
                return;
            }
        }
    }
    /// Serves the waiting requests of a connection, in order. `in_turn`: it is the first that waits for the process's memory.
    fn grant(&mut self, connection: u64, in_turn: bool) {
        loop {
            let Some(share) = self.connections.get(&connection) else { return };
            let Some(first) = share.waiting.front() else {
                if share.used == 0 {
                    self.connections.remove(&connection);
                }
                return;
            };
            let (bytes, limits) = (first.bytes, first.limits);
            if share.is_crowded || !Budget::fits_connection(share, bytes, &limits) {
                return;
            }
            let fits = (in_turn || self.crowded.is_empty()) && self.fits_process(bytes, &limits);
            let Some(share) = self.connections.get_mut(&connection) else { return };
            if !fits {
                share.is_crowded = true;
                self.crowded.push_back(connection);
                return;
            }
            let first = share.waiting.pop_front();
            self.add(connection, bytes);
            if let Some(first) = first {
                first.waker.wake();
            }
        }
    }
    /// Ends a wait. Memory that it has got in the meantime is given back.
    fn cancel(&mut self, connection: u64, id: u64, bytes: u64) {
        let Some(share) = self.connections.get_mut(&connection) else { return };
        let Some(at) = share.waiting.iter().position(|waiting| waiting.id == id) else {
            return self.release(connection, bytes);
        };
        share.waiting.remove(at);
        if std::mem::take(&mut share.is_crowded) {
            // Its next request takes its place at the end.
            self.crowded.retain(|other| *other != connection);
        }
        self.grant(connection, false);
        self.pass_on();
    }
    fn is_waiting(&mut self, connection: u64, id: u64, cx: &Context<'_>) -> bool {
        let share = self.connections.get_mut(&connection);
        let waiting = share.and_then(|share| share.waiting.iter_mut().find(|waiting| waiting.id == id));
        waiting.map(|waiting| waiting.waker.clone_from(cx.waker())).is_some()
    }
}

/// Memory of a response; given back when dropped, on any thread.
#[derive(Debug)]
pub struct Reservation {
    connection: u64,
    bytes: u64,
}

impl Reservation {
    /// Corrects the size, which may exceed the limits: the memory is in use already.
    pub fn resize(&mut self, bytes: u64) {
        let mut budget = budget();
        match bytes.checked_sub(self.bytes) {
            Some(more) => budget.add(self.connection, more),
            None => budget.release(self.connection, self.bytes - bytes),
        }
        self.bytes = bytes;
    }
    /// Ties the reservation, resized, to the bytes of a body: it is given back with the last reference to them.
    pub fn hold(mut self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        self.resize(bytes.as_ref().len() as u64);
        Bytes::from_owner(HeldMemory { bytes, _reservation: self })
    }
    /// [`Reservation::hold`] of a response's body in memory. Other bodies do not need it.
    pub fn hold_content(self, flow: Flow) -> Flow {
        match flow {
            Flow::Content(ResponseBody::Bytes(bytes)) => Flow::Content(ResponseBody::Bytes(self.hold(bytes))),
            other => other,
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        budget().release(self.connection, self.bytes);
    }
}

struct HeldMemory<B> {
    bytes: B,
    _reservation: Reservation,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for HeldMemory<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// A request that waits for memory.
struct Wait {
    connection: u64,
    bytes: u64,
    id: Option<u64>,
}

impl Wait {
    fn poll(&mut self, limits: MemoryLimits, cx: &mut Context<'_>) -> Poll<Reservation> {
        let mut budget = budget();
        let is_waiting = match self.id {
            Some(id) => budget.is_waiting(self.connection, id, cx),
            None if budget.take(self.connection, self.bytes, &limits) => false,
            None => {
                let id = budget.wait(self.connection, self.bytes, limits, cx.waker().clone());
                self.id = Some(id);
                budget.is_waiting(self.connection, id, cx)
            }
        };
        if is_waiting {
            return Poll::Pending;
        }
        self.id = None;
        Poll::Ready(Reservation { connection: self.connection, bytes: self.bytes })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            budget().cancel(self.connection, id, self.bytes);
        }
    }
}

/// Reserves memory for a response; waits in order if the request's connection or the process has none left. `bytes`: an estimate.
/// The failure is logged.
///
/// # Errors
/// The client has left, or `send_timeout` has passed.
pub async fn reserve_memory(r: &Request, bytes: u64) -> Result<Reservation, NoMemory> {
    let reserved = await_reservation(r, bytes).await;
    if reserved.as_ref().err() == Some(&NoMemory::TimedOut) {
        log_timeout(r, bytes);
    }
    reserved
}

/// [`reserve_memory`] apart from the request, without a log line ([`log_timeout`]).
pub fn await_reservation(r: &Request, bytes: u64) -> impl Future<Output = Result<Reservation, NoMemory>> + use<> {
    let limits = memory_limits(r);
    let patience = r.scope.plan.as_ref().map(|plan| plan.loc(r.scope.location).core.conf.send_timeout.duration());
    let patience = patience.unwrap_or(Duration::from_secs(60));
    let watch = r.incoming.watch.clone();
    let mut wait = Wait { connection: connection(r), bytes, id: None };
    let is_part = r.is_subrequest();
    async move {
        if is_part {
            // Parts of a page are sent in order: one must not wait for a later one.
            budget().add(wait.connection, bytes);
            return Ok(Reservation { connection: wait.connection, bytes });
        }
        let at_once = poll_fn(|cx| Poll::Ready(wait.poll(limits, cx)));
        if let Poll::Ready(reservation) = at_once.await {
            return Ok(reservation);
        }
        // The client first: others that leave with it make way.
        let granted = poll_fn(|cx| match watch.as_ref().map(|watch| watch.poll_gone(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(None),
            _ => wait.poll(limits, cx).map(Some),
        });
        let granted = runtime::time::with_timeout(patience, granted).await;
        match granted {
            Ok(Some(reservation)) => Ok(reservation),
            Ok(None) => Err(NoMemory::ClientLeft),
            Err(_) => Err(NoMemory::TimedOut),
        }
    }
}

/// Logs that a request waited for `bytes` bytes of memory until `send_timeout`, with level error.
pub fn log_timeout(r: &Request, bytes: u64) {
    let words = "responses that were not read use all of \"generated_body_memory\"";
    r.log(Severity::Error, format_args!("no memory for a body of {bytes} bytes: {words}"));
}

/// Reserves memory that is free now, within both limits, and not ahead of requests that wait.
pub fn try_reserve(r: &Request, bytes: u64) -> Option<Reservation> {
    let (limits, connection) = (memory_limits(r), connection(r));
    let is_taken = bytes <= limits.connection && budget().take(connection, bytes, &limits);
    // Not `then_some`: a reservation that is dropped gives memory back.
    is_taken.then(|| Reservation { connection, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LIMITS: MemoryLimits = MemoryLimits { connection: 100, process: 250 };

    /// A budget of its own, whose waiters count how often they were woken.
    #[derive(Default)]
    struct Scene {
        budget: Budget,
        woken: Arc<Wakes>,
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Scene {
        fn take(&mut self, connection: u64, bytes: u64) -> bool {
            self.budget.take(connection, bytes, &LIMITS)
        }
        fn wait(&mut self, connection: u64, bytes: u64) -> u64 {
            let waker = self.woken.clone().into();
            self.budget.wait(connection, bytes, LIMITS, waker)
        }
        fn waits(&mut self, connection: u64, id: u64) -> bool {
            self.budget.is_waiting(connection, id, &Context::from_waker(Waker::noop()))
        }
    }

    #[test]
    fn a_connection_has_its_limit_and_always_one_response() {
        let mut scene = Scene::default();
        assert!(scene.take(1, 60) && scene.take(1, 40) && !scene.take(1, 1));
        assert!(scene.take(2, 140), "larger than the limit, and alone");
        assert!(!scene.take(2, 1));
        scene.budget.release(1, 40);
        assert!(!scene.take(3, 60) && scene.take(3, 50), "the process's limit");
    }

    #[test]
    fn waiting_requests_of_a_connection_keep_their_order() {
        let mut scene = Scene::default();
        assert!(scene.take(1, 100));
        let (large, small) = (scene.wait(1, 80), scene.wait(1, 10));
        assert!(!scene.take(1, 0), "not ahead of others");
        scene.budget.release(1, 50);
        assert!(scene.waits(1, large) && scene.waits(1, small), "the first lacks room, and the second follows it");
        scene.budget.release(1, 40);
        assert!(!scene.waits(1, large) && !scene.waits(1, small));
    }

    #[test]
    fn the_process_serves_connections_in_order() {
        let mut scene = Scene::default();
        assert!(scene.take(1, 100) && scene.take(2, 100));
        let first = scene.wait(3, 90);
        let second = scene.wait(4, 20);
        assert!(scene.waits(3, first) && scene.waits(4, second) && !scene.take(5, 10));
        scene.budget.release(1, 30);
        assert!(scene.waits(3, first) && scene.waits(4, second), "the first does not fit yet");
        scene.budget.release(2, 100);
        assert!(!scene.waits(3, first) && !scene.waits(4, second));
        assert_eq!(scene.budget.used, 70 + 90 + 20);
    }

    #[test]
    fn a_wait_that_ends_makes_way() {
        let mut scene = Scene::default();
        assert!(scene.take(1, 100) && scene.take(2, 100));
        let first = scene.wait(3, 90);
        let second = scene.wait(4, 40);
        scene.budget.cancel(3, first, 90);
        assert!(!scene.waits(4, second), "the next one fits");
        // Memory that came before the end of its wait goes back.
        scene.budget.cancel(4, second, 40);
        scene.budget.release(1, 100);
        scene.budget.release(2, 100);
        assert_eq!((scene.budget.used, scene.budget.connections.len(), scene.budget.crowded.len()), (0, 0, 0));
    }

    #[test]
    fn a_refused_reservation_gives_nothing_back() {
        let r = Request::default();
        let held: Vec<_> = std::iter::from_fn(|| try_reserve(&r, 1 << 20)).take(10).collect();
        assert_eq!(held.len(), 2, "the default limit of a connection");
        for _ in 0..5 {
            assert!(try_reserve(&r, 1 << 20).is_none());
        }
    }

    #[test]
    fn random_requests_leave_nothing_behind() {
        let mut state = testkit::Random::new(0x2545_f491_4f6c_dd1d);
        let mut random = move |below: u64| state.below(below as usize) as u64;
        for _ in 0..200 {
            let mut scene = Scene::default();
            let (mut held, mut waiting) = (Vec::new(), Vec::new());
            for _ in 0..300 {
                let (connection, bytes) = (random(6), 1 + random(120));
                match random(3) {
                    0 if scene.take(connection, bytes) => held.push((connection, bytes)),
                    0 | 1 if waiting.len() < 20 => waiting.push((connection, scene.wait(connection, bytes), bytes)),
                    2 if !waiting.is_empty() => {
                        let (connection, id, bytes) = waiting.swap_remove(random(waiting.len() as u64) as usize);
                        scene.budget.cancel(connection, id, bytes);
                    }
                    _ if !held.is_empty() => {
                        let (connection, bytes) = held.swap_remove(random(held.len() as u64) as usize);
                        scene.budget.release(connection, bytes);
                    }
                    _ => {}
                }
                waiting.retain(|(connection, id, bytes)| {
                    let waits = scene.waits(*connection, *id);
                    if !waits {
                        held.push((*connection, *bytes));
                    }
                    waits
                });
                assert_eq!(scene.budget.used, held.iter().map(|(_, bytes)| bytes).sum::<u64>());
                assert!(!held.is_empty() || waiting.is_empty(), "all wait, and none holds memory");
            }
            while let Some((connection, bytes)) = held.pop() {
                scene.budget.release(connection, bytes);
                waiting.retain(|(connection, id, bytes)| {
                    let waits = scene.waits(*connection, *id);
                    if !waits {
                        held.push((*connection, *bytes));
                    }
                    waits
                });
            }
            assert!(waiting.is_empty() && scene.budget.connections.is_empty() && scene.budget.crowded.is_empty());
        }
    }
}
