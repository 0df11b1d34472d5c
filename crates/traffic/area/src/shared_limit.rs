//! Limits over the nodes of a `shared_store`, beside the node's own bucket (`sync` of a zone).

use crate::shared_store::StoreSlot;
pub use shared_store::PermitRule;
use shared_store::{PermitPool, PermitVerdict, StoreAgent};
use std::sync::{Arc, OnceLock};

/// A limit over several nodes. Nothing here waits. Without a store, in a configuration without `shared_store`, all is admitted: the
/// node's own bucket has judged it.
pub struct SharedLimit {
    slot: StoreSlot,
    space: String,
    rule: PermitRule,
    bytes_max: usize,
    /// Since the first request.
    active: OnceLock<Option<ActiveLimit>>,
}

struct ActiveLimit {
    agent: Arc<StoreAgent>,
    pool: Arc<PermitPool>,
}

impl SharedLimit {
    /// `kind` and `name` identify the limit on all nodes; `bytes_max` is the memory for keys.
    pub fn new(slot: StoreSlot, kind: &str, name: &str, rule: PermitRule, bytes_max: u64) -> SharedLimit {
        let space = format!("{kind}:{}", crate::shared_store::space_name(name));
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        SharedLimit { slot, space, rule, bytes_max, active: OnceLock::new() }
    }

    /// Tells whether the nodes together admit a request with a key, and counts it if they do.
    pub fn admits(&self, key: &[u8]) -> bool {
        let Some(ActiveLimit { agent, pool }) = self.active() else { return true };
        agent.take_permit(pool, key, base::clock::unix_millis()) == PermitVerdict::Granted
    }

    /// Counts an event of a key that has happened here.
    pub fn count_event(&self, key: &[u8]) {
        let Some(ActiveLimit { agent, pool }) = self.active() else { return };
        agent.count_event(pool, key, base::clock::unix_millis());
    }

    /// Returns the milliseconds until the nodes together allow the next event of a key, if they do not now.
    pub fn refusal_millis(&self, key: &[u8]) -> Option<u64> {
        let ActiveLimit { agent, pool } = self.active()?;
        let now = base::clock::unix_millis();
        agent.refusal_end(pool, key, now).map(|end| end.saturating_sub(now))
    }

    fn active(&self) -> Option<&ActiveLimit> {
        self.active.get_or_init(|| self.activate()).as_ref()
    }

    fn activate(&self) -> Option<ActiveLimit> {
        let agent = self.slot.running_agent()?;
        let pool = agent.share_permits(&self.space, self.rule, self.bytes_max);
        Some(ActiveLimit { agent, pool })
    }
}
