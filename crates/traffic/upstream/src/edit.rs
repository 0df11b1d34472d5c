//! Changes of a group's lines by an API.

use crate::group::Group;
use crate::line::{Entry, LineOrigin, ServerLine};
use crate::roster::Roster;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of lines of a group that the API changes.
pub const LINES_MAX: usize = 10_000;

/// The lines of a group while [`Group::edit`] changes them.
pub struct EditDraft<'a> {
    /// The lines so far: those of the configuration, then those of the API.
    pub entries: Vec<Entry>,
    roster: &'a Roster,
}

impl EditDraft<'_> {
    /// Returns the generation before the change.
    pub fn generation(&self) -> u64 {
        self.roster.generation()
    }
    /// Returns the line of a number.
    pub fn get(&mut self, number: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.number == number)
    }
    /// Adds a line and returns its number; `None` if the group has [`LINES_MAX`] lines.
    pub fn add(&mut self, line: ServerLine) -> Option<u64> {
        if self.entries.len() >= LINES_MAX {
            return None;
        }
        let number = self.roster.next_number();
        self.entries.push(Entry::new(number, line, LineOrigin::Api));
        Some(number)
    }
}

impl Group {
    /// Changes the lines: `change` edits a copy, `persist` makes the lines of the API durable if they differ, then all
    /// threads use the result. A rehearsal ends after `change`. Blocks while another change is made. Without `zone`
    /// there is nothing to change: `None`.
    ///
    /// # Errors
    /// Those of `change` and `persist`: nothing has changed.
    pub fn edit<R, E>(
        self: &Arc<Self>,
        is_rehearsal: bool,
        change: impl FnOnce(&mut EditDraft<'_>) -> Result<R, E>,
        persist: impl FnOnce(&[ServerLine]) -> Result<(), E>,
    ) -> Option<Result<R, E>> {
        let roster = self.extras.roster.as_ref()?;
        let mut state = roster.state();
        let mut draft = EditDraft { entries: self.lines(), roster };
        let result = match change(&mut draft) {
            Ok(result) => result,
            Err(e) => return Some(Err(e)),
        };
        if is_rehearsal {
            return Some(Ok(result));
        }
        let added: Vec<Entry> = draft.entries.iter().filter(|entry| entry.origin == LineOrigin::Api).cloned().collect();
        let old = state.added.iter().map(|entry| (entry.number, &entry.line));
        if !old.eq(added.iter().map(|entry| (entry.number, &entry.line))) {
            let lines: Vec<ServerLine> = added.iter().map(|entry| entry.line.clone()).collect();
            if let Err(e) = persist(&lines) {
                return Some(Err(e));
            }
            state.added = added;
        }
        roster.generation.fetch_add(1, Ordering::AcqRel);
        state.publish(Some((&**self, &draft.entries)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::{BalanceMethod, Choice};
    use crate::group::{Extras, ServerSource};
    use crate::keep_alive::KeepAlive;
    use crate::peer::PeerSpec;
    use net::Address;

    fn line(port: u16, weight: u32) -> ServerLine {
        let address = Address::Ip(([127, 0, 0, 1], port).into());
        let spec = PeerSpec { weight, ..PeerSpec::new(format!("127.0.0.1:{port}"), address.clone()) };
        ServerLine { spec, source: ServerSource::Fixed(vec![address]) }
    }

    fn group(name: &str, roster: &Arc<Roster>, lines: Vec<ServerLine>) -> Arc<Group> {
        let extras = Extras { counted: true, roster: Some(roster.clone()), ..Extras::default() };
        let group = Arc::new(Group::with(name, lines, BalanceMethod::RoundRobin, KeepAlive::none(), true, extras));
        roster.follow(group.clone());
        group
    }

    fn shown(group: &Group) -> Vec<(u64, String, u32)> {
        let members = group.members();
        members.all().map(|peer| (peer.number, peer.text.to_string(), peer.spec.weight)).collect()
    }

    fn add(group: &Arc<Group>, new: ServerLine) -> u64 {
        let persist = |_: &[ServerLine]| Ok::<_, ()>(());
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
        let set = |draft: &mut EditDraft<'_>| {
            draft.get(number).ok_or(())?.line.spec.weight = 7;
            Ok(())
        };
        let persist = |_: &[ServerLine]| Ok::<_, ()>(());
        // A rehearsal changes nothing.
        assert_eq!(g.edit(true, set, persist), Some(Ok(())));
        assert!(shown(&g).iter().all(|(_, _, weight)| *weight == 1));
        assert_eq!(g.edit(false, set, persist), Some(Ok(())));
        let changed = g.members().all().find(|peer| peer.number == number).expect("it").clone();
        assert_eq!((changed.spec.weight, changed.active()), (7, 1));
        let remove = |draft: &mut EditDraft<'_>| {
            draft.entries.retain(|entry| entry.number != number);
            Ok(())
        };
        assert_eq!(g.edit(false, remove, persist), Some(Ok(())));
        assert_eq!((shown(&g).len(), roster.zombies()), (1, 1));
        drop((lease, changed));
        assert_eq!(roster.zombies(), 0);
    }

    #[test]
    fn changes_that_cannot_be_stored_are_not_in_force() {
        let roster = Arc::new(Roster::default());
        let g = group("durable", &roster, Vec::new());
        let refuse = |_: &[ServerLine]| Err("the disk is full");
        let done = g.edit(false, |draft| draft.add(line(21, 1)).ok_or("full"), refuse);
        assert_eq!((done, shown(&g)), (Some(Err("the disk is full")), Vec::new()));
        let generation = roster.generation();
        let mut written = Vec::new();
        let persist = |lines: &[ServerLine]| {
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
