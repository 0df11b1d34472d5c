//! Counts and times by which a worker admits connections (`worker_connections`, `accept.rs`, `room.rs`).

use crate::lingering::LingerQueue;
use base::clock::Instant;
use net::poller::Key;
use std::cell::{Cell, RefCell};

/// State of a thread's admission. Times are those of `base::clock`, limits are the callers'.
#[derive(Default)]
pub struct AdmissionState {
    datagram_clients: Cell<usize>,
    unproven_handshakes: Cell<usize>,
    paused_until: Cell<Option<Instant>>,
    full_since: Cell<Option<Instant>>,
    full_logged: Cell<Option<Instant>>,
    no_room_at: Cell<Option<Instant>>,
    reuse_logged: Cell<Option<Instant>>,
    lingering: RefCell<LingerQueue>,
    handshakes_wait: Cell<bool>,
}

impl AdmissionState {
    /// Returns the number of clients of datagram listeners, which have no entries in the poller.
    pub fn datagram_clients(&self) -> usize {
        self.datagram_clients.get()
    }
    /// Counts a client of a datagram listener. [`AdmissionState::end_datagram_client`] follows.
    pub fn begin_datagram_client(&self) {
        self.datagram_clients.set(self.datagram_clients.get() + 1);
    }
    /// Ends the count of a client of a datagram listener.
    pub fn end_datagram_client(&self) {
        self.datagram_clients.set(self.datagram_clients.get() - 1);
    }
    /// Returns the number of unfinished QUIC handshakes of clients that have not proven their address.
    pub fn unproven_handshakes(&self) -> usize {
        self.unproven_handshakes.get()
    }
    /// Counts a handshake of an unproven address. [`AdmissionState::end_unproven`] follows.
    pub fn begin_unproven(&self) {
        self.unproven_handshakes.set(self.unproven_handshakes.get() + 1);
    }
    /// Ends the count of a handshake of an unproven address.
    pub fn end_unproven(&self) {
        self.unproven_handshakes.set(self.unproven_handshakes.get() - 1);
    }
    /// Returns the time at which paused listeners accept again; `None`: no listener is paused.
    pub fn paused_until(&self) -> Option<Instant> {
        self.paused_until.get()
    }
    /// Sets the time at which paused listeners accept again.
    pub fn pause_until(&self, time: Option<Instant>) {
        self.paused_until.set(time);
    }
    /// Returns the time since which clients wait for a connection to become free.
    pub fn full_since(&self) -> Option<Instant> {
        self.full_since.get()
    }
    /// Notes that clients wait for a connection to become free. Tells whether this is to be logged: at the first client,
    /// at most once per `interval_ms`.
    pub fn note_full(&self, now: Instant, interval_ms: u64) -> bool {
        if self.full_since.get().is_some() {
            return false;
        }
        self.full_since.set(Some(now));
        is_due(&self.full_logged, now, interval_ms)
    }
    /// Notes that no client waits.
    pub fn note_room(&self) {
        self.full_since.set(None);
    }
    /// Tells whether a search at this time found no idle connection: another one would find none either.
    pub fn is_without_idle(&self, now: Instant) -> bool {
        self.no_room_at.get() == Some(now)
    }
    /// Notes that a search found no idle connection to close.
    pub fn note_without_idle(&self, now: Instant) {
        self.no_room_at.set(Some(now));
    }
    /// Tells whether the close of idle connections is to be logged: at most once per `interval_ms`.
    pub fn note_reuse(&self, now: Instant, interval_ms: u64) -> bool {
        is_due(&self.reuse_logged, now, interval_ms)
    }
    /// Adds a lingering connection, and returns its place for [`AdmissionState::end_lingering`].
    pub fn begin_lingering(&self, key: Key) -> u64 {
        self.lingering.borrow_mut().add(key)
    }
    /// Removes a lingering connection, if it is still there.
    pub fn end_lingering(&self, place: u64) {
        self.lingering.borrow_mut().remove(place);
    }
    /// Takes the connections that have lingered longest: one of `part`, at least one and at most `most`.
    pub fn take_lingering(&self, part: usize, most: usize) -> Vec<Key> {
        let mut lingering = self.lingering.borrow_mut();
        let count = (lingering.count() / part).clamp(1, most);
        lingering.take(count)
    }
    /// Tells whether TLS handshakes are queued, so that new ones wait.
    pub fn has_queued_handshakes(&self) -> bool {
        self.handshakes_wait.get()
    }
    /// Notes whether TLS handshakes are queued.
    pub fn note_queued_handshakes(&self, are_queued: bool) {
        self.handshakes_wait.set(are_queued);
    }
}

/// Tells whether an event that recurs is to be logged, and takes note of it.
fn is_due(logged: &Cell<Option<Instant>>, now: Instant, interval_ms: u64) -> bool {
    let is_due = logged.get().is_none_or(|at| now.millis_since(at) >= interval_ms);
    if is_due {
        logged.set(Some(now));
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_worker_is_logged_once_per_interval_and_anew_after_room() {
        let state = AdmissionState::default();
        let at = |ms: u64| Instant(ms * 1000);
        assert!(state.note_full(at(10), 500));
        assert!(!state.note_full(at(700), 500), "clients have waited since the first");
        state.note_room();
        assert!(state.note_full(at(800), 500));
        state.note_room();
        assert!(!state.note_full(at(900), 500), "the interval is not over");
        assert_eq!(state.full_since(), Some(at(900)));
    }

    #[test]
    fn lingering_connections_are_taken_in_part_but_at_least_one() {
        let state = AdmissionState::default();
        for n in 1..=4u64 {
            state.begin_lingering(Key::from_bits(n << 32));
        }
        assert_eq!(state.take_lingering(8, 32).len(), 1);
        assert_eq!(state.take_lingering(1, 2).len(), 2);
    }
}
