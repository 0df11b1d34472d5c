//! Failed requests: by stream, by connection, repeated ones, and what follows on their slot.

use std::cmp::Reverse;

use super::{AGAIN_MAX, BACKOFF, Due, Flight, LoadWorld};
use crate::engine::failure::LoadFailure;
use crate::engine::job::Model;
use crate::engine::request::PreparedRequest;
use crate::engine::transport::{Transport, TransportSlot};
use crate::protocol::ClientProtocol;
use crate::protocol::grpc::DEADLINE_EXCEEDED;

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    /// Fails the request that was about to be sent; its user goes on after a pause.
    pub(super) fn drop_unsendable(&mut self, slot: TransportSlot, now: u64) {
        let connection = &mut self.connections[slot];
        let Some(flight) = connection.flights.pop_back() else { return };
        let epoch = connection.epoch;
        self.in_flight -= 1;
        if self.groups.is_some() {
            self.fail_session(slot);
        }
        self.fail(flight.due, Some(now), LoadFailure::Message, now);
        if !self.job.model.is_pooled() {
            self.wake.push(Reverse((now + BACKOFF, slot, epoch)));
        }
    }

    /// Closes a used-up connection. The server does not process pipelined requests behind a response with
    /// `Connection: close` (RFC 9112, 9.6): the next connection sends them.
    pub(super) fn give_up_connection(&mut self, slot: TransportSlot, now: u64) {
        let left: Vec<Flight> = self.connections[slot].flights.drain(..).collect();
        self.in_flight -= left.len();
        self.close(slot);
        left.into_iter().for_each(|flight| self.repeat(slot, flight, LoadFailure::ClosedEarly, now));
        self.after_close(slot, now);
    }

    /// Fails one stream; its connection continues.
    pub(super) fn stream_failed(
        &mut self,
        slot: TransportSlot,
        lane: usize,
        class: LoadFailure,
        code: Option<u16>,
        now: u64,
    ) {
        let connection = &mut self.connections[slot];
        let Some(flight) = connection.flights.remove(lane) else { return };
        self.in_flight -= 1;
        connection.calls += 1;
        if self.job.session {
            self.fail_session(slot);
        }
        if let (Some(code), true) = (code, flight.due.counted) {
            self.record.resets.add(code);
        }
        self.fail(flight.due, Some(flight.sent), class, now);
        self.after_stream(slot, now);
    }

    pub(super) fn unprocessed(&mut self, slot: TransportSlot, lane: usize, now: u64) {
        let Some(flight) = self.connections[slot].flights.remove(lane) else { return };
        self.in_flight -= 1;
        self.repeat(slot, flight, LoadFailure::Refused, now);
        self.after_stream(slot, now);
    }

    /// Queues an unprocessed request again, up to a limit, beyond which it fails with `class`; its wait continues.
    pub(super) fn repeat(&mut self, slot: TransportSlot, flight: Flight, class: LoadFailure, now: u64) {
        let mut due = flight.due;
        due.again += 1;
        if due.again > AGAIN_MAX || now >= self.to {
            if self.groups.is_some() {
                self.fail_session(slot);
            }
            return self.fail(due, Some(flight.sent), class, now);
        }
        self.record.again += u64::from(due.counted);
        match self.job.model {
            Model::Open { .. } | Model::Replay { .. } => self.pending.push_front(due),
            Model::Closed { .. } | Model::Connections { .. } => {
                self.connections[slot].waiting.push_back(due);
                self.waiting += 1;
            }
        }
    }

    pub(super) fn after_stream(&mut self, slot: TransportSlot, now: u64) {
        let connection = &self.connections[slot];
        let used_up = self.job.calls > 0 && connection.calls >= self.job.calls;
        if (used_up || connection.protocol.is_going()) && connection.is_idle() {
            self.close(slot);
            return self.after_close(slot, now);
        }
        match self.job.model {
            Model::Closed { think } if (think.mean > 0.0 || self.job.session) && now < self.to => {
                if self.connections[slot].waiting.is_empty() {
                    self.go_on(slot, now);
                } else {
                    self.send_waiting(slot, now);
                }
            }
            Model::Connections { .. } if self.connections[slot].waiting.is_empty() => self.go_on(slot, now),
            _ => self.room(slot, now),
        }
    }

    /// Continues a slot after an orderly close.
    pub(super) fn after_close(&mut self, slot: TransportSlot, now: u64) {
        if now >= self.to {
            // No other connection follows for these requests.
            while let Some(due) = self.connections[slot].waiting.pop_front() {
                self.waiting -= 1;
                self.fail(due, None, LoadFailure::Unsent, now);
            }
            return;
        }
        // Unprocessed requests move to the next connection.
        if !self.connections[slot].waiting.is_empty() {
            if self.connections[slot].calls == 0 && !self.job.model.is_open() {
                self.wake.push(Reverse((now + BACKOFF, slot, 0)));
                return;
            }
            return self.connect(slot, now);
        }
        match self.job.model {
            Model::Closed { .. } if self.groups.is_some() => self.run_user(slot, now, now),
            Model::Closed { think } if think.mean > 0.0 => self.pause(slot, now),
            Model::Closed { .. } => self.fill(slot, now, now),
            // The loop serves waiting requests: connecting here could recurse on immediate failures.
            _ => self.free.push(slot),
        }
    }

    /// Counts an unanswered request. A timeout is recorded with its wait: leaving it out would cut the tail.
    pub(super) fn fail(&mut self, due: Due, sent: Option<u64>, class: LoadFailure, until: u64) {
        self.fixed.remove(due.fixed);
        if !due.counted {
            return;
        }
        self.record.failures.add(class);
        // A stop leaves requests without an answer, and ports and descriptors are this machine's.
        let is_stop = matches!(class, LoadFailure::Unfinished | LoadFailure::Unsent) && self.is_stopped();
        if !is_stop && !matches!(class, LoadFailure::PortsExhausted | LoadFailure::DescriptorsExhausted) {
            self.last_failure = until;
        }
        self.kinds.failed(due.request);
        let is_call = self.requests.get(due.request as usize).is_some_and(PreparedRequest::is_grpc);
        if class == LoadFailure::Timeout && is_call {
            // Status that clients of gRPC report without an answer in time.
            self.record.codes.add(DEADLINE_EXCEEDED);
        }
        if matches!(
            class,
            LoadFailure::Timeout | LoadFailure::Unfinished | LoadFailure::Unsent | LoadFailure::ConnectTimeout
        ) {
            let waited = until.saturating_sub(due.planned);
            match sent {
                Some(sent) => self.record.apart(waited, until.saturating_sub(sent)),
                None => self.record.corrected.record(waited),
            }
            self.timeline.record((due.planned - self.from) / self.interval, waited);
        }
    }
}
