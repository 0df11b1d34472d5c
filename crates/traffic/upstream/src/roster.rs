//! Servers of a group that change at run time: numbers that identify them, and those that an API added, which outlive
//! the configuration.
//!
//! A change is made by one writer at a time. It becomes durable first, then it is published to every group of the name:
//! while a configuration is replaced, there are two.

use crate::group::{Group, Line, ResolvedAddress, SERVERS_OF_LINE_MAX, Source};
use crate::peer::{Live, Peer};
use crate::registry::remember_names;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Lines of a group at most, once an API changes it.
pub const LINES_MAX: usize = 10_000;

/// Removed servers that are looked at for requests in flight.
const REMOVED_MAX: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of the configuration, which comes back with a reload.
    File,
    /// An API or the state file; the line outlives the configuration.
    Api,
}

/// A line of a group.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Never used again for another line of the group in this process.
    pub number: u64,
    pub line: Line,
    pub origin: Origin,
    pub(crate) found: Vec<ResolvedAddress>,
}

impl Entry {
    pub(crate) fn new(number: u64, line: Line, origin: Origin) -> Entry {
        Entry { number, line, origin, found: Vec::new() }
    }
    /// Sets the addresses that the name stands for; tells whether anything changed.
    pub(crate) fn update(&mut self, group: &str, mut now: Vec<ResolvedAddress>) -> bool {
        now.truncate(SERVERS_OF_LINE_MAX);
        if self.line.spec.weight != 1 {
            // The line's own weight overrides the records'.
            now.iter_mut().filter_map(|f| f.record.as_mut()).for_each(|record| record.1 = self.line.spec.weight);
        }
        let mut merged = Vec::with_capacity(now.len());
        for old in &self.found {
            if let Some(at) = now.iter().position(|new| new == old) {
                merged.push(now.remove(at));
            }
        }
        merged.append(&mut now);
        if self.found == merged {
            return false;
        }
        remember_names(group, &self.line.source, &merged);
        self.found = merged;
        true
    }
}

/// State of a group's servers beside its configurations.
#[derive(Debug, Default)]
pub struct Roster {
    numbers: AtomicU64,
    /// Changes of lines, by the API or by another configuration.
    generation: AtomicU64,
    /// Idle connections to the group's servers, over all threads.
    idle: Arc<AtomicU64>,
    state: Mutex<RosterState>,
    /// Servers that were removed and may have requests.
    removed: Mutex<Vec<Weak<Live>>>,
}

#[derive(Debug, Default)]
struct RosterState {
    added: Vec<Entry>,
    groups: Vec<Weak<Group>>,
    /// Numbers of the configuration's lines, by name, backup, and equal lines before.
    known: HashMap<(String, bool, usize), u64>,
    /// The process that read the state file.
    loaded_by: Option<u32>,
}

impl RosterState {
    fn groups(&mut self) -> Vec<Arc<Group>> {
        self.groups.retain(|group| group.strong_count() > 0);
        self.groups.iter().filter_map(Weak::upgrade).collect()
    }
    fn publish(&mut self, changed: Option<(&Arc<Group>, &[Entry])>) {
        for group in self.groups() {
            let new = match changed {
                Some((own, entries)) if Arc::ptr_eq(own, &group) => entries.to_vec(),
                _ => {
                    let file = group.lines().into_iter().filter(|entry| entry.origin == Origin::File);
                    file.chain(self.added.iter().cloned()).collect()
                }
            };
            group.replace(new);
        }
    }
}

impl Roster {
    fn state(&self) -> MutexGuard<'_, RosterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns a number that grows with every change of the lines, in this process.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
    /// Returns the number of idle connections to the group's servers.
    pub fn idle(&self) -> u64 {
        self.idle.load(Ordering::Relaxed)
    }
    pub(crate) fn idle_count(&self) -> &Arc<AtomicU64> {
        &self.idle
    }
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
    /// Numbers the lines of a configuration; those that it has in common with the previous one keep theirs.
    pub(crate) fn number_lines(&self, lines: Vec<Line>) -> Vec<Entry> {
        let mut state = self.state();
        let mut seen: HashMap<(String, bool), usize> = HashMap::new();
        let mut number = |line: &Line| {
            let times = seen.entry((line.spec.name.clone(), line.spec.backup)).or_default();
            let id = (line.spec.name.clone(), line.spec.backup, *times);
            *times += 1;
            *state.known.entry(id).or_insert_with(|| self.next_number())
        };
        lines.into_iter().map(|line| Entry::new(number(&line), line, Origin::File)).collect()
    }
    pub(crate) fn added(&self) -> Vec<Entry> {
        self.state().added.clone()
    }
    /// Returns the servers of all configurations that have the group.
    pub(crate) fn peers(&self) -> Vec<Arc<Peer>> {
        let groups = self.state().groups();
        groups.iter().flat_map(|group| group.members().all().cloned().collect::<Vec<_>>()).collect()
    }
    pub(crate) fn bury(&self, peers: impl Iterator<Item = Weak<Live>>) {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.retain(|live| live.upgrade().is_some_and(|live| live.active() > 0));
        removed.extend(peers);
        removed.truncate(REMOVED_MAX);
    }
    /// Returns the number of removed servers that still have requests or sessions.
    pub fn zombies(&self) -> usize {
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.iter().filter(|live| live.upgrade().is_some_and(|live| live.active() > 0)).count()
    }
    /// Publishes later changes to the group, too.
    pub fn follow(&self, group: &Arc<Group>) {
        let mut state = self.state();
        state.groups.retain(|group| group.strong_count() > 0);
        state.groups.push(Arc::downgrade(group));
        self.generation.fetch_add(1, Ordering::AcqRel);
        // A change between the making of the group and this.
        let lines = group.lines();
        let own = lines.iter().filter(|entry| entry.origin == Origin::Api).map(|entry| (entry.number, &entry.line));
        if !own.eq(state.added.iter().map(|entry| (entry.number, &entry.line))) {
            let file = lines.iter().filter(|entry| entry.origin == Origin::File);
            group.replace(file.chain(&state.added).cloned().collect());
        }
        // Numbers of lines that no configuration has are not needed any more.
        let groups = state.groups();
        let all: Vec<u64> = groups.iter().flat_map(|group| group.lines()).map(|entry| entry.number).collect();
        state.known.retain(|_, number| all.contains(number));
    }
    /// Takes the lines of the state file, once in a process: a forked one knows only what its parent read.
    ///
    /// # Errors
    /// Those of `read`; nothing has changed.
    pub fn load<E>(&self, read: impl FnOnce() -> Result<Vec<Line>, E>) -> Result<(), E> {
        let mut state = self.state();
        if state.loaded_by == Some(std::process::id()) {
            return Ok(());
        }
        let lines = read()?;
        state.added = lines.into_iter().map(|line| Entry::new(self.next_number(), line, Origin::Api)).collect();
        state.loaded_by = Some(std::process::id());
        self.generation.fetch_add(1, Ordering::AcqRel);
        state.publish(None);
        Ok(())
    }
    /// Tells whether this process has read the state file.
    pub fn is_loaded(&self) -> bool {
        self.state().loaded_by == Some(std::process::id())
    }
}

/// The lines of a group, while they are changed.
pub struct Draft<'a> {
    pub entries: Vec<Entry>,
    roster: &'a Roster,
}

impl Draft<'_> {
    /// Returns [`Roster::generation`] before the change.
    pub fn generation(&self) -> u64 {
        self.roster.generation()
    }
    pub fn get(&mut self, number: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.number == number)
    }
    /// Adds a line; returns its number. `None`: there are [`LINES_MAX`].
    pub fn add(&mut self, line: Line) -> Option<u64> {
        if self.entries.len() >= LINES_MAX {
            return None;
        }
        let number = self.roster.next_number();
        self.entries.push(Entry::new(number, line, Origin::Api));
        Some(number)
    }
}

impl Group {
    /// Changes the lines: `change` edits a copy, `persist` makes the lines of the API durable if they differ, then all
    /// threads use the result. A rehearsal ends after `change`. Blocks while another change is made. Without `zone` there is nothing to change: `None`.
    ///
    /// # Errors
    /// Those of `change` and `persist`: nothing has changed.
    pub fn edit<R, E>(
        self: &Arc<Self>,
        is_rehearsal: bool,
        change: impl FnOnce(&mut Draft<'_>) -> Result<R, E>,
        persist: impl FnOnce(&[Line]) -> Result<(), E>,
    ) -> Option<Result<R, E>> {
        let roster = self.extras.roster.as_ref()?;
        let mut state = roster.state();
        let mut draft = Draft { entries: self.lines(), roster };
        let result = match change(&mut draft) {
            Ok(result) => result,
            Err(e) => return Some(Err(e)),
        };
        if is_rehearsal {
            return Some(Ok(result));
        }
        let added: Vec<Entry> = draft.entries.iter().filter(|entry| entry.origin == Origin::Api).cloned().collect();
        let old = state.added.iter().map(|entry| (entry.number, &entry.line));
        if !old.eq(added.iter().map(|entry| (entry.number, &entry.line))) {
            let lines: Vec<Line> = added.iter().map(|entry| entry.line.clone()).collect();
            if let Err(e) = persist(&lines) {
                return Some(Err(e));
            }
            state.added = added;
        }
        roster.generation.fetch_add(1, Ordering::AcqRel);
        state.publish(Some((self, &draft.entries)));
        Some(Ok(result))
    }
    /// Starts the counts of all servers and of the queue anew.
    pub fn reset(&self) {
        for peer in self.members().all() {
            peer.history().reset();
            if let Some(zone) = peer.zone() {
                zone.reset();
            }
        }
        self.overflows.store(0, Ordering::Relaxed);
    }
}

/// A line that a name stands for, and may change.
pub fn is_named(line: &Line) -> bool {
    !matches!(line.source, Source::Fixed(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::{Choice, Method};
    use crate::group::Extras;
    use crate::peer::PeerSpec;
    use crate::pool::KeepAlive;
    use net::Address;

    fn line(port: u16, weight: u32) -> Line {
        let address = Address::Ip(([127, 0, 0, 1], port).into());
        let spec = PeerSpec { weight, ..PeerSpec::new(format!("127.0.0.1:{port}"), address.clone()) };
        Line { spec, source: Source::Fixed(vec![address]) }
    }

    fn group(name: &str, roster: &Arc<Roster>, lines: Vec<Line>) -> Arc<Group> {
        let extras = Extras { counted: true, roster: Some(roster.clone()), ..Extras::default() };
        let group = Arc::new(Group::with(name, lines, Method::RoundRobin, KeepAlive::none(), true, extras));
        roster.follow(&group);
        group
    }

    fn shown(group: &Group) -> Vec<(u64, String, u32)> {
        let members = group.members();
        members.all().map(|peer| (peer.number, peer.text.to_string(), peer.spec.weight)).collect()
    }

    fn add(group: &Arc<Group>, new: Line) -> u64 {
        let persist = |_: &[Line]| Ok::<_, ()>(());
        group.edit(false, |draft| draft.add(new).ok_or(()), persist).expect("a roster").expect("added")
    }

    #[test]
    fn added_servers_outlive_their_configuration() {
        let roster = Arc::new(Roster::default());
        let first = group("outlive", &roster, vec![line(1, 1), line(2, 1)]);
        let number = add(&first, line(3, 1));
        assert_eq!(shown(&first).len(), 3);
        let second = group("outlive", &roster, vec![line(2, 1)]);
        let numbers = |group: &Group| shown(group).into_iter().map(|(n, text, _)| (text, n)).collect::<Vec<_>>();
        assert!(numbers(&second).iter().all(|known| numbers(&first).contains(known)), "{:?}", numbers(&second));
        assert_eq!(numbers(&second), [("127.0.0.1:2".into(), 1), ("127.0.0.1:3".into(), number)]);
        // A change reaches both configurations, and each keeps its own lines.
        let later = add(&first, line(4, 1));
        assert_eq!((shown(&first).len(), shown(&second).len()), (4, 3));
        assert!(later > number);
        drop(first);
        assert_eq!(group("outlive", &roster, Vec::new()).members().primary.len(), 2);
    }

    #[test]
    fn a_change_keeps_the_state_and_a_removal_leaves_a_zombie() {
        let roster = Arc::new(Roster::default());
        let g = group("change", &roster, vec![line(11, 1), line(12, 1)]);
        let choice = Choice { now: base::clock::now(), random: 1, key: b"", bound: None };
        let lease = g.choose(&choice, &mut g.attempts()).expect("a server");
        let number = lease.peer().number;
        let set = |draft: &mut Draft<'_>| {
            draft.get(number).ok_or(())?.line.spec.weight = 7;
            Ok(())
        };
        let persist = |_: &[Line]| Ok::<_, ()>(());
        // A rehearsal changes nothing.
        assert_eq!(g.edit(true, set, persist), Some(Ok(())));
        assert!(shown(&g).iter().all(|(_, _, weight)| *weight == 1));
        assert_eq!(g.edit(false, set, persist), Some(Ok(())));
        let changed = g.members().all().find(|peer| peer.number == number).expect("it").clone();
        assert_eq!((changed.spec.weight, changed.active()), (7, 1));
        let remove = |draft: &mut Draft<'_>| {
            draft.entries.retain(|entry| entry.number != number);
            Ok(())
        };
        assert_eq!(g.edit(false, remove, persist), Some(Ok(())));
        assert_eq!((shown(&g).len(), roster.zombies()), (1, 1));
        drop((lease, changed));
        assert_eq!(roster.zombies(), 0);
    }

    #[test]
    fn what_is_not_durable_is_not_in_force() {
        let roster = Arc::new(Roster::default());
        let g = group("durable", &roster, Vec::new());
        let refuse = |_: &[Line]| Err("the disk is full");
        let done = g.edit(false, |draft| draft.add(line(21, 1)).ok_or("full"), refuse);
        assert_eq!((done, shown(&g)), (Some(Err("the disk is full")), Vec::new()));
        let generation = roster.generation();
        let mut written = Vec::new();
        let persist = |lines: &[Line]| {
            written = lines.to_vec();
            Ok::<_, &str>(())
        };
        assert!(g.edit(false, |draft| draft.add(line(21, 1)).ok_or("full"), persist).expect("a roster").is_ok());
        assert_eq!((written, roster.generation()), (vec![line(21, 1)], generation + 1));
    }

    #[test]
    fn the_state_file_is_read_once_in_a_process() {
        let roster = Arc::new(Roster::default());
        let g = group("once", &roster, Vec::new());
        assert!(!roster.is_loaded());
        assert_eq!(roster.load(|| Err("no permission")), Err("no permission"));
        assert_eq!(roster.load(|| Ok::<_, ()>(vec![line(31, 1)])), Ok(()));
        assert_eq!(roster.load(|| Err("read again")), Ok(()));
        assert_eq!((shown(&g).len(), roster.is_loaded()), (1, true));
    }
}
