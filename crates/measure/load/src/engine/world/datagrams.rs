//! Connections of datagram protocols: their handshakes, timers and datagrams.

use std::cmp::Reverse;

use super::LoadWorld;
use super::connection::ConnectionState;
use crate::engine::failure::LoadFailure;
use crate::engine::transport::{Io, Transport, TransportSlot};
use crate::protocol::ClientProtocol;

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    /// Starts the handshake; requests follow once it allows them.
    pub(super) fn begin(&mut self, slot: TransportSlot, now: u64) {
        let connection = &mut self.connections[slot];
        connection.started = now;
        connection.state = ConnectionState::Handshaking;
        if let Err(class) = connection.protocol.begin(&mut self.shared, now) {
            return self.break_off(slot, class, now);
        }
        self.soil(slot);
        self.look_at_handshake(slot, now);
    }

    fn look_at_handshake(&mut self, slot: TransportSlot, now: u64) {
        let connection = &mut self.connections[slot];
        if connection.state == ConnectionState::Handshaking && connection.protocol.is_established() {
            connection.state = ConnectionState::Open;
            self.record.handshake.record(now - connection.started);
            self.opened(slot, now);
        }
    }

    /// Reads until the socket is empty.
    pub(super) fn pull_datagrams(&mut self, slot: TransportSlot) {
        let epoch = self.connections[slot].epoch;
        loop {
            let now = self.net.now();
            let connection = &mut self.connections[slot];
            if connection.epoch != epoch || connection.state == ConnectionState::Closed {
                return;
            }
            let protocol = &mut connection.protocol;
            let io = self.net.receive_datagrams(slot, &mut |datagram| protocol.take_in(datagram, now));
            if let Io::Failed(class) = io {
                return self.break_off(slot, class, now);
            }
            self.report(slot, now);
            if io == Io::Wait {
                return;
            }
        }
    }

    /// Reports events of datagrams and timers.
    fn report(&mut self, slot: TransportSlot, now: u64) {
        let epoch = self.connections[slot].epoch;
        self.feed(slot, &[], now);
        if self.connections[slot].epoch == epoch {
            self.look_at_handshake(slot, now);
        }
        // Refused early data leaves a live connection.
        if let Some(why) = self.connections[slot].protocol.complaint() {
            self.tls_error.get_or_insert_with(|| crate::engine::tls::explain_error(&why));
        }
        self.soil(slot);
    }

    pub(super) fn flush_datagrams(&mut self, slot: TransportSlot) {
        let now = self.net.now();
        if let Err(class) = self.send_datagrams(slot, now) {
            self.break_off(slot, class, now);
        }
    }

    fn send_datagrams(&mut self, slot: TransportSlot, now: u64) -> Result<(), LoadFailure> {
        let connection = &mut self.connections[slot];
        if !connection.is_live() {
            return Ok(());
        }
        loop {
            let segment = connection.protocol.next_datagrams(now);
            let output = connection.protocol.output();
            if output.is_empty() {
                break;
            }
            match self.net.send_datagrams(slot, output, segment) {
                Io::Done(n) => connection.protocol.advance(n),
                Io::Wait => break,
                Io::Failed(class) => return Err(class),
            }
        }
        self.arm_timer(slot);
        Ok(())
    }

    /// Notes the time at which the protocol wants to go on by itself.
    #[inline]
    pub(super) fn arm_timer(&mut self, slot: TransportSlot) {
        let connection = &mut self.connections[slot];
        if let Some(at) = connection.protocol.deadline()
            && (connection.timer == 0 || at < connection.timer)
        {
            connection.timer = at;
            self.timers.push(Reverse((at, slot, connection.epoch)));
        }
    }

    /// Next timer; `u64::MAX` for never.
    #[inline]
    pub(super) fn next_timer(&self) -> u64 {
        self.timers.peek().map_or(u64::MAX, |timer| timer.0.0)
    }

    #[inline]
    pub(super) fn expire(&mut self, now: u64) {
        while let Some(Reverse((at, slot, epoch))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            let connection = &mut self.connections[slot];
            if connection.epoch != epoch || connection.timer != at {
                continue;
            }
            connection.timer = 0;
            // An answer may have put the timer off.
            if connection.protocol.deadline().is_some_and(|due| due <= now) {
                connection.protocol.expire(now);
                self.report(slot, now);
            } else {
                self.soil(slot);
            }
        }
    }

    /// Sends the closing of a datagram protocol: the server would wait for its idle timeout.
    pub(super) fn say_goodbye(&mut self, slot: TransportSlot) {
        if P::DATAGRAMS {
            let now = self.net.now();
            self.connections[slot].protocol.close(now);
            // The connection ends, whether or not its closing can be sent.
            let _ = self.send_datagrams(slot, now);
        }
        // TLS ends without it.
        if !P::farewell().is_empty() && self.connections[slot].is_open() && self.connections[slot].tls.is_none() {
            let _ = self.net.send(slot, P::farewell());
        }
    }
}
