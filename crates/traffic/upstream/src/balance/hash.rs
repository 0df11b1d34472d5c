//! `ip_hash`, `hash` and `hash ... consistent`, with nginx's placement.

use super::{Attempts, Choice, MISSES_MAX, by_weight, usable};
use crate::group::Group;
use crate::group::Members;
use crate::peer::Peer;
use std::sync::Arc;

fn total(list: &[Arc<Peer>]) -> u64 {
    list.iter().map(|p| u64::from(p.spec.weight)).sum::<u64>().max(1)
}

/// nginx's ip_hash: starts at 89, hash × 113 + byte, modulo 6271.
pub fn by_address(group: &Group, list: &[Arc<Peer>], choice: &Choice<'_>, attempts: &mut Attempts) -> Option<usize> {
    if list.len() < 2 {
        return group.round_robin(list, choice, attempts, None);
    }
    let mut hash = attempts.hash.unwrap_or(89);
    while attempts.misses <= MISSES_MAX {
        for byte in choice.key {
            hash = (hash * 113 + u32::from(*byte)) % 6271;
        }
        let index = by_weight(list, u64::from(hash) % total(list))?;
        if usable(list, index, choice.now, attempts) {
            attempts.hash = Some(hash);
            return Some(index);
        }
        attempts.misses += 1;
    }
    group.round_robin(list, choice, attempts, None)
}

/// nginx's hash: sum of CRC32 over the key, then "1" + key after a miss, and so on.
pub fn by_key(group: &Group, list: &[Arc<Peer>], choice: &Choice<'_>, attempts: &mut Attempts) -> Option<usize> {
    while attempts.misses <= MISSES_MAX {
        let mut crc = Crc32::new();
        if attempts.rehash > 0 {
            crc.update(attempts.rehash.to_string().as_bytes());
        }
        crc.update(choice.key);
        let hash = attempts.hash.unwrap_or(0).wrapping_add((crc.finish() >> 16) & 0x7fff);
        attempts.hash = Some(hash);
        attempts.rehash += 1;
        let index = by_weight(list, u64::from(hash) % total(list))?;
        if usable(list, index, choice.now, attempts) {
            return Some(index);
        }
        attempts.misses += 1;
    }
    group.round_robin(list, choice, attempts, None)
}

/// `hash ... consistent`: the owner of the next point of the ring at or behind the key's hash; after misses, of the
/// points behind it (nginx: `ngx_http_upstream_get_chash_peer`).
pub fn choose_consistent(
    group: &Group,
    list: &[Arc<Peer>],
    members: &Members,
    choice: &Choice<'_>,
    attempts: &mut Attempts,
) -> Option<usize> {
    let ring = members.ring.get_or_init(|| points(list));
    if ring.is_empty() {
        return None;
    }
    let mut at = attempts.hash.unwrap_or_else(|| {
        let mut crc = Crc32::new();
        crc.update(choice.key);
        let hash = crc.finish();
        ring.partition_point(|(point, _)| *point < hash) as u32
    });
    while attempts.misses <= MISSES_MAX {
        let (_, owner) = ring[at as usize % ring.len()];
        // Addresses of one name take turns.
        let name = &list[owner].spec.name;
        let among = |index: usize| list[index].spec.name == *name;
        if let Some(index) = group.weighted(list, choice, attempts, 0, None, among) {
            attempts.hash = Some(at);
            return Some(index);
        }
        at = at.wrapping_add(1);
        attempts.misses += 1;
    }
    attempts.hash = Some(at);
    group.round_robin(list, choice, attempts, None)
}

/// Points of the ring: CRC32 over host, NUL, port and previous point, 160 per unit of weight.
fn points(list: &[Arc<Peer>]) -> Vec<(u32, usize)> {
    let mut points = Vec::new();
    for (index, peer) in list.iter().enumerate() {
        let name = &peer.spec.name;
        let unix = name.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("unix:")).and_then(|_| name.get(5..));
        let (host, port) = match unix {
            Some(path) => (path, ""),
            None => match name.rsplit_once(':') {
                Some((host, port)) if port.bytes().all(|c| c.is_ascii_digit()) => (host, port),
                _ => (name.as_str(), ""),
            },
        };
        let mut base = Crc32::new();
        base.update(host.as_bytes());
        base.update(&[0]);
        base.update(port.as_bytes());
        let mut previous = 0u32;
        for _ in 0..u64::from(peer.spec.weight) * 160 {
            let mut crc = base.clone();
            crc.update(&previous.to_le_bytes());
            previous = crc.finish();
            points.push((previous, index));
        }
    }
    points.sort_by_key(|(point, _)| *point);
    points.dedup_by_key(|(point, _)| *point);
    points
}

/// CRC-32 (IEEE 802.3), as nginx's hashes use it.
#[derive(Clone)]
pub struct Crc32(u32);

impl Crc32 {
    /// Begins a checksum.
    pub fn new() -> Crc32 {
        Crc32(!0)
    }
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        const TABLE: [u32; 16] = {
            let mut table = [0u32; 16];
            let mut i = 0;
            while i < 16 {
                let mut c = i as u32;
                let mut k = 0;
                while k < 4 {
                    c = if c & 1 != 0 { 0xEDB8_8320 ^ (c >> 1) } else { c >> 1 };
                    k += 1;
                }
                table[i] = c;
                i += 1;
            }
            table
        };
        for b in bytes {
            self.0 ^= u32::from(*b);
            self.0 = TABLE[(self.0 & 15) as usize] ^ (self.0 >> 4);
            self.0 = TABLE[(self.0 & 15) as usize] ^ (self.0 >> 4);
        }
    }
    /// Returns the checksum of the bytes so far.
    pub fn finish(&self) -> u32 {
        !self.0
    }
}

impl Default for Crc32 {
    fn default() -> Self {
        Crc32::new()
    }
}
