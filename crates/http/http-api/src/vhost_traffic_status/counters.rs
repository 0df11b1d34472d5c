//! Counters by server, filter and upstream server, bounded by the zone's size.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

/// Besides its name; approximate.
const NODE_BYTES: u64 = 512;
/// Nodes that a reader copies under the lock.
const READ_AT_ONCE: usize = 256;

/// Cache states with nginx's names, in the formats' order.
pub const CACHE: [(&str, &str); 8] = [
    ("miss", "MISS"),
    ("bypass", "BYPASS"),
    ("expired", "EXPIRED"),
    ("stale", "STALE"),
    ("updating", "UPDATING"),
    ("revalidated", "REVALIDATED"),
    ("hit", "HIT"),
    ("scarce", "SCARCE"),
];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusKey {
    Server(String),
    Filter(String, String),
    Upstream(String, String),
}

impl StatusKey {
    fn len(&self) -> usize {
        match self {
            StatusKey::Server(name) => name.len(),
            StatusKey::Filter(group, name) | StatusKey::Upstream(group, name) => group.len() + name.len(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct StatusSample {
    pub status: u16,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub request_ms: u64,
    pub response_ms: u64,
    pub cache: Option<usize>,
}

#[derive(Clone, Debug, Default)]
pub struct StatusNode {
    pub requests: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Responses of 1xx to 5xx.
    pub responses: [u64; 5],
    pub cache: [u64; 8],
    pub request_ms: u64,
    pub response_ms: u64,
    /// Requests up to each bound of the histogram.
    pub buckets: Vec<u64>,
    /// Place in [`Nodes::order`]; 0: none.
    used: u64,
}

impl StatusNode {
    fn add(&mut self, sample: &StatusSample, buckets: &[u64]) {
        self.requests += 1;
        self.bytes_in += sample.bytes_in;
        self.bytes_out += sample.bytes_out;
        if let Some(class) = self.responses.get_mut(usize::from(sample.status / 100).wrapping_sub(1)) {
            *class += 1;
        }
        if let Some(cache) = sample.cache.and_then(|at| self.cache.get_mut(at)) {
            *cache += 1;
        }
        self.request_ms += sample.request_ms;
        self.response_ms += sample.response_ms;
        self.buckets.resize(buckets.len(), 0);
        for (count, bound) in self.buckets.iter_mut().zip(buckets) {
            *count += u64::from(sample.request_ms <= *bound);
        }
    }
    pub fn sum(&mut self, other: &StatusNode) {
        self.requests += other.requests;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.request_ms += other.request_ms;
        let pairs = self.responses.iter_mut().zip(other.responses).chain(self.cache.iter_mut().zip(other.cache));
        pairs.for_each(|(sum, one)| *sum += one);
    }
    pub fn mean(total: u64, requests: u64) -> u64 {
        total.checked_div(requests).unwrap_or(0)
    }
}

/// Maximum number of filters (`vhost_traffic_status_filter_max_node`), for groups with these prefixes or all.
#[derive(Clone, Debug, Default)]
pub struct FilterLimit {
    pub nodes_max: usize,
    pub groups: Vec<String>,
}

impl FilterLimit {
    fn is_for(&self, key: &StatusKey) -> bool {
        matches!(key, StatusKey::Filter(group, _)
            if self.groups.is_empty() || self.groups.iter().any(|start| group.starts_with(start.as_str())))
    }
}

#[derive(Debug)]
pub struct Counters {
    pub bytes_max: u64,
    nodes: Mutex<Nodes>,
}

#[derive(Debug, Default)]
struct Nodes {
    all: BTreeMap<Arc<StatusKey>, StatusNode>,
    bytes: u64,
    /// Filters that are limited in number, least recently used first.
    order: BTreeMap<u64, Arc<StatusKey>>,
    count: u64,
}

impl Counters {
    pub fn new(bytes_max: u64) -> Counters {
        Counters { bytes_max, nodes: Mutex::default() }
    }
    /// Counts a request under some keys; ignores new ones when the zone is full.
    pub fn count(&self, samples: Vec<(StatusKey, StatusSample)>, buckets: &[u64], limit: &FilterLimit) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = &mut *nodes;
        for (key, sample) in samples {
            let limited = limit.nodes_max > 0 && limit.is_for(&key);
            let key = match nodes.all.get_key_value(&key) {
                Some((known, _)) => known.clone(),
                None => {
                    let cost = key.len() as u64 + NODE_BYTES;
                    if limited && nodes.order.len() >= limit.nodes_max {
                        nodes.drop_oldest(limit);
                    }
                    if nodes.bytes + cost > self.bytes_max {
                        continue;
                    }
                    nodes.bytes += cost;
                    Arc::new(key)
                }
            };
            let node = nodes.all.entry(key.clone()).or_default();
            node.add(&sample, buckets);
            if limited {
                nodes.order.remove(&node.used);
                nodes.count += 1;
                node.used = nodes.count;
                nodes.order.insert(nodes.count, key);
            }
        }
    }
    /// Copies all counters, and their size in octets. Takes the lock for a few at a time: the requests of all threads need
    /// it.
    pub fn read(&self) -> (BTreeMap<Arc<StatusKey>, StatusNode>, u64) {
        let mut all: BTreeMap<Arc<StatusKey>, StatusNode> = BTreeMap::new();
        loop {
            let from = all.last_key_value().map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key.clone()));
            let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            let part = nodes.all.range((from, Bound::Unbounded)).take(READ_AT_ONCE);
            let part: Vec<_> = part.map(|(key, node)| (key.clone(), node.clone())).collect();
            let bytes = nodes.bytes;
            drop(nodes);
            let is_last = part.len() < READ_AT_ONCE;
            all.extend(part);
            if is_last {
                return (all, bytes);
            }
        }
    }
}

impl Nodes {
    fn drop_oldest(&mut self, limit: &FilterLimit) {
        let oldest = self.order.iter().find(|(_, key)| limit.is_for(key)).map(|(place, _)| *place);
        if let Some(key) = oldest.and_then(|place| self.order.remove(&place)) {
            self.bytes = self.bytes.saturating_sub(key.len() as u64 + NODE_BYTES);
            self.all.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(name: &str) -> Vec<(StatusKey, StatusSample)> {
        vec![(
            StatusKey::Filter("g".into(), name.into()),
            StatusSample { status: 204, request_ms: 7, ..StatusSample::default() },
        )]
    }

    #[test]
    fn the_filter_that_was_used_longest_ago_makes_room() {
        let counters = Counters::new(1 << 20);
        let limit = FilterLimit { nodes_max: 2, groups: Vec::new() };
        for name in ["a", "b", "a", "c"] {
            counters.count(filter(name), &[5, 10], &limit);
        }
        let (all, _) = counters.read();
        let names: Vec<String> = all.keys().map(|key| format!("{key:?}")).collect();
        assert_eq!(names, ["Filter(\"g\", \"a\")", "Filter(\"g\", \"c\")"]);
        let a = all.values().next().expect("a node");
        assert_eq!((a.requests, a.responses[1], a.buckets.as_slice()), (2, 2, &[0, 2][..]));
    }

    #[test]
    fn all_nodes_are_read() {
        for count in [0, 1, READ_AT_ONCE, 2 * READ_AT_ONCE + 1] {
            let counters = Counters::new(1 << 20);
            for n in 0..count {
                counters.count(filter(&n.to_string()), &[], &FilterLimit::default());
            }
            assert_eq!(counters.read().0.len(), count);
        }
    }

    #[test]
    fn a_zone_is_bounded() {
        let counters = Counters::new(2 * (NODE_BYTES + 2));
        for name in ["a", "b", "c"] {
            counters.count(filter(name), &[], &FilterLimit::default());
        }
        assert_eq!(counters.read().0.len(), 2);
    }
}
