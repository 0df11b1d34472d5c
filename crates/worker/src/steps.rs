//! Steps of connections: reads, writes, polls of bodies, and the begin, start and end of requests. A simulation causes
//! an event at one of them ([`crate::sim`]).

use std::cell::{Cell, RefCell};

/// An event of a simulation.
type StepEvent = Box<dyn FnOnce()>;

thread_local! {
    /// Steps until the event; 0: none is planned, as on every thread that serves.
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static EVENT: RefCell<Option<StepEvent>> = const { RefCell::new(None) };
}

/// Takes note of a step, and causes the event that is planned for it.
#[inline]
pub(crate) fn note_step() {
    match LEFT.get() {
        0 => {}
        1 => cause_event(),
        left => LEFT.set(left - 1),
    }
}

#[cold]
fn cause_event() {
    LEFT.set(0);
    if let Some(event) = EVENT.take() {
        event();
    }
}

/// Plans an event for a step of this thread, counted from 1; 0 cancels the plan.
pub(crate) fn plan_event(step: u64, event: impl FnOnce() + 'static) {
    EVENT.replace(Some(Box::new(event)));
    LEFT.set(step);
}

/// Returns the number of steps until the planned event.
pub(crate) fn steps_left() -> u64 {
    LEFT.get()
}
