//! Due requests: connections before a closed loop, users by the profile, requests by the plan.

use std::cmp::Reverse;

use super::{Due, LoadWorld, MADE_AT_ONCE, PREPARATION_MAX, TAKEN_AT_ONCE, WorldSource, part};
use crate::engine::transport::Transport;
use crate::protocol::ClientProtocol;

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    /// Takes up planned requests and users whose pause is over.
    #[inline]
    pub(super) fn plan(&mut self, mut now: u64) {
        self.serve_pending(now);
        while let Some(Reverse((at, slot, epoch))) = self.wake.peek().copied() {
            if at > now {
                break;
            }
            self.wake.pop();
            match self.source {
                WorldSource::Answers => self.fill(slot, at, now),
                _ if self.connections[slot].epoch == epoch => self.call_again(slot, at, now),
                // The server closed the connection in the pause: ends the session.
                _ => {}
            }
        }
        // At impossible rates something is always due; answers need their turn.
        for _ in 0..TAKEN_AT_ONCE {
            if self.is_full() {
                self.full_at = now;
                return;
            }
            if self.used_up {
                return;
            }
            let (planned, request) = match &mut self.source {
                WorldSource::Answers => return,
                WorldSource::Schedule(s) => match s.peek() {
                    Some(t) if self.origin + t <= now => {
                        s.take();
                        // A session starts with its first step.
                        let request = if self.job.session { 0 } else { self.chooser.choose(&mut self.rng) };
                        (self.origin + t, request)
                    }
                    _ => return,
                },
                WorldSource::List { at, next } => match at.get(*next) {
                    Some((t, request)) if self.origin + t <= now => {
                        *next += 1;
                        (self.origin + t, *request)
                    }
                    _ => return,
                },
            };
            let counted = planned >= self.from;
            if planned >= self.to || (counted && self.budget == 0) {
                return;
            }
            let Some(row) = self.take_row() else { return };
            if counted {
                self.budget -= 1;
                self.record.due += 1;
                self.last_due = planned - self.from;
                self.record.lag.record(now - planned.max(self.full_at));
            }
            self.serve(Due::new(planned, request, counted, row), now);
            // Sending takes time, which must show as lateness of the next request.
            now = self.net.now();
        }
    }

    /// Tells whether due requests must stay in the schedule. Those of a list are few.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= self.pending_max && matches!(self.source, WorldSource::Schedule(_))
    }

    #[inline]
    pub(super) fn take_up(&mut self, now: u64) {
        self.expire(now);
        self.plan(now);
        self.flush_output();
    }

    /// `u64::MAX`: never.
    #[inline]
    pub(super) fn next_time(&self) -> u64 {
        let planned = match &self.source {
            _ if self.budget == 0 || self.used_up => None,
            WorldSource::Answers => None,
            WorldSource::Schedule(_) if self.is_full() => None,
            WorldSource::Schedule(s) => s.peek(),
            WorldSource::List { at, next } => at.get(*next).map(|x| x.0),
        };
        let planned = planned.map_or(u64::MAX, |t| self.origin + t);
        self.wake.peek().map_or(planned, |w| planned.min(w.0.0))
    }

    /// Closed loop: starts or stops users to match the profile.
    pub(super) fn admit_users(&mut self, now: u64) {
        if !matches!(self.source, WorldSource::Answers) {
            return;
        }
        let value = self.profile.value((now - self.origin) as f64 * 1e-9);
        let most = self.connections.len() / self.lanes;
        let wanted = part(value.round() as usize, self.place.0, self.place.1).min(most);
        for user in self.users..wanted {
            let slot = user * self.lanes;
            let connection = &mut self.connections[slot];
            if !std::mem::replace(&mut connection.active, true) && connection.flights.is_empty() {
                self.fill(slot, now, now);
            }
        }
        self.flush_output();
        for user in wanted..self.users {
            self.connections[user * self.lanes].active = false;
            self.close_idle_lanes(user * self.lanes);
        }
        self.users = wanted;
    }

    /// Connects the users of a closed loop before the measurement. Failed connects are retried, and counted, in the
    /// run.
    pub fn prepare(&mut self) {
        if !matches!(self.source, WorldSource::Answers) || self.job.calls == 1 {
            return;
        }
        let users = part(self.profile.value(0.0).round() as usize, self.place.0, self.place.1);
        let wanted = users.min(self.connections.len() / self.lanes).min(self.budget.min(usize::MAX as u64) as usize);
        let limit = self.net.now() + ((self.job.connect_timeout * 1e9) as u64).min(PREPARATION_MAX);
        let (mut begun, mut ready) = (0, Vec::with_capacity(256));
        loop {
            let now = self.net.now();
            // The others of a user's connections are made when they are needed.
            let first = self.connections.iter().step_by(self.lanes).take(begun);
            let making = first.filter(|c| c.is_live() && !c.is_ready()).count();
            if (begun == wanted && making == 0) || now >= limit || self.is_stopped() {
                break;
            }
            let next = wanted.min(begun + MADE_AT_ONCE.saturating_sub(making));
            for user in begun..next {
                self.connect(user * self.lanes, now);
            }
            begun = next.max(begun);
            self.check_timeouts(now);
            self.expire(now);
            self.net.wait(limit.min(now + 20_000_000).min(self.next_timer()), &mut ready);
            for event in &ready {
                self.handle(*event);
            }
        }
        self.wake.clear();
    }
}
