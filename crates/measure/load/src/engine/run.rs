//! Runs a job on this machine: one thread per world; merges intervals into moments and an outcome.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, OnceLock, mpsc};
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::epoll::Epoll;
use super::feed::RowFeed;
use super::grpc::{GrpcJob, MessageForm};
use super::job::Job;
use super::ports::Ports;
use super::record::{Interval, LoadRecord};
use super::request::PreparedRequest;
use super::servers::server_jobs;
use super::timeline::{Kinds, Timeline};
use super::world::{First, LoadWorld, WorldResult, part};
use crate::protocol::ClientProtocol;
use crate::protocol::h1::H1;
use crate::protocol::h2::H2;
use crate::protocol::h3::H3;
use crate::protocol::ws::Ws;

/// Start and stop signals between the caller and a run.
#[derive(Clone, Debug, Default)]
pub struct RunControl {
    /// Set by the caller to end early, in good order.
    pub stop: Arc<AtomicBool>,
    /// Set by the run when its warm-up begins, after a closed loop has connected.
    pub began: Arc<OnceLock<Instant>>,
}

impl RunControl {
    pub fn until(stop: Arc<AtomicBool>) -> RunControl {
        RunControl { stop, began: Arc::default() }
    }
}

#[derive(Clone, Debug)]
pub struct Moment {
    /// End of the interval in seconds from the measured start.
    pub at: f64,
    pub seconds: f64,
    /// Settled; after the run only the counts remain.
    pub record: LoadRecord,
    pub open: usize,
    pub pending: usize,
}

#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    pub total: LoadRecord,
    pub moments: Vec<Moment>,
    pub seconds: f64,
    /// Share of the measured time that each client thread was on a processor.
    pub busy: Vec<f64>,
    /// CPU seconds of all client threads in the measured part.
    pub client_cpu: f64,
    /// Share of the measured time that each client thread waited for an occupied processor.
    pub waited: Vec<f64>,
    /// Latency by due time, in intervals of `interval` seconds.
    pub timeline: Timeline,
    pub kinds: Kinds,
    pub interval: f64,
    pub ports: u64,
    /// Seconds of the measured part in which requests became due, if a number of requests limits an open loop.
    pub scheduled: Option<f64>,
    /// Users of a closed loop, and those who waited in vain for over half of the run.
    pub users: u64,
    pub starved: u64,
    /// Seconds from the start of the measured part to the last answer, and to the last request that failed without one;
    /// 0 for none. Both may be after the end.
    pub last_answer: f64,
    pub last_failure: f64,
    pub tls_error: Option<String>,
    /// Reason of a refused first connection, which ended the run.
    pub refused: Option<String>,
    /// Reason of the first redirect that was not followed.
    pub answer_error: Option<String>,
    /// Reason of the first malformed response.
    pub malformed: Option<String>,
    /// Threads that found the rows of data used up, and rows to be used once that no request took.
    pub used_up: u64,
    pub rows_left: u64,
    /// Parts of several machines, in their order; empty for this one.
    pub machines: Vec<MachinePart>,
}

/// One machine's part of a run of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachinePart {
    pub name: String,
    /// Answers per second, and the latency from the schedule in seconds.
    pub rps: f64,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    /// Due requests, and those without a right answer.
    pub due: u64,
    pub failed: u64,
    /// Greatest busy share of a client thread.
    pub busy: f64,
}

impl MachinePart {
    /// Part of a machine whose outcome is complete.
    pub fn new(name: &str, outcome: &RunOutcome) -> MachinePart {
        let latency = &outcome.total.corrected;
        let quantile = |q: f64| (latency.count() > 0).then(|| latency.quantile(q));
        MachinePart {
            name: name.into(),
            rps: outcome.rps(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            due: outcome.total.due,
            failed: outcome.total.failures.total(),
            busy: outcome.busy.iter().copied().fold(0.0, f64::max),
        }
    }
}

impl RunOutcome {
    pub fn rps(&self) -> f64 {
        self.total.answers as f64 / self.seconds.max(1e-9)
    }
    pub fn good_rps(&self) -> f64 {
        self.total.good as f64 / self.seconds.max(1e-9)
    }

    /// Adds a simultaneous outcome of another machine. Intervals match by number, not by clock.
    pub fn merge(&mut self, other: RunOutcome) {
        self.total.merge(&other.total);
        for (i, moment) in other.moments.into_iter().enumerate() {
            match self.moments.get_mut(i) {
                Some(mine) => {
                    mine.record.merge(&moment.record);
                    mine.open += moment.open;
                    mine.pending += moment.pending;
                }
                None => self.moments.push(moment),
            }
        }
        self.seconds = self.seconds.max(other.seconds);
        self.busy.extend(other.busy);
        self.client_cpu += other.client_cpu;
        self.waited.extend(other.waited);
        self.timeline.merge(&other.timeline);
        self.kinds.merge(&other.kinds);
        self.interval = self.interval.max(other.interval);
        self.ports += other.ports;
        self.scheduled = self.scheduled.into_iter().chain(other.scheduled).reduce(f64::max);
        self.users += other.users;
        self.starved += other.starved;
        self.last_answer = self.last_answer.max(other.last_answer);
        self.last_failure = self.last_failure.max(other.last_failure);
        self.tls_error = self.tls_error.take().or(other.tls_error);
        self.refused = self.refused.take().or(other.refused);
        self.answer_error = self.answer_error.take().or(other.answer_error);
        self.malformed = self.malformed.take().or(other.malformed);
        self.used_up += other.used_up;
        self.rows_left += other.rows_left;
        self.machines.extend(other.machines);
    }
}

pub fn prepare_requests(job: &Job) -> Result<Arc<[PreparedRequest]>, String> {
    if job.requests.is_empty() {
        return Err("there is no request to send".into());
    }
    let authority = job.target.authority();
    let close = job.calls == 1;
    let pool = job.grpc.as_ref().map(GrpcJob::pool).transpose()?;
    let prepared = job.requests.iter().map(|r| {
        let mut prepared = PreparedRequest::new(r, &authority, &job.headers, close)?;
        if job.cookies {
            prepared = prepared.with_cookies(job.target.tls.is_some());
        }
        if job.follow > 0 {
            prepared = prepared.with_redirects();
        }
        if let Some(proxy) = job.target.proxy.as_ref().filter(|_| job.target.tls.is_none()) {
            prepared = prepared.through_proxy(&job.target.origin(), proxy.authorization.as_deref());
        }
        if let (Some(pool), Some(grpc), false) = (&pool, &job.grpc, r.grpc.is_empty()) {
            let form = MessageForm::find(pool, &r.path)?.compressed(grpc.gzip);
            prepared = prepared.for_grpc(form, grpc, job.timeout)?;
        }
        Ok(match (&job.http2, &job.http3) {
            (_, Some(_)) => prepared.for_http3(),
            (Some(_), _) => prepared.for_http2(job.target.tls.is_some()),
            (None, None) => prepared,
        })
    });
    prepared.collect()
}

/// Runs a job; calls `live` with each interval once all worlds have reported it. Fails on invalid requests or TLS
/// settings and on system limits.
pub fn run_job(job: &Job, control: &RunControl, mut live: impl FnMut(&Moment)) -> Result<RunOutcome, String> {
    let jobs: Vec<Arc<Job>> = server_jobs(job).into_iter().map(Arc::new).collect();
    let requests: Vec<Arc<[PreparedRequest]>> =
        jobs.iter().map(|job| prepare_requests(job)).collect::<Result<_, _>>()?;
    let places = jobs
        .iter()
        .zip(&requests)
        .flat_map(|(job, requests)| (0..job.threads.max(1)).map(move |world| (job.clone(), requests.clone(), world)));
    let places: Vec<_> = places.collect();
    let threads = places.len();
    let feed = job.data.as_ref().map(|data| RowFeed::new(data, machine_rows(&jobs, data.rows.len())));
    let (sender, intervals) = mpsc::channel::<Interval>();
    let (ready, go) = (Arc::new(Barrier::new(threads + 1)), Arc::new(AtomicBool::new(true)));
    let first = First::default();
    let mut handles = Vec::new();
    for (thread, (job, requests, world)) in places.into_iter().enumerate() {
        let sender = sender.clone();
        let (control, ready, go) = (control.clone(), ready.clone(), go.clone());
        let (first, feed) = (first.clone(), feed.clone());
        let place = WorldThread { job, requests, feed, sender, control, ready, go, first, world, thread };
        let body = move || match (&place.job.http2, &place.job.http3) {
            (_, Some(_)) => place.run::<H3>(),
            (Some(_), _) => place.run::<H2>(),
            (None, None) if place.job.websocket => place.run::<Ws>(),
            (None, None) => place.run::<H1>(),
        };
        let handle = thread::Builder::new().name(format!("load-{thread}")).spawn(body);
        handles.push(handle.map_err(|e| format!("cannot start a thread: {e}"))?);
    }
    drop(sender);
    ready.wait();
    let mut collector = IntervalCollector::new(threads, job.interval);
    for interval in intervals {
        collector.add(interval, &mut live);
    }
    let mut outcome = collector.finish(&mut live);
    outcome.ports = jobs.iter().map(|job| Ports::of(job).available).sum();
    outcome.interval = job.interval.max(0.001);
    // Worlds hand over their last interval when they have ended.
    outcome.rows_left = feed.as_ref().map_or(0, RowFeed::rows_left);
    for handle in handles {
        let done = handle.join().map_err(|_| "a client thread panicked".to_string())??;
        outcome.seconds = outcome.seconds.max(done.measured as f64 * 1e-9);
        // A run that was refused has no measured part.
        let share = |time: u64| if done.measured > 0 { time as f64 / done.measured as f64 } else { 0.0 };
        outcome.busy.push(share(done.cpu.saturating_sub(done.spun)));
        outcome.client_cpu += done.cpu as f64 * 1e-9;
        outcome.waited.push(share(done.waited));
        outcome.timeline.merge(&done.timeline);
        outcome.kinds.merge(&done.kinds);
        if job.budget.is_some() && matches!(job.model, super::job::Model::Open { .. }) {
            let scheduled = done.last_due as f64 * 1e-9;
            outcome.scheduled = Some(outcome.scheduled.map_or(scheduled, |longest| longest.max(scheduled)));
        }
        outcome.users += done.users;
        outcome.starved += done.starved;
        outcome.last_answer = outcome.last_answer.max(done.last_answer as f64 * 1e-9);
        outcome.last_failure = outcome.last_failure.max(done.last_failure as f64 * 1e-9);
        outcome.tls_error = outcome.tls_error.or(done.tls_error);
        outcome.refused = outcome.refused.or(done.refused);
        outcome.answer_error = outcome.answer_error.or(done.answer_error);
        outcome.malformed = outcome.malformed.or(done.malformed);
        outcome.used_up += u64::from(done.used_up);
    }
    if let Some(last) = outcome.moments.last_mut() {
        last.seconds = (outcome.seconds - (last.at - last.seconds)).clamp(1e-3, last.seconds.max(1e-3));
        last.at = outcome.seconds;
    }
    Ok(outcome)
}

struct WorldThread {
    job: Arc<Job>,
    requests: Arc<[PreparedRequest]>,
    feed: Option<RowFeed>,
    sender: mpsc::Sender<Interval>,
    control: RunControl,
    ready: Arc<Barrier>,
    go: Arc<AtomicBool>,
    first: First,
    world: usize,
    /// Number of the thread in the run.
    thread: usize,
}

impl WorldThread {
    fn run<P: ClientProtocol>(self) -> Result<WorldResult, String> {
        let WorldThread { job, requests, feed, sender, control, ready, go, first, world, thread } = self;
        pin(&job, thread);
        let made = Epoll::new(&job, world).map_err(|e| format!("epoll: {e}")).and_then(|net| {
            let sink = Box::new(move |interval| drop(sender.send(interval)));
            LoadWorld::<Epoll, P>::new(net, job, requests, world, feed, sink, control.stop.clone())
        });
        let made = made.map(|mut world| {
            world.share_first(first);
            world.prepare();
            world
        });
        if made.is_err() {
            go.store(false, Ordering::Relaxed);
        }
        ready.wait();
        let world = made?;
        control.began.get_or_init(Instant::now);
        if go.load(Ordering::Relaxed) { Ok(world.run()) } else { Ok(WorldResult::default()) }
    }
}

/// Rows of a table that belong to this machine: in a closed loop in proportion to its users, otherwise in equal parts, as
/// budgets are divided. A machine without users has none, since it could not send them.
fn machine_rows(jobs: &[Arc<Job>], rows: usize) -> Range<u64> {
    let (machine, machines) = jobs.first().map_or((0, 1), |job| (job.share.0, job.share.1.max(1)));
    // Dealt parts of a whole, of all machines before `until`.
    let before = |job: &Job, whole: usize, until: usize| -> usize {
        let threads = job.threads.max(1);
        (0..until * threads).map(|world| part(whole, world, machines * threads)).sum()
    };
    let end = |until: usize| -> u64 {
        match jobs.first() {
            Some(job) if job.model.is_open() => before(job, rows, until) as u64,
            _ => {
                let users = |job: &Arc<Job>| job.profile.highest().ceil() as usize;
                let all: usize = jobs.iter().map(users).sum();
                let these: usize = jobs.iter().map(|job| before(job, users(job), until)).sum();
                (rows as u128 * these as u128 / all.max(1) as u128) as u64
            }
        }
    };
    end(machine)..end(machine + 1)
}

fn pin(job: &Job, world: usize) {
    if let Some(core) = job.cores.get(world % job.cores.len().max(1)) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(*core);
        // Without permission to pin, measures unpinned; the report shows the requested cores.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

struct IntervalCollector {
    worlds: usize,
    seconds: f64,
    parts: BTreeMap<usize, (usize, Moment)>,
    outcome: RunOutcome,
}

impl IntervalCollector {
    fn new(worlds: usize, seconds: f64) -> Self {
        IntervalCollector { worlds, seconds, parts: BTreeMap::new(), outcome: RunOutcome::default() }
    }

    fn add(&mut self, interval: Interval, live: &mut impl FnMut(&Moment)) {
        let at = (interval.index + 1) as f64 * self.seconds;
        let empty = || Moment { at, seconds: self.seconds, record: LoadRecord::default(), open: 0, pending: 0 };
        let (count, moment) = self.parts.entry(interval.index).or_insert_with(|| (0, empty()));
        *count += 1;
        moment.record.merge(&interval.record);
        moment.open += interval.open;
        moment.pending += interval.pending;
        while let Some(entry) = self.parts.first_entry()
            && entry.get().0 >= self.worlds
        {
            let (_, moment) = entry.remove();
            self.take(moment, live);
        }
    }

    fn take(&mut self, mut moment: Moment, live: &mut impl FnMut(&Moment)) {
        moment.record.settle();
        self.outcome.total.merge(&moment.record);
        live(&moment);
        moment.record.slim();
        self.outcome.moments.push(moment);
    }

    fn finish(mut self, live: &mut impl FnMut(&Moment)) -> RunOutcome {
        for (_, (_, moment)) in std::mem::take(&mut self.parts) {
            self.take(moment, live);
        }
        self.outcome
    }
}
