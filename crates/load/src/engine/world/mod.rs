//! One world: a thread's share of a run. Owns its connections, its schedule and its records; shares nothing.
//!
//! Sends follow the plan (open loop) or the answers (closed loop); every time is taken from the plan, and how late the
//! world itself took a request up is kept apart. This file is the loop and the plan; [`connection`] is the life of a
//! connection, [`conduct`] what happens with requests and answers.

mod conduct;
mod connection;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use figures::rng::Rng;

use self::connection::Connection;
use super::failure::Failure;
use super::job::{Job, Model};
use super::profile::{Profile, Schedule, Stage};
use super::record::{Interval, Record};
use super::request::{Chooser, Prepared};
use super::timeline::{Kinds, Timeline};
use super::tls;
use super::transport::{Slot, Transport};
use crate::protocol::Protocol;

/// Requests that wait for a connection at most; further ones are counted as never sent.
pub const PENDING_MAX: usize = 1_000_000;
/// Due requests that are taken up before answers are looked at again.
const TAKEN_AT_ONCE: usize = 256;
/// Pause before a user tries again after a connection failed.
const BACKOFF: u64 = 20_000_000;
/// A request that servers did nothing about is sent again so often.
const AGAIN_MAX: u8 = 3;
/// Bytes read at once.
const READ: usize = 64 * 1024;
/// Connections that are being made at a time before a closed loop begins, and in an open loop as long as no more stand: more would
/// overrun accept queues, and handshakes of a burst would keep the server from its answers.
const MADE_AT_ONCE: usize = 128;
/// Nanoseconds after which a closed loop begins although connections are missing.
const PREPARATION_MAX: u64 = 10_000_000_000;

/// A request that is due.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// When the plan wanted it.
    planned: u64,
    request: u32,
    /// It belongs to the measured part.
    counted: bool,
    /// How often it was sent, and the server did nothing about it.
    again: u8,
}

/// A request without answer.
#[derive(Clone, Copy, Debug)]
struct Flight {
    due: Due,
    sent: u64,
    /// When the first byte of the answer came; 0 before.
    first: u64,
}

/// Where due times come from.
enum Source {
    /// From the answers.
    Answers,
    Schedule(Schedule),
    /// (time in ns, request), by time.
    List {
        at: Vec<(u64, u32)>,
        next: usize,
    },
}

/// What a world says when it is done.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Length of the measured part in nanoseconds (shorter than planned when a budget ran out) and this thread's CPU time in it.
    pub measured: u64,
    pub cpu: u64,
    /// Of that, the time in which there was nothing to do but to look.
    pub spun: u64,
    /// Time in it for which this thread could have run, but other threads had its processor.
    pub waited: u64,
    /// Latency over the time at which requests were due.
    pub timeline: Timeline,
    /// The requests of the job, told apart.
    pub kinds: Kinds,
    /// Users of a closed loop at the end, and how many of them have waited for more than half of the measured part in vain.
    pub users: u64,
    pub starved: u64,
    /// What the first TLS failure was.
    pub tls_error: Option<String>,
}

/// See the module's documentation.
pub struct World<T: Transport, P: Protocol> {
    net: T,
    job: Arc<Job>,
    requests: Arc<[Prepared]>,
    chooser: Chooser,
    shared: P::Shared,
    tls: Option<tls::Client>,
    connections: Vec<Connection<P>>,
    /// Connections without work, longest idle first; entries of a former life (epoch) are skipped.
    idle: VecDeque<(Slot, u32)>,
    /// Slots without connection (open loop).
    free: Vec<Slot>,
    pending: VecDeque<Due>,
    source: Source,
    /// Users and sessions who think or back off, by time; with the epoch of the slot's connection then.
    wake: BinaryHeap<Reverse<(u64, Slot, u32)>>,
    profile: Profile,
    place: (usize, usize),
    users: usize,
    rng: Rng,
    sequence: u64,
    budget: u64,
    in_flight: usize,
    /// Requests in [`Connection::waiting`] of all connections.
    waiting: usize,
    origin: u64,
    from: u64,
    to: u64,
    record: Record,
    timeline: Timeline,
    kinds: Kinds,
    interval: u64,
    index: usize,
    sink: Box<dyn FnMut(Interval) + Send>,
    stop: Arc<AtomicBool>,
    buffer: Vec<u8>,
    plain: Vec<u8>,
    /// Connections whose cores have something to send.
    dirty: Vec<Slot>,
    /// The connection that was begun last in an open loop, and its epoch.
    opening: (Slot, u32),
    /// Connections that were begun for a request of an open loop, which the first connection that is free may take (HTTP/1).
    openings: VecDeque<(Slot, u32)>,
    /// Connections that stand, and those that are being made.
    open: usize,
    making: usize,
    tls_error: Option<String>,
}

impl<T: Transport, P: Protocol> World<T, P> {
    /// World number `world` of the job's threads on this machine. Intervals go to `sink`.
    ///
    /// # Errors
    /// A sentence when a request or the TLS configuration cannot be used.
    pub fn new(
        net: T,
        job: Arc<Job>,
        requests: Arc<[Prepared]>,
        world: usize,
        sink: Box<dyn FnMut(Interval) + Send>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let (number, of) = job.world_number(world);
        let mut profile = job.profile.clone();
        if job.warmup > 0.0 {
            let value = profile.value(0.0);
            profile.stages.insert(0, Stage { from: value, to: value, seconds: job.warmup });
        }
        let seed = job.seed.wrapping_add(number as u64);
        let source = match &job.model {
            Model::Closed { .. } => Source::Answers,
            Model::Open { arrivals } | Model::Connections { arrivals, .. } => {
                Source::Schedule(Schedule::new(profile.clone(), *arrivals, number, of, job.seed))
            }
            Model::Replay { at } => {
                let mine = at.iter().skip(number).step_by(of);
                Source::List { at: mine.map(|(t, r)| (((t + job.warmup) * 1e9) as u64, *r)).collect(), next: 0 }
            }
        };
        let slots = match job.model {
            Model::Closed { .. } => part(profile.highest().ceil() as usize, number, of),
            _ => part(job.connections_max, number, of).max(1),
        };
        let tls = match &job.target.tls {
            Some(spec) => Some(tls::client(spec, &job.target.host, &[P::NAME])?),
            None => None,
        };
        let shared = P::shared(&job, &requests);
        Ok(World {
            net,
            chooser: Chooser::new(job.requests.iter().map(|r| r.weight)),
            requests,
            tls,
            connections: (0..slots).map(|_| Connection::new(&shared)).collect(),
            shared,
            idle: VecDeque::new(),
            free: (0..slots).rev().collect(),
            pending: VecDeque::new(),
            source,
            wake: BinaryHeap::new(),
            profile,
            place: (number, of),
            users: 0,
            rng: Rng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
            sequence: number as u64,
            budget: job.budget.map_or(u64::MAX, |b| part(b as usize, number, of) as u64),
            in_flight: 0,
            waiting: 0,
            origin: 0,
            from: 0,
            to: 0,
            record: Record::default(),
            timeline: Timeline::default(),
            kinds: Kinds::new(job.requests.len()),
            interval: (job.interval.max(0.001) * 1e9) as u64,
            index: 0,
            sink,
            stop,
            buffer: vec![0; READ],
            plain: Vec::new(),
            dirty: Vec::new(),
            opening: (usize::MAX, 0),
            openings: VecDeque::new(),
            open: 0,
            making: 0,
            tls_error: None,
            job,
        })
    }

    /// Makes the connections of the users who are there at the beginning of a closed loop, so that thousands of handshakes are not
    /// a part of what is measured. What cannot be made is tried again, and counted, in the run.
    pub fn prepare(&mut self) {
        if !matches!(self.source, Source::Answers) || self.job.calls == 1 {
            return;
        }
        let users = part(self.profile.value(0.0).round() as usize, self.place.0, self.place.1);
        let wanted = users.min(self.connections.len()).min(self.budget.min(usize::MAX as u64) as usize);
        let limit = self.net.now() + ((self.job.connect_timeout * 1e9) as u64).min(PREPARATION_MAX);
        let (mut begun, mut ready) = (0, Vec::with_capacity(256));
        loop {
            let now = self.net.now();
            let making = self.connections[..begun].iter().filter(|c| c.is_live() && !c.is_ready()).count();
            if (begun == wanted && making == 0) || now >= limit || self.stop.load(Ordering::Relaxed) {
                break;
            }
            let next = wanted.min(begun + MADE_AT_ONCE.saturating_sub(making));
            for slot in begun..next {
                self.connect(slot, now);
            }
            begun = next.max(begun);
            self.check_timeouts(now);
            self.net.wait(limit.min(now + 20_000_000), &mut ready);
            for event in &ready {
                self.handle(*event);
            }
        }
        // Users come by themselves.
        self.wake.clear();
    }

    /// Runs to the end: warm-up, the measured part, and waiting for what is in flight.
    pub fn run(mut self) -> Done {
        self.origin = self.net.now();
        self.from = self.origin + (self.job.warmup * 1e9) as u64;
        self.to = self.origin + (self.profile.seconds() * 1e9) as u64;
        let tick = ((self.job.timeout.min(self.job.connect_timeout) * 1e8) as u64).clamp(1_000_000, 50_000_000);
        let ramping = matches!(self.source, Source::Answers);
        let (mut next_tick, mut warm) = (self.origin, self.from == self.origin);
        let (mut cpu, mut spun, mut waited) = (self.net.cpu(), self.net.spun(), self.net.waited());
        let mut ready = Vec::with_capacity(256);
        self.admit_users(self.origin);
        loop {
            let mut now = self.net.now();
            if !warm && now >= self.from {
                (warm, cpu, spun, waited) = (true, self.net.cpu(), self.net.spun(), self.net.waited());
            }
            if now >= next_tick {
                next_tick = now + tick;
                self.check_timeouts(now);
                if ramping {
                    self.admit_users(now);
                }
                if self.stop.load(Ordering::Relaxed) {
                    self.to = self.to.min(now);
                }
            }
            self.turn_interval(now);
            if now >= self.to || self.budget_is_used_up() {
                break;
            }
            self.take_up(now);
            let deadline = self.next_time().min(next_tick).min(self.to).min(self.boundary());
            self.net.wait(deadline, &mut ready);
            for event in &ready {
                self.handle(*event);
                // A long batch must not delay what has become due meanwhile.
                if self.next_time() != u64::MAX {
                    now = self.net.now();
                    self.take_up(now);
                }
            }
        }
        // What became due since the last look is as due as the rest.
        if !self.stop.load(Ordering::Relaxed) {
            self.take_up(self.net.now());
        }
        let ended = self.net.now().min(self.to);
        let mut done = Done {
            measured: ended.saturating_sub(self.from),
            cpu: self.net.cpu() - cpu,
            spun: self.net.spun() - spun,
            waited: self.net.waited().saturating_sub(waited),
            timeline: Timeline::default(),
            kinds: Kinds::default(),
            users: self.users as u64,
            starved: self.starved(ended),
            tls_error: None,
        };
        self.to = ended;
        self.drain();
        done.tls_error = self.tls_error.take();
        done.timeline = std::mem::take(&mut self.timeline);
        done.kinds = std::mem::take(&mut self.kinds);
        done
    }

    /// Users whose answer has not come for more than half of the measured part, and who had none in it before.
    fn starved(&self, ended: u64) -> u64 {
        let half = ended.saturating_sub(self.from) / 2;
        let waits = |connection: &&Connection<P>| {
            let flight = connection.flights.front().map(|f| f.due.planned);
            let oldest = flight.or(connection.waiting.front().map(|d| d.planned));
            !connection.served && oldest.is_some_and(|planned| ended - planned > half)
        };
        self.connections[..self.users].iter().filter(waits).count() as u64
    }

    /// Waits for the answers that are still owed, also to requests whose connection is being made, then writes the last record.
    fn drain(&mut self) {
        let limit = self.net.now() + (self.job.timeout * 1e9) as u64 + 100_000_000;
        let mut ready = Vec::new();
        while self.in_flight + self.waiting > 0 {
            let now = self.net.now();
            if now >= limit || self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.check_timeouts(now);
            self.net.wait(limit.min(now + 20_000_000), &mut ready);
            for event in std::mem::take(&mut ready) {
                self.handle(event);
            }
        }
        let now = self.net.now();
        for slot in 0..self.connections.len() {
            let connection = &mut self.connections[slot];
            let flights: Vec<Flight> = connection.flights.drain(..).collect();
            let waiting: Vec<Due> = connection.waiting.drain(..).collect();
            flights.into_iter().for_each(|f| self.fail(f.due, Some(f.sent), Failure::Unfinished, now));
            waiting.into_iter().for_each(|d| self.fail(d, None, Failure::Unsent, now));
            if self.connections[slot].is_live() {
                self.net.close(slot, self.job.reset);
            }
        }
        for due in std::mem::take(&mut self.pending) {
            self.fail(due, None, Failure::Unsent, now);
        }
        if let (Source::Schedule(schedule), true) = (&self.source, self.budget > 0) {
            // Due as well, but there was not even time to take them up.
            let left = schedule.left(self.to - self.origin);
            self.record.due += left;
            self.record.failures.add_many(Failure::Unsent, left);
        }
        self.flush();
    }

    /// Whether all requests of a budget have their answers.
    fn budget_is_used_up(&self) -> bool {
        let owed = self.in_flight + self.waiting + self.pending.len();
        self.budget == 0 && owed == 0 && self.wake.is_empty()
    }

    /// Takes up everything that is due: planned requests, users whose pause is over.
    #[inline]
    fn plan(&mut self, mut now: u64) {
        self.serve_pending(now);
        while let Some(Reverse((at, slot, epoch))) = self.wake.peek().copied() {
            if at > now {
                break;
            }
            self.wake.pop();
            match self.source {
                Source::Answers => self.fill(slot, at, now),
                _ if self.connections[slot].epoch == epoch => self.call_again(slot, at, now),
                // The server closed the connection in the pause: the session is over.
                _ => {}
            }
        }
        // At an impossible rate something is always due; answers must have their turn too.
        for _ in 0..TAKEN_AT_ONCE {
            let (planned, request) = match &mut self.source {
                Source::Answers => return,
                Source::Schedule(s) => match s.peek() {
                    Some(t) if self.origin + t <= now => {
                        s.take();
                        // A session begins with its first step.
                        let request = if self.job.session { 0 } else { self.chooser.choose(&mut self.rng) };
                        (self.origin + t, request)
                    }
                    _ => return,
                },
                Source::List { at, next } => match at.get(*next) {
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
            if counted {
                self.budget -= 1;
                self.record.due += 1;
                self.record.lag.record(now - planned);
            }
            self.serve(Due { planned, request, counted, again: 0 }, now);
            // Sending takes time, which makes the next one late: that has to show.
            now = self.net.now();
        }
    }

    /// [`World::plan`], and what that has to send.
    #[inline]
    fn take_up(&mut self, now: u64) {
        self.plan(now);
        self.flush_output();
    }

    /// When something becomes due by the clock; `u64::MAX` for never.
    #[inline]
    fn next_time(&self) -> u64 {
        let planned = match &self.source {
            // Without budget nothing more is taken up, however long it has been due.
            _ if self.budget == 0 => None,
            Source::Answers => None,
            Source::Schedule(s) => s.peek(),
            Source::List { at, next } => at.get(*next).map(|x| x.0),
        };
        let planned = planned.map_or(u64::MAX, |t| self.origin + t);
        self.wake.peek().map_or(planned, |w| planned.min(w.0.0))
    }

    /// Closed loop: starts or stops users so that as many are active as the profile wants.
    fn admit_users(&mut self, now: u64) {
        if !matches!(self.source, Source::Answers) {
            return;
        }
        let value = self.profile.value((now - self.origin) as f64 * 1e-9);
        let wanted = part(value.round() as usize, self.place.0, self.place.1).min(self.connections.len());
        for slot in self.users..wanted {
            let connection = &mut self.connections[slot];
            if !std::mem::replace(&mut connection.active, true) && connection.flights.is_empty() {
                self.fill(slot, now, now);
            }
        }
        self.flush_output();
        for slot in wanted..self.users {
            self.connections[slot].active = false;
            if self.connections[slot].is_idle() {
                self.close(slot);
            }
        }
        self.users = wanted;
    }

    fn boundary(&self) -> u64 {
        self.from + (self.index as u64 + 1) * self.interval
    }

    /// Hands a finished interval over. The last one stays open for late answers.
    #[inline]
    fn turn_interval(&mut self, now: u64) {
        while now >= self.boundary() && self.boundary() < self.to {
            self.flush();
            self.index += 1;
        }
    }

    fn flush(&mut self) {
        let mut record = std::mem::take(&mut self.record);
        record.connect_cost = self.net.connect_cost();
        let interval =
            Interval { world: self.place.0, index: self.index, record, open: self.open, pending: self.pending.len() };
        (self.sink)(interval);
    }
}

/// How many of `total` things fall to number `number` of `of`.
fn part(total: usize, number: usize, of: usize) -> usize {
    (total + of - 1 - number.min(of - 1)) / of
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_add_up() {
        for total in [0, 1, 7, 100] {
            for of in 1..9 {
                assert_eq!((0..of).map(|n| part(total, n, of)).sum::<usize>(), total);
            }
        }
    }
}
