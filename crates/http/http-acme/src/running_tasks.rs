//! The scheduler's tasks under way.

use super::tasks::{TaskOutcome, Work};
use runtime::task::JoinHandle;
use std::pin::Pin;
use std::task::Poll;

/// Tasks under way; they end with their owner.
#[derive(Default)]
pub struct RunningTasks(Vec<(Work, Option<JoinHandle<TaskOutcome>>)>);

impl RunningTasks {
    pub fn push(&mut self, work: Work, handle: JoinHandle<TaskOutcome>) {
        self.0.push((work, Some(handle)));
    }
    /// Waits for the end of any. `None` as outcome: it has panicked.
    pub async fn next(&mut self) -> (Work, Option<TaskOutcome>) {
        std::future::poll_fn(|cx| {
            for at in 0..self.0.len() {
                let Some((_, Some(handle))) = self.0.get_mut(at) else { continue };
                if let Poll::Ready(done) = Pin::new(handle).poll(cx) {
                    let (work, _) = self.0.swap_remove(at);
                    return Poll::Ready((work, done.ok()));
                }
            }
            Poll::Pending
        })
        .await
    }
    pub fn count(&self, wanted: impl Fn(&Work) -> bool) -> usize {
        self.0.iter().filter(|(work, _)| wanted(work)).count()
    }
}

impl Drop for RunningTasks {
    fn drop(&mut self) {
        for (work, handle) in self.0.drain(..) {
            if let Some(handle) = handle {
                handle.abort();
            }
            // The next scheduler may have started before this one took the name: waiting handshakes ask again.
            if let Work::Question(asked) = work {
                asked.name.fail(0);
            }
        }
    }
}
