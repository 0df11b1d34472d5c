//! Order in which idle clients are closed for new ones.

use quinn_proto::ConnectionHandle;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Clients that were idle at the end of a turn, longest idle first.
///
/// An entry stays while its client has further requests, so that these cost nothing; the taker of an entry compares the number of
/// requests. Each such entry was paid for by a request, which bounds a search by the requests since the last one.
#[derive(Default)]
pub struct IdleClients {
    order: BTreeMap<u64, (ConnectionHandle, u32)>,
    last: u64,
}

/// Position of a client in [`IdleClients`].
#[derive(Default)]
pub struct IdlePlace(Cell<Option<u64>>);

impl IdlePlace {
    /// Records that the client's entry was taken.
    pub fn clear(&self) {
        self.0.set(None);
    }
}

impl IdleClients {
    /// Adds a client that has had `requests`, unless it has an entry.
    pub fn add(&mut self, handle: ConnectionHandle, place: &IdlePlace, requests: u32) {
        if place.0.get().is_none() {
            self.last += 1;
            self.order.insert(self.last, (handle, requests));
            place.0.set(Some(self.last));
        }
    }
    /// Removes the entry of a client.
    pub fn remove(&mut self, place: &IdlePlace) {
        if let Some(place) = place.0.take() {
            self.order.remove(&place);
        }
    }
    /// Takes the longest idle client, with the number of requests that it had when it was added.
    pub fn take_first(&mut self) -> Option<(ConnectionHandle, u32)> {
        self.order.pop_first().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_client_is_the_first() {
        let mut idle = IdleClients::default();
        let places: Vec<IdlePlace> = (0..4).map(|_| IdlePlace::default()).collect();
        for (handle, place) in places.iter().enumerate() {
            idle.add(ConnectionHandle(handle), place, 1);
        }
        // A second entry would close a client that has become idle again.
        idle.add(ConnectionHandle(0), &places[0], 2);
        idle.remove(&places[1]);
        assert_eq!(idle.take_first(), Some((ConnectionHandle(0), 1)));
        places[0].clear();
        idle.add(ConnectionHandle(0), &places[0], 2);
        let rest: Vec<_> = std::iter::from_fn(|| idle.take_first()).map(|(handle, _)| handle.0).collect();
        assert_eq!(rest, [2, 3, 0]);
    }
}
