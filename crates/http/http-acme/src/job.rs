//! A certificate of the scheduler, its folder, and its orders.

use super::certificates::Certificate;
use super::demand::{self, DemandName, OnDemand};
use super::issuer::{Issuer, Timing};
use super::issuer_client::run_blocking;
use super::order::OrderedCertificate;
use super::shared_issuer::SharedIssuer;
use super::state::IssuerFolder;
use acme::{AcmeOrder, Algorithm, Identifier, Now, Schedule};
use base::clock;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::SystemTime;

/// A number from 0 to 1.
pub fn random_share() -> f64 {
    let [a, b, c, d, ..] = net::random::bytes16();
    f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX)
}

/// Returns the time for the agenda.
pub fn agenda_now() -> Now {
    clock::update();
    Now { wall: clock::unix_seconds(), steady: demand::steady_seconds() }
}

/// Reasons why an order cannot begin.
pub enum NoLock {
    /// Another process orders.
    Taken,
    /// The folder cannot be written.
    Refused(String),
}

/// A folder of certificates, with the lock that orders need.
pub struct CertificateStore {
    pub folder: IssuerFolder,
    pub lock: tokio::sync::Mutex<Weak<File>>,
    /// The folder's time when requests were last looked for.
    pub looked: Cell<Option<SystemTime>>,
}

impl CertificateStore {
    /// Takes the lock of the folder, or shares it with other orders of this process.
    ///
    /// # Errors
    /// See [`NoLock`].
    pub async fn lock(&self) -> Result<Rc<File>, NoLock> {
        let mut held = self.lock.lock().await;
        if let Some(file) = held.upgrade() {
            return Ok(file);
        }
        let folder = self.folder.clone();
        let locked = run_blocking(move || {
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
            Ok(None) => Err(NoLock::Taken),
            Err(e) => Err(NoLock::Refused(format!("{}: {}", self.folder.0.display(), observe::os_error(&e)))),
        }
    }
}

/// A certificate of the plan, or one on demand.
pub struct CertificateJob {
    pub identifiers: Vec<Identifier>,
    pub key: Algorithm,
    pub certificate: Arc<Certificate>,
    pub stem: String,
    pub store: Option<Rc<CertificateStore>>,
    /// Of its first issuer.
    pub home: usize,
    pub timing: Option<Timing>,
    /// The issuer of the present certificate.
    pub served_by: Cell<Option<usize>>,
    /// The state that was published last.
    pub state: Cell<&'static str>,
    /// The last failure and its time, until an order succeeds.
    pub error: RefCell<Option<(String, i64)>>,
    /// Failed questions about the renewal window since the last answer.
    pub questions_failed: Cell<u32>,
    /// The authority has suggested the planned time of the renewal.
    pub is_suggested: Cell<bool>,
    /// URL of the authority's explanation, which was logged.
    pub explanation: RefCell<Option<String>>,
    /// An operator requested an order.
    pub wanted: Cell<bool>,
    pub on_demand: Option<(Arc<OnDemand>, Arc<DemandName>)>,
    /// Of the first issuer.
    pub shared: Option<Arc<SharedIssuer>>,
    /// [`SharedIssuer::certificate_number`] that was looked at.
    pub number_seen: Cell<u64>,
}

impl CertificateJob {
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
        renewal(leaf.not_before, leaf.not_after, self.timing, random_share())
    }
}

/// Returns the time of a renewal; `random`: 0 to 1.
fn renewal(not_before: i64, not_after: i64, timing: Option<Timing>, random: f64) -> i64 {
    let Some(timing) = timing else { return Schedule::of(not_before, not_after, random).at };
    // A certificate that is shorter than the time before its end would be renewed at once, again and again.
    let half = not_before.saturating_add(not_after.saturating_sub(not_before) / 2);
    not_after.saturating_sub(timing.renew_before).max(half)
}

/// Returns the order of a certificate by an issuer. `replaces`: see [`AcmeOrder`].
pub fn order_of(ordered: &OrderedCertificate, issuer: &Issuer, replaces: Option<String>) -> AcmeOrder {
    make_order(&ordered.identifiers, ordered.key, issuer, replaces)
}

pub fn make_order(identifiers: &[Identifier], key: Algorithm, issuer: &Issuer, replaces: Option<String>) -> AcmeOrder {
    AcmeOrder {
        identifiers: identifiers.to_vec(),
        key,
        challenge: issuer.challenge,
        profile: issuer.profile.clone(),
        common_name: issuer.common_name,
        preferred_chain: issuer.preferred_chain.clone(),
        replaces,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `docs/certificates.md` says.
    #[test]
    fn renewals_of_long_and_short_certificates() {
        const DAY: i64 = 86_400;
        let timing = Timing { renew_before: 30 * DAY, on_load: false, retry: None, enabled: true };
        for (days, issuer, client) in [(6, 3, 3), (47, 15, 23), (90, 30, 30)] {
            let end = 1_000 + days * DAY;
            let before_end = |timing, random| (end - renewal(1_000, end, timing, random)) / DAY;
            assert_eq!((before_end(None, 0.0), before_end(Some(timing), 0.0)), (issuer, client), "{days} days");
            // Renewals of many certificates are spread, to earlier times alone.
            assert!((issuer..=issuer + 2).contains(&before_end(None, 1.0)), "{days} days");
        }
        // Lives that overlap themselves or their limits.
        for (from, to) in [(10, 5), (i64::MIN, i64::MAX), (0, 0)] {
            for timing in [None, Some(timing)] {
                let _ = renewal(from, to, timing, 0.5);
            }
        }
    }
}
