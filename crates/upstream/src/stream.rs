//! A connection to an upstream server.

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

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Says which of the calls failed, and why it does.
fn transparent(e: io::Error) -> io::Error {
    let why = if e.raw_os_error() == Some(1) { ", the worker lacks the capability CAP_NET_RAW" } else { "" };
    io::Error::new(e.kind(), format!("setsockopt(IP_TRANSPARENT) failed: {e}{why}"))
}

impl Stream {
    /// # Errors
    /// As the system gives them.
    pub async fn connect(to: &Address, options: &Options) -> io::Result<Stream> {
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
    /// Reads without waiting.
    ///
    /// # Errors
    /// `WouldBlock`, or a broken connection.
    pub fn try_read_buf(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let got = match self {
            Stream::Tcp(s) => s.try_read_buf(buf),
            Stream::Unix(s) => s.try_read_buf(buf),
        };
        if matches!(got, Ok(1..)) && buf.len() < buf.capacity() {
            self.drained();
        }
        got
    }
    /// A read that left room has taken all there was: the next one need not ask the kernel before an event comes. An end that
    /// the kernel has reported already is not forgotten.
    fn drained(&self) {
        let nothing = || Err::<(), _>(io::Error::from(io::ErrorKind::WouldBlock));
        let _ = match self {
            Stream::Tcp(s) => s.try_io(tokio::io::Interest::READABLE, nothing),
            Stream::Unix(s) => s.try_io(tokio::io::Interest::READABLE, nothing),
        };
    }
    /// # Errors
    /// As [`Stream::try_read_buf`].
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.try_write(buf),
            Stream::Unix(s) => s.try_write(buf),
        }
    }
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(s) => s.poll_read_ready(cx),
            Stream::Unix(s) => s.poll_read_ready(cx),
        }
    }
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
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
