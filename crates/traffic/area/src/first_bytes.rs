//! First bytes of a connection: PROXY protocol header and preread data.

use observe::{Severity, os_error};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use transport::Stream;

#[derive(Debug)]
pub enum HeaderFault {
    Closed,
    Io(io::Error),
    /// Malformed; `None` if it ends too early.
    Invalid(Option<String>),
}

impl HeaderFault {
    pub fn words(&self) -> (Severity, Option<String>) {
        match self {
            HeaderFault::Closed => (Severity::Info, None),
            HeaderFault::Io(e) => (Severity::Info, Some(format!("recv() failed {}", os_error(e)))),
            HeaderFault::Invalid(words) => (Severity::Error, words.clone()),
        }
    }
}

/// Reads no further bytes; returns the header with its bytes.
pub async fn proxy_header(stream: &Stream) -> Result<(wire_proxy::Header, Vec<u8>), HeaderFault> {
    let mut buf = Vec::with_capacity(wire_proxy::MAX_HEADER);
    let mut seen = 0;
    loop {
        await_news(stream, seen, &mut buf).await.map_err(HeaderFault::Io)?;
        if buf.is_empty() {
            return Err(HeaderFault::Closed);
        }
        let ended = buf.len() == seen;
        seen = buf.len();
        match wire_proxy::parse_header(&buf) {
            Ok(Some((header, length))) => {
                return Ok((header, take(stream, length).await.map_err(HeaderFault::Io)?));
            }
            Ok(None) if ended => return Err(HeaderFault::Invalid(None)),
            Ok(None) => {}
            Err(why) => {
                let mut words = Vec::new();
                why.log(&mut words);
                return Err(HeaderFault::Invalid(Some(String::from_utf8_lossy(&words).into_owned())));
            }
        }
    }
}

async fn take(stream: &Stream, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let mut part = Vec::new();
        part.reserve_exact(length - bytes.len());
        match stream.read_buf(&mut part).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => bytes.append(&mut part),
        }
    }
    Ok(bytes)
}

/// Waits for more than `seen` bytes and peeks all that the buffer's capacity takes; an unchanged length is the end. The
/// bytes stay in the socket, so that a wait holds no buffer.
pub async fn await_news(stream: &Stream, seen: usize, buf: &mut Vec<u8>) -> io::Result<()> {
    let most = buf.capacity();
    poll_fn(|cx| {
        let news = poll_news(stream, seen, buf, most, cx);
        if news.is_pending() {
            *buf = Vec::new();
        }
        news
    })
    .await
}

fn poll_news(
    stream: &Stream,
    seen: usize,
    buf: &mut Vec<u8>,
    most: usize,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        buf.clear();
        buf.reserve_exact(most);
        let looked = stream.try_peek(buf);
        match looked {
            Ok(n) if n == seen && n > 0 && !stream.is_closing() => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            looked => {
                stream.looked();
                return Poll::Ready(looked.map(|_| ()));
            }
        }
        // Peeking consumed the readiness: further bytes cause an event.
        ready!(stream.poll_readable(cx))?;
    }
}

/// Writes all bytes and flushes the ciphertext.
pub async fn write_out(stream: &Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    poll_fn(|cx| poll_flushed(stream, cx)).await
}

pub fn poll_flushed(stream: &Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while stream.has_unsent() {
        match stream.try_flush() {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(stream.poll_writable(cx))?,
            Err(e) => return Poll::Ready(Err(e)),
        }
    }
    Poll::Ready(Ok(()))
}
