//! A group: its lines, and their current servers.

use crate::balance::rounds::Rounds;
use crate::balance::{Attempts, Method};
use crate::health::{Budget, Ejection};
use crate::peer::{Peer, PeerSpec};
use crate::pool::KeepAlive;
use net::Address;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use tokio::sync::Notify;

/// Servers kept per line.
const SERVERS_OF_LINE_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Fixed(Vec<Address>),
    /// Name for the system, once it resolves.
    Named {
        host: String,
        port: u16,
    },
    /// `resolve`: name for the `resolver`, repeated by TTL; `service`: by SRV records.
    Resolved {
        host: String,
        port: u16,
        service: Option<String>,
    },
}

#[derive(Clone, Debug)]
pub struct Line {
    /// Parameters of each server; the address is a placeholder.
    pub spec: PeerSpec,
    pub source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedAddress {
    pub address: SocketAddr,
    /// Name and weight of an SRV record.
    pub record: Option<(String, u32)>,
    /// SRV record of lower priority.
    pub backup: bool,
}

impl ResolvedAddress {
    pub fn plain(ip: IpAddr, port: u16) -> ResolvedAddress {
        ResolvedAddress { address: SocketAddr::new(ip, port), record: None, backup: false }
    }
}

#[derive(Debug, Default)]
pub struct Members {
    pub primary: Vec<Arc<Peer>>,
    pub backup: Vec<Arc<Peer>>,
    pub(crate) total_weight: u64,
    pub(crate) ring: OnceLock<Vec<(u32, usize)>>,
}

impl Members {
    pub fn tries(&self) -> usize {
        self.all().filter(|p| !p.spec.down && !p.spec.drain).count()
    }
    /// Tells whether there is a single server, which is used even after failures, as in nginx.
    pub fn single(&self) -> bool {
        self.primary.len() == 1 && self.backup.is_empty()
    }
    pub fn all(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.primary.iter().chain(&self.backup)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub max: usize,
    pub timeout_ms: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Extras {
    pub queue: Option<Queue>,
    pub ejection: Option<Ejection>,
    pub budget: Option<Budget>,
    /// `zone`: counts per server.
    pub counted: bool,
}

/// An `upstream` block, or the addresses of a name in `proxy_pass`.
#[derive(Debug)]
pub struct Group {
    /// Name of the block, or host and port.
    pub name: String,
    /// Number of the name, for fast comparison; constant over reloads.
    pub(crate) number: u64,
    pub method: Method,
    pub keepalive: KeepAlive,
    /// An `upstream` block, not implied by a URL.
    pub explicit: bool,
    pub lines: Vec<Line>,
    pub extras: Extras,
    pub(crate) waiting: AtomicUsize,
    pub(crate) freed: Notify,
    /// Resolved addresses by line.
    found: Mutex<Vec<Vec<ResolvedAddress>>>,
    members: RwLock<Arc<Members>>,
    pub(crate) rounds: Rounds,
    /// Lock for limits over all threads: `max_conns`, and ejections.
    pub(crate) turn: Mutex<()>,
}

impl Group {
    pub fn new(name: &str, lines: Vec<Line>, method: Method, keepalive: KeepAlive, explicit: bool) -> Group {
        Group::with(name, lines, method, keepalive, explicit, Extras::default())
    }

    pub fn with(
        name: &str,
        lines: Vec<Line>,
        method: Method,
        keepalive: KeepAlive,
        explicit: bool,
        extras: Extras,
    ) -> Group {
        let found = lines.iter().map(|line| remembered_names(name, &line.source)).collect();
        let group = Group {
            name: name.into(),
            number: number(name),
            method,
            keepalive,
            explicit,
            extras,
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            found: Mutex::new(found),
            members: RwLock::new(Arc::new(Members::default())),
            rounds: Rounds::default(),
            turn: Mutex::new(()),
            lines,
        };
        let found = group.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        group.rebuild(&found);
        group
    }

    /// A group for one request, forgotten with it.
    pub fn fleeting(name: &str, addresses: Vec<Address>) -> Group {
        let group = Group::new(name, Vec::new(), Method::RoundRobin, KeepAlive::none(), false);
        let peers = addresses.into_iter().map(|address| Arc::new(Peer::new(PeerSpec::new(name, address))));
        let primary: Vec<_> = peers.collect();
        let members = Members { total_weight: primary.len() as u64, primary, ..Members::default() };
        *group.members.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(members);
        group
    }

    pub fn members(&self) -> Arc<Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    pub fn attempts(&self) -> Attempts {
        Attempts::new(self.members())
    }
    pub fn is_found(&self, line: usize) -> bool {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(line).is_some_and(|servers| !servers.is_empty())
    }

    /// Updates a line's addresses; remaining servers keep their state. Returns whether anything changed.
    pub fn update(&self, line: usize, mut now: Vec<ResolvedAddress>) -> bool {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(known), Some(written)) = (found.get(line), self.lines.get(line)) else { return false };
        now.truncate(SERVERS_OF_LINE_MAX);
        if written.spec.weight != 1 {
            // The line's own weight overrides the records'.
            now.iter_mut().filter_map(|f| f.record.as_mut()).for_each(|record| record.1 = written.spec.weight);
        }
        let mut merged = Vec::with_capacity(now.len());
        for old in known {
            if let Some(at) = now.iter().position(|new| new == old) {
                merged.push(now.remove(at));
            }
        }
        merged.append(&mut now);
        if *known == merged {
            return false;
        }
        remember_names(&self.name, &written.source, &merged);
        found[line] = merged;
        self.rebuild(&found);
        drop(found);
        self.freed.notify_waiters();
        true
    }

    fn rebuild(&self, found: &[Vec<ResolvedAddress>]) {
        let mut specs = Vec::new();
        for (line, found) in self.lines.iter().zip(found) {
            match &line.source {
                Source::Fixed(all) => {
                    specs.extend(all.iter().map(|address| PeerSpec { address: address.clone(), ..line.spec.clone() }));
                }
                _ => specs.extend(found.iter().filter_map(|f| self.spec(line, f))),
            }
        }
        let old = self.members();
        let mut members = Members::default();
        for peer in remember_all(&self.name, specs) {
            if self.extras.counted {
                peer.count(&self.name);
            }
            let list = if peer.spec.backup { &mut members.backup } else { &mut members.primary };
            list.push(peer);
        }
        members.total_weight = members.primary.iter().map(|p| u64::from(p.spec.weight)).sum();
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(members);
        drop(old);
    }

    fn spec(&self, line: &Line, found: &ResolvedAddress) -> Option<PeerSpec> {
        let mut spec = PeerSpec { address: Address::Ip(found.address), ..line.spec.clone() };
        if let Some((name, weight)) = &found.record {
            spec.name.clone_from(name);
            spec.weight = *weight;
        }
        if found.backup {
            // Records of lower priority are backups; unused in a backup line, or without backups.
            if line.spec.backup || !self.method.takes_backups() {
                return None;
            }
            spec.backup = true;
        }
        Some(spec)
    }
}

fn number(name: &str) -> u64 {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    KEYS.get_or_init(RandomState::new).hash_one(name)
}

/// Last resolved addresses, from which a reload starts.
type Names = HashMap<(String, String), Vec<ResolvedAddress>>;
static NAMES: Mutex<Option<Names>> = Mutex::new(None);
/// Remembered names at most.
const NAMES_MAX: usize = 10_000;

fn name_of(source: &Source) -> Option<String> {
    match source {
        Source::Fixed(_) => None,
        Source::Named { host, .. } => Some(host.to_ascii_lowercase()),
        Source::Resolved { host, service: None, .. } => Some(format!("{} resolve", host.to_ascii_lowercase())),
        Source::Resolved { host, service: Some(service), .. } => {
            Some(format!("{} {service}", host.to_ascii_lowercase()))
        }
    }
}

fn remember_names(group: &str, source: &Source, found: &[ResolvedAddress]) {
    let Some(name) = name_of(source) else { return };
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if names.len() >= NAMES_MAX {
        names.clear();
    }
    names.insert((group.to_string(), name), found.to_vec());
}

fn remembered_names(group: &str, source: &Source) -> Vec<ResolvedAddress> {
    let Some(name) = name_of(source) else { return Vec::new() };
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = names.as_ref().and_then(|n| n.get(&(group.to_string(), name))).cloned().unwrap_or_default();
    if let Source::Named { port, .. } | Source::Resolved { port, service: None, .. } = source {
        found.iter_mut().for_each(|f| f.address.set_port(*port));
    }
    found
}

/// Identity of a server over reloads, which keeps its state.
#[derive(PartialEq, Eq, Hash)]
struct PeerId {
    group: Arc<str>,
    spec: PeerSpec,
    /// Equal preceding lines: repeated lines have separate counters.
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
    fn get(&mut self, id: PeerId) -> Arc<Peer> {
        if let Some(peer) = self.known.get(&id).and_then(Weak::upgrade) {
            return peer;
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, peer| peer.strong_count() > 0);
            self.sweep_at = SWEEP_AT_MIN.max(self.known.len() * 2);
        }
        let peer = Arc::new(Peer::new(id.spec.clone()));
        self.known.insert(id, Arc::downgrade(&peer));
        peer
    }
}

/// Servers of a group's lines, known ones with their state.
fn remember_all(group: &str, specs: Vec<PeerSpec>) -> Vec<Arc<Peer>> {
    static PEERS: Mutex<Option<Peers>> = Mutex::new(None);
    let mut seen: HashMap<&PeerSpec, usize> = HashMap::with_capacity(specs.len());
    let times = |spec| {
        let times = seen.entry(spec).or_default();
        *times += 1;
        *times - 1
    };
    let before: Vec<usize> = specs.iter().map(times).collect();
    let group: Arc<str> = group.into();
    let mut peers = PEERS.lock().unwrap_or_else(PoisonError::into_inner);
    let peers = peers.get_or_insert_default();
    let id = |(spec, before)| PeerId { group: group.clone(), spec, before };
    specs.into_iter().zip(before).map(id).map(|id| peers.get(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(spec: PeerSpec) -> Line {
        Line { source: Source::Fixed(vec![spec.address.clone()]), spec }
    }

    fn group(name: &str, lines: Vec<Line>) -> Group {
        Group::new(name, lines, Method::RoundRobin, KeepAlive::default(), true)
    }

    fn names(group: &Group) -> (Vec<String>, Vec<String>) {
        let members = group.members();
        let texts = |list: &[Arc<Peer>]| list.iter().map(|p| format!("{} {}", p.text, p.spec.weight)).collect();
        (texts(&members.primary), texts(&members.backup))
    }

    #[test]
    fn a_line_written_twice_is_two_servers() {
        let spec = PeerSpec::new("a", Address::Unix("a".into()));
        let down = PeerSpec { down: true, ..PeerSpec::new("b", Address::Unix("b".into())) };
        let lines = || vec![fixed(spec.clone()), fixed(spec.clone()), fixed(down.clone())];
        let first = group("twice", lines());
        let members = first.members();
        assert!(!Arc::ptr_eq(&members.primary[0], &members.primary[1]));
        assert_eq!(members.tries(), 2);
        assert!(Arc::ptr_eq(&members.primary[1], &group("twice", lines()).members().primary[1]));
    }

    #[test]
    fn a_server_keeps_its_state_until_its_line_changes_or_no_group_has_it() {
        let lines = |max_fails, count| -> Vec<Line> {
            let spec = |n| PeerSpec { max_fails, ..PeerSpec::new("p", Address::Ip(([127, 0, 0, 1], n).into())) };
            (1..=count).map(spec).map(fixed).collect()
        };
        let first = group("kept", lines(1, 200));
        let again = group("kept", lines(1, 200));
        let (before, after) = (first.members(), again.members());
        assert!(before.primary.iter().zip(&after.primary).all(|(one, other)| Arc::ptr_eq(one, other)));
        for (name, max_fails) in [("kept", 2), ("another", 1)] {
            let other = group(name, lines(max_fails, 1));
            assert!(!Arc::ptr_eq(&other.members().primary[0], &before.primary[0]), "{name} {max_fails}");
        }
    }

    #[test]
    fn servers_that_no_group_has_are_forgotten() {
        let id = |n: usize| PeerId {
            group: "g".into(),
            spec: PeerSpec::new(format!("s{n}"), Address::Unix("s".into())),
            before: 0,
        };
        let mut peers = Peers::default();
        let kept = peers.get(id(0));
        for n in 1..1000 {
            peers.get(id(n));
        }
        assert!(peers.known.len() <= SWEEP_AT_MIN, "{}", peers.known.len());
        assert!(Arc::ptr_eq(&peers.get(id(0)), &kept));
    }

    #[test]
    fn names_change_and_those_who_stay_keep_their_state() {
        let line = || Line {
            spec: PeerSpec::new("n:81", Address::Unix("".into())),
            source: Source::Resolved { host: "n".into(), port: 81, service: None },
        };
        let g = group("names", vec![line()]);
        assert_eq!(g.members().primary.len(), 0);
        let found = |last: u8| ResolvedAddress::plain(IpAddr::from([127, 0, 0, last]), 81);
        assert!(g.update(0, vec![found(1), found(2)]));
        let second = g.members().primary[1].clone();
        assert!(!g.update(0, vec![found(2), found(1)]), "another order is nothing new");
        assert!(g.update(0, vec![found(3), found(2)]));
        let members = g.members();
        assert!(Arc::ptr_eq(&members.primary[0], &second));
        assert_eq!(names(&g).0, ["127.0.0.2:81 1", "127.0.0.3:81 1"]);
        let mut moved = line();
        moved.source = Source::Resolved { host: "N".into(), port: 82, service: None };
        assert_eq!(names(&group("names", vec![moved])).0, ["127.0.0.2:82 1", "127.0.0.3:82 1"], "a reload remembers");
    }

    #[test]
    fn a_name_stands_for_so_many_servers() {
        let line = Line {
            spec: PeerSpec::new("m:80", Address::Unix("".into())),
            source: Source::Resolved { host: "m".into(), port: 80, service: None },
        };
        let g = group("many", vec![line]);
        let found = |n: usize| ResolvedAddress::plain(IpAddr::from([127, 1, (n >> 8) as u8, n as u8]), 80);
        assert!(g.update(0, (0..2 * SERVERS_OF_LINE_MAX).map(found).collect()));
        assert_eq!(g.members().primary.len(), SERVERS_OF_LINE_MAX);
    }

    #[test]
    fn services_bring_weights_and_backups() {
        let line = |weight| Line {
            spec: PeerSpec { weight, ..PeerSpec::new("n", Address::Unix("".into())) },
            source: Source::Resolved { host: "n".into(), port: 80, service: Some("http".into()) },
        };
        let found = |last: u8, weight, backup| ResolvedAddress {
            address: SocketAddr::from(([127, 0, 0, last], 90)),
            record: Some(("s.n".into(), weight)),
            backup,
        };
        let g = group("service", vec![line(1)]);
        g.update(0, vec![found(1, 5, false), found(2, 6, true)]);
        assert_eq!(names(&g), (vec!["127.0.0.1:90 5".into()], vec!["127.0.0.2:90 6".into()]));
        let g = group("service of weight", vec![line(3)]);
        g.update(0, vec![found(1, 5, false)]);
        assert_eq!(names(&g).0, ["127.0.0.1:90 3"]);
    }
}
