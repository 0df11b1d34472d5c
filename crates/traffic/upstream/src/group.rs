//! A group: its lines, and their current servers.

use crate::balance::rounds::Rounds;
use crate::balance::{Attempts, BalanceMethod};
use crate::health::{Budget, Ejection};
use crate::keep_alive::KeepAlive;
use crate::line::{Entry, LineOrigin};
pub use crate::line::{ServerLine, ServerSource};
use crate::peer::{Peer, PeerSpec};
use crate::registry::{remember_all, remember_names, remembered_names};
use crate::roster::{Follower, Roster};
use net::Address;
use resolver::ResolvedAddress;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use tokio::sync::Notify;

/// The servers of a group at one time. A change makes new ones; requests keep those that they began with.
#[derive(Debug, Default)]
pub struct Members {
    /// Servers without `backup`.
    pub primary: Vec<Arc<Peer>>,
    /// Servers with `backup`, used when no other is left.
    pub backup: Vec<Arc<Peer>>,
    pub(crate) total_weight: u64,
    pub(crate) ring: OnceLock<Vec<(u32, usize)>>,
}

impl Members {
    /// Returns the number of servers that are neither `down` nor draining.
    pub fn tries(&self) -> usize {
        self.all().filter(|p| !p.spec.down && !p.spec.drain).count()
    }
    /// A single server is used even after failures, as in nginx.
    pub fn single(&self) -> bool {
        self.primary.len() == 1 && self.backup.is_empty()
    }
    /// Returns primary servers, then backup servers.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.primary.iter().chain(&self.backup)
    }
}

/// `queue`: requests that wait while no server can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Requests that may wait.
    pub max: usize,
    /// Longest wait in milliseconds.
    pub timeout_ms: u64,
}

/// Settings of a group that few groups have.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// `queue`.
    pub queue: Option<Queue>,
    /// `outlier_ejection`.
    pub ejection: Option<Ejection>,
    /// `retry_budget`.
    pub budget: Option<Budget>,
    /// `zone`: counts per server.
    pub counted: bool,
    /// A group of the stream area.
    pub stream: bool,
    /// Servers that outlive the configuration, and the numbers of all; with `zone`.
    pub roster: Option<Arc<Roster>>,
}

/// An `upstream` block, or the addresses of a name in `proxy_pass`.
#[derive(Debug)]
pub struct Group {
    /// Name of the block, or host and port.
    pub name: String,
    /// Number of the name, for fast comparison; constant over reloads.
    pub(crate) number: u64,
    /// The way of selecting a server.
    pub method: BalanceMethod,
    /// Limits of idle connections.
    pub keepalive: KeepAlive,
    /// An `upstream` block, not implied by a URL.
    pub explicit: bool,
    /// Further settings.
    pub extras: Extras,
    pub(crate) waiting: AtomicUsize,
    pub(crate) overflows: AtomicU64,
    pub(crate) freed: Notify,
    entries: Mutex<Vec<Entry>>,
    /// Changes of `entries`, but for addresses.
    generation: AtomicU64,
    changed: Notify,
    /// Checks that every server must pass before its first request (`mandatory`).
    first_checks: Mutex<Vec<String>>,
    members: RwLock<Arc<Members>>,
    pub(crate) rounds: Rounds,
    /// Lock for limits over all threads: `max_conns`, and ejections.
    pub(crate) turn: Mutex<()>,
}

impl Group {
    /// Number of the name, constant over reloads.
    pub fn number(&self) -> u64 {
        self.number
    }
    /// Creates a group without further settings.
    pub fn new(
        name: &str,
        lines: Vec<ServerLine>,
        method: BalanceMethod,
        keepalive: KeepAlive,
        explicit: bool,
    ) -> Group {
        Group::with(name, lines, method, keepalive, explicit, Extras::default())
    }

    /// Creates a group. Servers that the previous configuration has with equal parameters continue their state. With a
    /// roster, lines get numbers, lines that the API added join them, and servers of changed parameters continue their
    /// state, too.
    pub fn with(
        name: &str,
        lines: Vec<ServerLine>,
        method: BalanceMethod,
        keepalive: KeepAlive,
        explicit: bool,
        extras: Extras,
    ) -> Group {
        let mut group = Group {
            name: name.into(),
            number: number(name),
            method,
            keepalive,
            explicit,
            extras,
            waiting: AtomicUsize::new(0),
            overflows: AtomicU64::new(0),
            freed: Notify::new(),
            entries: Mutex::default(),
            generation: AtomicU64::new(0),
            changed: Notify::new(),
            first_checks: Mutex::default(),
            members: RwLock::new(Arc::new(Members::default())),
            rounds: Rounds::default(),
            turn: Mutex::new(()),
        };
        let file: Vec<Entry> = match &group.extras.roster {
            Some(roster) => roster.number_lines(lines),
            None => lines.into_iter().map(|line| Entry::new(0, line, LineOrigin::File)).collect(),
        };
        let added = group.extras.roster.as_ref().map(|roster| roster.added()).unwrap_or_default();
        let mut entries: Vec<Entry> = file.into_iter().chain(added).collect();
        for entry in &mut entries {
            entry.found = remembered_names(&group.key(), &entry.line.source);
        }
        let before = group.extras.roster.as_ref().map(|roster| roster.peers()).unwrap_or_default();
        group.rebuild(&entries, &before);
        *group.entries.get_mut().unwrap_or_else(PoisonError::into_inner) = entries;
        group
    }

    /// A group for one request, forgotten with it.
    pub fn fleeting(name: &str, addresses: Vec<Address>) -> Group {
        let group = Group::new(name, Vec::new(), BalanceMethod::RoundRobin, KeepAlive::none(), false);
        let peers = addresses.into_iter().map(|address| Arc::new(Peer::new(PeerSpec::new(name, address), 0)));
        let primary: Vec<_> = peers.collect();
        let members = Members { total_weight: primary.len() as u64, primary, ..Members::default() };
        *group.members.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(members);
        group
    }

    /// Returns the present servers.
    pub fn members(&self) -> Arc<Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Begins the choices of a request.
    pub fn attempts(&self) -> Attempts {
        Attempts::new(self.members())
    }
    /// Name that no group of the other area has.
    pub(crate) fn key(&self) -> String {
        if self.extras.stream { format!("stream {}", self.name) } else { self.name.clone() }
    }
    pub(crate) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns a copy of the lines, in their order.
    pub fn lines(&self) -> Vec<Entry> {
        self.entries().clone()
    }
    /// Grows with every change of the lines.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
    /// Waits for a change of the lines after `seen`, a number of [`Group::generation`].
    pub async fn changed_since(&self, seen: u64) {
        loop {
            let changed = self.changed.notified();
            if self.generation() != seen {
                return;
            }
            changed.await;
        }
    }
    /// Returns the number of requests that wait, and of those that found the queue full.
    pub fn queued(&self) -> (usize, u64) {
        (self.waiting.load(Ordering::Relaxed), self.overflows.load(Ordering::Relaxed))
    }
    /// Sets the checks that servers added later must pass before their first request.
    pub fn check_first(&self, checks: Vec<String>) {
        *self.first_checks.lock().unwrap_or_else(PoisonError::into_inner) = checks;
    }
    /// Tells whether a line has servers; `index`: its position in [`Group::lines`].
    pub fn is_found(&self, index: usize) -> bool {
        self.entries().get(index).is_some_and(|entry| !entry.found.is_empty())
    }

    /// Updates a line's addresses; remaining servers keep their state. Returns whether anything changed.
    pub fn update(&self, index: usize, now: Vec<ResolvedAddress>) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(index) else { return false };
        if !entry.update(now) {
            return false;
        }
        remember_names(&self.key(), &entry.line.source, &entry.found);
        self.rebuild(&entries, &[]);
        drop(entries);
        self.freed.notify_waiters();
        true
    }
    /// As [`Group::update`], by number and source, which the line may no longer have.
    pub fn update_numbered(&self, number: u64, source: &ServerSource, now: Vec<ResolvedAddress>) -> bool {
        let index = self.entries().iter().position(|e| e.number == number && e.line.source == *source);
        index.is_some_and(|index| self.update(index, now))
    }
    /// Publishes the servers of these lines; `before`: servers of other configurations, whose state they continue.
    fn rebuild(&self, entries: &[Entry], before: &[Arc<Peer>]) {
        let mut specs = Vec::new();
        for entry in entries {
            let line = &entry.line;
            match &line.source {
                ServerSource::Fixed(all) => {
                    let specs_of = |address: &Address| PeerSpec { address: address.clone(), ..line.spec.clone() };
                    specs.extend(all.iter().map(|address| (entry.number, all.len() == 1, specs_of(address))));
                }
                _ => {
                    let found = entry.found.iter().filter_map(|f| self.spec(line, f));
                    specs.extend(found.map(|spec| (entry.number, false, spec)));
                }
            }
        }
        let old = self.members();
        let before: Vec<Arc<Peer>> = old.all().chain(before).cloned().collect();
        let mut members = Members::default();
        let next = self.extras.roster.as_ref().map(|roster| || roster.next_number());
        let next_number = next.as_ref().map(|next| next as &dyn Fn() -> u64);
        let first_checks = self.first_checks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for peer in remember_all(&self.key(), specs, next_number, &before) {
            if self.extras.counted {
                peer.count(&self.name);
            }
            for check in &first_checks {
                peer.begin_check(check, true, true);
            }
            let list = if peer.spec.backup { &mut members.backup } else { &mut members.primary };
            list.push(peer);
        }
        members.total_weight = members.primary.iter().map(|p| u64::from(p.spec.weight)).sum();
        if let Some(roster) = &self.extras.roster {
            let left = old.all().filter(|p| !members.all().any(|m| Arc::ptr_eq(&m.live, &p.live)));
            roster.bury(left.map(|peer| Arc::downgrade(&peer.live)));
        }
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(members);
        drop(old);
    }

    fn spec(&self, line: &ServerLine, found: &ResolvedAddress) -> Option<PeerSpec> {
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

impl Follower for Group {
    fn lines(&self) -> Vec<Entry> {
        self.entries().clone()
    }
    fn peers(&self) -> Vec<Arc<Peer>> {
        self.members().all().cloned().collect()
    }
    /// Replaces the lines. Their known addresses stay.
    fn replace(&self, mut new: Vec<Entry>) {
        let mut entries = self.entries();
        for entry in &mut new {
            let same = |old: &&Entry| old.number == entry.number && old.line.source == entry.line.source;
            if let Some(old) = entries.iter().find(same) {
                entry.found.clone_from(&old.found);
            }
        }
        *entries = new;
        self.rebuild(&entries, &[]);
        drop(entries);
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
        self.freed.notify_waiters();
    }
}

fn number(name: &str) -> u64 {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    KEYS.get_or_init(RandomState::new).hash_one(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, SocketAddr};

    fn fixed(spec: PeerSpec) -> ServerLine {
        ServerLine { source: ServerSource::Fixed(vec![spec.address.clone()]), spec }
    }

    fn group(name: &str, lines: Vec<ServerLine>) -> Group {
        Group::new(name, lines, BalanceMethod::RoundRobin, KeepAlive::default(), true)
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
        let lines = |max_fails, count| -> Vec<ServerLine> {
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
    fn names_change_and_those_who_stay_keep_their_state() {
        let line = || ServerLine {
            spec: PeerSpec::new("n:81", Address::Unix("".into())),
            source: ServerSource::Resolved { host: "n".into(), port: 81, service: None },
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
        moved.source = ServerSource::Resolved { host: "N".into(), port: 82, service: None };
        assert_eq!(names(&group("names", vec![moved])).0, ["127.0.0.2:82 1", "127.0.0.3:82 1"], "a reload remembers");
    }

    #[test]
    fn a_name_stands_for_so_many_servers() {
        let line = ServerLine {
            spec: PeerSpec::new("m:80", Address::Unix("".into())),
            source: ServerSource::Resolved { host: "m".into(), port: 80, service: None },
        };
        let g = group("many", vec![line]);
        let found = |n: usize| ResolvedAddress::plain(IpAddr::from([127, 1, (n >> 8) as u8, n as u8]), 80);
        assert!(g.update(0, (0..2 * crate::line::SERVERS_OF_LINE_MAX).map(found).collect()));
        assert_eq!(g.members().primary.len(), crate::line::SERVERS_OF_LINE_MAX);
    }

    #[test]
    fn services_bring_weights_and_backups() {
        let line = |weight| ServerLine {
            spec: PeerSpec { weight, ..PeerSpec::new("n", Address::Unix("".into())) },
            source: ServerSource::Resolved { host: "n".into(), port: 80, service: Some("http".into()) },
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
