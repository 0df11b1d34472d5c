//! A database that is reloaded when its file changes (`auto_reload`).

use super::mmdb::Mmdb;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

pub struct DatabaseSource {
    path: PathBuf,
    /// Seconds between checks; 0: never.
    interval: i64,
    state: RwLock<DatabaseState>,
    checked: AtomicI64,
    changed: AtomicI64,
}

struct DatabaseState {
    database: Arc<Mmdb>,
    modified: Option<SystemTime>,
}

impl DatabaseSource {
    pub fn open(path: PathBuf, interval: u64) -> Result<DatabaseSource, String> {
        let state = read(&path)?;
        let now = AtomicI64::new(base::clock::unix_seconds());
        let (interval, changed) = (interval.min(i64::MAX as u64) as i64, AtomicI64::new(now.load(Ordering::Relaxed)));
        Ok(DatabaseSource { path, interval, state: RwLock::new(state), checked: now, changed })
    }
    pub fn checked(&self) -> i64 {
        self.checked.load(Ordering::Relaxed)
    }
    pub fn changed(&self) -> i64 {
        self.changed.load(Ordering::Relaxed)
    }
    /// Returns the database in memory. If the interval has passed, a pool thread checks the file in the background.
    pub fn current(self: &Arc<Self>) -> Arc<Mmdb> {
        let now = base::clock::unix_seconds();
        let checked = self.checked();
        if self.interval > 0
            && now - checked >= self.interval
            && self.checked.compare_exchange(checked, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && let Some(pool) = net::pool::find_pool(net::pool::DEFAULT)
        {
            let source = self.clone();
            // If the queue is full, the next lookup checks.
            let _ = pool.run(move || source.look(now));
        }
        self.state.read().unwrap_or_else(PoisonError::into_inner).database.clone()
    }
    fn look(&self, now: i64) {
        let modified = std::fs::metadata(&self.path).and_then(|m| m.modified()).ok();
        let known = self.state.read().unwrap_or_else(PoisonError::into_inner).modified;
        if modified.is_none() || modified == known {
            return;
        }
        if let Ok(state) = read(&self.path) {
            *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
            self.changed.store(now, Ordering::Relaxed);
        }
    }
}

fn read(path: &PathBuf) -> Result<DatabaseState, String> {
    let modified = std::fs::metadata(path).and_then(|m| m.modified()).ok();
    let bytes =
        crate::geoip::read_database(path).map_err(|e| format!("Error opening the specified MaxMind DB file: {e}"))?;
    let database = Mmdb::new(bytes).ok_or("The MaxMind DB file contains invalid metadata")?;
    Ok(DatabaseState { database: Arc::new(database), modified })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geoip2::mmdb::tests::database;

    #[test]
    fn a_file_that_changed_is_read_anew() {
        let name: String = net::random::bytes16().iter().map(|b| format!("{b:02x}")).collect();
        let path = std::env::temp_dir().join(format!("tidegate-{name}.mmdb"));
        std::fs::write(&path, database(24, "one")).expect("a file");
        let source = Arc::new(DatabaseSource::open(path.clone(), 60).expect("a database"));
        let name = |source: &DatabaseSource| {
            let mut out = Vec::new();
            let database = source.state.read().expect("no panic").database.clone();
            database.value([10, 0, 0, 1].into(), &[b"name".to_vec()], &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(name(&source), "one");
        source.look(1);
        assert_eq!(name(&source), "one");
        let later = SystemTime::now() + std::time::Duration::from_secs(10);
        std::fs::write(&path, "nonsense").expect("a file");
        std::fs::File::options().write(true).open(&path).and_then(|f| f.set_modified(later)).expect("a time");
        source.look(2);
        assert_eq!(name(&source), "one", "nonsense changes nothing");
        std::fs::write(&path, database(28, "two")).expect("a file");
        std::fs::File::options().write(true).open(&path).and_then(|f| f.set_modified(later)).expect("a time");
        source.look(3);
        assert_eq!((name(&source).as_str(), source.changed()), ("two", 3));
        let _ = std::fs::remove_file(path);
    }
}
