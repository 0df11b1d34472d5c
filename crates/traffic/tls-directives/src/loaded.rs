//! Stapled OCSP responses of certificates that are loaded per connection: by ACME, on demand, and from files named by variables. The first
//! handshake with a certificate has none, as in nginx; it lets the control thread fetch one.

use aws_lc_rs::digest::{SHA256, digest};
use base::clock;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tls::certs::{CertificateSet, KeyPair};
use tls::x509::Certificate;
use tokio::sync::Notify;

/// Certificates of a server whose responses are kept; further ones are shown without.
const LOADED_MAX: usize = 10_000;
/// Seconds without a handshake after which a response is forgotten.
const UNUSED: i64 = 86_400;

/// A certificate that a handshake has shown was new.
pub(super) static CAME: LazyLock<Notify> = LazyLock::new(Notify::new);

/// SHA-256 of a leaf.
pub(super) type LeafId = [u8; 32];

struct LoadedCertificates {
    chain: Arc<Vec<Certificate>>,
    response: Option<Vec<u8>>,
    /// Seconds since 1970: the end of the response, the next fetch, the last handshake.
    end: i64,
    at: i64,
    used: i64,
}

/// See the module's documentation.
#[derive(Default)]
pub struct LoadedStaples(Mutex<HashMap<LeafId, LoadedCertificates>>);

impl LoadedStaples {
    /// Returns the response to a handshake with a certificate. An unknown certificate is noted, and `CAME` notified.
    pub(super) fn response(&self, pair: &KeyPair) -> Option<Vec<u8>> {
        let leaf = pair.leaf()?;
        let (id, now) = (id_of(leaf), clock::unix_seconds());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get_mut(&id) {
            known.used = now;
            return known.response.clone().filter(|_| known.end > now);
        }
        if all.len() < LOADED_MAX {
            let chain = Arc::clone(&pair.chain);
            all.insert(id, LoadedCertificates { chain, response: None, end: 0, at: 0, used: now });
            CAME.notify_waiters();
        }
        None
    }

    /// Lists the certificates whose time of a fetch has come, once until [`LoadedStaples::put`] or [`LoadedStaples::postpone`], and
    /// forgets those that handshakes do not show any more.
    pub(super) fn take_due(&self, now: i64) -> Vec<(LeafId, Arc<Vec<Certificate>>)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, loaded| now.saturating_sub(loaded.used) < UNUSED);
        let due = all.iter_mut().filter(|(_, loaded)| loaded.at <= now);
        let taken = due.map(|(id, loaded)| {
            loaded.at = i64::MAX;
            (*id, Arc::clone(&loaded.chain))
        });
        taken.collect()
    }

    pub(super) fn next(&self) -> Option<i64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().map(|loaded| loaded.at).min()
    }

    /// Stores a response with its end; the next fetch is at `at`.
    pub(super) fn put(&self, id: &LeafId, response: Vec<u8>, end: i64, at: i64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = all.get_mut(id) {
            (loaded.response, loaded.end, loaded.at) = (Some(response), end, at);
        }
    }
    /// Lets the present response serve until its end; the next fetch is at `at`.
    pub(super) fn postpone(&self, id: &LeafId, at: i64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = all.get_mut(id) {
            loaded.at = at;
        }
    }
}

fn id_of(leaf: &Certificate) -> LeafId {
    let mut id = [0; 32];
    id.copy_from_slice(digest(&SHA256, leaf.der()).as_ref().get(..32).unwrap_or(&[0; 32]));
    id
}

/// Adds responses to certificates that were loaded for a handshake.
pub(super) fn staple(set: CertificateSet, response: impl Fn(&KeyPair) -> Option<Vec<u8>>) -> CertificateSet {
    let responses: Vec<Option<Vec<u8>>> = set.pairs().iter().map(response).collect();
    if responses.iter().all(Option::is_none) {
        return set;
    }
    let pairs = set.pairs().iter().zip(responses);
    CertificateSet::new(pairs.map(|(pair, response)| pair.with_ocsp(response)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> KeyPair {
        let made = rcgen::generate_simple_self_signed(["a.test".to_string()]).expect("made");
        KeyPair::load(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes(), &[]).expect("a pair")
    }

    #[test]
    fn responses_serve_until_their_end() {
        clock::update();
        let (staples, pair, now) = (LoadedStaples::default(), pair(), clock::unix_seconds());
        assert_eq!((staples.response(&pair), staples.next()), (None, Some(0)));
        let due = staples.take_due(now);
        assert_eq!((due.len(), staples.take_due(now).len()), (1, 0));
        staples.put(&due[0].0, vec![1], now + 100, now + 50);
        assert_eq!(
            (staples.response(&pair), staples.take_due(now).len(), staples.next()),
            (Some(vec![1]), 0, Some(now + 50))
        );
        assert_eq!(staples.take_due(now + 50).len(), 1);
        // A failed fetch leaves the response to its end.
        staples.postpone(&due[0].0, now + 90);
        assert_eq!(staples.response(&pair), Some(vec![1]));
        staples.put(&due[0].0, vec![2], now, now + 50);
        assert_eq!(staples.response(&pair), None);
        assert!(staples.take_due(now + UNUSED).is_empty() && staples.next().is_none());
        let set = CertificateSet::new(vec![pair]);
        assert_eq!(staple(set.clone(), |_| None).pairs()[0].ocsp(), None);
        assert_eq!(staple(set, |_| Some(vec![3])).pairs()[0].ocsp(), Some(&[3][..]));
    }

    #[test]
    fn certificates_are_bounded() {
        clock::update();
        let (staples, pair) = (LoadedStaples::default(), pair());
        for n in 0..LOADED_MAX {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&n.to_be_bytes());
            let loaded = LoadedCertificates {
                chain: Arc::default(),
                response: None,
                end: 0,
                at: 0,
                used: clock::unix_seconds(),
            };
            staples.0.lock().expect("not poisoned").insert(id, loaded);
        }
        assert_eq!(staples.response(&pair), None);
        assert_eq!(staples.0.lock().expect("not poisoned").len(), LOADED_MAX);
    }
}
