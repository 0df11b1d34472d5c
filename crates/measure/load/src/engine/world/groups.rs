//! Users as browsers: steps of a session that are sent at the same time, over several connections of one user, or as
//! streams of one connection.
//!
//! A group is a step and the parallel ones behind it. Its requests become due together; the next group becomes due when
//! all of them are answered, after the pause of the session.

use std::cmp::Reverse;

use super::{Due, LoadWorld};
use crate::engine::failure::LoadFailure;
use crate::engine::job::Model;
use crate::engine::request::PreparedRequest;
use crate::engine::transport::{Transport, TransportSlot};
use crate::protocol::ClientProtocol;

/// Groups of a session's steps: for each step the number behind the last step of its group.
#[derive(Clone, Debug)]
pub(super) struct StepGroups(Box<[u32]>);

impl StepGroups {
    /// Finds the groups; `None` if no step is parallel.
    pub(super) fn find(requests: &[PreparedRequest]) -> Option<StepGroups> {
        if !requests.iter().any(|request| request.parallel) {
            return None;
        }
        let mut ends = vec![requests.len() as u32; requests.len()];
        for step in (1..requests.len()).rev() {
            let end = if requests[step].parallel { ends[step] } else { step as u32 };
            ends[step - 1] = end;
        }
        Some(StepGroups(ends.into()))
    }

    /// Number behind the last step of the group of `step`.
    fn end_of(&self, step: u32) -> u32 {
        self.0.get(step as usize).copied().unwrap_or(step + 1)
    }
}

/// A user's place in a session with groups.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UserProgress {
    /// Next step to send, and the end of its group; 0 before the first group.
    next: u32,
    end: u32,
    /// A request of the group failed, which ends the session.
    failed: bool,
    /// Time at which the group became due.
    planned: u64,
    /// Longest pause of the group in seconds, and the time until which the user pauses.
    think: f64,
    resume: u64,
}

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    /// Slot that keeps the variables and the activity of the user of `slot`.
    #[inline]
    pub(super) fn user_slot(&self, slot: TransportSlot) -> TransportSlot {
        if self.lanes == 1 { slot } else { slot - slot % self.lanes }
    }

    /// Ends the session of the user of `slot`, because one of its requests failed.
    pub(super) fn fail_session(&mut self, slot: TransportSlot) {
        match self.progress.get_mut(slot / self.lanes) {
            Some(progress) => progress.failed = true,
            None => self.connections[slot].restart(),
        }
    }

    /// Stores the values of an answer to a step of a group; returns the failure of the step.
    pub(super) fn proceed_group(
        &mut self,
        slot: TransportSlot,
        step: u32,
        mut failure: Option<LoadFailure>,
    ) -> Option<LoadFailure> {
        let requests = self.requests.clone();
        let request = &requests[step as usize % requests.len()];
        let connection = &self.connections[slot];
        let mut values = Vec::new();
        let wanted: &[_] = if failure.is_none() { &request.extract } else { &[] };
        for (name, from) in wanted {
            match from.extract(connection.protocol.head(), &connection.body) {
                Some(value) => values.push((name, value)),
                None => failure = Some(LoadFailure::Extract),
            }
        }
        let user = self.user_slot(slot);
        for (name, value) in values {
            self.connections[user].variables.set(name, value);
        }
        if let Some(progress) = self.progress.get_mut(slot / self.lanes) {
            progress.failed |= failure.is_some();
            progress.think = progress.think.max(request.think);
        }
        failure
    }

    /// Requests of a user that are sent or wait for a connection.
    fn user_busy(&self, user: TransportSlot) -> usize {
        let lanes = &self.connections[user..user + self.lanes];
        lanes.iter().map(|lane| lane.flights.len() + lane.waiting.len()).sum()
    }

    /// Begins the next group of the user of `slot` when its group is over, and gives its due requests to connections
    /// that have room. To be called after every change of one of the user's connections.
    pub(super) fn run_user(&mut self, slot: TransportSlot, planned: u64, now: u64) {
        let (user, number) = (self.user_slot(slot), slot / self.lanes);
        if now >= self.to {
            return;
        }
        if !self.connections[user].active {
            return self.close_idle_lanes(user);
        }
        let progress = self.progress[number];
        if now < progress.resume {
            return;
        }
        let is_over = progress.failed || progress.next >= progress.end;
        if is_over && (self.user_busy(user) > 0 || !self.begin_group(user, number, planned, now)) {
            return;
        }
        while let Some(lane) = self.free_lane(user) {
            let progress = self.progress[number];
            if progress.failed || progress.next >= progress.end || now >= self.to {
                return;
            }
            let counted = progress.planned >= self.from;
            if counted && self.budget == 0 {
                return;
            }
            let row = match progress.next {
                0 => self.take_row(),
                _ => Some(self.connections[user].variables.row()),
            };
            let Some(row) = row else { return };
            self.connections[user].variables.set_row(row);
            self.progress[number].next += 1;
            if counted {
                self.budget -= 1;
                self.record.due += 1;
            }
            let due = Due::new(progress.planned, progress.next, counted, row);
            if self.connections[lane].is_open() {
                self.send(lane, due, now);
                continue;
            }
            self.connections[lane].waiting.push_back(due);
            self.waiting += 1;
            if !self.connections[lane].is_live() {
                self.connect(lane, now);
            }
        }
    }

    /// Moves a user to its next group, after a failure to the first. False: the user pauses before it.
    fn begin_group(&mut self, user: TransportSlot, number: usize, planned: u64, now: u64) -> bool {
        let Some(groups) = &self.groups else { return false };
        let last = self.progress[number];
        let is_first = last.end == 0;
        let is_over = last.failed || last.end as usize >= self.requests.len();
        let next = if is_over { 0 } else { last.end };
        let end = groups.end_of(next);
        if is_over {
            self.connections[user].restart();
        }
        let pause = if is_first { 0 } else { self.group_pause(last.think) };
        let planned = if pause > 0 { now + pause } else { planned };
        self.progress[number] =
            UserProgress { next, end, planned, resume: planned.max(now), ..UserProgress::default() };
        if pause == 0 {
            return true;
        }
        self.wake.push(Reverse((planned, user, 0)));
        false
    }

    /// Nanoseconds until the next group; `think` is the longest pause of the group's steps in seconds.
    fn group_pause(&mut self, think: f64) -> u64 {
        let Model::Closed { think: common } = self.job.model else { return 0 };
        let mean = if think > 0.0 { think } else { common.mean } * 1e9;
        if common.random { (mean * self.rng.exponential()) as u64 } else { mean as u64 }
    }

    /// Connection of the user that can take a request: an open one, otherwise one that is connecting, otherwise one to
    /// connect.
    fn free_lane(&self, user: TransportSlot) -> Option<TransportSlot> {
        let mut lanes = user..user + self.lanes;
        let is_free = |slot: &TransportSlot| {
            let lane = &self.connections[*slot];
            lane.is_open()
                && lane.waiting.is_empty()
                && lane.has_room(self.job.calls)
                && (P::MULTIPLEXED || lane.flights.is_empty())
        };
        let is_coming = |slot: &TransportSlot| {
            let lane = &self.connections[*slot];
            lane.is_live() && !lane.is_open() && (P::MULTIPLEXED || lane.waiting.is_empty())
        };
        let is_closed = |slot: &TransportSlot| {
            let lane = &self.connections[*slot];
            !lane.is_live() && lane.waiting.is_empty()
        };
        let found = lanes.clone().find(is_free).or_else(|| lanes.clone().find(is_coming));
        found.or_else(|| lanes.find(is_closed))
    }

    /// Closes the connections of a user who has left.
    pub(super) fn close_idle_lanes(&mut self, user: TransportSlot) {
        for slot in user..user + self.lanes {
            if self.connections[slot].is_idle() {
                self.close(slot);
            }
        }
    }
}
