//! Certificates by variables: loaded per connection, optionally cached (nginx: `ngx_ssl_connection_certificate`,
//! `ngx_ssl_cache_connection_fetch`).

use super::files::{pem_text, sentence, stored, unavailable};
use super::values::{CacheOf, Passwords, Pem};
use base::clock;
use conf_schema::Cx;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tls::certs::{KeyPair, LoadError};
use variables::{AreaTypes, Template};

/// Objects of an entry: a certificate and a key.
const ENTRY: usize = 2;
/// Longest certificate or key file in octets.
const FILE_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PairStamp {
    inode: u64,
    modified: i64,
}

fn stamp(path: &Path) -> Option<PairStamp> {
    let found = std::fs::metadata(path).ok()?;
    Some(PairStamp { inode: found.ino(), modified: found.mtime() })
}

#[derive(Debug)]
struct KeptCertificate {
    pair: KeyPair,
    /// Stamps of the certificate file and the key file; `None` for `data:`.
    stamps: [Option<PairStamp>; 2],
    checked: i64,
    used: i64,
    /// Sequence number of uses, to order those of one second.
    turn: u64,
}

#[derive(Debug, Default)]
struct Entries {
    by_id: HashMap<PairNames, KeptCertificate>,
    turn: u64,
}

struct LoadedPair {
    pair: KeyPair,
    encrypted: bool,
}

/// Absolute names of certificate and key.
type PairNames = (Vec<u8>, Vec<u8>);

#[derive(Debug)]
pub struct CertificateCache {
    /// Certificates and keys, counted together as in nginx.
    pub max: usize,
    /// Seconds without use until removal, and between checks of the file.
    pub inactive: u64,
    pub valid: u64,
    kept: Mutex<Entries>,
}

impl CertificateCache {
    pub fn new(max: usize, inactive: u64, valid: u64) -> CertificateCache {
        CertificateCache { max, inactive, valid, kept: Mutex::default() }
    }

    fn get(&self, id: PairNames, load: impl FnOnce() -> Result<LoadedPair, String>) -> Result<KeyPair, String> {
        let now = clock::unix_seconds();
        let within = |seconds: u64, since: i64| now.saturating_sub(since) <= i64::try_from(seconds).unwrap_or(i64::MAX);
        let mut entries = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        entries.turn += 1;
        let Entries { by_id: kept, turn } = &mut *entries;
        let turn = *turn;
        if let Some(entry) = kept.get_mut(&id) {
            let fresh = within(self.valid, entry.checked) || entry.stamps == [None, None] || {
                entry.checked = now;
                entry.stamps == stamps(&id)
            };
            if fresh {
                (entry.used, entry.turn) = (now, turn);
                return Ok(entry.pair.clone());
            }
            kept.remove(&id);
        }
        let stamps = stamps(&id);
        let LoadedPair { pair, encrypted } = load()?;
        // Encrypted keys need their password every time, and a certificate without its key is of no use.
        if encrypted || self.max < ENTRY {
            return Ok(pair);
        }
        kept.retain(|_, entry| within(self.inactive, entry.used));
        while !kept.is_empty() && ENTRY * (kept.len() + 1) > self.max {
            let oldest = kept.iter().min_by_key(|(_, entry)| entry.turn).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else { break };
            kept.remove(&oldest);
        }
        kept.insert(id, KeptCertificate { pair: pair.clone(), stamps, checked: now, used: now, turn });
        Ok(pair)
    }
}

fn stamps((certificate, key): &PairNames) -> [Option<PairStamp>; 2] {
    [certificate, key]
        .map(|word| if word.starts_with(b"data:") { None } else { stamp(Path::new(&*String::from_utf8_lossy(word))) })
}

pub struct Dynamic<A> {
    certificate: Template<A>,
    key: Template<A>,
    passwords: Passwords,
    conf_prefix: PathBuf,
    cache: CacheOf,
    /// Files are opened by the process that holds the keys.
    isolated: bool,
}

impl<A: AreaTypes> Dynamic<A> {
    pub fn new(certificate: &Pem<A>, key: &Pem<A>, passwords: Option<&Passwords>, cache: &CacheOf, cx: &Cx) -> Self {
        Dynamic {
            certificate: certificate.template.clone(),
            key: key.template.clone(),
            passwords: passwords.cloned().unwrap_or_default(),
            conf_prefix: cx.conf_prefix.clone(),
            cache: cache.clone(),
            isolated: cx.store.has_stand_ins(),
        }
    }

    /// Certificate for a session; `None` for an empty name. Fails with nginx's error log message.
    pub fn load(&self, r: &mut A::Session) -> Result<Option<KeyPair>, String> {
        let certificate = self.full(self.certificate.eval(r));
        let key = self.key.eval(r);
        let key = self.full(stored(&String::from_utf8_lossy(&key)).as_bytes().to_vec());
        if certificate.is_empty() {
            return Ok(None);
        }
        let read = || self.read(&certificate, &key);
        match &self.cache {
            CacheOf::Off => read().map(|loaded| loaded.pair),
            CacheOf::On(cache) => cache.get((certificate.clone(), key.clone()), read),
        }
        .map(Some)
    }

    fn full(&self, word: Vec<u8>) -> Vec<u8> {
        if word.is_empty() || word.starts_with(b"/") || unavailable(&String::from_utf8_lossy(&word)).is_some() {
            return word;
        }
        if word.starts_with(b"data:") {
            return word;
        }
        self.conf_prefix.join(&*String::from_utf8_lossy(&word)).into_os_string().into_encoded_bytes()
    }

    fn read(&self, certificate: &[u8], key: &[u8]) -> Result<LoadedPair, String> {
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let (c, k) = (text(certificate), text(key));
        let file = |path: &str| {
            if self.isolated {
                return tls::isolation::open_file(path).map(Arc::from);
            }
            let found = std::fs::metadata(path)?;
            if !found.is_file() || found.len() > FILE_MAX {
                return Err(std::io::Error::from_raw_os_error(EINVAL));
            }
            std::fs::read(path).map(Arc::from)
        };
        let chain = pem_text(&c, file).map_err(|why| format!("cannot load certificate \"{c}\": {why}"))?;
        if let Some(why) = unavailable(&k) {
            return Err(why);
        }
        if self.isolated && k.starts_with("data:") {
            return Err("cannot load certificate key \"data:...\": \"ssl_key_isolation\" requires keys in files".into());
        }
        let key = pem_text(&k, file).map_err(|why| format!("cannot load certificate key \"{k}\": {why}"))?;
        let encrypted = tls::key::is_encrypted(&key);
        let loaded = match self.isolated {
            true => KeyPair::load_isolated(&chain, &key),
            false => KeyPair::load(&chain, &key, &self.passwords.lines),
        };
        let pair = loaded.map_err(|why| match why {
            LoadError::Mismatch => format!("SSL_use_PrivateKey(\"{k}\") failed (SSL: error:05800074:x509 certificate routines::key values mismatch)"),
            why => sentence(&why, &c, &k),
        })?;
        Ok(LoadedPair { pair, encrypted })
    }
}

const EINVAL: i32 = 22;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_cache_for_one_object_keeps_no_certificate() {
        let made = rcgen::generate_simple_self_signed(vec!["a.test".to_string()]).expect("a certificate");
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let pair = KeyPair::load(chain.as_bytes(), key.as_bytes(), &[]).expect("a pair");
        for (max, expected) in [(1, 2), (2, 1)] {
            let (cache, loads) = (CertificateCache::new(max, 10, 60), Cell::new(0));
            for _ in 0..2 {
                let load = || {
                    loads.set(loads.get() + 1);
                    Ok(LoadedPair { pair: pair.clone(), encrypted: false })
                };
                assert!(cache.get((b"data:c".to_vec(), b"data:k".to_vec()), load).is_ok());
            }
            assert_eq!(loads.get(), expected, "max={max}");
        }
    }
}
