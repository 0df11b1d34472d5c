//! Messages from other threads: a locked queue, and an eventfd that is written only while the thread sleeps.

use crate::wake;
use async_task::Runnable;
use net::poller::Key;
use rustix::event::EventfdFlags;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Wake, Waker};

/// The inbox of a thread, for wake-ups from others.
///
/// Before the loop waits, [`Remote::begin_sleep`]; after it, [`Remote::end_sleep`]. The loop watches [`Remote::event`]
/// meanwhile.
pub struct Remote {
    woken: Mutex<VecDeque<Runnable>>,
    /// Woken entries of the poller (`wake.rs`).
    keys: Mutex<Vec<Key>>,
    /// New messages since the thread's last look.
    mail: AtomicBool,
    sleeping: AtomicBool,
    event: OwnedFd,
}

impl Remote {
    fn new() -> io::Result<Remote> {
        Ok(Remote {
            woken: Mutex::default(),
            keys: Mutex::default(),
            mail: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            event: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }
    /// Descriptor that wakes the thread. Never read: each write is an event for an edge-triggered watch.
    pub fn event(&self) -> &OwnedFd {
        &self.event
    }
    fn notify(&self) {
        self.mail.store(true, Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // The counter cannot overflow: one write per sleep.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
    /// Announces a wait; `false` if a message arrived, so that the thread must not sleep.
    pub fn begin_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.mail.load(Ordering::SeqCst) {
            self.end_sleep();
            return false;
        }
        true
    }
    /// Ends a wait: further messages need no event.
    pub fn end_sleep(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
    pub(crate) fn take(&self, into: &mut VecDeque<Runnable>) {
        if self.mail.load(Ordering::Relaxed) && self.mail.swap(false, Ordering::SeqCst) {
            into.append(&mut self.woken.lock().unwrap_or_else(PoisonError::into_inner));
            wake::add(&mut self.keys.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Wakes a thread's loop instead of a task, for the channel of commands.
pub struct LoopWaker {
    remote: Arc<Remote>,
    woken: AtomicBool,
}

impl LoopWaker {
    pub(crate) fn new(remote: Arc<Remote>) -> Arc<LoopWaker> {
        // Initially woken, for messages before the first look.
        Arc::new(LoopWaker { remote, woken: AtomicBool::new(true) })
    }
    /// Returns whether the thread was woken since the last call.
    pub fn take(&self) -> bool {
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::SeqCst)
    }
    /// Returns a waker that sets [`LoopWaker::take`] and ends the loop's wait.
    pub fn waker(self: &Arc<Self>) -> Waker {
        self.clone().into()
    }
}

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.remote.notify();
    }
}

/// Id of a thread's executor; 0: none.
pub(crate) type Home = u32;

static NEXT_HOME: AtomicU32 = AtomicU32::new(1);
static REMOTES: RwLock<Vec<(Home, Arc<Remote>)>> = RwLock::new(Vec::new());

thread_local! {
    static HOME: Cell<Home> = const { Cell::new(0) };
}

/// Returns this thread's executor, creating it if needed.
pub(crate) fn home() -> Home {
    match HOME.get() {
        0 => {
            let home = NEXT_HOME.fetch_add(1, Ordering::Relaxed);
            HOME.set(home);
            home
        }
        home => home,
    }
}
pub(crate) fn is_here(home: Home) -> bool {
    HOME.get() == home
}

/// Accepts messages for this thread.
pub(crate) fn open() -> io::Result<Arc<Remote>> {
    let remote = Arc::new(Remote::new()?);
    let home = home();
    let mut all = REMOTES.write().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(other, _)| *other != home);
    all.push((home, remote.clone()));
    Ok(remote)
}

/// Rejects further messages to this thread.
pub(crate) fn close() {
    let home = home();
    REMOTES.write().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| *other != home);
}

/// Wakes a poller entry of another thread, if that thread still runs.
pub(crate) fn send_key(home: Home, key: Key) {
    let all = REMOTES.read().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, remote)) = all.iter().find(|(other, _)| *other == home) {
        remote.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        remote.notify();
    }
}

/// Returns a task to its thread.
pub(crate) fn send(home: Home, runnable: Runnable) {
    let all = REMOTES.read().unwrap_or_else(PoisonError::into_inner);
    match all.iter().find(|(other, _)| *other == home) {
        Some((_, remote)) => {
            remote.woken.lock().unwrap_or_else(PoisonError::into_inner).push_back(runnable);
            remote.notify();
        }
        // The thread has ended, and only that thread may drop the task's contents.
        None => std::mem::forget(runnable),
    }
}
