//! Thread pools for blocking disk operations (nginx: `ngx_thread_pool`).
//! Threads start on demand up to the pool's size and end after a pause: an unused pool costs nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    pub name: String,
    pub threads: usize,
    pub queue_max: usize,
    /// Added to the nice value of the threads: event loops on the same processors go first.
    pub nice: u8,
}

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
    pub waiting: usize,
}

type Job = Box<dyn FnOnce() + Send>;

const IDLE: Duration = Duration::from_secs(30);

pub struct Pool {
    spec: PoolSpec,
    state: Mutex<PoolState>,
    work: Condvar,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Pool {
    pub fn new(spec: PoolSpec) -> Arc<Pool> {
        Arc::new(Pool { spec, state: Mutex::default(), work: Condvar::new() })
    }

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
        let job: Job = Box::new(move || _ = done.send(job()));
        let mut state = self.state();
        if state.idle <= state.jobs.len() && state.threads < self.spec.threads {
            let pool = self.clone();
            let name = format!("pool {}", self.spec.name);
            if std::thread::Builder::new().name(name).spawn(move || pool.begin()).is_ok() {
                state.threads += 1;
            }
        } else if state.jobs.len() >= self.spec.queue_max {
            return Err(Overflow { waiting: state.jobs.len() });
        }
        if state.threads > 0 {
            state.jobs.push_back(job);
            self.work.notify_one();
        }
        Ok(receiver)
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
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A panic ends only the job; its waiter gets no result.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = self.state();
                continue;
            }
            state.idle += 1;
            let (next, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
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
pub fn named(name: &str) -> Option<Arc<Pool>> {
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
        let before = named("a").expect("a");
        configure(&[a, PoolSpec { threads: 2, ..b }]);
        assert!(Arc::ptr_eq(&before, &named("a").expect("a")));
        assert_eq!(named("b").expect("b").spec().threads, 2);
        assert!(named("c").is_none() && named(DEFAULT).is_some());
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
