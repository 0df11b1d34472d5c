//! One world: a thread's share of a run, with its own connections, schedule and records.
//! This file is the loop; [`schedule`] is the plan, [`connection`] the life of a connection ([`transfer`]: its bytes, [`datagrams`]: over UDP), [`conduct`]
//! that of requests ([`failing`]: of failed ones), [`groups`] that of users with several connections, [`ending`] the end. All times count from the plan; the
//! world's own lateness is recorded separately.

mod conduct;
mod connection;
mod datagrams;
mod ending;
mod exchange;
mod failing;
mod groups;
mod redirects;
mod schedule;
mod transfer;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use figures::rng::Rng;

use self::connection::Connection;
use self::groups::{StepGroups, UserProgress};
use super::chooser::Chooser;
use super::failure::LoadFailure;
use super::feed::RowFeed;
use super::job::{Job, Model};
use super::profile::{Profile, Schedule, Stage};
use super::record::{Interval, LoadRecord};
use super::redirect::FixedRequests;
use super::request::PreparedRequest;
use super::session::SessionVariables;
use super::timeline::{Kinds, Timeline};
use super::tls;
use super::transport::{Transport, TransportSlot};
use crate::protocol::ClientProtocol;

/// Waiting requests of all worlds on this machine. Beyond, due requests stay in the schedule, which costs nothing,
/// until there is room.
pub const PENDING_MAX: usize = 1_000_000;
/// Due requests taken up before answers are read again.
const TAKEN_AT_ONCE: usize = 256;
/// Nanoseconds until a user retries after a failed connection.
const BACKOFF: u64 = 20_000_000;
/// Retries of an unprocessed request.
const AGAIN_MAX: u8 = 3;
const READ: usize = 64 * 1024;
/// Simultaneous connects before a closed loop, and in an open loop beyond the established ones: more would overrun
/// accept queues and occupy the server with handshakes.
const MADE_AT_ONCE: usize = 128;
/// Nanoseconds until a closed loop starts despite missing connections.
const PREPARATION_MAX: u64 = 10_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Due {
    planned: u64,
    request: u32,
    counted: bool,
    again: u8,
    /// Row of data, and number of the fixed request (0: none).
    row: u32,
    fixed: u32,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    due: Due,
    sent: u64,
    /// Arrival of the first byte; 0 before.
    first: u64,
}

impl Due {
    fn new(planned: u64, request: u32, counted: bool, row: u32) -> Due {
        Due { planned, request, counted, again: 0, row, fixed: 0 }
    }
}

enum WorldSource {
    Answers,
    Schedule(Schedule),
    /// (time in ns, request), ascending.
    List {
        at: Vec<(u64, u32)>,
        next: usize,
    },
}

#[derive(Clone, Debug, Default)]
pub struct WorldResult {
    /// Nanoseconds of the measured part (shorter when a budget ran out), and this thread's CPU time in it.
    pub measured: u64,
    pub cpu: u64,
    /// Part of the CPU time spent polling in vain.
    pub spun: u64,
    /// Time that this thread waited for an occupied processor.
    pub waited: u64,
    pub timeline: Timeline,
    pub kinds: Kinds,
    /// Nanoseconds of the measured part until the last request became due by the schedule; 0 without a schedule.
    pub last_due: u64,
    /// Users of a closed loop at the end, and those who waited in vain for over half of the measured part.
    pub users: u64,
    pub starved: u64,
    /// Nanoseconds from the start of the measured part to the last answer, and to the last request that failed without
    /// one; 0 for none.
    pub last_answer: u64,
    pub last_failure: u64,
    pub tls_error: Option<String>,
    /// Reason of a refused first connection, which ended the run.
    pub refused: Option<String>,
    /// Reason of the first redirect that was not followed.
    pub answer_error: Option<String>,
    /// Reason of the first malformed response.
    pub malformed: Option<String>,
    /// The rows of data were used up, which ended the load.
    pub used_up: bool,
}

/// State of first connections, shared by the worlds of a run.
#[derive(Clone, Debug, Default)]
pub struct First {
    established: Arc<AtomicBool>,
    refused: Arc<AtomicBool>,
}

pub struct LoadWorld<T: Transport, P: ClientProtocol> {
    net: T,
    job: Arc<Job>,
    requests: Arc<[PreparedRequest]>,
    chooser: Chooser,
    shared: P::Shared,
    tls: Option<tls::ClientTls>,
    connections: Vec<Connection<P>>,
    /// Idle connections, longest first; stale epochs are skipped.
    idle: VecDeque<(TransportSlot, u32)>,
    free: Vec<TransportSlot>,
    pending: VecDeque<Due>,
    /// This world's part of [`PENDING_MAX`].
    pending_max: usize,
    /// When `pending` was last seen full: later requests were not taken up.
    full_at: u64,
    source: WorldSource,
    /// Pausing users and sessions by time, with their connection's epoch.
    wake: BinaryHeap<Reverse<(u64, TransportSlot, u32)>>,
    profile: Profile,
    place: (usize, usize),
    users: usize,
    /// Connections of a user, in neighbouring slots.
    lanes: usize,
    /// Steps that are sent at the same time, and the places of the users; without such steps empty.
    groups: Option<StepGroups>,
    progress: Vec<UserProgress>,
    rng: Rng,
    sequence: u64,
    budget: u64,
    last_due: u64,
    last_answer: u64,
    last_failure: u64,
    in_flight: usize,
    waiting: usize,
    origin: u64,
    from: u64,
    to: u64,
    record: LoadRecord,
    timeline: Timeline,
    kinds: Kinds,
    interval: u64,
    index: usize,
    sink: Box<dyn FnMut(Interval) + Send>,
    stop: Arc<AtomicBool>,
    buffer: Vec<u8>,
    plain: Vec<u8>,
    /// Connections with output in their cores.
    dirty: Vec<TransportSlot>,
    /// Timers of datagram protocols, with their connection's epoch.
    timers: BinaryHeap<Reverse<(u64, TransportSlot, u32)>>,
    /// Latest connection of an open loop, with its epoch.
    opening: (TransportSlot, u32),
    /// Connections made for requests of an open loop, which any free connection may take (HTTP/1).
    openings: VecDeque<(TransportSlot, u32)>,
    open: usize,
    making: usize,
    tls_error: Option<String>,
    first: First,
    /// An own connection was established.
    established: bool,
    /// Class and reason of the refusal that ended the run.
    refused: Option<(LoadFailure, String)>,
    /// Requests that may be sent again as they were: redirected ones, and those of users with cookies.
    fixed: FixedRequests,
    answer_error: Option<String>,
    malformed: Option<String>,
    feed: Option<RowFeed>,
    used_up: bool,
    /// CONNECT request for the proxy.
    tunnel: Option<Arc<[u8]>>,
    /// Seconds since 1970 at time 0.
    epoch: u64,
}

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    /// World `world` of the job's threads on this machine, which takes rows of data from `feed`; intervals go to `sink`.
    /// Fails on unusable requests or TLS settings.
    pub fn new(
        net: T,
        job: Arc<Job>,
        requests: Arc<[PreparedRequest]>,
        world: usize,
        feed: Option<RowFeed>,
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
            Model::Closed { .. } => WorldSource::Answers,
            Model::Open { arrivals } | Model::Connections { arrivals, .. } => {
                WorldSource::Schedule(Schedule::new(profile.clone(), *arrivals, number, of, job.seed))
            }
            Model::Replay { at } => {
                let mine = at.iter().skip(number).step_by(of);
                WorldSource::List { at: mine.map(|(t, r)| (((t + job.warmup) * 1e9) as u64, *r)).collect(), next: 0 }
            }
        };
        let budget = |b: u64| b.min(usize::MAX as u64) as usize;
        let (slots, budget) = match job.model {
            Model::Closed { .. } => {
                let users = profile.highest().ceil() as usize;
                (part(users, number, of), job.budget.map(|b| share(budget(b), users, number, of)))
            }
            _ => (part(job.connections_max, number, of).max(1), job.budget.map(|b| part(budget(b), number, of))),
        };
        // A world without users takes no row, and must not wait for the end of the run either.
        let budget = if slots == 0 && feed.as_ref().is_some_and(RowFeed::is_once) { Some(0) } else { budget };
        let tls = match &job.target.tls {
            Some(spec) if !P::DATAGRAMS => Some(tls::client_config(spec, &job.target.host, &[P::NAME])?),
            _ => None,
        };
        let shared = P::shared(&job, &requests)?;
        let is_grouped = job.session && matches!(job.model, Model::Closed { .. });
        let groups = if is_grouped { StepGroups::find(&requests) } else { None };
        let users = if groups.is_some() { slots } else { 0 };
        let lanes = if groups.is_some() && !P::MULTIPLEXED { job.connections_each.max(1) } else { 1 };
        let slots = slots * lanes;
        Ok(LoadWorld {
            net,
            chooser: Chooser::new(job.requests.iter().map(|r| r.weight)),
            requests,
            tls,
            connections: (0..slots)
                .map(|_| {
                    Connection::new(&shared, job.data.as_ref().map(|data| SessionVariables::with_data(&data.rows)))
                })
                .collect(),
            shared,
            idle: VecDeque::new(),
            free: (0..slots).rev().collect(),
            pending: VecDeque::new(),
            pending_max: (PENDING_MAX / job.threads.max(1)).max(1),
            full_at: 0,
            source,
            wake: BinaryHeap::new(),
            profile,
            place: (number, of),
            users: 0,
            lanes,
            groups,
            progress: vec![UserProgress::default(); users],
            rng: Rng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
            sequence: number as u64,
            budget: budget.map_or(u64::MAX, |b| b as u64),
            last_due: 0,
            last_answer: 0,
            last_failure: 0,
            in_flight: 0,
            waiting: 0,
            origin: 0,
            from: 0,
            to: 0,
            record: LoadRecord::default(),
            timeline: Timeline::default(),
            kinds: Kinds::new(job.requests.len()),
            interval: (job.interval.max(0.001) * 1e9) as u64,
            index: 0,
            sink,
            stop,
            buffer: vec![0; READ],
            plain: Vec::new(),
            dirty: Vec::new(),
            timers: BinaryHeap::new(),
            opening: (usize::MAX, 0),
            openings: VecDeque::new(),
            open: 0,
            making: 0,
            tls_error: None,
            first: First::default(),
            established: false,
            refused: None,
            fixed: FixedRequests::default(),
            answer_error: None,
            malformed: None,
            feed,
            used_up: false,
            tunnel: exchange::tunnel_request(&job.target),
            epoch: std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            job,
        })
    }

    /// Shares the state of first connections with the other worlds of the run.
    pub fn share_first(&mut self, first: First) {
        self.first = first;
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.first.refused.load(Ordering::Relaxed)
    }

    /// Ends the run at a refusal of its first connection.
    fn refuse(&mut self, class: LoadFailure) {
        let matters = self.job.end_if_refused && matches!(class, LoadFailure::ConnectRefused | LoadFailure::Connect);
        if !matters || self.first.established.load(Ordering::Relaxed) {
            return;
        }
        if let Some(why) = self.net.refusal() {
            self.refused.get_or_insert((class, why));
            self.first.refused.store(true, Ordering::Relaxed);
        }
    }

    /// Runs warm-up and measured part, then waits for requests in flight.
    pub fn run(mut self) -> WorldResult {
        self.origin = self.net.now();
        self.from = self.origin + (self.job.warmup * 1e9) as u64;
        self.to = self.origin + (self.profile.seconds() * 1e9) as u64;
        let tick = ((self.job.timeout.min(self.job.connect_timeout) * 1e8) as u64).clamp(1_000_000, 50_000_000);
        let ramping = matches!(self.source, WorldSource::Answers);
        let (mut next_tick, mut warm) = (self.origin, self.from == self.origin);
        let (mut cpu, mut spun, mut waited) = (self.net.cpu(), self.net.spun(), self.net.waited());
        let mut ready = Vec::with_capacity(256);
        if !self.is_stopped() {
            self.admit_users(self.origin);
        }
        loop {
            let mut now = self.net.now();
            if !warm && now >= self.from {
                (warm, cpu, spun, waited) = (true, self.net.cpu(), self.net.spun(), self.net.waited());
            }
            if now >= next_tick || self.refused.is_some() {
                next_tick = now + tick;
                self.check_timeouts(now);
                if self.is_stopped() {
                    self.to = self.to.min(now);
                } else if ramping {
                    self.admit_users(now);
                    self.end_without_rows();
                }
            }
            self.turn_interval(now);
            if now >= self.to || self.budget_is_used_up() {
                break;
            }
            self.take_up(now);
            let deadline = self.next_time().min(self.next_timer()).min(next_tick).min(self.to).min(self.boundary());
            self.net.wait(deadline, &mut ready);
            for event in &ready {
                self.handle(*event);
                // A long batch must not delay newly due requests.
                if self.next_time() != u64::MAX {
                    now = self.net.now();
                    self.take_up(now);
                }
            }
        }
        if !self.is_stopped() {
            self.take_up(self.net.now());
        }
        let ended = self.net.now().min(self.to);
        let mut done = WorldResult {
            measured: ended.saturating_sub(self.from),
            cpu: self.net.cpu() - cpu,
            spun: self.net.spun() - spun,
            waited: self.net.waited().saturating_sub(waited),
            timeline: Timeline::default(),
            kinds: Kinds::default(),
            last_due: 0,
            users: self.users as u64,
            starved: self.starved(ended),
            last_answer: 0,
            last_failure: 0,
            tls_error: None,
            refused: None,
            answer_error: None,
            malformed: None,
            used_up: false,
        };
        self.to = ended;
        self.drain();
        done.last_due = self.last_due;
        done.last_answer = self.last_answer.saturating_sub(self.from);
        done.last_failure = self.last_failure.saturating_sub(self.from);
        done.tls_error = self.tls_error.take();
        done.refused = self.refused.take().map(|(_, why)| why);
        done.answer_error = self.answer_error.take();
        done.malformed = self.malformed.take();
        done.used_up = self.used_up;
        done.timeline = std::mem::take(&mut self.timeline);
        done.kinds = std::mem::take(&mut self.kinds);
        done
    }
}

/// Part `number` of a whole that is dealt to `of` worlds.
pub(super) fn part(total: usize, number: usize, of: usize) -> usize {
    (total + of - 1 - number.min(of - 1)) / of
}

/// A world's part of a closed loop's requests, in proportion to its users: a world without a user gets none, because it
/// could not send them.
fn share(total: usize, users: usize, number: usize, of: usize) -> usize {
    let before: usize = (0..number).map(|world| part(users, world, of)).sum();
    let up_to = |users_before: usize| (total as u128 * users_before as u128 / users.max(1) as u128) as usize;
    up_to(before + part(users, number, of)) - up_to(before)
}

#[cfg(test)]
mod tests {
    use super::{part, share};

    #[test]
    fn parts_add_up() {
        for total in [0, 1, 7, 100] {
            for of in 1..9 {
                assert_eq!((0..of).map(|n| part(total, n, of)).sum::<usize>(), total);
                for users in 1..9 {
                    let shares: Vec<usize> = (0..of).map(|n| share(total, users, n, of)).collect();
                    assert_eq!(shares.iter().sum::<usize>(), total);
                    assert!(
                        (0..of).all(|n| part(users, n, of) > 0 || shares[n] == 0),
                        "{users} users, {of}: {shares:?}"
                    );
                }
            }
        }
    }
}
