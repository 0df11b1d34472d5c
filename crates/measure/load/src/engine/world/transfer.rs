//! Bytes of connections: writing, reading, TLS records, and the events of protocol cores.

use std::io::{Read as _, Write as _};

use super::LoadWorld;
use super::connection::ConnectionState;
use crate::engine::failure::LoadFailure;
use crate::engine::tls::explain_error;
use crate::engine::transport::{Io, Transport, TransportSlot};
use crate::protocol::{ClientProtocol, Event};

/// Kept bytes of inspected bodies at most.
const BODY_MAX: usize = 64 * 1024 * 1024;

/// Remaining body bytes from which the kernel discards them.
const DISCARD_FROM: u64 = 8 * 1024;

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    #[inline]
    pub(super) fn write(&mut self, slot: TransportSlot, bytes: &[u8]) {
        let connection = &mut self.connections[slot];
        if let Some(tls) = &mut connection.tls {
            let _ = tls.writer().write_all(bytes);
            return self.push_tls(slot);
        }
        if !connection.output.is_empty() {
            connection.output.extend_from_slice(bytes);
            return;
        }
        match self.net.send(slot, bytes) {
            Io::Done(n) if n == bytes.len() => {}
            Io::Done(n) => connection.output.extend_from_slice(&bytes[n..]),
            Io::Wait => connection.output.extend_from_slice(bytes),
            Io::Failed(class) => {
                let now = self.net.now();
                self.break_off(slot, class, now);
            }
        }
    }

    pub(super) fn push_tls(&mut self, slot: TransportSlot) {
        let connection = &mut self.connections[slot];
        if let Some(tls) = &mut connection.tls {
            while tls.wants_write() {
                if tls.write_tls(&mut connection.output).is_err() {
                    break;
                }
            }
        }
        self.push(slot);
    }

    pub(super) fn push(&mut self, slot: TransportSlot) {
        let connection = &mut self.connections[slot];
        while !connection.output.is_empty() {
            match self.net.send(slot, &connection.output) {
                Io::Done(n) => drop(connection.output.drain(..n)),
                Io::Wait => return,
                Io::Failed(class) => {
                    let now = self.net.now();
                    return self.break_off(slot, class, now);
                }
            }
        }
    }

    /// Reads until the socket is empty.
    pub(super) fn pull(&mut self, slot: TransportSlot, ended: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let epoch = self.connections[slot].epoch;
        loop {
            let connection = &mut self.connections[slot];
            if connection.epoch != epoch || connection.state == ConnectionState::Closed {
                break;
            }
            let skippable = if connection.tls.is_some() { 0 } else { connection.protocol.skippable() };
            let skipping = skippable >= DISCARD_FROM;
            let room = if skipping { (skippable as usize).min(buffer.len()) } else { buffer.len() };
            let io = match skipping {
                true => self.net.discard(slot, &mut buffer[..room]),
                false => self.net.receive(slot, &mut buffer[..room]),
            };
            let now = self.net.now();
            match io {
                Io::Done(0) => {
                    self.ended(slot, now);
                    break;
                }
                Io::Done(n) => {
                    if skipping {
                        let event = self.connections[slot].protocol.skip(n as u64);
                        if let Event::Answer(answer) = event {
                            self.answered(slot, answer, now);
                        }
                    } else if self.connections[slot].state == ConnectionState::Exchanging
                        && self.connections[slot].tls.is_none()
                    {
                        self.exchanged(slot, &buffer[..n], now);
                    } else if self.connections[slot].tls.is_some() {
                        self.decrypt(slot, &buffer[..n], now);
                    } else {
                        self.feed(slot, &buffer[..n], now);
                    }
                    // A short read has emptied the socket; new bytes make a new edge.
                    if n < room && !ended {
                        break;
                    }
                }
                Io::Wait => break,
                Io::Failed(class) => {
                    self.failed(slot, class, now);
                    break;
                }
            }
        }
        self.buffer = buffer;
    }

    pub(super) fn decrypt(&mut self, slot: TransportSlot, mut bytes: &[u8], now: u64) {
        let mut plain = std::mem::take(&mut self.plain);
        let epoch = self.connections[slot].epoch;
        while !bytes.is_empty() {
            let connection = &mut self.connections[slot];
            if connection.epoch != epoch {
                break;
            }
            let Some(tls) = &mut connection.tls else { break };
            let read = tls.read_tls(&mut bytes).map_err(|e| e.to_string());
            if let Err(why) = read.and_then(|_| tls.process_new_packets().map_err(|e| e.to_string())) {
                self.tls_error.get_or_insert_with(|| explain_error(&why));
                self.break_off(slot, LoadFailure::Tls, now);
                break;
            }
            let shaken = connection.state == ConnectionState::Handshaking && !tls.is_handshaking();
            if shaken && P::MULTIPLEXED && tls.alpn_protocol() != Some(P::NAME) {
                let name = String::from_utf8_lossy(P::NAME);
                self.tls_error.get_or_insert(format!("the server did not choose {name} (ALPN)"));
                self.break_off(slot, LoadFailure::Tls, now);
                break;
            }
            plain.clear();
            // `WouldBlock` and a clean end both mean that no plain text is left.
            let _ = tls.reader().read_to_end(&mut plain);
            if tls.wants_write() {
                self.push_tls(slot);
            }
            if shaken && self.connections[slot].epoch == epoch {
                self.record.handshake.record(now - self.connections[slot].started);
                self.begin_protocol(slot, now);
            }
            if !plain.is_empty() && self.connections[slot].epoch == epoch {
                match self.connections[slot].state {
                    ConnectionState::Exchanging => self.exchanged(slot, &plain, now),
                    _ => self.feed(slot, &plain, now),
                }
            }
        }
        self.plain = plain;
    }

    #[inline]
    pub(super) fn feed(&mut self, slot: TransportSlot, bytes: &[u8], now: u64) {
        let epoch = self.connections[slot].epoch;
        let mut at = 0;
        loop {
            let connection = &mut self.connections[slot];
            if connection.epoch != epoch || (at >= bytes.len() && !connection.protocol.is_due()) {
                return;
            }
            if !P::MULTIPLEXED
                && let Some(flight) = connection.flights.front_mut()
                && flight.first == 0
            {
                flight.first = now;
            }
            match connection.protocol.receive(&bytes[at..], &mut self.shared) {
                Ok(step) => {
                    let input = &bytes[at..];
                    at += step.consumed;
                    match step.event {
                        Event::More => {}
                        Event::Body { range, .. } => {
                            if connection.body.len() < BODY_MAX {
                                connection.body.extend_from_slice(&input[range]);
                            }
                        }
                        Event::Began { lane } => {
                            if let Some(flight) = connection.flights.get_mut(lane) {
                                flight.first = now;
                            }
                        }
                        Event::Answer(answer) => {
                            connection.protocol.take_body(&mut connection.body);
                            self.answered(slot, answer, now);
                        }
                        Event::Failed { lane, class, code } => self.stream_failed(slot, lane, class, code, now),
                        Event::Unprocessed { lane } => self.unprocessed(slot, lane, now),
                        Event::Room => self.room(slot, now),
                        Event::Send(bytes) => self.write(slot, &bytes),
                    }
                    if P::MULTIPLEXED && !self.connections[slot].protocol.output().is_empty() {
                        self.soil(slot);
                    }
                }
                // A connection over QUIC ends as an event, not with the end of input.
                Err(LoadFailure::ClosedEarly) => return self.failed(slot, LoadFailure::ClosedEarly, now),
                Err(class) => return self.break_off(slot, class, now),
            }
        }
    }

    pub(super) fn ended(&mut self, slot: TransportSlot, now: u64) {
        let connection = &mut self.connections[slot];
        if connection.state == ConnectionState::Exchanging {
            let class = connection.exchange_class();
            self.tls_error.get_or_insert_with(|| "the connection was closed without an answer".into());
            return self.break_off(slot, class, now);
        }
        if connection.state == ConnectionState::Handshaking {
            self.tls_error.get_or_insert_with(|| "the server closed the connection during the handshake".into());
            return self.break_off(slot, LoadFailure::Tls, now);
        }
        match connection.protocol.end_of_input() {
            Ok(Some(answer)) => self.answered(slot, answer, now),
            Ok(None) => self.lost_idle(slot, now),
            Err(class) => self.break_off(slot, class, now),
        }
    }

    /// Handles a failed read; harmless on an idle connection.
    pub(super) fn failed(&mut self, slot: TransportSlot, class: LoadFailure, now: u64) {
        if self.connections[slot].is_idle() { self.lost_idle(slot, now) } else { self.break_off(slot, class, now) }
    }

    pub(super) fn lost_idle(&mut self, slot: TransportSlot, now: u64) {
        self.record.idle_closed += u64::from(now >= self.from && now < self.to);
        self.close(slot);
        self.after_close(slot, now);
    }
}
