//! Copies bytes both ways between a client and a server (nginx: `ngx_stream_proxy_process`, `ngx_mail_proxy_handler`).
//! Idle directions hold no memory: reads use a thread's buffer, and only unaccepted bytes are kept.

use base::clock::{self, Instant};
use runtime::time::{Sleep, sleep_until};
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use upstream::Stream;

/// Largest growth of a buffer for fast, freely flowing bytes: larger reads need fewer calls.
const GROWTH: usize = 4;
/// Maximum number of cached buffers per thread.
const BUFFERS_MAX: usize = 4;

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

#[derive(Default)]
pub struct Direction {
    /// Bytes read and not written; `at` counts those already written.
    pending: Vec<u8>,
    at: usize,
    /// No further reads: end of input, or an error.
    ended: bool,
    /// The end was passed to the other side.
    told: bool,
    pub received: u64,
    pub sent: u64,
    /// Bytes per second; 0: no limit.
    rate: u64,
    /// Factor of the read size: doubles with each full read, and resets when the other side does not take all bytes.
    growth: usize,
    delay: Option<Box<Sleep>>,
}

pub enum RelayEnd {
    /// One side closed its connection; `true`: the server.
    Closed(bool),
    /// Idle timeout.
    Silence,
    Broken(io::Error, bool),
}

pub struct Relay<'a> {
    client: &'a Stream,
    server: &'a Stream,
    pub up: Direction,
    pub down: Direction,
    buffer_bytes: usize,
    half_close: bool,
    timeout_ms: u64,
    /// Time of the last transfer.
    moved: Instant,
    idle: Sleep,
    began: Instant,
    /// The server's first bytes arrived and were not reported yet.
    pub answered: bool,
    first: bool,
    /// The server ended last.
    server_last: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Bytes per read.
    pub buffer_bytes: usize,
    /// Passes one side's end to the other, which may continue.
    pub half_close: bool,
    /// Idle timeout.
    pub timeout_ms: u64,
}

impl<'a> Relay<'a> {
    pub fn new(client: &'a Stream, server: &'a Stream, up: Direction, down: Direction, terms: Terms) -> Relay<'a> {
        let now = clock::now();
        let Terms { buffer_bytes, half_close, timeout_ms } = terms;
        Relay {
            client,
            server,
            up,
            down,
            buffer_bytes,
            half_close,
            timeout_ms,
            moved: now,
            idle: sleep_until(now.plus_millis(timeout_ms)),
            began: now,
            answered: false,
            first: true,
            server_last: false,
        }
    }

    /// Transfers available bytes; ready at the end.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        for to_client in [false, true] {
            // Pending: waits for its turn.
            if let Poll::Ready(over) = self.poll_way(to_client, cx) {
                return Poll::Ready(over);
            }
        }
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
            self.moved = clock::now();
        }
        loop {
            let due = self.moved.plus_millis(self.timeout_ms);
            if due != self.idle.deadline() {
                self.idle.reset(due);
            }
            ready!(Pin::new(&mut self.idle).poll(cx));
            if !held && clock::now() >= self.moved.plus_millis(self.timeout_ms) {
                return Poll::Ready(RelayEnd::Silence);
            }
            self.moved = clock::now();
        }
    }

    /// Transfers available bytes in one direction.
    fn poll_way(&mut self, to_client: bool, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        let Relay {
            client,
            server,
            up,
            down,
            buffer_bytes,
            began,
            moved,
            answered,
            first,
            half_close,
            server_last,
            ..
        } = self;
        let (way, from, to) = if to_client { (down, *server, *client) } else { (up, *client, *server) };
        loop {
            // Writes buffered bytes first.
            match way.write(to, moved) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    way.growth = 1;
                    match to.poll_writable(cx) {
                        Poll::Ready(Ok(())) => continue,
                        Poll::Ready(Err(e)) => return Poll::Ready(RelayEnd::Broken(e, to_client)),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Err(e) => return Poll::Ready(RelayEnd::Broken(e, to_client)),
            }
            if way.ended {
                if *half_close && !std::mem::replace(&mut way.told, true) {
                    let _ = to.shutdown_write();
                }
                return Poll::Pending;
            }
            if let Some(delay) = &mut way.delay {
                ready!(Pin::new(&mut **delay).poll(cx));
                way.delay = None;
            }
            let mut most = *buffer_bytes;
            if way.rate == 0 {
                most = most.saturating_mul(way.growth.max(1));
            } else {
                let seconds = clock::now().millis_since(*began) / 1000;
                let allowed = way.rate.saturating_mul(seconds + 1);
                match allowed.checked_sub(way.received).filter(|left| *left > 0) {
                    Some(left) => most = most.min(usize::try_from(left).unwrap_or(usize::MAX)),
                    None => {
                        let over = way.received - allowed;
                        way.hold(over.saturating_mul(1000) / way.rate + 1);
                        continue;
                    }
                }
            }
            let got = match way.read(from, most) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match from.poll_readable(cx) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(_)) => 0,
                    Poll::Pending => return Poll::Pending,
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // A broken connection counts as closed, as in nginx.
                Err(_) => 0,
                Ok(n) => n,
            };
            *answered |= to_client && std::mem::take(first);
            match got {
                0 => {
                    way.ended = true;
                    *server_last = to_client;
                }
                n => {
                    *moved = clock::now();
                    if n == most {
                        way.growth = (way.growth * 2).min(GROWTH);
                    }
                    if let Some(ms @ 1..) = (n as u64).saturating_mul(1000).checked_div(way.rate) {
                        way.hold(ms);
                    }
                }
            }
        }
    }

    /// Tells whether the session is over (nginx: `ngx_stream_proxy_test_finalize`).
    fn over(&self) -> Option<RelayEnd> {
        let to_client = self.down.has_pending(self.client);
        let to_server = self.up.has_pending(self.server);
        let (client_ended, server_ended) = (self.up.ended, self.down.ended);
        let goes_on = match (client_ended, server_ended) {
            (false, false) => true,
            _ if self.half_close => !(client_ended && server_ended) || to_client || to_server,
            // Bytes sent before the end are still delivered.
            (false, true) => to_client,
            (true, false) => to_server,
            (true, true) => false,
        };
        (!goes_on).then_some(RelayEnd::Closed(self.server_last))
    }
}

impl Direction {
    /// Creates a direction with pending bytes. `received`: bytes read before; `rate`: bytes per second, 0 for no limit.
    pub fn new(pending: Vec<u8>, received: u64, rate: u64) -> Direction {
        Direction { pending, received, rate, growth: 1, ..Direction::default() }
    }
    fn has_pending(&self, to: &Stream) -> bool {
        self.at < self.pending.len() || to.has_unsent()
    }
    /// Pauses reads for some milliseconds.
    fn hold(&mut self, ms: u64) {
        self.delay = Some(Box::new(sleep_until(clock::now().plus_millis(ms))));
    }
    fn write(&mut self, to: &Stream, moved: &mut Instant) -> io::Result<()> {
        while self.at < self.pending.len() {
            match to.try_write(self.pending.get(self.at..).unwrap_or_default()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.at += n;
                    self.sent += n as u64;
                    *moved = clock::now();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if self.at > 0 {
            // Further reads of the thread reuse the memory.
            give_back(std::mem::take(&mut self.pending));
            self.at = 0;
        }
        to.try_flush()
    }
    /// Reads at most `most` bytes and writes them at once; keeps the rest.
    fn read(&mut self, from: &Stream, most: usize) -> io::Result<usize> {
        let mut buf = buffer(most);
        let got = from.try_read_buf(&mut buf);
        if let Ok(n) = &got {
            self.received += *n as u64;
            if *n > 0 {
                self.pending = buf;
                self.at = 0;
                return got;
            }
        }
        give_back(buf);
        got
    }
}
