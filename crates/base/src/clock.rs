//! Time as a thread sees it: read once a turn of its event loop, then the same for all that the turn does.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    static NOW: Cell<Reading> = const { Cell::new(Reading { mono: Instant(0), wall: 0, wall_read: Instant(0) }) };
}

#[derive(Clone, Copy)]
struct Reading {
    mono: Instant,
    wall: u64,
    /// When `wall` was read.
    wall_read: Instant,
}

/// How long a reading of the wall clock holds: what it says is of milliseconds.
const WALL_MICROS: u64 = 500;

fn start() -> std::time::Instant {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    *START.get_or_init(std::time::Instant::now)
}

/// Reads the clocks; everything below returns this reading until the next one.
pub fn update() {
    let mono = Instant(start().elapsed().as_micros() as u64 + 1);
    let mut now = NOW.get();
    if now.wall == 0 || mono.micros_since(now.wall_read) >= WALL_MICROS {
        now.wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        now.wall_read = mono;
    }
    now.mono = mono;
    NOW.set(now);
}

/// The monotonic time of this turn.
#[inline]
pub fn now() -> Instant {
    let now = NOW.get().mono;
    if now.0 == 0 {
        update();
        return NOW.get().mono;
    }
    now
}

/// An instant as the standard library has it, for timers.
pub fn as_std(at: Instant) -> std::time::Instant {
    start() + Duration::from_micros(at.0.saturating_sub(1))
}

/// Milliseconds since 1970 of this turn.
#[inline]
pub fn unix_millis() -> u64 {
    if NOW.get().wall == 0 {
        update();
    }
    NOW.get().wall
}

/// Seconds since 1970 of this turn.
#[inline]
pub fn unix_seconds() -> i64 {
    (unix_millis() / 1000) as i64
}
