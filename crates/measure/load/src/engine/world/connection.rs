//! Life of one connection: connect, TLS handshake, transfer, close.

use std::collections::VecDeque;
use std::io::Write as _;

use rustls::ClientConnection;

use super::{BACKOFF, Due, Flight, LoadWorld};
use crate::engine::failure::LoadFailure;
use crate::engine::session::SessionVariables;
use crate::engine::tls::explain_error;
use crate::engine::transport::{Io, Ready, Transport, TransportSlot};
use crate::protocol::ClientProtocol;
use crate::protocol::malformed::quote_line;
use figures::units::format_seconds;
use std::cmp::Reverse;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Closed,
    Connecting,
    /// The answer to CONNECT or to an upgrade is awaited.
    Exchanging,
    Handshaking,
    Open,
}

pub(super) struct Connection<P> {
    pub(super) state: ConnectionState,
    pub(super) protocol: P,
    pub(super) tls: Option<Box<ClientConnection>>,
    pub(super) output: Vec<u8>,
    pub(super) flights: VecDeque<Flight>,
    pub(super) waiting: VecDeque<Due>,
    pub(super) epoch: u32,
    pub(super) started: u64,
    pub(super) calls: u32,
    /// The slot has a user (closed loop).
    pub(super) active: bool,
    pub(super) served: bool,
    pub(super) body: Vec<u8>,
    /// Next step of the session, and its values.
    pub(super) step: u32,
    pub(super) think: f64,
    pub(super) variables: SessionVariables,
    /// Membership in the world's lists of connections with output, and with room.
    dirty: bool,
    /// Bytes of the answer to CONNECT or to an upgrade; which of them.
    pub(super) exchanged: Vec<u8>,
    pub(super) upgrading: bool,
    pub(super) listed: bool,
    /// Time of the earliest entry in the world's timers; 0: none.
    pub(super) timer: u64,
}

impl<P: ClientProtocol> Connection<P> {
    pub(super) fn new(shared: &P::Shared, variables: Option<SessionVariables>) -> Self {
        Connection {
            state: ConnectionState::Closed,
            protocol: P::new(shared),
            tls: None,
            output: Vec::new(),
            flights: VecDeque::new(),
            waiting: VecDeque::new(),
            epoch: 0,
            started: 0,
            calls: 0,
            active: false,
            served: false,
            body: Vec::new(),
            step: 0,
            think: 0.0,
            variables: variables.unwrap_or_default(),
            exchanged: Vec::new(),
            upgrading: false,
            dirty: false,
            listed: false,
            timer: 0,
        }
    }

    /// Class of a failed exchange before the first request.
    pub(super) fn exchange_class(&self) -> LoadFailure {
        if self.upgrading { LoadFailure::Upgrade } else { LoadFailure::Proxy }
    }

    pub(super) fn restart(&mut self) {
        self.step = 0;
        self.variables.clear();
    }
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state == ConnectionState::Open
    }
    pub(super) fn is_live(&self) -> bool {
        self.state != ConnectionState::Closed
    }
    pub(super) fn is_idle(&self) -> bool {
        self.is_open() && self.flights.is_empty()
    }
    /// Tells whether the connection is established and settled.
    pub(super) fn is_ready(&self) -> bool {
        self.is_open() && self.protocol.is_settled()
    }
    /// Tells whether a request can be sent; `calls` is the total per connection (0: unlimited).
    #[inline]
    pub(super) fn has_room(&self, calls: u32) -> bool {
        self.protocol.has_room() && (calls == 0 || (self.calls as usize + self.flights.len()) < calls as usize)
    }
}

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    /// Opens a connection in a closed slot; waiting requests follow once it is established.
    pub(super) fn connect(&mut self, slot: TransportSlot, now: u64) {
        let connection = &mut self.connections[slot];
        connection.protocol = P::new(&self.shared);
        connection.listed = false;
        connection.timer = 0;
        connection.output.clear();
        connection.body.clear();
        connection.epoch = connection.epoch.wrapping_add(1);
        connection.calls = 0;
        connection.started = now;
        connection.state = ConnectionState::Connecting;
        self.making += 1;
        if let Err(class) = self.net.connect(slot) {
            self.break_off(slot, class, now);
        }
    }

    #[inline]
    pub(super) fn handle(&mut self, ready: Ready) {
        let slot = ready.slot;
        match self.connections[slot].state {
            ConnectionState::Closed => return,
            ConnectionState::Connecting => {
                let now = self.net.now();
                match self.net.established(slot) {
                    Ok(()) => self.established(slot, now),
                    Err(class) => return self.break_off(slot, class, now),
                }
                // A TLS server's first bytes may have arrived already; the edge will not repeat.
                if !ready.readable {
                    return self.flush_output();
                }
            }
            ConnectionState::Exchanging | ConnectionState::Handshaking | ConnectionState::Open => {}
        }
        if ready.writable && !self.connections[slot].output.is_empty() {
            self.push(slot);
        } else if P::MULTIPLEXED && ready.writable {
            self.soil(slot);
        }
        if P::DATAGRAMS {
            self.pull_datagrams(slot);
        } else if ready.readable || ready.ended {
            self.pull(slot, ready.ended);
        }
        self.flush_output();
    }

    /// Marks output of the core, which [`LoadWorld::flush_output`] sends together.
    #[inline]
    pub(super) fn soil(&mut self, slot: TransportSlot) {
        if P::MULTIPLEXED && !std::mem::replace(&mut self.connections[slot].dirty, true) {
            self.dirty.push(slot);
        }
    }

    #[inline]
    pub(super) fn flush_output(&mut self) {
        while let Some(slot) = self.dirty.pop() {
            self.connections[slot].dirty = false;
            self.flush_connection(slot);
        }
    }

    fn flush_connection(&mut self, slot: TransportSlot) {
        if P::DATAGRAMS {
            return self.flush_datagrams(slot);
        }
        self.flush_stream(slot);
        self.arm_timer(slot);
    }

    fn flush_stream(&mut self, slot: TransportSlot) {
        let connection = &mut self.connections[slot];
        if connection.state != ConnectionState::Open {
            return;
        }
        if let Some(tls) = &mut connection.tls {
            let length = connection.protocol.output().len();
            if length > 0 {
                // Writing into rustls' unlimited buffer cannot fail.
                let _ = tls.writer().write_all(connection.protocol.output());
                connection.protocol.advance(length);
                self.push_tls(slot);
            }
            return;
        }
        while !connection.protocol.output().is_empty() {
            match self.net.send(slot, connection.protocol.output()) {
                Io::Done(n) => connection.protocol.advance(n),
                Io::Wait => return,
                Io::Failed(class) => {
                    let now = self.net.now();
                    return self.failed(slot, class, now);
                }
            }
        }
    }

    fn established(&mut self, slot: TransportSlot, now: u64) {
        if P::DATAGRAMS {
            return self.begin(slot, now);
        }
        let connection = &mut self.connections[slot];
        // Includes connects before the measured part, since kept connections are made once.
        self.record.connect.record(now - connection.started);
        match self.tunnel.clone() {
            Some(request) => self.begin_exchange(slot, &request, now),
            None => self.begin_tls(slot, now),
        }
    }

    /// Begins the TLS handshake on a connected socket; without TLS the connection is open.
    pub(super) fn begin_tls(&mut self, slot: TransportSlot, now: u64) {
        let connection = &mut self.connections[slot];
        let Some(client) = &self.tls else { return self.begin_protocol(slot, now) };
        connection.started = now;
        connection.state = ConnectionState::Handshaking;
        match ClientConnection::new(client.config.clone(), client.name.clone()) {
            Ok(mut tls) => {
                // Unsent bytes stay in `output`; rustls must never block.
                tls.set_buffer_limit(None);
                connection.tls = Some(Box::new(tls));
                self.push_tls(slot);
            }
            Err(_) => self.break_off(slot, LoadFailure::Tls, now),
        }
    }

    /// Opens a connection whose transport is ready, after an upgrade if the protocol has one.
    pub(super) fn begin_protocol(&mut self, slot: TransportSlot, now: u64) {
        if P::UPGRADES {
            return self.begin_upgrade(slot, now);
        }
        self.connections[slot].state = ConnectionState::Open;
        self.opened(slot, now);
    }

    pub(super) fn opened(&mut self, slot: TransportSlot, now: u64) {
        self.open += 1;
        self.making -= 1;
        if !std::mem::replace(&mut self.established, true) {
            self.first.established.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        if now >= self.from && now < self.to {
            self.record.connections += 1;
        }
        self.soil(slot);
        let epoch = self.connections[slot].epoch;
        while self.connections[slot].has_room(self.job.calls)
            && let Some(due) = self.connections[slot].waiting.pop_front()
        {
            self.waiting -= 1;
            self.send(slot, due, now);
            if self.connections[slot].epoch != epoch || !self.connections[slot].is_open() {
                return;
            }
        }
        if P::MULTIPLEXED {
            self.room(slot, now);
        } else if self.job.model.is_pooled() && now < self.to && self.connections[slot].is_idle() {
            // An earlier free connection took the request.
            self.take_waiting(slot, now);
        }
    }

    /// Fails a connection with all its requests.
    pub(super) fn break_off(&mut self, slot: TransportSlot, class: LoadFailure, now: u64) {
        self.break_off_at(slot, class, now, now);
    }

    /// [`LoadWorld::break_off`] as of `until`: timeouts are checked in steps.
    fn break_off_at(&mut self, slot: TransportSlot, class: LoadFailure, now: u64, until: u64) {
        if !self.established {
            self.refuse(class);
        }
        let connection = &mut self.connections[slot];
        let fresh = connection.calls == 0;
        if let Some(why) = connection.protocol.complaint() {
            match class {
                LoadFailure::Protocol => self.malformed.get_or_insert(why),
                _ => self.tls_error.get_or_insert_with(|| explain_error(&why)),
            };
        }
        if self.groups.is_some() {
            if !connection.flights.is_empty() || !connection.waiting.is_empty() {
                self.fail_session(slot);
            }
        } else if self.job.session {
            connection.restart();
        }
        let connection = &mut self.connections[slot];
        let flights: Vec<Flight> = connection.flights.drain(..).collect();
        // Requests that this connection has not sent move to the next one, if it has served others.
        let moves = P::MULTIPLEXED && connection.state == ConnectionState::Open && !fresh;
        let waiting: Vec<Due> = if moves { Vec::new() } else { connection.waiting.drain(..).collect() };
        self.close(slot);
        self.in_flight -= flights.len();
        self.waiting -= waiting.len();
        let limit = (self.job.timeout * 1e9) as u64;
        for f in flights {
            // Later streams have later limits.
            let until = if P::MULTIPLEXED && class == LoadFailure::Timeout { f.sent + limit } else { until };
            self.fail(f.due, Some(f.sent), class, until);
        }
        waiting.into_iter().for_each(|d| self.fail(d, None, class, until));
        if fresh && !self.job.model.is_open() {
            self.wake.push(Reverse((now + BACKOFF, slot, 0)));
        } else {
            self.after_close(slot, now);
        }
    }

    pub(super) fn close(&mut self, slot: TransportSlot) {
        let connection = &mut self.connections[slot];
        if connection.state == ConnectionState::Closed {
            return;
        }
        match connection.state {
            ConnectionState::Open => self.open -= 1,
            _ => self.making -= 1,
        }
        self.say_goodbye(slot);
        let connection = &mut self.connections[slot];
        connection.state = ConnectionState::Closed;
        connection.tls = None;
        connection.epoch = connection.epoch.wrapping_add(1);
        self.net.close(slot, self.job.reset);
    }

    /// Fails connections and requests beyond their timeout.
    pub(super) fn check_timeouts(&mut self, now: u64) {
        let (timeout, connect) = ((self.job.timeout * 1e9) as u64, (self.job.connect_timeout * 1e9) as u64);
        for slot in 0..self.connections.len() {
            let connection = &self.connections[slot];
            match connection.state {
                ConnectionState::Connecting | ConnectionState::Exchanging | ConnectionState::Handshaking
                    if now - connection.started >= connect =>
                {
                    let class = if connection.state == ConnectionState::Exchanging {
                        connection.exchange_class()
                    } else if connection.tls.is_some() || P::DATAGRAMS {
                        LoadFailure::Tls
                    } else {
                        LoadFailure::ConnectTimeout
                    };
                    if class != LoadFailure::ConnectTimeout && !P::DATAGRAMS {
                        let heard = connection.exchanged.as_slice();
                        let began = match heard {
                            [] => String::new(),
                            _ => format!(", only {}", quote_line(heard)),
                        };
                        let limit = format_seconds(self.job.connect_timeout);
                        self.tls_error
                            .get_or_insert_with(|| format!("no answer within --connect-timeout ({limit}){began}"));
                    }
                    let until = connection.started + connect;
                    self.break_off_at(slot, class, now, until);
                }
                ConnectionState::Open => {
                    let late = |flight: &&Flight| now - flight.sent >= timeout;
                    let Some(sent) = connection.flights.front().filter(late).map(|f| f.sent) else { continue };
                    // Gives up one stream alone; the connection only when all streams are late.
                    let all = connection.flights.back().is_some_and(|last| late(&last));
                    if all || !P::MULTIPLEXED {
                        self.break_off_at(slot, LoadFailure::Timeout, now, sent + timeout);
                        continue;
                    }
                    let number = connection.flights.iter().take_while(late).count();
                    for _ in 0..number {
                        self.give_up_stream(slot, timeout);
                    }
                    match self.groups {
                        Some(_) => self.run_user(slot, now, now),
                        None => self.room(slot, now),
                    }
                }
                _ => {}
            }
        }
        self.flush_output();
    }

    /// Gives up the oldest request; the connection stays.
    fn give_up_stream(&mut self, slot: TransportSlot, timeout: u64) {
        let connection = &mut self.connections[slot];
        let Some(flight) = connection.flights.pop_front() else { return };
        connection.protocol.cancel(0);
        self.in_flight -= 1;
        self.soil(slot);
        if self.groups.is_some() {
            self.fail_session(slot);
        }
        self.fail(flight.due, Some(flight.sent), LoadFailure::Timeout, flight.sent + timeout);
    }
}
