//! Bundles changes: the first one after a quiet time is released at once, bursts once they end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Time without a change that ends a burst.
pub const QUIET: Duration = Duration::from_millis(50);
/// Longest time that a change waits for the end of its burst.
pub const WAIT_MAX: Duration = Duration::from_millis(500);

/// Changes that wait for their translation. Many tasks note changes, one task takes them.
#[derive(Default)]
pub struct ChangeQueue {
    pending: Mutex<Pending>,
    noted: Notify,
}

#[derive(Default)]
struct Pending {
    /// Time of the first change that is not released.
    first: Option<Instant>,
    /// Time of the last change, released or not.
    last: Option<Instant>,
    /// The first change followed a quiet time.
    is_urgent: bool,
}

impl ChangeQueue {
    /// Notes a change.
    pub fn note(&self) {
        let now = Instant::now();
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.first.is_none() {
            pending.first = Some(now);
            pending.is_urgent = pending.last.is_none_or(|last| now.duration_since(last) >= QUIET);
        }
        pending.last = Some(now);
        drop(pending);
        self.noted.notify_one();
    }

    /// Waits until changes are to be translated, and takes all of them. May be dropped at any time without a loss.
    pub async fn take(&self) {
        loop {
            match self.due() {
                Due::Now => return,
                Due::At(time) => sleep_until(time).await,
                Due::Never => self.noted.notified().await,
            }
        }
    }

    fn due(&self) -> Due {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(first), Some(last)) = (pending.first, pending.last) else { return Due::Never };
        let due = (last + QUIET).min(first + WAIT_MAX);
        if pending.is_urgent || due <= Instant::now() {
            pending.first = None;
            pending.is_urgent = false;
            return Due::Now;
        }
        Due::At(due)
    }
}

enum Due {
    Now,
    At(Instant),
    Never,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::advance;

    use super::*;

    /// Notes changes with pauses before them (ms), and returns the times (ms) of the releases.
    async fn releases(pauses: &[u64]) -> Vec<u64> {
        let (queue, start) = (Arc::new(ChangeQueue::default()), Instant::now());
        let times = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn({
            let (queue, times) = (queue.clone(), times.clone());
            async move {
                loop {
                    queue.take().await;
                    times.lock().unwrap().push(start.elapsed().as_millis() as u64);
                }
            }
        });
        tokio::task::yield_now().await;
        for pause in pauses {
            // Steps of one millisecond: a timer ends in the step that it belongs to.
            for _ in 0..*pause {
                advance(Duration::from_millis(1)).await;
                tokio::task::yield_now().await;
            }
            queue.note();
            tokio::task::yield_now().await;
        }
        for _ in 0..2_000 {
            advance(Duration::from_millis(1)).await;
            tokio::task::yield_now().await;
        }
        task.abort();
        std::mem::take(&mut *times.lock().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_change_is_released_at_once() {
        assert_eq!(releases(&[10]).await, [10]);
        assert_eq!(releases(&[10, 50, 60]).await, [10, 60, 120]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_released_at_its_beginning_and_its_end() {
        let times = releases(&[10, 1, 1, 1, 1]).await;
        assert_eq!(times.len(), 2, "{times:?}");
        assert_eq!(times[0], 10);
        assert!((64..=66).contains(&times[1]), "50 ms after the last change: {times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_without_an_end_waits_at_most_500_ms() {
        let times = releases(&[10; 200]).await;
        assert_eq!(times[0], 10);
        for pair in times.windows(2) {
            assert!(pair[1] - pair[0] <= 515, "{times:?}");
        }
        assert!(times.len() <= 6, "2,000 ms give at most one release each 500 ms: {times:?}");
    }
}
