//! Budget of a task before others run, renewed with each poll by the executor.
//! Without it a task would keep its thread while its peers are fast, or while it is told of readiness and finds
//! nothing. Every socket call ([`crate::poller`], [`crate::outbound`]) costs its bytes and [`PASS`], even if it moved
//! nothing, as does every completed wait. Waits and loops over ready data ask [`poll_proceed`].

use base::clock::{self, Instant};
use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Bytes of a turn: less than a millisecond's work on any transport, including TLS.
pub const BYTES: u32 = 256 * 1024;
/// Cost of a small step (a request, an event): 64 per turn.
pub const STEP: u32 = BYTES / 64;
/// Cost of a socket call, successful or not: 512 per turn.
pub const PASS: u32 = BYTES / 512;

/// Microseconds of a slice, for work whose cost is not proportional to bytes: see [`charge_time`].
pub const MICROS: u64 = 1000;

thread_local! {
    /// Time of the slice's first [`charge_time`]; 0 before it.
    static SINCE: Cell<Instant> = const { Cell::new(Instant(0)) };
    static LEFT: Cell<u32> = const { Cell::new(BYTES) };
    /// Tasks out of budget, woken after the next look at the sockets.
    static GAVE_WAY: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Takes bytes from the budget of the current turn.
#[inline]
pub fn spend(bytes: usize) {
    LEFT.set(LEFT.get().saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX)));
}

/// Takes the cost of a socket call that moved this many bytes.
#[inline]
pub fn pass(bytes: usize) {
    spend(bytes.saturating_add(PASS as usize));
}

/// At the start of a task's turn.
#[inline]
pub fn renew() {
    LEFT.set(BYTES);
    SINCE.set(Instant(0));
    #[cfg(debug_assertions)]
    crate::faults::renew();
}

/// Permits another call after a read that has spent the budget, so that the bytes read need not be kept.
#[inline]
pub fn allow_call() {
    LEFT.set(LEFT.get().max(1));
}

/// Spends the budget if [`MICROS`] have passed since the first call. Called between the requests of a slice: a password
/// file or a regular expression may cost a thousand times as much as a small response.
pub fn charge_time() {
    let now = clock::read();
    match SINCE.get() {
        Instant(0) => SINCE.set(now),
        since if now.micros_since(since) >= MICROS => spend(BYTES as usize),
        _ => {}
    }
}

/// Tells whether the current turn may go on.
#[inline]
pub fn is_left() -> bool {
    LEFT.get() > 0
}

/// Ready while budget is left; otherwise wakes the task in the next turn.
#[inline]
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<()> {
    if is_left() {
        return Poll::Ready(());
    }
    give_way(cx.waker());
    Poll::Pending
}

/// Waits for the next turn if the budget is used up.
pub async fn proceed() {
    std::future::poll_fn(poll_proceed).await;
}

/// Wakes a task without budget in the next turn, after the next look at the sockets.
pub fn give_way(waker: &Waker) {
    GAVE_WAY.with_borrow_mut(|all| all.push(waker.clone()));
}

/// Tells whether tasks wait for the next turn.
pub fn any_gave_way() -> bool {
    GAVE_WAY.with_borrow(|all| !all.is_empty())
}

/// Once per turn.
pub fn wake_all() {
    let mut gave_way = GAVE_WAY.with_borrow_mut(std::mem::take);
    if gave_way.is_empty() {
        return;
    }
    gave_way.drain(..).for_each(Waker::wake);
    GAVE_WAY.with_borrow_mut(|all| {
        if all.is_empty() {
            *all = gave_way;
        }
    });
}
