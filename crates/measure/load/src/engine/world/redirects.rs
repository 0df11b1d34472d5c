//! Redirects and cookies of users: requests that stay as they were first sent, and the requests that follow them.

use std::sync::Arc;

use super::{Due, Flight, LoadWorld};
use crate::engine::failure::LoadFailure;
use crate::engine::redirect::{FixedRequest, becomes_get, is_redirect, resolve_location};
use crate::engine::session::head_fields;
use crate::engine::transport::{Transport, TransportSlot};
use crate::protocol::{ClientProtocol, ResponseSummary};

/// Continuation after an answer, with redirects and cookies looked at.
pub(super) enum AnswerTrack {
    /// Another request follows; the answer is no result.
    Followed,
    /// The answer is the result of the request, or fails it.
    Result { fixed: Option<FixedRequest>, failure: Option<LoadFailure> },
}

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    /// Row of data for the user's next request: a session keeps its row. `None` when the rows are used up.
    #[inline]
    pub(super) fn user_row(&mut self, slot: TransportSlot) -> Option<u32> {
        if self.feed.is_none() {
            return Some(0);
        }
        if self.job.session && self.connections[slot].step > 0 {
            return Some(self.connections[slot].variables.row());
        }
        self.take_row()
    }

    /// Next row of data; 0 without data, `None` when the rows are used up.
    #[inline]
    pub(super) fn take_row(&mut self) -> Option<u32> {
        let Some(feed) = &self.feed else { return Some(0) };
        let row = feed.next_row(&mut self.rng);
        self.used_up |= row.is_none();
        row
    }

    /// Prepares a request for `--follow` and `--cookies`: a template is filled once, so that a redirect has a base and
    /// a cookie a path. Returns the request that replaces the job's.
    pub(super) fn fix_request(&mut self, slot: TransportSlot, due: &mut Due, now: u64) -> Option<FixedRequest> {
        let user = self.user_slot(slot);
        let variables = &mut self.connections[user].variables;
        if self.job.cookies {
            variables.jar_mut().set_time(self.epoch + now / 1_000_000_000);
        }
        let request = &self.requests[due.request as usize % self.requests.len()];
        if due.fixed == 0 && !request.is_fixed() {
            let fixed = Arc::new(request.fixed(self.sequence, variables, &mut self.rng));
            due.fixed = self.fixed.insert(FixedRequest { request: fixed, sent: now, redirects: 0 });
        }
        self.fixed.get(due.fixed).cloned()
    }

    /// Stores the cookies of an answer and follows its redirect.
    pub(super) fn track_answer(
        &mut self,
        slot: TransportSlot,
        flight: &Flight,
        answer: &ResponseSummary,
        now: u64,
    ) -> AnswerTrack {
        let mut due = flight.due;
        let own = &self.requests[due.request as usize % self.requests.len()];
        let fixed = self.fixed.get(due.fixed).cloned();
        let request = fixed.as_ref().map_or(own, |fixed| &fixed.request);
        let user = self.user_slot(slot);
        if self.job.cookies {
            let head = self.connections[slot].protocol.head();
            let fields: Vec<Vec<u8>> = head_fields(head, "set-cookie").map(<[u8]>::to_vec).collect();
            let jar = self.connections[user].variables.jar_mut();
            for field in fields {
                jar.store_cookie(&field, &self.job.target.host, request.fixed_target());
            }
        }
        let head = self.connections[slot].protocol.head();
        if self.job.follow == 0 || !is_redirect(answer.status) {
            self.fixed.remove(due.fixed);
            return AnswerTrack::Result { fixed, failure: None };
        }
        let before = fixed.as_ref().map_or(0, |fixed| fixed.redirects);
        let location = head_fields(head, "location").next().unwrap_or_default();
        let target = match before < self.job.follow {
            true => resolve_location(location, request.fixed_target(), &self.job.target.origin()),
            false => Err(format!("more redirects than --follow {}", self.job.follow)),
        };
        let target = match target {
            Ok(target) => target,
            Err(why) => {
                self.answer_error.get_or_insert(why);
                self.fixed.remove(due.fixed);
                return AnswerTrack::Result { fixed, failure: Some(LoadFailure::Redirect) };
            }
        };
        let get = becomes_get(answer.status, request.method_name());
        let next = FixedRequest {
            request: Arc::new(request.redirected(&target, get)),
            // A template's first sending is already known.
            sent: fixed.as_ref().filter(|fixed| fixed.redirects > 0).map_or(flight.sent, |fixed| fixed.sent),
            redirects: before + 1,
        };
        self.fixed.remove(due.fixed);
        due.fixed = self.fixed.insert(next);
        if due.counted {
            self.record.redirects += 1;
        }
        if now >= self.from && now < self.to {
            self.record.body_bytes += answer.body;
            self.record.other_bytes += answer.overhead;
        }
        self.connections[slot].body.clear();
        self.send_redirected(slot, due, answer, now);
        AnswerTrack::Followed
    }

    /// Sends the request after a redirect on the same connection, or on the next one of the slot.
    fn send_redirected(&mut self, slot: TransportSlot, due: Due, answer: &ResponseSummary, now: u64) {
        let connection = &self.connections[slot];
        let used_up = self.job.calls > 0 && connection.calls >= self.job.calls;
        if answer.reusable && !used_up && connection.has_room(self.job.calls) {
            return self.send(slot, due, now);
        }
        let shared = P::MULTIPLEXED && !connection.flights.is_empty();
        if now >= self.to {
            self.fail(due, None, LoadFailure::Unfinished, now);
        } else {
            self.connections[slot].waiting.push_back(due);
            self.waiting += 1;
        }
        if !shared {
            self.give_up_connection(slot, now);
        }
    }
}
