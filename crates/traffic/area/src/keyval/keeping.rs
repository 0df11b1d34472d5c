//! The work beside lookups, on the control thread: reading state files before the first request, removing expired pairs,
//! and writing changed zones to their files.

use super::{Keyval, read_state};
use crate::background::{Background, LocalFuture};
use keyval::Refusal;
use observe::{ErrorLog, Severity, os_error};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Shortest and longest time between two removals of expired pairs of a zone. Lookups never find an expired pair; the
/// longest time bounds the effect of a change of the machine's clock.
const SWEEP_MIN: Duration = Duration::from_secs(1);
const SWEEP_MAX: Duration = Duration::from_secs(60);
/// Between two writes of a file passes this multiple of the time that the last one took.
const WRITE_PAUSES: u32 = 4;
/// Longest pause between two writes, also after a failure.
const WRITE_PAUSE_MAX: Duration = Duration::from_secs(10);

/// The zones of an area's plan.
pub struct StateKeeper(pub Vec<Arc<Keyval>>);

impl StateKeeper {
    pub fn find(&self, name: &str) -> Option<&Arc<Keyval>> {
        self.0.iter().find(|keyval| keyval.name == name)
    }
}

impl Keyval {
    /// Reads the state file into a new zone. Blocks: requests before the end would not find their pairs.
    fn load(&self) -> Result<(), Unread> {
        let Some(path) = &self.state else { return Ok(()) };
        let now = base::clock::unix_millis();
        self.zone.load(path, now, || read_state(path, self.timeout, now).map_err(Unread)).map_err(|Unread(why)| {
            Unread(format!("{why}; changes of keyval_zone \"{}\" are not kept in \"{}\"", self.name, path.display()))
        })
    }
}

struct Unread(String);

impl From<Refusal> for Unread {
    fn from(refusal: Refusal) -> Unread {
        Unread(format!("the pairs of the state file do not fit: {refusal}"))
    }
}

impl<P: 'static> Background<P> for StateKeeper {
    fn prepare(self: Arc<Self>, _: Arc<P>) -> LocalFuture<()> {
        Box::pin(async move {
            for keyval in &self.0 {
                // `run` reports errors.
                let _ = keyval.load();
            }
        })
    }
    fn unsettled(&self, _: &P) -> Vec<String> {
        self.0.iter().filter_map(|keyval| keyval.load().err()).map(|Unread(why)| why).collect()
    }
    fn run(self: Arc<Self>, _: Weak<P>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let mut tasks = runtime::task::JoinSet::new();
            for keyval in &self.0 {
                // `keep` reports errors. Pairs of the file are there before those of other nodes.
                let _ = keyval.load();
                keyval.begin_sharing(&log);
                tasks.spawn_local(keep(keyval.clone(), log.clone()));
            }
            while tasks.join_next().await.is_some() {}
        })
    }
}

/// Keeps one zone. A zone whose file could not be read is not written, so that the file is not lost.
async fn keep(keyval: Arc<Keyval>, log: Arc<ErrorLog>) {
    let writes = match (keyval.load(), &keyval.state) {
        (Ok(()), Some(path)) => {
            if let Err(e) = may_write(path) {
                let (name, folder) = (&keyval.name, folder_of(path).display());
                let words = format_args!(
                    "access() \"{folder}\" failed {}; changes of keyval_zone \"{name}\" cannot be kept",
                    os_error(&e)
                );
                log.log(Severity::Warn, 0, words);
            }
            Some(Writes { keyval: keyval.clone(), path: path.clone(), log })
        }
        (Ok(()), None) => None,
        (Err(Unread(why)), _) => {
            log.log(Severity::Crit, 0, format_args!("{why}"));
            None
        }
    };
    loop {
        let seen = keyval.zone.changes();
        if let Some(writes) = &writes
            && !writes.is_written(seen)
        {
            let pause = writes.write().await;
            runtime::time::sleep_for(pause).await;
            continue;
        }
        let now = base::clock::unix_millis();
        let wait = match keyval.zone.sweep(now) {
            Some(at) => Duration::from_millis(at.saturating_sub(now)).clamp(SWEEP_MIN, SWEEP_MAX),
            None => SWEEP_MAX,
        };
        // A pair that is added may expire before the one that is waited for.
        let _ = runtime::time::with_timeout(wait, keyval.zone.changed_since(seen)).await;
        base::clock::update();
        if writes.is_none() {
            runtime::time::sleep_for(SWEEP_MIN).await;
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Finds out early whether the process, which may have given up privileges, can make files in the folder.
fn may_write(path: &Path) -> std::io::Result<()> {
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    Ok(rustix::fs::access(folder_of(path), access)?)
}

struct Writes {
    keyval: Arc<Keyval>,
    path: PathBuf,
    log: Arc<ErrorLog>,
}

impl Writes {
    fn is_written(&self, changes: u64) -> bool {
        // A zone that never had a pair needs no file.
        changes == 0 || self.keyval.zone.is_saved(&self.path, changes)
    }
    /// Writes on a pool thread. Returns how long to wait before the next write.
    async fn write(&self) -> Duration {
        let (keyval, path) = (self.keyval.clone(), self.path.clone());
        base::clock::update();
        let (started, now) = (base::clock::now(), base::clock::unix_millis());
        let pool = net::pool::find_pool(net::pool::DEFAULT);
        let done = match pool.map(|pool| pool.run(move || keyval.zone.save(&path, now))) {
            Some(Ok(work)) => work.await.ok(),
            _ => None,
        };
        base::clock::update();
        if let Some(Ok(())) = done {
            let took = Duration::from_micros(base::clock::now().micros_since(started));
            return (took * WRITE_PAUSES).min(WRITE_PAUSE_MAX);
        }
        let why = match done {
            Some(Err((call, e))) => format!("{call}() \"{}\" failed {}", self.path.display(), os_error(&e)),
            _ => "no thread was free".to_string(),
        };
        let name = &self.keyval.name;
        self.log.log(Severity::Crit, 0, format_args!("{why}; changes of keyval_zone \"{name}\" are not kept yet"));
        WRITE_PAUSE_MAX
    }
}

/// A configuration that is replaced, and a process that ends, leave nothing unwritten.
impl Drop for Writes {
    fn drop(&mut self) {
        if !self.is_written(self.keyval.zone.changes()) {
            let _ = self.keyval.zone.save(&self.path, base::clock::unix_millis());
        }
    }
}
