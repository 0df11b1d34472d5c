//! A worker thread's state, and the trait of its sockets' drivers.

use crate::admission::AdmissionState;
use crate::areas::WorkerAreas;
use crate::pools::MemoryPools;
use crate::secure::Secure;
use crate::serving::{ListenState, ServeLoop};
use crate::steps;
use crate::turn_state::TurnState;
use base::clock::Instant;
use http_engine::{ClientConnection, HttpPlan, Request, counting, plan};
use metrics::process;
use net::poller::{Key, Poller};
use observe::{ErrorLog, Severity};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// State of a worker thread, which its carriers share.
pub struct Worker {
    /// Sockets of the thread with their carriers, and deadlines.
    pub poller: Rc<Poller<Rc<dyn Carrier>>>,
    /// The http area of the current configuration, in an `Rc`, so that requests' references are not counted across threads.
    #[allow(clippy::redundant_allocation)]
    pub plan: RefCell<Option<Rc<Arc<HttpPlan>>>>,
    /// The stream and mail areas.
    pub areas: WorkerAreas,
    /// Counts and times by which connections are admitted.
    pub admission: AdmissionState,
    /// Memory that is used again.
    pub pools: MemoryPools,
    turn: TurnState<Rc<dyn Carrier>>,
    serving: RefCell<ServeLoop>,
    /// Open sockets of listeners.
    listening: RefCell<Vec<ListenState>>,
    /// Entry of [`WorkerFiles`].
    files: Cell<Option<Key>>,
    /// Reloads with a cutoff: its time, and the first number of newer connections.
    cutoffs: RefCell<Vec<(Instant, u64)>>,
}

impl Worker {
    /// Creates the state of the calling thread.
    pub fn new(serving: ServeLoop) -> std::io::Result<Worker> {
        Ok(Worker {
            poller: Rc::new(Poller::new()?),
            plan: RefCell::new(serving.http.clone().map(Rc::new)),
            areas: WorkerAreas::new(serving.stream.clone(), serving.mail.clone()),
            admission: AdmissionState::default(),
            pools: MemoryPools::default(),
            turn: TurnState::default(),
            serving: RefCell::new(serving),
            listening: RefCell::new(Vec::new()),
            files: Cell::new(None),
            cutoffs: RefCell::new(Vec::new()),
        })
    }

    /// Returns the work of the current turn, and the count of tasks.
    #[inline]
    pub fn turn(&self) -> &TurnState<Rc<dyn Carrier>> {
        &self.turn
    }

    /// Returns the current configuration beside the areas' plans. Borrowed for single expressions.
    pub fn serving(&self) -> std::cell::Ref<'_, ServeLoop> {
        self.serving.borrow()
    }

    /// Replaces the configuration with the plans of its areas. [`Worker::begin_cutoff`] precedes it.
    pub(crate) fn replan(&self, serving: ServeLoop) {
        *self.plan.borrow_mut() = serving.http.clone().map(Rc::new);
        self.areas.stream.replan(serving.stream.clone());
        self.areas.mail.replan(serving.mail.clone());
        *self.serving.borrow_mut() = serving;
    }

    /// Changes the limit of connections.
    #[cfg(test)]
    pub(crate) fn limit_connections(&self, most: usize) {
        self.serving.borrow_mut().connections_max = most;
    }

    /// Returns the open sockets of listeners.
    pub(crate) fn listening(&self) -> &RefCell<Vec<ListenState>> {
        &self.listening
    }

    /// Replaces the entry of [`WorkerFiles`], and returns the one before.
    pub(crate) fn replace_files(&self, key: Option<Key>) -> Option<Key> {
        self.files.replace(key)
    }

    /// Returns the entry of [`WorkerFiles`].
    pub(crate) fn files(&self) -> Option<Key> {
        self.files.get()
    }

    /// Evaluates a read: a partial one has emptied the socket, unless the end follows.
    pub fn note_read(&self, key: Key, got: &std::io::Result<usize>, room: usize) {
        steps::note_step();
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
        self.poller.len().saturating_sub(own)
            + self.admission.datagram_clients()
            + self.areas.stream.sessions.datagram_count()
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
        self.areas.stream.sessions.cut_off(below);
        self.areas.mail.sessions.cut_off(below);
        for key in self.poller.keys() {
            if let Some(carrier) = self.poller.registration(key)
                && carrier.clone().client().is_some_and(|c| c.number < below)
            {
                carrier.cut_off(self);
                self.close(key);
            }
        }
    }

    /// New or recycled request with its connection and plan.
    pub fn request(&self, connection: &Rc<ClientConnection>) -> Option<Box<Request>> {
        steps::note_step();
        let plan = self.plan.borrow().as_ref()?.clone();
        // A reload removed the address.
        plan.listener_of(connection)?;
        let mut r = self.pools.take_request();
        r.begin(plan, connection.clone(), base::clock::now());
        Some(r)
    }
    /// Has [`Carrier::end_of_turn`] called in this turn. Once per carrier and turn: the carrier itself keeps a mark.
    pub fn touch(&self, key: Key, carrier: Rc<dyn Carrier>) {
        self.turn.touch(key, carrier);
    }
    /// Counts and logs a request whose response was sent or given up, and recycles it.
    pub fn finished(&self, mut r: Box<Request>) {
        counting::count_ended(&mut r);
        steps::note_step();
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
        self.pools.put_request(r);
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
