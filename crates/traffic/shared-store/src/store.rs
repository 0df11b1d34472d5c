//! The engine that nodes share: the operations of all back ends.

use crate::record::MapRecord;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::fmt;
use std::time::Duration;

/// Why an operation of a store failed. What the operation should have done may have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// No connection, or no answer in time.
    Unreachable(String),
    /// The store has answered with an error: a wrong password, no memory, a read-only replica.
    Refused(String),
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreFailure::Unreachable(reason) => write!(f, "not reachable: {reason}"),
            StoreFailure::Refused(reason) => write!(f, "refused: {reason}"),
        }
    }
}

impl std::error::Error for StoreFailure {}

pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreFailure>>;

/// Records of subscribed spaces as they change, with the space's name. A lost connection is an error, behind which the
/// stream ends: changes of the time between are read with [`Store::records`] after a new subscription.
pub type Subscription = BoxStream<'static, Result<(String, MapRecord), StoreFailure>>;

/// A request for permits of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitRequest {
    pub key: Vec<u8>,
    /// Thousandths of a permit per second.
    pub rate: u64,
    /// Thousandths of a permit that may be taken at once beyond the rate.
    pub burst: u64,
    /// Permits, whole ones.
    pub wanted: u64,
}

/// Answer to a [`PermitRequest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermitGrant {
    /// Permits, at most as many as were wanted.
    pub granted: u64,
    /// Milliseconds until there may be another one, if fewer were granted.
    pub retry_after: u64,
}

/// A store. All names are made by this program: spaces and leases are of letters, digits, `_`, `-`, `.` and `:`.
///
/// Each operation ends within the store's time limit, with [`StoreFailure::Unreachable`] at worst. Operations are safe to
/// repeat, but for [`Store::take_permits`], whose repetition takes more.
pub trait Store: Send + Sync {
    /// Returns a value.
    fn get<'a>(&'a self, space: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>>;

    /// Writes a value, for a duration if one is given.
    fn put<'a>(
        &'a self,
        space: &'a str,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Option<Duration>,
    ) -> StoreFuture<'a, ()>;

    /// Writes a value if the present one is as expected (`None`: if there is none). Returns `false` if it is not.
    fn compare_and_set<'a>(
        &'a self,
        space: &'a str,
        key: &'a [u8],
        expected: Option<&'a [u8]>,
        value: &'a [u8],
        lifetime: Option<Duration>,
    ) -> StoreFuture<'a, bool>;

    /// Writes records of a map where the store has none or an older one, and tells subscribers of those that were
    /// written. Returns the number of those.
    fn merge_records<'a>(&'a self, space: &'a str, records: &'a [MapRecord]) -> StoreFuture<'a, usize>;

    /// Returns all records of a map, removals included.
    fn records<'a>(&'a self, space: &'a str) -> StoreFuture<'a, Vec<MapRecord>>;

    /// Removes records of a map that are still as given: those that have expired, and old removals.
    fn forget_records<'a>(&'a self, space: &'a str, records: &'a [MapRecord]) -> StoreFuture<'a, ()>;

    /// Subscribes to maps. A change after the end of this operation is in the stream.
    fn subscribe<'a>(&'a self, spaces: &'a [String]) -> StoreFuture<'a, Subscription>;

    /// Takes a lease, or holds it for longer. Returns `false` if another holder has it.
    fn hold_lease<'a>(&'a self, name: &'a str, holder: &'a str, lifetime: Duration) -> StoreFuture<'a, bool>;

    /// Gives a lease back, if this holder has it.
    fn release_lease<'a>(&'a self, name: &'a str, holder: &'a str) -> StoreFuture<'a, ()>;

    /// Takes permits of several keys, by the store's own clock.
    fn take_permits<'a>(&'a self, space: &'a str, requests: &'a [PermitRequest]) -> StoreFuture<'a, Vec<PermitGrant>>;
}

impl PermitRequest {
    /// Microseconds of one permit.
    pub fn permit_micros(&self) -> u64 {
        1_000_000_000_u64.checked_div(self.rate).unwrap_or(u64::MAX).max(1)
    }

    /// Microseconds of the burst.
    pub fn burst_micros(&self) -> u64 {
        self.burst.saturating_mul(1_000_000).checked_div(self.rate).unwrap_or(0)
    }
}

/// Takes permits from the bucket of one key (a generic cell rate algorithm), for all back ends that compute here. All
/// times are microseconds: `paid` is the time until which the bucket is paid for, `permit` and `burst` the prices of a permit and of
/// the burst. Returns the grant and the new `paid`.
pub fn grant_permits(paid: u64, now: u64, permit: u64, burst: u64, wanted: u64) -> (PermitGrant, u64) {
    let paid = paid.max(now);
    let room = burst.saturating_add(permit).saturating_sub(paid - now);
    let granted = (room / permit).min(wanted);
    let paid = paid.saturating_add(granted.saturating_mul(permit));
    let retry_after = match granted == wanted {
        true => 0,
        false => (paid - now).saturating_sub(burst).div_ceil(1000).max(1),
    };
    (PermitGrant { granted, retry_after }, paid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(paid: u64, now: u64, rate: u64, burst: u64, wanted: u64) -> (PermitGrant, u64) {
        let request =
            PermitRequest { key: b"k".to_vec(), rate: rate * 1000, burst: burst.saturating_mul(1000), wanted };
        grant_permits(paid, now, request.permit_micros(), request.burst_micros(), wanted)
    }

    #[test]
    fn the_burst_and_one_are_there_at_once_and_the_rest_at_the_rate() {
        let (grant, until) = bucket(0, 1_000_000, 10, 2, 9);
        assert_eq!(grant, PermitGrant { granted: 3, retry_after: 100 });
        let (grant, until) = bucket(until, 1_050_000, 10, 2, 1);
        assert_eq!(grant, PermitGrant { granted: 0, retry_after: 50 });
        let (grant, until) = bucket(until, 1_100_000, 10, 2, 5);
        assert_eq!(grant.granted, 1);
        let (grant, _) = bucket(until, 9_000_000, 10, 2, 5);
        assert_eq!(grant.granted, 3, "time beyond the burst is not saved");
    }

    #[test]
    fn over_a_long_time_no_more_than_rate_and_burst_are_granted() {
        let (mut until, mut granted) = (0, 0);
        for step in 0..10_000_u64 {
            let now = 1_000_000 + step * 1_700;
            let (grant, next) = bucket(until, now, 50, 7, step % 4);
            (until, granted) = (next, granted + grant.granted);
        }
        // 17 seconds at 50 per second, the burst, and the first one.
        assert!((850..=850 + 8).contains(&granted), "{granted}");
    }

    #[test]
    fn rates_without_a_permit_in_a_lifetime_do_not_overflow() {
        bucket(u64::MAX, u64::MAX, 1, u64::MAX, u64::MAX);
        let (grant, _) = bucket(0, 1, 0, 0, 1);
        assert_eq!(grant.granted, 1, "the first permit of a key is there");
    }
}
