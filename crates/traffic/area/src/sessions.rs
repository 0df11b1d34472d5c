//! Sessions of a worker thread in any area: counting, and termination.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// `worker_shutdown_timeout` elapsed.
    Timeout,
    /// The worker ends, and the session has no further events.
    Shutdown,
}

#[derive(Default)]
pub struct SessionControl {
    closed: Cell<Option<Cause>>,
    waker: RefCell<Option<Waker>>,
}

impl SessionControl {
    fn close(&self, cause: Cause) {
        self.closed.set(Some(cause));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Cause> {
        if let Some(cause) = self.closed.get() {
            return Poll::Ready(cause);
        }
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
    /// Runs a session's work; an error is the cause of its early end. The caller pins the work: an argument and its
    /// pinned copy would take its memory twice.
    pub async fn run<T>(&self, mut work: Pin<&mut impl Future<Output = T>>) -> Result<T, Cause> {
        poll_fn(|cx| match self.poll_closed(cx) {
            Poll::Ready(cause) => Poll::Ready(Err(cause)),
            Poll::Pending => work.as_mut().poll(cx).map(Ok),
        })
        .await
    }
}

#[derive(Default)]
pub struct AreaSessions(RefCell<HashMap<u64, Rc<SessionControl>>>);

impl AreaSessions {
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }
    pub fn place(self: &Rc<Self>, number: u64) -> SessionSlot {
        let control = Rc::<SessionControl>::default();
        self.0.borrow_mut().insert(number, control.clone());
        SessionSlot { sessions: self.clone(), number, control }
    }
    pub fn close(&self, cause: Cause, which: impl Fn(u64) -> bool) {
        let due: Vec<_> = self.0.borrow().iter().filter(|(n, _)| which(**n)).map(|(_, c)| c.clone()).collect();
        for control in due {
            control.close(cause);
        }
    }
}

/// Removed on drop.
pub struct SessionSlot {
    sessions: Rc<AreaSessions>,
    number: u64,
    pub control: Rc<SessionControl>,
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.sessions.0.borrow_mut().remove(&self.number);
    }
}
