//! Makes room among idle connections of all protocols.

use crate::mux::{h2, h3};
use crate::pool;
use base::clock::Instant;

/// Closes this thread's connection that has been idle longest; one that requests share, by its task in the same turn.
/// Returns `false` if none is idle.
pub fn drop_oldest() -> bool {
    let kinds: [(Option<Instant>, fn()); 3] = [
        (pool::idle_since(), pool::close_oldest),
        (h2::idle_since(), h2::end_oldest),
        (h3::idle_since(), h3::end_oldest),
    ];
    let oldest = kinds.into_iter().filter_map(|(since, close)| Some((since?, close))).min_by_key(|(since, _)| *since);
    oldest.is_some_and(|(_, close)| {
        close();
        true
    })
}
