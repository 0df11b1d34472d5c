//! Upstream HTTP/2 connection: its task transfers, and each request has a [`MuxStream`].
//! Bounds: [`STREAMS_MAX`] streams (or the server's limit), [`ClientLimits::stream_window`] unread bytes per stream,
//! [`UNSENT_MAX`] unsent bytes. Stream windows reopen as bytes are read, the connection's on arrival: a slow reader
//! stalls no other.

use crate::client::{Came, Counts, Stop};
use crate::codec::{Answer, Asked, Begun, End, Event, Wrong};
use crate::group::Group;
use crate::pool::{IdleTimer, KeepAlive, Mixed, Place};
use crate::stream::Stream;
use base::clock::{self, Instant};
use bytes::Bytes;
use http_types::{BodyLength, List, Method, ResponseHead};
use net::Address;
use runtime::time::Sleep;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::BuildHasherDefault;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wire_h1::{HeadLimits, ResponseParser};
use wire_h2::{Client, ClientEvent, ClientLimits};

/// Concurrent requests per connection.
pub const STREAMS_MAX: usize = 100;
/// Unread interim responses at most; further ones are dropped.
const INTERIM_WAITING_MAX: usize = 16;
/// Unsent octets above which no body is queued.
const UNSENT_MAX: usize = 128 * 1024;
const READ_BYTES: usize = 32 * 1024;

#[derive(Default)]
struct Slot {
    events: VecDeque<ClientEvent>,
    waker: Option<Waker>,
    /// Reset by the server.
    reset: bool,
}

impl Slot {
    /// Queues an event; merges small pieces, and bounds interim responses.
    fn keep(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Capacity(_) => {}
            ClientEvent::Head { ref list, .. } if self.events.len() >= INTERIM_WAITING_MAX && is_interim(list) => {}
            ClientEvent::Body { stream, bytes, end, octets } => {
                if let Some(ClientEvent::Body { bytes: last, end: ends, octets: sum, .. }) = self.events.back_mut()
                    && wire_h2::join(last, &bytes)
                {
                    (*ends, *sum) = (end, *sum + octets);
                    return;
                }
                self.events.push_back(ClientEvent::Body { stream, bytes, end, octets });
            }
            event => self.events.push_back(event),
        }
    }
}

/// Tells an interim response (RFC 9110, 15.2).
fn is_interim(list: &List) -> bool {
    list.iter().any(|(name, value)| name == b":status" && value.starts_with(b"1"))
}

/// Ends a failed response after its queued head, as nginx: it processes a read's frames in order and drops the body on
/// a reset.
fn only_the_head(events: &mut VecDeque<ClientEvent>) {
    events.retain(|event| {
        !matches!(event, ClientEvent::Body { .. } | ClientEvent::Counted { .. } | ClientEvent::Trailers { .. })
    });
    for event in events {
        if let ClientEvent::Head { end, .. } = event {
            *end = false;
        }
    }
}

struct Inner {
    core: Client,
    stream: Stream,
    slots: HashMap<u32, Slot>,
    driver: Option<Waker>,
    /// Tasks waiting for the server to read.
    blocked: Vec<Waker>,
    over: Option<Over>,
    /// Available to later requests; otherwise ends with its last stream.
    kept: bool,
    requests: u64,
    /// Leased streams, started or not.
    leased: usize,
    opened: Instant,
    idle_since: Instant,
    keep: KeepAlive,
    address: Address,
}

#[derive(Clone, Debug)]
enum Over {
    Closed,
    Failed(io::ErrorKind, Option<i32>),
    Wrong(&'static str),
}

pub struct Mux {
    inner: Rc<RefCell<Inner>>,
}

impl Drop for Mux {
    fn drop(&mut self) {
        let mut inner = self.inner.borrow_mut();
        inner.leased -= 1;
        inner.wake_driver();
    }
}

type Kept = Vec<Weak<RefCell<Inner>>>;

thread_local! {
    static KEPT: RefCell<HashMap<Place, Kept, BuildHasherDefault<Mixed>>> = RefCell::default();
}

pub fn take(group: &Group, address: &Address, scope: usize) -> Option<Mux> {
    let place = Place { group: group.number, scope };
    KEPT.with_borrow_mut(|kept| {
        let all = kept.get_mut(&place)?;
        all.retain(|one| one.upgrade().is_some_and(|inner| inner.borrow().is_kept()));
        if all.is_empty() {
            kept.remove(&place);
            return None;
        }
        let now = clock::now();
        let found = all.iter().filter_map(Weak::upgrade).find(|inner| inner.borrow().has_room(address, now))?;
        found.borrow_mut().leased += 1;
        Some(Mux { inner: found })
    })
}

impl Mux {
    /// Makes a connection multiplexed, within a thread's executor. `scope`: as in [`crate::Pooled::new`].
    pub fn new(stream: Stream, group: &Group, address: Address, scope: usize) -> Mux {
        let place = Place { group: group.number, scope };
        let keep = group.keepalive.clone();
        let now = clock::now();
        let limits = ClientLimits { streams_max: STREAMS_MAX, ..ClientLimits::default() };
        // Partial writes must not wait for acknowledgements.
        stream.hurry();
        let inner = Rc::new(RefCell::new(Inner {
            core: Client::new(limits),
            stream,
            slots: HashMap::new(),
            driver: None,
            blocked: Vec::new(),
            over: None,
            kept: false,
            requests: 0,
            leased: 1,
            opened: now,
            idle_since: now,
            keep: keep.clone(),
            address,
        }));
        KEPT.with_borrow_mut(|kept| {
            if keep.connections == 0 {
                return;
            }
            let all = kept.entry(place).or_default();
            all.retain(|one| one.upgrade().is_some_and(|inner| inner.borrow().is_kept()));
            if all.len() >= keep.connections
                && let Some(oldest) = all.first().and_then(Weak::upgrade)
            {
                all.remove(0);
                let mut oldest = oldest.borrow_mut();
                oldest.kept = false;
                oldest.wake_driver();
            }
            inner.borrow_mut().kept = true;
            all.push(Rc::downgrade(&inner));
        });
        let driven = inner.clone();
        runtime::task::spawn_local(async move {
            let mut sleep = None;
            std::future::poll_fn(|cx| driven.borrow_mut().poll_drive(cx, &mut sleep)).await;
        });
        Mux { inner }
    }
}

impl Inner {
    fn is_kept(&self) -> bool {
        self.kept && self.over.is_none() && !self.core.is_going()
    }
    fn has_room(&self, address: &Address, now: Instant) -> bool {
        self.address == *address
            && self.core.has_room()
            && self.leased < self.core.streams_max()
            && self.requests < self.keep.requests_max
            && now.millis_since(self.opened) < self.keep.time_ms
    }
    fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }
    fn wake_all(&mut self) {
        self.slots.values_mut().filter_map(|slot| slot.waker.take()).for_each(Waker::wake);
        self.blocked.drain(..).for_each(Waker::wake);
    }
    fn end(&mut self, why: Over) {
        self.over.get_or_insert(why);
        self.wake_all();
    }

    /// Writes without waiting; true if nothing is left.
    fn flush(&mut self) -> bool {
        while !self.core.output().is_empty() {
            match self.stream.try_write(self.core.output()) {
                Ok(0) => break,
                Ok(n) => self.core.advance(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // Reads the bytes that the server sent before it closed.
                Err(_) => {
                    let unsent = self.core.output().len();
                    self.core.advance(unsent);
                }
            }
        }
        if self.core.output().len() < UNSENT_MAX {
            self.blocked.drain(..).for_each(Waker::wake);
        }
        self.core.output().is_empty()
    }
    fn push(&mut self) {
        if !self.flush() {
            self.wake_driver();
        }
    }

    fn route(&mut self) {
        while let Some(event) = self.core.poll_event() {
            let id = match &event {
                ClientEvent::Head { stream, .. }
                | ClientEvent::Body { stream, .. }
                | ClientEvent::Counted { stream, .. }
                | ClientEvent::Trailers { stream, .. }
                | ClientEvent::Reset { stream, .. }
                | ClientEvent::Capacity(stream) => *stream,
                ClientEvent::Goaway => continue,
            };
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            if let ClientEvent::Reset { code, .. } = event
                && (std::mem::replace(&mut slot.reset, true) || code != 0)
            {
                only_the_head(&mut slot.events);
            }
            slot.keep(event);
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    /// Drives a connection: reads, writes, and ends an unused one.
    fn poll_drive(&mut self, cx: &mut Context<'_>, sleep: &mut Option<Sleep>) -> Poll<()> {
        self.driver = Some(cx.waker().clone());
        let mut buf = Vec::with_capacity(READ_BYTES);
        while self.over.is_none() {
            buf.clear();
            match self.stream.try_read_buf(&mut buf) {
                Ok(0) => self.end(Over::Closed),
                Ok(_) => {
                    if let Err(error) = self.core.receive(&buf) {
                        self.route();
                        self.flush();
                        self.end(Over::Wrong(error.words));
                    }
                    self.route();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.stream.poll_readable(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(e)) => self.end(Over::Failed(e.kind(), e.raw_os_error())),
                    Poll::Pending => break,
                },
                Err(e) => self.end(Over::Failed(e.kind(), e.raw_os_error())),
            }
        }
        while self.over.is_none() && !self.flush() {
            match self.stream.poll_writable(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => self.end(Over::Failed(e.kind(), e.raw_os_error())),
                Poll::Pending => break,
            }
        }
        if self.leased > 0 {
            *sleep = None;
            self.idle_since = clock::now();
            return Poll::Pending;
        }
        if self.over.is_some() || !self.is_kept() || self.requests >= self.keep.requests_max {
            self.over.get_or_insert(Over::Closed);
            return Poll::Ready(());
        }
        self.core.shrink();
        if self.keep.timeout_ms == 0 {
            return Poll::Pending;
        }
        let until = self.idle_since.plus(Duration::from_millis(self.keep.timeout_ms));
        let sleep = sleep.get_or_insert_with(|| runtime::time::sleep_until(until));
        if sleep.deadline() != until {
            sleep.reset(until);
        }
        if Pin::new(sleep).poll(cx).is_ready() {
            self.over = Some(Over::Closed);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

pub struct MuxStream {
    mux: Mux,
    /// `None`: not started.
    id: Option<u32>,
    /// Unsent header block.
    block: Vec<u8>,
    out: Vec<u8>,
    at: usize,
    /// The queued bytes end the body.
    end: bool,
    sent_end: bool,
    asked: Asked,
    /// Remaining bytes of a declared length.
    left: Option<u64>,
    /// Trailers after the end of the body.
    over: Option<Vec<u8>>,
    ended: bool,
    requests: u64,
    pub(crate) idle_timer: IdleTimer,
    pub(crate) counts: Counts,
}

impl Drop for MuxStream {
    fn drop(&mut self) {
        let mut inner = self.mux.inner.borrow_mut();
        if let Some(id) = self.id {
            inner.slots.remove(&id);
            inner.core.forget(id);
            inner.push();
        }
        inner.idle_since = clock::now();
        // The lease ends afterwards, and wakes the task.
    }
}

impl MuxStream {
    pub fn new(mux: Mux, asked: &Asked, block: Vec<u8>) -> MuxStream {
        let requests = {
            let mut inner = mux.inner.borrow_mut();
            inner.requests += 1;
            inner.requests
        };
        MuxStream {
            mux,
            id: None,
            block,
            out: Vec::new(),
            at: 0,
            end: false,
            sent_end: false,
            asked: *asked,
            left: None,
            over: None,
            ended: false,
            requests,
            idle_timer: IdleTimer::default(),
            counts: Counts::default(),
        }
    }
    pub fn requests(&self) -> u64 {
        self.requests
    }
    pub fn queue(&mut self, piece: &[u8], end: bool) {
        if self.at == self.out.len() {
            self.out.clear();
            self.at = 0;
        }
        self.out.extend_from_slice(piece);
        self.end |= end;
    }
    pub fn is_flushed(&self) -> bool {
        self.id.is_some() && self.at == self.out.len() && (self.sent_end || !self.end)
    }
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        let mut inner = self.mux.inner.borrow_mut();
        let inner = &mut *inner;
        let id = match self.id {
            Some(id) => id,
            None => {
                let nothing = self.end && self.out.is_empty();
                if inner.over.is_some() {
                    return Poll::Ready(Err(Stop::Refused));
                }
                let Some(id) = inner.core.open(&self.block, nothing) else {
                    return Poll::Ready(Err(Stop::Failed(io::Error::other("no http2 stream can be begun"))));
                };
                inner.slots.insert(id, Slot::default());
                self.counts.sent += self.block.len() as u64 + 9;
                self.block = Vec::new();
                self.id = Some(id);
                self.sent_end = nothing;
                id
            }
        };
        let mut waits = false;
        while self.at < self.out.len() || (self.end && !self.sent_end) {
            if inner.core.capacity(id).is_none() {
                inner.push();
                return Poll::Ready(Err(Stop::Refused));
            }
            if inner.core.output().len() >= UNSENT_MAX && !inner.flush() && inner.core.output().len() >= UNSENT_MAX {
                inner.blocked.push(cx.waker().clone());
                inner.wake_driver();
                return Poll::Pending;
            }
            let rest = self.out.get(self.at..).unwrap_or_default();
            let piece = rest.get(..UNSENT_MAX).unwrap_or(rest);
            let last = self.end && piece.len() == rest.len();
            let n = inner.core.send_body(id, piece, last);
            self.at += n;
            self.counts.sent += n as u64 + 9;
            self.sent_end = last && n == piece.len();
            if n > 0 {
                self.idle_timer.renew();
            } else if !self.sent_end {
                waits = true;
                break;
            }
        }
        inner.push();
        if waits {
            if let Some(slot) = inner.slots.get_mut(&id) {
                slot.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Came> {
        if let Some(came) = self.poll_now() {
            return Poll::Ready(came);
        }
        let mut inner = self.mux.inner.borrow_mut();
        if let Some(slot) = self.id.and_then(|id| inner.slots.get_mut(&id)) {
            match &mut slot.waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                waker => *waker = Some(cx.waker().clone()),
            }
        }
        Poll::Pending
    }
    pub fn poll_now(&mut self) -> Option<Came> {
        if let Some(trailers) = self.over.take() {
            self.ended = true;
            return Some(Came::Event(Event::End(End { trailers, excess: None })));
        }
        if self.ended {
            return None;
        }
        let (event, over) = {
            let mut inner = self.mux.inner.borrow_mut();
            let event = self.id.and_then(|id| inner.slots.get_mut(&id)).and_then(|slot| slot.events.pop_front());
            if let (Some(ClientEvent::Body { stream, bytes, .. }), true) = (&event, inner.over.is_none()) {
                inner.core.consumed(*stream, bytes.len());
                inner.push();
            }
            (event, inner.over.clone())
        };
        match event {
            Some(event) => {
                self.idle_timer.renew();
                Some(self.translate(event).unwrap_or_else(Came::Wrong))
            }
            None => Some(match over? {
                Over::Closed => Came::Closed,
                Over::Failed(_, Some(code)) => Came::Failed(io::Error::from_raw_os_error(code)),
                Over::Failed(kind, None) => Came::Failed(kind.into()),
                Over::Wrong(words) => Came::Wrong(words.into()),
            }),
        }
    }
    fn translate(&mut self, event: ClientEvent) -> Result<Came, Wrong> {
        match event {
            ClientEvent::Head { list, end, octets, .. } => {
                self.counts.received += octets as u64;
                self.head(&list, end, octets)
            }
            ClientEvent::Body { bytes, end, octets, .. } => {
                self.counts.received += octets as u64;
                if let Some(left) = &mut self.left {
                    *left = left
                        .checked_sub(bytes.len() as u64)
                        .ok_or("upstream sent response body larger than indicated content length")?;
                }
                if end {
                    self.end_of_body(Vec::new())?;
                }
                match bytes.is_empty() {
                    // The end precedes the next event.
                    true => Ok(self.poll_now().unwrap_or(Came::Closed)),
                    false => Ok(Came::Event(Event::Body(bytes))),
                }
            }
            ClientEvent::Trailers { list, octets, .. } => {
                self.counts.received += octets as u64;
                let mut lines = Vec::new();
                for (name, value) in list.iter() {
                    check(name, value)?;
                    if !name.starts_with(b":") {
                        [name, b": ", value, b"\r\n"].iter().for_each(|part| lines.extend_from_slice(part));
                    } else {
                        return Err("upstream sent http2 trailer with pseudo-header".into());
                    }
                }
                self.end_of_body(lines)?;
                Ok(self.poll_now().unwrap_or(Came::Closed))
            }
            ClientEvent::Reset { code, unprocessed, .. } => {
                let wrong = Wrong(format!("upstream rejected request with error {code}"));
                Ok(if unprocessed { Came::Unprocessed(wrong) } else { Came::Wrong(wrong) })
            }
            ClientEvent::Capacity(_) | ClientEvent::Counted { .. } | ClientEvent::Goaway => {
                Ok(self.poll_now().unwrap_or(Came::Closed))
            }
        }
    }
    fn end_of_body(&mut self, trailers: Vec<u8>) -> Result<(), Wrong> {
        if self.left.is_some_and(|left| left > 0) {
            return Err("upstream sent response body smaller than indicated content length".into());
        }
        self.over = Some(trailers);
        Ok(())
    }
    fn head(&mut self, list: &List, end: bool, octets: usize) -> Result<Came, Wrong> {
        let (answer, length) = answer(list)?;
        let status = answer.head.status;
        if (100..200).contains(&status) {
            return Ok(Came::Event(Event::Interim(Rc::new(answer), octets)));
        }
        let bodiless = self.asked.method == Method::Head || matches!(status, 204 | 304);
        self.left = if bodiless { Some(0) } else { length };
        let length = match length {
            _ if bodiless => BodyLength::None,
            Some(n) => BodyLength::Exact(n),
            None if end => BodyLength::Exact(0),
            // Delimited by the protocol.
            None => BodyLength::Chunked,
        };
        if end {
            self.end_of_body(Vec::new())?;
        }
        let head_bytes = answer.buf.len();
        Ok(Came::Event(Event::Head(Begun { answer: Rc::new(answer), head_bytes, length, behind: 0 })))
    }
}

/// Validates a field for HTTP/2 (RFC 9113, 8.2.1).
fn check(name: &[u8], value: &[u8]) -> Result<(), Wrong> {
    let bare = name.strip_prefix(b":").unwrap_or(name);
    let odd = |c: &u8| *c <= b' ' || *c == 0x7f || *c == b':' || c.is_ascii_uppercase();
    let shown = |text: &[u8]| text.escape_ascii().to_string();
    if bare.is_empty() || bare.iter().any(odd) {
        return Err(format!("upstream sent invalid header name: \"{}\"", shown(name)).into());
    }
    if value.iter().any(|c| matches!(c, 0 | b'\r' | b'\n')) {
        return Err(format!("upstream sent invalid header value: \"{}: {}\"", shown(name), shown(value)).into());
    }
    Ok(())
}

/// Builds an HTTP/1 head, and the declared body length.
fn answer(list: &List) -> Result<(Answer, Option<u64>), Wrong> {
    if list.too_large || list.too_many {
        return Err("upstream sent too big header".into());
    }
    let mut status = None;
    let mut length = None;
    let mut fields = Vec::with_capacity(list.arena.len() + 64);
    let mut any = false;
    for (name, value) in list.iter() {
        check(name, value)?;
        if name == b":status" && status.is_none() && !any {
            let digits =
                std::str::from_utf8(value).ok().filter(|v| v.len() == 3 && v.bytes().all(|c| c.is_ascii_digit()));
            let Some(code) = digits.and_then(|digits| digits.parse::<u16>().ok()).filter(|code| *code >= 100) else {
                return Err(format!("upstream sent invalid :status \"{}\"", value.escape_ascii()).into());
            };
            status = Some(code);
            continue;
        }
        if name.starts_with(b":") {
            return Err(format!("upstream sent invalid pseudo-header \"{}\"", name.escape_ascii()).into());
        }
        any = true;
        if name == b"content-length" {
            let text =
                std::str::from_utf8(value).ok().filter(|v| !v.is_empty() && v.bytes().all(|c| c.is_ascii_digit()));
            match text.and_then(|text| text.parse().ok()) {
                Some(n) if length.is_none() => length = Some(n),
                _ => return Err("upstream sent invalid \"Content-Length\" header".into()),
            }
        }
        if !http_types::is_connection_field(name, value) {
            [name, b": ", value, b"\r\n"].iter().for_each(|part| fields.extend_from_slice(part));
        }
    }
    let Some(status) = status else { return Err("upstream sent no :status header".into()) };
    let line = http_types::status_line(status).map_or_else(|| format!("{status} "), str::to_string);
    let text = [b"HTTP/1.1 ", line.as_bytes(), b"\r\n", &fields, b"\r\n"].concat();
    let max = text.len();
    let limits = HeadLimits {
        line_max: max,
        field_max: max,
        total_max: max,
        fields_max: 1000,
        underscores: true,
        ignore_invalid: true,
    };
    let mut head = ResponseHead::default();
    if ResponseParser::default().parse(&text, &limits, &mut head).is_err() {
        return Err("upstream sent invalid header".into());
    }
    Ok((Answer { head, buf: Bytes::from(text) }, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_head_outlives_a_reset() {
        let head = ClientEvent::Head { stream: 1, list: List::default(), end: true, octets: 1 };
        let body = |end| ClientEvent::Body { stream: 1, bytes: Bytes::from_static(b"x"), end, octets: 10 };
        let trailers = ClientEvent::Trailers { stream: 1, list: List::default(), octets: 1 };
        let mut events = VecDeque::from([head, body(false), body(true), trailers]);
        only_the_head(&mut events);
        assert!(matches!(events.make_contiguous(), [ClientEvent::Head { end: false, .. }]), "{events:?}");
    }
}
