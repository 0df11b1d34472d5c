//! Zones that several nodes share (`keyval_zone ... sync`): changes go to the store of `shared_store`, and come from it.

use super::{Keyval, KeyvalFailure};
use crate::shared_store::{StoreSlot, space_name};
use arc_swap::ArcSwapOption;
use conf_schema::{Cx, Directive};
use keyval::{KeyvalPair, KeyvalZone, Refusal};
use observe::ErrorLog;
use shared_store::{LocalMap, LocalValue, MapReplica, StoreAgent};
use std::sync::Arc;
use variables::AreaTypes;

/// Connection of a zone to the store.
pub(super) struct SharedPairs {
    slot: StoreSlot,
    space: String,
    /// While a configuration serves.
    active: ArcSwapOption<ActiveSharing>,
}

struct ActiveSharing {
    replica: Arc<MapReplica>,
    agent: Arc<StoreAgent>,
}

impl SharedPairs {
    pub(super) fn new<A: AreaTypes>(cx: &mut Cx, d: &Directive, name: &str) -> SharedPairs {
        let area = std::any::type_name::<A>().rsplit("::").next().unwrap_or_default().to_ascii_lowercase();
        SharedPairs {
            slot: StoreSlot::for_sync(cx, d, name, "the zone is not shared with other servers"),
            space: format!("keyval:{area}:{}", space_name(name)),
            active: ArcSwapOption::empty(),
        }
    }
}

/// A zone as the store sees it.
struct SharedZone(Arc<KeyvalZone>);

impl LocalMap for SharedZone {
    fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
        let pair = self.0.get(std::str::from_utf8(key).ok()?, base::clock::unix_millis())?;
        Some((pair.value.as_bytes().to_vec(), pair.expires))
    }

    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool {
        let now = base::clock::unix_millis();
        // Another program's data has no place here.
        let Ok(key) = std::str::from_utf8(key) else { return false };
        match value.map(std::str::from_utf8) {
            None => self.0.remove(key, now).is_ok() || self.0.get(key, now).is_none(),
            Some(Ok(value)) => self.0.set(KeyvalPair::new(key, value, expires), now).is_ok(),
            Some(Err(_)) => false,
        }
    }

    fn local_keys(&self) -> Vec<Vec<u8>> {
        let pairs = self.0.list(base::clock::unix_millis());
        pairs.into_iter().map(|pair| pair.key.into_string().into_bytes()).collect()
    }

    fn local_identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Keyval {
    /// Begins to share the zone, if it has `sync` and there is a store.
    pub(super) fn begin_sharing(&self, log: &Arc<ErrorLog>) {
        let Some(sharing) = &self.sharing else { return };
        let Some(agent) = sharing.slot.agent(log) else { return };
        let replica = agent.share_map(&sharing.space, Arc::new(SharedZone(self.zone.clone())));
        sharing.active.store(Some(Arc::new(ActiveSharing { replica, agent })));
    }

    pub(super) fn replica(&self) -> Option<Arc<MapReplica>> {
        let active = self.sharing.as_ref()?.active.load_full()?;
        Some(active.replica.clone())
    }

    /// Tells whether the zone has `sync`.
    pub fn has_sync(&self) -> bool {
        self.sharing.is_some()
    }

    /// Returns the connection to the store, while a configuration with the zone serves.
    pub fn store_agent(&self) -> Option<Arc<StoreAgent>> {
        let active = self.sharing.as_ref()?.active.load_full()?;
        Some(active.agent.clone())
    }

    /// Changes the pair of a key by a closure, which must not change other keys, and tells the other servers of a shared
    /// zone. Does not wait for the store. `now` is in milliseconds since 1970.
    ///
    /// # Errors
    /// Those of the closure: nothing is told then.
    pub fn update_pair<T>(
        &self,
        key: &str,
        now: u64,
        change: impl FnOnce(&KeyvalZone) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        match self.replica() {
            None => change(&self.zone),
            Some(replica) => replica.change_key(key.as_bytes(), now, || change(&self.zone)),
        }
    }

    pub(super) fn change_key(
        &self,
        key: &str,
        now: u64,
        change: impl FnOnce() -> Result<(), KeyvalFailure>,
    ) -> Result<(), KeyvalFailure> {
        match self.replica() {
            None => change(),
            Some(replica) => replica.change_key(key.as_bytes(), now, change),
        }
    }
}
