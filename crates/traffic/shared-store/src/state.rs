//! State of the connection to a store, for `doctor`, metrics, the dashboard and the API.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// State of a store for an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    pub is_connected: bool,
    /// Milliseconds since 1970 of the last change between connected and not.
    pub since: u64,
    /// The last failure, also of a time that is over.
    pub last_failure: Option<String>,
    /// Nodes that have been seen lately, this one included.
    pub nodes: u64,
    /// Records that wait for the store.
    pub records_pending: u64,
    /// Records that were sent, and that were taken over from other nodes.
    pub records_sent: u64,
    pub records_applied: u64,
    /// Records of other nodes that had no room in a zone.
    pub records_refused: u64,
    /// Connections that were lost, or could not be made.
    pub failures: u64,
    pub permits_taken: u64,
    pub permits_refused: u64,
    pub maps: Vec<MapState>,
}

/// State of a shared map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapState {
    /// Name of the map in the store.
    pub space: String,
    /// Keys with a version: pairs, and removals that are remembered.
    pub records: u64,
    /// Changes that the store does not have yet.
    pub pending: u64,
}

/// Cells that the agent's thread writes.
#[derive(Default)]
pub(crate) struct StateCells {
    pub connection: Mutex<ConnectionState>,
    /// Of `connection`, for requests.
    pub is_connected: AtomicBool,
    /// Nodes that were seen last, if the store is gone.
    pub nodes: AtomicU64,
    pub pending: AtomicU64,
    pub sent: AtomicU64,
    pub applied: AtomicU64,
    pub refused: AtomicU64,
    pub failures: AtomicU64,
    pub permits_taken: AtomicU64,
    pub permits_refused: AtomicU64,
}

#[derive(Clone, Default)]
pub(crate) struct ConnectionState {
    pub is_connected: bool,
    pub since: u64,
    pub last_failure: Option<String>,
}

impl StateCells {
    pub fn snapshot(&self) -> StoreState {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        StoreState {
            is_connected: connection.is_connected,
            since: connection.since,
            last_failure: connection.last_failure,
            nodes: read(&self.nodes).max(1),
            records_pending: read(&self.pending),
            records_sent: read(&self.sent),
            records_applied: read(&self.applied),
            records_refused: read(&self.refused),
            failures: read(&self.failures),
            permits_taken: read(&self.permits_taken),
            permits_refused: read(&self.permits_refused),
            maps: Vec::new(),
        }
    }

    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Notes a connection (`None`) or a failure. Returns `true` if the state has changed.
    pub fn note(&self, failure: Option<String>, now: u64) -> bool {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let is_connected = failure.is_none();
        self.is_connected.store(is_connected, Ordering::Relaxed);
        let has_changed = connection.is_connected != is_connected || connection.since == 0;
        if has_changed {
            (connection.is_connected, connection.since) = (is_connected, now);
        }
        if let Some(failure) = failure {
            self.failures.fetch_add(1, Ordering::Relaxed);
            connection.last_failure = Some(failure);
        }
        has_changed
    }
}
