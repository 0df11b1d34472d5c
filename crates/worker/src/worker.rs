//! A worker thread's state, and the trait of its sockets' drivers.

use crate::areas::{MailArea, StreamArea};
use crate::lingering::LingerQueue;
use crate::secure::Secure;
use crate::serving::{ListenState, ServeLoop};
use crate::spares::Spares;
use base::clock::Instant;
use http_engine::{ClientConnection, HttpPlan, Request, counting, plan};
use metrics::process;
use net::poller::{Key, Poller};
use observe::{ErrorLog, Severity};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stream_features::Host;

/// Octets per read.
pub const READ_BYTES: usize = 32 * 1024;
/// Recycled requests at most.
const SPARE_REQUESTS_MAX: usize = 64;

/// Connection numbers (`$connection`), unique in the process.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Driver of a socket in the poller; the worker names no implementation.
pub trait Carrier {
    /// Handles an event, or a wake-up of the key with [`Carrier::has_wakeups`].
    fn ready(self: Rc<Self>, worker: &Rc<Worker>, key: Key);
    /// Handles the passed deadline of the entry.
    fn timed_out(self: Rc<Self>, _worker: &Rc<Worker>, _key: Key) {}
    /// Writes the turn's output, once after [`Worker::touch`].
    fn end_of_turn(self: Rc<Self>, _worker: &Rc<Worker>, _key: Key) {}
    /// Prepares the close of the socket: says goodbye, without waiting.
    fn closing(&self, _worker: &Worker, _key: Key) {}
    /// Ends requests whose connection is closed by `worker_shutdown_timeout`.
    fn cut_off(&self, _worker: &Worker) {}
    /// Carries concurrent requests, whose output leaves at the end of the turn.
    fn has_streams(&self) -> bool {
        false
    }
    /// Refuses new requests and closes after the last. False: holds one request, which the caller handles.
    fn begin_quit(self: Rc<Self>, _worker: &Rc<Worker>, _key: Key) -> bool {
        false
    }
    /// Wake-ups of the key (timer, server's socket) count as events.
    fn has_wakeups(&self) -> bool {
        false
    }
    /// Tells whether a request is running in the entry.
    fn has_request(&self) -> bool {
        false
    }
    /// Tells whether its events belong to an unfinished TLS handshake, which costs more than others.
    fn is_handshaking(&self) -> bool {
        false
    }
    /// No request is running or incomplete: may be closed to make room (nginx: `ngx_reusable_connection`).
    fn is_idle(&self) -> bool {
        false
    }
    /// Closes the client that has been idle longest, if the socket has several clients. False: none is idle.
    fn close_idle_client(&self) -> bool {
        false
    }
    /// Client connection; `None` for other sockets.
    fn client(self: Rc<Self>) -> Option<Rc<ClientConnection>> {
        None
    }
    /// Returns the TLS of the connection; `None`: cleartext.
    fn tls(self: Rc<Self>) -> Option<Rc<Secure>> {
        None
    }
}

/// Carrier of the file cache's notifications.
pub struct WorkerFiles;

impl Carrier for WorkerFiles {
    fn ready(self: Rc<Self>, _: &Rc<Worker>, _: Key) {
        http_engine::files::drop_changed();
    }
}

/// State of a worker thread, which its carriers share. Cells are borrowed for single calls, except `read_buf` and
/// `out_buf`: the inline path holds them while it answers a connection, and nothing that runs meanwhile may read
/// another one.
pub struct Worker {
    /// Sockets of the thread with their carriers, and deadlines.
    pub poller: Rc<Poller<Rc<dyn Carrier>>>,
    /// The current configuration.
    pub serving: RefCell<ServeLoop>,
    /// In an `Rc`, so that requests' references are not counted across threads.
    #[allow(clippy::redundant_allocation)]
    pub plan: RefCell<Option<Rc<Arc<HttpPlan>>>>,
    /// The stream area.
    pub stream: StreamArea,
    /// The mail area.
    pub mail: MailArea,
    /// The thread as stream sessions see it.
    pub host: RefCell<Option<Rc<dyn Host>>>,
    /// Open sockets of listeners.
    pub listening: RefCell<Vec<ListenState>>,
    /// Entry of [`WorkerFiles`].
    pub files: Cell<Option<Key>>,
    /// Boxed, as tasks pass them.
    #[allow(clippy::vec_box)]
    spare: RefCell<Vec<Box<Request>>>,
    /// Recycled objects.
    pub spares: Spares,
    /// Buffer for the bytes of one read on the inline path.
    pub read_buf: RefCell<Vec<u8>>,
    /// Buffer for the responses of one write on the inline path.
    pub out_buf: RefCell<Vec<u8>>,
    /// QUIT was received: no keep-alive.
    pub quitting: Cell<bool>,
    /// Unfinished tasks and waits.
    pub tasks: Cell<usize>,
    /// Clients of datagram listeners, which have no entries.
    pub datagram_clients: Cell<usize>,
    /// Unfinished QUIC handshakes of clients that have not proven their address.
    pub unproven_handshakes: Cell<usize>,
    /// Time at which paused listeners accept again.
    pub paused_until: Cell<Option<Instant>>,
    /// Time since which clients wait for one of `worker_connections`.
    pub full_since: Cell<Option<Instant>>,
    /// Last log message about it.
    pub full_logged: Cell<Option<Instant>>,
    /// Key whose event is being handled: its driver may hold its state.
    pub current: Cell<Option<Key>>,
    /// Connections that linger.
    pub lingering: RefCell<LingerQueue>,
    /// Last search that found no idle connection to close.
    pub no_room_at: Cell<Option<Instant>>,
    /// Last log message about closing idle connections.
    pub reuse_logged: Cell<Option<Instant>>,
    /// TLS handshakes are queued: new ones wait.
    pub handshakes_wait: Cell<bool>,
    /// Events that the current turn began with.
    pub events: Cell<usize>,
    /// Carriers with output for the turn's end.
    pub dirty: RefCell<Vec<(Key, Rc<dyn Carrier>)>>,
    /// Step of a test's event; 0: none.
    pub at_step: Cell<u64>,
    /// The event of a test.
    pub happening: RefCell<Option<Box<dyn FnOnce()>>>,
    /// Reloads with a cutoff: its time, and the first number of newer connections.
    cutoffs: RefCell<Vec<(Instant, u64)>>,
}

impl Worker {
    /// Creates the state of the calling thread.
    pub fn new(serving: ServeLoop) -> std::io::Result<Worker> {
        Ok(Worker {
            poller: Rc::new(Poller::new()?),
            plan: RefCell::new(serving.http.clone().map(Rc::new)),
            stream: StreamArea::new(serving.stream.clone()),
            mail: MailArea::new(serving.mail.clone()),
            host: RefCell::new(None),
            serving: RefCell::new(serving),
            listening: RefCell::new(Vec::new()),
            files: Cell::new(None),
            spare: RefCell::new(Vec::new()),
            spares: Spares::default(),
            read_buf: RefCell::new(Vec::with_capacity(READ_BYTES)),
            out_buf: RefCell::new(Vec::with_capacity(READ_BYTES)),
            quitting: Cell::new(false),
            tasks: Cell::new(0),
            datagram_clients: Cell::new(0),
            unproven_handshakes: Cell::new(0),
            paused_until: Cell::new(None),
            full_since: Cell::new(None),
            full_logged: Cell::new(None),
            current: Cell::new(None),
            lingering: RefCell::default(),
            no_room_at: Cell::new(None),
            reuse_logged: Cell::new(None),
            handshakes_wait: Cell::new(false),
            events: Cell::new(0),
            dirty: RefCell::new(Vec::new()),
            at_step: Cell::new(0),
            happening: RefCell::new(None),
            cutoffs: RefCell::new(Vec::new()),
        })
    }

    /// Evaluates a read: a partial one has emptied the socket, unless the end follows.
    pub fn note_read(&self, key: Key, got: &std::io::Result<usize>, room: usize) {
        self.step();
        match got {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => self.poller.drained(key),
            Ok(n) if *n < room && *n > 0 && !self.poller.closing(key) => self.poller.drained(key),
            _ => {}
        }
    }

    /// Tells whether an entry's carrier is in a TLS handshake.
    pub fn is_handshaking(&self, key: Key) -> bool {
        self.poller.registration(key).is_some_and(|carrier| carrier.is_handshaking())
    }

    /// Settings before a request selects a server; `None` if the listener is gone.
    pub fn default_conf(&self, connection: &ClientConnection) -> Option<Arc<plan::Core>> {
        let plan = self.plan.borrow();
        let plan = plan.as_ref()?;
        let server = plan.servers.get(plan.initial_server(connection)?)?;
        Some(plan.locations.get(server.location)?.core.clone())
    }

    /// Logs a message of the process about a connection; 0: about none.
    pub fn log(&self, level: Severity, connection: u64, words: std::fmt::Arguments<'_>) {
        let log: Arc<ErrorLog> = self.serving.borrow().error_log.clone();
        log.log(level, connection, words);
    }

    /// [`Worker::log`] about a client's connection.
    pub fn log_client(&self, level: Severity, connection: &ClientConnection, words: std::fmt::Arguments<'_>) {
        let log: Arc<ErrorLog> = self.serving.borrow().error_log.clone();
        if log.wants(level) {
            let client = observe::Detail::new("client", connection.peer_text());
            let server = observe::Detail::new("server", connection.local.to_string());
            log.log_with(level, connection.number, words, &[client, server]);
        }
    }

    /// Returns the number of a new connection.
    pub fn next_number() -> u64 {
        NUMBERS.fetch_add(1, Ordering::Relaxed)
    }

    /// Connections that `worker_connections` limits: sockets of clients, servers, listeners and resolvers, and clients
    /// of datagram listeners.
    pub fn connections(&self) -> usize {
        // The thread's wake-up is one, as nginx's channel; the watch of files is none.
        let own = usize::from(self.files.get().is_some());
        self.poller.len().saturating_sub(own) + self.datagram_clients.get() + self.stream.sessions.datagram_count()
    }

    /// At a reload: applies the old configuration's `worker_shutdown_timeout` to present connections.
    pub fn begin_cutoff(&self) {
        let timeout_ms = self.serving.borrow().shutdown_timeout_ms;
        if timeout_ms > 0 {
            let at = base::clock::now().plus_millis(timeout_ms);
            self.cutoffs.borrow_mut().push((at, NUMBERS.load(Ordering::Relaxed)));
        }
    }

    /// Returns the time of the next cutoff.
    pub fn next_cutoff(&self) -> Option<Instant> {
        self.cutoffs.borrow().iter().map(|(at, _)| *at).min()
    }

    /// Closes expired connections; their tasks notice at their next step.
    pub fn cut_off(&self, now: Instant) {
        let mut cutoffs = self.cutoffs.borrow_mut();
        let Some(below) = cutoffs.iter().filter(|(at, _)| *at <= now).map(|(_, number)| *number).max() else { return };
        cutoffs.retain(|(at, _)| *at > now);
        self.stream.sessions.cut_off(below);
        self.mail.sessions.cut_off(below);
        for key in self.poller.keys() {
            if let Some(carrier) = self.poller.registration(key)
                && carrier.clone().client().is_some_and(|c| c.number < below)
            {
                carrier.cut_off(self);
                self.close(key);
            }
        }
    }

    /// Step of a connection (read, write, body poll, request's begin, start, end), at which tests cause events.
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

    /// New or recycled request with its connection and plan.
    pub fn request(&self, connection: &Rc<ClientConnection>) -> Option<Box<Request>> {
        self.step();
        let plan = self.plan.borrow().as_ref()?.clone();
        // A reload removed the address.
        plan.listener_of(connection)?;
        let mut r = self.spare.borrow_mut().pop().unwrap_or_default();
        r.begin(plan, connection.clone(), base::clock::now());
        Some(r)
    }
    /// Has [`Carrier::end_of_turn`] called in this turn. Once per carrier and turn: the carrier itself keeps a mark.
    pub fn touch(&self, key: Key, carrier: Rc<dyn Carrier>) {
        self.dirty.borrow_mut().push((key, carrier));
    }
    /// Counts and logs a request whose response was sent or given up, and recycles it.
    pub fn finished(&self, mut r: Box<Request>) {
        counting::count_ended(&mut r);
        self.step();
        self.write_lines(r);
    }
    /// Logs requests lost to panics, each guarded.
    pub fn log_lost(&self) {
        for r in counting::take_lost() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.write_lines(r)));
        }
    }
    fn write_lines(&self, mut r: Box<Request>) {
        counting::count_logged(&mut r);
        let plan = r.plan_rc();
        if let Some(location) = plan.locations.get(r.location_index()) {
            for logger in &location.loggers {
                logger.log(&mut r);
            }
        }
        self.recycle(r);
    }
    /// Recycles a request that gets no log line.
    pub fn recycle(&self, mut r: Box<Request>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_REQUESTS_MAX && r.buf.capacity() <= READ_BYTES {
            counting::given_up(&mut r);
            r.recycle();
            spare.push(r);
        }
    }
    /// Sets TCP_NODELAY once; single-response connections never need it.
    pub fn no_delay(&self, key: Key, connection: &ClientConnection) {
        if connection.peer.is_some() && !connection.nodelay.replace(true) {
            self.poller.set_nodelay(key);
        }
    }
    /// Closes a connection, and counts it.
    pub fn close(&self, key: Key) {
        if let Some(carrier) = self.poller.registration(key) {
            carrier.closing(self, key);
        }
        if let Some(connection) = self.poller.remove(key).and_then(|carrier| carrier.client()) {
            process::CONNECTIONS_ACTIVE.down();
            if connection.begun.take().is_some() {
                process::CONNECTIONS_READING.down();
            }
        }
    }
}
