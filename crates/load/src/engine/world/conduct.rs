//! What happens with requests and answers: choosing a connection, sending, judging, recording, going on.

use std::cmp::Reverse;

use super::connection::Connection;
use super::{Due, Flight, PENDING_MAX, World};
use crate::engine::failure::Failure;
use crate::engine::job::Model;
use crate::engine::request::{Fnv, Prepared};
use crate::engine::transport::{Slot, Transport};
use crate::protocol::{Answer, Encoded, Protocol};

impl<T: Transport, P: Protocol> World<T, P> {
    /// Open loop: gives a due request to an idle connection, a new one, or the queue.
    #[inline]
    pub(super) fn serve(&mut self, due: Due, now: u64) {
        if !matches!(self.job.model, Model::Connections { .. }) {
            while let Some((slot, epoch)) = self.idle.pop_front() {
                let connection = &self.connections[slot];
                if connection.epoch == epoch && connection.is_idle() {
                    return self.send(slot, due, now);
                }
            }
        }
        if let Some(slot) = self.free.pop() {
            self.connections[slot].restart();
            self.connections[slot].waiting.push_back(due);
            self.waiting += 1;
            self.connect(slot, now);
        } else if self.pending.len() < PENDING_MAX {
            self.pending.push_back(due);
        } else {
            self.fail(due, None, Failure::Unsent, now);
        }
    }

    /// Open loop: gives waiting requests to slots that have become free.
    #[inline]
    pub(super) fn serve_pending(&mut self, now: u64) {
        while !self.free.is_empty()
            && let Some(due) = self.pending.pop_front()
        {
            self.serve(due, now);
        }
    }

    /// Closed loop: gives the user of a slot as many requests as may be in flight.
    pub(super) fn fill(&mut self, slot: Slot, planned: u64, now: u64) {
        loop {
            let connection = &self.connections[slot];
            let busy = connection.flights.len() + connection.waiting.len();
            let counted = planned >= self.from;
            if !connection.active || busy >= self.job.pipeline.max(1) || now >= self.to || (counted && self.budget == 0)
            {
                return;
            }
            let (open, live) = (connection.is_open(), connection.is_live());
            let request = self.next_request(slot);
            let due = Due { planned, request, counted };
            if counted {
                self.budget -= 1;
                self.record.due += 1;
            }
            if open {
                self.send(slot, due, now);
            } else {
                self.connections[slot].waiting.push_back(due);
                self.waiting += 1;
                if !live {
                    self.connect(slot, now);
                    if !self.connections[slot].is_live() {
                        // It failed at once, and the user comes back after a pause.
                        return;
                    }
                }
            }
        }
    }

    /// The request that comes next in a slot: by the session, or by chance.
    fn next_request(&mut self, slot: Slot) -> u32 {
        if self.job.session { self.connections[slot].step } else { self.chooser.choose(&mut self.rng) }
    }

    /// The next request of a connection that was made by the plan.
    pub(super) fn call_again(&mut self, slot: Slot, planned: u64, now: u64) {
        if now >= self.to || !self.connections[slot].is_idle() {
            return;
        }
        let request = self.next_request(slot);
        let counted = planned >= self.from;
        self.record.due += u64::from(counted);
        self.send(slot, Due { planned, request, counted }, now);
    }

    /// Sends a request on a standing connection.
    #[inline]
    pub(super) fn send(&mut self, slot: Slot, due: Due, now: u64) {
        let requests = self.requests.clone();
        let request = &requests[due.request as usize % requests.len()];
        let mut output = Vec::new();
        let connection = &mut self.connections[slot];
        connection.flights.push_back(Flight { due, sent: now, first: 0 });
        self.in_flight += 1;
        if now >= self.from && now < self.to {
            self.record.sent += 1;
        }
        let sequence = self.sequence;
        self.sequence += self.place.1 as u64;
        match connection.protocol.submit(request, sequence, &connection.variables, &mut self.rng, &mut output) {
            Encoded::Ready(bytes) => self.write(slot, bytes),
            Encoded::Written => self.write(slot, &output),
        }
    }

    /// A complete answer has come.
    #[inline]
    pub(super) fn answered(&mut self, slot: Slot, answer: Answer, now: u64) {
        let connection = &mut self.connections[slot];
        let Some(flight) = connection.flights.remove(answer.lane) else { return };
        self.in_flight -= 1;
        connection.calls += 1;
        let request = &self.requests[flight.due.request as usize % self.requests.len()];
        let mut failure = judge(request, &answer, &connection.body);
        if self.job.session {
            failure = failure.or_else(|| proceed(request, connection, self.requests.len()));
            if failure.is_some() {
                connection.restart();
            }
        }
        connection.think = request.think;
        connection.body.clear();
        let record = &mut self.record;
        if now >= self.from && now < self.to {
            connection.served = true;
            record.answers += 1;
            record.good += u64::from(failure.is_none());
            record.body_bytes += answer.body;
            record.other_bytes += answer.overhead;
            record.statuses.add(answer.status);
        }
        let planned = flight.due.planned;
        if flight.due.counted {
            match failure {
                Some(class) => record.failures.add(class),
                None if now < self.to => record.in_time += 1,
                None => record.late += 1,
            }
            // Without body and head there was no first byte apart from the last one.
            let first = if flight.first == 0 { now } else { flight.first };
            if flight.sent == planned && first == now {
                record.both(now - planned);
            } else {
                record.apart(now - planned, now - flight.sent);
                record.first_byte.record(first - planned);
            }
            self.timeline.record((planned - self.from) / self.interval, now - planned);
            self.kinds.answered(flight.due.request, now - planned, failure.is_none());
        }
        let used_up = self.job.calls > 0 && self.connections[slot].calls >= self.job.calls;
        if answer.reusable && !used_up {
            self.go_on(slot, now);
        } else {
            self.give_up_connection(slot, now);
        }
    }

    /// The connection is used up; requests behind it in the pipeline were not answered.
    fn give_up_connection(&mut self, slot: Slot, now: u64) {
        let left: Vec<Flight> = self.connections[slot].flights.drain(..).collect();
        self.in_flight -= left.len();
        self.close(slot);
        left.into_iter().for_each(|f| self.fail(f.due, Some(f.sent), Failure::ClosedEarly, now));
        self.after_close(slot, now);
    }

    /// What a connection does after an answer.
    #[inline]
    fn go_on(&mut self, slot: Slot, now: u64) {
        if now >= self.to {
            return;
        }
        match self.job.model {
            Model::Closed { think } if think.mean > 0.0 || self.connections[slot].think > 0.0 => self.pause(slot, now),
            Model::Closed { .. } => {
                if self.connections[slot].active {
                    self.fill(slot, now, now);
                } else if self.connections[slot].is_idle() {
                    self.close(slot);
                }
            }
            // The next request of a session follows the answer; only the first follows the plan.
            Model::Connections { think, .. } if think.mean > 0.0 || self.connections[slot].think > 0.0 => {
                self.pause(slot, now);
            }
            Model::Connections { .. } => self.call_again(slot, now, now),
            Model::Open { .. } | Model::Replay { .. } => match self.pending.pop_front() {
                Some(due) => self.send(slot, due, now),
                None => self.idle.push_back((slot, self.connections[slot].epoch)),
            },
        }
    }

    /// What a slot does after its connection was closed in good order.
    pub(super) fn after_close(&mut self, slot: Slot, now: u64) {
        if now >= self.to {
            return;
        }
        match self.job.model {
            Model::Closed { think } if think.mean > 0.0 => self.pause(slot, now),
            Model::Closed { .. } => self.fill(slot, now, now),
            // What waits is served by the loop: from here, connects that fail at once would call each other without end.
            _ => self.free.push(slot),
        }
    }

    fn pause(&mut self, slot: Slot, now: u64) {
        let (Model::Closed { think } | Model::Connections { think, .. }) = self.job.model else { return };
        let own = self.connections[slot].think;
        let mean = if own > 0.0 { own } else { think.mean } * 1e9;
        let pause = if think.random { mean * self.rng.exponential() } else { mean };
        self.wake.push(Reverse((now + pause as u64, slot, self.connections[slot].epoch)));
    }

    /// Counts a request that got no answer by `until`. What was merely too slow is kept with the time it had waited: leaving it out
    /// would cut the tail where it matters.
    pub(super) fn fail(&mut self, due: Due, sent: Option<u64>, class: Failure, until: u64) {
        if !due.counted {
            return;
        }
        self.record.failures.add(class);
        self.kinds.failed(due.request);
        if matches!(class, Failure::Timeout | Failure::Unfinished | Failure::Unsent | Failure::ConnectTimeout) {
            let waited = until.saturating_sub(due.planned);
            match sent {
                Some(sent) => self.record.apart(waited, until.saturating_sub(sent)),
                None => self.record.corrected.record(waited),
            }
            self.timeline.record((due.planned - self.from) / self.interval, waited);
        }
    }
}

/// Takes from a right answer what later requests of the session need, and goes on to the next step.
fn proceed<P: Protocol>(request: &Prepared, connection: &mut Connection<P>, steps: usize) -> Option<Failure> {
    for (name, from) in &request.extract {
        match from.extract(connection.protocol.head(), &connection.body) {
            Some(value) => connection.variables.set(name, value),
            None => return Some(Failure::Extract),
        }
    }
    connection.step += 1;
    if connection.step as usize >= steps {
        connection.restart();
    }
    None
}

/// Whether an answer is what was expected.
#[inline]
fn judge(request: &Prepared, answer: &Answer, body: &[u8]) -> Option<Failure> {
    let expect = &request.expect;
    if !expect.allows(answer.status) {
        return Some(Failure::Status);
    }
    if expect.length.is_some_and(|l| l != answer.body) {
        return Some(Failure::Body);
    }
    if !expect.wants_body() {
        return None;
    }
    let holds = |text: &String| memchr::memmem::find(body, text.as_bytes()).is_some();
    let hash = request.expect_hash.is_none_or(|wanted| {
        let mut fnv = Fnv::default();
        fnv.update(body);
        fnv.0 == wanted
    });
    let right = hash && expect.contains.as_ref().is_none_or(holds);
    if right { None } else { Some(Failure::Body) }
}
