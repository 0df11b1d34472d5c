//! A connection to an upstream server.

use crate::secure::{HandshakeError, Secure};
use net::Address;
use net::outbound::Outbound;
use runtime::budget;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use tls::{Choice, ClientHello, Facts, TlsStream};

/// Options of a socket before it connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Local address (`proxy_bind`).
    pub from: Option<SocketAddr>,
    /// The local address may be foreign.
    pub transparent: bool,
    /// SO_KEEPALIVE.
    pub keepalive: bool,
    /// SO_RCVBUF and SO_SNDBUF; 0: system's default.
    pub receive_buffer: usize,
    /// SO_SNDBUF in bytes; 0: the system's default.
    pub send_buffer: usize,
}

/// Connected socket in its thread's event queue, optionally with TLS.
#[derive(Debug)]
pub struct Stream {
    outbound: Outbound,
    secure: Option<Box<Secure>>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(secure) = &self.secure {
            secure.close(&self.outbound);
        }
    }
}

fn transparent(e: io::Error) -> io::Error {
    let why = if e.raw_os_error() == Some(1) { ", the worker lacks the capability CAP_NET_RAW" } else { "" };
    io::Error::new(e.kind(), format!("setsockopt(IP_TRANSPARENT) failed: {e}{why}"))
}

/// No socket to connect: no server is to blame, and another would not help.
#[derive(Debug)]
pub enum LocalError {
    /// socket() failed.
    Socket(io::Error),
    /// The local address is unavailable.
    Bind {
        /// The local address.
        from: SocketAddr,
        /// The error of bind().
        error: io::Error,
    },
    /// The thread has as many connections as `worker_connections` allows.
    Connections(usize),
}

impl LocalError {
    /// Finds the local reason of a failed connect; `None`: the error is the server's.
    pub fn of(e: &io::Error) -> Option<&LocalError> {
        e.get_ref()?.downcast_ref()
    }
    /// Marks an error of socket(), or of a copy of its descriptor, as local.
    pub fn socket(e: io::Error) -> io::Error {
        io::Error::new(e.kind(), LocalError::Socket(e))
    }
}

impl std::fmt::Display for LocalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LocalError::Socket(e) => write!(f, "socket() failed: {e}"),
            LocalError::Bind { from, error } => write!(f, "bind({}) failed: {error}", BindAddress(*from)),
            LocalError::Connections(limit) => write!(f, "{limit} worker_connections are not enough"),
        }
    }
}

/// Text of an address to bind to; omits an unconfigured port.
#[derive(Clone, Copy, Debug)]
pub struct BindAddress(pub SocketAddr);

impl std::fmt::Display for BindAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.port() == 0 { self.0.ip().fmt(f) } else { self.0.fmt(f) }
    }
}

impl std::error::Error for LocalError {}

/// Opens a socket with the options that precede connecting.
fn open(to: &Address, kind: Type, options: &ConnectOptions) -> io::Result<(Socket, SockAddr)> {
    let (domain, address) = match to {
        Address::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
        Address::Ip(ip) => (Domain::for_address(*ip), SockAddr::from(*ip)),
    };
    net::outbound::admit().map_err(|limit| io::Error::other(LocalError::Connections(limit)))?;
    let socket = Socket::new(domain, kind.nonblocking().cloexec(), None).map_err(LocalError::socket)?;
    if let Address::Ip(ip) = to {
        if options.transparent {
            let set =
                if ip.is_ipv4() { socket.set_ip_transparent_v4(true) } else { socket.set_ip_transparent_v6(true) };
            set.map_err(transparent)?;
        }
        if let Some(from) = options.from {
            if from.port() == 0 {
                net::socket::set_bind_address_no_port(&socket);
            }
            socket
                .bind(&from.into())
                .map_err(|error| io::Error::new(error.kind(), LocalError::Bind { from, error }))?;
        }
    }
    // Before connecting, which negotiates windows.
    if options.receive_buffer > 0 {
        socket.set_recv_buffer_size(options.receive_buffer)?;
    }
    if options.send_buffer > 0 {
        socket.set_send_buffer_size(options.send_buffer)?;
    }
    Ok((socket, address))
}

/// Opens a datagram socket that exchanges packets with one server.
pub fn datagram_socket(to: &Address, options: &ConnectOptions) -> io::Result<OwnedFd> {
    let (socket, address) = open(to, Type::DGRAM, options)?;
    socket.connect(&address)?;
    Ok(socket.into())
}

/// Starts connecting; `true`: already connected.
fn begin(to: &Address, options: &ConnectOptions) -> io::Result<(Outbound, bool)> {
    let (socket, address) = open(to, Type::STREAM, options)?;
    if options.keepalive && matches!(to, Address::Ip(_)) {
        socket.set_keepalive(true)?;
    }
    let connected = match socket.connect(&address) {
        Ok(()) => true,
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {
            // Local servers have mostly answered by now.
            matches!(to, Address::Ip(ip) if ip.ip().is_loopback()) && socket.peer_addr().is_ok()
        }
        Err(e) => return Err(e),
    };
    let (fd, tcp) = (socket.into(), matches!(to, Address::Ip(_)));
    let outbound = if connected { Outbound::connected(fd, tcp) } else { Outbound::new(fd, tcp) }?;
    Ok((outbound, connected))
}

/// A connection that is being established.
#[derive(Debug)]
pub struct ConnectFuture {
    outbound: Option<Outbound>,
    connected: bool,
}

impl ConnectFuture {
    /// Fails also in a thread without an event queue.
    pub fn begin(to: &Address, options: &ConnectOptions) -> io::Result<ConnectFuture> {
        let (outbound, connected) = begin(to, options)?;
        Ok(ConnectFuture { outbound: Some(outbound), connected })
    }
    /// Completed connection; must not be polled again.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let Some(outbound) = self.outbound.take() else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        if !self.connected {
            if outbound.poll_writable(cx).is_pending() {
                self.outbound = Some(outbound);
                return Poll::Pending;
            }
            if let Some(e) = SockRef::from(&outbound).take_error().unwrap_or_else(Some) {
                return Poll::Ready(Err(e));
            }
        }
        Poll::Ready(Ok(Stream { outbound, secure: None }))
    }
}

impl Stream {
    /// Fails also in a thread without an event queue.
    pub async fn connect(to: &Address, options: &ConnectOptions) -> io::Result<Stream> {
        let mut connecting = ConnectFuture::begin(to, options)?;
        poll_fn(|cx| connecting.poll(cx)).await
    }
    /// Performs a client's handshake. Must not be called twice.
    pub async fn handshake(&mut self, tls: TlsStream) -> Result<(), HandshakeError> {
        self.secure = Some(Box::new(Secure::handshake(&self.outbound, tls, |_| Choice::Fail).await?));
        Ok(())
    }
    /// An accepted connection. `tcp`: see [`Stream::hurry`].
    pub fn accepted(fd: OwnedFd, tcp: bool) -> io::Result<Stream> {
        Ok(Stream { outbound: Outbound::connected(fd, tcp)?, secure: None })
    }
    /// Performs a server's handshake; `choose`: rules for a ClientHello.
    pub async fn accept(&mut self, choose: impl FnMut(&ClientHello) -> Choice) -> Result<(), HandshakeError> {
        self.secure = Some(Box::new(Secure::handshake(&self.outbound, TlsStream::server(), choose).await?));
        Ok(())
    }
    /// Returns the facts of the TLS handshake; `None` in cleartext.
    pub fn facts(&self) -> Option<Arc<Facts>> {
        self.secure.as_ref()?.facts()
    }
    /// Tells whether the connection uses TLS.
    pub fn is_secure(&self) -> bool {
        self.secure.is_some()
    }
    /// Peeks at received bytes, not through TLS; see [`Outbound::try_peek`].
    pub fn try_peek(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.outbound.try_peek(buf)
    }
    /// Notes that bytes were only looked at, so that the next read finds them.
    pub fn looked(&self) {
        self.outbound.looked();
    }
    /// Tells whether the peer has closed or the connection failed; unread bytes may remain.
    pub fn is_closing(&self) -> bool {
        self.outbound.is_closing()
    }
    /// Returns the socket's own address; `None` for UNIX-domain sockets.
    pub fn local_address(&self) -> Option<SocketAddr> {
        SockRef::from(&self.outbound).local_addr().ok()?.as_socket()
    }
    /// Returns the unwatched socket, with TLS state and decrypted unread bytes. Fails without descriptors.
    pub fn into_parts(mut self) -> io::Result<(OwnedFd, Option<(TlsStream, Vec<u8>)>)> {
        let fd = self.outbound.release()?;
        Ok((fd, self.secure.take().map(|secure| secure.into_parts())))
    }
    /// Tells whether ciphertext of earlier writes waits for the socket.
    pub fn has_unsent(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.has_unsent())
    }
    /// Sends ciphertext of earlier writes; fails with `WouldBlock` if more is left.
    pub fn try_flush(&self) -> io::Result<()> {
        match &self.secure {
            Some(secure) => secure.flush(&self.outbound),
            None => Ok(()),
        }
    }
    /// Ends the own direction: close_notify, and a FIN.
    pub fn shutdown_write(&self) -> io::Result<()> {
        if let Some(secure) = &self.secure {
            secure.close(&self.outbound);
        }
        SockRef::from(&self.outbound).shutdown(std::net::Shutdown::Write)
    }
    /// Releases spare memory of TLS.
    pub fn shrink(&self) {
        if let Some(secure) = &self.secure {
            secure.shrink();
        }
    }
    /// Sends the next write before earlier data is acknowledged: for consecutive writes.
    pub fn hurry(&self) {
        self.outbound.hurry();
    }
    /// Prepares a connection for the pool: releases spare memory and forgets its waiting task.
    pub fn set_idle(&self) {
        if let Some(secure) = &self.secure {
            secure.shrink();
        }
        self.outbound.set_idle();
    }
    /// Does not wait.
    pub fn try_read_buf(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        match &self.secure {
            None => self.outbound.try_recv(buf),
            Some(secure) => secure.recv(&self.outbound, buf),
        }
    }
    /// Tells whether nothing arrived or ended; costs a system call only after an event.
    pub fn is_quiet(&self) -> bool {
        let Some(secure) = &self.secure else { return self.outbound.is_quiet() };
        // Without budget, unread news may be the end.
        if self.outbound.has_news() && !budget::is_left() {
            return false;
        }
        // Possibly a session ticket: usable.
        matches!(secure.recv(&self.outbound, &mut Vec::new()), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
    /// Fails as [`Stream::try_read_buf`].
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        if !budget::is_left() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match &self.secure {
            None => self.outbound.try_send(buf),
            Some(secure) => secure.send(&self.outbound, buf),
        }
    }
    /// Returns the free bytes of the socket's send buffer; `None` if they are unknown.
    pub fn send_room(&self) -> Option<usize> {
        self.outbound.send_room()
    }
    /// Waits until a read can make progress. One task at a time.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.secure {
            None => self.outbound.poll_readable(cx),
            Some(secure) => secure.poll_readable(&self.outbound, cx),
        }
        .map(Ok)
    }
    /// Waits until the socket takes more bytes. One task at a time.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outbound.poll_writable(cx).map(Ok)
    }
    /// Waits until a read can make progress.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_readable(cx)).await
    }
    /// Waits until the socket takes more bytes.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_writable(cx)).await
    }
    /// Writes all bytes, waiting as needed. Fails as [`Stream::try_write`].
    pub async fn write_all(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match self.try_write(buf) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => buf = &buf[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
    /// `Ok(0)`: the end.
    pub async fn read_buf(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match self.try_read_buf(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn an_end_that_comes_with_the_last_bytes_is_seen() {
        runtime::block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
            let to = Address::Ip(listener.local_addr().expect("address"));
            let stream = Stream::connect(&to, &ConnectOptions::default()).await.expect("connected");
            let (mut theirs, _) = listener.accept().expect("accepted");
            for text in ["one", "two"] {
                theirs.write_all(text.as_bytes()).expect("written");
                let mut buf = Vec::with_capacity(64);
                assert_eq!(stream.read_buf(&mut buf).await.expect("read"), 3);
                assert_eq!(buf, text.as_bytes());
                assert!(stream.try_read_buf(&mut buf).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock));
            }
            theirs.write_all(b"end").expect("written");
            drop(theirs);
            let mut buf = Vec::with_capacity(64);
            while stream.read_buf(&mut buf).await.expect("read") > 0 {}
            assert_eq!(buf, b"end");
        });
    }
}
