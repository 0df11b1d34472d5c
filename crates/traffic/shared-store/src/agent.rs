//! The thread beside requests that talks to the store.
//!
//! ```text
//! connect ─▶ subscribe ─▶ compare all maps ─▶ permits, changes, heartbeat ─▶ (a failure) ─▶ pause ─▶ connect
//! ```

use crate::address::StoreAddress;
use crate::files::FolderStore;
use crate::map_replica::{AppliedRecord, LocalMap, LocalValue, MapReplica};
use crate::memory::MemoryStore;
use crate::permits::{PermitPool, PermitRule, PermitVerdict, StoreLoss};
use crate::record::{MapRecord, NodeClock};
use crate::redis_connection::RedisSettings;
use crate::redis_store::RedisStore;
use crate::state::{StateCells, StoreState};
use crate::store::{Store, StoreFailure, Subscription};
use crate::store_calls::CallQueue;
use futures::StreamExt;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// Between two signs of life of a node.
const BEAT: Duration = Duration::from_secs(5);
/// Missed signs of life after which a node is gone, or the own subscription is dead.
const BEATS_MISSED_MAX: u32 = 3;
/// Between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Between two removals of ended records from the store, by one of the nodes.
const CLEAN_PAUSE: Duration = Duration::from_secs(300);
/// Time that a record stays in the store behind its end: clocks differ.
const END_GRACE: Duration = Duration::from_secs(60);
/// Between two times of sending: changes of the time between go together.
const SEND_PAUSE: Duration = Duration::from_millis(2);
/// Records that are sent at once.
const BATCH: usize = 256;
/// At the end of the process, for changes that are not sent yet.
const LAST_PATIENCE: Duration = Duration::from_millis(500);
/// Map of the nodes that live.
const NODES: &str = "nodes";

/// Called with lines for the error log; `true`: of a failure.
pub type StoreReport = Box<dyn Fn(bool, &str) + Send + Sync>;

/// Settings of a [`StoreAgent`].
pub struct AgentOptions {
    pub address: StoreAddress,
    pub password: Option<String>,
    /// Authorities for TLS in PEM; without any, those of the system.
    pub authorities: Option<Vec<u8>>,
    /// Certificate and key for TLS in PEM.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Beginning of all keys: installations with different prefixes share nothing.
    pub prefix: String,
    /// Time for the store's answer.
    pub patience: Duration,
    pub loss: StoreLoss,
    /// Number of this node, which no other node has.
    pub node: u64,
    pub report: StoreReport,
}

/// Connection of this process to a store. Ends on drop, after an attempt to send the pending records.
pub struct StoreAgent {
    pub(crate) inner: Arc<AgentInner>,
    end: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

pub(crate) struct AgentInner {
    options: AgentOptions,
    clock: Arc<NodeClock>,
    pub(crate) wake: Arc<Notify>,
    pub(crate) calls: CallQueue,
    shared: Mutex<SharedZones>,
    /// Changes when a map is added.
    generation: AtomicU64,
    nodes: Arc<NodeTable>,
    nodes_map: Arc<MapReplica>,
    cells: StateCells,
    /// For [`StoreAddress::Memory`]: it outlives a connection.
    memory: Arc<MemoryStore>,
}

/// Zones live as long as a configuration has them.
#[derive(Default)]
struct SharedZones {
    maps: BTreeMap<String, Weak<MapReplica>>,
    pools: BTreeMap<String, Weak<PermitPool>>,
}

fn living<T>(zones: &BTreeMap<String, Weak<T>>) -> Vec<Arc<T>> {
    zones.values().filter_map(Weak::upgrade).collect()
}

fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl StoreAgent {
    /// Starts the thread. Does not wait for the store.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(options: AgentOptions) -> std::io::Result<StoreAgent> {
        let (wake, nodes) = (Arc::new(Notify::new()), Arc::new(NodeTable::default()));
        let clock = Arc::new(NodeClock::new(options.node));
        let nodes_map = MapReplica::new(NODES, nodes.clone(), clock.clone(), wake.clone(), unix_millis());
        let nodes_map = Arc::new(nodes_map);
        let maps = BTreeMap::from([(NODES.to_owned(), Arc::downgrade(&nodes_map))]);
        let inner = Arc::new(AgentInner {
            clock,
            options,
            wake,
            calls: CallQueue::default(),
            shared: Mutex::new(SharedZones { maps, pools: BTreeMap::new() }),
            generation: AtomicU64::new(0),
            nodes,
            nodes_map,
            cells: StateCells::default(),
            memory: Arc::new(MemoryStore::default()),
        });
        let (end, end_seen) = watch::channel(false);
        let its = inner.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || {
            // An error means that there is a provider already.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            runtime.block_on(its.run(end_seen));
            // Without waiting for a name that is being looked up.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("store".into()).spawn(run)?;
        Ok(StoreAgent { inner, end, thread: Mutex::new(Some(thread)) })
    }

    /// Shares a zone's pairs under a name, as long as the caller keeps the replica. A second call with the same zone
    /// returns the first one's replica; another zone of the name takes the place of the first one.
    pub fn share_map(&self, space: &str, local: Arc<dyn LocalMap>) -> Arc<MapReplica> {
        let inner = &self.inner;
        let mut shared = inner.shared();
        if let Some(map) = shared.maps.get(space).and_then(Weak::upgrade).filter(|map| map.is_of(&*local)) {
            return map;
        }
        let map = Arc::new(MapReplica::new(space, local, inner.clock.clone(), inner.wake.clone(), unix_millis()));
        shared.maps.retain(|_, map| map.strong_count() > 0);
        shared.maps.insert(space.to_owned(), Arc::downgrade(&map));
        drop(shared);
        inner.generation.fetch_add(1, Ordering::Release);
        inner.wake.notify_one();
        map
    }

    /// Shares a limit under a name; `bytes_max` bounds the memory. A limit with the same name and numbers is the one of an
    /// earlier call, as long as that is kept.
    pub fn share_permits(&self, space: &str, rule: PermitRule, bytes_max: usize) -> Arc<PermitPool> {
        let options = &self.inner.options;
        let name = format!("{space}:{}:{}", rule.rate, rule.burst);
        let mut shared = self.inner.shared();
        if let Some(pool) = shared.pools.get(&name).and_then(Weak::upgrade) {
            return pool;
        }
        let (wake, patience) = (self.inner.wake.clone(), options.patience.as_millis() as u64);
        let pool = Arc::new(PermitPool::new(&name, rule, options.loss, bytes_max, patience, wake));
        shared.pools.retain(|_, pool| pool.strong_count() > 0);
        shared.pools.insert(name, Arc::downgrade(&pool));
        pool
    }

    /// Takes a permit for a request, without waiting. See [`PermitPool::take_permit`].
    pub fn take_permit(&self, pool: &PermitPool, key: &[u8], now: u64) -> PermitVerdict {
        let cells = &self.inner.cells;
        pool.take_permit(key, cells.is_connected(), cells.nodes.load(Ordering::Relaxed), now)
    }

    /// Returns the number of this node, which no other node has.
    pub fn node(&self) -> u64 {
        self.inner.clock.node()
    }

    /// Tells whether the store has answered lately.
    pub fn is_connected(&self) -> bool {
        self.inner.cells.is_connected()
    }

    /// Returns the number of nodes that were seen last, this one included.
    pub fn nodes(&self) -> u64 {
        self.inner.cells.nodes.load(Ordering::Relaxed)
    }

    /// Tells whether a node has given a sign of life lately.
    pub fn node_lives(&self, node: u64) -> bool {
        self.inner.nodes.table().contains_key(node_key(node).as_slice())
    }

    /// Returns the rule of limits while the store is not there.
    pub fn loss(&self) -> StoreLoss {
        self.inner.options.loss
    }

    /// Counts an event that has happened. See [`PermitPool::count_event`].
    pub fn count_event(&self, pool: &PermitPool, key: &[u8], now: u64) {
        let cells = &self.inner.cells;
        pool.count_event(key, cells.is_connected(), cells.nodes.load(Ordering::Relaxed), now);
    }

    /// Returns when the next event of a key may happen, if it may not now. See [`PermitPool::refusal_end`].
    pub fn refusal_end(&self, pool: &PermitPool, key: &[u8], now: u64) -> Option<u64> {
        pool.refusal_end(key, self.inner.cells.is_connected(), now)
    }

    pub fn state(&self) -> StoreState {
        let inner = &self.inner;
        let shared = inner.shared();
        let pending: usize = living(&shared.maps).iter().map(|map| map.pending_number()).sum();
        let refused: u64 = living(&shared.pools).iter().map(|pool| pool.refused_number()).sum();
        drop(shared);
        inner.cells.pending.store(pending as u64, Ordering::Relaxed);
        inner.cells.permits_refused.store(refused, Ordering::Relaxed);
        let maps = living(&inner.shared().maps).iter().map(|map| map.map_state()).collect();
        StoreState { maps, ..inner.cells.snapshot() }
    }
}

impl Drop for StoreAgent {
    fn drop(&mut self) {
        self.end.send_replace(true);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

/// Why [`AgentInner::serve`] has returned.
enum ServeEnd {
    /// The process ends.
    Over,
    /// Another map is shared: subscribe anew.
    AnotherMap,
}

impl AgentInner {
    fn shared(&self) -> MutexGuard<'_, SharedZones> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn maps(&self) -> Vec<Arc<MapReplica>> {
        living(&self.shared().maps)
    }

    async fn run(&self, mut end: watch::Receiver<bool>) {
        let mut pause = PAUSE_MIN;
        while !*end.borrow() {
            let served = tokio::select! {
                served = self.connect_and_serve(&mut pause, end.clone()) => served,
                // `serve` ends by itself; this is for an end during the connection.
                _ = sleep_behind(&mut end, LAST_PATIENCE * 2) => return,
            };
            match served {
                Ok(ServeEnd::Over) => return,
                Ok(ServeEnd::AnotherMap) => continue,
                Err(failure) => {
                    let words = failure.to_string();
                    if self.cells.note(Some(words.clone()), unix_millis()) {
                        (self.options.report)(true, &words);
                    }
                }
            }
            tokio::select! {
                () = sleep(pause) => {}
                _ = end.changed() => return,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn connect_and_serve(
        &self,
        pause: &mut Duration,
        end: watch::Receiver<bool>,
    ) -> Result<ServeEnd, StoreFailure> {
        let store = self.connect().await?;
        self.serve(&*store, pause, end).await
    }

    async fn connect(&self) -> Result<Arc<dyn Store>, StoreFailure> {
        let options = &self.options;
        match &options.address {
            StoreAddress::Memory => Ok(self.memory.clone()),
            StoreAddress::Folder(folder) => Ok(Arc::new(FolderStore::new(folder.clone()))),
            StoreAddress::Redis { mode, hosts, uses_tls, user, database } => {
                let settings = RedisSettings {
                    mode: mode.clone(),
                    hosts: hosts.clone(),
                    uses_tls: *uses_tls,
                    user: user.clone(),
                    password: options.password.clone(),
                    database: *database,
                    authorities: options.authorities.clone(),
                    certificate: options.certificate.clone(),
                    patience: options.patience,
                };
                Ok(Arc::new(RedisStore::connect(&settings, &options.prefix).await?))
            }
        }
    }

    async fn serve(
        &self,
        store: &dyn Store,
        pause: &mut Duration,
        mut end: watch::Receiver<bool>,
    ) -> Result<ServeEnd, StoreFailure> {
        let generation = self.generation.load(Ordering::Acquire);
        let maps = self.maps();
        let spaces: Vec<String> = maps.iter().map(|map| map.space().to_owned()).collect();
        let mut changes = store.subscribe(&spaces).await?;
        for map in &maps {
            self.compare(store, map).await?;
        }
        self.send_maps(store, &maps).await?;
        *pause = PAUSE_MIN;
        if self.cells.note(None, unix_millis()) {
            (self.options.report)(false, "connected");
        }
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut own_seen, mut cleaned) = (Instant::now(), Instant::now());
        loop {
            if self.generation.load(Ordering::Acquire) != generation {
                return Ok(ServeEnd::AnotherMap);
            }
            self.send_permits(store).await?;
            self.send_maps(store, &maps).await?;
            self.answer_calls(store, &maps).await?;
            let sent = Instant::now();
            tokio::select! {
                biased;
                _ = end.changed() => {
                    let _ = timeout(LAST_PATIENCE, self.leave(store, &maps)).await;
                    return Ok(ServeEnd::Over);
                }
                change = next_change(&mut changes) => {
                    let (space, record) = change?;
                    if space == NODES && record.key == self.node_key() {
                        own_seen = Instant::now();
                    }
                    self.apply(&maps, &space, &record);
                }
                () = self.wake.notified() => tokio::time::sleep_until(sent + SEND_PAUSE).await,
                _ = beat.tick() => {
                    self.beat(&maps);
                    living(&self.shared().pools).iter().for_each(|pool| pool.collect_debts(unix_millis()));
                    if maps.iter().any(|map| Arc::strong_count(map) == 1) {
                        // No configuration has the zone any more.
                        return Ok(ServeEnd::AnotherMap);
                    }
                    if own_seen.elapsed() > BEAT * BEATS_MISSED_MAX {
                        return Err(StoreFailure::Unreachable("the subscription tells nothing any more".into()));
                    }
                    if cleaned.elapsed() > CLEAN_PAUSE {
                        cleaned = Instant::now();
                        self.clean(store, &maps).await?;
                    }
                }
            }
        }
    }

    pub(crate) async fn compare(&self, store: &dyn Store, map: &MapReplica) -> Result<(), StoreFailure> {
        let records = store.records(map.space()).await?;
        let (taken, refused) = map.compare_all(&records, unix_millis());
        self.cells.applied.fetch_add(taken, Ordering::Relaxed);
        self.cells.refused.fetch_add(refused, Ordering::Relaxed);
        Ok(())
    }

    fn apply(&self, maps: &[Arc<MapReplica>], space: &str, record: &MapRecord) {
        let Some(map) = maps.iter().find(|map| map.space() == space) else { return };
        match map.apply_record(record, unix_millis()) {
            AppliedRecord::Taken if space == NODES => self.count_nodes(),
            AppliedRecord::Taken => {
                self.cells.applied.fetch_add(1, Ordering::Relaxed);
            }
            AppliedRecord::NoRoom => {
                self.cells.refused.fetch_add(1, Ordering::Relaxed);
            }
            AppliedRecord::Older => {}
        }
    }

    async fn send_permits(&self, store: &dyn Store) -> Result<(), StoreFailure> {
        // Without the lock, which requests take.
        let pools = living(&self.shared().pools);
        for pool in pools {
            let requests = pool.take_requests(unix_millis());
            if requests.is_empty() {
                continue;
            }
            match store.take_permits(pool.space(), &requests).await {
                Ok(grants) => {
                    let taken = grants.iter().map(|grant| grant.granted).sum();
                    self.cells.permits_taken.fetch_add(taken, Ordering::Relaxed);
                    pool.grant(&requests, &grants, unix_millis());
                }
                Err(failure) => {
                    pool.give_up(&requests);
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn send_maps(&self, store: &dyn Store, maps: &[Arc<MapReplica>]) -> Result<(), StoreFailure> {
        for map in maps {
            map.gather_changes(unix_millis());
            loop {
                let records = map.pending_records(BATCH);
                if records.is_empty() {
                    break;
                }
                store.merge_records(map.space(), &records).await?;
                map.acknowledge(&records);
                self.cells.sent.fetch_add(records.len() as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Name of this node as the holder of leases.
    pub(crate) fn holder(&self) -> String {
        format!("{:016x}", self.clock.node())
    }

    fn node_key(&self) -> Vec<u8> {
        self.holder().into_bytes()
    }

    fn count_nodes(&self) {
        self.cells.nodes.store(self.nodes.table().len() as u64, Ordering::Relaxed);
    }

    /// Gives a sign of life, and forgets records that have ended.
    fn beat(&self, maps: &[Arc<MapReplica>]) {
        let now = unix_millis();
        self.nodes.remove_ended(now);
        for map in maps {
            map.forget_ended(now);
            if map.pending_number() == 0 {
                map.note_equal(now);
            }
        }
        let key = self.node_key();
        let expires = now + (BEAT * BEATS_MISSED_MAX).as_millis() as u64;
        let set = || Ok::<_, ()>(self.nodes.apply_value(&key, Some(b""), Some(expires)));
        let _ = self.nodes_map.change_key(&key, now, set);
        self.count_nodes();
    }

    /// Removes ended records from the store, if no other node does.
    async fn clean(&self, store: &dyn Store, maps: &[Arc<MapReplica>]) -> Result<(), StoreFailure> {
        if !store.hold_lease("clean", &self.holder(), CLEAN_PAUSE / 2).await? {
            return Ok(());
        }
        let old = unix_millis().saturating_sub(END_GRACE.as_millis() as u64);
        for map in maps {
            let mut records = store.records(map.space()).await?;
            records.retain(|record| record.expires.is_some_and(|end| end < old));
            if !records.is_empty() {
                store.forget_records(map.space(), &records).await?;
            }
        }
        Ok(())
    }

    /// Sends the last changes, and leaves the nodes.
    async fn leave(&self, store: &dyn Store, maps: &[Arc<MapReplica>]) -> Result<(), StoreFailure> {
        let key = self.node_key();
        let remove = || Ok::<_, ()>(self.nodes.apply_value(&key, None, None));
        let _ = self.nodes_map.change_key(&key, unix_millis(), remove);
        self.send_maps(store, maps).await
    }
}

/// Name of a node in the map of nodes: its number in hexadecimal digits.
fn node_key(node: u64) -> [u8; 16] {
    let mut key = [0; 16];
    for (index, digit) in key.iter_mut().enumerate() {
        let value = (node >> (60 - 4 * index)) & 15;
        *digit = char::from_digit(value as u32, 16).map_or(b'0', |digit| digit as u8);
    }
    key
}

async fn next_change(changes: &mut Subscription) -> Result<(String, MapRecord), StoreFailure> {
    match changes.next().await {
        Some(change) => change,
        None => Err(StoreFailure::Unreachable("the subscription has ended".into())),
    }
}

/// Waits for the end of the process, and for a time behind it.
async fn sleep_behind(end: &mut watch::Receiver<bool>, time: Duration) {
    // An error means that the agent is gone.
    let _ = end.wait_for(|is_over| *is_over).await;
    sleep(time).await;
}

/// Nodes that have given signs of life.
#[derive(Default)]
struct NodeTable(Mutex<HashMap<Vec<u8>, LocalValue>>);

impl NodeTable {
    fn table(&self) -> MutexGuard<'_, HashMap<Vec<u8>, LocalValue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes nodes that have given no signs of life. Called while the store is there: without it, none is seen.
    fn remove_ended(&self, now: u64) {
        self.table().retain(|_, (_, end)| end.is_none_or(|end| end > now));
    }
}

impl LocalMap for NodeTable {
    fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
        self.table().get(key).cloned()
    }

    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool {
        let mut table = self.table();
        match value {
            Some(value) => table.insert(key.to_vec(), (value.to_vec(), expires)),
            None => table.remove(key),
        };
        true
    }

    fn local_keys(&self) -> Vec<Vec<u8>> {
        self.table().keys().cloned().collect()
    }

    fn local_identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
