//! A store in memory: for one process, and for tests of many nodes in one.

use crate::record::MapRecord;
use crate::store::{PermitGrant, PermitRequest, Store, StoreFailure, StoreFuture, Subscription, grant_permits};
use futures::StreamExt;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::broadcast;

/// Changes that a subscriber may be behind before it has to read all records anew.
const CHANGES_MAX: usize = 1024;

/// See the module. Values of all spaces end with the process.
pub struct MemoryStore {
    state: Mutex<MemoryState>,
    changes: broadcast::Sender<(String, MapRecord)>,
}

#[derive(Default)]
struct MemoryState {
    values: HashMap<(String, Vec<u8>), (Vec<u8>, Option<u64>)>,
    maps: HashMap<String, BTreeMap<Vec<u8>, MapRecord>>,
    leases: HashMap<String, (String, u64)>,
    /// Microseconds until which a bucket is paid for.
    permits: HashMap<(String, Vec<u8>), u64>,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        let (changes, _) = broadcast::channel(CHANGES_MAX);
        MemoryStore { state: Mutex::default(), changes }
    }
}

impl MemoryStore {
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

fn end(lifetime: Option<Duration>) -> Option<u64> {
    lifetime.map(|lifetime| micros().saturating_add(lifetime.as_micros() as u64))
}

impl MemoryState {
    fn value(&mut self, space: &str, key: &[u8]) -> Option<Vec<u8>> {
        let id = (space.to_owned(), key.to_vec());
        if self.values.get(&id).is_some_and(|(_, end)| end.is_some_and(|end| end <= micros())) {
            self.values.remove(&id);
        }
        self.values.get(&id).map(|(value, _)| value.clone())
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, space: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move { Ok(self.state().value(space, key)) })
    }

    fn put<'a>(
        &'a self,
        space: &'a str,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Option<Duration>,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.state().values.insert((space.to_owned(), key.to_vec()), (value.to_vec(), end(lifetime)));
            Ok(())
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        space: &'a str,
        key: &'a [u8],
        expected: Option<&'a [u8]>,
        value: &'a [u8],
        lifetime: Option<Duration>,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut state = self.state();
            if state.value(space, key).as_deref() != expected {
                return Ok(false);
            }
            state.values.insert((space.to_owned(), key.to_vec()), (value.to_vec(), end(lifetime)));
            Ok(true)
        })
    }

    fn merge_records<'a>(&'a self, space: &'a str, records: &'a [MapRecord]) -> StoreFuture<'a, usize> {
        Box::pin(async move {
            let mut state = self.state();
            let map = state.maps.entry(space.to_owned()).or_default();
            let mut written = 0;
            for record in records {
                if map.get(&record.key).is_some_and(|present| present.version >= record.version) {
                    continue;
                }
                map.insert(record.key.clone(), record.clone());
                written += 1;
                // An error means that there are no subscribers.
                let _ = self.changes.send((space.to_owned(), record.clone()));
            }
            Ok(written)
        })
    }

    fn records<'a>(&'a self, space: &'a str) -> StoreFuture<'a, Vec<MapRecord>> {
        Box::pin(async move {
            Ok(self.state().maps.get(space).map(|map| map.values().cloned().collect()).unwrap_or_default())
        })
    }

    fn forget_records<'a>(&'a self, space: &'a str, records: &'a [MapRecord]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if let Some(map) = self.state().maps.get_mut(space) {
                for record in records {
                    if map.get(&record.key) == Some(record) {
                        map.remove(&record.key);
                    }
                }
            }
            Ok(())
        })
    }

    fn subscribe<'a>(&'a self, spaces: &'a [String]) -> StoreFuture<'a, Subscription> {
        Box::pin(async move {
            let (changes, spaces) = (self.changes.subscribe(), spaces.to_vec());
            let stream = futures::stream::unfold((changes, false), move |(mut changes, has_ended)| {
                let spaces = spaces.clone();
                async move {
                    if has_ended {
                        return None;
                    }
                    loop {
                        match changes.recv().await {
                            Ok((space, _)) if !spaces.contains(&space) => {}
                            Ok(change) => return Some((Ok(change), (changes, false))),
                            Err(error) => {
                                let failure = StoreFailure::Unreachable(error.to_string());
                                return Some((Err(failure), (changes, true)));
                            }
                        }
                    }
                }
            });
            Ok(stream.boxed())
        })
    }

    fn hold_lease<'a>(&'a self, name: &'a str, holder: &'a str, lifetime: Duration) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut state = self.state();
            if state.leases.get(name).is_some_and(|(present, end)| present != holder && *end > micros()) {
                return Ok(false);
            }
            let end = micros().saturating_add(lifetime.as_micros() as u64);
            state.leases.insert(name.to_owned(), (holder.to_owned(), end));
            Ok(true)
        })
    }

    fn release_lease<'a>(&'a self, name: &'a str, holder: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut state = self.state();
            if state.leases.get(name).is_some_and(|(present, _)| present == holder) {
                state.leases.remove(name);
            }
            Ok(())
        })
    }

    fn take_permits<'a>(&'a self, space: &'a str, requests: &'a [PermitRequest]) -> StoreFuture<'a, Vec<PermitGrant>> {
        Box::pin(async move {
            let now = micros();
            let mut state = self.state();
            state.permits.retain(|_, until| *until > now);
            let grant = |request: &PermitRequest| {
                let paid = state.permits.entry((space.to_owned(), request.key.clone())).or_default();
                let (permit, burst) = (request.permit_micros(), request.burst_micros());
                let (grant, next) = grant_permits(*paid, now, permit, burst, request.wanted);
                *paid = next;
                grant
            };
            Ok(requests.iter().map(grant).collect())
        })
    }
}
