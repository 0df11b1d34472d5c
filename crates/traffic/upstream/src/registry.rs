//! State that outlives a configuration: resolved names, and servers with their state.

use crate::line::ServerSource;
use crate::peer::{Peer, PeerSpec};
use resolver::ResolvedAddress;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// Last resolved addresses, from which a reload starts.
#[derive(Default)]
struct KnownNames {
    known: HashMap<(String, String), RememberedName>,
    /// Number of the last change.
    changes: u64,
}
struct RememberedName {
    found: Vec<ResolvedAddress>,
    changed: u64,
}
static NAMES: LazyLock<Mutex<KnownNames>> = LazyLock::new(Mutex::default);
/// Remembered names at most.
const NAMES_MAX: usize = 10_000;

impl KnownNames {
    /// Remembers addresses. Without room, the tenth that was not resolved for the longest time is forgotten.
    fn insert(&mut self, id: (String, String), found: Vec<ResolvedAddress>) {
        if self.known.len() >= NAMES_MAX && !self.known.contains_key(&id) {
            let mut ages: Vec<u64> = self.known.values().map(|name| name.changed).collect();
            let (_, oldest, _) = ages.select_nth_unstable(NAMES_MAX / 10);
            let oldest = *oldest;
            self.known.retain(|_, name| name.changed >= oldest);
        }
        self.changes += 1;
        self.known.insert(id, RememberedName { found, changed: self.changes });
    }
}

fn name_of(source: &ServerSource) -> Option<String> {
    match source {
        ServerSource::Fixed(_) => None,
        ServerSource::Named { host, .. } => Some(host.to_ascii_lowercase()),
        ServerSource::Resolved { host, service: None, .. } => Some(format!("{} resolve", host.to_ascii_lowercase())),
        ServerSource::Resolved { host, service: Some(service), .. } => {
            Some(format!("{} {service}", host.to_ascii_lowercase()))
        }
    }
}

pub(crate) fn remember_names(group: &str, source: &ServerSource, found: &[ResolvedAddress]) {
    let Some(name) = name_of(source) else { return };
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.insert((group.to_string(), name), found.to_vec());
}

pub(crate) fn remembered_names(group: &str, source: &ServerSource) -> Vec<ResolvedAddress> {
    let Some(name) = name_of(source) else { return Vec::new() };
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = names.known.get(&(group.to_string(), name));
    let mut found = known.map(|name| name.found.clone()).unwrap_or_default();
    drop(names);
    if let ServerSource::Named { port, .. } | ServerSource::Resolved { port, service: None, .. } = source {
        found.iter_mut().for_each(|f| f.address.set_port(*port));
    }
    found
}

/// Identity of a server over reloads, which keeps its state.
#[derive(PartialEq, Eq, Hash)]
struct PeerId {
    group: Arc<str>,
    /// Number of its line in the group's roster; 0: none.
    line: u64,
    spec: PeerSpec,
    /// Equal preceding ones: repeated lines have separate counters.
    before: usize,
}

#[derive(Default)]
struct Peers {
    known: HashMap<PeerId, Weak<Peer>>,
    /// Number of entries at which unused ones are removed.
    sweep_at: usize,
}

const SWEEP_AT_MIN: usize = 64;

impl Peers {
    fn get(&mut self, id: PeerId, make: impl FnOnce(&PeerId) -> Peer) -> Arc<Peer> {
        if let Some(peer) = self.known.get(&id).and_then(Weak::upgrade) {
            return peer;
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, peer| peer.strong_count() > 0);
            self.sweep_at = SWEEP_AT_MIN.max(self.known.len() * 2);
        }
        let peer = Arc::new(make(&id));
        self.known.insert(id, Arc::downgrade(&peer));
        peer
    }
}

/// A future server: the number of its line; `true` if it is the only one of the line, whose number it then gets.
pub(crate) type FutureServer = (u64, bool, PeerSpec);

/// Servers of a group's lines; known ones with their state. With a roster, a server of changed parameters continues the
/// state of its predecessor in `before`.
pub(crate) fn remember_all(
    group: &str,
    specs: Vec<FutureServer>,
    next_number: Option<&dyn Fn() -> u64>,
    before: &[Arc<Peer>],
) -> Vec<Arc<Peer>> {
    static PEERS: Mutex<Option<Peers>> = Mutex::new(None);
    let mut seen: HashMap<&FutureServer, usize> = HashMap::with_capacity(specs.len());
    let times = |spec| {
        let times = seen.entry(spec).or_default();
        *times += 1;
        *times - 1
    };
    let repeated: Vec<usize> = specs.iter().map(times).collect();
    let group: Arc<str> = group.into();
    let make = |id: &PeerId, only: bool| {
        let Some(next_number) = next_number else { return Peer::new(id.spec.clone(), 0) };
        let same = |peer: &&Arc<Peer>| peer.line == id.line && peer.spec.address == id.spec.address;
        match before.iter().find(same) {
            Some(old) => {
                let peer = Peer { line: id.line, ..Peer::with(id.spec.clone(), old.number, old.live.clone()) };
                peer.renew_weight();
                peer
            }
            None => {
                let number = if only { id.line } else { next_number() };
                Peer { line: id.line, ..Peer::new(id.spec.clone(), number) }
            }
        }
    };
    let mut peers = PEERS.lock().unwrap_or_else(PoisonError::into_inner);
    let peers = peers.get_or_insert_default();
    let id = |((line, only, spec), before)| (only, PeerId { group: group.clone(), line, spec, before });
    let all = specs.into_iter().zip(repeated).map(id);
    all.map(|(only, id)| peers.get(id, |id| make(id, only))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Address;

    #[test]
    fn names_in_use_are_remembered_beyond_the_limit() {
        let mut names = KnownNames::default();
        let id = |n: usize| ("g".to_string(), format!("host-{n}"));
        for n in 0..NAMES_MAX {
            names.insert(id(n), Vec::new());
        }
        // The first half is resolved again.
        for n in 0..NAMES_MAX / 2 {
            names.insert(id(n), Vec::new());
        }
        names.insert(id(NAMES_MAX), Vec::new());
        assert_eq!(names.known.len(), NAMES_MAX - NAMES_MAX / 10 + 1);
        assert!((0..NAMES_MAX / 2).chain([NAMES_MAX]).all(|n| names.known.contains_key(&id(n))));
    }

    #[test]
    fn servers_that_no_group_has_are_forgotten() {
        let id = |n: usize| PeerId {
            group: "g".into(),
            line: 0,
            spec: PeerSpec::new(format!("s{n}"), Address::Unix("s".into())),
            before: 0,
        };
        let make = |id: &PeerId| Peer::new(id.spec.clone(), 0);
        let mut peers = Peers::default();
        let kept = peers.get(id(0), make);
        for n in 1..1000 {
            peers.get(id(n), make);
        }
        assert!(peers.known.len() <= SWEEP_AT_MIN, "{}", peers.known.len());
        assert!(Arc::ptr_eq(&peers.get(id(0), make), &kept));
    }
}
