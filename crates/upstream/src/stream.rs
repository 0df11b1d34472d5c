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

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// # Errors
    /// As the system gives them.
    pub async fn connect(to: &Address, from: Option<SocketAddr>, keepalive: bool) -> io::Result<Stream> {
        match to {
            Address::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            Address::Ip(ip) => {
                let stream = match from {
                    None => TcpStream::connect(ip).await?,
                    Some(from) => {
                        let socket = if ip.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                        socket.bind(from)?;
                        socket.connect(*ip).await?
                    }
                };
                stream.set_nodelay(true)?;
                if keepalive {
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
        match self {
            Stream::Tcp(s) => s.try_read_buf(buf),
            Stream::Unix(s) => s.try_read_buf(buf),
        }
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
