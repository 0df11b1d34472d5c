//! Time as a thread sees it: read once a turn of its event loop, then the same for all that the turn does.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// The point in time that is so much later; far enough away, it never comes.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Instant {
        Instant(self.0.saturating_add(millis.saturating_mul(1000)))
    }
}

thread_local! {
    static NOW: Cell<Reading> =
        const { Cell::new(Reading { mono: Instant(0), wall: 0, compared: Instant(0), frozen: false }) };
}

#[derive(Clone, Copy)]
struct Reading {
    mono: Instant,
    /// Milliseconds since 1970.
    wall: u64,
    /// When the wall clock was looked at last.
    compared: Instant,
    /// A test says what time it is.
    frozen: bool,
}

/// Microseconds since 1970 at [`Instant`] 0. One for all threads: what one of them does later is later for all.
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// How often a thread compares it with the system's clock, which may be set.
const COMPARED_MICROS: u64 = 10_000;
/// Differences up to this are the comparison's own.
const JITTER_MICROS: u64 = 200;

fn start() -> std::time::Instant {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    *START.get_or_init(std::time::Instant::now)
}

/// Reads the clocks; everything below returns this reading until the next one.
pub fn update() {
    if NOW.get().frozen {
        return;
    }
    let mono = Instant(start().elapsed().as_micros() as u64 + 1);
    let mut now = NOW.get();
    if now.wall == 0 || mono.micros_since(now.compared) >= COMPARED_MICROS {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64);
        let epoch = wall.saturating_sub(mono.0);
        if epoch.abs_diff(EPOCH.load(Ordering::Relaxed)) > JITTER_MICROS {
            EPOCH.store(epoch, Ordering::Relaxed);
        }
        now.compared = mono;
    }
    now.mono = mono;
    now.wall = (EPOCH.load(Ordering::Relaxed) + mono.0) / 1000;
    NOW.set(now);
}

/// For tests: time stands still for this thread, until [`set_frozen`] moves it or [`thaw`] lets it go.
pub fn freeze() {
    thaw();
    NOW.set(Reading { frozen: true, ..NOW.get() });
}

/// For tests: moves the time of a thread whose time stands still. It never goes back.
pub fn set_frozen(to: Instant) {
    let now = NOW.get();
    if now.frozen && to > now.mono {
        let wall = now.wall + to.millis_since(now.mono);
        NOW.set(Reading { mono: to, wall, ..now });
    }
}

/// For tests: ends what [`freeze`] began.
pub fn thaw() {
    NOW.set(Reading { frozen: false, ..NOW.get() });
    update();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_of_all_threads_is_one() {
        let read = || {
            update();
            (now(), unix_millis())
        };
        for _ in 0..100 {
            let (first, first_wall) = read();
            let (second, second_wall) = std::thread::spawn(read).join().expect("read");
            assert!(second >= first && second_wall >= first_wall);
        }
        let system = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        update();
        assert!(unix_millis().abs_diff(system) < 1000 * 60, "it is the system's");
        assert_eq!(as_std(Instant(now().0 + 5)) - as_std(now()), Duration::from_micros(5));
    }
}
