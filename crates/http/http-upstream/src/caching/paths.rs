//! Declared caches and their background threads: a loader per new cache, and one keeper for all.

use super::shared_purges::SharedPurges;
use cache::loader;
use cache::manager::{self, Purger};
use cache::{Limits, Zone};
use http_engine::{Background, HttpPlan, LocalFuture};
use observe::{ErrorLog, Severity};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A declared cache.
pub struct CachePath {
    /// Its index and files.
    pub zone: Arc<Zone>,
    /// Its metrics.
    pub metrics: metrics::MetricZone<metrics::cache::Of>,
    /// `use_temp_path`: files are written in the protocol's temporary folder before they get their place.
    pub use_temp_path: bool,
    /// Its limits, which the keeper's thread enforces.
    pub limits: Limits,
    /// With `sync`.
    pub shared: Option<SharedPurges>,
}

/// All caches of a plan, as background work.
pub struct Caches {
    /// The caches.
    pub paths: Vec<Arc<CachePath>>,
    /// In bytes, for hot entries of all caches.
    pub memory: u64,
}

/// All caches of the http area, for the API, among the plan's extensions.
pub struct CachePaths(pub Vec<Arc<CachePath>>);

impl Background<HttpPlan> for Caches {
    fn run(self: Arc<Self>, _: Weak<HttpPlan>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            self.begin(&log);
            self.paths.iter().filter_map(|path| path.shared.as_ref()).for_each(|shared| shared.begin_sharing(&log));
            let _service = CacheKeeper(self);
            std::future::pending().await
        })
    }
}

/// Ends the keeper's work on caches that no newer configuration uses.
struct CacheKeeper(Arc<Caches>);

impl Drop for CacheKeeper {
    fn drop(&mut self) {
        let mut state = keeper().state.lock().unwrap_or_else(PoisonError::into_inner);
        state.taken += 1;
        state.watched.retain(|watched| !self.0.paths.iter().any(|path| Arc::ptr_eq(path, &watched.path)));
    }
}

impl Caches {
    fn begin(&self, log: &Arc<ErrorLog>) {
        let share = self.memory / (self.paths.len().max(1) as u64);
        let files = descriptors() / (self.paths.len().max(1) as u64);
        for path in &self.paths {
            path.zone.set_limits(path.limits.clone());
            path.zone.set_memory(share, files);
            if path.zone.cold.load(std::sync::atomic::Ordering::Relaxed) {
                let (path, log) = (path.clone(), log.clone());
                let body = move || loader::load_zone(&path.zone, &path.limits, &|level, text| say(&log, level, text));
                start("cache loader", body, &self.paths, |path| {
                    path.zone.cold.store(true, std::sync::atomic::Ordering::Relaxed);
                });
            }
        }
        keeper().take_over(&self.paths, log);
    }
}

/// For hot entries of all caches.
const FILES_MAX: u64 = 8192;

/// Returns an eighth of the process's limit of descriptors, up to [`FILES_MAX`].
fn descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(FILES_MAX, |limit| (limit / 8).min(FILES_MAX))
}

fn start(name: &str, body: impl FnOnce() + Send + 'static, paths: &[Arc<CachePath>], failed: impl Fn(&CachePath)) {
    if std::thread::Builder::new().name(name.into()).spawn(body).is_err() {
        paths.iter().for_each(|path| failed(path));
    }
}

fn say(log: &ErrorLog, level: Severity, text: &str) {
    log.log(level, 0, format_args!("{text}"));
}

/// A single thread for the managers and purgers of all caches.
struct Keeper {
    state: Mutex<KeeperState>,
    wake: Condvar,
}

#[derive(Default)]
struct KeeperState {
    watched: Vec<WatchedCache>,
    log: Option<Arc<ErrorLog>>,
    running: bool,
    /// Changes with the set of watched caches.
    taken: u64,
    /// A purge was requested: skips the wait.
    hurry: bool,
}

struct WatchedCache {
    path: Arc<CachePath>,
    due: Instant,
    purger: Purger,
    purge_due: Instant,
    began_ms: u64,
}

fn keeper() -> &'static Keeper {
    static KEEPER: OnceLock<Keeper> = OnceLock::new();
    KEEPER.get_or_init(|| Keeper { state: Mutex::default(), wake: Condvar::new() })
}

/// Makes the keeper's thread purge now instead of at its next turn.
pub fn hurry_managers() {
    let keeper = keeper();
    keeper.state.lock().unwrap_or_else(PoisonError::into_inner).hurry = true;
    keeper.wake.notify_one();
}

const IDLE: Duration = Duration::from_secs(10);

impl Keeper {
    fn take_over(&'static self, paths: &[Arc<CachePath>], log: &Arc<ErrorLog>) {
        base::clock::update();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut before = std::mem::take(&mut state.watched);
        for path in paths {
            let known =
                before.iter().position(|w| Arc::ptr_eq(&w.path.zone, &path.zone)).map(|at| before.swap_remove(at));
            state.watched.push(match known {
                Some(known) => WatchedCache { path: path.clone(), ..known },
                None => WatchedCache {
                    path: path.clone(),
                    due: now,
                    purger: Purger::default(),
                    purge_due: now,
                    began_ms: base::clock::unix_millis(),
                },
            });
        }
        state.log = Some(log.clone());
        state.taken += 1;
        if !state.running && !state.watched.is_empty() {
            state.running = true;
            let body = move || self.run();
            start("cache manager", body, paths, |path| {
                say(log, Severity::Alert, &format!("no thread for the manager of cache \"{}\"", path.zone.name));
            });
        }
        self.wake.notify_one();
    }

    fn run(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            let next = state.watched.iter().map(|w| w.due.min(w.purge_due)).min().unwrap_or(now + IDLE);
            let hurry = std::mem::take(&mut state.hurry);
            if next > now && !hurry {
                let waited = self.wake.wait_timeout(state, next - now);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // Only a reload takes this lock: zones have their own.
            let mut watched = std::mem::take(&mut state.watched);
            let taken = state.taken;
            let log = state.log.clone();
            drop(state);
            if let Some(log) = &log {
                for one in &mut watched {
                    one.work(now, hurry, &|level, text| say(log, level, text));
                }
            }
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.watched.is_empty() && state.taken == taken {
                state.watched = watched;
            }
        }
    }
}

impl WatchedCache {
    fn work(&mut self, now: Instant, hurry: bool, log: loader::Say<'_>) {
        let (zone, limits) = (&self.path.zone, &self.path.limits);
        if self.due <= now {
            self.due = Instant::now() + manager::manage_zone(zone, limits, log);
            if limits.purger.is_none() {
                manager::forget_old(zone, limits, self.began_ms, log);
            }
        }
        if self.purge_due <= now || hurry {
            self.purge_due = Instant::now() + self.purger.work(zone, limits, log).unwrap_or(IDLE);
        }
    }
}
