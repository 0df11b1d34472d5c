//! Connections to upstream servers, in the poller of the thread's clients: one event queue for both sides of a proxied
//! request.

use crate::budget;
use crate::poller::{Key, Poller};
use crate::socket;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

/// The poller as connections see it, independent of its registrations.
trait Watcher {
    fn adopt(&self, fd: BorrowedFd<'_>) -> io::Result<Key>;
    fn adopt_connected(&self, fd: BorrowedFd<'_>) -> io::Result<Key>;
    fn watch_room(&self, key: Key, fd: BorrowedFd<'_>);
    fn adopt_copy(&self, fd: BorrowedFd<'_>) -> io::Result<Key>;
    fn adopt_datagrams(&self, fd: BorrowedFd<'_>) -> io::Result<Key>;
    fn unwatch(&self, fd: BorrowedFd<'_>);
    fn remove(&self, key: Key);
    fn tcp_info(&self, key: Key) -> Option<[u32; 4]>;
    fn poll_readable(&self, key: Key, cx: &mut Context<'_>) -> Poll<bool>;
    fn poll_writable(&self, key: Key, cx: &mut Context<'_>) -> Poll<bool>;
    fn has_news(&self, key: Key) -> bool;
    fn closing(&self, key: Key) -> bool;
    fn drained(&self, key: Key);
    fn blocked(&self, key: Key);
    fn set_idle(&self, key: Key);
    fn note_readable(&self, key: Key);
    fn outbound(&self) -> usize;
}

impl<T: Clone> Watcher for Poller<T> {
    fn adopt(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        Poller::adopt(self, fd)
    }
    fn adopt_connected(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        Poller::adopt_connected(self, fd)
    }
    fn watch_room(&self, key: Key, fd: BorrowedFd<'_>) {
        Poller::watch_room(self, key, fd);
    }
    fn adopt_copy(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        Poller::adopt_copy(self, fd)
    }
    fn adopt_datagrams(&self, fd: BorrowedFd<'_>) -> io::Result<Key> {
        Poller::adopt_datagrams(self, fd)
    }
    fn unwatch(&self, fd: BorrowedFd<'_>) {
        Poller::unwatch(self, fd);
    }
    fn remove(&self, key: Key) {
        Poller::remove(self, key);
    }
    fn tcp_info(&self, key: Key) -> Option<[u32; 4]> {
        Poller::tcp_info(self, key)
    }
    fn poll_readable(&self, key: Key, cx: &mut Context<'_>) -> Poll<bool> {
        Poller::poll_readable(self, key, cx)
    }
    fn poll_writable(&self, key: Key, cx: &mut Context<'_>) -> Poll<bool> {
        Poller::poll_writable(self, key, cx)
    }
    fn has_news(&self, key: Key) -> bool {
        self.readable_now(key)
    }
    fn closing(&self, key: Key) -> bool {
        Poller::closing(self, key)
    }
    fn drained(&self, key: Key) {
        Poller::drained(self, key);
    }
    fn blocked(&self, key: Key) {
        Poller::blocked(self, key);
    }
    fn set_idle(&self, key: Key) {
        Poller::forget_waiting(self, key);
    }
    fn note_readable(&self, key: Key) {
        Poller::note_readable(self, key);
    }
    fn outbound(&self) -> usize {
        self.len() - self.registered()
    }
}

thread_local! {
    static LOT: RefCell<Option<Rc<dyn Watcher>>> = const { RefCell::new(None) };
}

/// Limit of a thread's connections.
pub trait Admission {
    /// Makes room for one more connection, if necessary. Fails with the limit.
    fn admit(&self) -> Result<(), usize>;
}

thread_local! {
    static ADMISSION: RefCell<Option<Rc<dyn Admission>>> = const { RefCell::new(None) };
}

/// Sets the limit of this thread's connections; `None`: unlimited.
pub fn limit_with(admission: Option<Rc<dyn Admission>>) {
    ADMISSION.set(admission);
}

/// Asks for one more connection, before its socket is opened. Fails with the limit.
pub fn admit() -> Result<(), usize> {
    // Closing connections may ask for this cell again.
    match ADMISSION.with_borrow(Clone::clone) {
        Some(admission) => admission.admit(),
        None => Ok(()),
    }
}

/// The former watcher of a thread, for [`watch_again`].
pub struct Before(Option<Rc<dyn Watcher>>);

/// Watches this thread's new connections by this poller.
pub fn watch_with<T: Clone + 'static>(poller: &Rc<Poller<T>>) -> Before {
    Before(LOT.replace(Some(poller.clone())))
}

/// Restores the watcher before [`watch_with`].
pub fn watch_again(before: Before) {
    LOT.set(before.0);
}

/// Tells whether this thread has a poller for outbound connections.
pub fn is_watched() -> bool {
    LOT.with_borrow(Option::is_some)
}

/// Returns the number of this thread's outbound connections, for tests in virtual time.
pub fn count() -> usize {
    LOT.with_borrow(|lot| lot.as_ref().map_or(0, |lot| lot.outbound()))
}

/// Kernel's TCP data of a client of this thread: see [`Poller::tcp_info`].
pub fn tcp_info(key: Key) -> Option<[u32; 4]> {
    LOT.with_borrow(|lot| lot.as_ref()?.tcp_info(key))
}

/// A connected or connecting socket; leaves its poller, then closes, on drop.
pub struct Outbound {
    key: Key,
    fd: OwnedFd,
    /// Shares its file: closing does not end epoll's interest.
    is_copy: bool,
    /// TCP_NODELAY is set, or does not apply.
    nodelay: Cell<bool>,
    /// Room is an event. Most connections never lack it.
    watches_room: Cell<bool>,
    /// A datagram socket: a read returns one packet.
    datagrams: bool,
    poller: Rc<dyn Watcher>,
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        if self.is_copy {
            self.poller.unwatch(self.fd.as_fd());
        }
        self.poller.remove(self.key);
    }
}

impl AsFd for Outbound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Outbound {
    /// Takes a non-blocking socket. `tcp`: Nagle's algorithm delays small writes until [`Outbound::hurry`]. Fails when
    /// epoll refuses it, or without a poller.
    pub fn new(fd: OwnedFd, tcp: bool) -> io::Result<Outbound> {
        Outbound::add(fd, tcp, |poller, fd| poller.adopt(fd))
    }
    /// [`Outbound::new`] for a socket that is connected already, and has room.
    pub fn connected(fd: OwnedFd, tcp: bool) -> io::Result<Outbound> {
        let outbound = Outbound::add(fd, tcp, |poller, fd| poller.adopt_connected(fd))?;
        outbound.watches_room.set(false);
        Ok(outbound)
    }
    /// [`Outbound::new`] for a connected datagram socket.
    pub fn datagrams(fd: OwnedFd) -> io::Result<Outbound> {
        let mut outbound = Outbound::add(fd, false, |poller, fd| poller.adopt_datagrams(fd))?;
        outbound.datagrams = true;
        Ok(outbound)
    }
    /// Watches a copy of a shared descriptor for reading.
    pub fn copy(fd: OwnedFd) -> io::Result<Outbound> {
        let mut outbound = Outbound::add(fd, false, |poller, fd| poller.adopt_copy(fd))?;
        outbound.is_copy = true;
        Ok(outbound)
    }
    fn add(
        fd: OwnedFd,
        tcp: bool,
        adopt: impl FnOnce(&dyn Watcher, BorrowedFd<'_>) -> io::Result<Key>,
    ) -> io::Result<Outbound> {
        let poller = LOT.with_borrow(Clone::clone).ok_or(io::ErrorKind::Unsupported)?;
        let key = adopt(&*poller, fd.as_fd())?;
        let (nodelay, watches_room) = (Cell::new(!tcp), Cell::new(true));
        Ok(Outbound { key, fd, is_copy: false, nodelay, watches_room, datagrams: false, poller })
    }
    /// Returns the socket and stops watching it. Fails without descriptors.
    pub fn release(&self) -> io::Result<OwnedFd> {
        let copy = self.fd.try_clone()?;
        // Closing this copy would not do that.
        self.poller.unwatch(self.fd.as_fd());
        self.poller.remove(self.key);
        Ok(copy)
    }
    /// Notes a write without room: room will be an event.
    pub fn blocked(&self) {
        self.poller.blocked(self.key);
        if !self.watches_room.replace(true) {
            self.poller.watch_room(self.key, self.fd.as_fd());
        }
    }
    /// Notes a read without data: data will be an event.
    pub fn drained(&self) {
        self.poller.drained(self.key);
    }
    /// Reads into a vector's spare room without waiting; asks the kernel only after an event. Fails with `WouldBlock`,
    /// also without budget.
    pub fn try_recv(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        if !budget::is_left() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let got = self.recv_now(buf);
        budget::pass(*got.as_ref().unwrap_or(&0));
        got
    }
    fn recv_now(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        if !self.poller.has_news(self.key) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let room = buf.capacity() - buf.len();
        let got = socket::recv_spare(self.fd.as_fd(), buf);
        match &got {
            // A partial read has emptied the socket, unless the end follows.
            Ok(n) if *n > 0 && *n < room && !self.datagrams && !self.poller.closing(self.key) => {
                self.poller.drained(self.key);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.poller.drained(self.key),
            _ => {}
        }
        got
    }
    /// Receives a datagram with its sender, without waiting. Fails with `WouldBlock`, also without budget.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, Option<SocketAddr>)> {
        if !budget::is_left() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let got = socket::recv_from(self.fd.as_fd(), buf);
        budget::pass(got.as_ref().map_or(0, |(n, _)| *n));
        if matches!(&got, Err(e) if e.kind() == io::ErrorKind::WouldBlock) {
            self.poller.drained(self.key);
        }
        got
    }
    /// Sends a datagram, without waiting. Fails with `WouldBlock` without room.
    pub fn try_send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.sent(socket::send_to(self.fd.as_fd(), bytes, to))
    }
    fn sent(&self, sent: io::Result<usize>) -> io::Result<usize> {
        budget::pass(*sent.as_ref().unwrap_or(&0));
        if matches!(&sent, Err(e) if e.kind() == io::ErrorKind::WouldBlock) {
            self.blocked();
        }
        sent
    }
    /// Reads bytes without consuming them; further bytes cause an event. [`Outbound::looked`] ends peeking.
    pub fn try_peek(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        if !budget::is_left() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        budget::pass(0);
        if !self.poller.has_news(self.key) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.poller.drained(self.key);
        socket::peek_spare(self.fd.as_fd(), buf)
    }
    /// Ends peeking: the next read asks the kernel again, without an event.
    pub fn looked(&self) {
        self.poller.note_readable(self.key);
    }
    /// Tells whether the peer has closed or the connection failed; unread bytes may remain.
    pub fn is_closing(&self) -> bool {
        self.poller.closing(self.key)
    }
    /// Writes as much as fits. Fails with `WouldBlock`, also while connecting.
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.sent(socket::send(self.fd.as_fd(), buf, false))
    }
    /// Returns the free bytes of the send buffer; `None` if they are unknown.
    pub fn send_room(&self) -> Option<usize> {
        socket::send_room(self.fd.as_fd())
    }
    /// Ready when a read may succeed. One task at a time.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poller.poll_readable(self.key, cx).map(|_| ())
    }
    /// Ready when a write may succeed, and after a connect has ended. One task at a time.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poller.poll_writable(self.key, cx).map(|_| ())
    }
    /// Tells whether an event announced data.
    pub fn has_news(&self) -> bool {
        self.poller.has_news(self.key)
    }
    /// Tells whether nothing arrived or ended.
    pub fn is_quiet(&self) -> bool {
        // A replaced poller has no news.
        let is_watched = LOT.with_borrow(|lot| {
            lot.as_ref().is_some_and(|now| std::ptr::addr_eq(Rc::as_ptr(now), Rc::as_ptr(&self.poller)))
        });
        let mut byte = Vec::new();
        is_watched
            && (!self.poller.has_news(self.key) || {
                byte.reserve_exact(1);
                matches!(self.recv_now(&mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
            })
    }
    /// Sends the next write before earlier data is acknowledged (TCP_NODELAY).
    pub fn hurry(&self) {
        if !self.nodelay.replace(true) {
            socket::set_nodelay(self.fd.as_fd());
        }
    }
    /// Forgets the waiting tasks and frees the memory of their wakers: the connection becomes idle.
    pub fn set_idle(&self) {
        self.poller.set_idle(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn is_told_of_bytes_and_of_the_end_by_the_lot() {
        let poller = Rc::new(Poller::<u8>::new().expect("epoll"));
        watch_with(&poller);
        assert!(is_watched());
        let (ours, mut theirs) = UnixStream::pair().expect("pair");
        ours.set_nonblocking(true).expect("nonblocking");
        let outbound = Outbound::new(ours.into(), false).expect("watched");
        assert!(poller.has_no_registered(), "it is nobody's client");
        assert_eq!((poller.len(), poller.registered()), (1, 0));
        let (mut ready, mut buf) = (Vec::new(), Vec::with_capacity(8));
        theirs.write_all(b"one").expect("write");
        assert!(outbound.is_quiet(), "no event has come yet");
        poller.wait(Some(base::clock::Instant::default()), &mut ready).expect("turn");
        assert!(ready.is_empty(), "it is not idle");
        assert_eq!(outbound.try_recv(&mut buf).expect("bytes"), 3);
        assert!(outbound.is_quiet());
        theirs.write_all(b"two").expect("write");
        drop(theirs);
        poller.wait(Some(base::clock::Instant::default()), &mut ready).expect("turn");
        assert_eq!(outbound.try_recv(&mut buf).expect("bytes"), 3);
        assert!(!outbound.is_quiet(), "the end is not forgotten");
        assert_eq!((outbound.try_recv(&mut buf).expect("end"), buf.as_slice()), (0, &b"onetwo"[..]));
        drop(outbound);
        assert_eq!(poller.len(), 0);
    }

    #[test]
    fn room_is_an_event_only_after_a_write_without_it() {
        let poller = Rc::new(Poller::<u8>::new().expect("epoll"));
        watch_with(&poller);
        let (ours, mut theirs) = UnixStream::pair().expect("pair");
        ours.set_nonblocking(true).expect("nonblocking");
        let outbound = Outbound::connected(ours.into(), false).expect("watched");
        let events = || {
            let mut events = [const { std::mem::MaybeUninit::uninit() }; 4];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::epoll::wait(poller.as_fd(), &mut events, Some(&now)).expect("wait").0.len()
        };
        assert_eq!(events(), 0, "it has room, and that is known");
        let is_roomy = || {
            budget::renew();
            outbound.poll_writable(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
        };
        assert!(is_roomy());
        while outbound.try_send(&[0; 65_536]).is_ok() {}
        assert!(!is_roomy());
        let mut buf = vec![0; 1 << 20];
        while events() == 0 {
            assert!(theirs.read(&mut buf).expect("bytes") > 0);
        }
        // As the loop does it: the event above was taken without the poller.
        outbound.try_send(b"x").expect("room");
        while outbound.try_send(&[0; 65_536]).is_ok() {}
        while !is_roomy() {
            assert!(theirs.read(&mut buf).expect("bytes") > 0);
            poller.wait(Some(base::clock::Instant::default()), &mut Vec::new()).expect("turn");
        }
    }

    #[test]
    fn a_connection_of_another_poller_is_not_quiet() {
        let before = Rc::new(Poller::<u8>::new().expect("epoll"));
        watch_with(&before);
        let (ours, _theirs) = UnixStream::pair().expect("pair");
        let outbound = Outbound::new(ours.into(), false).expect("watched");
        assert!(outbound.is_quiet());
        watch_with(&Rc::new(Poller::<u8>::new().expect("epoll")));
        assert!(!outbound.is_quiet(), "its end would not be told");
    }

    #[test]
    fn a_poller_that_ends_first_leaves_the_socket_its_owners() {
        let poller = Rc::new(Poller::<u8>::new().expect("epoll"));
        watch_with(&poller);
        let (ours, mut theirs) = UnixStream::pair().expect("pair");
        let outbound = Outbound::new(ours.into(), false).expect("watched");
        for key in poller.keys() {
            poller.remove(key);
        }
        // The descriptor number now names this file.
        let _other = std::fs::File::open("/dev/null").expect("opened");
        assert_eq!(outbound.try_send(b"x").expect("sent"), 1);
        assert_eq!(theirs.read(&mut [0; 4]).expect("read"), 1);
        assert!(outbound.release().is_ok());
        drop(outbound);
        assert_eq!((poller.len(), theirs.read(&mut [0; 4]).expect("the end")), (0, 0));
    }

    #[test]
    fn a_copy_that_goes_leaves_nothing_behind_in_epoll() {
        let poller = Rc::new(Poller::<u8>::new().expect("epoll"));
        watch_with(&poller);
        let (ours, mut theirs) = UnixStream::pair().expect("pair");
        drop(Outbound::copy(ours.try_clone().expect("copy").into()).expect("watched"));
        theirs.write_all(b"x").expect("write");
        let mut event = [const { std::mem::MaybeUninit::uninit() }; 1];
        let epoll = poller.as_fd();
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let (events, _) = rustix::event::epoll::wait(epoll, &mut event, Some(&now)).expect("wait");
        assert!(events.is_empty(), "its file is still open, and nobody's news");
    }

    #[test]
    fn facts_of_the_kernel_are_read_by_key() {
        let poller = Rc::new(Poller::new().expect("epoll"));
        watch_with(&poller);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let _theirs = std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connected");
        let key = poller.add(listener.accept().expect("accepted").0.into(), 7).expect("added");
        assert!(tcp_info(key).is_some_and(|info| info[2] > 0), "a congestion window");
        poller.remove(key);
        assert_eq!(tcp_info(key), None);
    }
}
