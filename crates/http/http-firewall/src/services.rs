//! The parts that transactions of all threads share: clocks, collections, limits.

use crate::chain::RuleLines;
use crate::lookups::open_places;
use crate::table::BudgetLimit;
use conf_schema::{Cx, Problem};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use waf::{
    Budget, CollectionStore, EXHAUSTED_STATUS, ExhaustedAction, MemoryStore, RuleSet, STORE_BYTES_MAX, Services,
    SystemClock, WorkClock,
};

/// Counts the processor time of the calling thread.
struct ThreadWork;

impl WorkClock for ThreadWork {
    fn spent(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0) / 1000)
    }
}

/// Stores by `SecCollectionTimeout`: collections outlive reloads. A process has one for each value that a configuration
/// has used.
static STORES: LazyLock<Mutex<HashMap<u64, Arc<MemoryStore>>>> = LazyLock::new(Mutex::default);
/// Stores at most; further timeouts share the first one.
const STORES_MAX: usize = 16;

fn store(timeout: u64) -> Arc<dyn CollectionStore> {
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = stores.get(&timeout) {
        return known.clone();
    }
    if stores.len() >= STORES_MAX
        && let Some(any) = stores.values().next()
    {
        return any.clone();
    }
    let new = Arc::new(MemoryStore::new(STORE_BYTES_MAX, timeout));
    stores.insert(timeout, new.clone());
    new
}

/// Makes the shared parts for a block. Fails for a setting that cannot be honoured.
pub fn services(cx: &mut Cx, rules: &RuleSet, lines: &RuleLines, limit: BudgetLimit) -> Result<Arc<Services>, Problem> {
    let settings = &rules.settings;
    let places = open_places(cx, rules, lines)?;
    let now = base::clock::unix_seconds();
    Ok(Arc::new(Services {
        clock: Arc::new(SystemClock),
        work: Arc::new(ThreadWork),
        store: store(settings.collection_timeout),
        places,
        asks_names: true,
        budget: Budget { microseconds: limit.millis.saturating_mul(1000), ..Budget::default() },
        exhausted: if limit.is_open { ExhaustedAction::Pass } else { ExhaustedAction::Deny(EXHAUSTED_STATUS) },
        utc_offset: observe::clock::local_offset(now),
        connector: format!("tidegate {}", env!("CARGO_PKG_VERSION")),
    }))
}

/// Bytes of the collections of a rehearsed request.
const REHEARSAL_BYTES_MAX: usize = 1 << 20;

/// Returns the parts for a rehearsed request: it changes no collection of others, and asks no DNS.
pub fn rehearsal_services(services: &Services) -> Arc<Services> {
    Arc::new(Services {
        clock: services.clock.clone(),
        work: services.work.clone(),
        store: Arc::new(MemoryStore::new(REHEARSAL_BYTES_MAX, waf::COLLECTION_TIMEOUT)),
        places: services.places.clone(),
        asks_names: false,
        budget: services.budget,
        exhausted: services.exhausted,
        utc_offset: services.utc_offset,
        connector: services.connector.clone(),
    })
}
