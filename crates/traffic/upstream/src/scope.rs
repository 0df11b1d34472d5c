//! Scopes of idle connections: only requests of an equal scope share them.
//!
//! A location's own scope (`keepalive ... local`) belongs to one configuration, as do settings of TLS. Connections of a
//! replaced configuration would wait for their timeout without a use, and occupy servers that serve few connections at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of the next own scope.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// Own scopes below belong to replaced configurations.
static RETIRED: AtomicUsize = AtomicUsize::new(0);

/// A key of idle connections beside group and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    number: usize,
    /// Number of the own scope whose configuration it belongs to; 0: none.
    own: usize,
    /// Number of the client's binding; 0: none.
    pub(crate) client: usize,
}

impl Scope {
    /// A location's own scope, unique in the process.
    pub fn own() -> Scope {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Scope { number, own: number, client: 0 }
    }
    /// The scope of all locations with a prefix of directives (`proxy`); it outlives configurations.
    pub fn shared(prefix: &str) -> Scope {
        // Far from the numbers of locations.
        let number = prefix.bytes().fold(usize::MAX / 2, |n, byte| n.rotate_left(7) ^ usize::from(byte));
        Scope { number, own: 0, client: 0 }
    }
    /// A part of the scope, for connections with equal properties of the configuration that `owner` belongs to.
    pub fn narrowed(self, properties: usize, owner: Scope) -> Scope {
        Scope { number: self.number ^ properties, own: owner.own, ..self }
    }
    /// The part of the scope for one connection of a client: that of the `Binding` with this number.
    pub fn bound_to(self, client: usize) -> Scope {
        Scope { client, ..self }
    }
    /// Returns the scope's number, which equal scopes share.
    pub fn number(self) -> usize {
        self.number
    }
    /// Tells whether the scope belongs to one configuration.
    pub(crate) fn can_retire(self) -> bool {
        self.own != 0
    }
    /// Tells whether no new request uses the scope.
    pub(crate) fn is_retired(self) -> bool {
        self.can_retire() && self.own < RETIRED.load(Ordering::Relaxed)
    }
}

/// Returns a mark that precedes the own scopes of the configuration that is read next.
pub fn mark_scopes() -> usize {
    NEXT.load(Ordering::Relaxed)
}

/// Retires all own scopes before a mark, when its configuration becomes active.
pub fn retire_scopes(mark: usize) {
    RETIRED.fetch_max(mark, Ordering::Relaxed);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Lets one test at a time retire scopes.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn scopes_retire_with_their_configuration() {
        let _alone = alone();
        let (old, shared) = (Scope::own(), Scope::shared("proxy"));
        let mark = mark_scopes();
        let new = Scope::own();
        let both = |owner: Scope| [owner, owner.narrowed(7, owner), shared.narrowed(7, owner)].map(Scope::is_retired);
        assert_eq!((both(old), both(new), shared.is_retired()), ([false; 3], [false; 3], false));
        retire_scopes(mark);
        assert_eq!((both(old), both(new), shared.is_retired()), ([true; 3], [false; 3], false));
        assert!(old.narrowed(7, old) != old && shared != Scope::shared("fastcgi"));
        // An older mark changes nothing.
        retire_scopes(1);
        assert!(old.is_retired());
    }
}
