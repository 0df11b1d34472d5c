//! Certificates of the process: they outlive the configurations that order them.

use super::issuer::Issuer;
use acme::{Algorithm, Identifier, IssuedChain};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};
use tls::certs::CertificateSet;
use tls::x509::Certificate as Leaf;

/// Orders with equal issuer, server, identifiers and kind of key share a certificate.
type Id = (String, String, Vec<Identifier>, Algorithm);

static ALL: LazyLock<Mutex<HashMap<Id, Arc<Certificate>>>> = LazyLock::new(Mutex::default);

/// A certificate with its key, as `ssl_certificate` takes them: `data:` and the PEM text.
struct Current {
    chain: Arc<[u8]>,
    key: Arc<[u8]>,
    /// `None`: a placeholder.
    leaf: Option<Arc<Leaf>>,
    set: CertificateSet,
}

/// The certificate of one order.
#[derive(Default)]
pub struct Certificate {
    current: RwLock<Option<Current>>,
    /// State of the orders as JSON, as in the file of `state_path`.
    status: Mutex<Option<Arc<str>>>,
    /// Issued, and not stored yet.
    unsaved: AtomicBool,
}

/// Returns the certificate of an order, present or to come.
pub fn order_certificate(issuers: &[Arc<Issuer>], identifiers: &[Identifier], key: Algorithm) -> Arc<Certificate> {
    let first = issuers.first();
    let name = first.map(|issuer| issuer.name.clone()).unwrap_or_default();
    let source = first.map(|issuer| issuer.source.to_string()).unwrap_or_default();
    let id = (name, source, identifiers.to_vec(), key);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.entry(id).or_default())
}

/// Forgets the certificates that no configuration uses.
pub fn forget_unused() {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, certificate| Arc::strong_count(certificate) > 1);
}

impl Certificate {
    pub fn chain(&self) -> Option<Arc<[u8]>> {
        self.read(|current| Arc::clone(&current.chain))
    }
    /// Returns the loaded certificate for a handshake.
    pub fn set_of_handshake(&self) -> Option<CertificateSet> {
        self.read(|current| current.set.clone())
    }
    /// Returns the issued certificate with its chain, or its key; `None` for a placeholder.
    pub fn issued(&self, key: bool) -> Option<Arc<[u8]>> {
        let part = |current: &Current| {
            current.leaf.as_ref()?;
            Some(Arc::clone(if key { &current.key } else { &current.chain }))
        };
        self.read(part).flatten()
    }
    pub fn key(&self) -> Option<Arc<[u8]>> {
        self.read(|current| Arc::clone(&current.key))
    }
    /// Returns the issued leaf; `None` before the first.
    pub fn leaf(&self) -> Option<Arc<Leaf>> {
        self.read(|current| current.leaf.clone()).flatten()
    }
    /// Tells whether handshakes have something to show.
    pub fn is_set(&self) -> bool {
        self.read(|_| ()).is_some()
    }
    pub fn set_unsaved(&self, is: bool) {
        self.unsaved.store(is, Ordering::Relaxed);
    }
    /// Returns the issued certificate as texts, if it is not stored.
    pub fn unsaved(&self) -> Option<IssuedChain> {
        let is_unsaved = self.unsaved.load(Ordering::Relaxed);
        is_unsaved.then(|| self.texts())?
    }
    /// Returns the issued certificate as texts; `None` for a placeholder.
    pub fn texts(&self) -> Option<IssuedChain> {
        let text = |part: Arc<[u8]>| String::from_utf8(part.strip_prefix(b"data:")?.to_vec()).ok();
        Some(IssuedChain { chain: text(self.issued(false)?)?, key: text(self.issued(true)?)? })
    }
    pub fn set_status(&self, text: &str) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.into());
    }
    /// Returns the state of the orders; `None` in a process without orders.
    pub fn status(&self) -> Option<Arc<str>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn read<T>(&self, f: impl FnOnce(&Current) -> T) -> Option<T> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(f)
    }

    /// Replaces the certificate for handshakes from now on.
    ///
    /// # Errors
    /// The texts are no certificate with its key.
    pub fn set(&self, issued: &IssuedChain, placeholder: bool) -> Result<(), String> {
        let pair = tls::certs::KeyPair::load(issued.chain.as_bytes(), issued.key.as_bytes(), &[]);
        let pair = pair.map_err(|why| why.to_string())?;
        let leaf = pair.leaf().filter(|_| !placeholder).cloned().map(Arc::new);
        let data = |text: &str| Arc::from([b"data:", text.as_bytes()].concat());
        let set = CertificateSet::new(vec![pair]);
        let current = Current { chain: data(&issued.chain), key: data(&issued.key), leaf, set };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(current);
        Ok(())
    }
}
