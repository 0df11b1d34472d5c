//! Ends of intervals and of the run: waits for owed answers, and counts the unanswered rest.

use super::connection::Connection;
use super::{Due, Flight, LoadWorld, WorldSource};
use crate::engine::failure::LoadFailure;
use crate::engine::feed::RowFeed;
use crate::engine::record::Interval;
use crate::engine::transport::Transport;
use crate::protocol::ClientProtocol;

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    /// Users without an answer for over half of the measured part.
    pub(super) fn starved(&self, ended: u64) -> u64 {
        let half = ended.saturating_sub(self.from) / 2;
        let oldest = |connection: &Connection<P>| {
            let flight = connection.flights.front().map(|f| f.due.planned);
            flight.or(connection.waiting.front().map(|d| d.planned))
        };
        let waits = |lanes: &&[Connection<P>]| {
            let waiting = lanes.iter().filter_map(oldest).min();
            lanes.iter().all(|lane| !lane.served) && waiting.is_some_and(|planned| ended - planned > half)
        };
        self.connections.chunks(self.lanes).take(self.users).filter(waits).count() as u64
    }

    /// Waits for owed answers, including those of connecting connections; then writes the last record.
    pub(super) fn drain(&mut self) {
        let limit = self.net.now() + (self.job.timeout * 1e9) as u64 + 100_000_000;
        let mut ready = Vec::new();
        while self.in_flight + self.waiting > 0 {
            let now = self.net.now();
            if now >= limit || self.is_stopped() {
                break;
            }
            self.check_timeouts(now);
            self.expire(now);
            self.flush_output();
            self.net.wait(limit.min(now + 20_000_000).min(self.next_timer()), &mut ready);
            for event in std::mem::take(&mut ready) {
                self.handle(event);
            }
        }
        let now = self.net.now();
        for slot in 0..self.connections.len() {
            let connection = &mut self.connections[slot];
            let flights: Vec<Flight> = connection.flights.drain(..).collect();
            let waiting: Vec<Due> = connection.waiting.drain(..).collect();
            flights.into_iter().for_each(|f| self.fail(f.due, Some(f.sent), LoadFailure::Unfinished, now));
            waiting.into_iter().for_each(|d| self.fail(d, None, LoadFailure::Unsent, now));
            if self.connections[slot].is_live() {
                self.say_goodbye(slot);
                self.net.close(slot, self.job.reset);
            }
        }
        for due in std::mem::take(&mut self.pending) {
            self.fail(due, None, LoadFailure::Unsent, now);
        }
        // Due requests that were not even taken up: the first of them with their wait.
        for _ in 0..self.pending_max {
            let WorldSource::Schedule(schedule) = &mut self.source else { break };
            if self.used_up {
                break;
            }
            let Some(planned) = schedule.peek().map(|t| self.origin + t).filter(|t| *t < self.to) else { break };
            let counted = planned >= self.from;
            if counted && self.budget == 0 {
                break;
            }
            schedule.take();
            let request = if self.job.session { 0 } else { self.chooser.choose(&mut self.rng) };
            if counted {
                self.budget -= 1;
                self.record.due += 1;
                self.last_due = planned - self.from;
            }
            self.fail(Due::new(planned, request, counted, 0), None, LoadFailure::Unsent, now);
        }
        if let (WorldSource::Schedule(schedule), true) = (&self.source, self.budget > 0 && !self.used_up) {
            let left = schedule.left(self.from - self.origin, self.to - self.origin).min(self.budget);
            self.record.due += left;
            self.record.failures.add_many(LoadFailure::Unsent, left);
        }
        // The refusal is the result, even before the measured part.
        if let Some((class, _)) = &self.refused
            && self.record.due == 0
        {
            self.record.due = 1;
            self.record.failures.add(*class);
        }
        self.flush();
    }

    pub(super) fn budget_is_used_up(&self) -> bool {
        let owed = self.in_flight + self.waiting + self.pending.len();
        (self.budget == 0 || self.used_up) && owed == 0 && self.wake.is_empty()
    }

    /// Ends a closed loop's world whose users have yet to come, if the other worlds took all rows of data.
    pub(super) fn end_without_rows(&mut self) {
        let over = |feed: &RowFeed| feed.is_once() && feed.rows_left() == 0;
        self.used_up |= self.users == 0 && self.feed.as_ref().is_some_and(over);
    }

    /// Hands over finished intervals. The last stays open for late answers.
    #[inline]
    pub(super) fn turn_interval(&mut self, now: u64) {
        while now >= self.boundary() && self.boundary() < self.to {
            self.flush();
            self.index += 1;
        }
    }

    pub(super) fn flush(&mut self) {
        let mut record = std::mem::take(&mut self.record);
        record.connect_cost = self.net.connect_cost();
        let left = match &self.source {
            WorldSource::Schedule(schedule) if self.is_full() => {
                let now = self.net.now().min(self.to);
                schedule.left(0, now - self.origin) as usize
            }
            _ => 0,
        };
        let pending = self.pending.len() + left;
        let interval = Interval { world: self.place.0, index: self.index, record, open: self.open, pending };
        (self.sink)(interval);
    }

    pub(super) fn boundary(&self) -> u64 {
        self.from + (self.index as u64 + 1) * self.interval
    }
}
