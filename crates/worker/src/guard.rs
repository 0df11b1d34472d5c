//! Panics and ends of drivers, each of which costs only its own connection.

use crate::worker::Worker;
use metrics::process;
use net::poller::Key;
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

/// Calls a driver. A panic (logged by the process's hook) closes the connection, but never a listener. The executor
/// guards tasks likewise.
pub fn call_guarded(worker: &Rc<Worker>, key: Key, act: impl FnOnce(&Rc<Worker>, Key)) {
    let outer = worker.turn().replace_current(Some(key));
    let is_done = std::panic::catch_unwind(AssertUnwindSafe(|| act(worker, key))).is_ok();
    worker.turn().replace_current(outer);
    if is_done {
        return;
    }
    process::PANICS.up();
    if worker.poller.registration(key).is_some_and(|carrier| carrier.client().is_some()) {
        worker.close(key);
    }
}

/// Counts a connection's task; on drop closes the connection, unless it became idle.
pub struct TaskGuard {
    worker: Rc<Worker>,
    key: Key,
    closes: Cell<bool>,
}

impl TaskGuard {
    /// Counts a task of the connection.
    pub fn new(worker: &Rc<Worker>, key: Key) -> TaskGuard {
        worker.turn().begin_task();
        TaskGuard { worker: worker.clone(), key, closes: Cell::new(true) }
    }
    /// Leaves the connection open: it has become idle.
    pub fn disarm(&self) {
        self.closes.set(false);
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if self.closes.get() {
            self.worker.close(self.key);
        }
        self.worker.turn().end_task();
    }
}

/// Counts a connection as writing (`$connections_writing`) until it is dropped.
pub struct WriteGuard(());

impl WriteGuard {
    /// Begins to count.
    pub fn begin() -> WriteGuard {
        process::CONNECTIONS_WRITING.up();
        WriteGuard(())
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        process::CONNECTIONS_WRITING.down();
    }
}
