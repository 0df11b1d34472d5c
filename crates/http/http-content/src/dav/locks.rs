//! Locks of a zone (RFC 4918, 6 and 7), by path without a final slash.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Besides path and owner.
const LOCK_BYTES: u64 = 256;
/// Maximum number of shared locks of a path: responses list those of each resource, and of its parents.
const SHARED_MAX: usize = 32;

pub type LockToken = [u8; 16];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub token: LockToken,
    /// With its slash, if requested with one.
    pub root: Vec<u8>,
    pub exclusive: bool,
    /// Covers the whole tree.
    pub infinite: bool,
    /// The client's owner element: well-formed XML.
    pub owner: Vec<u8>,
    /// Unix seconds.
    pub expires: i64,
}

#[derive(Clone, Debug)]
pub struct LockRequest {
    pub exclusive: bool,
    pub infinite: bool,
    pub owner: Vec<u8>,
    /// Seconds; the zone may grant fewer.
    pub timeout: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLock {
    /// Another client has a lock.
    Locked,
    Full,
}

pub struct Locks {
    bytes_max: u64,
    timeout_max: u64,
    state: Mutex<LocksState>,
}

#[derive(Default)]
struct LocksState {
    by_path: BTreeMap<Vec<u8>, Vec<Lock>>,
    bytes: u64,
    /// Unix seconds of the latest [`LocksState::sweep`].
    swept: i64,
}

fn plain(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn cost(lock: &Lock) -> u64 {
    LOCK_BYTES + 2 * lock.root.len() as u64 + lock.owner.len() as u64
}

/// The path and its parents, innermost first; the root is empty.
fn around(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(plain(path)), |inner| {
        let slash = inner.iter().rposition(|c| *c == b'/')?;
        inner.get(..slash)
    })
}

impl LocksState {
    fn alive(&self, path: &[u8], now: i64) -> impl Iterator<Item = &Lock> {
        self.by_path.get(path).into_iter().flatten().filter(move |lock| lock.expires > now)
    }
    /// Removes expired locks, once a second: every request for a lock may find the zone full.
    fn sweep(&mut self, now: i64) {
        if std::mem::replace(&mut self.swept, now) == now {
            return;
        }
        let bytes = &mut self.bytes;
        self.by_path.retain(|_, locks| {
            locks.retain(|lock| {
                let kept = lock.expires > now;
                *bytes -= if kept { 0 } else { cost(lock) };
                kept
            });
            !locks.is_empty()
        });
    }
    fn retain_at(&mut self, path: &[u8], keep: impl Fn(&Lock) -> bool) {
        let Some(locks) = self.by_path.get_mut(path) else { return };
        let bytes = &mut self.bytes;
        locks.retain(|lock| {
            let kept = keep(lock);
            *bytes -= if kept { 0 } else { cost(lock) };
            kept
        });
        if locks.is_empty() {
            self.by_path.remove(path);
        }
    }
    /// Locks on the path, and infinite ones above.
    fn covering(&self, path: &[u8], now: i64) -> Vec<&Lock> {
        let mut found: Vec<&Lock> = self.alive(plain(path), now).collect();
        for folder in around(path).skip(1) {
            found.extend(self.alive(folder, now).filter(|lock| lock.infinite));
        }
        found
    }
    fn below(&self, path: &[u8], now: i64) -> Vec<&Lock> {
        let prefix = [plain(path), b"/"].concat();
        let inside = self.by_path.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        inside.flat_map(|(_, locks)| locks).filter(|lock| lock.expires > now).collect()
    }
}

impl Locks {
    pub fn new(bytes_max: u64, timeout_max: u64) -> Locks {
        Locks { bytes_max, timeout_max, state: Mutex::default() }
    }
    fn state(&self) -> MutexGuard<'_, LocksState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn granted(&self, timeout: Option<u64>, now: i64) -> i64 {
        now.saturating_add(timeout.unwrap_or(self.timeout_max).clamp(1, self.timeout_max) as i64)
    }

    pub fn covering(&self, path: &[u8], now: i64) -> Vec<Lock> {
        self.state().covering(path, now).into_iter().cloned().collect()
    }

    pub fn take(&self, path: &[u8], token: LockToken, wish: LockRequest, now: i64) -> Result<Lock, NoLock> {
        let mut state = self.state();
        let conflict = |lock: &&Lock| wish.exclusive || lock.exclusive;
        let inside = if wish.infinite { state.below(path, now) } else { Vec::new() };
        if state.covering(path, now).iter().chain(&inside).any(conflict) {
            return Err(NoLock::Locked);
        }
        let expires = self.granted(wish.timeout, now);
        let LockRequest { exclusive, infinite, owner, .. } = wish;
        let lock = Lock { token, root: path.to_vec(), exclusive, infinite, owner, expires };
        if state.bytes + cost(&lock) > self.bytes_max {
            state.sweep(now);
            if state.bytes + cost(&lock) > self.bytes_max {
                return Err(NoLock::Full);
            }
        }
        if state.by_path.get(plain(path)).is_some_and(|locks| locks.len() >= SHARED_MAX) {
            state.retain_at(plain(path), |lock| lock.expires > now);
            if state.alive(plain(path), now).count() >= SHARED_MAX {
                return Err(NoLock::Full);
            }
        }
        state.bytes += cost(&lock);
        let places = state.by_path.entry(plain(path).to_vec()).or_default();
        places.push(lock.clone());
        Ok(lock)
    }

    /// Refreshes one of these locks, if it covers the path.
    pub fn refresh(&self, path: &[u8], tokens: &[LockToken], timeout: Option<u64>, now: i64) -> Option<Lock> {
        let expires = self.granted(timeout, now);
        let mut state = self.state();
        let found = state.covering(path, now).into_iter().find(|lock| tokens.contains(&lock.token)).cloned()?;
        let place = state.by_path.get_mut(plain(&found.root))?;
        let lock = place.iter_mut().find(|lock| lock.token == found.token)?;
        lock.expires = expires;
        Some(lock.clone())
    }

    /// Removes a lock; `false` if none with this token covers the path.
    pub fn release(&self, path: &[u8], token: &LockToken, now: i64) -> bool {
        let mut state = self.state();
        let found = state.covering(path, now).into_iter().find(|lock| lock.token == *token);
        let Some(root) = found.map(|lock| plain(&lock.root).to_vec()) else { return false };
        state.retain_at(&root, |lock| lock.token != *token);
        true
    }

    /// Includes its contents.
    pub fn forget(&self, path: &[u8]) {
        let path = plain(path).to_vec();
        let mut state = self.state();
        let prefix = [path.as_slice(), b"/"].concat();
        let inside = state.by_path.range(prefix.clone()..).map(|(inner, _)| inner);
        let gone: Vec<Vec<u8>> = inside.take_while(|inner| inner.starts_with(&prefix)).cloned().collect();
        for path in gone.iter().chain([&path]) {
            state.retain_at(path, |_| false);
        }
    }

    /// Tells whether a request with these tokens may change the path. `members`: a name appears in its directory, or
    /// disappears (RFC 4918, 7.4); `below`: all its contents disappear.
    pub fn allow(&self, path: &[u8], tokens: &[LockToken], members: bool, below: bool, now: i64) -> bool {
        let state = self.state();
        let mut held = state.covering(path, now);
        if members && let Some(folder) = around(path).nth(1) {
            held.extend(state.alive(folder, now).filter(|lock| !lock.infinite));
        }
        if below {
            held.extend(state.below(path, now));
        }
        // One token of several shared locks on a path suffices.
        held.iter().all(|lock| held.iter().any(|other| other.root == lock.root && tokens.contains(&other.token)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(exclusive: bool, infinite: bool) -> LockRequest {
        LockRequest { exclusive, infinite, owner: Vec::new(), timeout: None }
    }

    #[test]
    fn locks_cover_their_depth() {
        let locks = Locks::new(1 << 20, 60);
        let folder = locks.take(b"/a/", [1; 16], wish(true, true), 0).expect("free");
        assert_eq!(folder.expires, 60);
        for path in [b"/a".as_slice(), b"/a/", b"/a/b", b"/a/b/c"] {
            assert!(!locks.allow(path, &[], false, false, 0), "{}", path.escape_ascii());
            assert!(locks.allow(path, &[[1; 16]], true, true, 0));
            assert_eq!(locks.take(path, [2; 16], wish(true, false), 0), Err(NoLock::Locked));
        }
        for path in [b"/".as_slice(), b"/ab", b"/b", b""] {
            assert!(locks.allow(path, &[], false, false, 0), "{}", path.escape_ascii());
        }
        assert!(!locks.allow(b"/", &[], false, true, 0), "what is below is locked");
        assert!(locks.allow(b"/a/b", &[], true, true, 60), "it has expired");
        assert!(!locks.release(b"/b", &[1; 16], 0) && locks.release(b"/a/b", &[1; 16], 0));
        assert!(locks.allow(b"/a/b", &[], true, true, 0));
        assert_eq!(locks.state().bytes, 0);
    }

    #[test]
    fn a_folders_names_are_locked_with_it() {
        let locks = Locks::new(1 << 20, 60);
        locks.take(b"/a/", [1; 16], wish(true, false), 0).expect("free");
        assert!(locks.allow(b"/a/b", &[], false, false, 0), "what is in the file is not the folder's");
        assert!(!locks.allow(b"/a/b", &[], true, false, 0), "its name is");
        assert!(locks.allow(b"/a/b/c", &[], true, false, 0));
    }

    #[test]
    fn shared_locks() {
        let locks = Locks::new(1 << 20, 60);
        locks.take(b"/a", [1; 16], wish(false, false), 0).expect("free");
        locks.take(b"/a", [2; 16], wish(false, false), 0).expect("shared");
        assert_eq!(locks.take(b"/a", [3; 16], wish(true, false), 0), Err(NoLock::Locked));
        assert!(!locks.allow(b"/a", &[], false, false, 0) && locks.allow(b"/a", &[[2; 16]], false, false, 0));
        assert_eq!(locks.covering(b"/a", 0).len(), 2);
        let prolonged = locks.refresh(b"/a", &[[2; 16]], Some(1000), 30).expect("there");
        assert_eq!((prolonged.expires, prolonged.token), (90, [2; 16]));
        locks.forget(b"/a");
        assert_eq!(locks.covering(b"/a", 0), []);
    }

    #[test]
    fn the_shared_locks_of_a_path_are_bounded() {
        let locks = Locks::new(1 << 20, 60);
        for n in 0..SHARED_MAX {
            locks.take(b"/a/", [n as u8; 16], wish(false, true), 0).expect("shared");
        }
        assert_eq!(locks.take(b"/a/", [99; 16], wish(false, true), 0), Err(NoLock::Full));
        locks.take(b"/a/b", [99; 16], wish(false, true), 0).expect("another path");
        assert_eq!(locks.covering(b"/a/b", 0).len(), SHARED_MAX + 1);
        locks.take(b"/a/", [98; 16], wish(false, true), 60).expect("the others have expired");
        locks.forget(b"/a");
        assert_eq!((locks.covering(b"/a/b", 0).len(), locks.state().bytes), (0, 0));
    }

    #[test]
    fn a_path_is_forgotten_with_its_contents_alone() {
        let locks = Locks::new(1 << 20, 60);
        for (n, path) in ["/a", "/a/b", "/a/b/c", "/a-b", "/ab"].into_iter().enumerate() {
            locks.take(path.as_bytes(), [n as u8; 16], wish(true, false), 0).expect("free");
        }
        assert!(locks.release(b"/a/b", &[1; 16], 0) && !locks.release(b"/a/b", &[1; 16], 0));
        locks.forget(b"/a/");
        let left: Vec<Vec<u8>> = locks.state().by_path.keys().cloned().collect();
        assert_eq!(left, [b"/a-b".to_vec(), b"/ab".to_vec()]);
    }

    #[test]
    fn the_zones_memory_is_bounded() {
        let locks = Locks::new(600, 60);
        locks.take(b"/a", [1; 16], wish(true, false), 0).expect("free");
        locks.take(b"/b", [1; 16], wish(true, false), 0).expect("free");
        assert_eq!(locks.take(b"/c", [1; 16], wish(true, false), 0), Err(NoLock::Full));
        assert!(locks.take(b"/c", [1; 16], wish(true, false), 60).is_ok(), "the others have expired");
    }
}
