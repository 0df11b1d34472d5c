//! Carrier of a byte stream with concurrent requests (HTTP/2), optionally over TLS. The connection stays idle: octets
//! go to the core on arrival, and all streams' output leaves with one write at the turn's end.

use crate::head_in;
use crate::linger;
use crate::link::Link;
use crate::secure::Secure;
use crate::streams::{Rest, StreamLink, Streams, UNSENT_BYTES_MAX};
use crate::worker::{Carrier, Worker};
use base::clock;
use base::room::Room;
use http_engine::{ClientConnection, Request};
use http_types::{ByteCore, ProtocolError, Version};
use net::poller::Key;
use observe::Severity;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// A connection of concurrent requests over a byte stream. [`ByteCarrier::begin`] puts it into the poller's entry;
/// octets then go to the core when they arrive.
///
/// The core is borrowed for single calls and never while a request runs. All changes call `StreamLink::touch`; the end
/// of the turn writes.
pub struct ByteCarrier {
    link: Link,
    core: Rc<RefCell<dyn ByteCore>>,
    streams: Rc<Streams>,
    own: Weak<ByteCarrier>,
    /// A task writes.
    writing: Cell<bool>,
    dirty: Cell<bool>,
    /// Lingering or about to close.
    lost: Cell<bool>,
    rest: Rest,
    /// Of the socket.
    room: Cell<Room>,
}

impl Carrier for ByteCarrier {
    fn ready(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        let Ok(mut buf) = worker.pools.read_buffer().try_borrow_mut() else {
            // The event is edge-triggered: a connection that lost it would hang.
            base::bug!("a connection is ready while another one is read");
            return worker.close(key);
        };
        buf.clear();
        match self.link.recv(&mut buf) {
            Ok(n) if n > 0 => self.receive(&buf),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            _ => return worker.close(key),
        }
        drop(buf);
        self.mark();
        worker.poller.again_if_readable(key);
    }
    fn timed_out(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        if self.core.borrow_mut().give_up_head() {
            self.rest.end();
            return self.mark();
        }
        self.core.borrow_mut().begin_shutdown();
        let _ = self.write();
        worker.close(key);
    }
    fn end_of_turn(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        self.dirty.set(false);
        if self.lost.get() || !worker.poller.contains(key) {
            return;
        }
        match self.write() {
            Ok(()) => self.streams.make_room(),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_for_socket(),
            Err(_) => return worker.close(key),
        }
        self.set_deadline();
    }
    fn closing(&self, worker: &Worker, key: Key) {
        self.streams.cut_off();
        if let Some(secure) = &self.link.secure {
            secure.say_goodbye(worker, key);
        }
    }
    fn cut_off(&self, _: &Worker) {
        self.streams.cut_off();
    }
    fn has_streams(&self) -> bool {
        true
    }
    fn begin_quit(self: Rc<Self>, _: &Rc<Worker>, _: Key) -> bool {
        self.streams.begin_quit();
        true
    }
    fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }
    fn client(self: Rc<Self>) -> Option<Rc<ClientConnection>> {
        Some(self.streams.connection())
    }
    fn tls(self: Rc<Self>) -> Option<Rc<Secure>> {
        self.link.secure.clone()
    }
}

impl StreamLink for ByteCarrier {
    fn touch(self: Rc<Self>) {
        self.mark();
    }
    fn unsent(&self) -> usize {
        self.core.borrow().unsent()
    }
    fn room(&self, wanted: usize) -> usize {
        let mut room = self.room.get();
        let most = room.up_to(wanted, || self.link.send_room());
        self.room.set(room);
        most
    }
}

impl ByteCarrier {
    /// Makes a core the carrier of a connection's entry. Octets that were read before go to [`ByteCarrier::begin_with`]
    /// or [`ByteCarrier::begin_upgraded`].
    pub fn begin<C: ByteCore + 'static>(
        worker: &Rc<Worker>,
        key: Key,
        connection: &Rc<ClientConnection>,
        secure: Option<&Rc<Secure>>,
        core: C,
    ) -> Rc<ByteCarrier> {
        let core = Rc::new(RefCell::new(core));
        let carrier = Rc::new_cyclic(|own: &Weak<ByteCarrier>| ByteCarrier {
            link: Link { worker: worker.clone(), key, secure: secure.cloned() },
            streams: Streams::new(worker, connection, own.clone(), core.clone()),
            core,
            own: own.clone(),
            writing: Cell::new(false),
            dirty: Cell::new(false),
            lost: Cell::new(false),
            rest: Rest::default(),
            room: Cell::new(Room::assumed(UNSENT_BYTES_MAX)),
        });
        worker.poller.set_registration(key, carrier.clone());
        // Small frames must not wait for acknowledgements of others (TCP_NODELAY).
        worker.no_delay(key, connection);
        carrier
    }
    /// Processes octets read before the core started.
    pub fn begin_with(&self, bytes: &[u8]) {
        self.receive(bytes);
        self.mark();
        self.link.worker.poller.again_if_readable(self.link.key);
    }
    /// Starts with the upgrading request; `rest` followed it.
    pub fn begin_upgraded(&self, r: Box<Request>, settled: Result<(), ProtocolError>, rest: &[u8]) {
        if let Err(error) = settled {
            self.link.worker.pools.put_request(r);
            return self.fail(&error);
        }
        self.streams.set_first(r);
        self.begin_with(rest);
    }
    /// Returns the connection's bytes.
    pub fn link(&self) -> &Link {
        &self.link
    }

    fn receive(&self, bytes: &[u8]) {
        let result = self.core.borrow_mut().receive(bytes);
        if result.is_ok() && self.streams.is_upgrading() && self.core.borrow().has_preface() {
            self.streams.answer_first();
        }
        self.streams.act();
        if let Err(error) = result {
            self.fail(&error);
        }
    }

    /// Closes after a protocol violation; the core has queued the reason.
    fn fail(&self, error: &ProtocolError) {
        let connection = self.streams.connection();
        let (words, name) = (error.words, short_name(self.core.borrow().version()));
        let words = format_args!("{words} while processing {name} connection");
        self.link.worker.log_client(Severity::Info, &connection, words);
        let _ = self.write();
        self.streams.cut_off();
        self.linger();
    }
    /// Shuts the write side down but reads, so that the client sees why.
    fn linger(&self) {
        if !self.lost.replace(true) {
            let worker = &self.link.worker;
            let limits = linger::Limits::of_server(worker, &self.streams.connection());
            linger::spawn_linger(worker, self.link.key, limits);
        }
    }

    fn mark(&self) {
        if !self.dirty.replace(true)
            && let Some(own) = self.own.upgrade()
        {
            self.link.worker.touch(self.link.key, own);
        }
    }

    fn write(&self) -> io::Result<()> {
        let mut core = self.core.borrow_mut();
        let mut room = self.room.get();
        let mut write = || {
            while !core.output().is_empty() {
                let n = self.link.send_frames(core.output())?;
                core.advance(n);
                room.sent(n);
            }
            self.link.flush()
        };
        let written = write();
        if matches!(&written, Err(e) if e.kind() == io::ErrorKind::WouldBlock) {
            room.blocked();
            core.release_written();
        }
        self.room.set(room);
        written
    }

    fn wait_for_socket(&self) {
        let Some(own) = self.own.upgrade() else { return };
        if self.writing.replace(true) {
            return;
        }
        runtime::task::spawn_local(async move {
            let guard = CloseOnPanic(own);
            let carrier = &guard.0;
            let is_written = carrier.written().await;
            carrier.writing.set(false);
            if is_written {
                carrier.streams.make_room();
                carrier.mark();
            } else {
                carrier.link.worker.close(carrier.link.key);
            }
        });
    }
    async fn written(&self) -> bool {
        let timeout = self.send_timeout();
        loop {
            match runtime::time::with_timeout(timeout, poll_fn(|cx| self.link.poll_writable(cx))).await {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => {
                    let number = self.streams.connection().number;
                    self.link.worker.log(Severity::Info, number, format_args!("{}", head_in::TIMED_OUT));
                    return false;
                }
            }
            match self.write() {
                Ok(()) => return true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.unsent() < UNSENT_BYTES_MAX / 2 {
                        self.streams.make_room();
                    }
                }
                Err(_) => return false,
            }
        }
    }

    fn send_timeout(&self) -> Duration {
        let conf = self.link.worker.default_conf(&self.streams.connection());
        conf.map_or(Duration::from_secs(60), |core| core.conf.send_timeout.duration())
    }

    /// Arms the idle or header deadline, or closes a finished connection.
    fn set_deadline(&self) {
        let (worker, key) = (&self.link.worker, self.link.key);
        let (is_idle, within, going, has_begun) = {
            let core = self.core.borrow();
            (core.is_idle(), core.is_within_head(), core.is_going(), core.has_begun())
        };
        if self.streams.is_upgrading() && self.unsent() == 0 {
            // The preface has a head's time.
            return self.wait_for_head();
        }
        if !is_idle || !self.streams.is_empty() || self.unsent() > 0 || self.link.has_unsent() {
            self.rest.end();
            // Streams have their own deadlines.
            worker.poller.set_deadline(key, clock::Instant(u64::MAX));
            return;
        }
        if going || self.streams.peer_goes() || worker.turn().is_quitting() {
            self.core.borrow_mut().begin_shutdown();
            let _ = self.write();
            return self.linger();
        }
        if within || !has_begun {
            self.wait_for_head();
        } else if self.rest.begin(false, self.streams.connection().requests.get()) {
            let conf = worker.default_conf(&self.streams.connection());
            let millis = conf.map_or(75_000, |core| core.conf.keepalive_timeout.millis);
            worker.poller.set_deadline(key, clock::now().plus_millis(millis));
        }
        self.core.borrow_mut().shrink();
        self.link.shrink();
    }

    /// Arms `client_header_timeout` at a head's start; later octets do not extend it.
    fn wait_for_head(&self) {
        if self.rest.begin(true, self.streams.connection().requests.get()) {
            let worker = &self.link.worker;
            let conf = worker.default_conf(&self.streams.connection());
            let millis = conf.map_or(60_000, |core| core.conf.client_header_timeout.0);
            worker.poller.set_deadline(self.link.key, clock::now().plus_millis(millis));
        }
    }
}

/// Closes the connection when the writing task panics, since the sent part is unknown.
struct CloseOnPanic(Rc<ByteCarrier>);

impl Drop for CloseOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.link.worker.close(self.0.link.key);
        }
    }
}

fn short_name(version: Version) -> &'static str {
    match version {
        Version::Http20 => "HTTP/2",
        version => version.name(),
    }
}
