//! A certificate of the office, its folder, and its orders.

use super::certificates::Certificate;
use super::demand::{self, Name, OnDemand};
use super::desk::blocking;
use super::issuer::{Habits, Issuer};
use super::order::Ordered;
use super::state::Folder;
use acme::{Algorithm, Identifier, Now, Order, Schedule};
use base::clock;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::SystemTime;

/// A number from 0 to 1.
pub fn random() -> f64 {
    let [a, b, c, d, ..] = net::random::bytes16();
    f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX)
}

/// Returns the time for the agenda.
pub fn now() -> Now {
    clock::update();
    Now { wall: clock::unix_seconds(), steady: demand::steady() }
}

/// A folder of certificates, with the lock that orders need.
pub struct Store {
    pub folder: Folder,
    pub lock: tokio::sync::Mutex<Weak<File>>,
    /// The folder's time when requests were last looked for.
    pub looked: Cell<Option<SystemTime>>,
}

impl Store {
    /// Takes the lock of the folder, or shares it with other orders of this process.
    pub async fn lock(&self) -> Result<Rc<File>, String> {
        let mut held = self.lock.lock().await;
        if let Some(file) = held.upgrade() {
            return Ok(file);
        }
        let folder = self.folder.clone();
        let locked = blocking(move || {
            let lock = folder.lock()?;
            if lock.is_some() {
                folder.tidy()?;
            }
            Ok(lock)
        });
        match locked.await {
            Ok(Some(file)) => {
                let file = Rc::new(file);
                *held = Rc::downgrade(&file);
                Ok(file)
            }
            Ok(None) => Err("another process has its lock".into()),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// A certificate of the plan, or one on demand.
pub struct Job {
    pub identifiers: Vec<Identifier>,
    pub key: Algorithm,
    pub certificate: Arc<Certificate>,
    pub stem: String,
    pub store: Option<Rc<Store>>,
    /// Of its first issuer.
    pub home: usize,
    pub habits: Option<Habits>,
    /// The issuer of the present certificate.
    pub served_by: Cell<Option<usize>>,
    /// The last failure and its time, until an order succeeds.
    pub error: RefCell<Option<(String, i64)>>,
    /// An operator requested an order.
    pub wanted: Cell<bool>,
    pub on_demand: Option<(Arc<OnDemand>, Arc<Name>)>,
}

impl Job {
    pub fn name(&self) -> String {
        self.identifiers.first().map_or_else(String::new, Identifier::to_string)
    }
    /// Returns the server that has issued the certificate, as an earlier process has stored it.
    pub fn source(&self) -> Option<String> {
        let store = self.store.as_ref()?;
        let status: serde_json::Value = serde_json::from_str(&store.folder.status(&self.stem)?).ok()?;
        status.get("source")?.as_str().map(str::to_string)
    }
    /// Returns the time of the renewal, by the certificate alone; 0 without one.
    pub fn renewal(&self) -> i64 {
        let Some(leaf) = self.certificate.leaf() else { return 0 };
        let usual = Schedule::of(leaf.not_before, leaf.not_after, random()).at;
        let Some(habits) = self.habits else { return usual };
        // A certificate that is shorter than the time before its end would be renewed at once, again and again.
        let half = leaf.not_before.saturating_add(leaf.not_after.saturating_sub(leaf.not_before) / 2);
        leaf.not_after.saturating_sub(habits.renew_before).max(half)
    }
}

/// Returns the order of a certificate by an issuer. `replaces`: see [`Order`].
pub fn order_of(ordered: &Ordered, issuer: &Issuer, replaces: Option<String>) -> Order {
    order(&ordered.identifiers, ordered.key, issuer, replaces)
}

pub fn order(identifiers: &[Identifier], key: Algorithm, issuer: &Issuer, replaces: Option<String>) -> Order {
    Order {
        identifiers: identifiers.to_vec(),
        key,
        challenge: issuer.challenge,
        profile: issuer.profile.clone(),
        common_name: issuer.common_name,
        preferred_chain: issuer.preferred_chain.clone(),
        replaces,
    }
}
