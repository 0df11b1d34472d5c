//! What a worker thread keeps: its poller, its plan, its pools.

use crate::link::{Link, READ_BYTES};
use crate::mails::{ListenPlace as MailPlace, Mails};
use crate::mux::MuxConnection;
use crate::secure::Secure;
use crate::streams::{DatagramSocket, ListenPlace, Streams};
use crate::task::Presence;
use crate::thread::Serving;
use crate::waiting::{self, SpareWaits, Waiting};
use base::clock::Instant;
use http_engine::{Connection, HttpPlan, ListenerRef, Request, counting, plan};
use metrics::process;
use net::poller::{Key, Poller};
use observe::{ErrorLog, Level};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stream_features::Host;

/// Finished requests that are kept for their memory.
const SPARE_REQUESTS_MAX: usize = 64;

/// The numbers of connections (`$connection`), unique in the process.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// What stands behind a socket of the poller.
#[derive(Clone)]
pub enum Registration {
    Listener(Rc<ListenSocket>),
    Client(Rc<Connection>),
    /// A client whose bytes come through TLS.
    Secure(Rc<Secure>),
    /// A client whose request waits for a server.
    Waiting(Rc<Waiting>),
    /// A client whose connection carries many requests at a time (HTTP/2), with or without TLS.
    Mux(Rc<MuxConnection>),
    /// Datagrams of the stream area.
    Datagrams(Rc<DatagramSocket>),
    /// The kernel reports changed files.
    Files,
}

impl Registration {
    /// A client that has asked for nothing, or for nothing more yet: its connection may be closed to make room (nginx:
    /// `ngx_reusable_connection`).
    pub fn is_idle(&self) -> bool {
        match self {
            Registration::Mux(mux) => mux.is_idle(),
            Registration::Waiting(_) => false,
            Registration::Secure(secure) if secure.is_handshaking() => !secure.has_begun(),
            registration => registration.connection().is_some_and(|c| !c.begun.is_some()),
        }
    }
    /// The client's connection, if it is one's.
    pub fn connection(&self) -> Option<Rc<Connection>> {
        match self {
            Registration::Client(connection) => Some(connection.clone()),
            Registration::Secure(secure) => Some(secure.connection()),
            Registration::Waiting(waiting) => waiting.connection(),
            Registration::Mux(mux) => Some(mux.connection()),
            Registration::Listener(_) | Registration::Datagrams(_) | Registration::Files => None,
        }
    }
}

/// A listening socket.
pub struct ListenSocket {
    pub listener: ListenerRef,
    pub shared: bool,
    /// It is not being listened on until then (no descriptors were left).
    pub paused: Cell<bool>,
    /// Whose it is, when it is the stream area's.
    pub stream: ListenPlace,
    /// The same of the mail area.
    pub mail: MailPlace,
}

/// One worker thread's state.
pub struct Worker {
    pub poller: Rc<Poller<Registration>>,
    pub serving: RefCell<Serving>,
    /// Behind an `Rc`, so that a request's hold on its plan is not counted across threads.
    #[allow(clippy::redundant_allocation)]
    pub plan: RefCell<Option<Rc<Arc<HttpPlan>>>>,
    pub streams: Streams,
    pub mails: Mails,
    /// What sessions of the stream area ask of this thread.
    pub host: RefCell<Option<Rc<dyn Host>>>,
    pub listen_sockets: RefCell<Vec<Key>>,
    /// The entry of [`Registration::Files`].
    pub files: Cell<Option<Key>>,
    /// Boxed, because they travel through tasks as boxes.
    #[allow(clippy::vec_box)]
    spare: RefCell<Vec<Box<Request>>>,
    /// What the next request sees its client by. It points back here until [`Worker::forget_presence`].
    presence: Cell<Option<Rc<Presence>>>,
    pub waits: SpareWaits,
    pub read_buf: RefCell<Vec<u8>>,
    /// What TLS reads from sockets.
    pub cipher_buf: RefCell<Vec<u8>>,
    pub out_buf: RefCell<Vec<u8>>,
    /// QUIT was received: no keep-alive any more.
    pub quitting: Cell<bool>,
    /// Tasks that work on connections.
    pub tasks: Cell<usize>,
    pub paused_until: Cell<Option<Instant>>,
    /// When it was last logged that idle connections were closed to make room.
    pub reuse_logged: Cell<Option<Instant>>,
    /// TLS handshakes wait for their turn: new ones do not begin at once.
    pub handshakes_wait: Cell<bool>,
    /// Connections that have something to send at the end of the turn.
    pub dirty: RefCell<Vec<Rc<MuxConnection>>>,
    /// A test's wish for something to happen after so many steps; 0: none.
    pub at_step: Cell<u64>,
    pub happening: RefCell<Option<Box<dyn FnOnce()>>>,
    /// Reloads whose older connections have a time to be gone: that time, and the first number of the newer ones.
    cutoffs: RefCell<Vec<(Instant, u64)>>,
}

impl Worker {
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new(serving: Serving) -> std::io::Result<Worker> {
        Ok(Worker {
            poller: Rc::new(Poller::new()?),
            plan: RefCell::new(serving.http.clone().map(Rc::new)),
            streams: Streams::new(serving.stream.clone()),
            mails: Mails::new(serving.mail.clone()),
            host: RefCell::new(None),
            serving: RefCell::new(serving),
            listen_sockets: RefCell::new(Vec::new()),
            files: Cell::new(None),
            spare: RefCell::new(Vec::new()),
            presence: Cell::new(None),
            waits: SpareWaits::default(),
            read_buf: RefCell::new(Vec::with_capacity(READ_BYTES)),
            cipher_buf: RefCell::new(Vec::new()),
            out_buf: RefCell::new(Vec::with_capacity(READ_BYTES)),
            quitting: Cell::new(false),
            tasks: Cell::new(0),
            paused_until: Cell::new(None),
            reuse_logged: Cell::new(None),
            handshakes_wait: Cell::new(false),
            dirty: RefCell::new(Vec::new()),
            at_step: Cell::new(0),
            happening: RefCell::new(None),
            cutoffs: RefCell::new(Vec::new()),
        })
    }

    /// Notes what a read of a client's socket says: one that left room has taken all there was, unless the end follows.
    pub fn note_read(&self, key: Key, got: &std::io::Result<usize>, room: usize) {
        self.step();
        match got {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => self.poller.drained(key),
            Ok(n) if *n < room && *n > 0 && !self.poller.closing(key) => self.poller.drained(key),
            _ => {}
        }
    }

    /// What comes on the socket goes on with a TLS handshake.
    pub fn is_handshaking(&self, key: Key) -> bool {
        matches!(self.poller.registration(key), Some(Registration::Secure(secure)) if secure.is_handshaking())
    }

    /// The settings that hold for a connection as long as no request has named a server; `None` when its listener is gone.
    pub fn default_conf(&self, connection: &Connection) -> Option<Arc<plan::Core>> {
        let plan = self.plan.borrow();
        let plan = plan.as_ref()?;
        let server = plan.servers.get(plan.initial_server(connection)?)?;
        Some(plan.locations.get(server.location)?.core.clone())
    }

    pub fn log(&self, level: Level, connection: u64, words: std::fmt::Arguments<'_>) {
        let log: Arc<ErrorLog> = self.serving.borrow().error_log.clone();
        log.log(level, connection, words);
    }

    pub fn next_number() -> u64 {
        NUMBERS.fetch_add(1, Ordering::Relaxed)
    }

    /// Clients that are being served, of every area.
    pub fn connections(&self) -> usize {
        self.poller.registered() + self.streams.sessions.count() + self.mails.sessions.count()
    }

    /// At a reload: what `worker_shutdown_timeout` of the configuration that goes means for the connections that are here.
    pub fn begin_cutoff(&self) {
        let timeout_ms = self.serving.borrow().shutdown_timeout_ms;
        if timeout_ms > 0 {
            let at = base::clock::now().plus_millis(timeout_ms);
            self.cutoffs.borrow_mut().push((at, NUMBERS.load(Ordering::Relaxed)));
        }
    }

    /// When connections are to be cut off next.
    pub fn next_cutoff(&self) -> Option<Instant> {
        self.cutoffs.borrow().iter().map(|(at, _)| *at).min()
    }

    /// Closes the connections whose time is up; their tasks see that at their next step.
    pub fn cut_off(&self, now: Instant) {
        let mut cutoffs = self.cutoffs.borrow_mut();
        let Some(below) = cutoffs.iter().filter(|(at, _)| *at <= now).map(|(_, number)| *number).max() else { return };
        cutoffs.retain(|(at, _)| *at > now);
        self.streams.sessions.cut_off(below);
        self.mails.sessions.cut_off(below);
        for key in self.poller.keys() {
            if let Some(c) = self.poller.registration(key).and_then(|registration| registration.connection())
                && c.number < below
            {
                if let Some(Registration::Waiting(waiting)) = self.poller.registration(key) {
                    waiting::cut_off(self, &waiting);
                }
                self.close(key);
            }
        }
    }

    /// A step of a connection: a read, a write, a poll of a body, a request's begin, its start in the engine, its end. Tests have
    /// something happen at one of them.
    #[inline]
    pub fn step(&self) {
        match self.at_step.get() {
            0 => {}
            1 => self.happen(),
            left => self.at_step.set(left - 1),
        }
    }
    #[cold]
    fn happen(&self) {
        self.at_step.set(0);
        if let Some(happening) = self.happening.take() {
            happening();
        }
    }

    /// A request, new or recycled, with its connection and plan.
    pub fn request(&self, connection: &Rc<Connection>) -> Option<Box<Request>> {
        self.step();
        let plan = self.plan.borrow().as_ref()?.clone();
        // Its address was given up by a reload: there is no server for it any more.
        plan.listener_of(connection)?;
        let mut r = self.spare.borrow_mut().pop().unwrap_or_default();
        r.plan = Some(plan);
        r.connection = Some(connection.clone());
        r.started = base::clock::now();
        Some(r)
    }
    /// Sees whether the client of a link is still there.
    pub fn presence(&self, link: &Link) -> Rc<Presence> {
        if let Some(mut spare) = self.presence.take()
            && let Some(own) = Rc::get_mut(&mut spare)
        {
            own.link = link.clone();
            return spare;
        }
        Rc::new(Presence { link: link.clone() })
    }
    /// Keeps it for the next request, if no request has it any more.
    pub fn keep_presence(&self, mut presence: Rc<Presence>) {
        if let Some(own) = Rc::get_mut(&mut presence) {
            own.link.secure = None;
            self.presence.set(Some(presence));
        }
    }
    /// The thread ends.
    pub fn forget_presence(&self) {
        self.presence.set(None);
    }
    /// Counts a finished request, tells the loggers of it and keeps its memory.
    pub fn finished(&self, mut r: Box<Request>) {
        counting::ended(&mut r);
        self.logged(r);
    }
    /// The same of one that never was a whole request, and is not counted as one.
    pub fn logged(&self, r: Box<Request>) {
        self.step();
        self.write_lines(r);
    }
    /// Requests that panics have cost get their lines, each guarded: what has panicked may do it again.
    pub fn log_lost(&self) {
        for r in counting::take_lost() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.write_lines(r)));
        }
    }
    fn write_lines(&self, mut r: Box<Request>) {
        counting::logged(&mut r);
        let plan = r.plan_rc();
        if let Some(location) = plan.locations.get(r.location) {
            for logger in &location.loggers {
                logger.log(&mut r);
            }
        }
        self.recycle(r);
    }
    pub fn recycle(&self, mut r: Box<Request>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_REQUESTS_MAX && r.buf.capacity() <= READ_BYTES {
            r.recycle();
            spare.push(r);
        }
    }
    /// Turns Nagle's algorithm off, once a connection: one that ends with its first response never needs it.
    pub fn no_delay(&self, key: Key, connection: &Connection) {
        if connection.peer.is_some() && !connection.nodelay.replace(true) {
            self.poller.set_nodelay(key);
        }
    }
    /// Closes a client's socket.
    pub fn close(&self, key: Key) {
        match self.poller.registration(key) {
            Some(Registration::Mux(mux)) => {
                mux.let_go();
                if let Some(secure) = &mux.link().secure {
                    secure.say_goodbye(self, key);
                }
            }
            Some(Registration::Secure(secure)) => secure.say_goodbye(self, key),
            Some(Registration::Waiting(waiting)) => {
                if let Some(secure) = waiting.secure() {
                    secure.say_goodbye(self, key);
                }
            }
            _ => {}
        }
        if let Some(connection) = self.poller.remove(key).and_then(|registration| registration.connection()) {
            process::CONNECTIONS_ACTIVE.down();
            if connection.begun.take().is_some() {
                process::CONNECTIONS_READING.down();
            }
        }
    }
}
