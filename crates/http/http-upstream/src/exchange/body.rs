//! The body of an upstream response, pulled by the client's connection.

use super::conversation::{Io, log_said};
use super::{PassPlan, response};
use crate::body_store;
use crate::upstream_state::UpstreamState;
use bytes::Bytes;
use http_engine::{BodyError, BodySource, Piece, Request, Watch};
use observe::Severity;
use runtime::budget;
use runtime::time::Sleep;
use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use upstream::{Event, MalformedResponse, PeerLease, ResponseEnd, ResponseEvent};

/// Bytes of a body that were received with its head.
#[derive(Default)]
pub struct ReceivedBody {
    /// The bytes, in order.
    pub bytes: Bytes,
    /// An error after these bytes.
    pub wrong: Option<MalformedResponse>,
}

/// Body of a response that comes from a server. The connection returns to its pool at the end of the response; dropped
/// before, it closes.
pub struct UpstreamBody {
    /// `None`: after the end of the response.
    io: Option<Box<Io>>,
    active: PeerLease,
    /// Bytes of the body that came with the head.
    first: Bytes,
    timeout: Duration,
    started: base::clock::Instant,
    /// `proxy_buffering`: bytes read ahead of the client.
    ahead: Option<ReadAhead>,
    /// An error between two pieces, reported with the next one.
    broken: Option<String>,
    rate: Option<Rate>,
    trailers: Trailers,
    /// Ends the response when the client disconnects while the server is silent (not with `proxy_ignore_client_abort`).
    watch: Option<Rc<dyn Watch>>,
    /// Full-duplex protocol: continues to send the request.
    sends_on: bool,
    /// `proxy_buffering off`: filters pass on all that the server has sent before it pauses.
    flushes: bool,
    /// Bytes were returned since the last [`Piece::Flush`].
    flush_due: bool,
    /// The request's body failed while the response was read ahead.
    abandoned: bool,
}

/// Destination of a response's trailers.
pub enum Trailers {
    /// They are not used.
    Dropped,
    /// For variables.
    Kept,
    /// `proxy_pass_trailers`: the plan with the hidden fields.
    Passed(Arc<PassPlan>),
}

impl Trailers {
    /// Announces trailers, before the response's head is written.
    pub fn expect(&self, r: &mut Request) {
        if let Trailers::Passed(_) = self {
            // Over HTTP/1 a declared length stays, as in nginx: trailers are lost then, unless `add_trailer` expects some.
            let is_declared = r.out.content_length().is_some() && r.target.version() <= http_types::Version::Http11;
            if !is_declared {
                r.reply.expect_trailers();
            }
        }
    }
    /// Takes the lines of a response that has ended.
    pub fn take(&self, r: &mut Request, lines: &[u8]) {
        match self {
            Trailers::Dropped => {}
            Trailers::Kept => response::keep_trailers(r, lines),
            Trailers::Passed(plan) => response::pass_trailers(plan, r, lines),
        }
    }
}

/// `proxy_limit_rate`: bytes per started second.
struct Rate {
    bytes: u64,
    read: u64,
    started: base::clock::Instant,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Rate {
    /// Returns the bytes that may be read now; `Pending` while there are none.
    fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        loop {
            base::clock::update();
            let millis = base::clock::now().millis_since(self.started);
            let allowed = self.bytes.saturating_mul(millis / 1000 + 1).saturating_sub(self.read);
            if allowed > 0 {
                self.pause = None;
                return Poll::Ready(usize::try_from(allowed).unwrap_or(usize::MAX));
            }
            let until_next = Duration::from_millis(1001 - millis % 1000);
            let pause = self.pause.get_or_insert_with(|| Box::pin(runtime::time::sleep_for(until_next)));
            if pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
    }
}

/// Pieces in memory. A piece keeps the buffer of its read, so that small ones are joined.
#[derive(Default)]
struct Pieces {
    queue: VecDeque<Bytes>,
    /// Small pieces behind the queue.
    joined: Vec<u8>,
    length: u64,
}

impl Pieces {
    fn push(&mut self, bytes: Bytes) {
        self.length += bytes.len() as u64;
        if !self.joined.is_empty() && self.joined.len() + bytes.len() > JOINED_BYTES_MAX {
            self.queue.push_back(Bytes::from(std::mem::take(&mut self.joined)));
        }
        match bytes.len() {
            ..=JOINED_BYTES_MAX => self.joined.extend_from_slice(&bytes),
            _ => self.queue.push_back(bytes),
        }
    }
    fn pop(&mut self) -> Option<Bytes> {
        let is_joined = self.queue.is_empty() && !self.joined.is_empty();
        let bytes = if is_joined { Bytes::from(std::mem::take(&mut self.joined)) } else { self.queue.pop_front()? };
        self.length -= bytes.len() as u64;
        Some(bytes)
    }
}

/// Bytes read ahead of a slow client: in memory, then in a temporary file, each up to its limit.
pub struct ReadAhead {
    plan: Arc<PassPlan>,
    memory_max: u64,
    pieces: Pieces,
    file: Option<File>,
    /// A temporary file was created and not yet logged.
    filed: bool,
    written: u64,
    handed: u64,
}

impl ReadAhead {
    /// Begins without bytes. `memory_max`: bytes in memory; more go to a temporary file, up to
    /// `proxy_max_temp_file_size`.
    pub fn new(plan: Arc<PassPlan>, memory_max: u64) -> ReadAhead {
        ReadAhead { plan, memory_max, pieces: Pieces::default(), file: None, filed: false, written: 0, handed: 0 }
    }
    fn folder(&self) -> &Path {
        self.plan.conf.temp_path.as_ref().map_or(Path::new(""), |temp| &temp.path)
    }
    /// Returns the largest read: in memory at most its free bytes, in a file any. `None`: both are full.
    fn room(&self) -> Option<usize> {
        if self.written > self.handed || self.pieces.length >= self.memory_max {
            return (self.written < self.plan.conf.max_temp_file_size).then_some(usize::MAX);
        }
        usize::try_from(self.memory_max - self.pieces.length).ok()
    }
    fn push(&mut self, bytes: Bytes) -> io::Result<()> {
        let fits = self.pieces.length + (bytes.len() as u64) <= self.memory_max.max(READ_BYTES as u64);
        // While the file has unread bytes, further ones follow there, to keep the order. Without a file the last bytes may
        // exceed the memory.
        if self.written == self.handed && (fits || self.plan.conf.max_temp_file_size == 0) {
            self.pieces.push(bytes);
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(body_store::unlinked_file(self.folder())?);
            self.filed = true;
        }
        if let Some(file) = &self.file {
            file.write_all_at(&bytes, self.written)?;
            self.written += bytes.len() as u64;
        }
        Ok(())
    }
    fn pop(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(bytes) = self.pieces.pop() {
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

/// Bytes per read of a temporary file; also the minimum of memory for reading ahead.
const READ_BYTES: usize = 32 * 1024;
/// Largest piece that is copied rather than kept with the buffer of its read.
const JOINED_BYTES_MAX: usize = 16 * 1024;

impl UpstreamBody {
    /// Begins a body. `received`: bytes that came with the head; `timeout`: longest silence of the server; `ahead`:
    /// reads ahead of the client.
    pub fn new(
        io: Box<Io>,
        active: PeerLease,
        received: ReceivedBody,
        timeout: Duration,
        started: base::clock::Instant,
        ahead: Option<ReadAhead>,
    ) -> UpstreamBody {
        UpstreamBody {
            io: Some(io),
            active,
            first: received.bytes,
            timeout,
            started,
            ahead,
            broken: received.wrong.map(|MalformedResponse(words)| words),
            rate: None,
            trailers: Trailers::Dropped,
            watch: None,
            sends_on: false,
            flushes: false,
            flush_due: false,
            abandoned: false,
        }
    }
    /// Limits the rate in bytes per second at which the response is read; 0: no limit. `read`: bytes already received.
    pub fn limit_rate(&mut self, bytes: u64, read: u64) {
        self.rate = (bytes > 0).then(|| Rate { bytes, read, started: base::clock::now(), pause: None });
    }
    /// Sets the use of trailers; to be called before the first piece.
    pub fn set_trailers(&mut self, trailers: Trailers) {
        self.trailers = trailers;
    }
    /// Ends the response when the client of the watch disconnects while the server is silent.
    pub fn watch_client(&mut self, watch: Option<Rc<dyn Watch>>) {
        self.watch = watch;
    }
    /// Continues to send the request during the response, for full-duplex protocols.
    pub fn send_on(&mut self) {
        self.sends_on = true;
    }
    /// Returns a [`Piece::Flush`] at each pause of the server, so that compressed responses reach the client as nginx's do
    /// (`ngx_http_upstream_non_buffered_filter` marks every buffer).
    pub fn flush_pauses(&mut self) {
        self.flushes = true;
    }
    /// Ends the response, and returns the connection to the pool if reusable.
    fn end(&mut self, r: &mut Request, end: &ResponseEnd) {
        // nginx does not read behind the head of a response to HEAD.
        if let Some(words) = end.excess.filter(|_| !r.is_head()) {
            log_body(r, Severity::Warn, words);
        }
        self.trailers.take(r, &end.trailers);
        if let Some(io) = self.io.take() {
            io.stream.finish(&self.active.group().keepalive);
        }
    }
    fn failed(&mut self, r: &mut Request, words: &str) -> Poll<Option<Result<Piece, BodyError>>> {
        log_body(r, Severity::Error, words);
        self.give_up(r)
    }
    /// Closes the connection to the server; the response time ends now.
    fn give_up(&mut self, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Some(one) = UpstreamState::last(r) {
            one.response_time = Some(base::clock::now().since(one.started));
        }
        self.io = None;
        Poll::Ready(Some(Err(BodyError)))
    }
}

/// nginx's message about a client that has left.
pub const CLIENT_LEFT: &str =
    "epoll_wait() reported that client prematurely closed connection, so upstream connection is closed too";

/// Logs a message about a body, with its server's URL.
pub fn log_body(r: &Request, level: Severity, words: &str) {
    let url = UpstreamState::url(r);
    r.log_of(level, format_args!("{words} while reading upstream"), url.as_deref());
}

enum Got {
    Bytes(Bytes),
    End,
    Nothing,
    Broken(String),
    /// The request's body failed, and its error is logged.
    Abandoned,
}

impl UpstreamBody {
    /// Reads available bytes; otherwise registers for more.
    /// `most`: the largest read, at least 1.
    fn poll_server(&mut self, cx: &mut Context<'_>, r: &mut Request, most: usize) -> Got {
        if !self.first.is_empty() {
            return Got::Bytes(std::mem::take(&mut self.first));
        }
        loop {
            let Some(io) = &mut self.io else { return Got::End };
            if self.sends_on && io.poll_send_on(cx, r).is_err() {
                return Got::Abandoned;
            }
            let came = match io.stream.buffered() {
                Ok(Some(event)) => ResponseEvent::Event(event),
                Ok(None) => {
                    let max = match &mut self.rate {
                        None => most,
                        Some(rate) => match rate.poll_allowed(cx) {
                            Poll::Ready(allowed) => allowed.min(most),
                            Poll::Pending => return Got::Nothing,
                        },
                    };
                    let polled = io.stream.poll_event(cx, max);
                    // Counts bytes with the server's framing, as nginx.
                    let received = io.count(r);
                    if let Some(one) = UpstreamState::last(r) {
                        one.response_length += received;
                    }
                    if let Some(rate) = &mut self.rate {
                        rate.read += received;
                    }
                    match polled {
                        Poll::Ready(came) => came,
                        Poll::Pending if io.stream.idle_timer().poll_over(cx, self.timeout) => {
                            return Got::Broken("upstream timed out (110: Connection timed out)".into());
                        }
                        Poll::Pending => return Got::Nothing,
                    }
                }
                Err(wrong) => ResponseEvent::Wrong(wrong),
            };
            match came {
                ResponseEvent::Event(Event::Body(bytes)) => {
                    if let Some(one) = UpstreamState::last(r) {
                        one.response_time = Some(base::clock::now().since(self.started));
                    }
                    return Got::Bytes(bytes);
                }
                ResponseEvent::Event(Event::End(end)) => {
                    if let Some(one) = UpstreamState::last(r) {
                        one.response_time.get_or_insert_with(|| base::clock::now().since(one.started));
                    }
                    self.end(r, &end);
                    return Got::End;
                }
                ResponseEvent::Event(Event::Stderr(words)) => {
                    log_said(r, &words, "reading");
                    if budget::poll_proceed(cx).is_pending() {
                        return Got::Nothing;
                    }
                }
                // A response has one head, which was read before.
                ResponseEvent::Event(Event::Head(_) | Event::Interim(..)) => {}
                ResponseEvent::Wrong(MalformedResponse(words))
                | ResponseEvent::Unprocessed(MalformedResponse(words)) => {
                    return Got::Broken(words);
                }
                ResponseEvent::Closed => return Got::Broken("upstream prematurely closed connection".into()),
                ResponseEvent::Failed(e) => {
                    return Got::Broken(format!("{} failed {}", UpstreamState::read_call(r), observe::os_error(&e)));
                }
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
                    let words = format!("pread() of a temporary file failed {}", observe::os_error(&e));
                    return self.failed(r, &words);
                }
            }
        }
        if self.abandoned {
            return self.give_up(r);
        }
        if self.first.is_empty()
            && let Some(words) = self.broken.take()
        {
            return self.failed(r, &words);
        }
        let most = if r.reply.piece_room() == 0 { usize::MAX } else { r.reply.piece_room() as usize };
        match self.poll_server(cx, r, most) {
            Got::Bytes(bytes) => {
                self.flush_due = self.flushes;
                Poll::Ready(Some(Ok(Piece::Bytes(bytes))))
            }
            Got::End => Poll::Ready(None),
            Got::Nothing if std::mem::take(&mut self.flush_due) => Poll::Ready(Some(Ok(Piece::Flush))),
            Got::Nothing if self.watch.as_ref().is_some_and(|watch| watch.poll_gone(cx).is_ready()) => {
                if !self.watch.as_ref().is_some_and(|watch| watch.is_cut()) {
                    log_body(r, Severity::Info, CLIENT_LEFT);
                }
                self.give_up(r)
            }
            Got::Nothing => Poll::Pending,
            Got::Broken(words) => self.failed(r, &words),
            Got::Abandoned => self.give_up(r),
        }
    }
    /// Reads are bounded by the buffers of the location, and the end may come at any time.
    fn needs_window(&self) -> bool {
        false
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        while self.broken.is_none() && !self.abandoned {
            let Some(most) = self.ahead.as_ref().and_then(ReadAhead::room) else { return };
            match self.poll_server(cx, r, most) {
                Got::Bytes(bytes) => {
                    if let Some(ahead) = &mut self.ahead
                        && let Err(e) = ahead.push(bytes)
                    {
                        let folder = ahead.folder().display();
                        self.broken =
                            Some(format!("a temporary file in \"{folder}\" failed {}", observe::os_error(&e)));
                    }
                    if let Some(ahead) = self.ahead.as_mut().filter(|ahead| ahead.filed) {
                        ahead.filed = false;
                        let folder = ahead.folder().display();
                        let words = format!("an upstream response is buffered to a temporary file in {folder}");
                        log_body(r, Severity::Warn, &words);
                    }
                }
                Got::Broken(words) => self.broken = Some(words),
                Got::Abandoned => self.abandoned = true,
                Got::End | Got::Nothing => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_are_joined_in_order() {
        let mut pieces = Pieces::default();
        let mut expected = Vec::new();
        for n in 0..2000usize {
            let length = if n % 500 == 0 { JOINED_BYTES_MAX + 1 } else { n % 30 };
            let piece = vec![n as u8; length];
            expected.extend_from_slice(&piece);
            pieces.push(Bytes::from(piece));
        }
        assert_eq!(pieces.length, expected.len() as u64);
        assert!(pieces.queue.len() <= 8, "{} pieces", pieces.queue.len());
        let all: Vec<u8> = std::iter::from_fn(|| pieces.pop()).flatten().collect();
        assert!(all == expected && pieces.length == 0);
    }
}
