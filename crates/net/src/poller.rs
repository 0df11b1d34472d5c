//! One epoll instance a thread that knows every socket of the thread's clients.
//!
//! A socket is registered once, edge-triggered, for as long as it lives. An *idle* one (a keep-alive connection between
//! requests) is an entry and nothing else; when it turns readable its key is handed to the thread's loop. A socket that a task
//! works on is the same entry with wakers: [`Poller::readable`] and [`Poller::writable`] wait for it. So a connection passes from one
//! state to the other without a system call.

use crate::budget;
use base::clock::Instant;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::cell::{Cell, RefCell};
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Poll, Waker, ready};

#[cfg(test)]
mod tests;
mod traffic;

/// Events fetched with one system call.
pub const EVENTS_MAX: usize = 512;

/// Names an entry; a key outlives its entry without harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    /// Not 0: so that "no key" takes no room.
    generation: NonZeroU32,
}

impl Key {
    /// The key as a number, for what keeps it in an atomic.
    pub fn to_bits(self) -> u64 {
        self.token()
    }
    /// The key of [`Key::to_bits`].
    pub fn from_bits(bits: u64) -> Key {
        Key::of(bits)
    }
    fn token(self) -> u64 {
        u64::from(self.generation.get()) << 32 | u64::from(self.index)
    }
    fn of(token: u64) -> Key {
        Key { index: token as u32, generation: NonZeroU32::new((token >> 32) as u32).unwrap_or(NonZeroU32::MIN) }
    }
}

/// A read may find something: bytes, the end, an error. Only a read that has found that nothing is left takes it back.
const READABLE: u16 = 1;
const WRITABLE: u16 = 2;
/// The peer has closed its side, or the connection is broken. It stays so, and says nothing of whether a read finds something.
const CLOSING: u16 = 4;
/// Nobody works on it: readiness goes to the thread's loop.
const IDLE: u16 = 8;
/// The entry is somebody's: not one that waits for its next use.
const USED: u16 = 16;
/// The loop has been told that it is readable.
const QUEUED: u16 = 32;
/// Other descriptors, here or in another process, may refer to the same socket: closing ours does not end epoll's interest.
const SHARED_FILE: u16 = 64;
/// epoll does not know it yet.
const UNREGISTERED: u16 = 128;
/// A socket of datagrams: an error concerns one of them, and the socket is as good as before.
const DATAGRAMS: u16 = 256;

#[derive(Default)]
struct Wakers {
    read: Option<Waker>,
    write: Option<Waker>,
    close: Option<Waker>,
}

struct Entry<T> {
    /// `None`: whoever has the key owns the descriptor ([`Poller::adopt`]).
    fd: Option<OwnedFd>,
    generation: NonZeroU32,
    flags: u16,
    deadline: Instant,
    /// When its node in the heap of deadlines is due, at `deadline` or before; 0: it has none.
    node: Instant,
    wakers: Option<Box<Wakers>>,
    registration: Option<T>,
}

impl<T> Entry<T> {
    /// Sets the deadline; whether it needs a node for it.
    #[inline]
    fn is_due_at(&mut self, deadline: Instant) -> bool {
        self.deadline = deadline;
        let add = self.node == Instant::default() || deadline < self.node;
        if add {
            self.node = deadline;
        }
        add
    }
}

fn slot<T>(entries: &mut [Box<[Entry<T>]>], index: u64) -> Option<&mut Entry<T>> {
    entries.get_mut(index as usize / BLOCK)?.get_mut(index as usize % BLOCK)
}

/// See the module's documentation. `T` is what the thread keeps with every socket.
pub struct Poller<T> {
    epoll: OwnedFd,
    entries: RefCell<Vec<Box<[Entry<T>]>>>,
    free: RefCell<Vec<u32>>,
    used: Cell<u32>,
    /// Of these, the ones with a registration.
    registered: Cell<u32>,
    /// Idle entries that were readable already when they became idle.
    pending: RefCell<Vec<Key>>,
    deadlines: RefCell<BinaryHeap<std::cmp::Reverse<(Instant, u64)>>>,
    events: RefCell<Vec<epoll::Event>>,
    /// Of entries that became idle: the next one that is worked on takes them.
    #[allow(clippy::vec_box)]
    spare: RefCell<Vec<Box<Wakers>>>,
}

/// The longest wait: epoll takes milliseconds in an `int`. The loop waits again.
const WAIT_MILLIS_MAX: u64 = 1_000_000;

/// Sets of wakers that are kept for the next entry that is worked on.
const SPARE_MAX: usize = 128;

/// What epoll tells of a connected socket.
const CONNECTED: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// What it tells of a descriptor whose file others share.
const COPY: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// Entries are allocated in blocks, so that growing never copies (and never doubles) the table.
const BLOCK: usize = 256;

impl<T: Clone> Poller<T> {
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Poller {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            entries: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
            used: Cell::new(0),
            registered: Cell::new(0),
            pending: RefCell::new(Vec::new()),
            deadlines: RefCell::new(BinaryHeap::new()),
            events: RefCell::new(Vec::with_capacity(EVENTS_MAX)),
            spare: RefCell::new(Vec::new()),
        })
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.used.get() as usize
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Entries with a registration: those that are no connections of our own making.
    pub fn registered(&self) -> usize {
        self.registered.get() as usize
    }
    /// No client and no listener is left; connections that we made ourselves may be.
    pub fn has_no_registered(&self) -> bool {
        self.registered() == 0
    }

    /// An entry that nobody uses, for [`Poller::fill`].
    fn vacant(&self) -> Key {
        let spare = self.free.borrow_mut().pop();
        let index = spare.unwrap_or_else(|| {
            let mut entries = self.entries.borrow_mut();
            let start = (entries.len() * BLOCK) as u32;
            entries.push(
                (0..BLOCK)
                    .map(|_| Entry {
                        fd: None,
                        generation: NonZeroU32::MIN,
                        flags: 0,
                        deadline: Instant::default(),
                        node: Instant::default(),
                        wakers: None,
                        registration: None,
                    })
                    .collect(),
            );
            self.free.borrow_mut().extend((start + 1..start + BLOCK as u32).rev());
            start
        });
        let entries = self.entries.borrow();
        Key { index, generation: entries[index as usize / BLOCK][index as usize % BLOCK].generation }
    }
    fn fill(&self, key: Key, fd: Option<OwnedFd>, registration: Option<T>, flags: u16) {
        self.used.set(self.used.get() + 1);
        self.registered.set(self.registered.get() + u32::from(registration.is_some()));
        let mut entries = self.entries.borrow_mut();
        let entry = &mut entries[key.index as usize / BLOCK][key.index as usize % BLOCK];
        entry.fd = fd;
        entry.registration = registration;
        entry.flags = flags | USED;
    }
    fn insert(&self, fd: OwnedFd, registration: Option<T>, flags: u16) -> Key {
        let key = self.vacant();
        self.fill(key, Some(fd), registration, flags);
        key
    }

    fn with<R>(&self, key: Key, f: impl FnOnce(&mut Entry<T>) -> R) -> Option<R> {
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(key.index as usize / BLOCK)?.get_mut(key.index as usize % BLOCK)?;
        (entry.generation == key.generation && entry.flags & USED != 0).then(|| f(entry))
    }

    /// Lends the descriptor of an entry for a system call, for as long as that takes: the table cannot change meanwhile, and so
    /// the entry cannot be closed or become another's. `None` when the entry is gone, or does not own its descriptor. `f` must not
    /// come back to the poller.
    #[inline]
    fn with_fd<R>(&self, key: Key, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let entries = self.entries.borrow();
        let entry = entries.get(key.index as usize / BLOCK)?.get(key.index as usize % BLOCK)?;
        let fd = entry.fd.as_ref().filter(|_| entry.generation == key.generation)?;
        Some(f(fd.as_fd()))
    }

    /// Takes a connected socket in, idle.
    ///
    /// # Errors
    /// When epoll refuses it; the socket is closed.
    pub fn add(&self, fd: OwnedFd, registration: T) -> io::Result<Key> {
        let key = self.insert(fd, Some(registration), IDLE);
        self.register(key, CONNECTED)
    }

    /// Watches a socket that a task works on, and nobody else ever will: one that we have connected, or are about to. It stays the
    /// caller's, who says [`Poller::remove`] before closing it.
    ///
    /// # Errors
    /// When epoll refuses it.
    pub fn adopt(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        self.adopt_as(fd, CONNECTED, 0)
    }
    /// As [`Poller::adopt`], for a socket of datagrams: errors make it readable and writable, and never closing.
    ///
    /// # Errors
    /// As [`Poller::adopt`].
    pub fn adopt_datagrams(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        self.adopt_as(fd, CONNECTED, DATAGRAMS)
    }
    /// The same for a descriptor whose file others share, for reading: the caller says [`Poller::unwatch`] as well.
    ///
    /// # Errors
    /// As [`Poller::adopt`].
    pub fn adopt_copy(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        self.adopt_as(fd, COPY, 0)
    }
    fn adopt_as(&self, fd: BorrowedFd<'_>, events: EventFlags, flags: u16) -> io::Result<Key> {
        let key = self.vacant();
        self.fill(key, None, None, flags);
        let added = epoll::add(&self.epoll, fd, EventData::new_u64(key.token()), events);
        self.registered_or_removed(key, added)
    }
    /// No event tells of this file any more.
    pub fn unwatch(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }
    /// Takes a descriptor in whose file others share, for reading.
    ///
    /// # Errors
    /// As [`Poller::add`].
    pub fn add_copy(&self, fd: OwnedFd) -> io::Result<Key> {
        let key = self.insert(fd, None, SHARED_FILE);
        self.register(key, COPY)
    }

    /// Takes a connected socket in, idle, without telling epoll: a connection that ends with its first answer need never
    /// be watched. Whoever calls this reads the socket at once, then calls [`Poller::watch_now`]. What is registered may know its key.
    pub fn add_unwatched(&self, fd: OwnedFd, registration: impl FnOnce(Key) -> T) -> Key {
        let key = self.vacant();
        let registration = registration(key);
        self.fill(key, Some(fd), Some(registration), IDLE | UNREGISTERED);
        key
    }
    /// Has epoll watch an entry that [`Poller::add_unwatched`] took in, if it is still there. What is ready by now is an event.
    ///
    /// # Errors
    /// When epoll refuses it; the entry stays, to be closed by the caller.
    pub fn watch_now(&self, key: Key) -> io::Result<()> {
        let unknown = self.with(key, |entry| {
            let unknown = entry.flags & UNREGISTERED != 0;
            entry.flags &= !UNREGISTERED;
            unknown
        });
        match unknown {
            Some(true) => Ok(self.watch(key, CONNECTED)?),
            _ => Ok(()),
        }
    }

    /// Takes a listening socket in: level-triggered; `shared` ones wake one thread at a time.
    ///
    /// # Errors
    /// As [`Poller::add`].
    pub fn add_listener(&self, fd: OwnedFd, registration: T, shared: bool) -> io::Result<Key> {
        let key = self.insert(fd, Some(registration), IDLE | SHARED_FILE);
        let events = if shared { EventFlags::IN | EventFlags::EXCLUSIVE } else { EventFlags::IN };
        self.register(key, events)
    }

    fn register(&self, key: Key, events: EventFlags) -> io::Result<Key> {
        self.registered_or_removed(key, self.watch(key, events))
    }
    fn watch(&self, key: Key, events: EventFlags) -> rustix::io::Result<()> {
        self.with_fd(key, |fd| epoll::add(&self.epoll, fd, EventData::new_u64(key.token()), events))
            .unwrap_or(Err(rustix::io::Errno::NOTCONN))
    }
    fn registered_or_removed(&self, key: Key, added: rustix::io::Result<()>) -> io::Result<Key> {
        match added {
            Ok(()) => Ok(key),
            Err(e) => {
                self.remove(key);
                Err(e.into())
            }
        }
    }

    /// Closes the socket, if it is the entry's, and frees the entry; tasks that wait for it are woken. The registration is handed
    /// back.
    pub fn remove(&self, key: Key) -> Option<T> {
        let (fd, registration, wakers, shared_file) = self.with(key, |entry| {
            let shared_file = entry.flags & SHARED_FILE != 0;
            entry.generation = entry.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
            entry.flags = 0;
            (entry.fd.take(), entry.registration.take(), entry.wakers.take(), shared_file)
        })?;
        if shared_file && let Some(fd) = &fd {
            // It may be gone already (a listener that rests).
            let _ = epoll::delete(&self.epoll, fd);
        }
        drop(fd);
        self.used.set(self.used.get() - 1);
        self.registered.set(self.registered.get() - u32::from(registration.is_some()));
        self.free.borrow_mut().push(key.index);
        if let Some(wakers) = wakers {
            wakers.read.into_iter().chain(wakers.write).chain(wakers.close).for_each(Waker::wake);
        }
        registration
    }

    /// Hands an idle entry out once more in the next turn.
    pub fn again(&self, key: Key) {
        let queue = self.with(key, |entry| {
            let queue = entry.flags & (IDLE | QUEUED) == IDLE;
            entry.flags |= QUEUED;
            queue
        });
        if queue == Some(true) {
            self.pending.borrow_mut().push(key);
        }
    }
    /// The same if there is something to read that no event will tell of: it has told already.
    pub fn again_if_readable(&self, key: Key) {
        if self.with(key, |entry| entry.flags & READABLE != 0) == Some(true) {
            self.again(key);
        }
    }
    /// Replaces what is kept with the socket.
    pub fn set_registration(&self, key: Key, registration: T) {
        self.with(key, |entry| entry.registration = Some(registration));
    }
    /// Stops listening for a while (`false`), or starts again.
    ///
    /// # Errors
    /// As epoll gives them.
    pub fn listen(&self, key: Key, on: bool, shared: bool) -> io::Result<()> {
        let events = if shared { EventFlags::IN | EventFlags::EXCLUSIVE } else { EventFlags::IN };
        let done = self.with_fd(key, |fd| {
            if on {
                epoll::add(&self.epoll, fd, EventData::new_u64(key.token()), events)
            } else {
                epoll::delete(&self.epoll, fd)
            }
        });
        Ok(done.unwrap_or(Ok(()))?)
    }
    /// The idle entry whose deadline is nearest, among those that `wanted` says; it loses its place in the heap.
    pub fn nearest_idle(&self, wanted: impl Fn(&T) -> bool) -> Option<Key> {
        let mut kept = Vec::new();
        let mut found = None;
        let mut heap = self.deadlines.borrow_mut();
        let mut entries = self.entries.borrow_mut();
        while let Some(std::cmp::Reverse((at, index))) = heap.pop() {
            let Some(entry) = slot(&mut entries, index).filter(|entry| entry.node == at) else { continue };
            if entry.flags & USED == 0 {
                entry.node = Instant::default();
                continue;
            }
            // One that has turned readable is about to be served.
            if entry.flags & (IDLE | QUEUED) == IDLE && entry.registration.as_ref().is_some_and(&wanted) {
                entry.node = Instant::default();
                found = Some(Key { index: index as u32, generation: entry.generation });
                break;
            }
            kept.push(std::cmp::Reverse((at, index)));
        }
        heap.extend(kept);
        found
    }

    pub fn registration(&self, key: Key) -> Option<T> {
        self.with(key, |entry| entry.registration.clone()).flatten()
    }
    /// The entry is still there.
    pub fn contains(&self, key: Key) -> bool {
        self.with(key, |_| ()).is_some()
    }

    /// Hands the entry to a task: readiness wakes the task from now on.
    pub fn set_busy(&self, key: Key) {
        self.with(key, |entry| entry.flags &= !(IDLE | QUEUED));
    }
    /// Gives it back to the loop, to be closed at `deadline` when nothing happens. Bytes that are waiting already are seen.
    pub fn set_idle(&self, key: Key, deadline: Instant) {
        let queue = self
            .with(key, |entry| {
                entry.flags |= IDLE;
                self.forget_wakers(entry);
                let queue = entry.flags & READABLE != 0 && entry.flags & QUEUED == 0;
                if queue {
                    entry.flags |= QUEUED;
                }
                queue
            })
            .unwrap_or(false);
        if queue {
            self.pending.borrow_mut().push(key);
        }
        self.set_deadline(key, deadline);
    }
    fn forget_wakers(&self, entry: &mut Entry<T>) {
        if let Some(mut wakers) = entry.wakers.take() {
            let mut spare = self.spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                *wakers = Wakers::default();
                spare.push(wakers);
            }
        }
    }
    /// Nobody waits for it at the moment.
    pub fn forget_waiting(&self, key: Key) {
        self.with(key, |entry| self.forget_wakers(entry));
    }
    /// When the entry is due.
    pub fn deadline(&self, key: Key) -> Instant {
        self.with(key, |entry| entry.deadline).unwrap_or_default()
    }
    /// There is something to read, although no event says so.
    pub fn note_readable(&self, key: Key) {
        self.with(key, |entry| entry.flags |= READABLE);
    }
    pub fn is_idle(&self, key: Key) -> bool {
        self.with(key, |entry| entry.flags & IDLE != 0).unwrap_or(false)
    }
    /// When an idle entry is due. Cheap: the heap is touched only when the entry has no node in it, or a later one.
    #[inline]
    pub fn set_deadline(&self, key: Key, deadline: Instant) {
        if self.with(key, |entry| entry.is_due_at(deadline)) == Some(true) {
            self.deadlines.borrow_mut().push(std::cmp::Reverse((deadline, u64::from(key.index))));
        }
    }
    /// Idle entries whose time has come, and when to ask again at the latest (see [`Poller::next_due`]).
    pub fn due(&self, now: Instant, out: &mut Vec<Key>) -> Option<Instant> {
        let mut heap = self.deadlines.borrow_mut();
        let mut entries = self.entries.borrow_mut();
        while let Some(std::cmp::Reverse((at, index))) = heap.peek().copied() {
            if at > now {
                return Some(at);
            }
            heap.pop();
            // An earlier deadline was set since, with a node of its own: this one is no longer the entry's.
            let Some(entry) = slot(&mut entries, index).filter(|entry| entry.node == at) else { continue };
            entry.node = Instant::default();
            if entry.flags & (USED | IDLE) != USED | IDLE {
                continue;
            }
            // What has come in time is looked at first, however late the thread is.
            if entry.deadline <= now && entry.flags & QUEUED != 0 {
                entry.deadline = now.plus_millis(1);
            }
            if entry.deadline > now {
                entry.node = entry.deadline;
                heap.push(std::cmp::Reverse((entry.deadline, index)));
            } else {
                out.push(Key { index: index as u32, generation: entry.generation });
            }
        }
        None
    }
    /// When [`Poller::due`] may have something.
    pub fn next_due(&self) -> Option<Instant> {
        self.deadlines.borrow().peek().map(|std::cmp::Reverse((at, _))| *at)
    }

    /// Notes that a read found nothing more: the next byte will be an event.
    #[inline]
    pub fn drained(&self, key: Key) {
        self.with(key, |entry| entry.flags &= !READABLE);
    }
    /// The peer has closed, so that a short read does not mean that nothing more will come.
    pub fn closing(&self, key: Key) -> bool {
        self.with(key, |entry| entry.flags & CLOSING != 0).unwrap_or(true)
    }
    /// Notes that a write would block.
    pub fn blocked(&self, key: Key) {
        self.with(key, |entry| entry.flags &= !WRITABLE);
    }

    /// Waits until there may be something to read; `false` when the entry is gone. A wait that is over at once costs budget: no loop
    /// around it keeps the thread, whatever the socket says.
    pub async fn readable(&self, key: Key) -> bool {
        poll_fn(|cx| self.poll_readable(key, cx)).await
    }
    /// Waits until something may be written; `false` when the entry is gone.
    pub async fn writable(&self, key: Key) -> bool {
        poll_fn(|cx| self.poll_writable(key, cx)).await
    }
    pub fn poll_readable(&self, key: Key, cx: &mut std::task::Context<'_>) -> Poll<bool> {
        self.poll_ready(key, READABLE, cx, |w| &mut w.read)
    }
    /// Waits until the peer has closed its side.
    pub fn poll_closing(&self, key: Key, cx: &mut std::task::Context<'_>) -> Poll<bool> {
        self.poll_ready(key, CLOSING, cx, |w| &mut w.close)
    }
    pub fn poll_writable(&self, key: Key, cx: &mut std::task::Context<'_>) -> Poll<bool> {
        self.poll_ready(key, WRITABLE, cx, |w| &mut w.write)
    }
    fn poll_ready(
        &self,
        key: Key,
        flag: u16,
        cx: &mut std::task::Context<'_>,
        slot: impl FnOnce(&mut Wakers) -> &mut Option<Waker>,
    ) -> Poll<bool> {
        ready!(budget::poll_proceed(cx));
        let is_ready = self.poll_flag(key, flag, cx, slot);
        if is_ready.is_ready() {
            budget::pass(0);
        }
        is_ready
    }
    fn poll_flag(
        &self,
        key: Key,
        flag: u16,
        cx: &mut std::task::Context<'_>,
        slot: impl FnOnce(&mut Wakers) -> &mut Option<Waker>,
    ) -> Poll<bool> {
        #[cfg(debug_assertions)]
        if flag != CLOSING && crate::faults::is_ready() {
            return Poll::Ready(self.contains(key));
        }
        self.with(key, |entry| {
            if entry.flags & flag != 0 {
                return Poll::Ready(true);
            }
            let wakers = entry.wakers.get_or_insert_with(|| self.spare.borrow_mut().pop().unwrap_or_default());
            let slot = slot(wakers);
            match slot {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                slot => *slot = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .unwrap_or(Poll::Ready(false))
    }

    /// Waits until something happens, at most until `until` (`None`: for ever; what has passed already: not at all), and hands
    /// out the idle entries that turned readable. Does not wait when such entries are pending. `true`: there may be more.
    ///
    /// # Errors
    /// As epoll gives them.
    pub fn wait(&self, until: Option<Instant>, ready: &mut Vec<Key>) -> io::Result<bool> {
        let mut events = self.events.borrow_mut();
        events.clear();
        let micros = until.map(|until| until.micros_since(base::clock::now()));
        let micros = if self.has_pending() { Some(0) } else { micros };
        ready.append(&mut self.pending.borrow_mut());
        // epoll counts milliseconds: rounded up, or a timer that is nearly due would make the thread turn until it is.
        let timeout = micros.map(|micros| {
            let millis = micros.div_ceil(1000).min(WAIT_MILLIS_MAX);
            rustix::event::Timespec { tv_sec: (millis / 1000) as _, tv_nsec: (millis % 1000 * 1_000_000) as _ }
        });
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
        let full = events.len() == events.capacity();
        for event in events.iter() {
            let key = Key::of(event.data.u64());
            let got = event.flags;
            let mut flags = 0;
            if got.intersects(EventFlags::IN) {
                flags |= READABLE;
            }
            if got.intersects(EventFlags::OUT) {
                flags |= WRITABLE;
            }
            if got.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
                flags |= CLOSING | READABLE;
            }
            if got.intersects(EventFlags::HUP | EventFlags::ERR) {
                flags |= WRITABLE;
            }
            let wake = self.with(key, |entry| {
                if entry.flags & DATAGRAMS != 0 {
                    flags &= !CLOSING;
                }
                entry.flags |= flags;
                if entry.flags & IDLE != 0 {
                    if flags & READABLE != 0 && entry.flags & QUEUED == 0 {
                        entry.flags |= QUEUED;
                        ready.push(key);
                    }
                    // Reading is the loop's; a task may wait for room to write.
                    let write = entry.wakers.as_mut().filter(|_| flags & WRITABLE != 0).and_then(|w| w.write.take());
                    return (None, write, None);
                }
                let Some(wakers) = &mut entry.wakers else { return (None, None, None) };
                let mut take = |flag: u16, of: fn(&mut Wakers) -> &mut Option<Waker>| {
                    if flags & flag != 0 { of(wakers).take() } else { None }
                };
                (take(READABLE, |w| &mut w.read), take(WRITABLE, |w| &mut w.write), take(CLOSING, |w| &mut w.close))
            });
            let Some((read, write, close)) = wake else { continue };
            if let Some(read) = read {
                read.wake();
            }
            if let Some(write) = write {
                write.wake();
            }
            if let Some(close) = close {
                close.wake();
            }
        }
        Ok(full)
    }
    /// The loop is about to act on a key that [`Poller::turn`] gave it; `false` when it is out of date.
    #[inline]
    pub fn begin(&self, key: Key) -> bool {
        self.with(key, |entry| {
            let was = entry.flags & (IDLE | QUEUED) == IDLE | QUEUED;
            entry.flags &= !QUEUED;
            was
        })
        .unwrap_or(false)
    }
    /// It has been readable and nobody has drained it since.
    pub fn readable_now(&self, key: Key) -> bool {
        self.with(key, |entry| entry.flags & READABLE != 0).unwrap_or(false)
    }
    /// For an entry that was answered inline: it has stayed idle; its deadline moves, and bytes that are waiting are seen.
    #[inline]
    pub fn stay_idle(&self, key: Key, deadline: Instant) {
        let (add, queue) = self
            .with(key, |entry| {
                let queue = entry.flags & READABLE != 0 && entry.flags & QUEUED == 0;
                entry.flags |= if queue { QUEUED } else { 0 };
                (entry.is_due_at(deadline), queue)
            })
            .unwrap_or((false, false));
        if add {
            self.deadlines.borrow_mut().push(std::cmp::Reverse((deadline, u64::from(key.index))));
        }
        if queue {
            self.pending.borrow_mut().push(key);
        }
    }
    /// Whether entries wait that need no event.
    pub fn has_pending(&self) -> bool {
        !self.pending.borrow().is_empty()
    }
    /// Forgets who waits for what: the thread ends, and its tasks with it.
    pub fn forget_all_wakers(&self) {
        let wakers: Vec<_> = {
            let mut entries = self.entries.borrow_mut();
            entries.iter_mut().flat_map(|block| block.iter_mut()).filter_map(|entry| entry.wakers.take()).collect()
        };
        drop(wakers);
    }
    /// Every entry in use.
    pub fn keys(&self) -> Vec<Key> {
        let entries = self.entries.borrow();
        let all = entries.iter().flat_map(|block| block.iter()).enumerate();
        all.filter(|(_, e)| e.flags & USED != 0)
            .map(|(i, e)| Key { index: i as u32, generation: e.generation })
            .collect()
    }
}

impl<T> AsFd for Poller<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
