//! The body of a server's response, pulled by the client's connection.

use super::{PassPlan, response};
use crate::shared::body_store;
use crate::shared::upstream_state::{UpstreamState, shown_url};
use bytes::Bytes;
use http_engine::{BodyError, BodySource, Piece, Request};
use observe::Level;
use runtime::time::Sleep;
use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use upstream::{Active, Pooled, pool};
use wire_h1::{BodyLength, ChunkedDecoder, Role};

/// How much is left.
enum Framing {
    Left(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
    Done,
}

/// See the module's documentation.
pub struct UpstreamBody {
    connection: Option<Box<Pooled>>,
    active: Active,
    /// Bytes that came with the head; they are passed on before those in `buf`.
    first: Bytes,
    /// Bytes that were read and not passed on.
    buf: Vec<u8>,
    framing: Framing,
    /// The server keeps the connection, too.
    reusable: bool,
    timeout: Duration,
    started: base::clock::Instant,
    /// `proxy_buffering`: what was read before the client wanted it.
    ahead: Option<Ahead>,
    /// Something went wrong while nobody was asking: said at the next piece.
    broken: Option<String>,
    rate: Option<Rate>,
    /// `proxy_pass_trailers`: which fields stay hidden.
    trailers: Option<Arc<PassPlan>>,
}

/// `proxy_limit_rate`: so many bytes for every second that has begun.
struct Rate {
    bytes: u64,
    read: u64,
    started: base::clock::Instant,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Rate {
    /// How much may be read now; `Pending` until there is something.
    fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        loop {
            base::clock::update();
            let millis = base::clock::now().millis_since(self.started);
            let allowed = self.bytes.saturating_mul(millis / 1000 + 1).saturating_sub(self.read);
            if allowed > 0 {
                self.pause = None;
                return Poll::Ready(allowed.min(READ_BYTES as u64) as usize);
            }
            let until_next = Duration::from_millis(1001 - millis % 1000);
            let pause = self.pause.get_or_insert_with(|| Box::pin(runtime::time::sleep(until_next)));
            if pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
    }
}

/// What is read ahead of a slow client: in memory up to a bound, then in a temporary file up to another, then no more.
pub struct Ahead {
    plan: Arc<PassPlan>,
    memory_max: u64,
    queue: VecDeque<Bytes>,
    queued: u64,
    file: Option<File>,
    /// A file was begun and nobody has been told.
    filed: bool,
    /// Bytes written to the file, and of these already handed on.
    written: u64,
    handed: u64,
}

impl Ahead {
    pub fn new(plan: Arc<PassPlan>, memory_max: u64) -> Ahead {
        Ahead { plan, memory_max, queue: VecDeque::new(), queued: 0, file: None, filed: false, written: 0, handed: 0 }
    }
    fn folder(&self) -> &Path {
        &self.plan.conf.proxy_temp_path.path
    }
    fn has_room(&self) -> bool {
        if self.written > self.handed || self.queued >= self.memory_max {
            return self.written < self.plan.conf.proxy_max_temp_file_size.0;
        }
        true
    }
    fn push(&mut self, bytes: Bytes) -> io::Result<()> {
        // Once a file is in use everything goes there, until it has been handed on: the order stays.
        if self.written == self.handed && self.queued + (bytes.len() as u64) <= self.memory_max.max(READ_BYTES as u64) {
            self.queued += bytes.len() as u64;
            self.queue.push_back(bytes);
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(body_store::unlinked(self.folder())?);
            self.filed = true;
        }
        if let Some(file) = &self.file {
            file.write_all_at(&bytes, self.written)?;
            self.written += bytes.len() as u64;
        }
        Ok(())
    }
    fn pop(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(bytes) = self.queue.pop_front() {
            self.queued -= bytes.len() as u64;
            return Ok(Some(bytes));
        }
        let Some(file) = self.file.as_ref().filter(|_| self.written > self.handed) else { return Ok(None) };
        let mut buf = vec![0; READ_BYTES.min((self.written - self.handed) as usize)];
        file.read_exact_at(&mut buf, self.handed)?;
        self.handed += buf.len() as u64;
        if self.handed == self.written {
            (self.handed, self.written) = (0, 0);
            self.file = None;
        }
        Ok(Some(Bytes::from(buf)))
    }
}

/// What one read takes.
const READ_BYTES: usize = 32 * 1024;

impl UpstreamBody {
    pub fn new(
        connection: Box<Pooled>,
        active: Active,
        mut first: Bytes,
        length: BodyLength,
        reusable: bool,
        timeout: Duration,
        started: base::clock::Instant,
        ahead: Option<Ahead>,
    ) -> UpstreamBody {
        let framing = match length {
            BodyLength::None | BodyLength::Exact(0) => Framing::Done,
            BodyLength::Exact(n) => Framing::Left(n),
            BodyLength::Chunked => Framing::Chunked(Box::new(ChunkedDecoder::new(Role::Client))),
            BodyLength::UntilClose => Framing::UntilClose,
        };
        // A chunk's head may go on in what is read next.
        let buf = if matches!(framing, Framing::Chunked(_)) { std::mem::take(&mut first).into() } else { Vec::new() };
        let mut body = UpstreamBody {
            connection: Some(connection),
            active,
            first,
            buf,
            framing,
            reusable,
            timeout,
            started,
            ahead,
            broken: None,
            rate: None,
            trailers: None,
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
            && self.first.is_empty()
            && self.buf.is_empty()
        {
            pool::give(connection, &self.active.group().keepalive);
        }
    }
    /// Limits how fast the server is read; 0: not at all.
    pub fn limit_rate(&mut self, bytes: u64) {
        let read = (self.first.len() + self.buf.len()) as u64;
        self.rate = (bytes > 0).then(|| Rate { bytes, read, started: base::clock::now(), pause: None });
    }
    /// What follows a chunked body goes to the client, too.
    pub fn pass_trailers(&mut self, plan: Arc<PassPlan>) {
        self.trailers = Some(plan);
    }
    pub fn is_done(&self) -> bool {
        matches!(self.framing, Framing::Done)
    }
    /// Body bytes out of what was read.
    fn take(&mut self, r: &mut Request) -> Result<Option<Bytes>, &'static str> {
        if !self.first.is_empty() {
            let wanted = match &mut self.framing {
                Framing::Done => 0,
                Framing::Left(left) => {
                    let n = (self.first.len() as u64).min(*left);
                    *left -= n;
                    n as usize
                }
                Framing::UntilClose | Framing::Chunked(_) => self.first.len(),
            };
            let bytes = self.first.split_to(wanted);
            if matches!(self.framing, Framing::Left(0)) {
                self.framing = Framing::Done;
                self.say_excess(r, MORE_THAN_ANNOUNCED);
                self.settle();
            }
            return Ok((!bytes.is_empty()).then_some(bytes));
        }
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
                    self.say_excess(r, MORE_THAN_ANNOUNCED);
                    self.settle();
                }
                Ok(Some(bytes))
            }
            Framing::Chunked(decoder) => {
                let mut out = Vec::with_capacity(self.buf.len());
                let mut at = 0;
                let mut done = false;
                while at < self.buf.len() && !done {
                    let left = self.buf.get(at..).unwrap_or_default();
                    let decoded = decoder.decode(left).map_err(|e| e.message())?;
                    out.extend_from_slice(left.get(decoded.data).unwrap_or_default());
                    at += decoded.consumed;
                    done = decoded.done;
                    if decoded.consumed == 0 {
                        break;
                    }
                }
                self.buf.drain(..at);
                if done {
                    if let Some(plan) = &self.trailers {
                        response::trailers(plan, r, decoder.trailers());
                    }
                    self.framing = Framing::Done;
                    self.say_excess(r, "upstream sent data after final chunk");
                    self.settle();
                }
                Ok((!out.is_empty()).then(|| Bytes::from(out)))
            }
        }
    }
    /// Bytes behind the body: they are nobody's, and the connection is not used again.
    fn say_excess(&self, r: &Request, words: &str) {
        if !self.first.is_empty() || !self.buf.is_empty() {
            say(r, Level::Warn, words);
        }
    }
    fn failed(&mut self, r: &mut Request, words: &str) -> Poll<Option<Result<Piece, BodyError>>> {
        say(r, Level::Error, words);
        self.connection = None;
        Poll::Ready(Some(Err(BodyError)))
    }
}

const MORE_THAN_ANNOUNCED: &str = "upstream sent more data than specified in \"Content-Length\" header";

fn say(r: &Request, level: Level, words: &str) {
    let url = r
        .thing::<UpstreamState>()
        .and_then(|state| Some(shown_url(state.tls, &state.tries.last()?.address, &state.uri)));
    r.log_of(level, format_args!("{words} while reading upstream"), url.as_deref());
}

/// What a look at the server's side found.
enum Got {
    Bytes(Bytes),
    End,
    Nothing,
    Broken(String),
}

impl UpstreamBody {
    /// Takes what is there; registers for more when nothing is.
    fn poll_server(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Got {
        loop {
            match self.take(r) {
                Ok(Some(bytes)) => {
                    if let Some(one) = UpstreamState::last(r) {
                        one.response_ms = Some(base::clock::now().millis_since(self.started));
                    }
                    return Got::Bytes(bytes);
                }
                Ok(None) if self.is_done() => {
                    if let Some(one) = UpstreamState::last(r) {
                        one.response_ms.get_or_insert_with(|| base::clock::now().millis_since(one.started));
                    }
                    return Got::End;
                }
                Ok(None) => {}
                Err(words) => return Got::Broken(words.into()),
            }
            let Some(connection) = &mut self.connection else { return Got::Broken("upstream is gone".into()) };
            let got = match &mut self.rate {
                None => {
                    self.buf.reserve(READ_BYTES);
                    connection.stream.try_read_buf(&mut self.buf)
                }
                Some(rate) => {
                    let Poll::Ready(allowed) = rate.poll_allowed(cx) else { return Got::Nothing };
                    let mut piece = Vec::with_capacity(allowed);
                    let got = connection.stream.try_read_buf(&mut piece);
                    rate.read += piece.len() as u64;
                    self.buf.append(&mut piece);
                    got
                }
            };
            match got {
                Ok(0) => {
                    self.connection = None;
                    if matches!(self.framing, Framing::UntilClose) {
                        self.framing = Framing::Done;
                        return Got::End;
                    }
                    return Got::Broken("upstream prematurely closed connection".into());
                }
                Ok(n) => {
                    connection.patience.renew();
                    if let Some(one) = UpstreamState::last(r) {
                        // As the server framed it, like nginx.
                        one.bytes_received += n as u64;
                        one.response_length += n as u64;
                    }
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Got::Broken(format!("recv() failed {}", observe::os(&e))),
            }
            if connection.patience.poll_over(cx, self.timeout) {
                return Got::Broken("upstream timed out (110: Connection timed out)".into());
            }
            if connection.stream.poll_readable(cx).is_pending() {
                return Got::Nothing;
            }
        }
    }
}

impl BodySource for UpstreamBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Some(ahead) = &mut self.ahead {
            match ahead.pop() {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(Piece::Bytes(bytes)))),
                Ok(None) => {}
                Err(e) => {
                    let words = format!("pread() of a temporary file failed {}", observe::os(&e));
                    return self.failed(r, &words);
                }
            }
        }
        if let Some(words) = self.broken.take() {
            return self.failed(r, &words);
        }
        match self.poll_server(cx, r) {
            Got::Bytes(bytes) => Poll::Ready(Some(Ok(Piece::Bytes(bytes)))),
            Got::End => Poll::Ready(None),
            Got::Nothing => Poll::Pending,
            Got::Broken(words) => self.failed(r, &words),
        }
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        while self.broken.is_none() && self.ahead.as_ref().is_some_and(Ahead::has_room) {
            match self.poll_server(cx, r) {
                Got::Bytes(bytes) => {
                    if let Some(ahead) = &mut self.ahead
                        && let Err(e) = ahead.push(bytes)
                    {
                        let folder = ahead.folder().display();
                        self.broken = Some(format!("a temporary file in \"{folder}\" failed {}", observe::os(&e)));
                    }
                    if let Some(ahead) = self.ahead.as_mut().filter(|ahead| ahead.filed) {
                        ahead.filed = false;
                        let folder = ahead.folder().display();
                        let words = format!("an upstream response is buffered to a temporary file in {folder}");
                        say(r, Level::Warn, &words);
                    }
                }
                Got::Broken(words) => self.broken = Some(words),
                Got::End | Got::Nothing => return,
            }
        }
    }
}
