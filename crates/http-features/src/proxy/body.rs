//! The body of a server's response, pulled by the client's connection.

use crate::shared::upstream_state::UpstreamState;
use bytes::Bytes;
use http_engine::{BodyError, BodySource, Piece, Request};
use observe::Level;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;
use upstream::{Group, Peer, Pooled, pool};
use wire_h1::{BodyLength, ChunkedDecoder, Role};

/// Counts a request against its server while it lives.
pub struct Active(pub Arc<Peer>);

impl Active {
    pub fn new(peer: &Arc<Peer>) -> Active {
        peer.active.fetch_add(1, Ordering::Relaxed);
        Active(peer.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How much is left.
enum Framing {
    Left(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
    Done,
}

/// See the module's documentation.
pub struct UpstreamBody {
    connection: Option<Pooled>,
    _active: Active,
    group: Arc<Group>,
    /// Bytes that were read and not passed on.
    buf: Vec<u8>,
    framing: Framing,
    /// The server keeps the connection, too.
    reusable: bool,
    timeout: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    started: base::clock::Instant,
}

/// What one read takes.
const READ_BYTES: usize = 32 * 1024;

impl UpstreamBody {
    pub fn new(
        connection: Pooled,
        active: Active,
        group: Arc<Group>,
        buf: Vec<u8>,
        length: BodyLength,
        reusable: bool,
        timeout: Duration,
        started: base::clock::Instant,
    ) -> UpstreamBody {
        let framing = match length {
            BodyLength::None | BodyLength::Exact(0) => Framing::Done,
            BodyLength::Exact(n) => Framing::Left(n),
            BodyLength::Chunked => Framing::Chunked(Box::new(ChunkedDecoder::new(Role::Client))),
            BodyLength::UntilClose => Framing::UntilClose,
        };
        let mut body = UpstreamBody {
            connection: Some(connection),
            _active: active,
            group,
            buf,
            framing,
            reusable,
            timeout,
            sleep: None,
            started,
        };
        body.settle();
        body
    }
    /// At the end: the connection goes back to the pool, unless there is the slightest doubt about it.
    fn settle(&mut self) {
        if !matches!(self.framing, Framing::Done) {
            return;
        }
        if let Some(connection) = self.connection.take()
            && self.reusable
            && self.buf.is_empty()
        {
            pool::give(connection, &self.group.keepalive);
        }
    }
    pub fn is_done(&self) -> bool {
        matches!(self.framing, Framing::Done)
    }
    /// Body bytes out of what was read.
    fn take(&mut self) -> Result<Option<Bytes>, &'static str> {
        if self.buf.is_empty() {
            return Ok(None);
        }
        match &mut self.framing {
            Framing::Done => Ok(None),
            Framing::UntilClose => Ok(Some(Bytes::from(std::mem::take(&mut self.buf)))),
            Framing::Left(left) => {
                let n = (self.buf.len() as u64).min(*left) as usize;
                let rest = self.buf.split_off(n);
                let bytes = Bytes::from(std::mem::replace(&mut self.buf, rest));
                *left -= n as u64;
                if *left == 0 {
                    self.framing = Framing::Done;
                    self.settle();
                }
                Ok(Some(bytes))
            }
            Framing::Chunked(decoder) => {
                let mut out = Vec::with_capacity(self.buf.len());
                let mut at = 0;
                let mut done = false;
                while at < self.buf.len() && !done {
                    let decoded = decoder.decode(&self.buf[at..]).map_err(|e| e.message())?;
                    out.extend_from_slice(&self.buf[at..][decoded.data]);
                    at += decoded.consumed;
                    done = decoded.done;
                    if decoded.consumed == 0 {
                        break;
                    }
                }
                self.buf.drain(..at);
                if done {
                    self.framing = Framing::Done;
                    self.settle();
                }
                Ok((!out.is_empty()).then(|| Bytes::from(out)))
            }
        }
    }
    fn failed(&mut self, r: &mut Request, words: &str) -> Poll<Option<Result<Piece, BodyError>>> {
        r.log(Level::Error, format_args!("{words} while reading upstream"));
        self.connection = None;
        Poll::Ready(Some(Err(BodyError)))
    }
}

impl BodySource for UpstreamBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            match self.take() {
                Ok(Some(bytes)) => {
                    self.sleep = None;
                    if let Some(one) = UpstreamState::last(r) {
                        one.response_length += bytes.len() as u64;
                        one.response_ms = Some(base::clock::now().millis_since(self.started));
                    }
                    return Poll::Ready(Some(Ok(Piece::Bytes(bytes))));
                }
                Ok(None) if self.is_done() => return Poll::Ready(None),
                Ok(None) => {}
                Err(words) => return self.failed(r, words),
            }
            let Some(connection) = &self.connection else { return Poll::Ready(Some(Err(BodyError))) };
            self.buf.reserve(READ_BYTES);
            match connection.stream.try_read_buf(&mut self.buf) {
                Ok(0) => {
                    self.connection = None;
                    if matches!(self.framing, Framing::UntilClose) {
                        self.framing = Framing::Done;
                        return Poll::Ready(None);
                    }
                    return self.failed(r, "upstream prematurely closed connection");
                }
                Ok(n) => {
                    if let Some(one) = UpstreamState::last(r) {
                        one.bytes_received += n as u64;
                    }
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    let words = format!("recv() failed {}", observe::os(&e));
                    return self.failed(r, &words);
                }
            }
            let timeout = self.timeout;
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
            if sleep.as_mut().poll(cx).is_ready() {
                return self.failed(r, "upstream timed out (110: Connection timed out)");
            }
            match connection.stream.poll_readable(cx) {
                Poll::Ready(_) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
