//! One epoll instance per thread with all sockets of its clients, registered once, edge-triggered.
//! An *idle* socket (keep-alive between requests) is a mere entry: its key goes to the loop when it turns readable. A
//! task's socket is the same entry with wakers ([`Poller::readable`], [`Poller::writable`]), so that changing between
//! both costs no system call.

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

/// Events per system call.
pub const EVENTS_MAX: usize = 512;

/// Harmless after its entry is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    /// Not 0, so that `Option<Key>` needs no extra room.
    generation: NonZeroU32,
}

impl Key {
    /// The key as a number, for atomics.
    pub fn to_bits(self) -> u64 {
        self.token()
    }
    /// Restores a key from [`Key::to_bits`].
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

/// A read may succeed (bytes, end, error); cleared only by a read that finds nothing.
const READABLE: u16 = 1;
const WRITABLE: u16 = 2;
/// The peer has closed, or the connection failed. Permanent, and independent of READABLE.
const CLOSING: u16 = 4;
/// Owned by no task: readiness goes to the loop.
const IDLE: u16 = 8;
const USED: u16 = 16;
/// Reported readable to the loop.
const QUEUED: u16 = 32;
/// Other descriptors may share the file: closing ours does not end epoll's interest.
const SHARED_FILE: u16 = 64;
/// Not yet registered with epoll.
const UNREGISTERED: u16 = 128;
/// Datagram socket: an error concerns one datagram only.
const DATAGRAMS: u16 = 256;

#[derive(Default)]
struct Wakers {
    read: Option<Waker>,
    write: Option<Waker>,
    close: Option<Waker>,
}

struct Entry<T> {
    /// `None`: the key's holder owns the descriptor ([`Poller::adopt`]).
    fd: Option<OwnedFd>,
    generation: NonZeroU32,
    flags: u16,
    deadline: Instant,
    /// Due time of its node in the deadline heap, at `deadline` or before; 0: none.
    node: Instant,
    wakers: Option<Box<Wakers>>,
    registration: Option<T>,
}

impl<T> Entry<T> {
    /// Sets the deadline; returns whether it needs a node.
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

/// The sockets of a thread, with a registration `T` each: the driver of the socket.
///
/// The loop calls [`Poller::wait`], takes each returned key with [`Poller::begin`], then calls [`Poller::due`]. A
/// driver that has read all notes it with [`Poller::drained`], one that could not write with [`Poller::blocked`]: until
/// then the entry counts as ready, and waits for it end at once. No method calls the registrations.
pub struct Poller<T> {
    epoll: OwnedFd,
    entries: RefCell<Vec<Box<[Entry<T>]>>>,
    free: RefCell<Vec<u32>>,
    used: Cell<u32>,
    /// With fewer entries in use, the table is trimmed.
    trim_below: Cell<u32>,
    /// Generation of the entries of a new block: above those of dropped blocks.
    first_generation: Cell<NonZeroU32>,
    registered: Cell<u32>,
    /// Entries that were readable when they became idle.
    pending: RefCell<Vec<Key>>,
    deadlines: RefCell<BinaryHeap<std::cmp::Reverse<(Instant, u64)>>>,
    events: RefCell<Vec<epoll::Event>>,
    /// Unused wakers, for the next busy entry.
    #[allow(clippy::vec_box)]
    spare: RefCell<Vec<Box<Wakers>>>,
}

/// Longest wait; epoll takes an `int` of milliseconds. The loop waits again.
const WAIT_MILLIS_MAX: u64 = 1_000_000;

const SPARE_MAX: usize = 128;

const CONNECTED: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// Of a socket that is known to have room: it would be reported at once, for nothing.
const ROOMY: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

const COPY: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// Entries are allocated in blocks, so that growing neither copies nor doubles the table.
const BLOCK: usize = 256;

/// Blocks that stay when their entries are unused.
const BLOCKS_KEPT: usize = 4;

impl<T: Clone> Poller<T> {
    /// Fails without descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Poller {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            entries: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
            used: Cell::new(0),
            trim_below: Cell::new(0),
            first_generation: Cell::new(NonZeroU32::MIN),
            registered: Cell::new(0),
            pending: RefCell::new(Vec::new()),
            deadlines: RefCell::new(BinaryHeap::new()),
            events: RefCell::new(Vec::with_capacity(EVENTS_MAX)),
            spare: RefCell::new(Vec::new()),
        })
    }

    /// Returns the number of entries, outbound connections included.
    pub fn len(&self) -> usize {
        self.used.get() as usize
    }
    /// Tells whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// All but outbound connections.
    pub fn registered(&self) -> usize {
        self.registered.get() as usize
    }
    /// Ignores outbound connections.
    pub fn has_no_registered(&self) -> bool {
        self.registered() == 0
    }

    /// Unused entry for [`Poller::fill`].
    fn vacant(&self) -> Key {
        let spare = self.free.borrow_mut().pop();
        let index = spare.unwrap_or_else(|| {
            let mut entries = self.entries.borrow_mut();
            let start = (entries.len() * BLOCK) as u32;
            if entries.len() >= BLOCKS_KEPT {
                self.trim_below.set(start / 4);
            }
            entries.push(
                (0..BLOCK)
                    .map(|_| Entry {
                        fd: None,
                        generation: self.first_generation.get(),
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

    /// Lends an entry's descriptor for one system call: the table cannot change meanwhile. `None` if the entry is gone
    /// or does not own it. `f` must not use the poller.
    #[inline]
    fn with_fd<R>(&self, key: Key, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let entries = self.entries.borrow();
        let entry = entries.get(key.index as usize / BLOCK)?.get(key.index as usize % BLOCK)?;
        let fd = entry.fd.as_ref().filter(|_| entry.generation == key.generation)?;
        Some(f(fd.as_fd()))
    }

    /// Adds a connected socket, idle. Closes it when epoll refuses it.
    pub fn add(&self, fd: OwnedFd, registration: T) -> io::Result<Key> {
        let key = self.insert(fd, Some(registration), IDLE);
        self.register(key, CONNECTED)
    }

    /// Watches a task's socket, which the caller owns and removes ([`Poller::remove`]) before closing it.
    pub fn adopt(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        self.adopt_as(fd, CONNECTED, 0)
    }
    /// [`Poller::adopt`] for a connected socket that has room: room is no event until [`Poller::watch_room`].
    pub fn adopt_connected(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        self.adopt_as(fd, ROOMY, WRITABLE)
    }
    /// Makes room an event, once for an entry of [`Poller::adopt_connected`], after [`Poller::blocked`]; present room is one at once.
    pub fn watch_room(&self, key: Key, fd: BorrowedFd<'_>) {
        // Fails only for a file that is no longer watched.
        let _ = epoll::modify(&self.epoll, fd, EventData::new_u64(key.token()), CONNECTED);
    }
    /// [`Poller::adopt`] for datagrams: errors make it readable and writable, never closing.
    pub fn adopt_datagrams(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        self.adopt_as(fd, CONNECTED, DATAGRAMS)
    }
    /// [`Poller::adopt`] for reading a shared descriptor; the caller also calls [`Poller::unwatch`].
    pub fn adopt_copy(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        self.adopt_as(fd, COPY, 0)
    }
    fn adopt_as(&self, fd: BorrowedFd<'_>, events: EventFlags, flags: u16) -> io::Result<Key> {
        let key = self.vacant();
        self.fill(key, None, None, flags);
        let added = epoll::add(&self.epoll, fd, EventData::new_u64(key.token()), events);
        self.registered_or_removed(key, added)
    }
    /// Ends all events of this file.
    pub fn unwatch(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }
    /// Adds a shared descriptor for reading.
    pub fn add_copy(&self, fd: OwnedFd) -> io::Result<Key> {
        let key = self.insert(fd, None, SHARED_FILE);
        self.register(key, COPY)
    }

    /// Adds a connected socket, idle, without epoll: a connection that ends with its first response is never
    /// registered. The caller reads it at once, then calls [`Poller::watch_now`].
    pub fn add_unwatched(&self, fd: OwnedFd, registration: impl FnOnce(Key) -> T) -> Key {
        let key = self.vacant();
        let registration = registration(key);
        self.fill(key, Some(fd), Some(registration), IDLE | UNREGISTERED);
        key
    }
    /// Registers an entry of [`Poller::add_unwatched`], if it still exists; present readiness is an event. On failure
    /// the caller closes it.
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

    /// Adds a listening socket, level-triggered; `shared` ones wake one thread at a time.
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

    /// Frees an entry, closes its socket if owned, wakes its tasks, and returns the registration.
    pub fn remove(&self, key: Key) -> Option<T> {
        let (fd, registration, wakers, shared_file) = self.with(key, |entry| {
            let shared_file = entry.flags & SHARED_FILE != 0;
            entry.generation = entry.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
            entry.flags = 0;
            (entry.fd.take(), entry.registration.take(), entry.wakers.take(), shared_file)
        })?;
        if shared_file && let Some(fd) = &fd {
            // Already removed for a paused listener.
            let _ = epoll::delete(&self.epoll, fd);
        }
        drop(fd);
        self.used.set(self.used.get() - 1);
        self.registered.set(self.registered.get() - u32::from(registration.is_some()));
        self.free.borrow_mut().push(key.index);
        if self.used.get() < self.trim_below.get() {
            self.trim();
        }
        if let Some(wakers) = wakers {
            wakers.read.into_iter().chain(wakers.write).chain(wakers.close).for_each(Waker::wake);
        }
        registration
    }

    /// Drops unused blocks at the end of the table. Runs when a quarter of its entries is in use, and with each halving after that,
    /// so that its cost is spread over as many removals.
    #[cold]
    fn trim(&self) {
        let mut entries = self.entries.borrow_mut();
        while entries.len() > BLOCKS_KEPT
            && let Some(block) = entries.pop_if(|block| block.iter().all(|entry| entry.flags & USED == 0))
        {
            let last = block.iter().map(|entry| entry.generation).max().unwrap_or(NonZeroU32::MIN);
            let next = last.checked_add(1).unwrap_or(NonZeroU32::MIN);
            self.first_generation.set(self.first_generation.get().max(next));
        }
        self.trim_below.set(if entries.len() > BLOCKS_KEPT { self.used.get() / 2 } else { 0 });
        let end = (entries.len() * BLOCK) as u32;
        let mut free = self.free.borrow_mut();
        free.retain(|index| *index < end);
        // Low entries are taken first, so that the last blocks become unused.
        free.sort_unstable_by(|a, b| b.cmp(a));
        free.shrink_to(BLOCK);
        self.deadlines.borrow_mut().shrink_to(BLOCK);
        crate::allocator::release();
    }

    /// Reports an idle entry again in the next turn.
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
    /// [`Poller::again`] for entries with readable bytes: epoll does not repeat the event.
    pub fn again_if_readable(&self, key: Key) {
        if self.with(key, |entry| entry.flags & READABLE != 0) == Some(true) {
            self.again(key);
        }
    }
    /// Replaces the registration of an entry; ignored for a key whose entry is gone.
    pub fn set_registration(&self, key: Key, registration: T) {
        let had_one = self.with(key, |entry| entry.registration.replace(registration).is_some());
        self.registered.set(self.registered.get() + u32::from(had_one == Some(false)));
    }
    /// Pauses (`false`) or resumes listening.
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
    /// Idle entries among those `wanted`, nearest to their deadline first, at most `most`. Looks at every entry once.
    pub fn nearest_idle(&self, most: usize, wanted: impl Fn(&T) -> bool) -> Vec<Key> {
        // The latest deadline is on top, and leaves for an earlier one.
        let mut nearest = BinaryHeap::with_capacity(most + 1);
        for (index, entry) in self.entries.borrow().iter().flatten().enumerate() {
            // Readable entries are about to be served.
            if entry.flags & (USED | IDLE | QUEUED) == USED | IDLE && entry.registration.as_ref().is_some_and(&wanted) {
                nearest.push((entry.deadline, index as u32, entry.generation));
                if nearest.len() > most {
                    nearest.pop();
                }
            }
        }
        let sorted = nearest.into_sorted_vec().into_iter();
        sorted.map(|(_, index, generation)| Key { index, generation }).collect()
    }

    /// Returns the registration of an entry; `None` for outbound connections and gone entries.
    pub fn registration(&self, key: Key) -> Option<T> {
        self.with(key, |entry| entry.registration.clone()).flatten()
    }
    /// Tells whether the entry of a key exists.
    pub fn contains(&self, key: Key) -> bool {
        self.with(key, |_| ()).is_some()
    }

    /// Gives the entry to a task, which readiness then wakes.
    pub fn set_busy(&self, key: Key) {
        self.with(key, |entry| entry.flags &= !(IDLE | QUEUED));
    }
    /// Returns the entry to the loop until `deadline`; pending bytes count as an event.
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
    /// Forgets the waiting tasks of an entry and frees the memory of their wakers.
    pub fn forget_waiting(&self, key: Key) {
        self.with(key, |entry| self.forget_wakers(entry));
    }
    /// Returns the deadline of an entry; 0 if the entry is gone.
    pub fn deadline(&self, key: Key) -> Instant {
        self.with(key, |entry| entry.deadline).unwrap_or_default()
    }
    /// Marks the entry readable without an event.
    pub fn note_readable(&self, key: Key) {
        self.with(key, |entry| entry.flags |= READABLE);
    }
    /// Tells whether the loop, and no task, gets the entry's readiness.
    pub fn is_idle(&self, key: Key) -> bool {
        self.with(key, |entry| entry.flags & IDLE != 0).unwrap_or(false)
    }
    /// Sets an idle entry's deadline. Cheap: touches the heap only without an earlier node.
    #[inline]
    pub fn set_deadline(&self, key: Key, deadline: Instant) {
        if self.with(key, |entry| entry.is_due_at(deadline)) == Some(true) {
            self.deadlines.borrow_mut().push(std::cmp::Reverse((deadline, u64::from(key.index))));
        }
    }
    /// Expired idle entries, and when to ask again (see [`Poller::next_due`]).
    pub fn due(&self, now: Instant, out: &mut Vec<Key>) -> Option<Instant> {
        let mut heap = self.deadlines.borrow_mut();
        let mut entries = self.entries.borrow_mut();
        while let Some(std::cmp::Reverse((at, index))) = heap.peek().copied() {
            if at > now {
                return Some(at);
            }
            heap.pop();
            // A node of an earlier deadline, which has its own now.
            let Some(entry) = slot(&mut entries, index).filter(|entry| entry.node == at) else { continue };
            entry.node = Instant::default();
            if entry.flags & (USED | IDLE) != USED | IDLE {
                continue;
            }
            // Events that arrived in time precede deadlines, however late the thread is.
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
    /// Earliest time at which [`Poller::due`] may return entries.
    pub fn next_due(&self) -> Option<Instant> {
        self.deadlines.borrow().peek().map(|std::cmp::Reverse((at, _))| *at)
    }

    /// Notes that a read found nothing more: data will be an event.
    #[inline]
    pub fn drained(&self, key: Key) {
        self.with(key, |entry| entry.flags &= !READABLE);
    }
    /// Tells whether the peer has closed: a short read then does not mean that nothing follows.
    pub fn closing(&self, key: Key) -> bool {
        self.with(key, |entry| entry.flags & CLOSING != 0).unwrap_or(true)
    }
    /// Notes that a write would block.
    pub fn blocked(&self, key: Key) {
        self.with(key, |entry| entry.flags &= !WRITABLE);
    }

    /// Waits until a read may succeed; `false` if the entry is gone. Completed waits cost budget, so that no loop keeps
    /// the thread.
    pub async fn readable(&self, key: Key) -> bool {
        poll_fn(|cx| self.poll_readable(key, cx)).await
    }
    /// Waits until a write may succeed; `false` if the entry is gone.
    pub async fn writable(&self, key: Key) -> bool {
        poll_fn(|cx| self.poll_writable(key, cx)).await
    }
    /// Ready when a read may succeed, with `false` if the entry is gone. One task at a time waits for reading. Costs
    /// budget.
    pub fn poll_readable(&self, key: Key, cx: &mut std::task::Context<'_>) -> Poll<bool> {
        self.poll_ready(key, READABLE, cx, |w| &mut w.read)
    }
    /// Ready when the peer has closed or the connection has failed, with `false` if the entry is gone. One task at a
    /// time.
    pub fn poll_closing(&self, key: Key, cx: &mut std::task::Context<'_>) -> Poll<bool> {
        self.poll_ready(key, CLOSING, cx, |w| &mut w.close)
    }
    /// Ready when a write may succeed, with `false` if the entry is gone. One task at a time waits for writing. Costs
    /// budget.
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

    /// Waits for events until `until` (`None`: forever) and returns readable idle entries; does not wait while some are
    /// pending. `true`: there may be more.
    pub fn wait(&self, until: Option<Instant>, ready: &mut Vec<Key>) -> io::Result<bool> {
        let mut events = self.events.borrow_mut();
        events.clear();
        let micros = until.map(|until| until.micros_since(base::clock::now()));
        let micros = if self.has_pending() { Some(0) } else { micros };
        ready.append(&mut self.pending.borrow_mut());
        // Rounds up to epoll's milliseconds: otherwise a nearly due timer would spin.
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
                    // The loop reads; a task may wait for writing.
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
    /// Accepts a key of [`Poller::wait`] for processing; `false` if outdated.
    #[inline]
    pub fn begin(&self, key: Key) -> bool {
        self.with(key, |entry| {
            let was = entry.flags & (IDLE | QUEUED) == IDLE | QUEUED;
            entry.flags &= !QUEUED;
            was
        })
        .unwrap_or(false)
    }
    /// Tells whether the entry was reported readable and not drained since.
    pub fn readable_now(&self, key: Key) -> bool {
        self.with(key, |entry| entry.flags & READABLE != 0).unwrap_or(false)
    }
    /// Keeps an entry idle after an inline response: moves its deadline and checks for pending bytes.
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
    /// Tells whether entries wait that need no event.
    pub fn has_pending(&self) -> bool {
        !self.pending.borrow().is_empty()
    }
    /// Drops all wakers at the thread's end.
    pub fn forget_all_wakers(&self) {
        let wakers: Vec<_> = {
            let mut entries = self.entries.borrow_mut();
            entries.iter_mut().flat_map(|block| block.iter_mut()).filter_map(|entry| entry.wakers.take()).collect()
        };
        drop(wakers);
    }
    /// Returns the keys of all entries.
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
