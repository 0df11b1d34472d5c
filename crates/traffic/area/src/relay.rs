//! Copies bytes both ways between a client and a server: TCP and mail sessions, upgraded HTTP connections (nginx:
//! `ngx_stream_proxy_process`, `ngx_mail_proxy_handler`, `ngx_http_upstream_process_upgraded`).
//! Idle directions hold no memory: reads use a thread's buffer, and only unaccepted bytes are kept. Reads of a free flow
//! are limited to the bytes that the other side takes at once.

use base::clock::{self, Instant};
use base::room::Room;
use runtime::budget;
use runtime::time::{Sleep, sleep_until};
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use transport::Stream;

/// Largest growth of a buffer for fast, freely flowing bytes: larger reads need fewer calls.
const GROWTH: usize = 4;
/// Size of a read for a side that takes no bytes now. Its write fails and makes the socket announce room, which asking
/// for the room does not.
const PROBE_BYTES: usize = 4 * 1024;
/// Least unused part of a buffer that unaccepted bytes do not keep.
const SPARE_BYTES_MAX: usize = 2 * 1024;
const BUFFERS_MAX: usize = 6;

thread_local! {
    /// Cached read buffers of recently used sizes.
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty buffer of this capacity; reads do not exceed it.
fn buffer(bytes: usize) -> Vec<u8> {
    let kept = BUFFERS.with_borrow_mut(|all| {
        let at = all.iter().rposition(|one| one.capacity() == bytes)?;
        Some(all.remove(at))
    });
    kept.unwrap_or_else(|| {
        let mut new = Vec::new();
        new.reserve_exact(bytes);
        new
    })
}

fn give_back(mut buf: Vec<u8>) {
    buf.clear();
    BUFFERS.with_borrow_mut(|all| {
        if all.len() >= BUFFERS_MAX {
            all.remove(0);
        }
        all.push(buf);
    });
}

pub trait RelaySide {
    /// Uses the spare capacity where there is some; `Ok(0)` is the end.
    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>>;
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Ready when all accepted bytes have left.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Returns the free bytes of the buffer for output; `None` if they are unknown.
    fn room(&self) -> Option<usize>;
    /// Tells whether accepted bytes have not left yet.
    fn has_unsent(&self) -> bool;
    /// Ends output; the peer may still send.
    fn shutdown_write(&mut self);
    /// Tells whether the end of the peer's output leaves the other direction open whatever the configuration says.
    fn closes_by_halves(&self) -> bool {
        false
    }
}

impl RelaySide for &Stream {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        loop {
            match self.try_read_buf(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(self.poll_readable(cx))?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write(bytes) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(self.poll_writable(cx))?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.try_flush() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(self.poll_writable(cx))?,
                done => return Poll::Ready(done),
            }
        }
    }
    fn room(&self) -> Option<usize> {
        Stream::send_room(self)
    }
    fn has_unsent(&self) -> bool {
        Stream::has_unsent(self)
    }
    fn shutdown_write(&mut self) {
        let _ = Stream::shutdown_write(self);
    }
}

impl RelaySide for Box<dyn RelaySide> {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        (**self).poll_recv(cx, buf)
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        (**self).poll_send(cx, bytes)
    }
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        (**self).poll_flush(cx)
    }
    fn room(&self) -> Option<usize> {
        (**self).room()
    }
    fn has_unsent(&self) -> bool {
        (**self).has_unsent()
    }
    fn shutdown_write(&mut self) {
        (**self).shutdown_write();
    }
    fn closes_by_halves(&self) -> bool {
        (**self).closes_by_halves()
    }
}

#[derive(Default)]
pub struct Direction {
    /// Bytes read and not written; `at` counts those already written.
    pending: Vec<u8>,
    at: usize,
    /// No further reads: end of input, or an error.
    ended: bool,
    told: bool,
    pub received: u64,
    pub sent: u64,
    /// Bytes per second; 0: no limit.
    rate: u64,
    /// Factor of the read size: doubles with each full read, and halves with each other one.
    growth: usize,
    /// Of the other side; a direction that has filled a buffer asks for it.
    room: Room,
    delay: Option<Box<Sleep>>,
}

pub enum RelayEnd {
    /// One side closed its connection; `true`: the server.
    Closed(bool),
    Silence,
    Broken(io::Error, bool),
}

/// Ends that are passed to the other side, which may continue. Any other end ends the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfClose {
    Neither,
    /// The client's (RFC 8441, 5: END_STREAM is a TCP FIN).
    Client,
    Both,
}

#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Bytes per read.
    pub buffer_bytes: usize,
    pub half_close: HalfClose,
    pub timeout_ms: u64,
    /// Idle timeout while the server does not take bytes.
    pub stalled_ms: u64,
}

pub struct Relay<C, S> {
    client: C,
    server: S,
    pub up: Direction,
    pub down: Direction,
    down_first: bool,
    terms: Terms,
    idle: Sleep,
    progress: RelayProgress,
}

/// State that both directions change.
struct RelayProgress {
    /// Time of the last transfer.
    moved: Instant,
    began: Instant,
    /// The server's first bytes arrived and were not reported yet.
    answered: bool,
    first: bool,
    /// The server ended last.
    server_last: bool,
    /// A failed read that was not reported yet; `true`: of the server.
    broken: Option<(io::Error, bool)>,
}

impl<C: RelaySide, S: RelaySide> Relay<C, S> {
    pub fn new(client: C, server: S, up: Direction, down: Direction, terms: Terms) -> Relay<C, S> {
        let now = clock::now();
        let progress =
            RelayProgress { moved: now, began: now, answered: false, first: true, server_last: false, broken: None };
        let idle = sleep_until(now.plus_millis(terms.timeout_ms));
        Relay { client, server, up, down, down_first: false, terms, idle, progress }
    }

    /// Tells, once, that the server's first bytes have arrived.
    pub fn take_answered(&mut self) -> bool {
        std::mem::take(&mut self.progress.answered)
    }

    /// Returns a failed read, once; `true`: of the server. The direction has ended.
    pub fn take_broken(&mut self) -> Option<(io::Error, bool)> {
        self.progress.broken.take()
    }

    /// Ready at the end.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        let Relay { client, server, up, down, down_first, terms, progress, .. } = self;
        let client_half = terms.half_close != HalfClose::Neither;
        let server_half = terms.half_close == HalfClose::Both;
        for to_client in [*down_first, !*down_first] {
            // Pending: waits for its turn.
            let done = match to_client {
                false => up.poll(client, server, false, client_half, terms, progress, cx),
                true => down.poll(server, client, true, server_half, terms, progress, cx),
            };
            if let Poll::Ready(e) = done {
                return Poll::Ready(RelayEnd::Broken(e, to_client));
            }
        }
        // A direction without end would leave no budget for the other one.
        *down_first ^= !budget::is_left();
        if let Some(over) = self.over() {
            return Poll::Ready(over);
        }
        self.poll_idle(cx)
    }

    /// Runs the idle timeout, except while a direction waits for its rate.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        // An elapsed pause means that the direction waits for the other side.
        let now = clock::now();
        let waits = |way: &Direction| way.delay.as_ref().is_some_and(|delay| delay.deadline() > now);
        let held = waits(&self.up) || waits(&self.down);
        if held {
            self.progress.moved = clock::now();
        }
        let Terms { timeout_ms, stalled_ms, .. } = self.terms;
        let limit = if self.up.has_pending(&self.server) { timeout_ms.min(stalled_ms) } else { timeout_ms };
        loop {
            let due = self.progress.moved.plus_millis(limit);
            if due != self.idle.deadline() {
                self.idle.reset(due);
            }
            ready!(Pin::new(&mut self.idle).poll(cx));
            if !held && clock::now() >= self.progress.moved.plus_millis(limit) {
                return Poll::Ready(RelayEnd::Silence);
            }
            self.progress.moved = clock::now();
        }
    }

    /// nginx: `ngx_stream_proxy_test_finalize`.
    fn over(&self) -> Option<RelayEnd> {
        let to_client = self.down.has_pending(&self.client);
        let to_server = self.up.has_pending(&self.server);
        let (client_ended, server_ended) = (self.up.ended, self.down.ended);
        let goes_on = match (client_ended, server_ended, self.terms.half_close) {
            (false, false, _) => true,
            (.., HalfClose::Both) => !(client_ended && server_ended) || to_client || to_server,
            // Bytes sent before the end are still delivered.
            (false, true, _) => to_client,
            (true, server_ended, HalfClose::Client) => !server_ended || to_client,
            (true, false, HalfClose::Neither) => to_server,
            (true, true, HalfClose::Neither) => false,
        };
        (!goes_on).then_some(RelayEnd::Closed(self.progress.server_last))
    }
}

impl Direction {
    /// Creates a direction with pending bytes. `received`: bytes read before; `rate`: bytes per second, 0 for no limit.
    pub fn new(pending: Vec<u8>, received: u64, rate: u64) -> Direction {
        Direction { pending, received, rate, growth: 1, ..Direction::default() }
    }
    fn has_pending(&self, to: &impl RelaySide) -> bool {
        self.at < self.pending.len() || to.has_unsent()
    }
    fn hold(&mut self, ms: u64) {
        self.delay = Some(Box::new(sleep_until(clock::now().plus_millis(ms))));
    }

    /// Transfers available bytes; ready if writing failed. `half`: passes the end on.
    #[allow(clippy::too_many_arguments)]
    fn poll(
        &mut self,
        from: &mut impl RelaySide,
        to: &mut impl RelaySide,
        to_client: bool,
        half: bool,
        terms: &Terms,
        progress: &mut RelayProgress,
        cx: &mut Context<'_>,
    ) -> Poll<io::Error> {
        loop {
            // Writes buffered bytes first.
            match self.poll_write(to, &mut progress.moved, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(e),
                Poll::Pending => {
                    self.room.blocked();
                    self.release_spare();
                    return Poll::Pending;
                }
            }
            if self.ended {
                if half && !std::mem::replace(&mut self.told, true) {
                    to.shutdown_write();
                }
                return Poll::Pending;
            }
            if let Some(delay) = &mut self.delay {
                ready!(Pin::new(&mut **delay).poll(cx));
                self.delay = None;
            }
            let mut most = self.read_bytes(terms.buffer_bytes, to);
            if self.rate != 0 {
                let seconds = clock::now().millis_since(progress.began) / 1000;
                let allowed = self.rate.saturating_mul(seconds + 1);
                match allowed.checked_sub(self.received).filter(|left| *left > 0) {
                    Some(left) => most = most.min(usize::try_from(left).unwrap_or(usize::MAX)),
                    None => {
                        let over = self.received - allowed;
                        self.hold(over.saturating_mul(1000) / self.rate + 1);
                        continue;
                    }
                }
            }
            // A loop over ready data: each of its reads permits a write.
            ready!(budget::poll_proceed(cx));
            // A broken connection counts as closed, as in nginx.
            let got = ready!(self.poll_read(from, most, cx)).unwrap_or_else(|e| {
                progress.broken = Some((e, to_client));
                0
            });
            progress.answered |= to_client && std::mem::take(&mut progress.first);
            match got {
                0 => {
                    self.ended = true;
                    progress.server_last = to_client;
                }
                n => {
                    // Bytes that wait for the next turn hold their buffer.
                    budget::allow_call();
                    progress.moved = clock::now();
                    self.growth =
                        if n >= most / 4 * 3 { (self.growth.max(1) * 2).min(GROWTH) } else { self.growth / 2 };
                    if let Some(ms @ 1..) = (n as u64).saturating_mul(1000).checked_div(self.rate) {
                        self.hold(ms);
                    }
                }
            }
        }
    }
    /// Returns the size of the next read: of a flow that has filled a buffer, at most the room of the other side.
    fn read_bytes(&mut self, base: usize, to: &impl RelaySide) -> usize {
        if self.growth <= 1 {
            return base;
        }
        let mut most = if self.rate == 0 { base.saturating_mul(self.growth) } else { base };
        let room = self.room.up_to(most, || to.room());
        while most > room && most > PROBE_BYTES {
            most /= 2;
        }
        most
    }
    /// Moves unaccepted bytes to memory of their own size and returns a buffer that they use in part.
    fn release_spare(&mut self) {
        let rest = self.pending.get(self.at..).unwrap_or_default();
        if self.pending.capacity() - rest.len() > SPARE_BYTES_MAX {
            let rest = rest.to_vec();
            give_back(std::mem::replace(&mut self.pending, rest));
            self.at = 0;
        }
    }
    fn poll_write(
        &mut self,
        to: &mut impl RelaySide,
        moved: &mut Instant,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.at < self.pending.len() {
            let n = ready!(to.poll_send(cx, self.pending.get(self.at..).unwrap_or_default()))?;
            self.at += n;
            self.sent += n as u64;
            self.room.sent(n);
            *moved = clock::now();
        }
        if self.at > 0 {
            // Further reads of the thread reuse the memory.
            give_back(std::mem::take(&mut self.pending));
            self.at = 0;
        }
        to.poll_flush(cx)
    }
    /// Reads once; a buffer is held only if bytes came.
    fn poll_read(&mut self, from: &mut impl RelaySide, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut buf = buffer(most);
        let got = from.poll_recv(cx, &mut buf);
        match got {
            Poll::Ready(Ok(n @ 1..)) => {
                self.received += n as u64;
                self.pending = buf;
                self.at = 0;
            }
            _ => give_back(buf),
        }
        got
    }
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
