//! A connection to an upstream server.

use crate::secure::{HandshakeError, Secure};
use net::outbound::Outbound;
use runtime::budget;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use tls::{Choice, ClientHello, Facts, TlsStream};

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    Ip(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(ip) => ip.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How a connection is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The address that it comes from.
    pub from: Option<SocketAddr>,
    /// That address need not be this machine's.
    pub transparent: bool,
    /// SO_KEEPALIVE
    pub keepalive: bool,
    /// SO_RCVBUF and SO_SNDBUF; 0: as the system has it.
    pub receive_buffer: usize,
    pub send_buffer: usize,
}

/// A connected socket, watched by the event queue of its thread; with TLS on it or without.
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

/// Says which of the calls failed, and why it does.
fn transparent(e: io::Error) -> io::Error {
    let why = if e.raw_os_error() == Some(1) { ", the worker lacks the capability CAP_NET_RAW" } else { "" };
    io::Error::new(e.kind(), format!("setsockopt(IP_TRANSPARENT) failed: {e}{why}"))
}

/// Begins to connect; `true`: it is connected already.
fn begin(to: &Address, options: &Options) -> io::Result<(Outbound, bool)> {
    let (domain, address) = match to {
        Address::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
        Address::Ip(ip) => (Domain::for_address(*ip), SockAddr::from(*ip)),
    };
    let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), None)?;
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
            socket.bind(&from.into())?;
        }
        if options.keepalive {
            socket.set_keepalive(true)?;
        }
    }
    // Before the connection is made: its windows are agreed upon then.
    if options.receive_buffer > 0 {
        socket.set_recv_buffer_size(options.receive_buffer)?;
    }
    if options.send_buffer > 0 {
        socket.set_send_buffer_size(options.send_buffer)?;
    }
    let connected = match socket.connect(&address) {
        Ok(()) => true,
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {
            // This machine's own addresses have mostly answered by now.
            matches!(to, Address::Ip(ip) if ip.ip().is_loopback()) && socket.peer_addr().is_ok()
        }
        Err(e) => return Err(e),
    };
    let outbound = Outbound::new(socket.into(), matches!(to, Address::Ip(_)))?;
    Ok((outbound, connected))
}

/// A connection that is being made.
#[derive(Debug)]
pub struct Connecting {
    outbound: Option<Outbound>,
    connected: bool,
}

impl Connecting {
    /// # Errors
    /// As the system gives them; a thread without an event queue cannot connect.
    pub fn begin(to: &Address, options: &Options) -> io::Result<Connecting> {
        let (outbound, connected) = begin(to, options)?;
        Ok(Connecting { outbound: Some(outbound), connected })
    }
    /// The connection, once it stands; not to be polled again then.
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
    /// # Errors
    /// As the system gives them; a thread without an event queue cannot connect.
    pub async fn connect(to: &Address, options: &Options) -> io::Result<Stream> {
        let mut connecting = Connecting::begin(to, options)?;
        poll_fn(|cx| connecting.poll(cx)).await
    }
    /// Makes the handshake; what is written and read from then on is plaintext.
    ///
    /// # Errors
    /// See [`HandshakeError`].
    pub async fn handshake(&mut self, tls: TlsStream) -> Result<(), HandshakeError> {
        self.secure = Some(Box::new(Secure::handshake(&self.outbound, Box::new(tls), |_| tls::Choice::Fail).await?));
        Ok(())
    }
    /// A client's connection that was accepted. `tcp`: see [`Stream::hurry`].
    ///
    /// # Errors
    /// As [`Stream::connect`].
    pub fn accepted(fd: OwnedFd, tcp: bool) -> io::Result<Stream> {
        Ok(Stream { outbound: Outbound::new(fd, tcp)?, secure: None })
    }
    /// Makes the handshake as a server; `choose`: by which rules a ClientHello is answered.
    ///
    /// # Errors
    /// See [`HandshakeError`].
    pub async fn accept(&mut self, choose: impl FnMut(&ClientHello) -> Choice) -> Result<(), HandshakeError> {
        let tls = Box::new(TlsStream::server());
        self.secure = Some(Box::new(Secure::handshake(&self.outbound, tls, choose).await?));
        Ok(())
    }
    /// What is known of its TLS.
    pub fn facts(&self) -> Option<Arc<Facts>> {
        self.secure.as_ref()?.facts()
    }
    pub fn is_secure(&self) -> bool {
        self.secure.is_some()
    }
    /// Looks at what has come, from its beginning, without taking it; not through TLS. See [`Outbound::try_peek`].
    ///
    /// # Errors
    /// As [`Stream::try_read_buf`].
    pub fn try_peek(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.outbound.try_peek(buf)
    }
    /// What was looked at is read next.
    pub fn looked(&self) {
        self.outbound.looked();
    }
    /// The peer has closed its side.
    pub fn is_closing(&self) -> bool {
        self.outbound.is_closing()
    }
    /// The address of ours that it has.
    pub fn local_address(&self) -> Option<SocketAddr> {
        SockRef::from(&self.outbound).local_addr().ok()?.as_socket()
    }
    /// The socket alone, which nobody watches any more, and its TLS with what has been decrypted and not read.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn into_parts(mut self) -> io::Result<(OwnedFd, Option<(TlsStream, Vec<u8>)>)> {
        let fd = self.outbound.release()?;
        Ok((fd, self.secure.take().map(|secure| secure.into_parts())))
    }
    /// Ciphertext that was taken and that the socket has no room for yet.
    pub fn has_unsent(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.has_unsent())
    }
    /// Writes such ciphertext out.
    ///
    /// # Errors
    /// `WouldBlock`, or a broken connection.
    pub fn try_flush(&self) -> io::Result<()> {
        match &self.secure {
            Some(secure) => secure.flush(&self.outbound),
            None => Ok(()),
        }
    }
    /// Says that nothing more will be written; reading goes on.
    pub fn shutdown_write(&self) -> io::Result<()> {
        if let Some(secure) = &self.secure {
            secure.close(&self.outbound);
        }
        SockRef::from(&self.outbound).shutdown(std::net::Shutdown::Write)
    }
    /// Buffers of TLS are given back: nothing has come for a while.
    pub fn shrink(&self) {
        if let Some(secure) = &self.secure {
            secure.shrink();
        }
    }
    /// What is written next must not wait for the acknowledgement of what was written before: called before a second
    /// write that no answer has come in between.
    pub fn hurry(&self) {
        self.outbound.hurry();
    }
    /// Nobody waits for it for a while.
    pub fn set_idle(&self) {
        if let Some(secure) = &self.secure {
            secure.shrink();
        }
        self.outbound.set_idle();
    }
    /// Reads without waiting.
    ///
    /// # Errors
    /// `WouldBlock`, or a broken connection.
    pub fn try_read_buf(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        match &self.secure {
            None => self.outbound.try_recv(buf),
            Some(secure) => secure.recv(&self.outbound, buf),
        }
    }
    /// Nothing has come, and nothing has ended. Costs no system call as long as no event has said otherwise.
    pub fn is_quiet(&self) -> bool {
        let Some(secure) = &self.secure else { return self.outbound.is_quiet() };
        // Unread news cannot be judged by a task that has had its share: they may be the end.
        if self.outbound.has_news() && !budget::is_left() {
            return false;
        }
        // What has come may be a ticket, and no reason to part.
        matches!(secure.recv(&self.outbound, &mut Vec::new()), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
    /// # Errors
    /// As [`Stream::try_read_buf`].
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        if !budget::is_left() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match &self.secure {
            None => self.outbound.try_send(buf),
            Some(secure) => secure.send(&self.outbound, buf),
        }
    }
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.secure {
            None => self.outbound.poll_readable(cx),
            Some(secure) => secure.poll_readable(&self.outbound, cx),
        }
        .map(Ok)
    }
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outbound.poll_writable(cx).map(Ok)
    }
    /// # Errors
    /// A broken connection.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_readable(cx)).await
    }
    /// # Errors
    /// A broken connection.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_writable(cx)).await
    }
    /// Writes everything.
    ///
    /// # Errors
    /// A broken connection.
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
    /// Reads something; `Ok(0)` is the end.
    ///
    /// # Errors
    /// A broken connection.
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
            let stream = Stream::connect(&to, &Options::default()).await.expect("connected");
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
