//! Life of requests: choosing a connection, sending, judging, recording, continuing.

use std::cmp::Reverse;

use super::connection::Connection;
use super::redirects::AnswerTrack;
use super::{Due, Flight, LoadWorld, MADE_AT_ONCE};
use crate::engine::failure::LoadFailure;
use crate::engine::job::Model;
use crate::engine::request::{Fnv, PreparedRequest};
use crate::engine::transport::{Transport, TransportSlot};
use crate::protocol::grpc::code_name;
use crate::protocol::{ClientProtocol, EncodedRequest, ResponseSummary};

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    /// Open loop: gives a due request to an idle connection, a new one, or the queue.
    #[inline]
    pub(super) fn serve(&mut self, due: Due, now: u64) {
        if !matches!(self.job.model, Model::Connections { .. }) {
            while let Some((slot, epoch)) = self.idle.pop_front() {
                let connection = &mut self.connections[slot];
                if connection.epoch != epoch {
                    continue;
                }
                connection.listed = false;
                let usable = if P::MULTIPLEXED { connection.is_open() } else { connection.is_idle() };
                if usable && connection.has_room(self.job.calls) {
                    self.send(slot, due, now);
                    return self.list(slot);
                }
            }
        }
        if let Some(slot) = self.opening() {
            self.connections[slot].waiting.push_back(due);
            self.waiting += 1;
        } else if self.may_connect()
            && let Some(slot) = self.free.pop()
        {
            self.connections[slot].restart();
            self.connections[slot].waiting.push_back(due);
            self.waiting += 1;
            self.connect(slot, now);
            self.opening = (slot, self.connections[slot].epoch);
            if !P::MULTIPLEXED && self.job.model.is_pooled() {
                while self.openings.front().is_some_and(|o| !self.waits_at(o)) {
                    self.openings.pop_front();
                }
                self.openings.push_back(self.opening);
            }
        } else {
            self.pending.push_back(due);
        }
    }

    /// A connecting multiplexed connection with room: a burst needs connections for its streams, not one per request.
    fn opening(&self) -> Option<TransportSlot> {
        if !P::MULTIPLEXED || matches!(self.job.model, Model::Connections { .. }) {
            return None;
        }
        let (slot, epoch) = self.opening;
        let connection = self.connections.get(slot)?;
        let waits = connection.epoch == epoch && connection.is_live() && !connection.is_open();
        let calls = self.job.calls as usize;
        let most = if calls > 0 { self.job.pipeline.min(calls) } else { self.job.pipeline };
        (waits && connection.waiting.len() < most).then_some(slot)
    }

    /// Tells whether another connection may start: pooled, at most as many as are open, or [`MADE_AT_ONCE`].
    #[inline]
    fn may_connect(&self) -> bool {
        !self.job.model.is_pooled() || self.making < self.open.max(MADE_AT_ONCE)
    }

    /// Open loop: a free connection takes the longest waiting request, even one that waits for a connecting connection;
    /// else it is listed.
    pub(super) fn take_waiting(&mut self, slot: TransportSlot, now: u64) {
        if let Some(due) = self.steal() {
            return self.send(slot, due, now);
        }
        match self.pending.pop_front() {
            Some(due) => self.send(slot, due, now),
            None => self.list(slot),
        }
    }

    fn steal(&mut self) -> Option<Due> {
        while let Some(opening) = self.openings.pop_front() {
            if self.waits_at(&opening) {
                self.waiting -= 1;
                return self.connections[opening.0].waiting.pop_front();
            }
        }
        None
    }

    fn waits_at(&self, (slot, epoch): &(TransportSlot, u32)) -> bool {
        self.connections.get(*slot).is_some_and(|c| c.epoch == *epoch && !c.waiting.is_empty())
    }

    /// Open loop: gives waiting requests to freed slots.
    #[inline]
    pub(super) fn serve_pending(&mut self, now: u64) {
        while !self.free.is_empty()
            && self.may_connect()
            && let Some(due) = self.pending.pop_front()
        {
            self.serve(due, now);
        }
    }

    pub(super) fn fill(&mut self, slot: TransportSlot, planned: u64, now: u64) {
        if !self.connections[slot].is_live() && !self.connections[slot].waiting.is_empty() && now < self.to {
            self.connect(slot, now);
        }
        if self.groups.is_some() {
            return self.run_user(slot, planned, now);
        }
        // A connection needs no more requests than its calls.
        let calls = if self.job.calls > 0 { self.job.calls as usize } else { usize::MAX };
        let most = self.job.pipeline.clamp(1, calls);
        loop {
            let connection = &self.connections[slot];
            let busy = connection.flights.len() + connection.waiting.len();
            let counted = planned >= self.from;
            if !connection.active || busy >= most || now >= self.to || (counted && self.budget == 0) {
                return;
            }
            if connection.is_open() && !connection.has_room(self.job.calls) {
                return;
            }
            let (open, live) = (connection.is_open(), connection.is_live());
            let Some(row) = self.user_row(slot) else { return };
            let request = self.next_request(slot);
            let due = Due::new(planned, request, counted, row);
            if counted {
                self.budget -= 1;
                self.record.due += 1;
            }
            if open {
                self.send(slot, due, now);
                if self.connections[slot].flights.len() + self.connections[slot].waiting.len() <= busy {
                    return;
                }
            } else {
                self.connections[slot].waiting.push_back(due);
                self.waiting += 1;
                if !live {
                    self.connect(slot, now);
                    if !self.connections[slot].is_live() {
                        return;
                    }
                }
            }
        }
    }

    /// Tells whether answers are looked at for redirects and cookies.
    #[inline]
    fn is_tracking(&self) -> bool {
        self.job.follow > 0 || self.job.cookies
    }

    fn next_request(&mut self, slot: TransportSlot) -> u32 {
        if self.job.session { self.connections[slot].step } else { self.chooser.choose(&mut self.rng) }
    }

    pub(super) fn call_again(&mut self, slot: TransportSlot, planned: u64, now: u64) {
        if now >= self.to || !self.connections[slot].is_idle() {
            return;
        }
        let Some(row) = self.user_row(slot) else { return };
        let request = self.next_request(slot);
        let counted = planned >= self.from;
        self.record.due += u64::from(counted);
        self.send(slot, Due::new(planned, request, counted, row), now);
    }

    #[inline]
    pub(super) fn send(&mut self, slot: TransportSlot, mut due: Due, now: u64) {
        let requests = self.requests.clone();
        let mut request = &requests[due.request as usize % requests.len()];
        let mut output = Vec::new();
        let user = self.user_slot(slot);
        self.connections[user].variables.set_row(due.row);
        let fixed;
        if self.is_tracking() {
            fixed = self.fix_request(slot, &mut due, now);
            request = fixed.as_ref().map_or(request, |fixed| &fixed.request);
        }
        let connection = &mut self.connections[slot];
        connection.flights.push_back(Flight { due, sent: now, first: 0 });
        self.in_flight += 1;
        if now >= self.from && now < self.to {
            self.record.sent += 1;
        }
        let sequence = self.sequence;
        self.sequence += self.place.1 as u64;
        let encoded = if user == slot {
            connection.protocol.submit(request, sequence, &connection.variables, &mut self.rng, &mut output)
        } else {
            let variables = std::mem::take(&mut self.connections[user].variables);
            let connection = &mut self.connections[slot];
            let encoded = connection.protocol.submit(request, sequence, &variables, &mut self.rng, &mut output);
            self.connections[user].variables = variables;
            encoded
        };
        match encoded {
            EncodedRequest::Ready(bytes) => self.write(slot, bytes),
            EncodedRequest::Written => self.write(slot, &output),
            EncodedRequest::Kept => self.soil(slot),
            EncodedRequest::Unsendable => self.drop_unsendable(slot, now),
        }
    }

    #[inline]
    pub(super) fn answered(&mut self, slot: TransportSlot, answer: ResponseSummary, now: u64) {
        let connection = &mut self.connections[slot];
        let Some(flight) = connection.flights.remove(answer.lane) else { return };
        self.in_flight -= 1;
        connection.calls += 1;
        self.last_answer = now;
        let (mut fixed, mut refused) = (None, None);
        if self.is_tracking() {
            match self.track_answer(slot, &flight, &answer, now) {
                AnswerTrack::Followed => return,
                AnswerTrack::Result { fixed: request, failure } => (fixed, refused) = (request, failure),
            }
        }
        let connection = &mut self.connections[slot];
        let request = &self.requests[flight.due.request as usize % self.requests.len()];
        if let Some(json) = answer.grpc.filter(|_| request.wants_body()).map(|_| request.answer_json(&connection.body))
        {
            connection.body = json.unwrap_or_default();
        }
        if let Some(end) = answer.grpc.filter(|end| !request.allows_code(end.code)) {
            let text = String::from_utf8_lossy(connection.protocol.head());
            self.answer_error.get_or_insert_with(|| match text.is_empty() {
                true => code_name(end.code),
                false => format!("{}: {}", code_name(end.code), text.replace(char::is_control, " ")),
            });
        }
        let mut failure = refused.or_else(|| judge(request, &answer, &connection.body));
        if self.job.session && self.groups.is_none() {
            failure = failure.or_else(|| proceed(request, connection, self.requests.len()));
            if failure.is_some() {
                connection.restart();
            }
        }
        connection.think = request.think;
        if self.groups.is_some() {
            failure = self.proceed_group(slot, flight.due.request, failure);
        }
        let connection = &mut self.connections[slot];
        connection.body.clear();
        let record = &mut self.record;
        if now >= self.from && now < self.to {
            connection.served = true;
            record.answers += 1;
            record.good += u64::from(failure.is_none());
            record.body_bytes += answer.body;
            record.other_bytes += answer.overhead;
            if let Some(end) = answer.grpc {
                record.codes.add(end.code);
                record.messages += u64::from(end.messages);
            } else if answer.status > 0 {
                record.statuses.add(answer.status);
            }
        }
        let planned = flight.due.planned;
        if flight.due.counted {
            match failure {
                Some(class) => record.failures.add(class),
                None if now < self.to => record.in_time += 1,
                None => record.late += 1,
            }
            // Without a separate first byte, uses the last byte's time.
            let first = if flight.first == 0 { now } else { flight.first };
            let sent = fixed.filter(|fixed| fixed.redirects > 0).map_or(flight.sent, |fixed| fixed.sent);
            if sent == planned && first == now {
                record.both(now - planned);
            } else {
                record.apart(now - planned, now - sent);
                record.first_byte.record(first - planned);
            }
            self.timeline.record((planned - self.from) / self.interval, now - planned);
            self.kinds.answered(flight.due.request, now - planned, failure.is_none());
        }
        let used_up = self.job.calls > 0 && self.connections[slot].calls >= self.job.calls;
        if (answer.reusable && !used_up) || (P::MULTIPLEXED && !self.connections[slot].flights.is_empty()) {
            self.go_on(slot, now);
        } else {
            self.give_up_connection(slot, now);
        }
    }

    #[inline]
    pub(super) fn go_on(&mut self, slot: TransportSlot, now: u64) {
        if P::MULTIPLEXED {
            self.send_waiting(slot, now);
        }
        if now >= self.to {
            return;
        }
        if self.groups.is_some() {
            return self.run_user(slot, now, now);
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
            // Only a session's first request follows the plan; others follow the answer.
            Model::Connections { think, .. } if think.mean > 0.0 || self.connections[slot].think > 0.0 => {
                self.pause(slot, now);
            }
            Model::Connections { .. } => self.call_again(slot, now, now),
            Model::Open { .. } | Model::Replay { .. } if P::MULTIPLEXED => self.room(slot, now),
            Model::Open { .. } | Model::Replay { .. } => self.take_waiting(slot, now),
        }
    }

    #[inline]
    fn list(&mut self, slot: TransportSlot) {
        let connection = &mut self.connections[slot];
        let can = if P::MULTIPLEXED { connection.is_open() } else { connection.is_idle() };
        if can && connection.has_room(self.job.calls) && !std::mem::replace(&mut connection.listed, true) {
            self.idle.push_back((slot, connection.epoch));
        }
    }

    pub(super) fn send_waiting(&mut self, slot: TransportSlot, now: u64) {
        while self.connections[slot].is_open()
            && self.connections[slot].has_room(self.job.calls)
            && let Some(due) = self.connections[slot].waiting.pop_front()
        {
            self.waiting -= 1;
            self.send(slot, due, now);
        }
    }

    pub(super) fn room(&mut self, slot: TransportSlot, now: u64) {
        if !self.connections[slot].is_open() {
            return;
        }
        if self.connections[slot].protocol.is_going() && self.connections[slot].is_idle() {
            self.record.idle_closed += u64::from(now >= self.from && now < self.to);
            self.close(slot);
            return self.after_close(slot, now);
        }
        self.send_waiting(slot, now);
        if now >= self.to {
            return;
        }
        match self.job.model {
            Model::Closed { think } if think.mean > 0.0 || self.job.session => {}
            Model::Closed { .. } => self.fill(slot, now, now),
            Model::Connections { .. } => {}
            Model::Open { .. } | Model::Replay { .. } => {
                while self.connections[slot].is_open()
                    && self.connections[slot].has_room(self.job.calls)
                    && let Some(due) = self.pending.pop_front()
                {
                    self.send(slot, due, now);
                }
                self.list(slot);
            }
        }
    }

    pub(super) fn pause(&mut self, slot: TransportSlot, now: u64) {
        let (Model::Closed { think } | Model::Connections { think, .. }) = self.job.model else { return };
        let own = self.connections[slot].think;
        let mean = if own > 0.0 { own } else { think.mean } * 1e9;
        let pause = if think.random { mean * self.rng.exponential() } else { mean };
        self.wake.push(Reverse((now + pause as u64, slot, self.connections[slot].epoch)));
    }
}

/// Extracts values for later requests of the session and advances it.
fn proceed<P: ClientProtocol>(
    request: &PreparedRequest,
    connection: &mut Connection<P>,
    steps: usize,
) -> Option<LoadFailure> {
    for (name, from) in &request.extract {
        match from.extract(connection.protocol.head(), &connection.body) {
            Some(value) => connection.variables.set(name, value),
            None => return Some(LoadFailure::Extract),
        }
    }
    connection.step += 1;
    if connection.step as usize >= steps {
        connection.restart();
    }
    None
}

#[inline]
fn judge(request: &PreparedRequest, answer: &ResponseSummary, body: &[u8]) -> Option<LoadFailure> {
    if answer.grpc.is_some_and(|end| !request.allows_code(end.code)) {
        return Some(LoadFailure::GrpcStatus);
    }
    let expect = &request.expect;
    // A message has no status.
    if answer.grpc.is_none() && answer.status > 0 && !expect.allows(answer.status) {
        return Some(LoadFailure::Status);
    }
    if expect.length.is_some_and(|l| l != answer.body) {
        return Some(LoadFailure::Body);
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
    if right { None } else { Some(LoadFailure::Body) }
}
