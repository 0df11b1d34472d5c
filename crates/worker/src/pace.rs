//! `limit_rate`: bytes sent never exceed rate × time (nginx: `ngx_http_write_filter`).

use base::clock;
use http_engine::Request;
use std::time::Duration;

/// The pace of one response.
pub struct Pace {
    rate: u64,
    after: u64,
    started: clock::Instant,
    /// Bytes of the body sent so far, which the caller adds.
    pub sent: u64,
}

impl Pace {
    /// Returns `None` without a limit.
    pub fn new(r: &mut Request) -> Option<Pace> {
        let core = r.loc().core.clone();
        let rate = match r.reply.limit_rate() {
            Some(rate) => rate,
            None => core.conf.limit_rate.get(r),
        };
        let after = match r.reply.limit_rate_after() {
            Some(after) => after,
            None => core.conf.limit_rate_after.get(r),
        };
        clock::update();
        (rate > 0).then(|| Pace { rate, after, started: clock::now(), sent: 0 })
    }
    /// Bytes that may be sent; an error is the time to wait.
    pub fn allowed(&self) -> Result<u64, Duration> {
        clock::update();
        let passed_ms = clock::now().millis_since(self.started);
        let budget = self.rate.saturating_mul(passed_ms / 1000 + 1).saturating_add(self.after);
        match budget.saturating_sub(self.sent) {
            // Until the second that allows more.
            0 => {
                let next_ms = (self.sent.saturating_sub(self.after) / self.rate).saturating_mul(1000);
                Err(Duration::from_millis(next_ms.saturating_sub(passed_ms).max(1)))
            }
            allowed => Ok(allowed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_no_end() {
        let pace = |rate, after, sent| Pace { rate, after, started: clock::now(), sent };
        assert_eq!(pace(10, 5, 10).allowed(), Ok(5));
        assert!(pace(10, 0, 10).allowed().is_err());
        // Must not wrap below the sent bytes: the task would spin.
        for (rate, after) in [(u64::MAX, 100), (u64::MAX - 1, u64::MAX), (1 << 63, 1 << 63)] {
            assert!(pace(rate, after, 50).allowed().is_ok_and(|bytes| bytes > 1 << 62));
        }
    }
}
