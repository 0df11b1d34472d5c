//! Server selection: smooth weighted round robin, least_conn, ip_hash, hash, random, least_time; bound requests first.

mod hash;
mod least;
mod random;
pub(crate) mod rounds;
#[cfg(test)]
mod tests;

use crate::group::{Group, Members};
use crate::history::TimedRecord;
use crate::peer::UNIT;
use crate::peer::{Peer, PeerState};
use base::clock::Instant;
pub use hash::Crc32;
use metrics::{Exemplar, peer as row, process};
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};

/// The way of selecting a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BalanceMethod {
    /// Smooth weighted round robin, the default.
    #[default]
    RoundRobin,
    /// `least_conn`.
    LeastConn,
    /// `ip_hash`.
    IpHash,
    /// Hash of a key; `true`: consistent (ketama).
    Hash(bool),
    /// `random`.
    Random,
    /// `random two`: the better of two by connections or time.
    Two(Option<Time>),
    /// `least_time`.
    LeastTime {
        /// The compared time.
        time: Time,
        /// `inflight`: unanswered requests count, too.
        inflight: bool,
    },
}

/// A measured time of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Until the head of the response (`header`).
    Header,
    /// Until the end of the response (`last_byte`).
    LastByte,
}

impl BalanceMethod {
    /// Tells whether choices need [`Choice::random`].
    pub fn is_random(self) -> bool {
        matches!(self, BalanceMethod::Random | BalanceMethod::Two(_))
    }
    /// Tells whether the method also selects among backup servers; otherwise these take turns.
    pub fn takes_backups(self) -> bool {
        matches!(self, BalanceMethod::RoundRobin | BalanceMethod::LeastConn | BalanceMethod::LeastTime { .. })
    }
}

/// Misses after which random methods fall back to round robin (nginx: 20).
const MISSES_MAX: u32 = 20;

/// Servers that a request has tried. Made by [`Group::attempts`], and passed to each [`Group::choose`] of the request.
#[derive(Debug)]
pub struct Attempts {
    members: Arc<Members>,
    /// The primary servers are exhausted.
    in_backup: bool,
    tried: SmallVec<[bool; 16]>,
    asked: usize,
    /// Tries that kept connections have not used up; see [`Attempts::allow_another`].
    extra: usize,
    /// Misses of random methods, and position of a hash.
    misses: u32,
    rehash: u32,
    hash: Option<u32>,
}

impl Attempts {
    pub(crate) fn new(members: Arc<Members>) -> Attempts {
        Attempts {
            members,
            in_backup: false,
            tried: SmallVec::new(),
            asked: 0,
            extra: 0,
            misses: 0,
            rehash: 0,
            hash: None,
        }
    }
    fn has(&self, index: usize) -> bool {
        self.tried.get(index).copied().unwrap_or(false)
    }
    fn mark(&mut self, index: usize) {
        if self.tried.len() <= index {
            self.tried.resize(index + 1, false);
        }
        self.tried[index] = true;
        self.asked += 1;
    }
    /// Returns the number of servers chosen so far.
    pub fn asked(&self) -> usize {
        self.asked
    }
    /// Returns the number of servers that a request may try, each once, without those of [`Attempts::allow_another`].
    pub fn tries(&self) -> usize {
        self.members.tries()
    }
    /// Adds a try for a server that failed over a kept connection, which it may have been closing: the failure says little
    /// about the server. A single server may be tried again (nginx: `ngx_http_upstream_next`, `u->peer.cached`).
    pub fn allow_another(&mut self) {
        self.extra += 1;
    }
    /// Returns the number of tries that [`Attempts::allow_another`] has added.
    pub fn extra(&self) -> usize {
        self.extra
    }
    /// As [`Attempts::renew`], with the tries of [`Attempts::allow_another`].
    pub fn begin_round(&mut self, group: &Group) {
        *self = Attempts { extra: self.extra, ..Attempts::new(group.members()) };
    }
    /// Forgets all tries, and takes the group's present servers.
    pub fn renew(&mut self, group: &Group) {
        *self = Attempts::new(group.members());
    }
}

/// Facts that a choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// Time of the choice.
    pub now: Instant,
    /// Nonzero random number, for [`BalanceMethod::is_random`].
    pub random: u64,
    /// Key of `hash`, or address bytes for `ip_hash` (3 of IPv4, 16 of IPv6).
    pub key: &'a [u8],
    /// Server that the request is bound to (`sticky`).
    pub bound: Option<&'a [u8]>,
}

/// A server in use by one request, counted against its limits until dropped.
pub struct PeerLease {
    peer: Arc<Peer>,
    group: Arc<Group>,
    started: Instant,
    header_ms: Option<u64>,
    inflight: bool,
    /// The outcome was reported.
    over: bool,
    single: bool,
    /// Status of the response; 0: none.
    status: u16,
    /// Trace id for exemplars, once one was needed.
    trace_id: Option<[u8; 16]>,
    at_end: Option<Box<dyn FnOnce()>>,
}

impl PeerLease {
    /// Sets an action for the complete response, unless the server fails.
    pub fn at_end(&mut self, act: Box<dyn FnOnce()>) {
        self.at_end = Some(act);
    }
    /// Returns the chosen server.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }
    /// Returns the group of the server.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }
    /// Records the head of a response. `trace_id` is called if an exemplar is needed; `None`: the request cannot be one.
    pub fn answered(&mut self, status: u16, micros: u64, trace_id: Option<impl FnOnce() -> Option<[u8; 16]>>) {
        self.status = status;
        process::UPSTREAM_HEADER.note(micros);
        if let Some(zone) = self.peer.zone().map(metrics::MetricZone::here) {
            zone.up_at(row::RESPONSES, metrics::status_class(status));
            zone.count_code(status);
            let bucket = metrics::bucket_index(micros);
            zone.note_in(row::HEADER, bucket, micros);
            if let Some(trace_id) = trace_id {
                let at_ms = base::clock::unix_millis();
                if zone.wants_exemplar(row::HEADER, bucket, at_ms) {
                    self.trace_id = trace_id();
                    if let Some(trace_id) = self.trace_id {
                        zone.offer(row::HEADER, Exemplar { trace_id, micros, at_ms });
                    }
                }
            }
            self.peer.history().note(TimedRecord::Header, micros);
        }
    }
    /// Records the milliseconds until the response head (`least_time`).
    pub fn header(&mut self, ms: u64) {
        self.header_ms = Some(ms);
        if let BalanceMethod::LeastTime { time: Time::Header, .. } = self.group.method
            && self.inflight
        {
            self.peer.with_state(|s| s.header_time = crate::peer::average(s.header_time, ms));
            self.landed(ms);
        }
    }
    /// Records a connection (nginx: `notify_round_robin_peer`). `is_proof`: it clears failures.
    pub fn connected(&self, is_proof: bool) {
        if let Some(zone) = self.peer.zone() {
            let micros = base::clock::now().micros_since(self.started);
            zone.note(row::HEADER, micros);
            self.peer.history().note(TimedRecord::Connect, micros);
        }
        if is_proof && !self.single {
            self.peer.succeeded(base::clock::now());
        }
    }
    /// Counts bytes sent to the server and received from it.
    pub fn transferred(&self, sent: u64, received: u64) {
        if let Some(zone) = self.peer.zone().map(metrics::MetricZone::here) {
            zone.add(row::SENT, sent);
            zone.add(row::RECEIVED, received);
        }
    }
    /// Records the first bytes of a stream server.
    pub fn first_byte(&self) {
        if self.peer.zone().is_some() {
            self.peer.history().note(TimedRecord::FirstByte, base::clock::now().micros_since(self.started));
        }
    }
    /// Records a failure; tells whether the server is unavailable now.
    pub fn failed(&mut self, now: Instant) -> bool {
        self.over = true;
        // A single server always stays available.
        let is_out = !self.single && self.peer.failed(now);
        if let Some(zone) = self.peer.zone() {
            zone.up(row::FAILS);
            zone.add(row::UNAVAILABLE, u64::from(is_out));
        }
        is_out
    }
    /// Records that another server is tried without blame (403, 404).
    pub fn passed_on(&mut self) {
        self.over = true;
        self.peer.succeeded(base::clock::now());
    }
    fn landed(&mut self, ms: u64) {
        self.inflight = false;
        let now = base::clock::now();
        self.peer.with_state(|s| {
            if s.inflight <= 1 {
                s.inflight_last = 0;
            } else {
                let flown = now.millis_since(s.inflight_changed).saturating_mul(s.inflight);
                s.inflight_last = s.inflight_last.saturating_add(flown).saturating_sub(ms);
                s.inflight_changed = now;
            }
            s.inflight = s.inflight.saturating_sub(1);
        });
    }
}

impl Drop for PeerLease {
    fn drop(&mut self) {
        let now = base::clock::now();
        let whole_ms = now.millis_since(self.started);
        if self.status > 0 {
            process::UPSTREAM_RESPONSE.note(now.micros_since(self.started));
        }
        if let Some(zone) = self.peer.zone().map(metrics::MetricZone::here) {
            zone.down(row::ACTIVE);
            let micros = now.micros_since(self.started);
            zone.note(row::RESPONSE, micros);
            if let Some(trace_id) = self.trace_id {
                let exemplar = Exemplar { trace_id, micros, at_ms: base::clock::unix_millis() };
                zone.offer(row::RESPONSE, exemplar);
            }
            if !self.over {
                self.peer.history().note(TimedRecord::Response, micros);
            }
        }
        if self.inflight {
            self.landed(whole_ms);
        }
        if !self.over {
            if let Some(act) = self.at_end.take() {
                act();
            }
            if !self.single {
                self.peer.succeeded(now);
            }
            if let (Some(header_ms), true) = (self.header_ms, self.group.method.keeps_times()) {
                let counted =
                    matches!(self.group.method, BalanceMethod::LeastTime { time: Time::Header, inflight: true });
                self.peer.with_state(|s| {
                    s.response_time = crate::peer::average(s.response_time, whole_ms);
                    if !counted {
                        s.header_time = crate::peer::average(s.header_time, header_ms);
                    }
                });
            }
        }
        self.peer.leave();
        if self.group.extras.queue.is_some() {
            self.group.freed.notify_one();
        }
    }
}

impl BalanceMethod {
    fn keeps_times(self) -> bool {
        matches!(self, BalanceMethod::LeastTime { .. } | BalanceMethod::Two(Some(_)))
    }
}

impl Group {
    /// Next server; `None` if none is left.
    pub fn choose(self: &Arc<Self>, choice: &Choice<'_>, attempts: &mut Attempts) -> Option<PeerLease> {
        let members = attempts.members.clone();
        // Only connection limits need exclusion between threads.
        let is_limited = members.all().any(|peer| peer.spec.max_conns > 0);
        let _one_at_a_time = is_limited.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        loop {
            let list = if attempts.in_backup { &members.backup } else { &members.primary };
            if let Some(index) = self.pick(list, &members, choice, attempts) {
                attempts.mark(index);
                return Some(self.taken(&list[index], members.single(), choice.now));
            }
            if attempts.in_backup || members.backup.is_empty() {
                return None;
            }
            attempts.in_backup = true;
            attempts.tried.clear();
        }
    }

    fn pick(
        &self,
        list: &[Arc<Peer>],
        members: &Members,
        choice: &Choice<'_>,
        attempts: &mut Attempts,
    ) -> Option<usize> {
        let bound = bound(list, choice, attempts);
        if members.single() {
            // Used even while failing: an error is no better than a try.
            let peer = list.first()?;
            let asked = !peer.spec.down && !peer.spec.drain && !peer.full() && peer.sound(choice.now);
            return bound.or((asked && attempts.asked <= attempts.extra).then_some(0));
        }
        let keyless = matches!(self.method, BalanceMethod::Hash(_)) && choice.key.is_empty();
        if attempts.misses > MISSES_MAX || keyless || (attempts.in_backup && !self.method.takes_backups()) {
            return self.round_robin(list, choice, attempts, bound);
        }
        match self.method {
            BalanceMethod::RoundRobin => self.round_robin(list, choice, attempts, bound),
            _ if bound.is_some() => bound,
            BalanceMethod::LeastConn => least::fewest_connections(self, list, choice, attempts),
            BalanceMethod::LeastTime { time, .. } => least::least_time(self, list, choice, attempts, time),
            BalanceMethod::IpHash => hash::by_address(self, list, choice, attempts),
            BalanceMethod::Hash(false) => hash::by_key(self, list, choice, attempts),
            BalanceMethod::Hash(true) => hash::choose_consistent(self, list, members, choice, attempts),
            BalanceMethod::Random => random::choose_one(self, list, choice, attempts),
            BalanceMethod::Two(time) => random::choose_two(self, list, choice, attempts, time),
        }
    }

    /// Smooth weighted round robin: every server gains its weight; the richest is selected and pays the sum.
    fn round_robin(
        &self,
        list: &[Arc<Peer>],
        choice: &Choice<'_>,
        attempts: &Attempts,
        bound: Option<usize>,
    ) -> Option<usize> {
        if let Some(index) = bound {
            // Bound requests count as turns, up to a debt of one round.
            let all: i64 = list.iter().map(|p| i64::from(p.spec.weight)).sum();
            let lowest = (i64::from(list[index].spec.weight) - all) * UNIT;
            if self.rounds.with(self.extras.counted, |accounts| accounts.of(list, attempts.in_backup).get(index))
                <= lowest
            {
                return bound;
            }
        }
        self.weighted(list, choice, attempts, 0, bound, |_| true)
    }

    /// A step of round robin among some servers, starting at one.
    fn weighted(
        &self,
        list: &[Arc<Peer>],
        choice: &Choice<'_>,
        attempts: &Attempts,
        from: usize,
        bound: Option<usize>,
        among: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        self.rounds.with(self.extras.counted, |accounts| {
            let mut credits = accounts.of(list, attempts.in_backup);
            let mut best: Option<(usize, i64)> = None;
            let mut total = 0;
            for (index, peer) in list.iter().enumerate().skip(from) {
                if !usable(list, index, choice.now, attempts) || !among(index) {
                    continue;
                }
                let gain = peer.gain(choice.now);
                total += gain;
                let current = credits.add(index, gain);
                if best.is_none_or(|(_, most)| current > most) {
                    best = Some((index, current));
                }
            }
            let index = bound.or(best.map(|(index, _)| index))?;
            credits.add(index, -total);
            Some(index)
        })
    }

    fn taken(self: &Arc<Self>, peer: &Arc<Peer>, single: bool, now: Instant) -> PeerLease {
        let inflight = matches!(self.method, BalanceMethod::LeastTime { inflight: true, .. }) && !single;
        peer.enter();
        if let Some(zone) = peer.zone().map(metrics::MetricZone::here) {
            zone.up(row::REQUESTS);
            zone.rise(row::ACTIVE);
            peer.history().select();
        }
        let note = |s: &mut PeerState| {
            if now.millis_since(s.checked) > peer.spec.fail_timeout_ms {
                s.checked = now;
            }
            if inflight {
                if s.inflight > 0 {
                    let flown = now.millis_since(s.inflight_changed).saturating_mul(s.inflight);
                    s.inflight_last = s.inflight_last.saturating_add(flown);
                }
                s.inflight_changed = now;
                s.inflight += 1;
            }
        };
        if !single && (peer.is_troubled() || self.method.keeps_times()) {
            peer.with_state(note);
        }
        PeerLease {
            peer: peer.clone(),
            group: self.clone(),
            started: now,
            header_ms: None,
            inflight,
            over: false,
            single,
            status: 0,
            trace_id: None,
            at_end: None,
        }
    }
}

fn usable(list: &[Arc<Peer>], index: usize, now: Instant, attempts: &Attempts) -> bool {
    let peer = &list[index];
    !attempts.has(index) && !peer.spec.down && !peer.spec.drain && !peer.unavailable(now)
}

/// Server that the request is bound to, if available or draining.
fn bound(list: &[Arc<Peer>], choice: &Choice<'_>, attempts: &Attempts) -> Option<usize> {
    let id = choice.bound?;
    let index = list.iter().position(|peer| peer.id().as_bytes() == id)?;
    let peer = &list[index];
    let able = !attempts.has(index) && !peer.spec.down && !peer.unavailable(choice.now);
    able.then_some(index)
}

/// Server whose share of the weights contains a number.
fn by_weight(list: &[Arc<Peer>], mut number: u64) -> Option<usize> {
    list.iter().position(|peer| {
        let weight = u64::from(peer.spec.weight);
        let here = number < weight;
        number = number.saturating_sub(weight);
        here
    })
}
