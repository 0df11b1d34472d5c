//! Servers of a group that change at run time: numbers that identify them, and those that an API added, which outlive
//! the configuration.
//!
//! A change is made by one writer at a time. It becomes durable first, then it is published to every group of the name:
//! while a configuration is replaced, there are two.

use crate::line::{Entry, LineOrigin, ServerLine};
use crate::peer::{Live, Peer};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Removed servers that are looked at for requests in flight.
const REMOVED_MAX: usize = 100_000;

/// A configuration's group, to which changes are published.
pub trait Follower: Send + Sync + std::fmt::Debug {
    /// Returns the group's lines.
    fn lines(&self) -> Vec<Entry>;
    /// Returns the group's servers.
    fn peers(&self) -> Vec<Arc<Peer>>;
    /// Replaces the lines. Their known addresses stay.
    fn replace(&self, new: Vec<Entry>);
}

/// State of a group's servers beside its configurations.
#[derive(Debug, Default)]
pub struct Roster {
    numbers: AtomicU64,
    /// Changes of lines, by the API or by another configuration.
    pub(crate) generation: AtomicU64,
    /// Idle connections to the group's servers, over all threads.
    idle: Arc<AtomicU64>,
    state: Mutex<RosterState>,
    /// Servers that were removed and may have requests.
    removed: Mutex<Vec<Weak<Live>>>,
}

#[derive(Debug, Default)]
pub(crate) struct RosterState {
    pub(crate) added: Vec<Entry>,
    groups: Vec<Weak<dyn Follower>>,
    /// Numbers of the configuration's lines, by name, backup, and equal lines before.
    known: HashMap<(String, bool, usize), u64>,
    /// The process that read the state file.
    loaded_by: Option<u32>,
}

impl RosterState {
    fn groups(&mut self) -> Vec<Arc<dyn Follower>> {
        self.groups.retain(|group| group.strong_count() > 0);
        self.groups.iter().filter_map(Weak::upgrade).collect()
    }
    /// Publishes to all groups; one of them has changed its own lines, too.
    pub(crate) fn publish(&mut self, changed: Option<(&dyn Follower, &[Entry])>) {
        for group in self.groups() {
            let new = match changed {
                Some((own, entries)) if std::ptr::addr_eq(own, Arc::as_ptr(&group)) => entries.to_vec(),
                _ => {
                    let file = group.lines().into_iter().filter(|entry| entry.origin == LineOrigin::File);
                    file.chain(self.added.iter().cloned()).collect()
                }
            };
            group.replace(new);
        }
    }
}

impl Roster {
    pub(crate) fn state(&self) -> MutexGuard<'_, RosterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Grows with every change of the lines, in this process.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
    /// Returns the number of idle connections to the group's servers, over all threads.
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
    pub(crate) fn number_lines(&self, lines: Vec<ServerLine>) -> Vec<Entry> {
        let mut state = self.state();
        let mut seen: HashMap<(String, bool), usize> = HashMap::new();
        let mut number = |line: &ServerLine| {
            let times = seen.entry((line.spec.name.clone(), line.spec.backup)).or_default();
            let id = (line.spec.name.clone(), line.spec.backup, *times);
            *times += 1;
            *state.known.entry(id).or_insert_with(|| self.next_number())
        };
        lines.into_iter().map(|line| Entry::new(number(&line), line, LineOrigin::File)).collect()
    }
    pub(crate) fn added(&self) -> Vec<Entry> {
        self.state().added.clone()
    }
    /// Returns the servers of all configurations that contain the group.
    pub(crate) fn peers(&self) -> Vec<Arc<Peer>> {
        let groups = self.state().groups();
        groups.iter().flat_map(|group| group.peers()).collect()
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
    pub fn follow(&self, group: Arc<dyn Follower>) {
        let mut state = self.state();
        state.groups.retain(|group| group.strong_count() > 0);
        state.groups.push(Arc::downgrade(&group));
        self.generation.fetch_add(1, Ordering::AcqRel);
        // A change between the making of the group and this.
        let lines = group.lines();
        let own = lines.iter().filter(|entry| entry.origin == LineOrigin::Api).map(|entry| (entry.number, &entry.line));
        if !own.eq(state.added.iter().map(|entry| (entry.number, &entry.line))) {
            let file = lines.iter().filter(|entry| entry.origin == LineOrigin::File);
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
    pub fn load<E>(&self, read: impl FnOnce() -> Result<Vec<ServerLine>, E>) -> Result<(), E> {
        let mut state = self.state();
        if state.loaded_by == Some(std::process::id()) {
            return Ok(());
        }
        let lines = read()?;
        state.added = lines.into_iter().map(|line| Entry::new(self.next_number(), line, LineOrigin::Api)).collect();
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
