//! Sessions: a cache for all threads, and tickets.
//! Both are bound to a *scope*, a digest of the rules at their start: a client certificate requested by one server
//! counts for no other (nginx: `ngx_ssl_session_id_context`).

use crate::{Clock, SessionScope};
use aws_lc_rs::cipher::{
    AES_128, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::{hmac, rand};
use rustls::server::{ProducesTickets, StoresServerSessions};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Shards of the cache, each with a lock.
const SHARDS: usize = 16;
/// Besides key and value.
const ENTRY_OVERHEAD: usize = 96;

#[derive(Debug)]
struct Entry {
    value: Vec<u8>,
    expires: u64,
    /// Distinguishes this entry from older ones of its key in the queue.
    number: u64,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Vec<u8>, Entry>,
    queue: VecDeque<(Vec<u8>, u64)>,
    bytes: usize,
    number: u64,
}

impl Shard {
    fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.bytes = self.bytes.saturating_sub(cost(key, &entry.value));
        Some(entry)
    }
    /// Removes the oldest entry; `false` if empty.
    fn evict(&mut self) -> bool {
        while let Some((key, number)) = self.queue.pop_front() {
            if self.entries.get(&key).is_some_and(|e| e.number == number) {
                self.remove(&key);
                return true;
            }
        }
        false
    }
}

fn cost(key: &[u8], value: &[u8]) -> usize {
    // The key is in the table and in the queue.
    2 * key.len() + value.len() + ENTRY_OVERHEAD
}

/// Sessions of `ssl_session_cache shared:name:size`, or of a server.
#[derive(Debug)]
pub struct SessionCache {
    shards: Vec<Mutex<Shard>>,
    /// Octets of all sessions, divided among the shards.
    size: usize,
}

impl SessionCache {
    /// `size`: octets of all sessions, including overhead.
    pub fn new(size: usize) -> SessionCache {
        SessionCache { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), size }
    }

    /// Returns the bytes that sessions may occupy.
    pub fn size(&self) -> usize {
        self.size
    }

    fn shard(&self, key: &[u8]) -> Option<MutexGuard<'_, Shard>> {
        // Ids are random: shards by their last octets.
        let index = key.iter().rev().take(8).fold(0_usize, |n, b| n.wrapping_mul(31).wrapping_add(usize::from(*b)));
        let shard = self.shards.get(index % SHARDS)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, key: Vec<u8>, value: Vec<u8>, now: u64, lifetime: u64) -> bool {
        let limit = self.size / SHARDS;
        let cost = cost(&key, &value);
        let Some(mut shard) = self.shard(&key).filter(|_| cost <= limit) else { return false };
        shard.remove(&key);
        // Removes two expired entries per insertion, as nginx, which bounds the work.
        for _ in 0..2 {
            let old = shard.queue.front().and_then(|(k, _)| shard.entries.get(k)).is_none_or(|e| e.expires <= now);
            if !old || !shard.evict() {
                break;
            }
        }
        while shard.bytes + cost > limit {
            if !shard.evict() {
                return false;
            }
        }
        shard.number += 1;
        let number = shard.number;
        shard.bytes += cost;
        shard.queue.push_back((key.clone(), number));
        // Taken sessions leave queue entries: bounded by twice the entries.
        if shard.queue.len() > 2 * shard.entries.len() + 64 {
            let Shard { entries, queue, .. } = &mut *shard;
            queue.retain(|(k, n)| *n == number || entries.get(k).is_some_and(|e| e.number == *n));
        }
        shard.entries.insert(key, Entry { value, expires: now.saturating_add(lifetime), number });
        true
    }

    fn get(&self, key: &[u8], now: u64) -> Option<Vec<u8>> {
        let shard = self.shard(key)?;
        shard.entries.get(key).filter(|e| e.expires > now).map(|e| e.value.clone())
    }

    fn take(&self, key: &[u8], now: u64) -> Option<Vec<u8>> {
        self.shard(key)?.remove(key).filter(|e| e.expires > now).map(|e| e.value)
    }

    /// Includes expired ones.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).entries.len()).sum()
    }

    /// Tells whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

pub(crate) struct ScopedCache {
    pub cache: Arc<SessionCache>,
    pub scope: SessionScope,
    pub lifetime: u64,
    pub clock: Clock,
}

impl std::fmt::Debug for ScopedCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopedCache").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

impl ScopedCache {
    fn key(&self, id: &[u8]) -> Vec<u8> {
        [&self.scope[..], id].concat()
    }
}

/// Puts the key exchange of the handshake before a session of rustls, which does not keep it. A resumption of TLS 1.2
/// has none of its own, and passes on the session's.
fn with_group(value: &[u8]) -> Vec<u8> {
    let group = crate::current::group().or(crate::current::group_resumed());
    [&group.unwrap_or_default().to_be_bytes()[..], value].concat()
}

/// Takes the key exchange off a session, and records it for the connection that resumes.
fn without_group(value: &[u8]) -> Option<Vec<u8>> {
    let (group, value) = value.split_first_chunk::<2>()?;
    crate::current::resumed_group(u16::from_be_bytes(*group));
    Some(value.to_vec())
}

impl StoresServerSessions for ScopedCache {
    fn put(&self, id: Vec<u8>, value: Vec<u8>) -> bool {
        crate::current::stored(&id);
        self.cache.put(self.key(&id), with_group(&value), (self.clock)(), self.lifetime)
    }
    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        let found = self.cache.get(&self.key(id), (self.clock)())?;
        crate::current::session_id(id);
        without_group(&found)
    }
    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        let found = self.cache.take(&self.key(id), (self.clock)())?;
        crate::current::session_id(id);
        without_group(&found)
    }
    fn can_cache(&self) -> bool {
        true
    }
}

/// Ticket key: plain name, AES-CBC, HMAC-SHA256 over everything (RFC 5077, 4).
struct TicketKey {
    name: [u8; 16],
    algorithm: &'static Algorithm,
    aes: Vec<u8>,
    mac: hmac::Key,
}

/// Octets of a key file with AES-128, and with AES-256.
pub const TICKET_KEY_SIZES: [usize; 2] = [48, 80];

impl TicketKey {
    /// Key of `ssl_session_ticket_key`: 48 octets (AES-128) or 80 (AES-256).
    fn from_bytes(bytes: &[u8]) -> Option<TicketKey> {
        let (name, rest) = bytes.split_first_chunk::<16>()?;
        // As in nginx, 48 octets are name, AES, HMAC; 80 are name, HMAC, AES.
        let (aes, mac, algorithm) = match rest.len() {
            32 => (rest.get(..16)?, rest.get(16..)?, &AES_128),
            64 => (rest.get(32..)?, rest.get(..32)?, &AES_256),
            _ => return None,
        };
        Some(TicketKey { name: *name, algorithm, aes: aes.to_vec(), mac: hmac::Key::new(hmac::HMAC_SHA256, mac) })
    }

    fn random() -> Option<TicketKey> {
        let mut bytes = [0; 80];
        rand::fill(&mut bytes).ok()?;
        Self::from_bytes(&bytes)
    }

    fn seal(&self, plain: &[u8], scope: &SessionScope) -> Option<Vec<u8>> {
        let key = PaddedBlockEncryptingKey::cbc_pkcs7(UnboundCipherKey::new(self.algorithm, &self.aes).ok()?).ok()?;
        let mut body = plain.to_vec();
        let context = key.encrypt(&mut body).ok()?;
        let iv: &[u8] = match &context {
            DecryptionContext::Iv128(iv) => iv.as_ref(),
            _ => return None,
        };
        let mut ticket = [&self.name[..], iv, &body].concat();
        let tag = self.tag(&ticket, scope);
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn tag(&self, ticket: &[u8], scope: &SessionScope) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.mac);
        context.update(scope);
        context.update(ticket);
        context.sign()
    }

    fn open(&self, ticket: &[u8], scope: &SessionScope) -> Option<Vec<u8>> {
        let (signed, tag) = ticket.split_last_chunk::<32>()?;
        hmac::verify(&self.mac, &[&scope[..], signed].concat(), tag).ok()?;
        let (iv, body) = signed.get(16..)?.split_first_chunk::<16>()?;
        let key = PaddedBlockDecryptingKey::cbc_pkcs7(UnboundCipherKey::new(self.algorithm, &self.aes).ok()?).ok()?;
        let mut body = body.to_vec();
        let length = key.decrypt(&mut body, DecryptionContext::Iv128((*iv).into())).ok()?.len();
        body.truncate(length);
        Some(body)
    }
}

struct Ring {
    /// The first encrypts, all decrypt.
    keys: Vec<TicketKey>,
    /// Time of the first key's replacement; `None`: from files.
    rotate_at: Option<u64>,
}

/// Keys of session tickets, shared by all threads.
pub struct TicketKeys {
    ring: RwLock<Ring>,
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKeys")
    }
}

impl TicketKeys {
    /// Random keys, replaced every lifetime; the previous one still decrypts.
    pub fn automatic() -> TicketKeys {
        TicketKeys { ring: RwLock::new(Ring { keys: Vec::new(), rotate_at: Some(0) }) }
    }

    /// Keys from files; the first encrypts. Fails with the index of a file of another length.
    pub fn from_files(files: &[Vec<u8>]) -> Result<TicketKeys, usize> {
        let mut keys = Vec::new();
        for (index, file) in files.iter().enumerate() {
            keys.push(TicketKey::from_bytes(file).ok_or(index)?);
        }
        Ok(TicketKeys { ring: RwLock::new(Ring { keys, rotate_at: None }) })
    }

    /// Replaces all keys, which are not rotated from then on: the first of 48 or 80 bytes each encrypts. The one that has
    /// encrypted before still decrypts. Others are left out; without any, nothing changes.
    pub fn replace(&self, keys: &[&[u8]]) {
        let mut keys: Vec<TicketKey> = keys.iter().filter_map(|key| TicketKey::from_bytes(key)).collect();
        if keys.is_empty() {
            return;
        }
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        if !ring.keys.is_empty() {
            let before = ring.keys.swap_remove(0);
            if keys.iter().all(|key| key.name != before.name) {
                keys.push(before);
            }
        }
        *ring = Ring { keys, rotate_at: None };
    }

    fn rotate(&self, now: u64, lifetime: u64) {
        let due = |ring: &Ring| ring.rotate_at.is_some_and(|at| at <= now);
        if !due(&self.ring.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(key)) = (due(&ring), TicketKey::random()) {
            // A key older than two lifetimes decrypts only expired tickets.
            let stale = ring.rotate_at.is_some_and(|at| at.saturating_add(lifetime) < now);
            ring.keys.truncate(usize::from(!stale));
            ring.keys.insert(0, key);
            ring.rotate_at = Some(now.saturating_add(lifetime.max(1)));
        }
    }

    fn seal(&self, plain: &[u8], scope: &SessionScope, now: u64, lifetime: u64) -> Option<Vec<u8>> {
        self.rotate(now, lifetime);
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        // Includes the time: tickets of key files would otherwise never expire.
        ring.keys.first()?.seal(&[&now.to_be_bytes()[..], plain].concat(), scope)
    }

    fn open(&self, ticket: &[u8], scope: &SessionScope, now: u64, lifetime: u64) -> Option<Vec<u8>> {
        self.rotate(now, lifetime);
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        let name = ticket.get(..16)?;
        let plain = ring.keys.iter().find(|k| k.name == name)?.open(ticket, scope)?;
        let (issued, plain) = plain.split_first_chunk::<8>()?;
        let issued = u64::from_be_bytes(*issued);
        (now < issued.saturating_add(lifetime)).then(|| plain.to_vec())
    }
}

pub(crate) struct Tickets {
    pub keys: Arc<TicketKeys>,
    pub scope: SessionScope,
    pub lifetime: u32,
    pub clock: Clock,
}

impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tickets").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }
    fn lifetime(&self) -> u32 {
        self.lifetime
    }
    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let ticket = self.keys.seal(&with_group(plain), &self.scope, (self.clock)(), u64::from(self.lifetime))?;
        crate::current::ticket(&ticket);
        Some(ticket)
    }
    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let plain = self.keys.open(ticket, &self.scope, (self.clock)(), u64::from(self.lifetime))?;
        crate::current::ticket(ticket);
        without_group(&plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionScope = [1; 32];
    const B: SessionScope = [2; 32];

    #[test]
    fn the_cache_keeps_to_its_size_and_to_time() {
        let cache = SessionCache::new(64 * 1024);
        for n in 0..2000_u32 {
            assert!(cache.put(n.to_be_bytes().to_vec(), vec![0; 100], 0, 300));
        }
        let bytes: usize = cache.shards.iter().map(|s| s.lock().expect("no panic").bytes).sum();
        assert!(bytes <= cache.size() && cache.len() > 100, "{bytes} {}", cache.len());
        assert!(cache.get(&1999_u32.to_be_bytes(), 299).is_some());
        assert!(cache.get(&1999_u32.to_be_bytes(), 300).is_none());
        assert!(cache.get(&0_u32.to_be_bytes(), 1).is_none(), "the oldest went");
        assert!(!cache.put(vec![1], vec![0; 64 * 1024], 0, 300), "too large for any shard");
        assert!(cache.take(&1998_u32.to_be_bytes(), 1).is_some());
        assert!(cache.take(&1998_u32.to_be_bytes(), 1).is_none());
    }

    #[test]
    fn a_queue_of_taken_sessions_stays_short() {
        let cache = SessionCache::new(1 << 20);
        for n in 0..10_000_u32 {
            cache.put(n.to_be_bytes().to_vec(), vec![0; 10], 0, 300);
            cache.take(&n.to_be_bytes(), 0);
        }
        let longest = cache.shards.iter().map(|s| s.lock().expect("no panic").queue.len()).max();
        assert!(longest <= Some(65), "{longest:?}");
    }

    #[test]
    fn tickets_open_for_their_time_and_scope() {
        let keys = TicketKeys::from_files(&[(0..80).collect(), (100..148).collect()]).expect("keys");
        let ticket = keys.seal(b"state", &A, 1000, 300).expect("sealed");
        assert_eq!(keys.open(&ticket, &A, 1299, 300).as_deref(), Some(&b"state"[..]));
        assert_eq!(keys.open(&ticket, &A, 1300, 300), None);
        assert_eq!(keys.open(&ticket, &B, 1000, 300), None);
        // Other file first: tickets of the second key still decrypt.
        let turned = TicketKeys::from_files(&[(100..148).collect(), (0..80).collect()]).expect("keys");
        assert_eq!(turned.open(&ticket, &A, 1000, 300).as_deref(), Some(&b"state"[..]));
        assert!(TicketKeys::from_files(&[(100..148).collect()]).expect("keys").open(&ticket, &A, 1000, 300).is_none());
        for index in 0..ticket.len() {
            let mut bent = ticket.clone();
            bent[index] ^= 1;
            assert_eq!(keys.open(&bent, &A, 1000, 300), None, "{index}");
            assert_eq!(keys.open(&ticket[..index], &A, 1000, 300), None, "{index}");
        }
        assert_eq!(TicketKeys::from_files(&[vec![0; 48], vec![0; 47]]).err(), Some(1));
    }

    #[test]
    fn automatic_keys_rotate_and_the_one_before_still_opens() {
        let keys = TicketKeys::automatic();
        let first = keys.seal(b"1", &A, 1000, 300).expect("sealed");
        let second = keys.seal(b"2", &A, 1300, 300).expect("sealed");
        assert_ne!(first[..16], second[..16]);
        assert_eq!(keys.open(&first, &A, 1299, 400).as_deref(), Some(&b"1"[..]));
        assert_eq!(keys.open(&second, &A, 1500, 300).as_deref(), Some(&b"2"[..]));
        assert_eq!(keys.open(&second, &A, 5000, 300), None);
        assert_eq!(keys.ring.read().expect("no panic").keys.len(), 1, "what is stale is dropped");
    }
}
