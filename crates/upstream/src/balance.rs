//! Which server next: round robin with smooth weights, least_conn, ip_hash, hash, random, least_time.

use crate::group::{Group, Peer};
use base::clock::Instant;
use std::sync::atomic::Ordering;

/// How a group chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Method {
    #[default]
    RoundRobin,
    LeastConn,
    IpHash,
    /// The key is given with every choice; `true`: consistent (ketama).
    Hash(bool),
    /// `random`; `two`: the better of two by connections (or by time).
    Random {
        two: bool,
    },
    /// `least_time header` or `last_byte`.
    LeastTime {
        last_byte: bool,
    },
}

/// What one request has tried already.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    peers: Vec<bool>,
    /// Hash methods: how often they have hashed on.
    tries: u32,
    hash: u32,
    started: bool,
}

impl Tried {
    fn has(&self, index: usize) -> bool {
        self.peers.get(index).copied().unwrap_or(false)
    }
    fn mark(&mut self, index: usize) {
        if self.peers.len() <= index {
            self.peers.resize(index + 1, false);
        }
        self.peers[index] = true;
    }
    /// How many servers were asked.
    pub fn count(&self) -> usize {
        self.peers.iter().filter(|t| **t).count()
    }
}

/// What a choice depends on besides the group.
pub struct Choice<'a> {
    pub now: Instant,
    /// A random number.
    pub random: u64,
    /// The key of `hash`, or the client's address bytes for `ip_hash` (3 of IPv4, 16 of IPv6).
    pub key: &'a [u8],
}

/// After this many misses hash methods fall back to round robin (nginx: 20).
const HASH_TRIES_MAX: u32 = 20;

impl Group {
    /// The next server, or `None` when no one is left to ask.
    pub fn choose(&self, choice: &Choice<'_>, tried: &mut Tried) -> Option<usize> {
        let _turn = self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for backup in [false, true] {
            let keyless = matches!(self.method, Method::Hash(_)) && choice.key.is_empty();
            let found = if backup || keyless || tried.tries > HASH_TRIES_MAX {
                self.round_robin(choice, tried, backup)
            } else {
                match &self.method {
                    Method::RoundRobin => self.round_robin(choice, tried, false),
                    Method::LeastConn => self.least(choice, tried, |peer| peer.active.load(Ordering::Relaxed)),
                    Method::LeastTime { last_byte } => self.least(choice, tried, |peer| {
                        let time = peer.with(|s| if *last_byte { s.last_byte_time } else { s.header_time });
                        (time + 1).saturating_mul(peer.active.load(Ordering::Relaxed) + 1)
                    }),
                    Method::IpHash => self.ip_hash(choice, tried),
                    Method::Hash(false) => self.hash(choice, tried),
                    Method::Hash(true) => self.consistent(choice, tried),
                    Method::Random { two } => self.random(choice, tried, *two),
                }
            };
            if let Some(index) = found {
                tried.mark(index);
                let peer = &self.peers[index];
                peer.with(|s| {
                    if choice.now.millis_since(s.checked) > peer.spec.fail_timeout_ms {
                        s.checked = choice.now;
                    }
                });
                return Some(index);
            }
        }
        // The only server of a URL is asked even while it is failing: an error is no better than a try.
        if self.single() && tried.count() == 0 && !self.peers[0].spec.down && !self.full(0) {
            tried.mark(0);
            return Some(0);
        }
        None
    }

    fn full(&self, index: usize) -> bool {
        let peer = &self.peers[index];
        peer.spec.max_conns > 0 && peer.active.load(Ordering::Relaxed) >= u64::from(peer.spec.max_conns)
    }

    fn usable(&self, index: usize, backup: bool, now: Instant, tried: &Tried) -> bool {
        let peer: &Peer = &self.peers[index];
        if tried.has(index) || peer.spec.down || peer.spec.backup != backup {
            return false;
        }
        if self.single() { !self.full(index) } else { !peer.unavailable(now) }
    }

    /// Smooth weighted round robin: each step every server gains its weight, the richest is asked and pays the sum.
    fn round_robin(&self, choice: &Choice<'_>, tried: &Tried, backup: bool) -> Option<usize> {
        self.weighted(choice, tried, backup, |_| true)
    }

    fn weighted(
        &self,
        choice: &Choice<'_>,
        tried: &Tried,
        backup: bool,
        among: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut best: Option<(usize, i64)> = None;
        let mut total = 0;
        for index in 0..self.peers.len() {
            if !self.usable(index, backup, choice.now, tried) || !among(index) {
                continue;
            }
            let weight = i64::from(self.peers[index].spec.weight);
            let current = self.peers[index].with(|s| {
                s.current += s.effective;
                total += s.effective;
                if s.effective < weight {
                    s.effective += 1;
                }
                s.current
            });
            if best.is_none_or(|(_, most)| current > most) {
                best = Some((index, current));
            }
        }
        let (index, _) = best?;
        self.peers[index].with(|s| s.current -= total);
        Some(index)
    }

    /// The server with the smallest figure for its weight; round robin among equals.
    fn least(&self, choice: &Choice<'_>, tried: &Tried, figure: impl Fn(&Peer) -> u64) -> Option<usize> {
        let mut figures = vec![None; self.peers.len()];
        let mut best: Option<usize> = None;
        for index in 0..self.peers.len() {
            if !self.usable(index, false, choice.now, tried) {
                continue;
            }
            let value = u128::from(figure(&self.peers[index]));
            let weight = u128::from(self.peers[index].spec.weight.max(1));
            figures[index] = Some((value, weight));
            let better = best.is_none_or(|b| match figures[b] {
                Some((v, w)) => value * w < v * weight,
                None => true,
            });
            if better {
                best = Some(index);
            }
        }
        let (value, weight) = figures[best?]?;
        let equal = |index: usize| figures[index].is_some_and(|(v, w)| v * weight == value * w);
        self.weighted(choice, tried, false, equal)
    }

    fn total_weight(&self) -> u64 {
        self.peers.iter().filter(|p| !p.spec.backup).map(|p| u64::from(p.spec.weight)).sum()
    }

    /// The server whose share of the weights a number falls into.
    fn by_weight(&self, mut number: u64) -> Option<usize> {
        self.peers.iter().enumerate().filter(|(_, p)| !p.spec.backup).find_map(|(index, peer)| {
            let weight = u64::from(peer.spec.weight);
            if number < weight {
                return Some(index);
            }
            number -= weight;
            None
        })
    }

    /// nginx's ip_hash: 89, then hash * 113 + byte, modulo 6271.
    fn ip_hash(&self, choice: &Choice<'_>, tried: &mut Tried) -> Option<usize> {
        if !tried.started {
            (tried.started, tried.hash) = (true, 89);
        }
        let total = self.total_weight().max(1);
        while tried.tries <= HASH_TRIES_MAX {
            for byte in choice.key {
                tried.hash = (tried.hash * 113 + u32::from(*byte)) % 6271;
            }
            let index = self.by_weight(u64::from(tried.hash) % total)?;
            if self.usable(index, false, choice.now, tried) {
                return Some(index);
            }
            tried.tries += 1;
        }
        self.round_robin(choice, tried, false)
    }

    /// nginx's hash: CRC32 of the key, of "1" + key after a miss, and so on, summed.
    fn hash(&self, choice: &Choice<'_>, tried: &mut Tried) -> Option<usize> {
        let total = self.total_weight().max(1);
        while tried.tries <= HASH_TRIES_MAX {
            let mut crc = Crc32::new();
            if tried.started {
                crc.update(tried.tries.to_string().as_bytes());
            }
            crc.update(choice.key);
            let step = (crc.finish() >> 16) & 0x7fff;
            tried.hash = tried.hash.wrapping_add(step);
            tried.started = true;
            tried.tries += 1;
            let index = self.by_weight(u64::from(tried.hash) % total)?;
            if self.usable(index, false, choice.now, tried) {
                return Some(index);
            }
        }
        self.round_robin(choice, tried, false)
    }

    /// Ketama, with nginx's points: CRC32 over host, NUL, port and the previous hash, 160 points a unit of weight.
    fn consistent(&self, choice: &Choice<'_>, tried: &mut Tried) -> Option<usize> {
        let ring = self.ring.get_or_init(|| self.points());
        if ring.is_empty() {
            return None;
        }
        if !tried.started {
            let mut crc = Crc32::new();
            crc.update(choice.key);
            let hash = crc.finish();
            tried.hash = ring.partition_point(|(point, _)| *point < hash) as u32;
            tried.started = true;
        }
        while tried.tries <= HASH_TRIES_MAX {
            let (_, owner) = ring[tried.hash as usize % ring.len()];
            // Several addresses may stand behind one name: they take turns.
            let name = &self.peers[owner].spec.name;
            let among = |index: usize| self.peers[index].spec.name == *name;
            if let Some(index) = self.weighted(choice, tried, false, among) {
                return Some(index);
            }
            tried.hash = (tried.hash + 1) % ring.len() as u32;
            tried.tries += 1;
        }
        self.round_robin(choice, tried, false)
    }

    fn points(&self) -> Vec<(u32, usize)> {
        let mut points = Vec::new();
        for (index, peer) in self.peers.iter().enumerate().filter(|(_, p)| !p.spec.backup) {
            let name = &peer.spec.name;
            let (host, port) = match name.strip_prefix("unix:") {
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
            for _ in 0..peer.spec.weight * 160 {
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

    fn random(&self, choice: &Choice<'_>, tried: &Tried, two: bool) -> Option<usize> {
        let total = self.total_weight().max(1);
        let mut number = choice.random;
        let mut first: Option<usize> = None;
        for _ in 0..=HASH_TRIES_MAX {
            let index = self.by_weight(number % total)?;
            // xorshift: the next number of this choice.
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            if !self.usable(index, false, choice.now, tried) {
                continue;
            }
            match first {
                _ if !two => return Some(index),
                None => first = Some(index),
                Some(other) if other == index => {}
                Some(other) => {
                    let load = |i: usize| {
                        let peer = &self.peers[i];
                        peer.active.load(Ordering::Relaxed) as f64 / f64::from(peer.spec.weight.max(1))
                    };
                    return Some(if load(index) < load(other) { index } else { other });
                }
            }
        }
        first.or_else(|| self.round_robin(choice, tried, false))
    }
}

/// CRC-32 (IEEE 802.3), as nginx's hashes use it.
#[derive(Clone)]
pub struct Crc32(u32);

impl Crc32 {
    pub fn new() -> Crc32 {
        Crc32(!0)
    }
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
    pub fn finish(&self) -> u32 {
        !self.0
    }
}

impl Default for Crc32 {
    fn default() -> Self {
        Crc32::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::PeerSpec;
    use crate::pool::KeepAlive;
    use crate::stream::Address;

    fn group(name: &str, weights: &[u32], method: Method) -> Group {
        let specs = weights
            .iter()
            .enumerate()
            .map(|(i, weight)| {
                let address = Address::Ip(std::net::SocketAddr::from(([127, 0, 0, 1], 9000 + i as u16)));
                PeerSpec { weight: *weight, ..PeerSpec::new(format!("127.0.0.1:{}", 9000 + i), address) }
            })
            .collect();
        Group::new(name, specs, method, KeepAlive::default(), true)
    }

    fn run(group: &Group, n: usize) -> String {
        let choice = Choice { now: Instant(1), random: 7, key: b"" };
        (0..n)
            .map(|_| group.choose(&choice, &mut Tried::default()).map_or('-', |i| char::from(b'a' + i as u8)))
            .collect()
    }

    #[test]
    fn smooth_round_robin() {
        assert_eq!(run(&group("t1", &[5, 1, 1], Method::RoundRobin), 7), "aabacaa");
        assert_eq!(run(&group("t2", &[1, 1], Method::RoundRobin), 4), "abab");
    }

    #[test]
    fn failures_count_and_are_forgotten() {
        let g = group("t3", &[1, 1], Method::RoundRobin);
        g.peers[0].failed(Instant(1_000_000));
        let at = |us| Choice { now: Instant(us), random: 1, key: b"" };
        for _ in 0..3 {
            assert_eq!(g.choose(&at(2_000_000), &mut Tried::default()), Some(1));
        }
        let later = at(20_000_000);
        let got: Vec<_> = (0..2).filter_map(|_| g.choose(&later, &mut Tried::default())).collect();
        assert!(got.contains(&0), "{got:?}");
    }

    #[test]
    fn one_request_asks_each_server_once() {
        let g = group("t4", &[1, 1, 1], Method::LeastConn);
        let mut tried = Tried::default();
        let choice = Choice { now: Instant(1), random: 3, key: b"" };
        let mut got: Vec<_> = std::iter::from_fn(|| g.choose(&choice, &mut tried)).collect();
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2]);
    }

    #[test]
    fn checksums() {
        let mut crc = Crc32::new();
        crc.update(b"123456789");
        assert_eq!(crc.finish(), 0xCBF4_3926);
    }

    #[test]
    fn hashes_are_stable() {
        for method in [Method::Hash(false), Method::Hash(true), Method::IpHash] {
            let g = group("t5", &[1, 2, 3], method);
            for key in ["a", "b", "c"] {
                let choice = Choice { now: Instant(1), random: 3, key: key.as_bytes() };
                let first = g.choose(&choice, &mut Tried::default());
                assert!(first.is_some());
                assert_eq!(g.choose(&choice, &mut Tried::default()), first);
            }
        }
    }
}
