//! Driver of one client's QUIC connection: its protocol core, requests and deadlines. The listener owns the socket.

use super::QuicListener;
use super::idle::IdlePlace;
use crate::streams::{Rest, StreamLink, Streams};
use crate::worker::Worker;
use base::clock;
use http_engine::plan::Core;
use http_engine::{ClientConnection, HttpPlan};
use metrics::process;
use observe::Severity;
use quinn_proto::{ConnectionError, ConnectionHandle};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tls::quic::{Chooser, ChosenRules, ConnectionFacts, PathWatch};
use wire_h3::Server;

/// Maximum number of transmits of one connection per turn; the rest waits for the next turn.
const TRANSMITS_MAX: usize = 64;

/// A client's QUIC connection with its requests: drives `wire_h3::Server`, which contains the
/// `quinn_proto::Connection`. [`QuicListener`] states the order of calls and who flushes.
///
/// # Order of calls
///
/// [`QuicClient::new`] after the endpoint has accepted the client. Then, for each event of the connection,
/// [`QuicClient::follow`]; after a batch of events, or within [`QuicClient::timed_out`], [`QuicClient::act`]; at the
/// end of the turn [`QuicClient::flush`], which polls endpoint events and transmits until there are none, and after
/// them the timeout, as `quinn_proto` requires. [`QuicClient::end`] ends the requests, once; the connection itself
/// remains until QUIC has drained it: the flush that notices it removes the client from the listener.
///
/// # Who may borrow
///
/// `core` is shared with the client's [`Streams`], which borrow it for single calls. This driver also borrows it for
/// single statements, and never while it calls `Streams` or a request. Two borrows span calls: an event is handled, and
/// its chooser of a certificate called, while `core` is borrowed; and packets are taken and passed to
/// [`QuicListener::tell_endpoint`] and [`QuicListener::transmit`]. None of these may call the client.
pub struct QuicClient {
    listener: Weak<QuicListener>,
    /// The connection's handle in the listener's endpoint.
    pub handle: ConnectionHandle,
    /// Protocol core with the QUIC connection; also `Streams` refers to it. See the rules of borrows above.
    pub core: Rc<RefCell<Server>>,
    /// Facts of the connection, replaced at the end of the handshake.
    connection: RefCell<Rc<ClientConnection>>,
    /// Streams with requests, once the handshake permits them.
    streams: RefCell<Option<Rc<Streams>>>,
    own: Weak<QuicClient>,
    /// Set while the listener flushes this client at the end of the turn.
    pub dirty: Cell<bool>,
    /// Key of this client in the listener's deadlines.
    pub timer: Cell<Option<Instant>>,
    /// Place among the listener's idle clients.
    pub idle: IdlePlace,
    /// Deadline of the handshake, of a head, of an idle connection, or of a client that does not read.
    deadline: Cell<Option<Instant>>,
    rest: Rest,
    /// Octets that QUIC had accepted when the deadline of a client that does not read was armed.
    passed: Cell<u64>,
    /// Heads were given up since the last request: the next time ends the connection.
    has_late_heads: Cell<bool>,
    /// Set after the end of the handshake was counted.
    counted: Cell<bool>,
    /// Set while [`Worker::unproven_handshakes`] counts the handshake.
    unproven: Cell<bool>,
    /// Set after the last request; QUIC may still have to send the close.
    over: Cell<bool>,
    /// Set when QUIC has finished with the connection.
    drained: Cell<bool>,
    /// Address that QUIC sends to, which may not be validated yet. Requests use the address in `connection`.
    remote: Cell<SocketAddr>,
    path: RefCell<Option<Arc<PathWatch>>>,
}

impl StreamLink for QuicClient {
    fn touch(self: Rc<Self>) {
        self.mark();
    }
    /// Has no limit here: that of the core (`wire_h3`) leaves room for each stream, so that a stream that its client does
    /// not read cannot stop the others.
    fn unsent(&self) -> usize {
        0
    }
    fn room(&self, wanted: usize) -> usize {
        wanted
    }
}

/// Selects the rules for a connection's ClientHello from the current plan.
pub fn rules_chooser(plan: &Arc<HttpPlan>, connection: &Rc<ClientConnection>) -> Chooser {
    let (plan, connection) = (plan.clone(), connection.clone());
    Rc::new(move |hello| match plan.quic_choice(&connection, hello) {
        Some(chosen) => chosen,
        None => ChosenRules { choice: tls::Choice::Fail, h3: true, hq: false },
    })
}

impl QuicClient {
    /// Begins the driver of an accepted connection. The caller adds it to the listener's clients.
    pub fn new(
        listener: &Weak<QuicListener>,
        handle: ConnectionHandle,
        mut core: Server,
        connection: Rc<ClientConnection>,
    ) -> Rc<QuicClient> {
        core.await_protocol();
        let remote = core.quic_ref().remote_address();
        Rc::new_cyclic(|own| QuicClient {
            listener: listener.clone(),
            handle,
            core: Rc::new(RefCell::new(core)),
            connection: RefCell::new(connection),
            streams: RefCell::default(),
            own: own.clone(),
            dirty: Cell::new(false),
            timer: Cell::new(None),
            idle: IdlePlace::default(),
            deadline: Cell::new(None),
            rest: Rest::default(),
            passed: Cell::new(0),
            has_late_heads: Cell::new(false),
            counted: Cell::new(false),
            unproven: Cell::new(false),
            over: Cell::new(false),
            drained: Cell::new(false),
            remote: Cell::new(remote),
            path: RefCell::default(),
        })
    }

    /// Returns the facts of the connection as they are now.
    pub fn connection(&self) -> Rc<ClientConnection> {
        self.connection.borrow().clone()
    }
    /// Tells whether no request is active or has begun to arrive.
    pub fn is_idle(&self) -> bool {
        let core = self.core.borrow();
        self.streams.borrow().as_ref().is_some_and(|streams| streams.is_empty())
            && core.is_idle()
            && !core.is_within_head()
    }
    /// Returns the number of requests so far.
    pub fn requests(&self) -> u32 {
        self.connection.borrow().requests.get()
    }
    /// Tells whether [`QuicClient::end`] was called.
    pub fn is_over(&self) -> bool {
        self.over.get()
    }
    /// Counts the handshake until its end: the client's address may be forged.
    pub fn begin_unproven(&self, worker: &Worker) {
        self.unproven.set(true);
        worker.admission.begin_unproven();
    }
    fn end_unproven(&self, worker: &Worker) {
        if self.unproven.replace(false) {
            worker.admission.end_unproven();
        }
    }
    fn mark(&self) {
        if let (Some(listener), Some(own)) = (self.listener.upgrade(), self.own.upgrade()) {
            listener.touch(own);
        }
    }

    /// Processes events of the QUIC connection after datagrams or timers.
    pub fn act(&self, listener: &QuicListener) {
        // The handshake selects the protocol of the streams.
        self.learn(listener);
        self.core.borrow_mut().drive();
        if self.learn(listener) {
            self.core.borrow_mut().drive();
        }
        let streams = self.streams.borrow().clone();
        if let Some(streams) = streams {
            streams.act();
        }
        let failure = self.core.borrow().failure();
        if let Some(error) = failure.filter(|_| !self.over.get()) {
            self.say(listener, Severity::Info, &format!("{} while processing HTTP/3 connection", error.words));
            // Sends the last octets of the streams; nothing follows the close.
            self.transmit(listener);
            self.close();
        }
        let lost = self.core.borrow().lost().cloned();
        if let Some(why) = lost
            && !self.over.get()
        {
            match why {
                ConnectionError::TransportError(error) if !self.counted.get() => {
                    let words = format!("SSL_do_handshake() failed (SSL: {}) while SSL handshaking", error.reason);
                    self.say(listener, Severity::Info, &words);
                }
                ConnectionError::TransportError(error) => {
                    self.say(listener, Severity::Info, &format!("quic connection failed ({error})"));
                }
                _ => {}
            }
            self.end();
        }
        self.mark();
    }

    /// Copies the facts of the handshake as soon as requests can arrive. Returns `true` if the protocol has become
    /// known.
    fn learn(&self, listener: &QuicListener) -> bool {
        if self.counted.get() {
            return false;
        }
        let mut is_new = false;
        if self.streams.borrow().is_none() {
            let facts = self.core.borrow().quic_ref().crypto_session().handshake_data();
            let Some(known) = facts.and_then(|facts| facts.downcast::<ConnectionFacts>().ok()) else { return false };
            let ConnectionFacts { hq, facts, path } = *known;
            is_new = self.core.borrow_mut().speak(hq);
            let Some(facts) = facts else { return is_new };
            let old = self.connection();
            let new = Rc::new(ClientConnection { tls: Some(facts), ..(*old).clone() });
            *self.connection.borrow_mut() = new.clone();
            *self.path.borrow_mut() = Some(path);
            if let Some(own) = self.own.upgrade() {
                let streams = Streams::new(
                    listener.worker(),
                    &new,
                    Rc::downgrade(&own) as Weak<dyn StreamLink>,
                    self.core.clone(),
                );
                if listener.worker().turn().is_quitting() {
                    streams.begin_quit();
                }
                *self.streams.borrow_mut() = Some(streams);
            }
        }
        if self.core.borrow().is_connected() {
            let connection = self.connection();
            let facts = connection.tls.as_ref();
            if let Some(facts) = facts {
                facts.early.store(false, Ordering::Relaxed);
            }
            self.counted.set(true);
            self.end_unproven(listener.worker());
            metrics::count_tls_version("TLSv1.3");
            self.count_handshake(&connection, Ok(facts.is_some_and(|facts| facts.resumed)));
        }
        is_new
    }

    /// Follows the client to another address. QUIC sends to the address at once; requests use it after the client has
    /// proven that it receives packets there.
    pub fn follow(&self, listener: &QuicListener) {
        let remote = self.core.borrow().quic_ref().remote_address();
        if self.path.borrow().is_none() {
            // A client may move with its next datagram.
            self.learn(listener);
        }
        let path = self.path.borrow().clone();
        let Some(path) = path else { return };
        let connection = self.connection();
        if self.remote.replace(remote) != remote {
            if connection.peer == Some(remote) {
                // QUIC has returned to the old address, because the new one was not validated.
                return path.end();
            }
            path.begin();
            // Sends the challenge before responses, which may use up the limit for an unvalidated address.
            self.transmit(listener);
        } else if path.is_proven() {
            path.end();
            self.say(listener, Severity::Info, &format!("quic client moved to {remote}"));
            let moved = Rc::new(ClientConnection { peer: Some(remote), ..(*connection).clone() });
            *self.connection.borrow_mut() = moved.clone();
            if let Some(streams) = &*self.streams.borrow() {
                streams.set_connection(&moved);
            }
        }
    }

    /// Logs the result of the connection.
    fn say(&self, listener: &QuicListener, level: Severity, words: &str) {
        let connection = self.connection();
        listener.worker().log_client(level, &connection, format_args!("{words}"));
    }

    fn count_handshake(&self, connection: &ClientConnection, done: Result<bool, metrics::TlsFailure>) {
        metrics::count_handshake(metrics::Area::Http, done);
        if let Some(listener) = self.listener.upgrade()
            && let Some(plan) = &*listener.worker().plan.borrow()
        {
            plan.count_handshake(connection, None, done);
        }
    }
    /// Ends all requests, and counts the connection as ended.
    pub fn end(&self) {
        if self.over.replace(true) {
            return;
        }
        self.deadline.set(None);
        let streams = self.streams.borrow().clone();
        if let Some(streams) = streams {
            streams.cut_off();
        }
        process::CONNECTIONS_ACTIVE.down();
        if !self.counted.replace(true) {
            self.count_handshake(&self.connection(), Err(metrics::TlsFailure::Other));
        }
        if let Some(listener) = self.listener.upgrade() {
            self.end_unproven(listener.worker());
            listener.worker().admission.end_datagram_client();
        }
    }
    /// Closes the connection with an error code.
    pub fn close(&self) {
        self.core.borrow_mut().close(turn_now());
        self.end();
        self.mark();
    }
    /// Handles QUIT: accepts no more requests, and finishes active ones.
    pub fn begin_quit(&self) {
        let streams = self.streams.borrow().clone();
        match streams {
            Some(streams) => streams.begin_quit(),
            // The handshake continues; the first requests are refused.
            None => self.core.borrow_mut().shutdown(),
        }
        self.mark();
    }

    /// Handles a deadline of QUIC or of this driver.
    pub fn timed_out(&self, listener: &QuicListener) {
        let now = turn_now();
        {
            let mut core = self.core.borrow_mut();
            if core.quic().poll_timeout().is_some_and(|at| at <= now) {
                core.quic().handle_timeout(now);
            }
        }
        if self.deadline.get().is_some_and(|at| at <= now) {
            self.deadline.set(None);
            self.give_up(listener);
        }
        self.act(listener);
    }
    fn give_up(&self, listener: &QuicListener) {
        let is_connected = self.core.borrow().is_connected();
        // A client that begins heads again and again would never be idle, and would never make room for others.
        if is_connected && self.core.borrow_mut().give_up_head() && !self.has_late_heads.replace(true) {
            self.rest.end();
            return;
        }
        if !is_connected {
            self.say(listener, Severity::Info, "client timed out (110: Connection timed out) while SSL handshaking");
        } else if self.core.borrow().unsent() > 0 {
            self.say(listener, Severity::Info, "client timed out (110: Connection timed out) while sending to client");
        }
        self.close();
    }

    /// Sends QUIC's packets within this connection's share of the turn, and arms the deadlines. Returns `false` if the
    /// socket is full or the share is used up; the connection then gets another turn.
    pub fn flush(&self, listener: &QuicListener) -> bool {
        let is_done = self.transmit(listener);
        if self.drained.get() {
            self.end();
            listener.forget(self);
            return true;
        }
        let now = turn_now();
        if !self.over.get() {
            self.arm(listener, now);
        }
        let quic = self.core.borrow_mut().quic().poll_timeout();
        let timer = [quic, self.deadline.get()].into_iter().flatten().min();
        listener.set_timer(self, timer);
        is_done
    }

    /// Sends packets within a share of the turn. Returns `true` if all packets were sent.
    fn transmit(&self, listener: &QuicListener) -> bool {
        let now = turn_now();
        let path = self.path.borrow().clone();
        for _ in 0..TRANSMITS_MAX {
            let transmit = {
                let mut core = self.core.borrow_mut();
                while let Some(event) = core.quic().poll_endpoint_events() {
                    if event.is_drained() {
                        self.drained.set(true);
                    }
                    if let Some(event) = listener.tell_endpoint(self.handle, event) {
                        core.quic().handle_event(event);
                    }
                }
                listener.transmit(|segments, buf| {
                    let transmit = core.quic().poll_transmit(now, segments, buf)?;
                    if let Some(path) = &path {
                        path.sent_to_it(transmit.destination == self.remote.get());
                    }
                    Some(transmit)
                })
            };
            match transmit {
                Ok(true) => {}
                Ok(false) => return true,
                Err(_) => return false,
            }
        }
        false
    }

    /// Arms the current deadline, or closes a connection whose work is done.
    fn arm(&self, listener: &QuicListener, now: Instant) {
        let worker = listener.worker();
        let (is_connected, is_idle, within, going, has_begun, passed) = {
            use http_types::StreamMux;
            let core = self.core.borrow();
            let passed = core.passed();
            (core.is_connected(), core.is_idle(), core.is_within_head(), core.is_going(), core.has_begun(), passed)
        };
        let connection = self.connection();
        let conf = worker.default_conf(&connection);
        let conf = |default: u64, of: &dyn Fn(&Core) -> u64| {
            Duration::from_millis(conf.as_ref().map_or(default, |core| of(core)))
        };
        let head = || conf(60_000, &|core| core.conf.client_header_timeout.0);
        let (has_requests, peer_goes) = {
            let streams = self.streams.borrow();
            streams.as_ref().map_or((false, false), |streams| (!streams.is_empty(), streams.peer_goes()))
        };
        if !is_connected && !has_requests {
            // Limits the handshake by the timeout of a head, as in nginx.
            if self.deadline.get().is_none() {
                self.deadline.set(Some(now + head()));
            }
            return;
        }
        if has_requests {
            // Requests have their own deadlines.
            self.has_late_heads.set(false);
            self.rest.end();
            return self.deadline.set(None);
        }
        let ends = (going || peer_goes || worker.turn().is_quitting()) && !within;
        if !is_idle || (ends && self.core.borrow_mut().has_unacknowledged()) {
            // Responses are complete, and the client has not received all of them.
            self.rest.end();
            if self.passed.replace(passed) != passed || self.deadline.get().is_none() {
                self.deadline
                    .set(Some(now + conf(60_000, &|core| core.conf.send_timeout.duration().as_millis() as u64)));
            }
            return;
        }
        if ends {
            return self.close();
        }
        if !within {
            listener.set_idle(self);
        }
        if within || !has_begun {
            if self.rest.begin(true, self.requests()) {
                self.deadline.set(Some(now + head()));
            }
        } else {
            if self.rest.begin(false, self.requests()) {
                self.deadline.set(Some(now + conf(75_000, &|core| core.conf.keepalive_timeout.millis)));
            } else if !self.core.borrow_mut().has_unacknowledged() {
                // Not at the end of each request: a client that acknowledges its response together with the next request would
                // have all tables allocated anew for each.
                use http_types::StreamMux;
                self.core.borrow_mut().shrink();
            }
        }
    }
}

/// Returns the time of this turn.
pub fn turn_now() -> Instant {
    clock::as_std(clock::now())
}
