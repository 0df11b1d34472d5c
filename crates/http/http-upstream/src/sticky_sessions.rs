//! Sessions of `sticky learn`: the server of each, on this node and with `sync` on all nodes of the `shared_store`.

use arc_swap::ArcSwapOption;
use base::clock::{self, Instant};
use md5::{Digest, Md5};
use shared_store::{LocalMap, LocalValue, MapReplica, StoreAgent};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of a session in its zone, in bytes (nginx: about 8,000 in 1m).
const SESSION_BYTES: u64 = 128;

/// The sessions of a zone with their servers. Names are stored as digests.
pub struct Sessions {
    max: usize,
    /// Of the last configuration, in milliseconds.
    timeout: AtomicU64,
    state: Mutex<State>,
    /// Tells the other nodes of changes.
    sharing: ArcSwapOption<MapReplica>,
}

type Key = [u8; 16];

#[derive(Default)]
struct State {
    servers: HashMap<Key, LearnedServer>,
    order: BTreeSet<(Instant, Key)>,
    /// Sessions of `servers` that the other nodes have to hear of, if they are shared.
    changed: BTreeSet<Key>,
}

struct LearnedServer {
    server: String,
    used: Instant,
    /// End of the session as the other nodes know it, in milliseconds since 1970; 0 if they do not.
    told_end: u64,
}

impl State {
    /// Sets a session's server. The one that was used least recently makes room.
    fn put(&mut self, key: Key, server: &str, used: Instant, told_end: u64, max: usize) {
        self.remove(&key);
        if self.servers.len() >= max
            && let Some((_, oldest)) = self.order.first().copied()
        {
            self.remove(&oldest);
        }
        self.servers.insert(key, LearnedServer { server: server.into(), used, told_end });
        self.order.insert((used, key));
    }
    fn remove(&mut self, key: &Key) {
        if let Some(learned) = self.servers.remove(key) {
            self.order.remove(&(learned.used, *key));
            self.changed.remove(key);
        }
    }
    fn forget(&mut self, before: Instant) {
        while let Some((used, key)) = self.order.first().copied().filter(|(used, _)| *used <= before) {
            self.order.remove(&(used, key));
            self.servers.remove(&key);
            self.changed.remove(&key);
        }
    }
}

impl Sessions {
    /// Creates a table for as many sessions as fit `bytes` bytes.
    pub fn new(bytes: u64) -> Sessions {
        let max = (bytes / SESSION_BYTES).max(1) as usize;
        Sessions { max, timeout: AtomicU64::new(0), state: Mutex::default(), sharing: ArcSwapOption::empty() }
    }

    /// Begins to share the sessions with the nodes of a store, under a name. `timeout_ms` ends a session that is not used.
    pub fn begin_sharing(self: &Arc<Self>, agent: &Arc<StoreAgent>, space: &str, timeout_ms: u64) {
        self.timeout.store(timeout_ms, Ordering::Relaxed);
        let replica = agent.share_map(space, Arc::new(SharedSessions(self.clone())));
        self.sharing.store(Some(replica));
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn find(&self, session: &[u8], now: Instant, timeout_ms: u64) -> Option<String> {
        let key: Key = Md5::digest(session).into();
        self.with(|state| {
            state.forget(Instant(now.0.saturating_sub(timeout_ms.saturating_mul(1000))));
            state.servers.get(&key).map(|learned| learned.server.clone())
        })
    }

    /// Records a session's server; `make`: creates unknown sessions.
    pub(crate) fn note(&self, session: &[u8], server: &str, now: Instant, timeout_ms: u64, make: bool) {
        let key: Key = Md5::digest(session).into();
        let sharing = self.sharing.load();
        let is_told = self.with(|state| {
            state.forget(Instant(now.0.saturating_sub(timeout_ms.saturating_mul(1000))));
            let known = state.servers.get(&key).map(|learned| (learned.server == server, learned.told_end));
            if known.is_none() && !make {
                return false;
            }
            // Half of the time passes before the others hear of a use.
            let is_news = known
                .is_none_or(|(is_same, told)| !is_same || told < clock::unix_millis().saturating_add(timeout_ms / 2));
            let is_queued = state.changed.contains(&key);
            state.put(key, server, now, known.map_or(0, |(_, told)| told), self.max);
            if sharing.is_some() && (is_news || is_queued) {
                state.changed.insert(key);
            }
            is_news && !is_queued
        });
        if let Some(sharing) = sharing.as_ref().filter(|_| is_told) {
            sharing.announce_changes();
        }
    }
}

/// The table as the store sees it. Keys of records are digests of sessions.
struct SharedSessions(Arc<Sessions>);

impl SharedSessions {
    fn timeout_micros(&self) -> u64 {
        self.0.timeout.load(Ordering::Relaxed).saturating_mul(1000)
    }
}

impl LocalMap for SharedSessions {
    fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
        let key: Key = key.try_into().ok()?;
        self.0.with(|state| {
            let learned = state.servers.get(&key)?;
            Some((learned.server.clone().into_bytes(), Some(learned.told_end)))
        })
    }

    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool {
        // Another program's data has no place here.
        let Ok(key) = Key::try_from(key) else { return false };
        let Some(value) = value else {
            self.0.with(|state| state.remove(&key));
            return true;
        };
        let Ok(server) = std::str::from_utf8(value) else { return false };
        let (now, end) = (clock::unix_millis(), expires.unwrap_or(0));
        let left = end.saturating_sub(now).saturating_mul(1000);
        let used = clock::now().0.saturating_add(left).saturating_sub(self.timeout_micros());
        self.0.with(|state| state.put(key, server, Instant(used.min(clock::now().0)), end, self.0.max));
        true
    }

    fn local_keys(&self) -> Vec<Vec<u8>> {
        let end = clock::unix_millis().saturating_add(self.0.timeout.load(Ordering::Relaxed));
        self.0.with(|state| {
            state.servers.values_mut().for_each(|learned| learned.told_end = end);
            state.servers.keys().map(|key| key.to_vec()).collect()
        })
    }

    fn local_identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn changed_keys(&self, now: u64) -> Vec<Vec<u8>> {
        let end = now.saturating_add(self.0.timeout.load(Ordering::Relaxed));
        self.0.with(|state| {
            let mut changed = std::mem::take(&mut state.changed);
            changed.retain(|key| state.servers.get_mut(key).map(|learned| learned.told_end = end).is_some());
            changed.iter().map(|key| key.to_vec()).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_kept_moved_and_forgotten() {
        let sessions = Sessions::new(2 * SESSION_BYTES);
        let at = |ms: u64| Instant(1_000_000 + ms * 1000);
        let find = |name: &str, ms| sessions.find(name.as_bytes(), at(ms), 100);
        sessions.note(b"a", "one", at(0), 100, true);
        sessions.note(b"b", "two", at(10), 100, false);
        assert_eq!((find("a", 20).as_deref(), find("b", 20)), (Some("one"), None));
        sessions.note(b"a", "two", at(50), 100, false);
        assert_eq!(find("a", 140).as_deref(), Some("two"), "used since");
        assert_eq!(find("a", 150), None, "its time is over");
        for (index, name) in ["x", "y", "z"].iter().enumerate() {
            sessions.note(name.as_bytes(), "one", at(200 + index as u64), 100, true);
        }
        assert_eq!((find("x", 210), find("z", 210).is_some()), (None, true), "the oldest makes room");
    }
    #[test]
    fn changes_wait_for_the_store_once_each_and_end_with_their_sessions() {
        let agent = Arc::new(StoreAgent::start(options()).expect("a thread"));
        let sessions = Arc::new(Sessions::new(2 * SESSION_BYTES));
        sessions.begin_sharing(&agent, "sticky:test", 3_600_000);
        let shared = SharedSessions(sessions.clone());
        let now = clock::now();
        let note = |session: &str, server: &str| sessions.note(session.as_bytes(), server, now, 3_600_000, true);
        (0..100).for_each(|_| note("a", "one"));
        assert_eq!(sessions.with(|state| state.changed.len()), 1);
        let unix = clock::unix_millis();
        assert_eq!(shared.changed_keys(unix).len(), 1);
        note("a", "one");
        assert!(shared.changed_keys(unix).is_empty(), "the others know");
        note("a", "two");
        note("a", "two");
        assert_eq!(shared.changed_keys(unix).len(), 1, "another server");
        ["b", "c", "d", "e"].iter().for_each(|session| note(session, "one"));
        assert_eq!(sessions.with(|state| (state.servers.len(), state.changed.len())), (2, 2));
    }

    /// Of a store that is not there.
    fn options() -> shared_store::AgentOptions {
        shared_store::AgentOptions {
            address: shared_store::StoreAddress::parse("redis+unix:/nonexistent/redis.sock").expect("an address"),
            password: None,
            authorities: None,
            certificate: None,
            prefix: "test".into(),
            patience: std::time::Duration::from_millis(50),
            loss: shared_store::StoreLoss::Local,
            node: 1,
            report: Box::new(|_, _| {}),
        }
    }
}
