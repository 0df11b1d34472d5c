//! The clocks of transactions, which the caller gives.

use std::sync::LazyLock;
use std::time::Instant;

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

/// Measures the work of the calling thread, for [`crate::Budget`].
pub trait WorkClock: Send + Sync {
    /// Microseconds of work of the calling thread since any fixed moment. A phase runs on one thread, and only
    /// differences within a phase count.
    fn spent(&self) -> u64;
}

/// Counts elapsed time as work: for callers without a clock of the processor. A thread that waits for the processor
/// spends its budget as well.
#[derive(Clone, Copy, Debug, Default)]
pub struct ElapsedWork;

impl WorkClock for ElapsedWork {
    fn spent(&self) -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
