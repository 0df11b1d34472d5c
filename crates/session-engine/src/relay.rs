//! Bytes in both directions between a client and a server (nginx: `ngx_stream_proxy_process`, `ngx_mail_proxy_handler`).
//!
//! Nothing is kept for a direction while nothing is on its way: what is read lies in a buffer of the thread, and only what the
//! other side does not take at once gets memory of its own.

use base::clock::{self, Instant};
use runtime::time::{Sleep, sleep_until};
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use upstream::Stream;

/// How much larger than it was said a buffer becomes for a direction whose bytes come faster than they are read, and go as fast:
/// calls are what such a stream costs.
const GROWTH: usize = 4;
/// Buffers that a thread keeps for later reads.
const BUFFERS_MAX: usize = 4;

thread_local! {
    /// Where bytes are read to: of sizes that were asked for lately.
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with room for so much: what is read fills it and no more.
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

/// A buffer may be used for other bytes.
fn give_back(mut buf: Vec<u8>) {
    buf.clear();
    BUFFERS.with_borrow_mut(|all| {
        if all.len() >= BUFFERS_MAX {
            all.remove(0);
        }
        all.push(buf);
    });
}

/// One direction.
#[derive(Default)]
pub struct Direction {
    /// Read, and not yet written; `at`: so much of it was.
    pending: Vec<u8>,
    at: usize,
    /// Nothing more is read: the end has come, or something broke.
    ended: bool,
    /// The other side was told.
    told: bool,
    pub received: u64,
    pub sent: u64,
    /// Octets a second; 0: no limit.
    rate: u64,
    /// How many times larger than it was said a read may be: it doubles with each read that was full, and is one again
    /// when the other side does not take all.
    growth: usize,
    /// Nothing is read until then.
    delay: Option<Box<Sleep>>,
}

/// What ended a session.
pub enum RelayEnd {
    /// One side has closed its connection; `true`: the server.
    Closed(bool),
    /// Nobody said anything for too long.
    Silence,
    /// A write failed.
    Broken(io::Error, bool),
}

/// Both directions of a session.
pub struct Relay<'a> {
    client: &'a Stream,
    server: &'a Stream,
    /// From the client to the server, and back.
    pub up: Direction,
    pub down: Direction,
    buffer_bytes: usize,
    half_close: bool,
    timeout_ms: u64,
    /// Something was last moved then.
    moved: Instant,
    idle: Sleep,
    began: Instant,
    /// The first bytes of the server have come, and nobody was told yet.
    pub answered: bool,
    first: bool,
    /// The side that ended last is the server.
    server_last: bool,
}

/// What is agreed on for both directions.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Octets that are read at once.
    pub buffer_bytes: usize,
    /// One side's end is told to the other, which may go on.
    pub half_close: bool,
    /// How long nothing may move.
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

    /// Moves what can be moved; ready once it is over.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        for to_client in [false, true] {
            // Pending: it waits for its turn.
            if let Poll::Ready(over) = self.poll_way(to_client, cx) {
                return Poll::Ready(over);
            }
        }
        if let Some(over) = self.over() {
            return Poll::Ready(over);
        }
        self.poll_idle(cx)
    }

    /// The time-out runs while nothing moves, and no direction waits for its rate.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        // One whose time has come waits for something else: for the other side to take what was read.
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

    /// Moves what can be moved in one direction.
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
            // What was read goes first.
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
                // A broken connection is an end, as in nginx.
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

    /// Whether the session is over (nginx: `ngx_stream_proxy_test_finalize`).
    fn over(&self) -> Option<RelayEnd> {
        let to_client = self.down.has_pending(self.client);
        let to_server = self.up.has_pending(self.server);
        let (client_ended, server_ended) = (self.up.ended, self.down.ended);
        let goes_on = match (client_ended, server_ended) {
            (false, false) => true,
            _ if self.half_close => !(client_ended && server_ended) || to_client || to_server,
            // What one side said before it ended still goes to the other.
            (false, true) => to_client,
            (true, false) => to_server,
            (true, true) => false,
        };
        (!goes_on).then_some(RelayEnd::Closed(self.server_last))
    }
}

impl Direction {
    /// A direction in which these bytes are on their way already. `received`: octets that were read before; `rate`: octets a
    /// second, 0 for no limit.
    pub fn new(pending: Vec<u8>, received: u64, rate: u64) -> Direction {
        Direction { pending, received, rate, growth: 1, ..Direction::default() }
    }
    fn has_pending(&self, to: &Stream) -> bool {
        self.at < self.pending.len() || to.has_unsent()
    }
    /// Nothing is read for so many milliseconds.
    fn hold(&mut self, ms: u64) {
        self.delay = Some(Box::new(sleep_until(clock::now().plus_millis(ms))));
    }
    /// Writes out what was read.
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
            // The next bytes of the thread, whosever they are, are read to the same memory.
            give_back(std::mem::take(&mut self.pending));
            self.at = 0;
        }
        to.try_flush()
    }
    /// Reads at most so much, and writes it at once where the other side takes it: only the rest is kept.
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
