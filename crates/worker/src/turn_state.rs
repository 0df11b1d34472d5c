//! The work of a thread's current turn, and the tasks that outlive it.

use net::poller::Key;
use std::cell::{Cell, RefCell};

/// Facts of the current turn, and the number of unfinished tasks. `C`: the drivers of sockets.
pub struct TurnState<C> {
    is_quitting: Cell<bool>,
    tasks: Cell<usize>,
    current: Cell<Option<Key>>,
    events: Cell<usize>,
    dirty: RefCell<Vec<(Key, C)>>,
}

impl<C> Default for TurnState<C> {
    fn default() -> TurnState<C> {
        TurnState {
            is_quitting: Cell::new(false),
            tasks: Cell::new(0),
            current: Cell::new(None),
            events: Cell::new(0),
            dirty: RefCell::new(Vec::new()),
        }
    }
}

impl<C> TurnState<C> {
    /// Tells whether QUIT was received: no connection is kept alive.
    #[inline]
    pub fn is_quitting(&self) -> bool {
        self.is_quitting.get()
    }
    /// Notes that QUIT was received.
    pub fn begin_quit(&self) {
        self.is_quitting.set(true);
    }
    /// Returns the number of unfinished tasks and waits.
    pub fn tasks(&self) -> usize {
        self.tasks.get()
    }
    /// Counts a task or wait. [`TurnState::end_task`] follows.
    pub fn begin_task(&self) {
        self.tasks.set(self.tasks.get() + 1);
    }
    /// Ends the count of a task or wait.
    pub fn end_task(&self) {
        self.tasks.set(self.tasks.get() - 1);
    }
    /// Returns the key whose event is being handled: its driver may hold its state.
    pub fn current(&self) -> Option<Key> {
        self.current.get()
    }
    /// Sets the key whose event is being handled, and returns the one before, which the caller sets again.
    pub fn replace_current(&self, key: Option<Key>) -> Option<Key> {
        self.current.replace(key)
    }
    /// Returns the number of events that the turn began with.
    pub fn events(&self) -> usize {
        self.events.get()
    }
    /// Sets the number of events that the turn begins with.
    pub fn set_events(&self, count: usize) {
        self.events.set(count);
    }
    /// Adds a carrier with output for the turn's end.
    pub(crate) fn touch(&self, key: Key, carrier: C) {
        self.dirty.borrow_mut().push((key, carrier));
    }
    /// Tells whether a carrier has output for the turn's end.
    pub(crate) fn has_output(&self) -> bool {
        !self.dirty.borrow().is_empty()
    }
    /// Takes the carriers with output.
    pub(crate) fn take_output(&self) -> Vec<(Key, C)> {
        self.dirty.take()
    }
}
