//! Sessions that several servers share (`session_store` of a `keyval_zone ... sync`).
//!
//! The store has them encrypted, bound to their keys. A logout is a record of its own: a server that refreshes a session at
//! the same moment, or behind a partition, does not bring it back. One server at a time refreshes a session, as refresh tokens are valid
//! once at many providers.

use super::provider::Provider;
use super::session::{LOGOUT_EXTRA_MILLIS, Moment, Session, put};
use super::state;
use area::shared_lease::{LeaseVerdict, hold_lease};
use keyval::Refusal;
use std::time::Duration;

/// Milliseconds for which the end of a session is remembered beyond `session_timeout`: servers may be apart for so long.
const END_EXTRA_MILLIS: u64 = 24 * 60 * 60 * 1000;
/// Lease of a refresh; a server that dies holds others up for as long.
const REFRESH_LEASE: Duration = Duration::from_secs(15);
/// Lease behind a refresh: the new tokens reach the other servers in this time.
const TELL_LEASE: Duration = Duration::from_secs(1);
/// Time for the store's answer about a lease; then the server refreshes alone.
const LEASE_PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks for the tokens of another server, and questions for the lease.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

impl Provider {
    /// Returns a session as the zone has it.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] if it cannot be encrypted.
    pub fn session_text(&self, key: &str, session: &Session) -> Result<String, Refusal> {
        match self.session_secret() {
            None => Ok(session.text()),
            Some(secret) => secret.seal(session.text().as_bytes(), key.as_bytes()).ok_or(Refusal::TooLarge),
        }
    }

    /// Reads a session of the zone; `None` for one that was not encrypted with the provider's secret, or has another key.
    pub fn read_session(&self, key: &str, text: &str) -> Option<Session> {
        match self.session_secret() {
            None => Session::parse(text),
            Some(secret) => {
                let opened = secret.open(text.as_bytes(), key.as_bytes())?;
                Session::parse(std::str::from_utf8(&opened).ok()?)
            }
        }
    }

    fn end_key(&self, key: &str) -> String {
        state::state_digest(&[b"end", self.name.as_bytes(), self.issuer.as_bytes(), key.as_bytes()])
    }

    fn sid_end_key(&self, sid: &str) -> String {
        state::state_digest(&[b"end of sid", self.name.as_bytes(), self.issuer.as_bytes(), sid.as_bytes()])
    }

    fn put_end(&self, key: &str, now: u64) {
        if let Some(store) = self.store().filter(|store| store.has_sync()) {
            let expires =
                now.saturating_add(self.session_timeout).saturating_add(END_EXTRA_MILLIS + LOGOUT_EXTRA_MILLIS);
            // In a full zone the removal has to suffice.
            let _ = put(store, key, &Moment::now(0).text(), expires, now);
        }
    }

    /// Tells the other servers that a session has ended, if the store is shared.
    pub fn tell_end(&self, key: &str, now: u64) {
        self.put_end(&self.end_key(key), now);
    }

    /// Tells the other servers that the sessions of a `sid` have ended, also those that are not on this server's list yet.
    pub fn tell_end_of(&self, sid: &str, now: u64) {
        self.put_end(&self.sid_end_key(sid), now);
    }

    /// Tells whether any server has ended a session.
    pub fn has_ended_elsewhere(&self, key: &str, session: &Session, now: u64) -> bool {
        let Some(store) = self.store().filter(|store| store.has_sync()) else { return false };
        let end = |key: String| store.zone.find(key.as_bytes(), now, Moment::parse).flatten();
        end(self.end_key(key)).is_some()
            || session
                .sid
                .as_ref()
                .is_some_and(|sid| end(self.sid_end_key(sid)).is_some_and(|at| session.began.arrived <= at.arrived))
    }

    fn refresh_lease(key: &str) -> String {
        format!("oidc:{key}")
    }

    /// Takes the turn to refresh a session, which is due at `now`. Returns the session; `None` if another server has it, behind its
    /// refresh. Without an answer of the store, each server is on its own.
    pub async fn take_refresh(&self, key: &str, session: Session, now: u64) -> Option<Session> {
        let agent = self.store().and_then(|store| store.store_agent()).filter(|agent| agent.is_connected());
        let Some(agent) = agent else { return Some(session) };
        let lease = Self::refresh_lease(key);
        for _ in 0..REFRESH_LEASE.as_millis() / LOOK_PAUSE.as_millis() {
            match hold_lease(&agent, &lease, REFRESH_LEASE, None, LEASE_PATIENCE).await {
                LeaseVerdict::Held | LeaseVerdict::Unreachable => break,
                LeaseVerdict::Taken => runtime::time::sleep_for(LOOK_PAUSE).await,
            }
            base::clock::update();
            if self.find(key).is_none_or(|found| found != session) {
                return None;
            }
        }
        // The tokens of the previous holder are here.
        self.find(key).filter(|session| session.is_due(now))
    }

    /// Leaves the turn to refresh a session, once the other servers have its new tokens.
    pub async fn end_refresh(&self, key: &str) {
        let Some(agent) = self.store().and_then(|store| store.store_agent()) else { return };
        hold_lease(&agent, &Self::refresh_lease(key), TELL_LEASE, None, LEASE_PATIENCE).await;
    }
}
