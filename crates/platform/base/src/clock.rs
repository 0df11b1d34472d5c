//! Cached time of a thread: read once per turn of its event loop and constant within the turn.

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
    /// Returns the time since another instant; zero if it is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_micros(self.micros_since(earlier))
    }
    pub fn millis_since(self, earlier: Instant) -> u64 {
        self.micros_since(earlier) / 1000
    }
    /// Adds a duration, saturating.
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
    static NOW: Cell<ClockReading> =
        const { Cell::new(ClockReading { mono: Instant(0), wall: 0, compared: Instant(0), frozen: false }) };
}

#[derive(Clone, Copy)]
struct ClockReading {
    mono: Instant,
    /// Milliseconds since 1970.
    wall: u64,
    /// Time of the last comparison with the wall clock.
    compared: Instant,
    frozen: bool,
}

/// Microseconds since 1970 at [`Instant`] 0, shared by all threads, so that their times are comparable.
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// Interval between comparisons with the wall clock, which may be set.
const COMPARED_MICROS: u64 = 10_000;
/// Deviations up to this are caused by the comparison itself.
const JITTER_MICROS: u64 = 200;
const COMPARE_TRIES: u32 = 3;

/// Start of the process: for the library's clock, and in microseconds of the system's monotonic clock, whose reading costs a
/// fraction of what the library's arithmetic does.
fn start() -> &'static (std::time::Instant, u64) {
    static START: OnceLock<(std::time::Instant, u64)> = OnceLock::new();
    START.get_or_init(|| (std::time::Instant::now(), monotonic_micros()))
}

fn monotonic_micros() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Reads the clock, unless it is frozen; does not move [`now`].
pub fn read() -> Instant {
    if NOW.get().frozen { NOW.get().mono } else { Instant(monotonic_micros().saturating_sub(start().1) + 1) }
}

pub fn update() {
    if NOW.get().frozen {
        return;
    }
    let mono = read();
    let mut now = NOW.get();
    if now.wall == 0 || mono.micros_since(now.compared) >= COMPARED_MICROS {
        if let Some(epoch) = compare(read, wall_micros) {
            if epoch.abs_diff(EPOCH.load(Ordering::Relaxed)) > JITTER_MICROS {
                EPOCH.store(epoch, Ordering::Relaxed);
            }
            now.compared = mono;
        } else if EPOCH.load(Ordering::Relaxed) == 0 {
            EPOCH.store(wall_micros().saturating_sub(read().0), Ordering::Relaxed);
        }
    }
    now.mono = mono;
    now.wall = (EPOCH.load(Ordering::Relaxed) + mono.0) / 1000;
    NOW.set(now);
}

fn wall_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

/// Returns the wall clock's time at [`Instant`] 0, in microseconds. Reads it between two readings of the monotonic clock:
/// if the thread was preempted between them, the difference would move the time of all threads. `None`: preempted at
/// each try; the comparison waits for the next update.
fn compare(mut mono: impl FnMut() -> Instant, mut wall: impl FnMut() -> u64) -> Option<u64> {
    for _ in 0..COMPARE_TRIES {
        let before = mono();
        let wall = wall();
        if mono().micros_since(before) <= JITTER_MICROS / 2 {
            return Some(wall.saturating_sub(before.0));
        }
    }
    None
}

/// Stops the time of this thread, for tests, until [`set_frozen`] or [`thaw`].
pub fn freeze() {
    thaw();
    NOW.set(ClockReading { frozen: true, ..NOW.get() });
}

pub fn set_frozen(to: Instant) {
    let now = NOW.get();
    if now.frozen && to > now.mono {
        let wall = now.wall + to.millis_since(now.mono);
        NOW.set(ClockReading { mono: to, wall, ..now });
    }
}

/// Restarts the time after [`freeze`], for tests.
pub fn thaw() {
    NOW.set(ClockReading { frozen: false, ..NOW.get() });
    update();
}

#[inline]
pub fn now() -> Instant {
    let now = NOW.get().mono;
    if now.0 == 0 {
        update();
        return NOW.get().mono;
    }
    now
}

pub fn as_std(at: Instant) -> std::time::Instant {
    start().0 + Duration::from_micros(at.0.saturating_sub(1))
}

/// Microseconds since 1970 at a time of this process, by the last comparison with the wall clock.
pub fn unix_micros_at(at: Instant) -> u64 {
    now();
    EPOCH.load(Ordering::Relaxed) + at.0
}

#[inline]
pub fn unix_millis() -> u64 {
    if NOW.get().wall == 0 {
        update();
    }
    NOW.get().wall
}

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

    #[test]
    fn a_comparison_with_a_pause_in_it_is_repeated() {
        let at = std::cell::Cell::new(0);
        let mono = || Instant(at.get());
        let with_pauses = |pauses: &[u64]| {
            let mut pauses = pauses.iter();
            compare(mono, || {
                at.set(at.get() + pauses.next().copied().unwrap_or(1));
                5_000_000 + at.get()
            })
        };
        assert_eq!(with_pauses(&[1]), Some(5_000_001));
        assert_eq!(with_pauses(&[4_000, 10_000, 2]), Some(5_000_002), "without the pauses");
        assert_eq!(with_pauses(&[4_000, 4_000, 4_000]), None);
    }
}
