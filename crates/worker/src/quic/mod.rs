//! Carrier of HTTP/3: one QUIC endpoint per `listen ... quic` and thread. Receives datagrams in batches, passes them to
//! their connections (`client.rs`), and sends the connections' packets at the end of the turn. Connections outlive
//! reloads; requests use the current plan. `held.rs` keeps clients whose certificate is being ordered. `ids.rs`
//! forwards datagrams of clients that have moved to the right thread, `relay.rs` to the right process.

mod client;
mod held;
mod idle;
mod ids;
pub mod relay;

use crate::room::admit_connection;
use crate::worker::{Carrier, Worker};
use base::clock;
use bytes::BytesMut;
use client::{QuicClient, rules_chooser, turn_now};
use held::{Decision, HELD_BYTES_MAX, HELD_MAX, HeldClients};
use http_engine::handler::CertificateHook;
use http_engine::plan::Congestion;
use http_engine::{ClientConnection, HttpPlan, ListenerRef, PartialHead};
use idle::IdleClients;
use ids::{SocketSlot, StrayDatagram};
use metrics::process;
use net::Address;
use net::listen::ListenSpec;
use net::packets::{OutgoingPackets, Packet, PacketSocket};
use net::poller::Key;
use observe::Severity;
use quinn_proto::{
    AcceptError, ConnectionError, ConnectionEvent, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig,
    EndpointEvent, Incoming, ServerConfig, Transmit, ValidationTokenConfig,
};
use runtime::budget;
use runtime::wake::KeyWaker;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::rc::{Rc, Weak};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tls::quic::{EndpointKeys, QuicServer, UsedTokens, with_chooser};
use wire_h3::{Limits, Server};

/// RFC 9000. As in nginx, drafts of it are unknown versions.
const VERSION_1: u32 = 1;
/// Delay before the next attempt to send to a full socket.
const BLOCKED_PAUSE: Duration = Duration::from_millis(1);
/// Part of a turn's share that a handshake's computations use (a signature and a key exchange: more than half a
/// millisecond).
const HANDSHAKE_COST: usize = budget::BYTES as usize / 2;

/// Divisor of `worker_connections`: this part of them may be unfinished handshakes of unproven addresses.
const UNPROVEN_PART: usize = 4;

/// Validity of a token for a later connection (nginx: `NGX_QUIC_NEW_TOKEN_LIFETIME`).
const TOKEN_LIFETIME: Duration = Duration::from_secs(600);

/// Settings of this listener in a plan.
struct QuicSettings {
    /// Generation of the plan; 0 before the first plan.
    generation: u32,
    limits: Limits,
    retry: bool,
    active_ids: u64,
    segments: usize,
}

/// A datagram, or several for one GSO send, that did not fit into the socket.
struct BlockedPackets {
    transmit: Transmit,
    bytes: Vec<u8>,
}

/// The QUIC endpoint of one socket, and the connections of its clients: one per thread and `listen ... quic`. It is the
/// socket's [`Carrier`], and drives `quinn_proto::Endpoint`; each [`QuicClient`] drives a `quinn_proto::Connection`.
///
/// # Order of calls
///
/// [`QuicListener::open`] registers the socket. In a turn, [`Carrier::ready`] receives batches of datagrams. Each
/// datagram passes the endpoint to its client, as an event of the client's connection followed by
/// [`QuicClient::follow`]; after the batch, each client with datagrams acts once ([`QuicClient::act`]).
/// [`Carrier::timed_out`] calls [`QuicClient::timed_out`] of the clients whose deadline has passed.
///
/// # Who flushes
///
/// The end of the turn: [`Carrier::end_of_turn`] sends the blocked transmit first, then flushes each client that was
/// registered with [`QuicListener::touch`] ([`QuicClient::flush`]), then arms the poller. Any other change of a
/// client's connection or core must be followed by `touch`, otherwise nothing is sent and no timer is armed. A client
/// that is not flushed completely stays registered for the next turn. Sent at once are replies of the endpoint itself
/// (Retry, version negotiation, refusals), and by clients the packets before a close and to a new address.
///
/// # Who may borrow
///
/// All calls are made on the thread of the socket. The listener owns the clients; a client has a weak reference to the
/// listener, and calls `touch`, `tell_endpoint`, `transmit`, `set_timer`, `set_idle` and `forget` while the listener
/// calls it. Therefore the listener holds no borrow of a cell while it calls a client. The exceptions call no client:
/// choosers of certificates run while `endpoint` is borrowed, and the argument of [`QuicListener::transmit`] runs while
/// `settings` and `transmit_buf` are, so that it must not call `transmit` again.
pub struct QuicListener {
    worker: Rc<Worker>,
    key: Cell<Option<Key>>,
    socket: PacketSocket,
    address: Rc<Address>,
    listener: ListenerRef,
    slot: SocketSlot,
    endpoint: RefCell<Endpoint>,
    settings: RefCell<QuicSettings>,
    clients: RefCell<HashMap<ConnectionHandle, Rc<QuicClient>>>,
    timers: RefCell<BTreeSet<(Instant, ConnectionHandle)>>,
    /// Clients that were idle at the end of a turn, longest idle first.
    idle: RefCell<IdleClients>,
    /// Clients with datagrams in the current batch.
    heard: RefCell<Vec<Rc<QuicClient>>>,
    /// Clients with something to send at the end of the turn.
    touched: RefCell<Vec<Rc<QuicClient>>>,
    /// Set if [`Carrier::end_of_turn`] will be called.
    dirty: Cell<bool>,
    blocked: RefCell<Option<BlockedPackets>>,
    transmit_buf: RefCell<Vec<u8>>,
    /// Clients whose certificate is being ordered.
    held: RefCell<HeldClients>,
    /// Refuses new clients, after QUIT or when the address was removed.
    leaving: Cell<bool>,
    own: Weak<QuicListener>,
}

impl QuicListener {
    /// Opens the endpoint of a socket, and registers the socket with the poller.
    ///
    /// # Errors
    /// The system's errors.
    pub fn open(worker: &Rc<Worker>, fd: OwnedFd, spec: &ListenSpec) -> io::Result<Key> {
        let socket = PacketSocket::new(fd.try_clone()?, spec.receive_buffer.is_some())?;
        let address = Rc::new(spec.address.clone());
        let listener = ListenerRef::datagrams(address.clone());
        let Address::Ip(own) = spec.address else { return Err(io::ErrorKind::Unsupported.into()) };
        relay::start_relay();
        let (slot, mut stray) = SocketSlot::take(own);
        let keys = worker.plan.borrow().as_ref().map_or_else(EndpointKeys::of_process, |plan| keys(plan, &listener));
        let mut config = EndpointConfig::new(keys.reset);
        config.supported_versions(vec![VERSION_1]);
        let ids = slot.ids();
        config.cid_generator(move || Box::new(ids));
        let endpoint = Endpoint::new(Arc::new(config), None, true, None);
        let own = Rc::new_cyclic(|own| QuicListener {
            worker: worker.clone(),
            key: Cell::new(None),
            socket,
            address,
            listener,
            slot,
            endpoint: RefCell::new(endpoint),
            settings: RefCell::new(QuicSettings {
                generation: 0,
                limits: Limits::default(),
                retry: false,
                active_ids: 0,
                segments: 1,
            }),
            clients: RefCell::default(),
            timers: RefCell::default(),
            idle: RefCell::default(),
            heard: RefCell::default(),
            touched: RefCell::default(),
            dirty: Cell::new(false),
            blocked: RefCell::default(),
            transmit_buf: RefCell::default(),
            held: RefCell::default(),
            leaving: Cell::new(false),
            own: own.clone(),
        });
        let key = worker.poller.add_listener(fd, own.clone(), false)?;
        own.key.set(Some(key));
        let weak = own.own.clone();
        runtime::task::spawn_local(async move {
            while let Some(packet) = stray.recv().await {
                let Some(own) = weak.upgrade() else { return };
                // The task outlives a panic, as the carrier of the socket does.
                if std::panic::catch_unwind(AssertUnwindSafe(|| own.take_strayed(&packet))).is_err() {
                    process::PANICS.up();
                }
            }
        });
        Ok(key)
    }

    /// Returns the thread.
    pub fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// Updates the settings if the plan has changed.
    fn configure(&self) {
        let plan = self.worker.plan.borrow().clone();
        let Some(plan) = plan else { return };
        if self.settings.borrow().generation == plan.generation {
            return;
        }
        let settings = settings(&plan, &self.listener, self.socket.segments_max());
        let config = settings.as_ref().and_then(|settings| {
            static USED_TOKENS: LazyLock<Arc<UsedTokens>> = LazyLock::new(Arc::default);
            let crypto = Arc::new(QuicServer::new(settings.active_ids).ok()?);
            let mut config = ServerConfig::new(crypto, keys(&plan, &self.listener).token);
            config.transport_config(Arc::new(settings.limits.transport()));
            let mut tokens = ValidationTokenConfig::default();
            // Issues tokens, which spare clients a Retry at later connections, as in nginx.
            tokens.lifetime(TOKEN_LIFETIME).sent(settings.retry.into()).log(USED_TOKENS.clone());
            config.validation_token_config(tokens);
            config.incoming_buffer_size(HELD_BYTES_MAX).incoming_buffer_size_total(HELD_BYTES_MAX * HELD_MAX as u64);
            Some(Arc::new(config))
        });
        // Without a configuration, the endpoint refuses new clients.
        self.endpoint.borrow_mut().set_server_config(config);
        let mut own = self.settings.borrow_mut();
        match settings {
            Some(settings) => *own = settings,
            None => own.generation = plan.generation,
        }
    }

    fn take(&self, packet: &Packet<'_>) {
        process::QUIC_DATAGRAMS.up();
        let stray =
            || StrayDatagram { bytes: packet.bytes.to_vec(), from: packet.from, to: packet.to, ecn: packet.ecn };
        if !self.slot.pass_on(packet.bytes, stray) {
            self.handle(packet.bytes, packet.from, packet.to, packet.ecn);
        }
    }
    /// Processes a datagram that another thread has received.
    fn take_strayed(&self, packet: &StrayDatagram) {
        // The datagram may be the first one for this socket.
        self.configure();
        self.handle(&packet.bytes, packet.from, packet.to, packet.ecn);
        self.act_on_heard();
    }

    fn handle(&self, bytes: &[u8], from: SocketAddr, to: Option<IpAddr>, ecn: u8) {
        let ecn = quinn_proto::EcnCodepoint::from_bits(ecn);
        let mut reply = Vec::new();
        let event = self.endpoint.borrow_mut().handle(turn_now(), from, to, ecn, BytesMut::from(bytes), &mut reply);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => self.hear(handle, event),
            Some(DatagramEvent::NewConnection(incoming)) => self.meet(incoming, bytes),
            Some(DatagramEvent::Response(transmit)) => self.send_now(transmit, reply),
            None if self.held.borrow().is_empty() => {}
            None => {
                let now_complete = self.held.borrow_mut().take_in(from, bytes);
                if let Some(id) = now_complete {
                    self.decide(id);
                }
            }
        }
    }

    fn hear(&self, handle: ConnectionHandle, event: ConnectionEvent) {
        let client = self.clients.borrow().get(&handle).cloned();
        let Some(client) = client else { return };
        let plan = self.worker.plan.borrow().clone();
        let is_heard = self.guarded(&client, |client| {
            let is_handshaking = client.core.borrow().is_early();
            let heard = || client.core.borrow_mut().quic().handle_event(event);
            match plan.filter(|_| is_handshaking) {
                Some(plan) => with_chooser(rules_chooser(&plan, &client.connection()), heard),
                None => heard(),
            }
            client.follow(self);
        });
        let mut all = self.heard.borrow_mut();
        if is_heard && !all.iter().any(|known| Rc::ptr_eq(known, &client)) {
            all.push(client);
        }
    }

    /// Handles a client's first datagram.
    fn meet(&self, incoming: Incoming, datagram: &[u8]) {
        let plan = self.worker.plan.borrow().clone();
        let Some(plan) = plan.filter(|_| !self.leaving.get()) else { return self.refuse(incoming) };
        if plan.ext::<CertificateHook>().is_none() || self.must_prove(&incoming) {
            return self.admit(&plan, incoming);
        }
        let connection = self.connection_of(&incoming);
        let other = self.held.borrow_mut().make_room();
        if let Some(other) = other {
            self.admit(&plan, other);
        }
        let held = self.held.borrow_mut().hold(incoming, connection, datagram);
        match held {
            Ok(id) => self.decide(id),
            Err(incoming) => self.admit(&plan, *incoming),
        }
    }
    /// Accepts a client, or lets it prove its address first. A client that was held is checked again: others may have taken
    /// connections in the meantime.
    fn admit(&self, plan: &Arc<HttpPlan>, incoming: Incoming) {
        match self.must_prove(&incoming) {
            true => self.retry(incoming),
            false => self.accept(plan, incoming),
        }
    }
    fn must_prove(&self, incoming: &Incoming) -> bool {
        !incoming.remote_address_validated() && (self.settings.borrow().retry || self.is_crowded())
    }
    /// Tells whether a forged address would take room from clients: handshakes of unproven addresses hold their part, or an idle
    /// connection would have to be closed.
    fn is_crowded(&self) -> bool {
        let limit = self.worker.serving().connections_max;
        self.worker.admission.unproven_handshakes() >= limit.div_ceil(UNPROVEN_PART)
            || self.worker.connections() >= limit
    }
    fn refuse(&self, incoming: Incoming) {
        let mut reply = Vec::new();
        let transmit = self.endpoint.borrow_mut().refuse(incoming, &mut reply);
        self.send_now(transmit, reply);
    }
    /// Sends a Retry, so that the client proves its address.
    fn retry(&self, incoming: Incoming) {
        let mut reply = Vec::new();
        let retried = self.endpoint.borrow_mut().retry(incoming, &mut reply);
        if let Ok(transmit) = retried {
            process::QUIC_RETRIES.up();
            self.send_now(transmit, reply);
        }
    }

    /// Accepts a held client, unless its ClientHello is incomplete or its certificate is being ordered.
    fn decide(&self, id: u64) {
        let (Some(key), Some(plan)) = (self.key.get(), self.worker.plan.borrow().clone()) else { return };
        let decision = self.held.borrow_mut().decide(id, |connection, hello| {
            budget::spend(HANDSHAKE_COST);
            plan.quic_choice(connection, hello)
        });
        match decision {
            Decision::Keep(wait) => {
                if let Some(wait) = wait {
                    wait.wake(&KeyWaker::new(key).waker());
                }
                // The client's deadline is already armed.
                self.mark();
            }
            Decision::Retry(incoming) => self.retry(*incoming),
            Decision::Accept(incoming) => self.admit(&plan, *incoming),
            Decision::Unknown => {}
        }
    }
    /// Decides about held clients whose wait has ended, and admits those that have waited too long: their handshakes
    /// fail.
    fn decide_held(&self) {
        let over = self.held.borrow().over();
        over.into_iter().for_each(|id| self.decide(id));
        let late = self.held.borrow_mut().late(turn_now());
        for incoming in late {
            let plan = self.worker.plan.borrow().clone();
            match plan {
                Some(plan) => self.admit(&plan, incoming),
                None => self.refuse(incoming),
            }
        }
        self.act_on_heard();
    }

    fn connection_of(&self, incoming: &Incoming) -> Rc<ClientConnection> {
        let local = match (&*self.address, incoming.local_ip()) {
            (Address::Ip(own), Some(ip)) if own.ip().is_unspecified() => {
                Rc::new(Address::Ip(SocketAddr::new(ip, own.port())))
            }
            _ => self.address.clone(),
        };
        Rc::new(ClientConnection {
            number: Worker::next_number(),
            peer: Some(incoming.remote_address()),
            local,
            listener: self.listener.clone(),
            requests: Cell::new(0),
            nodelay: Cell::new(true),
            pipelining: http_engine::PipelineState::default(),
            started: clock::now(),
            proxy: None,
            socket: None,
            tls: None,
            begun: PartialHead::default(),
        })
    }

    fn accept(&self, plan: &Arc<HttpPlan>, incoming: Incoming) {
        let mut reply = Vec::new();
        let limits = self.settings.borrow().limits;
        process::CONNECTIONS_ACCEPTED.up();
        if let Err(limit) = admit_connection(&self.worker) {
            self.worker.log(Severity::Alert, 0, format_args!("{limit} worker_connections are not enough"));
            return self.endpoint.borrow_mut().ignore(incoming);
        }
        budget::spend(HANDSHAKE_COST);
        let connection = self.connection_of(&incoming);
        let is_proven = incoming.remote_address_validated();
        #[allow(clippy::result_large_err, reason = "quinn-proto's")]
        let accept = || self.endpoint.borrow_mut().accept(incoming, turn_now(), &mut reply, None);
        match with_chooser(rules_chooser(plan, &connection), accept) {
            Ok((handle, quic)) => {
                process::CONNECTIONS_HANDLED.up_at(metrics::Area::Http as usize);
                process::CONNECTIONS_ACTIVE.up();
                self.worker.admission.begin_datagram_client();
                let client = QuicClient::new(&self.own, handle, Server::new(quic, limits), connection);
                if !is_proven {
                    client.begin_unproven(&self.worker);
                }
                self.clients.borrow_mut().insert(handle, client.clone());
                self.heard.borrow_mut().push(client);
            }
            Err(AcceptError { cause, response }) => {
                metrics::count_handshake(metrics::Area::Http, Err(metrics::TlsFailure::Other));
                if let ConnectionError::TransportError(error) = &cause {
                    let words = format_args!("SSL_do_handshake() failed (SSL: {}) while SSL handshaking", error.reason);
                    self.worker.log_client(Severity::Info, &connection, words);
                }
                if let Some(transmit) = response {
                    self.send_now(transmit, reply);
                }
            }
        }
    }

    fn act_on_heard(&self) {
        let heard = self.heard.take();
        for client in heard {
            self.guarded(&client, |client| client.act(self));
        }
    }

    /// Calls a client's driver. A panic ends only that client; returns `false` then.
    fn guarded(&self, client: &Rc<QuicClient>, act: impl FnOnce(&QuicClient)) -> bool {
        if std::panic::catch_unwind(AssertUnwindSafe(|| act(client))).is_ok() {
            return true;
        }
        process::PANICS.up();
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| client.end()));
        self.endpoint.borrow_mut().handle_event(client.handle, EndpointEvent::drained());
        self.forget(client);
        false
    }

    /// Registers a client to be flushed at the end of the turn.
    pub fn touch(&self, client: Rc<QuicClient>) {
        if !client.dirty.replace(true) {
            self.touched.borrow_mut().push(client);
        }
        self.mark();
    }
    fn mark(&self) {
        if let (Some(key), Some(own)) = (self.key.get(), self.own.upgrade())
            && !self.dirty.replace(true)
        {
            self.worker.touch(key, own);
        }
    }

    /// Passes a connection's event to the endpoint, and the endpoint's reply to the connection.
    pub fn tell_endpoint(&self, handle: ConnectionHandle, event: EndpointEvent) -> Option<ConnectionEvent> {
        self.endpoint.borrow_mut().handle_event(handle, event)
    }
    /// Removes a client whose connection is drained.
    pub fn forget(&self, client: &QuicClient) {
        self.set_timer(client, None);
        self.idle.borrow_mut().remove(&client.idle);
        self.clients.borrow_mut().remove(&client.handle);
    }
    /// Registers a client that may be closed to make room.
    pub fn set_idle(&self, client: &QuicClient) {
        self.idle.borrow_mut().add(client.handle, &client.idle, client.requests());
    }
    /// Moves a client among the deadlines.
    pub fn set_timer(&self, client: &QuicClient, at: Option<Instant>) {
        let old = client.timer.replace(at);
        if old == at {
            return;
        }
        let mut timers = self.timers.borrow_mut();
        if let Some(old) = old {
            timers.remove(&(old, client.handle));
        }
        if let Some(at) = at {
            timers.insert((at, client.handle));
        }
    }

    /// Sends the next transmit of `poll`. Returns `false` if there is none.
    ///
    /// # Errors
    /// `WouldBlock`: the transmit is kept, and is sent first at the next attempt.
    pub fn transmit(&self, poll: impl FnOnce(usize, &mut Vec<u8>) -> Option<Transmit>) -> io::Result<bool> {
        if self.blocked.borrow().is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut buf = self.transmit_buf.borrow_mut();
        buf.clear();
        let Some(transmit) = poll(self.settings.borrow().segments, &mut buf) else { return Ok(false) };
        let bytes = buf.get(..transmit.size).unwrap_or_default();
        if let Err(e) = self.send(&transmit, bytes) {
            *self.blocked.borrow_mut() = Some(BlockedPackets { transmit, bytes: bytes.to_vec() });
            return Err(e);
        }
        Ok(true)
    }
    fn send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        self.socket.send(&OutgoingPackets {
            bytes,
            to: transmit.destination,
            from: transmit.src_ip,
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
            segment: transmit.segment_size,
        })
    }
    /// Sends replies of the endpoint itself; drops them if the socket is full.
    fn send_now(&self, transmit: Transmit, mut bytes: Vec<u8>) {
        bytes.truncate(transmit.size);
        let _ = self.send(&transmit, &bytes);
    }
    /// Sends the transmit that did not fit into the socket. Returns `false` if the socket is still full.
    fn unblock(&self) -> bool {
        let blocked = self.blocked.take();
        let Some(blocked) = blocked else { return true };
        if self.send(&blocked.transmit, &blocked.bytes).is_ok() {
            return true;
        }
        *self.blocked.borrow_mut() = Some(blocked);
        false
    }

    fn all(&self) -> Vec<Rc<QuicClient>> {
        self.clients.borrow().values().cloned().collect()
    }

    /// Arms the poller for the earliest deadline of all clients.
    fn arm(&self, key: Key) {
        let nearest = self.timers.borrow().first().map(|(at, _)| *at);
        let held = self.held.borrow().deadline();
        let at = next_deadline(self.blocked.borrow().is_some(), nearest, held, turn_now());
        let deadline =
            at.map_or(clock::Instant(u64::MAX), |at| clock::now().plus(at.saturating_duration_since(turn_now())));
        self.worker.poller.set_deadline(key, deadline);
    }

    fn refuse_held(&self) {
        let held = self.held.take();
        held.into_incoming().for_each(|incoming| self.refuse(incoming));
    }

    /// Accepts no more clients, and ends with the last client.
    fn leave(&self) {
        self.leaving.set(true);
        self.slot.leave();
        self.refuse_held();
        for client in self.all() {
            client.begin_quit();
        }
        self.mark();
    }
}

impl Carrier for QuicListener {
    /// Handles ends of waits for certificates.
    fn has_wakeups(&self) -> bool {
        !self.held.borrow().is_empty()
    }
    fn ready(self: Rc<Self>, worker: &Rc<Worker>, _: Key) {
        self.configure();
        if !self.held.borrow().is_empty() {
            self.decide_held();
        }
        while budget::is_left() {
            match self.socket.receive(|packet| self.take(&packet)) {
                Ok(more) => {
                    self.act_on_heard();
                    if !more {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    worker.log(Severity::Alert, 0, format_args!("recvmmsg() failed {}", observe::os_error(&e)));
                    break;
                }
            }
        }
        self.mark();
    }
    fn timed_out(self: Rc<Self>, _: &Rc<Worker>, _: Key) {
        let now = turn_now();
        let due: Vec<ConnectionHandle> = {
            let timers = self.timers.borrow();
            timers.iter().take_while(|(at, _)| *at <= now).map(|(_, handle)| *handle).collect()
        };
        for handle in due {
            let client = self.clients.borrow().get(&handle).cloned();
            if let Some(client) = client {
                self.guarded(&client, |client| client.timed_out(&self));
            }
        }
        if !self.held.borrow().is_empty() {
            self.decide_held();
        }
        self.mark();
    }
    fn end_of_turn(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        self.dirty.set(false);
        if !worker.poller.contains(key) {
            return;
        }
        if self.unblock() {
            for client in self.touched.take() {
                client.dirty.set(false);
                let mut is_done = true;
                self.guarded(&client, |client| is_done = client.flush(&self));
                if !is_done {
                    self.touch(client);
                }
            }
        }
        self.arm(key);
        let has_words = self.blocked.borrow().is_some() || !self.touched.borrow().is_empty();
        if self.leaving.get() && !has_words && self.clients.borrow().values().all(|client| client.is_over()) {
            worker.poller.remove(key);
        }
    }
    fn closing(&self, _: &Worker, _: Key) {
        self.refuse_held();
        for client in self.all() {
            if !client.is_over() {
                client.close();
                client.flush(self);
            }
        }
    }
    fn cut_off(&self, _: &Worker) {
        for client in self.all() {
            client.close();
        }
    }
    fn begin_quit(self: Rc<Self>, _: &Rc<Worker>, _: Key) -> bool {
        self.leave();
        true
    }
    fn close_idle_client(&self) -> bool {
        loop {
            let first = self.idle.borrow_mut().take_first();
            let Some((handle, requests)) = first else { return false };
            let client = self.clients.borrow().get(&handle).cloned();
            let Some(client) = client else { continue };
            client.idle.clear();
            if client.is_over() || !client.is_idle() {
                continue;
            }
            if client.requests() == requests {
                client.close();
                return true;
            }
            self.set_idle(&client);
        }
    }
}

/// Returns the deadline of a socket. While it is full, deadlines of clients that have passed cannot be served: they must not wake the
/// thread at once, again and again.
fn next_deadline(is_full: bool, nearest: Option<Instant>, held: Option<Instant>, now: Instant) -> Option<Instant> {
    if is_full { Some(now + BLOCKED_PAUSE) } else { [nearest, held].into_iter().flatten().min() }
}

/// Returns the secrets of the listener's default server.
fn keys(plan: &HttpPlan, listener: &ListenerRef) -> EndpointKeys {
    let server = plan.listener(listener).and_then(|listener| plan.servers.get(listener.default_server));
    match server.and_then(|server| server.http3.host_key.as_ref()) {
        Some(secret) => EndpointKeys::derive(secret),
        None => EndpointKeys::of_process(),
    }
}

/// Returns the settings of a listener's default server, because no other server is known before the handshake.
fn settings(plan: &HttpPlan, listener: &ListenerRef, segments_max: usize) -> Option<QuicSettings> {
    let found = plan.listener(listener)?;
    let server = plan.servers.get(found.default_server)?;
    let core = plan.default_conf(found)?;
    let buffers = core.conf.large_client_header_buffers;
    let limits = Limits {
        streams_max: server.http3.streams_max,
        stream_window: server.http3.stream_buffer,
        list_max: (buffers.size * buffers.count) as usize,
        field_max: buffers.size as usize,
        fields_max: server.limits.fields_max,
        underscores: server.limits.underscores,
        ignore_invalid: server.limits.ignore_invalid,
        extended_connect: server.http2.websockets,
        idle_timeout: Duration::from_millis(core.conf.keepalive_timeout.millis),
        congestion: match server.http3.congestion {
            Congestion::Cubic => wire_h3::Congestion::Cubic,
            Congestion::Bbr => wire_h3::Congestion::Bbr,
            Congestion::NewReno => wire_h3::Congestion::NewReno,
        },
    };
    let segments = if server.http3.gso { segments_max } else { 1 };
    let (retry, active_ids) = (server.http3.retry, server.http3.active_ids);
    Some(QuicSettings { generation: plan.generation, limits, retry, active_ids, segments })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_socket_is_tried_after_a_pause() {
        let now = Instant::now() + Duration::from_secs(10);
        let (past, future) = (now - Duration::from_secs(1), now + Duration::from_secs(1));
        assert_eq!(next_deadline(false, Some(future), Some(past), now), Some(past));
        assert_eq!(next_deadline(false, Some(future), None, now), Some(future));
        assert_eq!(next_deadline(false, None, None, now), None);
        for nearest in [None, Some(past), Some(future)] {
            assert_eq!(next_deadline(true, nearest, Some(past), now), Some(now + BLOCKED_PAUSE));
        }
    }
}
