//! A connection to an upstream server.

use net::outbound::{self, Outbound};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::task::{Context, Poll};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

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

/// A connected socket. In threads that serve clients it is watched together with these, elsewhere by the runtime.
#[derive(Debug)]
pub enum Stream {
    Watched(Outbound),
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Says which of the calls failed, and why it does.
fn transparent(e: io::Error) -> io::Error {
    let why = if e.raw_os_error() == Some(1) { ", the worker lacks the capability CAP_NET_RAW" } else { "" };
    io::Error::new(e.kind(), format!("setsockopt(IP_TRANSPARENT) failed: {e}{why}"))
}

/// Connects a socket of the thread's lot.
async fn connect_watched(to: &Address, options: &Options) -> io::Result<Outbound> {
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
    if !connected {
        std::future::poll_fn(|cx| outbound.poll_writable(cx)).await;
        if let Some(e) = SockRef::from(&outbound).take_error()? {
            return Err(e);
        }
    }
    Ok(outbound)
}

impl Stream {
    /// # Errors
    /// As the system gives them.
    pub async fn connect(to: &Address, options: &Options) -> io::Result<Stream> {
        if outbound::is_watched() {
            return connect_watched(to, options).await.map(Stream::Watched);
        }
        match to {
            Address::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            Address::Ip(ip) => {
                let socket = if ip.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                if options.transparent {
                    let socket = socket2::SockRef::from(&socket);
                    let set = if ip.is_ipv4() {
                        socket.set_ip_transparent_v4(true)
                    } else {
                        socket.set_ip_transparent_v6(true)
                    };
                    set.map_err(transparent)?;
                }
                if let Some(from) = options.from {
                    socket.bind(from)?;
                }
                // Before the connection is made: its windows are agreed upon then.
                if options.receive_buffer > 0 {
                    socket.set_recv_buffer_size(options.receive_buffer as u32)?;
                }
                if options.send_buffer > 0 {
                    socket.set_send_buffer_size(options.send_buffer as u32)?;
                }
                let stream = socket.connect(*ip).await?;
                stream.set_nodelay(true)?;
                if options.keepalive {
                    socket2::SockRef::from(&stream).set_keepalive(true)?;
                }
                Ok(Stream::Tcp(stream))
            }
        }
    }
    /// What is written next must not wait for the acknowledgement of what was written before: called before a second
    /// write that no answer has come in between.
    pub fn hurry(&self) {
        if let Stream::Watched(s) = self {
            s.hurry();
        }
    }
    /// Nobody waits for it for a while.
    pub fn rest(&self) {
        if let Stream::Watched(s) = self {
            s.rest();
        }
    }
    /// Reads without waiting.
    ///
    /// # Errors
    /// `WouldBlock`, or a broken connection.
    pub fn try_read_buf(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let got = match self {
            Stream::Watched(s) => return s.try_recv(buf),
            Stream::Tcp(s) => s.try_read_buf(buf),
            Stream::Unix(s) => s.try_read_buf(buf),
        };
        if matches!(got, Ok(1..)) && buf.len() < buf.capacity() {
            self.drained();
        }
        got
    }
    /// Nothing has come, and nothing has ended. Costs no system call as long as no event has said otherwise.
    pub fn is_quiet(&self) -> bool {
        let mut byte = [0];
        let got = match self {
            Stream::Watched(s) => return s.is_quiet(),
            Stream::Tcp(s) => s.try_read(&mut byte),
            Stream::Unix(s) => s.try_read(&mut byte),
        };
        matches!(got, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
    /// A read that left room has taken all there was: the next one need not ask the kernel before an event comes. An end that
    /// the kernel has reported already is not forgotten.
    fn drained(&self) {
        let nothing = || Err::<(), _>(io::Error::from(io::ErrorKind::WouldBlock));
        let _ = match self {
            Stream::Watched(_) => nothing(),
            Stream::Tcp(s) => s.try_io(tokio::io::Interest::READABLE, nothing),
            Stream::Unix(s) => s.try_io(tokio::io::Interest::READABLE, nothing),
        };
    }
    /// # Errors
    /// As [`Stream::try_read_buf`].
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Watched(s) => s.try_send(buf),
            Stream::Tcp(s) => s.try_write(buf),
            Stream::Unix(s) => s.try_write(buf),
        }
    }
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Watched(s) => s.poll_readable(cx).map(Ok),
            Stream::Tcp(s) => s.poll_read_ready(cx),
            Stream::Unix(s) => s.poll_read_ready(cx),
        }
    }
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Watched(s) => s.poll_writable(cx).map(Ok),
            Stream::Tcp(s) => s.poll_write_ready(cx),
            Stream::Unix(s) => s.poll_write_ready(cx),
        }
    }
    /// # Errors
    /// A broken connection.
    pub async fn readable(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_readable(cx)).await
    }
    /// # Errors
    /// A broken connection.
    pub async fn writable(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_writable(cx)).await
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

    #[tokio::test]
    async fn an_end_that_comes_with_the_last_bytes_is_seen() {
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
    }
}
