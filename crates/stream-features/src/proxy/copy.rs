//! Bytes in both directions (nginx: `ngx_stream_proxy_process`).
//!
//! Nothing is kept for a direction while nothing is on its way: what is read lies in a buffer of the thread, and only what the
//! other side does not take at once gets memory of its own.

use super::connect::{Servers, end_try, proxy_header};
use super::{Passing, ProxyProtocol};
use crate::session::StreamSession;
use base::clock::{self, Instant};
use observe::{Level, os};
use runtime::time::{Sleep, sleep_until};
use session_engine::Session;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use upstream::Stream;

thread_local! {
    /// Where bytes are read to.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One direction.
#[derive(Default)]
struct Way {
    /// Read, and not yet written; `at`: so much of it was.
    pending: Vec<u8>,
    at: usize,
    /// Nothing more is read: the end has come, or something broke.
    ended: bool,
    /// The other side was told.
    told: bool,
    received: u64,
    sent: u64,
    /// Octets a second; 0: no limit.
    rate: u64,
    /// Nothing is read until then.
    delay: Option<Box<Sleep>>,
}

/// What ended a session.
enum Over {
    /// One side has closed its connection; `true`: the server.
    Closed(bool),
    /// Nobody said anything for too long.
    Silence,
    /// A write failed.
    Broken(io::Error, bool),
}

/// Both directions of a session.
struct Copy<'a> {
    client: &'a Stream,
    server: &'a Stream,
    up: Way,
    down: Way,
    buffer_bytes: usize,
    half_close: bool,
    timeout_ms: u64,
    /// Something was last moved then.
    moved: Instant,
    idle: Sleep,
    began: Instant,
    /// The first bytes of the server have come, and nobody was told yet.
    answered: bool,
    first: bool,
    /// The side that ended last is the server.
    server_last: bool,
}

/// Passes a session's bytes until it ends; its status.
pub async fn run(passing: &Passing, s: &mut StreamSession, client: &Stream) -> u16 {
    let Some(named) = Box::pin(passing.group(s)).await else { return 500 };
    let mut servers = Servers::new(passing, &named, s);
    let (server, mut active) = match Box::pin(servers.connect(s)).await {
        Ok(connected) => connected,
        Err(status) => {
            end_try(s);
            return status;
        }
    };
    let conf = &passing.conf;
    s.doing = "proxying connection";
    let mut first = Vec::new();
    // With TLS it went before the handshake.
    if passing.tls.is_none() && conf.proxy_protocol != ProxyProtocol::Off {
        match proxy_header(conf.proxy_protocol, s) {
            Some(header) => first = header,
            None => return 500,
        }
    }
    s.received += s.preread.len() as u64;
    first.append(&mut s.preread);
    if s.srv().error_log.wants(Level::Info)
        && let Some(local) = server.local_address()
    {
        s.note(Level::Info, format_args!("proxy {local} connected to {}", active.peer().text));
    }
    servers.connected(s, &mut active);
    let now = clock::now();
    let mut copy = Copy {
        client,
        server: &server,
        up: Way { pending: first, received: s.received, rate: conf.proxy_upload_rate.get(s), ..Way::default() },
        down: Way { rate: conf.proxy_download_rate.get(s), ..Way::default() },
        buffer_bytes: passing.buffer_bytes,
        half_close: conf.proxy_half_close,
        timeout_ms: conf.proxy_timeout.0,
        moved: now,
        idle: sleep_until(now.plus_millis(conf.proxy_timeout.0)),
        began: now,
        answered: false,
        first: true,
        server_last: false,
    };
    let over = poll_fn(|cx| {
        let over = copy.poll(cx);
        copy.account(s);
        if std::mem::take(&mut copy.answered) {
            servers.answered(s, &mut active);
        }
        over
    })
    .await;
    copy.account(s);
    end_try(s);
    say(s, over);
    drop((server, active));
    200
}

/// What is said of the end.
fn say(s: &mut StreamSession, over: Over) {
    let (up, down) = s.tries.last().map_or((0, 0), |one| (one.bytes_received, one.bytes_sent));
    match over {
        Over::Closed(server) => {
            let who = if server { "upstream" } else { "client" };
            let (received, sent) = (s.received, s.sent);
            s.note(
                Level::Info,
                format_args!(
                    "{who} disconnected, bytes from/to client:{received}/{sent}, bytes from/to upstream:{up}/{down}"
                ),
            );
        }
        Over::Silence => s.log(Level::Info, format_args!("connection timed out (110: Connection timed out)")),
        Over::Broken(e, to_client) => {
            s.doing = if to_client { "proxying and sending to client" } else { "proxying and sending to upstream" };
            s.log(Level::Info, format_args!("send() failed {}", os(&e)));
        }
    }
}

impl Copy<'_> {
    /// Takes the counts over into the session.
    fn account(&self, s: &mut StreamSession) {
        s.received = self.up.received;
        s.sent = self.down.sent;
        if let Some(one) = s.tries.last_mut() {
            one.bytes_received = self.down.received;
            one.bytes_sent = self.up.sent;
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
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
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        // One whose time has come waits for something else: for the other side to take what was read.
        let now = clock::now();
        let waits = |way: &Way| way.delay.as_ref().is_some_and(|delay| delay.deadline() > now);
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
                return Poll::Ready(Over::Silence);
            }
            self.moved = clock::now();
        }
    }

    /// Moves what can be moved in one direction.
    fn poll_way(&mut self, to_client: bool, cx: &mut Context<'_>) -> Poll<Over> {
        let Copy {
            client, server, up, down, buffer_bytes, began, moved, answered, first, half_close, server_last, ..
        } = self;
        let (way, from, to) = if to_client { (down, *server, *client) } else { (up, *client, *server) };
        loop {
            // What was read goes first.
            match way.write(to, moved) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match to.poll_writable(cx) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(e)) => return Poll::Ready(Over::Broken(e, to_client)),
                    Poll::Pending => return Poll::Pending,
                },
                Err(e) => return Poll::Ready(Over::Broken(e, to_client)),
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
            if way.rate > 0 {
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
                    if let Some(ms @ 1..) = (n as u64).saturating_mul(1000).checked_div(way.rate) {
                        way.hold(ms);
                    }
                }
            }
        }
    }

    /// Whether the session is over (nginx: `ngx_stream_proxy_test_finalize`).
    fn over(&self) -> Option<Over> {
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
        (!goes_on).then_some(Over::Closed(self.server_last))
    }
}

impl Way {
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
            BUFFER.set(std::mem::take(&mut self.pending));
            self.at = 0;
        }
        to.try_flush()
    }
    /// Reads at most so much, and writes it at once where the other side takes it: only the rest is kept.
    fn read(&mut self, from: &Stream, most: usize) -> io::Result<usize> {
        let mut buf = BUFFER.take();
        if buf.capacity() != most {
            buf = Vec::new();
            buf.reserve_exact(most);
        }
        buf.clear();
        let got = from.try_read_buf(&mut buf);
        if let Ok(n) = &got {
            self.received += *n as u64;
            if *n > 0 {
                self.pending = buf;
                self.at = 0;
                return got;
            }
        }
        BUFFER.set(buf);
        got
    }
}
