//! How much one task may do before it lets the others go first.
//!
//! A task that always finds bytes to move would keep its thread for as long as its peers are fast. Whoever moves bytes says how
//! many ([`spend`]); loops over ready data ask [`poll_proceed`] before each step. The budget is renewed whenever a task is
//! polled by its executor.

use std::cell::Cell;
use std::task::{Context, Poll};

/// Bytes that a task may move in one go: less than a millisecond's work on any transport, TLS included.
pub const BYTES: u32 = 256 * 1024;
/// What a small step costs (a request, an event) beside its bytes: 64 of them are a turn's share.
pub const STEP: u32 = BYTES / 64;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(BYTES) };
}

/// Takes from the budget of the task that runs.
#[inline]
pub fn spend(bytes: usize) {
    LEFT.set(LEFT.get().saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX)));
}

/// A task begins its turn.
#[inline]
pub fn renew() {
    LEFT.set(BYTES);
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
    crate::task::give_way(cx.waker());
    Poll::Pending
}

/// Waits until there is something left.
pub async fn proceed() {
    std::future::poll_fn(poll_proceed).await;
}
