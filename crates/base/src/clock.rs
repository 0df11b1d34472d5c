//! Time as a thread sees it: read once a turn of its event loop, then the same for all that the turn does.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds of the monotonic clock since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    pub fn micros_since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
    pub fn millis_since(self, earlier: Instant) -> u64 {
        self.micros_since(earlier) / 1000
    }
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Instant {
        Instant(self.0.saturating_add(millis.saturating_mul(1000)))
    }
}

thread_local! {
    static NOW: Cell<(Instant, u64)> = const { Cell::new((Instant(0), 0)) };
}

fn start() -> std::time::Instant {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    *START.get_or_init(std::time::Instant::now)
}

/// Reads the clocks; everything below returns this reading until the next one.
pub fn update() {
    let mono = Instant(start().elapsed().as_micros() as u64 + 1);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    NOW.set((mono, wall));
}

/// The monotonic time of this turn.
#[inline]
pub fn now() -> Instant {
    let (now, _) = NOW.get();
    if now.0 == 0 {
        update();
        return NOW.get().0;
    }
    now
}

/// Milliseconds since 1970 of this turn.
#[inline]
pub fn unix_millis() -> u64 {
    if NOW.get().1 == 0 {
        update();
    }
    NOW.get().1
}

/// Seconds since 1970 of this turn.
#[inline]
pub fn unix_seconds() -> i64 {
    (unix_millis() / 1000) as i64
}
