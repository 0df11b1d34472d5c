//! Certificates that depend on variables: loaded when a connection is there, and kept for a while where a cache is on
//! (nginx: `ngx_ssl_connection_certificate`, `ngx_ssl_cache_connection_fetch`).

use super::files::{pem, sentence, unavailable};
use super::values::{CacheOf, Passwords, Pem};
use base::clock;
use http_engine::{Request, Template};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tls::certs::{KeyPair, LoadError};

/// Octets of a certificate's or key's file.
const FILE_MAX: u64 = 1 << 20;

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    modified: i64,
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some(Stamp { inode: found.ino(), modified: found.mtime() })
}

struct Kept {
    pair: KeyPair,
    /// Of the certificate's and the key's file; `None` where it is `data:`.
    stamps: [Option<Stamp>; 2],
    checked: i64,
    used: i64,
}

/// The certificate of one connection.
pub struct Dynamic {
    certificate: Template,
    key: Template,
    passwords: Passwords,
    conf_prefix: PathBuf,
    cache: CacheOf,
    kept: Mutex<HashMap<(Vec<u8>, Vec<u8>), Kept>>,
}

impl Dynamic {
    pub fn new(
        certificate: &Pem,
        key: &Pem,
        passwords: Option<&Passwords>,
        cache: CacheOf,
        conf_prefix: &Path,
    ) -> Dynamic {
        Dynamic {
            certificate: certificate.template.clone(),
            key: key.template.clone(),
            passwords: passwords.cloned().unwrap_or_default(),
            conf_prefix: conf_prefix.to_path_buf(),
            cache,
            kept: Mutex::default(),
        }
    }

    /// The certificate for this request; `None` when its name comes to nothing.
    ///
    /// # Errors
    /// nginx's words for the error log.
    pub fn load(&self, r: &mut Request) -> Result<Option<KeyPair>, String> {
        let certificate = self.certificate.eval(r);
        let key = self.key.eval(r);
        if certificate.is_empty() {
            return Ok(None);
        }
        self.pair(&certificate, &key).map(Some)
    }

    fn path(&self, word: &[u8]) -> PathBuf {
        let text = String::from_utf8_lossy(word);
        if text.starts_with('/') { PathBuf::from(&*text) } else { self.conf_prefix.join(&*text) }
    }

    fn stamps(&self, words: [&[u8]; 2]) -> [Option<Stamp>; 2] {
        words.map(|word| if word.starts_with(b"data:") { None } else { stamp(&self.path(word)) })
    }

    fn pair(&self, certificate: &[u8], key: &[u8]) -> Result<KeyPair, String> {
        let CacheOf::Entries { max, inactive, valid } = self.cache else { return self.read(certificate, key) };
        let now = clock::unix_seconds();
        let id = (certificate.to_vec(), key.to_vec());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = kept.get_mut(&id) {
            let within =
                |seconds: u64, since: i64| now.saturating_sub(since) <= i64::try_from(seconds).unwrap_or(i64::MAX);
            let fresh = within(valid, entry.checked) || entry.stamps == [None, None] || {
                entry.checked = now;
                entry.stamps == self.stamps([certificate, key])
            };
            if fresh {
                entry.used = now;
                return Ok(entry.pair.clone());
            }
            kept.remove(&id);
        }
        let pair = self.read(certificate, key)?;
        let idle = |entry: &Kept| now.saturating_sub(entry.used) > i64::try_from(inactive).unwrap_or(i64::MAX);
        kept.retain(|_, entry| !idle(entry));
        if kept.len() >= max {
            let oldest = kept.iter().min_by_key(|(_, entry)| entry.used).map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                kept.remove(&oldest);
            }
        }
        let stamps = self.stamps([certificate, key]);
        kept.insert(id, Kept { pair: pair.clone(), stamps, checked: now, used: now });
        Ok(pair)
    }

    fn read(&self, certificate: &[u8], key: &[u8]) -> Result<KeyPair, String> {
        let text = |word: &[u8]| {
            let word = String::from_utf8_lossy(word).into_owned();
            if word.starts_with("data:") { word } else { self.path(word.as_bytes()).display().to_string() }
        };
        let (c, k) = (text(certificate), text(key));
        let file = |path: &str| {
            let found = std::fs::metadata(path)?;
            if !found.is_file() || found.len() > FILE_MAX {
                return Err(std::io::Error::from_raw_os_error(EINVAL));
            }
            std::fs::read(path).map(Arc::from)
        };
        let chain = pem(&c, file).map_err(|why| format!("cannot load certificate \"{c}\": {why}"))?;
        if let Some(why) = unavailable(&k) {
            return Err(why);
        }
        let key = pem(&k, file).map_err(|why| format!("cannot load certificate key \"{k}\": {why}"))?;
        KeyPair::load(&chain, &key, &self.passwords.0).map_err(|why| match why {
            LoadError::Mismatch => format!("SSL_use_PrivateKey(\"{k}\") failed (SSL: error:05800074:x509 certificate routines::key values mismatch)"),
            why => sentence(&why, &c, &k),
        })
    }
}

const EINVAL: i32 = 22;
