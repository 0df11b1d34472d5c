//! Records of an issuer that several servers share: the account's key, certificates with their keys, answers to challenges.
//!
//! The table has the records as the store has them, sealed if the issuer has a key for that.

use acme::{Identifier, IssuedChain};
use area::shared_secret::SharedSecret;
use aws_lc_rs::digest;
use bytes::Bytes;
use serde_json::{Value, json};
use shared_store::{LocalMap, LocalValue};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use tls::certs::{CertificateSet, KeyPair};
use tokio::sync::Notify;

/// Records of an issuer. Certificates on demand are the many ones.
const RECORDS_MAX: usize = 20_000;
/// Milliseconds between two removals of ended records.
const SWEEP_PAUSE: u64 = 60_000;

pub const ACCOUNT: &str = "account";

pub fn certificate_key(stem: &str) -> String {
    format!("certificate {stem}")
}

pub fn token_key(token: &str) -> String {
    format!("http-01 {token}")
}

pub fn name_key(name: &str) -> String {
    format!("tls-alpn-01 {name}")
}

/// Returns the text of a name's record.
pub fn name_text(identifier: &Identifier, authorization: &str) -> String {
    format!("{identifier}\n{authorization}")
}

/// Tables of the process, for challenges: an authority may come to any listener.
static TABLES: LazyLock<Mutex<Vec<Weak<AcmeTable>>>> = LazyLock::new(Mutex::default);
/// Wakes the scheduler when a certificate has come from another server.
static CHANGED: Notify = Notify::const_new();

/// Waits for a certificate of another server.
pub async fn certificate_came() {
    CHANGED.notified().await;
}

fn tables() -> Vec<Arc<AcmeTable>> {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.retain(|table| table.strong_count() > 0);
    tables.iter().filter_map(Weak::upgrade).collect()
}

/// Finds the key authorization of a token that another server has got.
pub fn find_token(token: &str) -> Option<Bytes> {
    let key = token_key(token);
    tables().iter().find_map(|table| table.text(&key)).map(|text| Bytes::from(text.into_bytes()))
}

/// Finds the certificate for the validation of a name that another server proves.
pub fn find_name(name: &str) -> Option<CertificateSet> {
    tables().iter().find_map(|table| table.challenge_certificate(name))
}

/// See the module's documentation.
pub struct AcmeTable {
    secret: Option<SharedSecret>,
    records: Mutex<AcmeRecords>,
    /// Certificates of challenges, by name, with the key authorization that each is for.
    challenges: Mutex<HashMap<String, (String, CertificateSet)>>,
}

#[derive(Default)]
struct AcmeRecords {
    all: HashMap<Vec<u8>, AcmeRecord>,
    /// Of the last record.
    number: u64,
    swept_at: u64,
}

struct AcmeRecord {
    value: Vec<u8>,
    /// Milliseconds since 1970.
    end: Option<u64>,
    /// Distinguishes the values that a key has had.
    number: u64,
}

impl AcmeRecord {
    fn is_alive(&self, now: u64) -> bool {
        self.end.is_none_or(|end| end > now)
    }
}

impl AcmeTable {
    /// `secret` seals the records.
    pub fn new(secret: Option<SharedSecret>) -> AcmeTable {
        AcmeTable { secret, records: Mutex::default(), challenges: Mutex::default() }
    }

    /// Lets challenges be found in the table, as long as it lives.
    pub fn register(self: &Arc<Self>) {
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        if !tables.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(self))) {
            tables.push(Arc::downgrade(self));
        }
    }

    fn records(&self) -> MutexGuard<'_, AcmeRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a number that changes with each certificate of a stem; 0 without one.
    pub fn certificate_number(&self, stem: &str) -> u64 {
        self.records().all.get(certificate_key(stem).as_bytes()).map_or(0, |record| record.number)
    }

    /// Stores a text. `expires` is in milliseconds since 1970. For the replica's closure, or before the table is shared.
    ///
    /// # Errors
    /// The text cannot be encrypted, or there is no room.
    pub fn put(&self, key: &str, text: &str, expires: u64) -> Result<(), String> {
        let value = match &self.secret {
            None => text.as_bytes().to_vec(),
            Some(secret) => secret.seal(text.as_bytes(), key.as_bytes()).ok_or("the record cannot be encrypted")?,
        };
        match self.apply_value(key.as_bytes(), Some(&value), Some(expires)) {
            true => Ok(()),
            false => Err(format!("there are {RECORDS_MAX} records already")),
        }
    }

    pub fn remove(&self, key: &str) {
        self.records().all.remove(key.as_bytes());
    }

    pub fn has(&self, key: &str) -> bool {
        self.local_value(key.as_bytes()).is_some()
    }

    /// Returns a text; `None` also if it was sealed with another key.
    pub fn text(&self, key: &str) -> Option<String> {
        let (value, _) = self.local_value(key.as_bytes())?;
        let text = match &self.secret {
            None => value,
            Some(secret) => secret.open(&value, key.as_bytes())?,
        };
        String::from_utf8(text).ok()
    }

    /// Tells whether there is a record that cannot be read: servers have different keys.
    pub fn is_unreadable(&self, key: &str) -> bool {
        self.has(key) && self.text(key).is_none()
    }

    /// Returns a certificate with its key.
    pub fn certificate(&self, stem: &str) -> Option<IssuedChain> {
        let Ok(Value::Object(members)) = serde_json::from_str(&self.text(&certificate_key(stem))?) else { return None };
        let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_string);
        Some(IssuedChain { chain: text("chain")?, key: text("key")? })
    }

    /// Returns the text of a certificate's record.
    pub fn certificate_text(issued: &IssuedChain) -> String {
        json!({"chain": issued.chain, "key": issued.key}).to_string()
    }

    fn challenge_certificate(&self, name: &str) -> Option<CertificateSet> {
        let text = self.text(&name_key(name))?;
        let (identifier, authorization) = text.split_once('\n')?;
        let mut made = self.challenges.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|name, _| self.has(&name_key(name)));
        if let Some((_, set)) = made.get(name).filter(|(known, _)| known == authorization) {
            return Some(set.clone());
        }
        let digest = digest::digest(&digest::SHA256, authorization.as_bytes());
        let identifier = Identifier::parse(identifier)?;
        let challenge = acme::challenge_certificate(&identifier, digest.as_ref()).ok()?;
        let pair = KeyPair::load(challenge.chain.as_bytes(), challenge.key.as_bytes(), &[]).ok()?;
        let set = CertificateSet::new(vec![pair]);
        made.insert(name.to_string(), (authorization.to_string(), set.clone()));
        Some(set)
    }
}

impl LocalMap for AcmeTable {
    fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
        let now = base::clock::unix_millis();
        let records = self.records();
        let record = records.all.get(key).filter(|record| record.is_alive(now));
        record.map(|record| (record.value.clone(), record.end))
    }

    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool {
        let mut records = self.records();
        let now = base::clock::unix_millis();
        if now.saturating_sub(records.swept_at) > SWEEP_PAUSE {
            records.swept_at = now;
            records.all.retain(|_, record| record.is_alive(now));
        }
        records.number += 1;
        let number = records.number;
        match value {
            Some(_) if records.all.len() >= RECORDS_MAX && !records.all.contains_key(key) => return false,
            Some(value) => {
                records.all.insert(key.to_vec(), AcmeRecord { value: value.to_vec(), end: expires, number });
            }
            None => drop(records.all.remove(key)),
        }
        drop(records);
        if key.starts_with(certificate_key("").as_bytes()) {
            CHANGED.notify_one();
        }
        true
    }

    fn local_keys(&self) -> Vec<Vec<u8>> {
        self.records().all.keys().cloned().collect()
    }

    fn local_identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(key: &[u8]) -> AcmeTable {
        AcmeTable::new(SharedSecret::derived(key, "acme", &["a"]))
    }

    fn later() -> u64 {
        base::clock::update();
        base::clock::unix_millis() + 60_000
    }

    #[test]
    fn records_of_another_key_are_not_readable() {
        let (one, two, other) = (table(b"key"), table(b"key"), table(b"other"));
        one.put(ACCOUNT, "secret text", later()).expect("room");
        let (value, expires) = one.local_value(ACCOUNT.as_bytes()).expect("a record");
        assert!(!value.windows(6).any(|window| window == b"secret"));
        for table in [&two, &other] {
            assert!(table.apply_value(ACCOUNT.as_bytes(), Some(&value), expires));
        }
        assert_eq!(two.text(ACCOUNT).as_deref(), Some("secret text"));
        assert!(other.is_unreadable(ACCOUNT) && !two.is_unreadable(ACCOUNT) && !other.is_unreadable("none"));
        assert!(two.apply_value(b"account 2", Some(&value), expires));
        assert_eq!(two.text("account 2"), None, "a record is bound to its key");
    }

    #[test]
    fn challenges_are_found_until_they_end() {
        let table = Arc::new(table(b"key"));
        table.register();
        let key = token_key("token of this test");
        table.put(&key, "authorization", later()).expect("room");
        assert_eq!(find_token("token of this test").as_deref(), Some(&b"authorization"[..]));
        let name = Identifier::Dns("shared.test".into());
        table.put(&name_key("shared.test"), &name_text(&name, "authorization"), later()).expect("room");
        assert!(find_name("shared.test").is_some() && find_name("other.test").is_none());
        table.put(&key, "authorization", 1).expect("room");
        assert_eq!(find_token("token of this test"), None);
        drop(table);
        assert!(find_name("shared.test").is_none());
    }

    #[test]
    fn the_number_of_records_is_bounded() {
        let table = table(b"key");
        for number in 0..RECORDS_MAX {
            assert!(table.apply_value(number.to_string().as_bytes(), Some(b""), None));
        }
        assert!(!table.apply_value(b"more", Some(b""), None));
        assert!(table.apply_value(b"7", Some(b"new"), None) && table.apply_value(b"8", None, None));
        assert!(table.apply_value(b"more", Some(b""), None));
    }
}
