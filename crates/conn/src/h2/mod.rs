//! HTTP/2 over a client's connection. The connection stays idle: the thread's loop feeds what has come to the protocol core
//! (`wire-h2`), starts each request at once, and sends what all streams have to say with one write at the end of the turn. A
//! request that must wait is a task (`stream.rs`); its end, also by a panic, is the end of its stream and of nothing else.

mod body;
mod request;
mod stream;
mod tunnel;
pub mod upgrade;

use crate::link::Link;
use crate::secure::Secure;
use crate::task::{self, Start};
use crate::worker::{Registration, Worker};
use base::clock;
use http_engine::{Connection, counters};
use net::poller::Key;
use observe::Level;
use runtime::budget;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wire_h2::{ByStream, ConnectionError, Event, Limits, Server};

/// Octets that wait for the socket; streams wait while there are more.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// What a request and the connection share of a stream.
#[derive(Default)]
struct Shared {
    gone: Cell<bool>,
    /// A WebSocket is asked for: only a tunnel is an answer with 2xx.
    websocket: Cell<bool>,
    /// Who waits: for body, for a window, for the client's going away.
    body: RefCell<Option<Waker>>,
    window: RefCell<Option<Waker>>,
    watch: RefCell<Option<Waker>>,
}

impl Shared {
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

/// One connection.
pub struct H2 {
    worker: Rc<Worker>,
    key: Key,
    link: Link,
    connection: Rc<Connection>,
    core: RefCell<Server>,
    streams: RefCell<ByStream<Rc<Shared>>>,
    /// Streams that wait until less is unsent.
    room: RefCell<Vec<(u32, Waker)>>,
    /// A task waits for the socket.
    writing: Cell<bool>,
    dirty: Cell<bool>,
    /// The client will begin no more streams.
    peer_goes: Cell<bool>,
    lost: Cell<bool>,
    /// A head has begun to come, and until when it may take is known.
    heading: Cell<bool>,
    /// The request that asked for HTTP/2, until the client has begun with it.
    upgrading: RefCell<Option<Box<http_engine::Request>>>,
}

/// Whether these first octets of a connection are those of HTTP/2; `None`: it cannot be told yet.
pub fn is_preface(bytes: &[u8]) -> Option<bool> {
    let n = bytes.len().min(wire_h2::PREFACE.len());
    if bytes.get(..n) != wire_h2::PREFACE.get(..n) {
        return Some(false);
    }
    (n == wire_h2::PREFACE.len()).then_some(true)
}

/// A connection speaks HTTP/2 from its first octets on, which are these.
pub fn begin(worker: &Rc<Worker>, key: Key, connection: &Rc<Connection>, secure: Option<&Rc<Secure>>, bytes: &[u8]) {
    let h2 = H2::new(worker, key, connection, secure);
    worker.poller.set_registration(key, Registration::H2(h2.clone()));
    // Small frames follow each other; none must wait for the acknowledgement of another.
    worker.no_delay(key, connection);
    h2.receive(bytes);
    h2.touch();
    worker.poller.again_if_readable(key);
}

fn limits(worker: &Worker, connection: &Connection) -> Limits {
    let head = crate::head_in::limits(worker, connection);
    // Without a plan nothing is served; the default's values bound what is read meanwhile.
    let (size, count) = worker.default_conf(connection).map_or((8 * 1024, 4), |core| {
        let buffers = core.conf.large_client_header_buffers;
        (buffers.size as usize, buffers.count as usize)
    });
    let plan = worker.plan.borrow();
    let conf =
        plan.as_ref().and_then(|plan| Some(plan.servers.get(plan.listener_of(connection)?.default_server)?.http2));
    let conf = conf.unwrap_or_default();
    Limits {
        streams_max: conf.streams_max,
        list_max: size * count,
        field_max: size,
        fields_max: head.fields_max,
        underscores: head.underscores,
        ignore_invalid: head.ignore_invalid,
        stream_window: conf.preread_bytes,
        extended_connect: conf.websockets,
    }
}

/// A connection turned readable.
pub fn readable(worker: &Rc<Worker>, key: Key, h2: &Rc<H2>) {
    let Ok(mut buf) = worker.read_buf.try_borrow_mut() else { return };
    buf.clear();
    match h2.link.recv(&mut buf) {
        Ok(n) if n > 0 => h2.receive(&buf),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
        _ => return worker.close(key),
    }
    drop(buf);
    h2.touch();
    worker.poller.again_if_readable(key);
}

/// A connection's deadline has come.
pub fn timed_out(worker: &Rc<Worker>, key: Key, h2: &Rc<H2>) {
    if h2.core.borrow_mut().give_up_block() {
        h2.heading.set(false);
        return h2.touch();
    }
    h2.core.borrow_mut().shutdown();
    let _ = h2.write();
    worker.close(key);
}

impl H2 {
    fn new(worker: &Rc<Worker>, key: Key, connection: &Rc<Connection>, secure: Option<&Rc<Secure>>) -> Rc<H2> {
        Rc::new(H2 {
            worker: worker.clone(),
            key,
            link: Link { worker: worker.clone(), key, secure: secure.cloned() },
            connection: connection.clone(),
            core: RefCell::new(Server::new(limits(worker, connection))),
            streams: RefCell::default(),
            room: RefCell::default(),
            writing: Cell::new(false),
            dirty: Cell::new(false),
            peer_goes: Cell::new(false),
            lost: Cell::new(false),
            heading: Cell::new(false),
            upgrading: RefCell::default(),
        })
    }
    pub fn connection(&self) -> Rc<Connection> {
        self.connection.clone()
    }
    /// No request is under way.
    pub fn is_idle(&self) -> bool {
        self.streams.borrow().is_empty()
    }
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Takes octets in and acts on what they say.
    fn receive(self: &Rc<Self>, bytes: &[u8]) {
        let result = self.core.borrow_mut().receive(bytes);
        if result.is_ok() && self.core.borrow().has_preface() {
            upgrade::answer(self);
        }
        loop {
            let event = self.core.borrow_mut().poll_event();
            let Some(event) = event else { break };
            match event {
                Event::Head { stream, list, request, end, octets } => self.request(stream, list, request, end, octets),
                Event::Body(id) => self.with(id, |shared| wake(&shared.body)),
                Event::Capacity(id) => self.with(id, |shared| wake(&shared.window)),
                Event::Reset(id) => {
                    let shared = self.streams.borrow_mut().remove(&id);
                    if let Some(shared) = shared {
                        shared.go();
                    }
                }
                Event::Goaway => self.peer_goes.set(true),
            }
        }
        if let Err(error) = result {
            self.fail(&error);
        }
    }

    fn with(&self, id: u32, act: impl FnOnce(&Shared)) {
        let shared = self.streams.borrow().get(&id).cloned();
        if let Some(shared) = shared {
            act(&shared);
        }
    }

    /// The client has broken the rules of the connection: it is told, and the connection closed.
    fn fail(self: &Rc<Self>, error: &ConnectionError) {
        let client = http_engine::variables::peer_text(&self.connection);
        let (words, local) = (error.words, &self.connection.local);
        self.worker.log(
            Level::Info,
            self.connection.number,
            format_args!("{words} while processing HTTP/2 connection, client: {client}, server: {local}"),
        );
        let _ = self.write();
        self.let_go();
        if self.lost.replace(true) {
            return;
        }
        // What it still sends is read, so that it sees why.
        task::spawn(&self.worker, self.key, &self.connection, Start::Linger);
    }

    /// Ends all streams: their requests learn that nobody waits any more.
    pub fn let_go(&self) {
        let all: Vec<_> = self.streams.borrow_mut().drain().collect();
        for (_, shared) in all {
            shared.go();
        }
        for (_, waker) in self.room.take() {
            waker.wake();
        }
    }

    /// The connection has something to send, or to decide, at the end of the turn.
    pub fn touch(self: &Rc<Self>) {
        if !self.dirty.replace(true) {
            self.worker.dirty.borrow_mut().push(self.clone());
        }
    }

    /// The end of a turn in which something was done: one write for all streams.
    pub fn end_of_turn(self: &Rc<Self>) {
        self.dirty.set(false);
        if self.lost.get() || self.worker.poller.raw(self.key).is_none() {
            return;
        }
        match self.write() {
            Ok(()) => self.make_room(),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_for_socket(),
            Err(_) => return self.worker.close(self.key),
        }
        self.set_deadline();
    }

    fn write(&self) -> io::Result<()> {
        let mut core = self.core.borrow_mut();
        while !core.output().is_empty() {
            let n = self.link.send(&[IoSlice::new(core.output())], false)?;
            core.advance(n);
        }
        drop(core);
        self.link.flush()
    }

    fn unsent(&self) -> usize {
        self.core.borrow().output().len()
    }

    /// A task writes what the socket did not take.
    fn wait_for_socket(self: &Rc<Self>) {
        if self.writing.replace(true) {
            return;
        }
        let h2 = self.clone();
        runtime::task::spawn_local(async move {
            let _guard = CloseOnPanic(h2.clone());
            let timeout = h2.send_timeout();
            let end = loop {
                match runtime::time::timeout(timeout, poll_fn(|cx| h2.link.poll_writable(cx))).await {
                    Ok(true) => {}
                    Ok(false) => break false,
                    Err(_) => {
                        h2.worker.log(Level::Info, h2.connection.number, format_args!("client timed out"));
                        break false;
                    }
                }
                match h2.write() {
                    Ok(()) => break true,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        if h2.unsent() < UNSENT_BYTES_MAX / 2 {
                            h2.make_room();
                        }
                    }
                    Err(_) => break false,
                }
            };
            h2.writing.set(false);
            if end {
                h2.make_room();
                h2.touch();
            } else {
                h2.worker.close(h2.key);
            }
        });
    }

    /// Streams that wait go on, those first that matter most: each takes what room there is.
    fn make_room(&self) {
        let mut waiting = self.room.take();
        self.core.borrow().sort_by_priority(&mut waiting);
        for (_, waker) in waiting {
            waker.wake();
        }
    }

    fn send_timeout(&self) -> Duration {
        self.worker
            .default_conf(&self.connection)
            .map_or(Duration::from_secs(60), |core| core.conf.send_timeout.duration())
    }

    /// Nothing is to be done: until when the connection may stay.
    fn set_deadline(self: &Rc<Self>) {
        let (is_idle, within, going, has_begun) = {
            let core = self.core.borrow();
            (core.is_idle(), core.is_within_head(), core.is_going(), core.has_begun())
        };
        let is_upgrading = self.upgrading.borrow().is_some();
        if is_upgrading && self.unsent() == 0 {
            // The preface has the time of a head.
            return self.wait_for_head();
        }
        if !is_idle || !self.streams.borrow().is_empty() || self.unsent() > 0 || self.link.has_unsent() {
            self.heading.set(false);
            // Streams have times of their own.
            self.worker.poller.set_deadline(self.key, clock::Instant(u64::MAX));
            return;
        }
        if going || self.peer_goes.get() || self.worker.quitting.get() {
            self.core.borrow_mut().shutdown();
            let _ = self.write();
            self.lost.set(true);
            return task::spawn(&self.worker, self.key, &self.connection, Start::Linger);
        }
        if within || !has_begun {
            self.wait_for_head();
        } else {
            let conf = self.worker.default_conf(&self.connection);
            let millis = conf.map_or(75_000, |core| core.conf.keepalive_timeout.millis);
            self.worker.poller.set_deadline(self.key, clock::now().plus_millis(millis));
            self.heading.set(false);
        }
        self.core.borrow_mut().shrink();
        self.link.shrink();
    }

    /// What has begun has `client_header_timeout` to come whole; drops that come now and then do not keep it.
    fn wait_for_head(&self) {
        if !self.heading.replace(true) {
            let conf = self.worker.default_conf(&self.connection);
            let millis = conf.map_or(60_000, |core| core.conf.client_header_timeout.0);
            self.worker.poller.set_deadline(self.key, clock::now().plus_millis(millis));
        }
    }

    /// QUIT: no more streams; those that are there go on.
    pub fn begin_quit(self: &Rc<Self>) {
        self.core.borrow_mut().shutdown();
        self.touch();
    }

    /// The request of a stream is done, or given up.
    fn finished(self: &Rc<Self>, id: u32) {
        self.core.borrow_mut().finish(id);
        self.streams.borrow_mut().remove(&id);
        self.touch();
    }

    /// How much may be sent; pending while there is no window. `None`: the stream is gone.
    fn poll_capacity(&self, id: u32, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let shared = self.streams.borrow().get(&id).filter(|shared| !shared.gone.get()).cloned();
        let Some(shared) = shared else { return Poll::Ready(None) };
        match self.core.borrow_mut().capacity(id) {
            Some(0) => {
                *shared.window.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
            capacity => Poll::Ready(capacity),
        }
    }

    /// Sends body; how much was taken. Pending while there is no window, or too much is unsent.
    fn poll_send(
        self: &Rc<Self>,
        id: u32,
        body: &[u8],
        frame_max: usize,
        end: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<usize>> {
        std::task::ready!(budget::poll_proceed(cx));
        let Some(shared) = self.streams.borrow().get(&id).cloned() else { return Poll::Ready(None) };
        if shared.gone.get() {
            return Poll::Ready(None);
        }
        if self.unsent() >= UNSENT_BYTES_MAX {
            self.room.borrow_mut().push((id, cx.waker().clone()));
            self.touch();
            return Poll::Pending;
        }
        let mut core = self.core.borrow_mut();
        let Some(capacity) = core.capacity(id) else { return Poll::Ready(None) };
        if capacity == 0 && !body.is_empty() {
            *shared.window.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = core.send_body(id, body, frame_max, end);
        drop(core);
        budget::spend(n + 256);
        self.touch();
        Poll::Ready(Some(n))
    }
}

/// Who panics while it writes does not know what has left: the connection cannot go on.
struct CloseOnPanic(Rc<H2>);

impl Drop for CloseOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.worker.close(self.0.key);
        }
    }
}

/// Counts a request.
fn count() {
    counters::own(|c| counters::up(&c.requests));
}
