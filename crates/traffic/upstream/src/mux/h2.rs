//! Upstream HTTP/2 connection: its task transfers, and each request has an [`H2Stream`].
//! Bounds: [`STREAMS_MAX`] streams (or the server's limit), [`ClientLimits::stream_window`] unread bytes per stream,
//! [`UNSENT_MAX`] unsent bytes. Stream windows reopen as bytes are read, the connection's on arrival: a slow reader
//! stalls no other.

use super::response::{MuxResponse, is_interim, trailer_lines};
use super::usage::{KeptConnections, STREAMS_MAX, SharedConnection, Usage};
use super::{Lease, MuxStream, Over};
use crate::client::{Counts, ResponseEvent, Stop};
use crate::codec::{Event, MalformedResponse, RequestFacts};
use crate::group::Group;
use crate::pool::IdleTimer;
use crate::scope::Scope;
use base::clock::Instant;
use net::Address;
use runtime::time::Sleep;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use transport::Stream;
use wire_h2::{Client, ClientEvent, ClientLimits};

/// Unread interim responses at most; further ones are dropped.
const INTERIM_WAITING_MAX: usize = 16;
/// Unsent octets above which no body is queued.
const UNSENT_MAX: usize = 128 * 1024;
const READ_BYTES: usize = 32 * 1024;

#[derive(Default)]
struct StreamSlot {
    events: VecDeque<ClientEvent>,
    waker: Option<Waker>,
    reset: bool,
}

impl StreamSlot {
    /// Queues an event; merges small pieces, and bounds interim responses.
    fn keep(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Capacity(_) => {}
            ClientEvent::Head { ref list, .. } if self.events.len() >= INTERIM_WAITING_MAX && is_interim(list) => {}
            ClientEvent::Body { stream, bytes, end, octets } => {
                if let Some(ClientEvent::Body { bytes: last, end: ends, octets: sum, .. }) = self.events.back_mut()
                    && wire_h2::join_piece(last, &bytes)
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

struct H2Inner {
    core: Client,
    stream: Stream,
    slots: HashMap<u32, StreamSlot>,
    blocked: Vec<Waker>,
    over: Option<Over>,
    usage: Usage,
    /// Number of reads that returned octets.
    reads: u64,
}

/// A right to one stream of an HTTP/2 connection; the connection counts it until it is dropped.
pub struct H2Lease {
    inner: Rc<RefCell<H2Inner>>,
}

impl Drop for H2Lease {
    fn drop(&mut self) {
        self.inner.borrow_mut().usage.give_back();
    }
}

thread_local! {
    static KEPT: RefCell<KeptConnections<H2Inner>> = RefCell::default();
}

/// Time since which the thread's oldest idle connection has been idle.
pub(crate) fn idle_since() -> Option<Instant> {
    KEPT.with_borrow(|kept| kept.oldest().map(|(since, _)| since))
}

/// Ends the thread's connection that has been idle longest.
pub(crate) fn end_oldest() {
    KEPT.with_borrow(KeptConnections::end_oldest);
}

/// Leases a stream of a kept connection.
pub fn take_stream(group: &Group, address: &Address, scope: Scope) -> Option<Box<dyn Lease>> {
    let inner = KEPT.with_borrow_mut(|kept| kept.take(group, address, scope))?;
    Some(Box::new(H2Lease { inner }))
}

impl H2Lease {
    /// Makes a connection multiplexed, within a thread's executor.
    pub fn new(stream: Stream, group: &Group, address: Address, scope: Scope) -> H2Lease {
        let lease = H2Lease::over(stream, Usage::new(group, address, scope));
        KEPT.with_borrow_mut(|kept| kept.add(group, scope, &lease.inner));
        lease
    }

    /// [`H2Lease::new`] for a connection that only [`Lease::share`] finds.
    pub fn alone(stream: Stream, address: Address) -> H2Lease {
        H2Lease::over(stream, Usage::alone(address))
    }

    fn over(stream: Stream, usage: Usage) -> H2Lease {
        let limits = ClientLimits { streams_max: STREAMS_MAX, ..ClientLimits::default() };
        // Partial writes must not wait for acknowledgements.
        stream.hurry();
        let inner = Rc::new(RefCell::new(H2Inner {
            core: Client::new(limits),
            stream,
            slots: HashMap::new(),
            blocked: Vec::new(),
            over: None,
            usage,
            reads: 0,
        }));
        let driven = inner.clone();
        runtime::task::spawn_local(async move {
            let mut sleep = None;
            std::future::poll_fn(|cx| driven.borrow_mut().poll_drive(cx, &mut sleep)).await;
        });
        H2Lease { inner }
    }
}

impl Lease for H2Lease {
    fn share(&self) -> Option<Box<dyn Lease>> {
        let mut inner = self.inner.borrow_mut();
        if inner.over.is_some() || inner.core.is_going() {
            return None;
        }
        inner.usage.leased += 1;
        Some(Box::new(H2Lease { inner: self.inner.clone() }))
    }
    fn begin(self: Box<Self>, asked: &RequestFacts, block: Vec<u8>) -> Box<dyn MuxStream> {
        Box::new(H2Stream::new(*self, asked, block))
    }
}

impl SharedConnection for H2Inner {
    fn usage(&mut self) -> &mut Usage {
        &mut self.usage
    }
    fn is_kept(&self) -> bool {
        self.usage.kept && self.over.is_none() && !self.core.is_going()
    }
    /// Without a window, a body would wait until the server has read those of other requests.
    fn has_streams(&mut self) -> bool {
        self.core.has_room() && self.core.has_window() && self.usage.leased < self.core.streams_max()
    }
}

impl H2Inner {
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
            self.usage.wake_driver();
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
        self.usage.driver = Some(cx.waker().clone());
        let mut buf = Vec::with_capacity(READ_BYTES);
        while self.over.is_none() {
            buf.clear();
            match self.stream.try_read_buf(&mut buf) {
                Ok(0) => self.end(Over::Closed),
                Ok(_) => {
                    self.reads += 1;
                    if let Err(error) = self.core.receive(&buf) {
                        self.route();
                        self.flush();
                        self.end(Over::Wrong(error.words.into()));
                    }
                    self.route();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.stream.poll_readable(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(e)) => self.end(Over::failed(&e)),
                    Poll::Pending => break,
                },
                Err(e) => self.end(Over::failed(&e)),
            }
        }
        while self.over.is_none() && !self.flush() {
            match self.stream.poll_writable(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => self.end(Over::failed(&e)),
                Poll::Pending => break,
            }
        }
        let is_kept = self.is_kept();
        if self.usage.leased == 0 && is_kept {
            self.core.shrink();
        }
        std::task::ready!(self.usage.poll_unused(is_kept, sleep, cx));
        self.over.get_or_insert(Over::Closed);
        Poll::Ready(())
    }
}

struct H2Stream {
    lease: H2Lease,
    /// `None`: not started.
    id: Option<u32>,
    /// [`H2Inner::reads`] when the stream started.
    reads_before: u64,
    /// Unsent.
    block: Vec<u8>,
    out: Vec<u8>,
    at: usize,
    /// The queued bytes end the body.
    end: bool,
    sent_end: bool,
    response: MuxResponse,
    requests: u64,
    idle_timer: IdleTimer,
    counts: Counts,
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        let mut inner = self.lease.inner.borrow_mut();
        if let Some(id) = self.id {
            inner.slots.remove(&id);
            inner.core.forget(id);
            // A server that is silent since then may be gone: later requests get another connection.
            if inner.reads == self.reads_before {
                inner.usage.kept = false;
            }
            inner.push();
        }
        inner.usage.ended();
        // The lease ends afterwards, and wakes the task.
    }
}

impl H2Stream {
    fn new(lease: H2Lease, asked: &RequestFacts, block: Vec<u8>) -> H2Stream {
        let requests = {
            let mut inner = lease.inner.borrow_mut();
            inner.usage.requests += 1;
            inner.usage.requests
        };
        H2Stream {
            lease,
            id: None,
            reads_before: 0,
            block,
            out: Vec::new(),
            at: 0,
            end: false,
            sent_end: false,
            response: MuxResponse::new(asked),
            requests,
            idle_timer: IdleTimer::default(),
            counts: Counts::default(),
        }
    }
    fn translate(&mut self, event: ClientEvent) -> Result<ResponseEvent, MalformedResponse> {
        match event {
            ClientEvent::Head { list, end, octets, .. } => {
                self.counts.received += octets as u64;
                self.response.head(&list, end, octets)
            }
            ClientEvent::Body { bytes, end, octets, .. } => {
                self.counts.received += octets as u64;
                self.response.body(bytes.len())?;
                if end {
                    self.response.finish(Vec::new())?;
                }
                match bytes.is_empty() {
                    // The end precedes the next event.
                    true => Ok(self.poll_now().unwrap_or(ResponseEvent::Closed)),
                    false => Ok(ResponseEvent::Event(Event::Body(bytes))),
                }
            }
            ClientEvent::Trailers { list, octets, .. } => {
                self.counts.received += octets as u64;
                self.response.finish(trailer_lines(&list, "http2")?)?;
                Ok(self.poll_now().unwrap_or(ResponseEvent::Closed))
            }
            ClientEvent::Reset { code, unprocessed, .. } => {
                let wrong = MalformedResponse(format!("upstream rejected request with error {code}"));
                Ok(if unprocessed { ResponseEvent::Unprocessed(wrong) } else { ResponseEvent::Wrong(wrong) })
            }
            ClientEvent::Capacity(_) | ClientEvent::Counted { .. } | ClientEvent::Goaway => {
                Ok(self.poll_now().unwrap_or(ResponseEvent::Closed))
            }
        }
    }
}

impl MuxStream for H2Stream {
    fn requests(&self) -> u64 {
        self.requests
    }
    fn idle_timer(&mut self) -> &mut IdleTimer {
        &mut self.idle_timer
    }
    fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }
    fn queue(&mut self, piece: &[u8], end: bool) {
        if self.at == self.out.len() {
            self.out.clear();
            self.at = 0;
        }
        self.out.extend_from_slice(piece);
        self.end |= end;
    }
    fn is_flushed(&self) -> bool {
        self.id.is_some() && self.at == self.out.len() && (self.sent_end || !self.end)
    }
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        let mut inner = self.lease.inner.borrow_mut();
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
                inner.slots.insert(id, StreamSlot::default());
                self.counts.sent += self.block.len() as u64 + 9;
                self.block = Vec::new();
                (self.id, self.reads_before) = (Some(id), inner.reads);
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
                inner.usage.wake_driver();
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
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ResponseEvent> {
        if let Some(came) = self.poll_now() {
            return Poll::Ready(came);
        }
        let mut inner = self.lease.inner.borrow_mut();
        if let Some(slot) = self.id.and_then(|id| inner.slots.get_mut(&id)) {
            match &mut slot.waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                waker => *waker = Some(cx.waker().clone()),
            }
        }
        Poll::Pending
    }
    fn poll_now(&mut self) -> Option<ResponseEvent> {
        if let Some(end) = self.response.take_end() {
            return Some(end);
        }
        if self.response.is_ended() {
            return None;
        }
        let (event, over) = {
            let mut inner = self.lease.inner.borrow_mut();
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
                Some(self.translate(event).unwrap_or_else(ResponseEvent::Wrong))
            }
            None => over.map(Over::came),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_types::List;

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
