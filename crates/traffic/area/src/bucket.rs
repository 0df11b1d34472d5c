//! Leaky buckets of a zone, for requests (`limit_req`) and failed logins: bounded memory, evicted by last use.

use conf_schema::value::parse_decimal;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Thousandths of a request per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

impl Rate {
    pub fn parse(text: &str) -> Option<Rate> {
        let (number, seconds) = match text.strip_suffix("r/s") {
            Some(number) => (number, 1),
            None => match text.strip_suffix("r/m") {
                Some(number) => (number, 60),
                None => (text, 1),
            },
        };
        let number = parse_decimal::<u32>(number).filter(|n| *n > 0)?;
        Some(Rate(u64::from(number) * 1000 / seconds))
    }
    /// In milliseconds.
    pub fn millis(self, excess: u64) -> u64 {
        excess.saturating_mul(1000).checked_div(self.0).unwrap_or(u64::MAX)
    }
}

/// In thousandths of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketVerdict {
    Pass,
    Delay { millis: u64, excess: u64 },
    Busy { excess: u64 },
    Full,
}

/// Refusal of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketRefusal {
    /// Beyond rate and burst; the excess in thousandths of a request.
    Busy { excess: u64 },
    /// A place may become free when another reservation ends.
    Later,
}

/// Milliseconds after which unused buckets are evicted first.
const IDLE_MILLIS: u64 = 60_000;
/// Bytes from which zones are split, so that threads rarely contend.
const SPLIT_BYTES: u64 = 1 << 20;
const PARTS: usize = 16;
const NONE: u32 = u32::MAX;

pub struct Buckets {
    parts: Box<[Mutex<BucketPart>]>,
    hasher: std::collections::hash_map::RandomState,
}

#[derive(Default)]
struct BucketPart {
    bytes_max: u64,
    bytes: u64,
    by_key: HashMap<Box<[u8]>, u32>,
    buckets: Vec<Bucket>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

struct Bucket {
    key: Box<[u8]>,
    excess: u64,
    last: u64,
    /// Reserved requests, which [`Buckets::settle`] counts or gives back.
    reserved: u32,
    newer: u32,
    older: u32,
}

/// Memory of a bucket in nginx's allocator.
fn cost(key: &[u8]) -> u64 {
    (key.len() as u64 + 80).next_power_of_two()
}

impl Bucket {
    /// Excess after another request; the first request of a bucket has none.
    fn with_one_more(&self, rate: Rate, now: u64) -> u64 {
        if self.last == 0 {
            return 0;
        }
        let millis = now.saturating_sub(self.last);
        (self.excess + 1000).saturating_sub(rate.0.saturating_mul(millis) / 1000)
    }
}

impl Bucket {
    fn count(&mut self, rate: Rate, now: u64) -> u64 {
        self.excess = self.with_one_more(rate, now);
        self.last = self.last.max(now).max(1);
        self.excess
    }
}

impl Buckets {
    pub fn new(bytes: u64) -> Buckets {
        let parts = if bytes >= SPLIT_BYTES { PARTS } else { 1 };
        let part = || {
            let bytes_max = bytes / parts as u64;
            Mutex::new(BucketPart { bytes_max, newest: NONE, oldest: NONE, ..BucketPart::default() })
        };
        Buckets { parts: (0..parts).map(|_| part()).collect(), hasher: Default::default() }
    }
    fn part(&self, key: &[u8]) -> Option<MutexGuard<'_, BucketPart>> {
        use std::hash::BuildHasher;
        let index = (self.hasher.hash_one(key) as usize).checked_rem(self.parts.len())?;
        Some(self.parts.get(index)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// Returns the excess that one more request would have. Counts nothing and makes no bucket.
    pub fn look(&self, key: &[u8], rate: Rate, now: u64) -> u64 {
        let Some(mut part) = self.part(key) else { return 0 };
        let Some(index) = part.by_key.get(key).copied() else { return 0 };
        part.bucket(index).map_or(0, |bucket| bucket.with_one_more(rate, now))
    }
    /// Checks one more request; returns its excess, or the rejection. Counts it if `count` is set; otherwise `account`
    /// follows after the other zones.
    pub fn ask(&self, key: &[u8], rate: Rate, burst: u64, now: u64, count: bool) -> Result<u64, BucketVerdict> {
        let Some(mut part) = self.part(key) else { return Err(BucketVerdict::Full) };
        if let Some(index) = part.by_key.get(key).copied() {
            part.touch(index);
            let Some(bucket) = part.bucket(index) else { return Err(BucketVerdict::Full) };
            let excess = bucket.with_one_more(rate, now);
            if excess > burst {
                return Err(BucketVerdict::Busy { excess });
            }
            return Ok(if count { bucket.count(rate, now) } else { excess });
        }
        let Some(index) = part.insert(key, rate, now) else { return Err(BucketVerdict::Full) };
        Ok(if count { part.bucket(index).map_or(0, |bucket| bucket.count(rate, now)) } else { 0 })
    }
    /// Reserves a place for a request that may not count, so that no more of them are under way than may fail. Every
    /// success is followed by one [`Buckets::settle`] with the key. A key that the zone has no room for is not limited.
    pub fn reserve(&self, key: &[u8], rate: Rate, burst: u64, now: u64) -> Result<(), BucketRefusal> {
        let Some(mut part) = self.part(key) else { return Ok(()) };
        let index = match part.by_key.get(key).copied() {
            Some(index) => {
                part.touch(index);
                Some(index)
            }
            None => part.insert(key, rate, now),
        };
        let Some(bucket) = index.and_then(|index| part.bucket(index)) else { return Ok(()) };
        let excess = bucket.with_one_more(rate, now);
        if excess > burst {
            return Err(BucketRefusal::Busy { excess });
        }
        if excess.saturating_add(u64::from(bucket.reserved).saturating_mul(1000)) > burst {
            return Err(BucketRefusal::Later);
        }
        bucket.reserved = bucket.reserved.saturating_add(1);
        Ok(())
    }
    /// Ends a reservation: counts the request, or gives its place back.
    pub fn settle(&self, key: &[u8], rate: Rate, now: u64, counts: bool) {
        let Some(mut part) = self.part(key) else { return };
        let index = match part.by_key.get(key).copied() {
            Some(index) => Some(index),
            None if counts => part.insert(key, rate, now),
            None => None,
        };
        let Some((index, bucket)) = index.and_then(|index| Some((index, part.bucket(index)?))) else { return };
        bucket.reserved = bucket.reserved.saturating_sub(1);
        if counts {
            bucket.count(rate, now);
        } else if bucket.reserved == 0 && bucket.last == 0 {
            part.remove(index);
        }
    }
    pub fn account(&self, key: &[u8], rate: Rate, now: u64) -> u64 {
        let Some(mut part) = self.part(key) else { return 0 };
        let Some(index) = part.by_key.get(key).copied() else { return 0 };
        part.bucket(index).map_or(0, |bucket| bucket.count(rate, now))
    }
}

impl BucketPart {
    fn bucket(&mut self, index: u32) -> Option<&mut Bucket> {
        self.buckets.get_mut(index as usize)
    }
    fn unlink(&mut self, index: u32) {
        let Some((newer, older)) = self.bucket(index).map(|bucket| (bucket.newer, bucket.older)) else { return };
        match self.bucket(newer) {
            None => self.newest = older,
            Some(bucket) => bucket.older = older,
        }
        match self.bucket(older) {
            None => self.oldest = newer,
            Some(bucket) => bucket.newer = newer,
        }
    }
    fn link(&mut self, index: u32) {
        let older = self.newest;
        let Some(bucket) = self.bucket(index) else { return };
        (bucket.newer, bucket.older) = (NONE, older);
        match self.bucket(older) {
            None => self.oldest = index,
            Some(bucket) => bucket.newer = index,
        }
        self.newest = index;
    }
    fn touch(&mut self, index: u32) {
        if self.newest != index {
            self.unlink(index);
            self.link(index);
        }
    }
    fn remove_oldest(&mut self) {
        self.remove(self.oldest);
    }
    fn remove(&mut self, index: u32) {
        self.unlink(index);
        let Some(bucket) = self.bucket(index) else { return };
        let key = std::mem::take(&mut bucket.key);
        self.bytes -= cost(&key);
        self.by_key.remove(&key);
        self.free.push(index);
    }
    /// Evicts up to two empty buckets.
    fn expire(&mut self, rate: Rate, now: u64) {
        for _ in 0..2 {
            let Some(bucket) = self.buckets.get(self.oldest as usize).filter(|_| self.oldest != NONE) else { return };
            let idle = now.saturating_sub(bucket.last);
            if bucket.reserved > 0 || idle < IDLE_MILLIS || bucket.excess > rate.0.saturating_mul(idle) / 1000 {
                return;
            }
            self.remove_oldest();
        }
    }
    fn insert(&mut self, key: &[u8], rate: Rate, now: u64) -> Option<u32> {
        self.expire(rate, now);
        let cost = cost(key);
        if self.bytes + cost > self.bytes_max && self.oldest != NONE {
            self.remove_oldest();
            self.expire(rate, now);
        }
        if self.bytes + cost > self.bytes_max {
            return None;
        }
        let bucket = Bucket { key: key.into(), excess: 0, last: 0, reserved: 0, newer: NONE, older: NONE };
        let index = match self.free.pop() {
            Some(index) => {
                *self.bucket(index)? = bucket;
                index
            }
            None => {
                self.buckets.push(bucket);
                (self.buckets.len() - 1) as u32
            }
        };
        self.bytes += cost;
        self.by_key.insert(key.into(), index);
        self.link(index);
        Some(index)
    }
}
