//! Issuers that several servers share (`sync` of `acme_issuer`): one server orders for all, by a lease of the store; all have
//! its account, its certificates and its answers to challenges.
//!
//! Without the store each server keeps its certificates. Renewals wait for the store while the certificate has time; then each server orders
//! alone.

use super::shared_table::{self, ACCOUNT, AcmeTable};
use acme::{AccountKey, Algorithm, IssuedChain};
use arc_swap::ArcSwapOption;
use area::shared_lease::{LeaseVerdict, hold_lease};
use area::shared_secret::SharedSecret;
use area::shared_store::{StoreSlot, space_name};
use aws_lc_rs::digest;
use base::clock;
use observe::{ErrorLog, Severity};
use shared_store::{MapReplica, StoreAgent};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use tls::x509::Certificate as Leaf;

/// Lease of an order; a server that dies holds others up for as long.
const LEASE: Duration = Duration::from_secs(15);
/// Between two extensions of a lease.
const LEASE_PAUSE: Duration = Duration::from_secs(5);
/// Time for the store's answer about a lease: a server that starts may not be connected yet.
const LEASE_PATIENCE: Duration = Duration::from_secs(10);
/// Time until the store has a record.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);
/// Time in which a record of the store reaches all servers, before the authority is told that a challenge is ready.
const SPREAD: Duration = Duration::from_millis(600);
/// Time for another server to make the account's key.
const ACCOUNT_LOOKS: usize = 75;
const ACCOUNT_PAUSE: Duration = Duration::from_millis(200);
/// Milliseconds after which a challenge is over, whatever happened to its server.
const CHALLENGE_MILLIS: u64 = 2 * 3600 * 1000;
/// Milliseconds for which the account's key is there without a renewal of the record: for ever.
const ACCOUNT_MILLIS: u64 = 20 * 365 * 86_400 * 1000;
/// Part of a certificate's life that has to be left for an order to wait for the store.
const WAIT_PART: i64 = 6;

/// `sync` of an issuer.
pub struct SharedIssuer {
    slot: StoreSlot,
    name: String,
    space: String,
    table: Arc<AcmeTable>,
    /// Since a configuration with the issuer serves.
    active: ArcSwapOption<ActiveIssuer>,
    has_complained: AtomicBool,
}

struct ActiveIssuer {
    replica: Arc<MapReplica>,
    agent: Arc<StoreAgent>,
}

/// The right to make an order.
pub enum OrderTurn {
    /// With the lease, until it is dropped or ended.
    Leased(String),
    /// Without a store, or without its answer.
    Alone,
    /// Another server orders.
    Taken,
    /// The store does not answer, and the certificate has time.
    Later,
}

impl SharedIssuer {
    /// `source` is the authority; `key` is the content of `key_file`.
    pub fn new(slot: StoreSlot, name: &str, source: &str, key: Option<&[u8]>) -> SharedIssuer {
        let secret = || key.and_then(|key| SharedSecret::derived(key, "acme", &[name, source]));
        // The table outlives a reload; other keys make another one.
        let id = SharedSecret::derived(key.unwrap_or_default(), "acme table", &[source]);
        let id = id.map(|id| id.tag("table", &[]).as_ref().to_vec()).unwrap_or_default();
        let table = area::zones::zone_state("acme issuer", name, 0, &id, || AcmeTable::new(secret()));
        // Certificates of another authority, such as one for tests, are others.
        let digest = digest::digest(&digest::SHA256, source.as_bytes());
        let authority: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let space = format!("acme:{}:{authority}", space_name(name));
        let (active, has_complained) = (ArcSwapOption::empty(), AtomicBool::new(false));
        SharedIssuer { slot, name: name.to_string(), space, table, active, has_complained }
    }

    /// Returns a warning if there is no store.
    pub fn sharing_complaint(&self) -> Option<String> {
        let words = "\"sync\" has no effect without \"shared_store\": each server orders its own certificates";
        self.slot.settings().is_none().then(|| format!("acme_issuer \"{}\": {words}", self.name))
    }

    /// Adds a certificate that this server has from before, to be shared unless the store has another one. Call before
    /// [`SharedIssuer::begin_sharing`].
    pub fn add_known(&self, stem: &str, issued: &IssuedChain, leaf: &Leaf) {
        let key = shared_table::certificate_key(stem);
        if self.active.load().is_none() && !self.table.has(&key) {
            // Without room it is not shared.
            let _ = self.table.put(&key, &AcmeTable::certificate_text(issued), millis(leaf.not_after));
        }
    }

    /// Begins to share, if there is a store.
    pub fn begin_sharing(&self, log: &Arc<ErrorLog>) {
        let Some(agent) = self.slot.agent(log) else { return };
        self.table.register();
        let replica = agent.share_map(&self.space, self.table.clone());
        self.active.store(Some(Arc::new(ActiveIssuer { replica, agent })));
    }

    /// Returns a number that changes with each certificate of a stem that a server has told; 0 without one.
    pub fn certificate_number(&self, stem: &str) -> u64 {
        self.table.certificate_number(stem)
    }

    /// Returns a certificate of another server. A record that this server cannot read is logged, once.
    pub fn certificate(&self, stem: &str, log: &ErrorLog) -> Option<IssuedChain> {
        let found = self.table.certificate(stem);
        if found.is_none() && self.table.is_unreadable(&shared_table::certificate_key(stem)) {
            self.complain(log);
        }
        found
    }

    fn complain(&self, log: &ErrorLog) {
        if !self.has_complained.swap(true, Ordering::Relaxed) {
            let words = "records of the store cannot be read: \"key_file\" differs between servers";
            log.log(Severity::Error, 0, format_args!("acme issuer \"{}\": {words}", self.name));
        }
    }

    /// Takes the turn to make an order. `leaf`: the present certificate. `is_wanted`: an operator waits.
    pub async fn take_turn(&self, stem: &str, leaf: Option<&Leaf>, is_wanted: bool) -> OrderTurn {
        let Some(active) = self.active.load_full() else { return OrderTurn::Alone };
        let lease = format!("{}:{}", self.space, space_name(stem));
        let verdict = hold_lease(&active.agent, &lease, LEASE, Some(&active.replica), LEASE_PATIENCE).await;
        clock::update();
        match verdict {
            LeaseVerdict::Held => OrderTurn::Leased(lease),
            LeaseVerdict::Taken => OrderTurn::Taken,
            LeaseVerdict::Unreachable
                if !is_wanted && leaf.is_some_and(|leaf| may_wait(leaf, clock::unix_seconds())) =>
            {
                OrderTurn::Later
            }
            LeaseVerdict::Unreachable => OrderTurn::Alone,
        }
    }

    /// Runs an order with its lease, which is held for as long as it takes.
    pub async fn run_with_lease<T>(&self, turn: &OrderTurn, order: impl Future<Output = T>) -> T {
        let (OrderTurn::Leased(lease), Some(active)) = (turn, self.active.load_full()) else { return order.await };
        let keep = async {
            loop {
                runtime::time::sleep_for(LEASE_PAUSE).await;
                // Without the lease the order goes on: two certificates are better than none.
                hold_lease(&active.agent, lease, LEASE, None, LEASE_PAUSE).await;
            }
        };
        let (mut order, mut keep) = (pin!(order), pin!(keep));
        std::future::poll_fn(|cx| match order.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => {
                let _: Poll<std::convert::Infallible> = keep.as_mut().poll(cx);
                Poll::Pending
            }
        })
        .await
    }

    /// Ends the turn, once the store has this server's records.
    pub async fn end_turn(&self, turn: OrderTurn) {
        if let (OrderTurn::Leased(lease), Some(active)) = (turn, self.active.load_full()) {
            // Without the store the lease ends by itself.
            let _ = runtime::time::with_timeout(FLUSH_PATIENCE, active.agent.flush_maps()).await;
            active.agent.release_lease(&lease);
        }
    }

    /// Tells the other servers of a certificate.
    pub fn tell_certificate(&self, stem: &str, issued: &IssuedChain, not_after: i64, log: &ErrorLog) {
        let key = shared_table::certificate_key(stem);
        self.change(&key, log, || self.table.put(&key, &AcmeTable::certificate_text(issued), millis(not_after)));
    }

    fn change(&self, key: &str, log: &ErrorLog, change: impl FnOnce() -> Result<(), String>) {
        let Some(active) = self.active.load_full() else { return };
        if let Err(why) = active.replica.change_key(key.as_bytes(), clock::unix_millis(), change) {
            log.log(Severity::Error, 0, format_args!("acme issuer \"{}\": not shared: {why}", self.name));
        }
    }

    /// Lets all servers answer a challenge; returns when they can, or the store is not there.
    pub async fn tell_challenge(&self, key: &str, authorization: &str, log: &ErrorLog) {
        let expires = clock::unix_millis().saturating_add(CHALLENGE_MILLIS);
        self.change(key, log, || self.table.put(key, authorization, expires));
        let Some(active) = self.active.load_full().filter(|active| active.agent.is_connected()) else { return };
        if let Ok(Ok(())) = runtime::time::with_timeout(FLUSH_PATIENCE, active.agent.flush_maps()).await {
            runtime::time::sleep_for(SPREAD).await;
        }
    }

    pub fn end_challenge(&self, key: &str, log: &ErrorLog) {
        self.change(key, log, || {
            self.table.remove(key);
            Ok(())
        });
    }

    /// Returns the account's key: another server's, or a new one, which one of the servers makes. It is stored in the folder, if there is
    /// one. `None`: there is no store, and no key.
    ///
    /// # Errors
    /// The key cannot be made.
    pub async fn account_key(&self, algorithm: Algorithm, log: &ErrorLog) -> Result<Option<String>, String> {
        let Some(active) = self.active.load_full() else { return Ok(None) };
        let lease = format!("{}:account", self.space);
        for _ in 0..ACCOUNT_LOOKS {
            match hold_lease(&active.agent, &lease, LEASE, Some(&active.replica), LEASE_PATIENCE).await {
                LeaseVerdict::Held => break,
                LeaseVerdict::Unreachable => return Ok(self.table.text(ACCOUNT)),
                LeaseVerdict::Taken => runtime::time::sleep_for(ACCOUNT_PAUSE).await,
            }
            if let Some(pem) = self.table.text(ACCOUNT) {
                return Ok(Some(pem));
            }
        }
        if let Some(pem) = self.table.text(ACCOUNT) {
            active.agent.release_lease(&lease);
            return Ok(Some(pem));
        }
        if self.table.is_unreadable(ACCOUNT) {
            self.complain(log);
        }
        let pem = AccountKey::generate(algorithm)?.pem();
        self.tell_account(&pem, log);
        self.end_turn(OrderTurn::Leased(lease)).await;
        Ok(Some(pem))
    }

    /// Tells the other servers of the account's key, unless they have one. Without the store, they are not known.
    pub fn tell_account(&self, pem: &str, log: &ErrorLog) {
        let is_connected = self.active.load().as_ref().is_some_and(|active| active.agent.is_connected());
        if is_connected && !self.table.has(ACCOUNT) {
            let expires = clock::unix_millis().saturating_add(ACCOUNT_MILLIS);
            self.change(ACCOUNT, log, || self.table.put(ACCOUNT, pem, expires));
        }
    }
}

fn millis(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1000)
}

/// Tells whether an order may wait for the store.
fn may_wait(leaf: &Leaf, now: i64) -> bool {
    let life = leaf.not_after.saturating_sub(leaf.not_before);
    leaf.not_after.saturating_sub(now) > life / WAIT_PART
}
