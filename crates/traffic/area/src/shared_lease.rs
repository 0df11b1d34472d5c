//! Leases of a `shared_store`: work that one of several servers does for all.

use shared_store::{MapReplica, StoreAgent};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two questions after a failure of the store.
const ASK_PAUSE: Duration = Duration::from_millis(100);

/// Answer to the question for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseVerdict {
    Held,
    /// Another server has it.
    Taken,
    /// The store has not answered in time.
    Unreachable,
}

/// Takes a lease, or holds it for longer, waiting for the store at most `patience`. `compared`: see
/// [`StoreAgent::hold_lease`]. For tasks, not for requests.
pub async fn hold_lease(
    agent: &StoreAgent,
    name: &str,
    lifetime: Duration,
    compared: Option<&Arc<MapReplica>>,
    patience: Duration,
) -> LeaseVerdict {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match runtime::time::with_timeout(left, agent.hold_lease(name, lifetime, compared)).await {
            Ok(Ok(true)) => return LeaseVerdict::Held,
            Ok(Ok(false)) => return LeaseVerdict::Taken,
            Ok(Err(_)) if left > ASK_PAUSE => runtime::time::sleep_for(ASK_PAUSE).await,
            Ok(Err(_)) | Err(_) => return LeaseVerdict::Unreachable,
        }
    }
}
