//! Timers of one thread. They fire between turns, at most one millisecond late.

use base::clock::{self, Instant};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

struct TimerSlot {
    generation: u32,
    deadline: Instant,
    /// Due time of its heap node, at `deadline` or before; 0: no node.
    node: Instant,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Timers {
    slots: Vec<TimerSlot>,
    free: Vec<u32>,
    heap: BinaryHeap<Reverse<(Instant, u32, u32)>>,
}

/// Minimum number of stale nodes before the heap is compacted; compaction waits until they are the majority.
const STALE_NODES_MIN: usize = 256;

thread_local! {
    static TIMERS: RefCell<Timers> = RefCell::default();
}

impl Timers {
    fn arm(&mut self, place: Option<(u32, u32)>, deadline: Instant, waker: &Waker) -> (u32, u32) {
        let (index, generation) = place.unwrap_or_else(|| {
            let index = self.free.pop().unwrap_or_else(|| {
                self.slots.push(TimerSlot { generation: 0, deadline, node: Instant::default(), waker: None });
                (self.slots.len() - 1) as u32
            });
            (index, self.slots.get(index as usize).map_or(0, |slot| slot.generation))
        });
        let Some(slot) = self.slots.get_mut(index as usize) else { return (index, generation) };
        match &slot.waker {
            Some(old) if old.will_wake(waker) => {}
            _ => slot.waker = Some(waker.clone()),
        }
        slot.deadline = deadline;
        // Deadlines mostly move later: the existing node stays valid.
        if slot.node == Instant::default() || deadline < slot.node {
            slot.node = deadline;
            self.heap.push(Reverse((deadline, index, generation)));
        }
        (index, generation)
    }
    fn disarm(&mut self, index: u32) -> Option<Waker> {
        let slot = self.slots.get_mut(index as usize)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.node = Instant::default();
        let waker = slot.waker.take();
        self.free.push(index);
        let in_use = self.slots.len() - self.free.len();
        if self.heap.len() > STALE_NODES_MIN && self.heap.len() > 2 * in_use {
            let slots = &self.slots;
            self.heap.retain(|Reverse((at, index, generation))| {
                slots.get(*index as usize).is_some_and(|slot| slot.generation == *generation && slot.node == *at)
            });
        }
        waker
    }
    fn pop(&mut self, now: Instant) -> Option<Waker> {
        while let Some(Reverse((at, index, generation))) = self.heap.peek().copied() {
            if at > now {
                return None;
            }
            self.heap.pop();
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            if slot.generation != generation || slot.node != at {
                continue;
            }
            if slot.deadline > now {
                slot.node = slot.deadline;
                self.heap.push(Reverse((slot.deadline, index, generation)));
                continue;
            }
            slot.node = Instant::default();
            if let Some(waker) = slot.waker.take() {
                return Some(waker);
            }
        }
        None
    }
}

/// Returns the time of the next timer, or earlier; `None`: there is none.
pub fn next() -> Option<Instant> {
    TIMERS.with_borrow(|timers| timers.heap.peek().map(|Reverse((at, ..))| *at))
}

/// Wakes the tasks whose time has come. The loop calls it once per turn.
pub fn fire(now: Instant) {
    // Wakers run arbitrary code: the timers must not be borrowed.
    while let Some(waker) = TIMERS.with_borrow_mut(|timers| timers.pop(now)) {
        waker.wake();
    }
}

/// Removes every timer at the thread's end.
pub(crate) fn clear() {
    let wakers: Vec<Waker> = TIMERS.with_borrow_mut(|timers| {
        timers.heap.clear();
        timers.slots.iter_mut().filter_map(|slot| slot.waker.take()).collect()
    });
    drop(wakers);
}

/// A timer, as a future that ends at its deadline. Armed by its first poll.
#[derive(Debug)]
pub struct Sleep {
    deadline: Instant,
    place: Option<(u32, u32)>,
}

/// Waits for a duration, from the turn's time on.
pub fn sleep_for(duration: Duration) -> Sleep {
    sleep_until(after(duration))
}

/// Waits until a deadline; a past one completes at once.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, place: None }
}

/// Returns the time after a duration, counted from the turn's time.
pub fn after(duration: Duration) -> Instant {
    clock::now().plus(duration)
}

impl Sleep {
    /// Returns the deadline.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
    /// Moves the deadline. It takes effect with the next poll.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if clock::now() >= self.deadline {
            return Poll::Ready(());
        }
        let (place, deadline) = (self.place, self.deadline);
        self.place = Some(TIMERS.with_borrow_mut(|timers| timers.arm(place, deadline, cx.waker())));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((index, _)) = self.place {
            let waker = TIMERS.try_with(|timers| timers.borrow_mut().disarm(index));
            drop(waker);
        }
    }
}

/// The time limit has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeElapsed;

/// Limits a future to a duration; fails with [`TimeElapsed`]. Simultaneous completion counts.
pub async fn with_timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, TimeElapsed> {
    timeout_at(after(duration), future).await
}

/// Limits a future by a deadline, as [`with_timeout`].
pub async fn timeout_at<F: Future>(deadline: Instant, future: F) -> Result<F::Output, TimeElapsed> {
    let mut future = pin!(future);
    let mut sleep = pin!(sleep_until(deadline));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        sleep.as_mut().poll(cx).map(|()| Err(TimeElapsed))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_leave_nothing_behind() {
        let mut timers = Timers::default();
        let waker = Waker::noop();
        let places: Vec<_> = [30, 10, 20].iter().map(|at| timers.arm(None, Instant(*at), waker)).collect();
        assert!(timers.pop(Instant(9)).is_none());
        assert!(timers.pop(Instant(10)).is_some() && timers.pop(Instant(10)).is_none());
        timers.disarm(places[2].0);
        assert!(timers.pop(Instant(29)).is_none(), "a timer that was dropped does not fire");
        assert!(timers.pop(Instant(30)).is_some());
        assert!(timers.heap.is_empty());
    }

    #[test]
    fn a_deadline_that_moves_away_is_met() {
        let mut timers = Timers::default();
        let place = timers.arm(None, Instant(10), Waker::noop());
        timers.arm(Some(place), Instant(50), Waker::noop());
        assert_eq!(timers.heap.len(), 1, "one node serves");
        assert!(timers.pop(Instant(49)).is_none());
        assert!(timers.pop(Instant(50)).is_some());
        timers.arm(Some(place), Instant(90), Waker::noop());
        timers.arm(Some(place), Instant(60), Waker::noop());
        assert!(timers.pop(Instant(60)).is_some());
        assert!(timers.pop(Instant(90)).is_none(), "one that moved near fires once");
    }

    #[test]
    fn short_lives_do_not_fill_the_heap() {
        let mut timers = Timers::default();
        for n in 0..100_000 {
            let (index, _) = timers.arm(None, Instant(1_000_000 + n), Waker::noop());
            timers.disarm(index);
        }
        assert!(timers.heap.len() <= STALE_NODES_MIN + 1 && timers.slots.len() == 1);
    }
}
