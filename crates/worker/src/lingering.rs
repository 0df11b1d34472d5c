//! Connections that linger: they have their response, and are closed for new ones (nginx: `ngx_reusable_connection`).

use net::poller::Key;
use std::collections::BTreeMap;

/// Lingering connections of a thread, the longest first.
#[derive(Default)]
pub struct LingerQueue {
    order: BTreeMap<u64, Key>,
    last: u64,
}

impl LingerQueue {
    /// Adds a connection. Returns its place.
    pub fn add(&mut self, key: Key) -> u64 {
        self.last += 1;
        self.order.insert(self.last, key);
        self.last
    }
    /// Removes the connection of a place, if it is still there.
    pub fn remove(&mut self, place: u64) {
        self.order.remove(&place);
    }
    /// Returns the number of connections.
    pub fn count(&self) -> usize {
        self.order.len()
    }
    /// Takes the first connections, at most `most`.
    pub fn take(&mut self, most: usize) -> Vec<Key> {
        std::iter::from_fn(|| self.order.pop_first()).take(most).map(|(_, key)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_lingering_connections_are_the_first() {
        let (mut lingering, keys) = (LingerQueue::default(), [1, 2, 3].map(|n| Key::from_bits(n << 32)));
        let places = keys.map(|key| lingering.add(key));
        lingering.remove(places[1]);
        assert_eq!((lingering.count(), lingering.take(1)), (2, vec![keys[0]]));
        assert_eq!((lingering.take(9), lingering.count()), (vec![keys[2]], 0));
        lingering.remove(places[0]);
    }
}
