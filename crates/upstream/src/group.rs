//! A group of servers and what is known of each.

use crate::balance::Method;
use crate::pool::KeepAlive;
use crate::stream::Address;
use base::clock::Instant;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// One `server` line of an `upstream` block, for one of its addresses.
#[derive(Clone, Debug)]
pub struct PeerSpec {
    /// As written: for `$upstream_addr`-like messages and hashing.
    pub name: String,
    pub address: Address,
    pub weight: u32,
    /// Connections at a time; 0: no limit.
    pub max_conns: u32,
    /// 0: failures do not count.
    pub max_fails: u32,
    pub fail_timeout_ms: u64,
    pub slow_start_ms: u64,
    pub backup: bool,
    pub down: bool,
    /// `route=`
    pub route: String,
}

impl PeerSpec {
    pub fn new(name: impl Into<String>, address: Address) -> PeerSpec {
        PeerSpec {
            name: name.into(),
            address,
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout_ms: 10_000,
            slow_start_ms: 0,
            backup: false,
            down: false,
            route: String::new(),
        }
    }
}

/// A server and its counters.
#[derive(Debug)]
pub struct Peer {
    pub spec: PeerSpec,
    /// Connections in use, of all threads.
    pub active: AtomicU64,
    state: Mutex<State>,
}

/// What balancing changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub current: i64,
    pub effective: i64,
    pub fails: u32,
    pub accessed: Instant,
    pub checked: Instant,
    /// Averages over time of response times (`least_time`), in microseconds.
    pub header_time: u64,
    pub last_byte_time: u64,
}

impl Peer {
    fn new(spec: PeerSpec) -> Peer {
        let effective = i64::from(spec.weight);
        Peer {
            spec,
            active: AtomicU64::new(0),
            state: Mutex::new(State {
                current: 0,
                effective,
                fails: 0,
                accessed: Instant(0),
                checked: Instant(0),
                header_time: 0,
                last_byte_time: 0,
            }),
        }
    }
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        // A panic while the lock is held can only come from arithmetic that is checked: the numbers stay usable.
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        f(&mut state)
    }
    /// A request to it went wrong.
    pub fn failed(&self, now: Instant) {
        let spec = &self.spec;
        self.with(|s| {
            s.fails += 1;
            s.accessed = now;
            s.checked = now;
            if let Some(share) = spec.weight.checked_div(spec.max_fails) {
                s.effective = (s.effective - i64::from(share)).max(0);
            }
        });
    }
    /// A request to it went well.
    pub fn succeeded(&self) {
        self.with(|s| {
            if s.accessed < s.checked {
                s.fails = 0;
            }
        });
    }
    /// It is not asked at the moment: too many failures in too short a time, or too many connections.
    pub fn unavailable(&self, now: Instant) -> bool {
        let spec = &self.spec;
        if spec.max_conns > 0 && self.active.load(Ordering::Relaxed) >= u64::from(spec.max_conns) {
            return true;
        }
        self.with(|s| {
            spec.max_fails > 0
                && s.fails >= spec.max_fails
                && now.millis_since(s.checked) <= spec.fail_timeout_ms
                && s.checked.0 > 0
        })
    }
    /// Notes how long it took to answer.
    pub fn took(&self, header_us: u64, whole_us: u64) {
        self.with(|s| {
            let average = |old: u64, new: u64| if old == 0 { new } else { (old * 3 + new) / 4 };
            s.header_time = average(s.header_time, header_us);
            s.last_byte_time = average(s.last_byte_time, whole_us);
        });
    }
}

/// A group: an `upstream` block, or the addresses of a name in `proxy_pass`.
#[derive(Debug)]
pub struct Group {
    /// `upstream` block's name, or host and port.
    pub name: String,
    pub peers: Vec<Arc<Peer>>,
    pub method: Method,
    pub keepalive: KeepAlive,
    /// One for all threads: a round-robin step reads and writes every peer.
    pub(crate) turn: Mutex<()>,
    pub(crate) ring: std::sync::OnceLock<Vec<(u32, usize)>>,
    /// Written as an `upstream` block (its servers may be unavailable together), not implied by a URL.
    pub explicit: bool,
}

impl Group {
    pub fn new(name: &str, specs: Vec<PeerSpec>, method: Method, keepalive: KeepAlive, explicit: bool) -> Group {
        Group {
            name: name.into(),
            peers: remember_all(name, specs),
            method,
            keepalive,
            turn: Mutex::new(()),
            ring: std::sync::OnceLock::new(),
            explicit,
        }
    }
    /// How many servers a request may try: those that the configuration does not exclude.
    pub fn tries(&self) -> usize {
        self.peers.iter().filter(|p| !p.spec.down).count()
    }
    /// Nothing but one server: it is asked even when it failed before, as in nginx.
    pub fn single(&self) -> bool {
        self.peers.len() == 1
    }
}

/// The same line written twice means two servers, each with its own counters.
fn remember_all(group: &str, specs: Vec<PeerSpec>) -> Vec<Arc<Peer>> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut peers = Vec::with_capacity(specs.len());
    for spec in specs {
        let times = seen.entry(format!("{spec:?}")).or_default();
        *times += 1;
        peers.push(remembered(group, spec, *times));
    }
    peers
}

/// Peers by group, specification and occurrence: a server that a reload leaves as it was keeps its state.
fn remembered(group: &str, spec: PeerSpec, occurrence: usize) -> Arc<Peer> {
    type Key = (String, String, usize);
    static PEERS: Mutex<Option<HashMap<Key, std::sync::Weak<Peer>>>> = Mutex::new(None);
    let mut all = PEERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let all = all.get_or_insert_default();
    all.retain(|_, peer| peer.strong_count() > 0);
    let key = (group.to_string(), format!("{spec:?}"), occurrence);
    if let Some(peer) = all.get(&key).and_then(std::sync::Weak::upgrade) {
        return peer;
    }
    let peer = Arc::new(Peer::new(spec));
    all.insert(key, Arc::downgrade(&peer));
    peer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_written_twice_is_two_servers() {
        let spec = PeerSpec::new("a", Address::Unix("a".into()));
        let down = PeerSpec { down: true, ..PeerSpec::new("b", Address::Unix("b".into())) };
        let specs = vec![spec.clone(), spec, down];
        let group = Group::new("twice", specs.clone(), Method::RoundRobin, KeepAlive::default(), true);
        assert!(!Arc::ptr_eq(&group.peers[0], &group.peers[1]));
        assert_eq!(group.tries(), 2);
        let reloaded = Group::new("twice", specs, Method::RoundRobin, KeepAlive::default(), true);
        assert!(Arc::ptr_eq(&group.peers[1], &reloaded.peers[1]));
    }
}
