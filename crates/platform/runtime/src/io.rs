//! Descriptors for tasks: UDP sockets, and any readable descriptor.

use crate::budget;
use net::outbound::Outbound;
use net::pool::{Pool, PoolSpec};
use socket2::{Domain, Socket, Type};
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, LazyLock};

/// A descriptor whose readability tasks await. The thread's poller watches a copy.
#[derive(Debug)]
pub struct WatchedSocket<T> {
    inner: T,
    events: Outbound,
}

impl<T: AsFd> WatchedSocket<T> {
    /// Fails when the thread has no event queue, or it refuses the descriptor.
    pub fn new(inner: T) -> io::Result<WatchedSocket<T>> {
        let copy = inner.as_fd().try_clone_to_owned()?;
        Ok(WatchedSocket { events: Outbound::copy(copy)?, inner })
    }
    /// Returns the watched value.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }
    /// Returns the watched value, to be changed. It must keep its descriptor.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }
    /// Waits until the descriptor may be readable; stays ready until [`WatchedSocket::clear_ready`].
    pub async fn readable(&self) {
        poll_fn(|cx| self.events.poll_readable(cx)).await;
    }
    /// Resets readiness after a read without data.
    pub fn clear_ready(&self) {
        self.events.drained();
    }
}

impl<T> AsFd for WatchedSocket<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// Resolves a host by `getaddrinfo` on a separate thread. Fails with too many pending lookups, or as the system does.
pub async fn lookup_host(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    static NAMES: LazyLock<Arc<Pool>> =
        LazyLock::new(|| Pool::new(PoolSpec { name: "names".into(), threads: 4, queue_max: 1024, nice: 0 }));
    let host = host.to_owned();
    let asked = NAMES.run(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect));
    match asked {
        Ok(answer) => answer.await.map_err(|_| io::Error::other("no thread for it"))?,
        Err(_) => Err(io::ErrorKind::ResourceBusy.into()),
    }
}

/// A UDP socket of a task. One task at a time receives, and one sends.
#[derive(Debug)]
pub struct UdpSocket(Outbound);

impl UdpSocket {
    /// Connects a socket with a free port to one peer.
    pub fn connect(peer: SocketAddr) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(peer), Type::DGRAM.nonblocking().cloexec(), None)?;
        socket.connect(&peer.into())?;
        Ok(UdpSocket(Outbound::datagrams(socket.into())?))
    }
    /// Binds a socket that receives from any peer.
    pub fn bind(to: SocketAddr) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM.nonblocking().cloexec(), None)?;
        socket.bind(&to.into())?;
        Ok(UdpSocket(Outbound::datagrams(socket.into())?))
    }
    /// Returns the local address, with the port that the system has chosen.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(rustix::net::getsockname(&self.0)?)?)
    }
    /// Receives a datagram, truncated to `buf`, and returns its length and sender.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            match self.0.try_recv_from(buf) {
                Ok((n, Some(from))) => return Ok((n, from)),
                Ok((_, None)) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.readable().await,
                Err(e) => return Err(e),
            }
        }
    }
    /// Sends a datagram to an address.
    pub async fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        budget::proceed().await;
        loop {
            match self.0.try_send_to(bytes, to) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable().await,
                done => return done,
            }
        }
    }
    /// Sends a datagram to the connected peer.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        budget::proceed().await;
        loop {
            match self.0.try_send(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable().await,
                done => return done,
            }
        }
    }
    /// Receives a packet into the spare room of `buf`, truncated to it.
    pub async fn recv(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match self.0.try_recv(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.readable().await,
                done => return done,
            }
        }
    }
    async fn readable(&self) {
        poll_fn(|cx| self.0.poll_readable(cx)).await;
    }
    async fn writable(&self) {
        poll_fn(|cx| self.0.poll_writable(cx)).await;
    }
}

#[cfg(test)]
#[cfg(debug_assertions)]
mod tests {
    use super::*;
    use crate::task::{spawn_local, task_panics, yield_now};
    use net::faults::{self, SocketFault};
    use std::future::Future;
    use std::net::Ipv4Addr;

    /// Tests that a loop over an endless fault yields to this task.
    fn yields<F: Future<Output = ()> + 'static>(one: impl Fn(UdpSocket) -> F) {
        let errors = [SocketFault::Error(111), SocketFault::Error(12)];
        for fault in [SocketFault::Again, SocketFault::Endless(b'x')].into_iter().chain(errors) {
            let before = (task_panics(), faults::runaways());
            crate::block_on(async {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("bound");
                let _injected = faults::inject_fault(fault);
                let task = spawn_local(one(socket));
                for _ in 0..8 {
                    yield_now().await;
                }
                task.abort();
            });
            assert_eq!((task_panics(), faults::runaways()), before, "{fault:?}");
        }
    }

    #[test]
    fn no_loop_over_datagrams_keeps_its_thread() {
        yields(|socket| async move {
            let mut buf = Vec::with_capacity(8);
            loop {
                buf.clear();
                let _ = socket.recv(&mut buf).await;
            }
        });
        yields(|socket| async move {
            loop {
                let _ = socket.recv_from(&mut [0; 8]).await;
            }
        });
        yields(|socket| async move {
            loop {
                let _ = socket.send(b"x").await;
            }
        });
        yields(|socket| async move {
            let to = (Ipv4Addr::LOCALHOST, 9).into();
            loop {
                let _ = socket.send_to(b"x", to).await;
            }
        });
    }

    #[test]
    fn an_error_concerns_one_datagram() {
        crate::block_on(async {
            let gone = SocketAddr::from((Ipv4Addr::LOCALHOST, testkit::free_port()));
            let socket = UdpSocket::connect(gone).expect("connected");
            socket.send(b"anybody?").await.expect("sent");
            let mut buf = Vec::with_capacity(8);
            let refused = socket.recv(&mut buf).await.expect_err("nobody is there");
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            // The socket still works: it receives from a new peer.
            let back = std::net::UdpSocket::bind(gone).expect("bound");
            let waits = spawn_local(async move {
                let n = socket.recv(&mut buf).await;
                (n.expect("a datagram"), buf)
            });
            for _ in 0..4 {
                yield_now().await;
            }
            assert!(!waits.is_finished());
            drop(back);
            waits.abort();
        });
    }
}
