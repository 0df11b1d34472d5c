//! Running a job on this machine: a thread a world, their intervals merged into moments, and everything into one outcome.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, OnceLock, mpsc};
use std::thread;
use std::time::Instant;

use super::epoll::Epoll;
use super::job::Job;
use super::ports::Ports;
use super::record::{Interval, Record};
use super::request::Prepared;
use super::timeline::{Kinds, Timeline};
use super::world::{Done, World};
use crate::protocol::Protocol;
use crate::protocol::h1::H1;
use crate::protocol::h2::H2;

/// How the caller and a run tell each other about its beginning and its end.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Set by the caller: end early, but in good order.
    pub stop: Arc<AtomicBool>,
    /// Set by the run: when its warm-up began. Before that a closed loop makes its connections.
    pub began: Arc<OnceLock<Instant>>,
}

impl Control {
    /// One that ends when `stop` is set.
    pub fn until(stop: Arc<AtomicBool>) -> Control {
        Control { stop, began: Arc::default() }
    }
}

/// One interval of the time series, over all worlds.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Seconds from the start of the measured part to the end of the interval.
    pub at: f64,
    /// Length of the interval in seconds.
    pub seconds: f64,
    /// Settled; when the run is over only the counts are left.
    pub record: Record,
    /// Connections that stood at its end, requests that waited for one.
    pub open: usize,
    pub pending: usize,
}

/// What a run has yielded.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// All intervals together.
    pub total: Record,
    pub moments: Vec<Moment>,
    /// Length of the measured part in seconds.
    pub seconds: f64,
    /// Share of the measured time for which each client thread was on a processor.
    pub busy: Vec<f64>,
    /// CPU seconds of all client threads in the measured part.
    pub client_cpu: f64,
    /// Share of the measured time for which each client thread waited for a processor that others had.
    pub waited: Vec<f64>,
    /// Latency over the time at which requests were due, in intervals of `interval` seconds.
    pub timeline: Timeline,
    /// The requests of the job, told apart.
    pub kinds: Kinds,
    pub interval: f64,
    /// Local ports of all addresses that the connections may come from.
    pub ports: u64,
    /// Users of a closed loop, and how many of them waited for more than half of the run in vain.
    pub users: u64,
    pub starved: u64,
    /// What the first TLS failure was.
    pub tls_error: Option<String>,
}

impl Outcome {
    /// Answers per second, right or wrong.
    pub fn rps(&self) -> f64 {
        self.total.answers as f64 / self.seconds.max(1e-9)
    }
    /// Right answers per second.
    pub fn good_rps(&self) -> f64 {
        self.total.good as f64 / self.seconds.max(1e-9)
    }

    /// Adds the outcome of another machine that ran at the same time. Clocks are not compared: intervals are matched by their
    /// number from each machine's own start.
    pub fn merge(&mut self, other: Outcome) {
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
        self.users += other.users;
        self.starved += other.starved;
        self.tls_error = self.tls_error.take().or(other.tls_error);
    }
}

/// Compiles the requests of a job.
///
/// # Errors
/// A sentence about the first one that cannot be sent.
pub fn prepare(job: &Job) -> Result<Arc<[Prepared]>, String> {
    if job.requests.is_empty() {
        return Err("there is no request to send".into());
    }
    let authority = job.target.authority();
    let close = job.calls == 1;
    let prepared = job.requests.iter().map(|r| {
        let prepared = Prepared::new(r, &authority, &job.headers, close)?;
        Ok(if job.http2.is_some() { prepared.for_http2(job.target.tls.is_some()) } else { prepared })
    });
    prepared.collect()
}

/// Runs a job to its end. `live` is called with each interval as soon as all worlds have reported it.
///
/// # Errors
/// A sentence when a request, the TLS configuration or the system's limits do not allow the run.
pub fn run(job: &Job, control: &Control, mut live: impl FnMut(&Moment)) -> Result<Outcome, String> {
    let requests = prepare(job)?;
    let job = Arc::new(job.clone());
    let threads = job.threads.max(1);
    let (sender, intervals) = mpsc::channel::<Interval>();
    let (ready, go) = (Arc::new(Barrier::new(threads + 1)), Arc::new(AtomicBool::new(true)));
    let mut handles = Vec::new();
    for world in 0..threads {
        let (job, requests, sender) = (job.clone(), requests.clone(), sender.clone());
        let (control, ready, go) = (control.clone(), ready.clone(), go.clone());
        let place = Place { job, requests, sender, control, ready, go, world };
        let body = move || match place.job.http2 {
            None => place.run::<H1>(),
            Some(_) => place.run::<H2>(),
        };
        let handle = thread::Builder::new().name(format!("load-{world}")).spawn(body);
        handles.push(handle.map_err(|e| format!("cannot start a thread: {e}"))?);
    }
    drop(sender);
    ready.wait();
    let mut collector = Collector::new(threads, job.interval);
    for interval in intervals {
        collector.add(interval, &mut live);
    }
    let mut outcome = collector.finish(&mut live);
    outcome.ports = Ports::of(&job).available;
    outcome.interval = job.interval.max(0.001);
    for handle in handles {
        let done = handle.join().map_err(|_| "a client thread panicked".to_string())??;
        outcome.seconds = outcome.seconds.max(done.measured as f64 * 1e-9);
        // A thread that looks for work instead of sleeping has room for more.
        outcome.busy.push(done.cpu.saturating_sub(done.spun) as f64 / done.measured.max(1) as f64);
        outcome.client_cpu += done.cpu as f64 * 1e-9;
        outcome.waited.push(done.waited as f64 / done.measured.max(1) as f64);
        outcome.timeline.merge(&done.timeline);
        outcome.kinds.merge(&done.kinds);
        outcome.users += done.users;
        outcome.starved += done.starved;
        outcome.tls_error = outcome.tls_error.or(done.tls_error);
    }
    if let Some(last) = outcome.moments.last_mut() {
        last.seconds = (outcome.seconds - (last.at - last.seconds)).clamp(1e-3, last.seconds.max(1e-3));
        last.at = outcome.seconds;
    }
    Ok(outcome)
}

/// What a thread needs for its world.
struct Place {
    job: Arc<Job>,
    requests: Arc<[Prepared]>,
    sender: mpsc::Sender<Interval>,
    control: Control,
    ready: Arc<Barrier>,
    go: Arc<AtomicBool>,
    world: usize,
}

impl Place {
    fn run<P: Protocol>(self) -> Result<Done, String> {
        let Place { job, requests, sender, control, ready, go, world } = self;
        pin(&job, world);
        let made = Epoll::new(&job, world).map_err(|e| format!("epoll: {e}")).and_then(|net| {
            let sink = Box::new(move |interval| drop(sender.send(interval)));
            World::<Epoll, P>::new(net, job, requests, world, sink, control.stop.clone())
        });
        let made = made.map(|mut world| {
            world.prepare();
            world
        });
        if made.is_err() {
            go.store(false, Ordering::Relaxed);
        }
        // All worlds start together, or none does.
        ready.wait();
        let world = made?;
        control.began.get_or_init(Instant::now);
        if go.load(Ordering::Relaxed) { Ok(world.run()) } else { Ok(Done::default()) }
    }
}

fn pin(job: &Job, world: usize) {
    if let Some(core) = job.cores.get(world % job.cores.len().max(1)) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(*core);
        // Not being allowed to pin is no reason not to measure; the report shows what was asked for.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// Puts the intervals of the worlds together.
struct Collector {
    worlds: usize,
    seconds: f64,
    parts: BTreeMap<usize, (usize, Moment)>,
    outcome: Outcome,
}

impl Collector {
    fn new(worlds: usize, seconds: f64) -> Self {
        Collector { worlds, seconds, parts: BTreeMap::new(), outcome: Outcome::default() }
    }

    fn add(&mut self, interval: Interval, live: &mut impl FnMut(&Moment)) {
        let at = (interval.index + 1) as f64 * self.seconds;
        let empty = || Moment { at, seconds: self.seconds, record: Record::default(), open: 0, pending: 0 };
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

    fn finish(mut self, live: &mut impl FnMut(&Moment)) -> Outcome {
        for (_, (_, moment)) in std::mem::take(&mut self.parts) {
            self.take(moment, live);
        }
        self.outcome
    }
}
