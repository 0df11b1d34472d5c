//! The clock of transactions, which the caller gives.

/// Time of day. A test gives a clock that it sets itself.
pub trait WallClock: Send + Sync {
    /// Microseconds since 1970-01-01 00:00 UTC.
    fn now(&self) -> u64;
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl WallClock for SystemClock {
    fn now(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}
