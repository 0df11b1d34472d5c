//! Limits over the nodes of a `shared_store`: what `sync` of a limit's zone adds to the node's own bucket.

use crate::shared_store::StoreSlot;
use shared_store::{PermitPool, PermitVerdict, StoreAgent};
use std::sync::{Arc, OnceLock};

/// A limit over several nodes.
pub struct SharedLimit {
    slot: StoreSlot,
    space: String,
    rate: u64,
    burst: u64,
    bytes_max: usize,
    /// Since the first request.
    active: OnceLock<Option<ActiveLimit>>,
}

struct ActiveLimit {
    agent: Arc<StoreAgent>,
    pool: Arc<PermitPool>,
}

impl SharedLimit {
    /// `kind` and `name` identify the limit on all nodes. Rate and burst in thousandths, a second for the rate;
    /// `bytes_max` is the memory for keys.
    pub fn new(slot: StoreSlot, kind: &str, name: &str, rate: u64, burst: u64, bytes_max: u64) -> SharedLimit {
        let space = format!("{kind}:{}", crate::shared_store::space_name(name));
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        SharedLimit { slot, space, rate, burst, bytes_max, active: OnceLock::new() }
    }

    /// Tells whether the nodes together admit a request with a key, and counts it if they do. Does not wait. Without a
    /// store, in a configuration without `shared_store`, all are admitted: the node's own bucket has judged them.
    pub fn admits(&self, key: &[u8]) -> bool {
        let Some(active) = self.active.get_or_init(|| self.activate()) else { return true };
        let now = base::clock::unix_millis();
        active.agent.take_permit(&active.pool, key, now) == PermitVerdict::Granted
    }

    fn activate(&self) -> Option<ActiveLimit> {
        let agent = self.slot.running_agent()?;
        let pool = agent.share_permits(&self.space, self.rate, self.burst, self.bytes_max);
        Some(ActiveLimit { agent, pool })
    }
}
