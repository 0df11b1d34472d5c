//! Bundles changes: the first one after a quiet time is released at once, bursts once they end.
//!
//! Changes of endpoints never wait, unless others do: their translation takes a few milliseconds, and those that come meanwhile are
//! released together. A translation of all objects takes longer than the pauses between the events of one rollout, so that
//! the controller would be busy with states that are over.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cluster_objects::ObjectName;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Time without a change that ends a burst.
pub const QUIET: Duration = Duration::from_millis(50);
/// Longest time that a change waits for the end of its burst.
pub const WAIT_MAX: Duration = Duration::from_millis(500);

/// Objects that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Slices of these Services at most.
    Endpoints(BTreeSet<ObjectName>),
    Objects,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        matches!(self, Changes::Endpoints(services) if services.is_empty())
    }

    fn add(&mut self, more: Changes) {
        match (self, more) {
            (Changes::Endpoints(known), Changes::Endpoints(more)) => known.extend(more),
            (Changes::Objects, _) => {}
            (changes, Changes::Objects) => *changes = Changes::Objects,
        }
    }
}

impl Default for Changes {
    fn default() -> Changes {
        Changes::Endpoints(BTreeSet::new())
    }
}

/// Changes that wait for their translation. Many tasks note changes, one task takes them.
#[derive(Default)]
pub struct ChangeQueue {
    pending: Mutex<PendingChanges>,
    noted: Notify,
}

#[derive(Default)]
struct PendingChanges {
    /// Time of the first change that is not released.
    first: Option<Instant>,
    /// Time of the last change that was none of endpoints, released or not.
    last_object: Option<Instant>,
    /// The first change followed a quiet time, or all are changes of endpoints.
    is_urgent: bool,
    /// Changes since the last [`ChangeQueue::drain`].
    changes: Changes,
}

impl ChangeQueue {
    /// Notes changes.
    pub fn note(&self, changes: Changes) {
        if changes.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let is_endpoints = matches!(changes, Changes::Endpoints(_));
        if pending.first.is_none() {
            pending.first = Some(now);
            pending.is_urgent =
                is_endpoints || pending.last_object.is_none_or(|last| now.duration_since(last) >= QUIET);
        } else if pending.is_urgent && !is_endpoints && matches!(pending.changes, Changes::Endpoints(_)) {
            pending.is_urgent = pending.last_object.is_none_or(|last| now.duration_since(last) >= QUIET);
        }
        if !is_endpoints {
            pending.last_object = Some(now);
        }
        pending.changes.add(changes);
        drop(pending);
        self.noted.notify_one();
    }

    /// Takes all changes. The caller holds the lock of the objects that changed, so that it sees all changes that it takes, and no others.
    pub fn drain(&self) -> Changes {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut pending.changes)
    }

    /// Waits until changes are to be translated; [`ChangeQueue::drain`] follows. May be dropped at any time without a loss.
    pub async fn due(&self) {
        loop {
            match self.next_release() {
                Due::Now => return,
                Due::At(time) => sleep_until(time).await,
                Due::Never => self.noted.notified().await,
            }
        }
    }

    fn next_release(&self) -> Due {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(first) = pending.first else { return Due::Never };
        let last = pending.last_object.unwrap_or(first);
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

    fn slice() -> Changes {
        Changes::Endpoints(BTreeSet::from([ObjectName::new("shop", "api")]))
    }

    /// Notes changes of objects with pauses before them (ms), and returns the times (ms) of the releases.
    async fn releases(pauses: &[u64]) -> Vec<u64> {
        let notes: Vec<(u64, Changes)> = pauses.iter().map(|pause| (*pause, Changes::Objects)).collect();
        releases_of(&notes).await
    }

    async fn releases_of(notes: &[(u64, Changes)]) -> Vec<u64> {
        let (queue, start) = (Arc::new(ChangeQueue::default()), Instant::now());
        let times = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn({
            let (queue, times) = (queue.clone(), times.clone());
            async move {
                loop {
                    queue.due().await;
                    assert!(!queue.drain().is_empty());
                    times.lock().unwrap().push(start.elapsed().as_millis() as u64);
                }
            }
        });
        tokio::task::yield_now().await;
        for (pause, changes) in notes {
            // Steps of one millisecond: a timer ends in the step that it belongs to.
            for _ in 0..*pause {
                advance(Duration::from_millis(1)).await;
                tokio::task::yield_now().await;
            }
            queue.note(changes.clone());
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
    async fn changes_of_endpoints_wait_for_nothing_but_other_changes() {
        let objects = Changes::Objects;
        assert_eq!(releases_of(&[(10, slice()), (1, slice()), (1, slice())]).await, [10, 11, 12]);
        assert_eq!(releases_of(&[(10, slice()), (1, objects.clone())]).await, [10, 11], "no burst of other objects");
        let times = releases_of(&[(10, objects.clone()), (1, objects), (1, slice())]).await;
        assert_eq!((times.len(), times[0]), (2, 10), "{times:?}");
        assert!((61..=62).contains(&times[1]), "50 ms after the last change of other objects: {times:?}");
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
