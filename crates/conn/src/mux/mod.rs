//! HTTP/2 over a client's connection. The connection stays idle: the thread's loop feeds what has come to the protocol core
//! (`wire-mux`), starts each request at once, and sends what all streams have to say with one write at the end of the turn. A
//! request that must wait is a task (`stream.rs`); its end, also by a panic, is the end of its stream and of nothing else.

mod body;
mod request;
mod stream;
mod tunnel;

use crate::link::Link;
use crate::secure::Secure;
use crate::task::{self, Start};
use crate::worker::{Registration, Worker};
use base::clock;
use http_engine::{Connection, Request, engine};
use http_types::{ByStream, ByteCore, Event, ProtocolError, StreamId, Version};
use net::poller::Key;
use observe::Level;
use runtime::budget;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Octets that wait for the socket; streams wait while there are more.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// The stream of a request that asked for this protocol.
const FIRST: StreamId = 1;

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
pub struct MuxConnection {
    worker: Rc<Worker>,
    key: Key,
    link: Link,
    connection: Rc<Connection>,
    core: RefCell<Box<dyn ByteCore>>,
    streams: RefCell<ByStream<Rc<Shared>>>,
    /// Streams that wait until less is unsent.
    room: RefCell<Vec<(StreamId, Waker)>>,
    /// A task waits for the socket.
    writing: Cell<bool>,
    dirty: Cell<bool>,
    /// The client will begin no more streams.
    peer_goes: Cell<bool>,
    lost: Cell<bool>,
    /// A head has begun to come, and until when it may take is known.
    heading: Cell<bool>,
    /// The request that asked for this protocol, until the client has begun with it; it is stream 1.
    first: RefCell<Option<Box<Request>>>,
}

/// A connection turned readable.
pub fn readable(worker: &Rc<Worker>, key: Key, mux: &Rc<MuxConnection>) {
    let Ok(mut buf) = worker.read_buf.try_borrow_mut() else { return };
    buf.clear();
    match mux.link.recv(&mut buf) {
        Ok(n) if n > 0 => mux.receive(&buf),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
        _ => return worker.close(key),
    }
    drop(buf);
    mux.touch();
    worker.poller.again_if_readable(key);
}

/// A connection's deadline has come.
pub fn timed_out(worker: &Rc<Worker>, key: Key, mux: &Rc<MuxConnection>) {
    if mux.core.borrow_mut().give_up_head() {
        mux.heading.set(false);
        return mux.touch();
    }
    mux.core.borrow_mut().begin_shutdown();
    let _ = mux.write();
    worker.close(key);
}

impl MuxConnection {
    /// A connection speaks this core's protocol from now on.
    pub fn begin(
        worker: &Rc<Worker>,
        key: Key,
        connection: &Rc<Connection>,
        secure: Option<&Rc<Secure>>,
        core: Box<dyn ByteCore>,
    ) -> Rc<MuxConnection> {
        let mux = Rc::new(MuxConnection {
            worker: worker.clone(),
            key,
            link: Link { worker: worker.clone(), key, secure: secure.cloned() },
            connection: connection.clone(),
            core: RefCell::new(core),
            streams: RefCell::default(),
            room: RefCell::default(),
            writing: Cell::new(false),
            dirty: Cell::new(false),
            peer_goes: Cell::new(false),
            lost: Cell::new(false),
            heading: Cell::new(false),
            first: RefCell::default(),
        });
        worker.poller.set_registration(key, Registration::Mux(mux.clone()));
        // Small frames follow each other; none must wait for the acknowledgement of another.
        worker.no_delay(key, connection);
        mux
    }
    /// Its first octets, which came with something else.
    pub fn begin_with(self: &Rc<Self>, bytes: &[u8]) {
        self.receive(bytes);
        self.touch();
        self.worker.poller.again_if_readable(self.key);
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
            self.answer_first();
        }
        loop {
            let event = self.core.borrow_mut().poll_event();
            let Some(event) = event else { break };
            match event {
                Event::Head { stream, list, message, end, octets } => self.request(stream, list, message, end, octets),
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

    /// The client has begun with the protocol that its first request asked for: that request is answered.
    fn answer_first(self: &Rc<Self>) {
        let r = self.first.borrow_mut().take();
        if let Some(mut r) = r {
            let shared = Rc::new(Shared::default());
            self.streams.borrow_mut().insert(FIRST, shared.clone());
            r.watch = Some(Rc::new(body::Watch::new(self.clone(), FIRST, shared)));
            stream::answer(self, FIRST, engine::start(r));
        }
    }
    /// The request that asked for this protocol; `rest` came behind it. It is answered when the client has begun with the protocol, not
    /// before: clients have little room for what follows a 101.
    pub fn begin_upgraded(self: &Rc<Self>, r: Box<Request>, settled: Result<(), ProtocolError>, rest: &[u8]) {
        if let Err(error) = settled {
            self.worker.recycle(r);
            return self.fail(&error);
        }
        *self.first.borrow_mut() = Some(r);
        self.begin_with(rest);
    }

    fn with(&self, id: StreamId, act: impl FnOnce(&Shared)) {
        let shared = self.streams.borrow().get(&id).cloned();
        if let Some(shared) = shared {
            act(&shared);
        }
    }

    /// The client has broken the rules of the connection: it is told, and the connection closed.
    fn fail(self: &Rc<Self>, error: &ProtocolError) {
        let client = http_engine::variables::peer_text(&self.connection);
        let (words, local, name) = (error.words, &self.connection.local, short_name(self.core.borrow().version()));
        self.worker.log(
            Level::Info,
            self.connection.number,
            format_args!("{words} while processing {name} connection, client: {client}, server: {local}"),
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
        if self.lost.get() || !self.worker.poller.contains(self.key) {
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
        self.core.borrow().unsent()
    }

    /// A task writes what the socket did not take.
    fn wait_for_socket(self: &Rc<Self>) {
        if self.writing.replace(true) {
            return;
        }
        let mux = self.clone();
        runtime::task::spawn_local(async move {
            let _guard = CloseOnPanic(mux.clone());
            let timeout = mux.send_timeout();
            let end = loop {
                match runtime::time::timeout(timeout, poll_fn(|cx| mux.link.poll_writable(cx))).await {
                    Ok(true) => {}
                    Ok(false) => break false,
                    Err(_) => {
                        mux.worker.log(Level::Info, mux.connection.number, format_args!("client timed out"));
                        break false;
                    }
                }
                match mux.write() {
                    Ok(()) => break true,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        if mux.unsent() < UNSENT_BYTES_MAX / 2 {
                            mux.make_room();
                        }
                    }
                    Err(_) => break false,
                }
            };
            mux.writing.set(false);
            if end {
                mux.make_room();
                mux.touch();
            } else {
                mux.worker.close(mux.key);
            }
        });
    }

    /// Streams that wait go on, those first that matter most: each takes what room there is.
    fn make_room(&self) {
        let mut waiting = self.room.take();
        if waiting.len() > 1 {
            let core = self.core.borrow();
            waiting.sort_by_cached_key(|(id, _)| core.rank(*id));
        }
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
        let is_upgrading = self.first.borrow().is_some();
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
            self.core.borrow_mut().begin_shutdown();
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
        self.core.borrow_mut().begin_shutdown();
        self.touch();
    }

    /// The request of a stream is done, or given up.
    fn finished(self: &Rc<Self>, id: StreamId) {
        self.core.borrow_mut().finish(id);
        self.streams.borrow_mut().remove(&id);
        self.touch();
    }

    /// How much may be sent; pending while there is no window. `None`: the stream is gone.
    fn poll_capacity(&self, id: StreamId, cx: &mut Context<'_>) -> Poll<Option<usize>> {
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

    /// Room for what has no window of its own, such as a head: pending while too much is unsent. `false`: the stream is gone.
    fn poll_room(self: &Rc<Self>, id: StreamId, cx: &mut Context<'_>) -> Poll<bool> {
        std::task::ready!(budget::poll_proceed(cx));
        if self.streams.borrow().get(&id).is_none_or(|shared| shared.gone.get()) {
            return Poll::Ready(false);
        }
        if self.unsent() >= UNSENT_BYTES_MAX {
            self.room.borrow_mut().push((id, cx.waker().clone()));
            self.touch();
            return Poll::Pending;
        }
        Poll::Ready(true)
    }

    /// Sends body; how much was taken. Pending while there is no window, or too much is unsent.
    fn poll_send(
        self: &Rc<Self>,
        id: StreamId,
        body: &[u8],
        frame_max: usize,
        end: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<usize>> {
        if !std::task::ready!(self.poll_room(id, cx)) {
            return Poll::Ready(None);
        }
        let Some(shared) = self.streams.borrow().get(&id).cloned() else { return Poll::Ready(None) };
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
struct CloseOnPanic(Rc<MuxConnection>);

impl Drop for CloseOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.worker.close(self.0.key);
        }
    }
}

/// The protocol's name as nginx's log has it.
fn short_name(version: Version) -> &'static str {
    match version {
        Version::Http20 => "HTTP/2",
        version => version.name(),
    }
}
