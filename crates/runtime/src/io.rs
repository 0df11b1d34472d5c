//! Descriptors that tasks wait for: datagram sockets, and whatever else turns readable.

use net::outbound::Outbound;
use net::pool::{Pool, PoolSpec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Socket, Type};
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, LazyLock};

/// Something with a descriptor, watched by the thread's event queue.
#[derive(Debug)]
pub struct Watched<T> {
    inner: T,
    events: Outbound,
}

impl<T: AsFd> Watched<T> {
    /// # Errors
    /// When the event queue refuses it, or the thread has none.
    pub fn new(inner: T) -> io::Result<Watched<T>> {
        let copy = inner.as_fd().try_clone_to_owned()?;
        Ok(Watched { events: Outbound::copy(copy)?, inner })
    }
    pub fn get_ref(&self) -> &T {
        &self.inner
    }
    /// Waits until there may be something to read: ready until [`Watched::clear_ready`].
    pub async fn readable(&self) {
        poll_fn(|cx| self.events.poll_readable(cx)).await;
    }
    /// A read has found nothing.
    pub fn clear_ready(&self) {
        self.events.drained();
    }
}

impl<T> AsFd for Watched<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// Asks the system for the addresses of a host (`getaddrinfo`), on a thread of its own: it may take its time.
///
/// # Errors
/// As the system gives them, and when too many questions wait already.
pub async fn lookup_host(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    static NAMES: LazyLock<Arc<Pool>> =
        LazyLock::new(|| Pool::new(PoolSpec { name: "names".into(), threads: 4, queue_max: 1024 }));
    let host = host.to_owned();
    let asked = NAMES.run(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect));
    match asked {
        Ok(answer) => answer.await.map_err(|_| io::Error::other("no thread for it"))?,
        Err(_) => Err(io::ErrorKind::ResourceBusy.into()),
    }
}

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket(Outbound);

impl UdpSocket {
    /// A socket with a port of its own, which hears this peer only.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn connect(peer: SocketAddr) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(peer), Type::DGRAM.nonblocking().cloexec(), None)?;
        // Connecting chooses the port as well.
        socket.connect(&peer.into())?;
        Ok(UdpSocket(Outbound::datagrams(socket.into())?))
    }
    /// A socket at an address of ours, which hears everybody.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn bind(to: SocketAddr) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM.nonblocking().cloexec(), None)?;
        socket.bind(&to.into())?;
        Ok(UdpSocket(Outbound::datagrams(socket.into())?))
    }
    /// # Errors
    /// As the system gives them.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(rustix::net::getsockname(&self.0)?)?)
    }
    /// The next packet and where it came from.
    ///
    /// # Errors
    /// As the system gives them.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            match rustix::net::recvfrom(&self.0, &mut *buf, RecvFlags::empty()) {
                Ok((n, _, Some(from))) => return Ok((n, SocketAddr::try_from(from)?)),
                Ok((_, _, None)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.0.drained();
                    poll_fn(|cx| self.0.poll_readable(cx)).await;
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
    /// # Errors
    /// As the system gives them.
    pub async fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        loop {
            match rustix::net::sendto(&self.0, bytes, SendFlags::NOSIGNAL, &to) {
                Err(Errno::AGAIN) => {
                    self.0.blocked();
                    poll_fn(|cx| self.0.poll_writable(cx)).await;
                }
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }
    /// # Errors
    /// As the system gives them.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.try_send(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => poll_fn(|cx| self.0.poll_writable(cx)).await,
                done => return done,
            }
        }
    }
    /// The next packet, into the spare room of `buf`; what is longer is cut off.
    ///
    /// # Errors
    /// As the system gives them.
    pub async fn recv(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match self.0.try_recv(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => poll_fn(|cx| self.0.poll_readable(cx)).await,
                done => return done,
            }
        }
    }
}
