//! Requests of a multiplexed connection: heads, bodies, tunnels, over any `http_types::StreamMux`.
//! A request starts within the event; one that waits is a task (`stream.rs`), whose end, even by panic, ends only its
//! stream. [`StreamLink`] transfers octets or datagrams (`byte_carrier.rs` for byte streams).

mod body;
mod request;
mod rest;
mod stream;
mod tunnel;

pub use rest::Rest;

use crate::worker::Worker;
use http_engine::{ClientConnection, Request, engine};
use http_types::{ByStream, Event, SentBody, StreamId, StreamMux, Version};
use metrics::process;
use runtime::budget;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// Unsent octets above which streams wait.
pub const UNSENT_BYTES_MAX: usize = 64 * 1024;
/// [`UNSENT_BYTES_MAX`] of a socket without room.
const UNSENT_BYTES_MIN: usize = 16 * 1024;
/// Least octets of a piece that is sent in parts or asked for.
const PIECE_BYTES_MIN: usize = 4 * 1024;

/// Stream of the upgrading request (RFC 7540, 3.2).
const FIRST: StreamId = 1;

/// The connection below streams, as they see it.
pub trait StreamLink {
    /// Sends at the turn's end and arms the deadline.
    fn touch(self: Rc<Self>);
    /// Octets waiting for the socket or congestion window.
    fn unsent(&self) -> usize;
    /// Returns the octets that the socket takes, at most `wanted`.
    fn room(&self, wanted: usize) -> usize;
}

#[derive(Default)]
struct StreamsState {
    gone: Cell<bool>,
    /// Requests a WebSocket: a 2xx must be a tunnel.
    websocket: Cell<bool>,
    /// Octets sent, with framing.
    octets: Cell<u64>,
    /// Octets of the body that were read: the core forgets a stream that the client resets.
    read: Cell<u64>,
    /// Wakers of the body's reader, of the task without a window, and of the client's watch.
    body: RefCell<Option<Waker>>,
    window: RefCell<Option<Waker>>,
    watch: RefCell<Option<Waker>>,
}

impl http_engine::connection::BodyOctets for StreamsState {
    fn octets(&self) -> u64 {
        self.read.get()
    }
}

impl StreamsState {
    fn go(&self) {
        self.gone.set(true);
        for waker in [&self.body, &self.window, &self.watch] {
            wake(waker);
        }
    }
}

fn wake(waker: &RefCell<Option<Waker>>) {
    let waker = waker.borrow_mut().take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The streams of a connection, with their requests. The core is borrowed for single calls and never while a request
/// runs; [`Streams::act`] after each input of the core, `StreamLink::touch` after each output.
pub struct Streams {
    worker: Rc<Worker>,
    connection: RefCell<Rc<ClientConnection>>,
    link: Weak<dyn StreamLink>,
    core: Rc<RefCell<dyn StreamMux>>,
    open: RefCell<ByStream<Rc<StreamsState>>>,
    /// Streams waiting for less unsent octets.
    room: RefCell<Vec<(StreamId, Waker)>>,
    peer_goes: Cell<bool>,
    /// Upgrading request (stream 1), until the client starts HTTP/2.
    first: RefCell<Option<Box<Request>>>,
    /// Index of the protocol's version in the metrics.
    version: usize,
}

impl Drop for Streams {
    fn drop(&mut self) {
        process::MULTIPLEXED_ACTIVE.down_at(self.version);
    }
}

impl Streams {
    /// Begins without streams, and counts the connection.
    pub fn new(
        worker: &Rc<Worker>,
        connection: &Rc<ClientConnection>,
        link: Weak<dyn StreamLink>,
        core: Rc<RefCell<dyn StreamMux>>,
    ) -> Rc<Streams> {
        let version = usize::from(core.borrow().version() != Version::Http20);
        process::MULTIPLEXED.up_at(version);
        process::MULTIPLEXED_ACTIVE.up_at(version);
        Rc::new(Streams {
            worker: worker.clone(),
            connection: RefCell::new(connection.clone()),
            link,
            core,
            open: RefCell::default(),
            room: RefCell::default(),
            peer_goes: Cell::new(false),
            first: RefCell::default(),
            version,
        })
    }
    /// Returns the facts of the connection, as new requests get them.
    pub fn connection(&self) -> Rc<ClientConnection> {
        self.connection.borrow().clone()
    }
    /// Has later requests see other facts of the connection: its client has moved.
    pub fn set_connection(&self, connection: &Rc<ClientConnection>) {
        *self.connection.borrow_mut() = connection.clone();
    }
    /// Tells whether no stream has a request.
    pub fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }
    /// Tells whether the client has announced its last request (GOAWAY).
    pub fn peer_goes(&self) -> bool {
        self.peer_goes.get()
    }
    /// Tells whether the upgrading request waits for the begin of HTTP/2.
    pub fn is_upgrading(&self) -> bool {
        self.first.borrow().is_some()
    }

    /// Processes the core's events: starts requests, and wakes those that wait.
    pub fn act(self: &Rc<Self>) {
        loop {
            let event = self.core.borrow_mut().poll_event();
            let Some(event) = event else { break };
            match event {
                Event::Head { stream, list, message, end, octets } => self.request(stream, list, message, end, octets),
                Event::Body(id) => self.with(id, |shared| wake(&shared.body)),
                Event::Capacity(id) => self.with(id, |shared| wake(&shared.window)),
                Event::Reset(id) => {
                    let shared = self.open.borrow_mut().remove(&id);
                    if let Some(shared) = shared {
                        process::STREAMS_RESET.up_at(self.version);
                        shared.go();
                    }
                }
                Event::Goaway => {
                    process::GOAWAYS.up_at(self.version);
                    self.peer_goes.set(true);
                }
            }
        }
    }

    /// Keeps the upgrading request until [`Streams::answer_first`]: clients have little room behind a 101.
    pub fn set_first(&self, r: Box<Request>) {
        *self.first.borrow_mut() = Some(r);
    }
    /// Answers the upgrading request once the client has started HTTP/2.
    pub fn answer_first(self: &Rc<Self>) {
        let r = self.first.borrow_mut().take();
        if let Some(mut r) = r {
            let shared = Rc::new(StreamsState::default());
            self.open.borrow_mut().insert(FIRST, shared.clone());
            r.incoming.set_watch(Some(Rc::new(body::Watch::new(self.clone(), FIRST, shared))));
            stream::answer_stream(self, FIRST, engine::start_phases(r));
        }
    }

    fn with(&self, id: StreamId, act: impl FnOnce(&StreamsState)) {
        let shared = self.open.borrow().get(&id).cloned();
        if let Some(shared) = shared {
            act(&shared);
        }
    }

    /// Ends all streams: the connection has failed or is cut off. Tasks notice when they are woken.
    pub fn cut_off(&self) {
        let all: Vec<_> = self.open.borrow_mut().drain().collect();
        for (_, shared) in all {
            shared.go();
        }
        for (_, waker) in self.room.take() {
            waker.wake();
        }
    }

    /// Handles QUIT: the core announces the last request, and later ones are refused.
    pub fn begin_quit(&self) {
        self.core.borrow_mut().begin_shutdown();
        self.touch();
    }

    fn touch(&self) {
        if let Some(link) = self.link.upgrade() {
            link.touch();
        }
    }
    fn unsent(&self) -> usize {
        self.link.upgrade().map_or(0, |link| link.unsent())
    }

    fn is_full(&self) -> bool {
        self.free(1) == 0
    }
    /// Returns the octets that may be queued for the socket, at most `wanted`.
    fn free(&self, wanted: usize) -> usize {
        let Some(link) = self.link.upgrade() else { return wanted };
        let unsent = link.unsent();
        let total = unsent.saturating_add(wanted).min(UNSENT_BYTES_MAX);
        let most = if total <= UNSENT_BYTES_MIN { total } else { link.room(total).max(UNSENT_BYTES_MIN) };
        most.saturating_sub(unsent).min(wanted)
    }
    /// Returns [`http_engine::request::Reply::piece_room`].
    fn piece_room(&self) -> u32 {
        match self.free(UNSENT_BYTES_MAX / 2) {
            room if room == UNSENT_BYTES_MAX / 2 => 0,
            room => room.max(PIECE_BYTES_MIN) as u32,
        }
    }

    /// Wakes waiting streams by priority; each takes the remaining room.
    pub fn make_room(&self) {
        let mut waiting = self.room.take();
        if waiting.len() > 1 {
            let core = self.core.borrow();
            waiting.sort_by_cached_key(|(id, _)| core.rank(*id));
        }
        for (_, waker) in waiting {
            waker.wake();
        }
    }

    fn finished(self: &Rc<Self>, id: StreamId) {
        self.core.borrow_mut().finish(id);
        self.open.borrow_mut().remove(&id);
        self.touch();
    }

    /// Returns the octets that may be sent; pending without a window, `None` after the stream has ended.
    fn poll_capacity(&self, id: StreamId, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let shared = self.open.borrow().get(&id).filter(|shared| !shared.gone.get()).cloned();
        let Some(shared) = shared else { return Poll::Ready(None) };
        match self.core.borrow_mut().capacity(id) {
            Some(0) => {
                *shared.window.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
            capacity => Poll::Ready(capacity),
        }
    }

    /// Waits for room for output without a window, such as heads. Returns `false` after the stream has ended.
    fn poll_room(self: &Rc<Self>, id: StreamId, cx: &mut Context<'_>) -> Poll<bool> {
        std::task::ready!(budget::poll_proceed(cx));
        if self.open.borrow().get(&id).is_none_or(|shared| shared.gone.get()) {
            return Poll::Ready(false);
        }
        if self.is_full() {
            self.room.borrow_mut().push((id, cx.waker().clone()));
            self.touch();
            return Poll::Pending;
        }
        Poll::Ready(true)
    }

    /// Sends body by `send` and returns the octets taken. Pending without a window, or with too much unsent.
    fn poll_send(
        self: &Rc<Self>,
        id: StreamId,
        is_empty: bool,
        cx: &mut Context<'_>,
        send: impl FnOnce(&mut dyn StreamMux) -> SentBody,
    ) -> Poll<Option<usize>> {
        if !std::task::ready!(self.poll_room(id, cx)) {
            return Poll::Ready(None);
        }
        let Some(shared) = self.open.borrow().get(&id).cloned() else { return Poll::Ready(None) };
        let mut core = self.core.borrow_mut();
        let Some(capacity) = core.capacity(id) else { return Poll::Ready(None) };
        if capacity == 0 && !is_empty {
            *shared.window.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let sent = send(&mut *core);
        drop(core);
        shared.octets.set(shared.octets.get() + sent.octets as u64);
        budget::spend(sent.taken + 256);
        self.touch();
        Poll::Ready(Some(sent.taken))
    }
}
