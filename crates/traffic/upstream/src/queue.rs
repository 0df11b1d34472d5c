//! `queue`: requests wait for an available server.

use crate::balance::{Attempts, Choice, PeerLease};
use crate::group::{Group, Queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Interval of checks for servers that recover silently (`fail_timeout`).
const LOOK: Duration = Duration::from_millis(100);

/// Released on drop.
struct QueueSlot<'a>(&'a AtomicUsize);

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Group {
    /// Next server; with `queue` waits in order of arrival.
    pub async fn next(self: &Arc<Self>, choice: &Choice<'_>, attempts: &mut Attempts) -> Option<PeerLease> {
        let Some(queue) = self.extras.queue else { return self.choose(choice, attempts) };
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting == 0
            && let Some(active) = self.choose(choice, attempts)
        {
            return Some(active);
        }
        if waiting >= queue.max {
            self.overflows.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if attempts.asked() > 0 {
            return None;
        }
        // Boxed: waiting is rare, and the field would enlarge every caller's future.
        Box::pin(self.wait(queue, choice, attempts)).await
    }
    async fn wait(self: &Arc<Self>, queue: Queue, choice: &Choice<'_>, attempts: &mut Attempts) -> Option<PeerLease> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _place = QueueSlot(&self.waiting);
        let deadline = base::clock::now().plus_millis(queue.timeout_ms);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no release is missed.
            freed.as_mut().enable();
            attempts.renew(self);
            base::clock::update();
            let now = Choice { now: base::clock::now(), ..*choice };
            if let Some(active) = self.choose(&now, attempts) {
                return Some(active);
            }
            if now.now >= deadline {
                return None;
            }
            let _ = runtime::time::timeout_at(deadline.min(now.now.plus(LOOK)), freed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{Extras, Queue, ServerLine, ServerSource};
    use crate::keep_alive::KeepAlive;
    use crate::peer::PeerSpec;
    use crate::{BalanceMethod, balance};
    use net::Address;

    #[test]
    fn waits_its_turn_and_no_longer_than_that() {
        let address = Address::Unix("/queue".into());
        let spec = PeerSpec { max_conns: 1, ..PeerSpec::new("s", address.clone()) };
        let lines = vec![ServerLine { spec, source: ServerSource::Fixed(vec![address]) }];
        let extras = Extras { queue: Some(Queue { max: 1, timeout_ms: 60 }), ..Extras::default() };
        let g = Arc::new(Group::with("queue", lines, BalanceMethod::RoundRobin, KeepAlive::default(), true, extras));
        let choice = balance::Choice { now: base::clock::now(), random: 1, key: b"", bound: None };
        runtime::block_on(async {
            let held = g.next(&choice, &mut g.attempts()).await.unwrap();
            assert!(g.next(&choice, &mut g.attempts()).await.is_none(), "nobody gives up a server");
            let (mut second, mut third) = (g.attempts(), g.attempts());
            let (second, third, ()) = tokio::join!(g.next(&choice, &mut second), g.next(&choice, &mut third), async {
                drop(held);
            });
            assert!(second.is_some() && third.is_none(), "one place in the queue");
            assert_eq!(g.waiting.load(Ordering::Relaxed), 0);
        });
    }
}
