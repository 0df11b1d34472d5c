//! Upstream HTTP/3 connection: its task transfers, and each request has an [`H3Stream`].
//! Bounds: [`STREAMS_MAX`] streams (or the server's limit), 256 KB of unread bytes per stream, 64 KB of unsent ones.

use super::quic::{QuicLink, turn_now};
use super::response::{MuxResponse, is_interim, trailer_lines};
use super::usage::{KeptConnections, STREAMS_MAX, SharedConnection, Usage};
use super::{Lease, MuxStream, Over};
use crate::client::{Counts, ResponseEvent, Stop};
use crate::codec::{Event, MalformedResponse, RequestFacts};
use crate::group::Group;
use crate::pool::IdleTimer;
use crate::scope::Scope;
use base::clock::{self, Instant};
use http_types::{ByStream, TakenLines};
use net::Address;
use runtime::time::Sleep;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use tls::quic::ClientCrypto;
use transport::ConnectOptions;
use wire_h3::client::{Client, ClientEvent, ClientLimits};

/// Unread interim responses at most; further ones are dropped.
const INTERIM_WAITING_MAX: usize = 16;
/// H3_NO_ERROR and H3_REQUEST_REJECTED (RFC 9114, 8.1).
const NO_ERROR: u64 = 0x100;
const REQUEST_REJECTED: u64 = 0x10b;

#[derive(Default)]
struct StreamSlot {
    events: VecDeque<ClientEvent>,
    waker: Option<Waker>,
}

/// A connection: the core with its `quinn_proto::Connection`, and the socket below.
///
/// Leases, streams and the connection's task share it, and borrow it for single calls. Wakers that run meanwhile only
/// mark tasks. The task ([`H3Inner::poll_drive`]) receives, then drives the core and routes its events, then transmits
/// and arms QUIC's timer. A stream that has changed the core calls [`H3Inner::push`], which transmits at once and wakes
/// the task for the rest.
struct H3Inner {
    core: Client,
    link: QuicLink,
    slots: ByStream<StreamSlot>,
    /// Tasks waiting for the handshake, or for a stream.
    waiting: Vec<Waker>,
    is_connected: bool,
    is_going: bool,
    over: Option<Over>,
    usage: Usage,
}

/// A right to one stream of an HTTP/3 connection; the connection counts it until it is dropped. The connection's task
/// flushes, not the lease.
pub struct H3Lease {
    inner: Rc<RefCell<H3Inner>>,
}

impl Drop for H3Lease {
    fn drop(&mut self) {
        self.inner.borrow_mut().usage.give_back();
    }
}

thread_local! {
    static KEPT: RefCell<KeptConnections<H3Inner>> = RefCell::default();
    /// Connections of the thread, kept or not.
    static OPEN: RefCell<Vec<Weak<RefCell<H3Inner>>>> = const { RefCell::new(Vec::new()) };
}

/// Closes all connections of a thread that ends. Servers would wait for the acknowledgements of a client that has gone: for UDP, the
/// kernel tells them nothing.
pub fn close_all() {
    for inner in OPEN.take().iter().filter_map(Weak::upgrade) {
        let inner = &mut *inner.borrow_mut();
        inner.core.close(turn_now());
        inner.link.transmit(inner.core.quic());
    }
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
    Some(Box::new(H3Lease { inner }))
}

/// A connection that is not made.
#[derive(Debug)]
pub enum ConnectError {
    /// A system call failed, or address or options ask for more than QUIC can do.
    Io(io::Error),
    /// The handshake failed, or the server closed the connection; QUIC's reason.
    Handshake(String),
}

impl H3Lease {
    /// Connects within a thread's executor, with the handshake.
    pub async fn connect(
        crypto: ClientCrypto,
        options: &ConnectOptions,
        group: &Group,
        address: &Address,
        scope: Scope,
    ) -> Result<H3Lease, ConnectError> {
        let lease = H3Lease::open(crypto, options, Usage::new(group, address.clone(), scope), address).await?;
        KEPT.with_borrow_mut(|kept| kept.add(group, scope, &lease.inner));
        Ok(lease)
    }

    /// [`H3Lease::connect`] for a connection that only [`Lease::share`] finds.
    ///
    /// # Errors
    /// As for [`H3Lease::connect`].
    pub async fn alone(
        crypto: ClientCrypto,
        options: &ConnectOptions,
        address: &Address,
    ) -> Result<H3Lease, ConnectError> {
        H3Lease::open(crypto, options, Usage::alone(address.clone()), address).await
    }

    async fn open(
        crypto: ClientCrypto,
        options: &ConnectOptions,
        usage: Usage,
        address: &Address,
    ) -> Result<H3Lease, ConnectError> {
        let Address::Ip(to) = address else { return Err(ConnectError::Io(io::ErrorKind::Unsupported.into())) };
        let (link, quic) = QuicLink::open(*to, options, crypto, STREAMS_MAX).map_err(ConnectError::Io)?;
        let inner = Rc::new(RefCell::new(H3Inner {
            core: Client::new(quic, ClientLimits::default()),
            link,
            slots: ByStream::default(),
            waiting: Vec::new(),
            is_connected: false,
            is_going: false,
            over: None,
            usage,
        }));
        OPEN.with_borrow_mut(|open| {
            open.retain(|inner| inner.strong_count() > 0);
            open.push(Rc::downgrade(&inner));
        });
        let driven = inner.clone();
        runtime::task::spawn_local(async move {
            let (mut timer, mut idle) = (None, None);
            std::future::poll_fn(|cx| driven.borrow_mut().poll_drive(cx, &mut timer, &mut idle)).await;
        });
        // Dropped when the caller waits no longer: the task then ends.
        let lease = H3Lease { inner };
        std::future::poll_fn(|cx| lease.inner.borrow_mut().poll_connected(cx)).await?;
        Ok(lease)
    }
}

impl Lease for H3Lease {
    fn share(&self) -> Option<Box<dyn Lease>> {
        let mut inner = self.inner.borrow_mut();
        if inner.over.is_some() || inner.is_going {
            return None;
        }
        inner.usage.leased += 1;
        Some(Box::new(H3Lease { inner: self.inner.clone() }))
    }
    fn begin(self: Box<Self>, asked: &RequestFacts, block: Vec<u8>) -> Box<dyn MuxStream> {
        let requests = {
            let mut inner = self.inner.borrow_mut();
            inner.usage.requests += 1;
            inner.usage.requests
        };
        Box::new(H3Stream {
            lease: *self,
            id: None,
            block,
            out: Vec::new(),
            at: 0,
            end: false,
            sent_end: false,
            response: MuxResponse::new(asked),
            has_head: false,
            requests,
            idle_timer: IdleTimer::default(),
            counts: Counts::default(),
        })
    }
}

impl SharedConnection for H3Inner {
    fn usage(&mut self) -> &mut Usage {
        &mut self.usage
    }
    fn is_kept(&self) -> bool {
        self.usage.kept && self.over.is_none() && !self.is_going
    }
    fn has_streams(&mut self) -> bool {
        self.usage.leased < STREAMS_MAX && self.core.reserve()
    }
}

impl H3Inner {
    fn end(&mut self, why: Over) {
        self.over.get_or_insert(why);
        self.slots.values_mut().filter_map(|slot| slot.waker.take()).for_each(Waker::wake);
        self.waiting.drain(..).for_each(Waker::wake);
    }

    fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        match &self.over {
            Some(Over::Failed(_, Some(code))) => {
                Poll::Ready(Err(ConnectError::Io(io::Error::from_raw_os_error(*code))))
            }
            Some(Over::Failed(kind, None)) => Poll::Ready(Err(ConnectError::Io((*kind).into()))),
            Some(Over::Wrong(words)) => Poll::Ready(Err(ConnectError::Handshake(words.clone()))),
            Some(Over::Closed) => Poll::Ready(Err(ConnectError::Handshake("connection closed".into()))),
            None if self.is_connected => Poll::Ready(Ok(())),
            None => {
                self.waiting.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn route(&mut self) {
        while let Some(event) = self.core.poll_event() {
            let id = match &event {
                ClientEvent::Head { stream, .. }
                | ClientEvent::Trailers { stream, .. }
                | ClientEvent::Reset { stream, .. }
                | ClientEvent::Body(stream)
                | ClientEvent::Capacity(stream) => *stream,
                ClientEvent::Connected { .. } => {
                    self.is_connected = true;
                    continue;
                }
                ClientEvent::Goaway(from) => {
                    self.is_going = true;
                    self.refuse(*from);
                    continue;
                }
                ClientEvent::Lost(why) => {
                    let why = if self.is_connected { Over::Closed } else { Over::Wrong(why.clone()) };
                    self.end(why);
                    continue;
                }
                ClientEvent::Settings(_) => continue,
            };
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            match &event {
                ClientEvent::Body(_) | ClientEvent::Capacity(_) => {}
                ClientEvent::Head { list, .. } if slot.events.len() >= INTERIM_WAITING_MAX && is_interim(list) => {}
                _ => slot.events.push_back(event),
            }
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    /// Returns requests that the server leaves out (RFC 9114, 5.2).
    fn refuse(&mut self, from: u64) {
        let left: Vec<u64> = self.slots.keys().copied().filter(|id| *id >= from).collect();
        for id in left {
            self.core.cancel(id);
            if let Some(slot) = self.slots.get_mut(&id) {
                slot.events = VecDeque::from([ClientEvent::Reset { stream: id, code: REQUEST_REJECTED }]);
                slot.waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Sends at once; the task sends the rest.
    fn push(&mut self) {
        if !self.link.transmit(self.core.quic()) {
            self.usage.wake_driver();
        }
    }

    /// Drives a connection: receives, sends, and ends an unused one.
    fn poll_drive(&mut self, cx: &mut Context<'_>, timer: &mut Option<Sleep>, idle: &mut Option<Sleep>) -> Poll<()> {
        self.usage.driver = Some(cx.waker().clone());
        loop {
            if let Err(e) = self.link.receive(self.core.quic(), cx) {
                self.end(Over::failed(&e));
            }
            let due = self.core.quic().poll_timeout().is_some_and(|at| at <= turn_now());
            if due {
                self.core.quic().handle_timeout(turn_now());
            }
            self.core.drive();
            self.route();
            if let Some(error) = self.core.failure() {
                self.core.close(turn_now());
                self.end(Over::Wrong(error.words.into()));
            }
            // Streams may have been allowed, or the handshake have ended.
            self.waiting.drain(..).for_each(Waker::wake);
            let is_kept = self.is_kept();
            let is_unused = self.usage.poll_unused(is_kept, idle, cx).is_ready();
            if is_unused || self.over.is_some() {
                if is_unused {
                    self.core.close(turn_now());
                }
                self.link.transmit(self.core.quic());
                self.over.get_or_insert(Over::Closed);
                return if self.usage.leased == 0 { Poll::Ready(()) } else { Poll::Pending };
            }
            if !self.link.transmit(self.core.quic()) {
                self.link.poll_room(cx);
            }
            let Some(at) = self.core.quic().poll_timeout() else { return Poll::Pending };
            let until = clock::now().plus(at.saturating_duration_since(turn_now()));
            let timer = timer.get_or_insert_with(|| runtime::time::sleep_until(until));
            if timer.deadline() != until {
                timer.reset(until);
            }
            if Pin::new(timer).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

struct H3Stream {
    lease: H3Lease,
    /// `None`: not started.
    id: Option<u64>,
    /// Unsent.
    block: Vec<u8>,
    out: Vec<u8>,
    at: usize,
    /// The queued bytes end the body.
    end: bool,
    sent_end: bool,
    response: MuxResponse,
    /// The final head has arrived: the body can be read.
    has_head: bool,
    requests: u64,
    idle_timer: IdleTimer,
    counts: Counts,
}

impl Drop for H3Stream {
    fn drop(&mut self) {
        let mut inner = self.lease.inner.borrow_mut();
        if let Some(id) = self.id {
            inner.slots.remove(&id);
            inner.core.cancel(id);
            inner.push();
        }
        inner.usage.ended();
        // The lease ends afterwards, and wakes the task.
    }
}

impl H3Stream {
    /// Begins the request. `Pending`: the server allows no stream for now.
    fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<u64, Stop>> {
        if let Some(id) = self.id {
            return Poll::Ready(Ok(id));
        }
        let inner = &mut *self.lease.inner.borrow_mut();
        if inner.over.is_some() || inner.is_going {
            return Poll::Ready(Err(Stop::Refused));
        }
        let nothing = self.end && self.out.is_empty();
        let Some(id) = inner.core.open_encoded(&self.block, nothing) else {
            inner.waiting.push(cx.waker().clone());
            return Poll::Pending;
        };
        inner.slots.insert(id, StreamSlot::default());
        self.counts.sent += self.block.len() as u64;
        self.block = Vec::new();
        self.id = Some(id);
        self.sent_end = nothing;
        Poll::Ready(Ok(id))
    }

    fn translate(&mut self, event: ClientEvent) -> Result<ResponseEvent, MalformedResponse> {
        match event {
            ClientEvent::Head { status, list, octets, .. } => {
                self.counts.received += octets as u64;
                self.has_head = status >= 200;
                self.response.head(&list, false, octets)
            }
            ClientEvent::Trailers { list, .. } => {
                self.response.finish(trailer_lines(&list, "http3")?)?;
                Ok(self.poll_now().unwrap_or(ResponseEvent::Closed))
            }
            ClientEvent::Reset { code: REQUEST_REJECTED, .. } => {
                Ok(ResponseEvent::Unprocessed(MalformedResponse("upstream rejected request".into())))
            }
            ClientEvent::Reset { code: NO_ERROR, .. } => Ok(ResponseEvent::Closed),
            ClientEvent::Reset { code, .. } => {
                Err(MalformedResponse(format!("upstream rejected request with error {code:#x}")))
            }
            _ => Ok(self.poll_now().unwrap_or(ResponseEvent::Closed)),
        }
    }

    fn read(&mut self, id: u64) -> Option<ResponseEvent> {
        let taken = {
            let inner = &mut *self.lease.inner.borrow_mut();
            let taken = inner.core.take_body(id);
            inner.route();
            if !matches!(taken, TakenLines::Later) {
                // Windows that have opened, or the end of the stream.
                inner.push();
            }
            taken
        };
        let result = match taken {
            TakenLines::Bytes(bytes) => {
                self.idle_timer.renew();
                self.counts.received += bytes.len() as u64;
                self.response.body(bytes.len()).map(|()| Some(ResponseEvent::Event(Event::Body(bytes))))
            }
            TakenLines::Later => Ok(None),
            TakenLines::End => match self.next_event(id) {
                Some(event) => self.translate(event).map(Some),
                None => self.response.finish(Vec::new()).map(|()| self.response.take_end()),
            },
            TakenLines::Broken => Err("upstream sent a body that contradicts its frames".into()),
            TakenLines::Gone => match self.next_event(id) {
                Some(event) => self.translate(event).map(Some),
                None => Ok(Some(self.over().unwrap_or(ResponseEvent::Closed))),
            },
        };
        result.unwrap_or_else(|wrong| Some(ResponseEvent::Wrong(wrong)))
    }

    fn next_event(&mut self, id: u64) -> Option<ClientEvent> {
        self.lease.inner.borrow_mut().slots.get_mut(&id)?.events.pop_front()
    }

    fn over(&self) -> Option<ResponseEvent> {
        self.lease.inner.borrow().over.clone().map(Over::came)
    }
}

impl MuxStream for H3Stream {
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
        let id = std::task::ready!(self.poll_begin(cx))?;
        let inner = &mut *self.lease.inner.borrow_mut();
        while self.at < self.out.len() || (self.end && !self.sent_end) {
            if !inner.core.takes_body(id) {
                inner.push();
                return Poll::Ready(Err(Stop::Refused));
            }
            let rest = self.out.get(self.at..).unwrap_or_default();
            let n = inner.core.send_body(id, rest, self.end);
            let all = n == rest.len();
            self.at += n;
            self.counts.sent += n as u64;
            self.sent_end = self.end && all;
            if n > 0 {
                self.idle_timer.renew();
            }
            if !all {
                if let Some(slot) = inner.slots.get_mut(&id) {
                    slot.waker = Some(cx.waker().clone());
                }
                inner.push();
                return Poll::Pending;
            }
        }
        inner.push();
        Poll::Ready(Ok(()))
    }
    fn poll_now(&mut self) -> Option<ResponseEvent> {
        if let Some(end) = self.response.take_end() {
            return Some(end);
        }
        if self.response.is_ended() {
            return None;
        }
        let Some(id) = self.id else { return self.over() };
        if let Some(event) = self.next_event(id) {
            self.idle_timer.renew();
            return Some(self.translate(event).unwrap_or_else(ResponseEvent::Wrong));
        }
        match self.has_head {
            true => self.read(id),
            false => self.over(),
        }
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
}
