//! A provider's state in this process, which outlives reloads: a secret of this process, the provider's metadata and key set, sessions
//! that are being refreshed.

use super::discovery::Metadata;
use super::secrets::TextSecret;
use arc_swap::ArcSwapOption;
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jose::KeySet;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Code exchanges at a time for one provider; a login beyond them gets 503.
pub const EXCHANGES_MAX: usize = 256;

/// A thing of the provider, and the time when it was fetched, in milliseconds of the clock.
pub struct FetchedState<T> {
    pub thing: T,
    pub at: u64,
}

/// See the module's documentation.
pub struct State {
    /// For logins, unless the provider has [`super::secrets::ProviderSecrets`]. Random per process: a login that spans a restart
    /// starts again.
    pub logins: TextSecret,
    pub metadata: ArcSwapOption<FetchedState<Arc<Metadata>>>,
    pub keys: ArcSwapOption<FetchedState<Arc<KeySet>>>,
    /// Milliseconds of the clock: the last failed fetch; the last fetch of keys for an unknown one.
    pub failed: AtomicU64,
    pub doubted: AtomicU64,
    /// Held by the task that fetches. Requests wait for it themselves, and leave with their clients: a provider that hangs collects no
    /// tasks.
    pub turn: Arc<tokio::sync::Mutex<()>>,
    exchanges: AtomicUsize,
    refreshes: Mutex<HashMap<String, watch::Receiver<()>>>,
}

/// Counts a code exchange.
pub struct Exchange(Arc<State>);

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.exchanges.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A session that this task refreshes; dropping it wakes the requests that wait for it.
pub struct Refresh {
    state: Arc<State>,
    key: String,
    _done: watch::Sender<()>,
}

impl Drop for Refresh {
    fn drop(&mut self) {
        self.state.refreshes().remove(&self.key);
    }
}

impl State {
    fn new() -> State {
        State {
            logins: TextSecret::random(),
            metadata: ArcSwapOption::empty(),
            keys: ArcSwapOption::empty(),
            failed: AtomicU64::new(0),
            doubted: AtomicU64::new(0),
            turn: Arc::default(),
            exchanges: AtomicUsize::new(0),
            refreshes: Mutex::default(),
        }
    }

    /// Returns the state of a provider with this name and these properties.
    pub fn of(name: &str, properties: &[&str]) -> Arc<State> {
        area::zones::zone_state("oidc", name, 0, properties.join("\n").as_bytes(), State::new)
    }

    /// Begins a code exchange; `None`: too many are under way.
    pub fn exchange(self: &Arc<Self>) -> Option<Exchange> {
        let exchange = Exchange(self.clone());
        (self.exchanges.fetch_add(1, Ordering::Relaxed) < EXCHANGES_MAX).then_some(exchange)
    }

    fn refreshes(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<()>>> {
        self.refreshes.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Begins the refresh of a session, unless it is under way; its end closes the receiver.
    pub fn refresh(self: &Arc<Self>, key: &str) -> (watch::Receiver<()>, Option<Refresh>) {
        let mut all = self.refreshes();
        if let Some(done) = all.get(key) {
            return (done.clone(), None);
        }
        let (sender, receiver) = watch::channel(());
        all.insert(key.to_string(), receiver.clone());
        (receiver, Some(Refresh { state: self.clone(), key: key.to_string(), _done: sender }))
    }
}

/// Returns the SHA-256 of these parts, each preceded by its length, as base64url.
pub fn state_digest(parts: &[&[u8]]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    URL_SAFE_NO_PAD.encode(context.finish())
}

/// Returns random bytes as base64url.
pub fn random_text<const N: usize>() -> String {
    let mut bytes = [0; N];
    net::random::fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_refreshed_once_at_a_time() {
        let state = Arc::new(State::new());
        let (_, first) = state.refresh("a");
        assert!(first.is_some() && state.refresh("a").1.is_none() && state.refresh("b").1.is_some());
        let (waiting, _) = state.refresh("a");
        drop(first);
        assert!(waiting.has_changed().is_err(), "the end wakes those that wait");
        assert!(state.refresh("a").1.is_some());
    }

    #[test]
    fn exchanges_are_bounded() {
        let state = Arc::new(State::new());
        let all: Vec<Exchange> = (0..EXCHANGES_MAX).filter_map(|_| state.exchange()).collect();
        assert_eq!(all.len(), EXCHANGES_MAX);
        assert!(state.exchange().is_none());
        drop(all);
        assert!(state.exchange().is_some());
    }
}
