//! Thread pools for blocking disk operations (nginx: `ngx_thread_pool`).
//! Threads start on demand up to the pool's size and end after a pause: an unused pool costs nothing.
//!
//! Long computations for responses ([`Pool::run_long`]: compressors, pictures, stylesheets) have a queue of their own and at most a
//! thread per processor, so that disk operations and passwords ([`Pool::run`]) do not wait behind them. They end
//! with their receiver: a queued one is never started, a started one asks between its steps ([`ResultInterest`]).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// A `thread_pool` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Name of the pool.
    pub name: String,
    /// Number of threads at most.
    pub threads: usize,
    /// Number of waiting jobs at most; further ones are refused.
    pub queue_max: usize,
    /// Added to the nice value of the threads: event loops on the same processors go first.
    pub nice: u8,
}

/// Name of the pool that exists without a `thread_pool` line.
pub const DEFAULT: &str = "default";

impl Default for PoolSpec {
    fn default() -> Self {
        PoolSpec { name: DEFAULT.into(), threads: 32, queue_max: 65_536, nice: 0 }
    }
}

impl PoolSpec {
    /// One thread for work of the control plane, which must not delay requests: a page of metrics with 1,000 zones
    /// takes 20 ms, and a worker on the same processor would wait for some of them.
    pub fn control(name: &str, queue_max: usize) -> PoolSpec {
        PoolSpec { name: name.into(), threads: 1, queue_max, nice: 10 }
    }
}

/// The job was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// Number of jobs that wait.
    pub waiting: usize,
}

type PoolJob = Box<dyn FnOnce() + Send>;

/// Tells a long computation whether its result still has a receiver.
pub struct ResultInterest<'a>(Option<&'a dyn Fn() -> bool>);

impl ResultInterest<'_> {
    /// Makes a question from a function that answers it.
    pub fn new(is_wanted: &dyn Fn() -> bool) -> ResultInterest<'_> {
        ResultInterest(Some(is_wanted))
    }
    /// For computations without a pool, whose caller waits.
    pub const ALWAYS: ResultInterest<'static> = ResultInterest(None);

    /// To be asked between steps of at most some tens of milliseconds.
    pub fn is_wanted(&self) -> bool {
        self.0.is_none_or(|is_wanted| is_wanted())
    }
}

const IDLE: Duration = Duration::from_secs(30);

/// A pool of threads. Dropping it lets started and waiting jobs finish.
pub struct Pool {
    spec: PoolSpec,
    /// Threads that may run long computations.
    long_max: usize,
    state: Mutex<PoolState>,
    work: Condvar,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<PoolJob>,
    /// Long computations that wait, and the number of those that run.
    long: VecDeque<PoolJob>,
    long_running: usize,
    threads: usize,
    idle: usize,
}

impl PoolState {
    /// Tells an idle thread that it may end: a job that came as its wait ended has counted on it.
    fn has_no_job(&self) -> bool {
        self.jobs.is_empty() && self.long.is_empty()
    }
}

impl Pool {
    /// Creates a pool without threads.
    pub fn new(spec: PoolSpec) -> Arc<Pool> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let long_max = processors.min(spec.threads.saturating_sub(1)).max(1);
        Arc::new(Pool { spec, long_max, state: Mutex::default(), work: Condvar::new() })
    }

    /// Returns the pool's settings.
    pub fn spec(&self) -> &PoolSpec {
        &self.spec
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        // Jobs run without the lock: a poisoned one is intact.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `job` on the pool. Fails when the queue is full; the receiver fails when the job panicked or no thread
    /// started.
    pub fn run<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Overflow> {
        let (done, receiver) = oneshot::channel();
        self.queue(Box::new(move || _ = done.send(job())), false)?;
        Ok(receiver)
    }

    /// Runs a long computation. Dropping the receiver ends it at its next step. Fails as [`Pool::run`].
    pub fn run_long<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&ResultInterest<'_>) -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Overflow> {
        let (done, receiver) = oneshot::channel();
        let job = move || {
            if !done.is_closed() {
                let result = job(&ResultInterest::new(&|| !done.is_closed()));
                let _ = done.send(result);
            }
        };
        self.queue(Box::new(job), true)?;
        Ok(receiver)
    }

    fn queue(self: &Arc<Self>, job: PoolJob, is_long: bool) -> Result<(), Overflow> {
        let mut state = self.state();
        let startable = state.jobs.len() + state.long.len().min(self.long_max - state.long_running);
        let waiting = if is_long { state.long.len() } else { state.jobs.len() };
        let is_runnable = !is_long || state.long.len() + state.long_running < self.long_max;
        if is_runnable && state.idle <= startable && state.threads < self.spec.threads {
            let pool = self.clone();
            let name = format!("pool {}", self.spec.name);
            if std::thread::Builder::new().name(name).spawn(move || pool.begin()).is_ok() {
                state.threads += 1;
            }
        } else if waiting >= self.spec.queue_max {
            return Err(Overflow { waiting });
        }
        if state.threads == 0 {
            // The system starts no thread; nothing would ever take the job.
            return Err(Overflow { waiting });
        }
        let queue = if is_long { &mut state.long } else { &mut state.jobs };
        queue.push_back(job);
        self.work.notify_one();
        Ok(())
    }

    fn begin(&self) {
        // Process 0 is the calling thread. Without the permission, the thread competes with the others.
        if self.spec.nice > 0
            && let Ok(own) = rustix::process::getpriority_process(None)
        {
            let _ = rustix::process::setpriority_process(None, own.saturating_add(self.spec.nice.into()));
        }
        self.work();
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            let is_long = state.jobs.is_empty() && state.long_running < self.long_max;
            let next = if is_long { state.long.pop_front() } else { state.jobs.pop_front() };
            if let Some(job) = next {
                state.long_running += usize::from(is_long);
                drop(state);
                // A panic ends only the job; its waiter gets no result.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = self.state();
                state.long_running -= usize::from(is_long);
                continue;
            }
            state.idle += 1;
            let (next, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if waited.timed_out() && state.has_no_job() {
                state.threads -= 1;
                return;
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({:?})", self.spec)
    }
}

static POOLS: LazyLock<Mutex<HashMap<String, Arc<Pool>>>> = LazyLock::new(Mutex::default);

/// Sets the pools of a configuration; unchanged ones stay, and started work finishes.
pub fn configure(specs: &[PoolSpec]) {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|_, pool| specs.contains(&pool.spec));
    for spec in specs {
        pools.entry(spec.name.clone()).or_insert_with(|| Pool::new(spec.clone()));
    }
}

/// Returns `None` for a pool that is not configured.
pub fn find_pool(name: &str) -> Option<Arc<Pool>> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(name) {
        return Some(pool.clone());
    }
    (name == DEFAULT).then(|| pools.entry(name.into()).or_insert_with(|| Pool::new(PoolSpec::default())).clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn spec(threads: usize, queue_max: usize) -> PoolSpec {
        PoolSpec { name: "test".into(), threads, queue_max, nice: 0 }
    }

    #[test]
    fn threads_stay_for_jobs_of_both_kinds() {
        let mut state = PoolState::default();
        assert!(state.has_no_job());
        state.long.push_back(Box::new(|| {}));
        assert!(!state.has_no_job());
        state.jobs.push_back(std::mem::take(&mut state.long).remove(0).expect("a job"));
        assert!(!state.has_no_job());
    }

    #[test]
    fn jobs_run_and_hand_back_what_they_made() {
        let pool = Pool::new(spec(2, 8));
        let sums: Vec<_> = (0..8u64).map(|n| pool.run(move || n * n).expect("taken")).collect();
        let sum: u64 = sums.into_iter().map(|r| r.blocking_recv().expect("done")).sum();
        assert_eq!(sum, 140);
        assert!(pool.state().threads <= 2);
    }

    #[test]
    fn a_full_queue_refuses() {
        let pool = Pool::new(spec(1, 1));
        let (release, wait) = mpsc::channel::<()>();
        let (started, begun) = mpsc::channel();
        let first = pool
            .run(move || {
                let _ = started.send(());
                let _ = wait.recv();
            })
            .expect("runs");
        begun.recv().expect("it has begun");
        let second = pool.run(|| ()).expect("waits");
        assert_eq!(pool.run(|| ()).err(), Some(Overflow { waiting: 1 }));
        release.send(()).expect("released");
        first.blocking_recv().expect("done");
        second.blocking_recv().expect("done");
    }

    #[test]
    fn long_computations_leave_a_thread_to_others() {
        let pool = Pool::new(spec(64, 64));
        let (release, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let wait = Arc::new(wait);
        let (started, begun) = mpsc::channel();
        let long: Vec<_> = (0..pool.long_max + 5)
            .map(|_| {
                let (wait, started) = (wait.clone(), started.clone());
                let job = move |_: &ResultInterest<'_>| {
                    let _ = started.send(());
                    let _ = wait.lock().expect("not poisoned").recv();
                };
                pool.run_long(job).expect("room")
            })
            .collect();
        for _ in 0..pool.long_max {
            begun.recv().expect("it has begun");
        }
        assert_eq!(pool.run(|| 7).expect("room").blocking_recv(), Ok(7), "a password does not wait");
        assert!(begun.try_recv().is_err(), "the others wait");
        drop(release);
        long.into_iter().for_each(|job| job.blocking_recv().expect("done"));
    }

    #[test]
    fn long_computations_end_with_their_receiver() {
        let pool = Pool::new(spec(1, 64));
        let (started, begun) = mpsc::channel();
        let (ended, end) = mpsc::channel();
        let job = move |wanted: &ResultInterest<'_>| {
            let _ = started.send(());
            while wanted.is_wanted() {
                std::thread::yield_now();
            }
            let _ = ended.send(());
        };
        let first = pool.run_long(job).expect("room");
        begun.recv().expect("it has begun");
        let second = pool.run_long(|_| panic!("a result without a receiver")).expect("room");
        drop(second);
        drop(first);
        end.recv().expect("it has ended");
        assert_eq!(pool.run_long(|_| 7).expect("room").blocking_recv(), Ok(7));
        assert!(pool.state().long.is_empty());
    }

    #[test]
    fn a_panic_is_the_jobs_alone() {
        let pool = Pool::new(spec(1, 8));
        let lost = pool.run(|| panic!("a test's panic")).expect("taken");
        assert!(lost.blocking_recv().is_err());
        assert_eq!(pool.run(|| 7).expect("taken").blocking_recv(), Ok(7));
    }

    #[test]
    fn configured_pools_stay_while_they_are_the_same() {
        let (a, b) = (PoolSpec { name: "a".into(), ..spec(1, 1) }, PoolSpec { name: "b".into(), ..spec(1, 1) });
        configure(&[a.clone(), b.clone()]);
        let before = find_pool("a").expect("a");
        configure(&[a, PoolSpec { threads: 2, ..b }]);
        assert!(Arc::ptr_eq(&before, &find_pool("a").expect("a")));
        assert_eq!(find_pool("b").expect("b").spec().threads, 2);
        assert!(find_pool("c").is_none() && find_pool(DEFAULT).is_some());
    }

    #[test]
    fn threads_of_a_nice_pool_yield_to_others() {
        let own = rustix::process::getpriority_process(None).expect("a priority");
        let pool = Pool::new(PoolSpec { nice: 7, ..spec(1, 1) });
        let work = pool.run(|| rustix::process::getpriority_process(None)).expect("room");
        assert_eq!(work.blocking_recv().expect("a result").expect("a priority"), (own + 7).min(19));
        assert_eq!(rustix::process::getpriority_process(None).expect("a priority"), own);
    }
}
