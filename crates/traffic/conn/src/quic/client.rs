//! One client's connection over QUIC: its protocol core, its requests and its deadlines. The socket is the listener's.

use super::QuicListener;
use crate::streams::{StreamLink, Streams};
use crate::worker::Worker;
use base::clock;
use http_engine::plan::Core;
use http_engine::{Connection, HttpPlan};
use metrics::process;
use observe::Level;
use quinn_proto::{ConnectionError, ConnectionHandle};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tls::quic::{Chooser, Chosen, Known, PathWatch};
use wire_h3::Server;

/// Transmits of one connection in a turn; the rest has the next turn.
const TRANSMITS_MAX: usize = 64;

/// See the module's documentation.
pub struct QuicClient {
    listener: Weak<QuicListener>,
    pub handle: ConnectionHandle,
    pub core: Rc<RefCell<Server>>,
    /// Replaced when the handshake has told its facts.
    connection: RefCell<Rc<Connection>>,
    /// Requests, once the handshake allows some.
    streams: RefCell<Option<Rc<Streams>>>,
    own: Weak<QuicClient>,
    /// The listener looks after it at the end of the turn.
    pub dirty: Cell<bool>,
    /// Its place among the listener's deadlines.
    pub timer: Cell<Option<Instant>>,
    /// The deadline of the handshake, of a head, of an idle connection or of a client that does not read.
    deadline: Cell<Option<Instant>>,
    /// A head has begun to come, and its deadline is armed.
    heading: Cell<bool>,
    /// Octets that QUIC had taken when the deadline of a client that does not read was armed.
    passed: Cell<u64>,
    /// The end of the handshake is counted.
    counted: Cell<bool>,
    /// [`Worker::unproven_handshakes`] counts the handshake.
    unproven: Cell<bool>,
    /// Requests are over; QUIC may still tell the client so.
    over: Cell<bool>,
    /// QUIC has nothing more to do with the connection.
    drained: Cell<bool>,
    /// The address that QUIC sends to. It may have to be validated; requests have that of `connection`.
    remote: Cell<SocketAddr>,
    path: RefCell<Option<Arc<PathWatch>>>,
}

impl StreamLink for QuicClient {
    fn touch(self: Rc<Self>) {
        self.mark();
    }
    /// Streams have bounds of their own (`wire_h3`): one that its client does not read must not stop the others.
    fn unsent(&self) -> usize {
        0
    }
}

/// Decides about a connection's ClientHello by the plan of the moment.
pub fn chooser(plan: &Arc<HttpPlan>, connection: &Rc<Connection>) -> Chooser {
    let (plan, connection) = (plan.clone(), connection.clone());
    Rc::new(move |hello| match plan.quic_choice(&connection, hello) {
        Some(chosen) => chosen,
        None => Chosen { choice: tls::Choice::Fail, h3: true, hq: false },
    })
}

impl QuicClient {
    pub fn new(
        listener: &Weak<QuicListener>,
        handle: ConnectionHandle,
        mut core: Server,
        connection: Rc<Connection>,
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
            deadline: Cell::new(None),
            heading: Cell::new(false),
            passed: Cell::new(0),
            counted: Cell::new(false),
            unproven: Cell::new(false),
            over: Cell::new(false),
            drained: Cell::new(false),
            remote: Cell::new(remote),
            path: RefCell::default(),
        })
    }

    pub fn connection(&self) -> Rc<Connection> {
        self.connection.borrow().clone()
    }
    /// No request is under way.
    pub fn is_idle(&self) -> bool {
        self.streams.borrow().as_ref().is_some_and(|streams| streams.is_empty()) && self.core.borrow().is_idle()
    }
    pub fn is_over(&self) -> bool {
        self.over.get()
    }
    /// Counts the handshake until its end: the client's address may be forged.
    pub fn begin_unproven(&self, worker: &Worker) {
        self.unproven.set(true);
        worker.unproven_handshakes.set(worker.unproven_handshakes.get() + 1);
    }
    fn end_unproven(&self, worker: &Worker) {
        if self.unproven.replace(false) {
            worker.unproven_handshakes.set(worker.unproven_handshakes.get() - 1);
        }
    }
    fn mark(&self) {
        if let (Some(listener), Some(own)) = (self.listener.upgrade(), self.own.upgrade()) {
            listener.touch(own);
        }
    }

    /// Takes in what datagrams or timers have told the QUIC connection.
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
            self.say(listener, Level::Info, &format!("{} while processing HTTP/3 connection", error.words));
            // The last words on the streams; nothing follows the close.
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
                    self.say(listener, Level::Info, &words);
                }
                ConnectionError::TransportError(error) => {
                    self.say(listener, Level::Info, &format!("quic connection failed ({error})"));
                }
                _ => {}
            }
            self.end();
        }
        self.mark();
    }

    /// Takes the facts of the handshake over, as soon as requests may come. Returns `true` if the protocol has become known.
    fn learn(&self, listener: &QuicListener) -> bool {
        if self.counted.get() {
            return false;
        }
        let mut is_new = false;
        if self.streams.borrow().is_none() {
            let facts = self.core.borrow().quic_ref().crypto_session().handshake_data();
            let Some(known) = facts.and_then(|facts| facts.downcast::<Known>().ok()) else { return false };
            let Known { hq, facts, path } = *known;
            is_new = self.core.borrow_mut().speak(hq);
            let Some(facts) = facts else { return is_new };
            let old = self.connection();
            let new = Rc::new(Connection { tls: Some(facts), ..(*old).clone() });
            *self.connection.borrow_mut() = new.clone();
            *self.path.borrow_mut() = Some(path);
            if let Some(own) = self.own.upgrade() {
                let streams = Streams::new(
                    listener.worker(),
                    &new,
                    Rc::downgrade(&own) as Weak<dyn StreamLink>,
                    self.core.clone(),
                );
                if listener.worker().quitting.get() {
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

    /// Follows the client to another address. QUIC sends to it at once; requests see it when the client has proven that it receives
    /// there.
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
                // QUIC has gone back to it: the other address was not validated.
                return path.end();
            }
            path.begin();
            // The challenge leaves before answers do, which may exhaust what an unproven address is sent.
            self.transmit(listener);
        } else if path.is_proven() {
            path.end();
            self.say(listener, Level::Info, &format!("quic client moved to {remote}"));
            let moved = Rc::new(Connection { peer: Some(remote), ..(*connection).clone() });
            *self.connection.borrow_mut() = moved.clone();
            if let Some(streams) = &*self.streams.borrow() {
                streams.set_connection(&moved);
            }
        }
    }

    /// Logs how the connection fared.
    fn say(&self, listener: &QuicListener, level: Level, words: &str) {
        let connection = self.connection();
        listener.worker().log_client(level, &connection, format_args!("{words}"));
    }

    fn count_handshake(&self, connection: &Connection, done: Result<bool, metrics::TlsFailure>) {
        metrics::count_handshake(metrics::Area::Http, done);
        if let Some(listener) = self.listener.upgrade()
            && let Some(plan) = &*listener.worker().plan.borrow()
        {
            plan.count_handshake(connection, None, done);
        }
    }
    /// Ends all requests, and counts the connection as gone.
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
            let count = &listener.worker().datagram_clients;
            count.set(count.get() - 1);
        }
    }
    /// Ends the connection, and tells the client why.
    pub fn close(&self) {
        self.core.borrow_mut().close(now());
        self.end();
        self.mark();
    }
    /// QUIT: no more requests; those under way go on.
    pub fn begin_quit(&self) {
        let streams = self.streams.borrow().clone();
        match streams {
            Some(streams) => streams.begin_quit(),
            // The handshake goes on; its first requests are refused.
            None => self.core.borrow_mut().shutdown(),
        }
        self.mark();
    }

    /// A deadline has come: QUIC's, or ours.
    pub fn timed_out(&self, listener: &QuicListener) {
        let now = now();
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
        if is_connected && self.core.borrow_mut().give_up_head() {
            self.heading.set(false);
            return;
        }
        if !is_connected {
            self.say(listener, Level::Info, "client timed out (110: Connection timed out) while SSL handshaking");
        } else if self.core.borrow().unsent() > 0 {
            self.say(listener, Level::Info, "client timed out (110: Connection timed out) while sending to client");
        }
        self.close();
    }

    /// Sends what QUIC has to send, within its share of the turn, and arms the deadlines. `false`: the socket has no room, or the
    /// share is used up; the connection has its turn again.
    pub fn flush(&self, listener: &QuicListener) -> bool {
        let is_done = self.transmit(listener);
        if self.drained.get() {
            self.end();
            listener.forget(self);
            return true;
        }
        let now = now();
        if !self.over.get() {
            self.arm(listener, now);
        }
        let quic = self.core.borrow_mut().quic().poll_timeout();
        let timer = [quic, self.deadline.get()].into_iter().flatten().min();
        listener.set_timer(self, timer);
        is_done
    }

    /// Sends within a share of the turn; tells if that was all.
    fn transmit(&self, listener: &QuicListener) -> bool {
        let now = now();
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

    /// Arms the deadline that holds now, or closes the connection that is done.
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
            // nginx: the handshake has the time of a head.
            if self.deadline.get().is_none() {
                self.deadline.set(Some(now + head()));
            }
            return;
        }
        if has_requests {
            // Requests have deadlines of their own.
            self.heading.set(false);
            return self.deadline.set(None);
        }
        let ends = (going || peer_goes || worker.quitting.get()) && !within;
        if !is_idle || (ends && self.core.borrow_mut().has_unacknowledged()) {
            // Answers are whole, and the client takes its time.
            self.heading.set(false);
            if self.passed.replace(passed) != passed || self.deadline.get().is_none() {
                self.deadline
                    .set(Some(now + conf(60_000, &|core| core.conf.send_timeout.duration().as_millis() as u64)));
            }
            return;
        }
        if ends {
            return self.close();
        }
        if within || !has_begun {
            if !self.heading.replace(true) {
                self.deadline.set(Some(now + head()));
            }
        } else {
            self.heading.set(false);
            self.deadline.set(Some(now + conf(75_000, &|core| core.conf.keepalive_timeout.millis)));
            use http_types::StreamMux;
            self.core.borrow_mut().shrink();
        }
    }
}

/// The time of this turn.
pub fn now() -> Instant {
    clock::as_std(clock::now())
}
