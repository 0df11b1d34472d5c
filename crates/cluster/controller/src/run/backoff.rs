//! Pauses between attempts: each is twice the previous one, with a share that differs between replicas.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);

/// Pauses of one kind of attempts.
pub struct Backoff {
    attempts: u32,
    max: Duration,
}

impl Backoff {
    pub fn new(max: Duration) -> Backoff {
        Backoff { attempts: 0, max }
    }

    /// Begins anew after a success.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    /// Returns the pause before the next attempt: between half of its length and all of it.
    pub fn next_pause(&mut self) -> Duration {
        let full = FIRST.saturating_mul(1 << self.attempts.min(16)).min(self.max);
        self.attempts = self.attempts.saturating_add(1);
        let random = RandomState::new().hash_one(self.attempts) % 1_000;
        full / 2 + (full / 2).mul_f64(random as f64 / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_limit_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_secs(10));
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.next_pause()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST, "{pauses:?}");
        assert!(pauses[19] >= Duration::from_secs(5) && pauses[19] <= Duration::from_secs(10), "{pauses:?}");
        backoff.reset();
        assert!(backoff.next_pause() <= FIRST);
    }
}
