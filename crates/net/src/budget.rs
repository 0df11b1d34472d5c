//! How much one task may do before it lets the others go first.
//!
//! A task that always finds bytes to move would keep its thread for as long as its peers are fast, and one that is told of readiness
//! and then finds nothing would keep it for good. So every call on a socket is counted by what makes it ([`crate::poller`],
//! [`crate::outbound`]): its bytes and [`PASS`], also a call that moved nothing; and so is every wait that was over at once. Waits
//! and loops over ready data ask [`poll_proceed`]. The budget is renewed whenever a task is polled by its executor.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Bytes that a task may move in one go: less than a millisecond's work on any transport, TLS included.
pub const BYTES: u32 = 256 * 1024;
/// Cost of a small step (a request, an event) beside its bytes: 64 of them are a turn's share.
pub const STEP: u32 = BYTES / 64;
/// Cost of one call on a socket beside its bytes, successful or not: 512 of them are a turn's share.
pub const PASS: u32 = BYTES / 512;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(BYTES) };
    /// Tasks that gave way: they are woken when the thread has looked at its sockets again.
    static GAVE_WAY: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Takes from the budget of the task that runs.
#[inline]
pub fn spend(bytes: usize) {
    LEFT.set(LEFT.get().saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX)));
}

/// Takes a call on a socket from the budget, and the bytes that it moved.
#[inline]
pub fn pass(bytes: usize) {
    spend(bytes.saturating_add(PASS as usize));
}

/// A task begins its turn.
#[inline]
pub fn renew() {
    LEFT.set(BYTES);
    #[cfg(debug_assertions)]
    crate::faults::renew();
}

/// Whether something is left.
#[inline]
pub fn is_left() -> bool {
    LEFT.get() > 0
}

/// Ready as long as something is left; otherwise the task is woken in the next turn.
#[inline]
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<()> {
    if is_left() {
        return Poll::Ready(());
    }
    give_way(cx.waker());
    Poll::Pending
}

/// Waits until there is something left.
pub async fn proceed() {
    std::future::poll_fn(poll_proceed).await;
}

/// Has this waker woken in the next turn.
pub fn give_way(waker: &Waker) {
    GAVE_WAY.with_borrow_mut(|all| all.push(waker.clone()));
}

/// Whether tasks have given way.
pub fn any_gave_way() -> bool {
    GAVE_WAY.with_borrow(|all| !all.is_empty())
}

/// Wakes the tasks that gave way: the thread's loop calls it once a turn.
pub fn wake_all() {
    let mut gave_way = GAVE_WAY.with_borrow_mut(std::mem::take);
    if gave_way.is_empty() {
        return;
    }
    gave_way.drain(..).for_each(Waker::wake);
    // Its memory is kept.
    GAVE_WAY.with_borrow_mut(|all| {
        if all.is_empty() {
            *all = gave_way;
        }
    });
}
