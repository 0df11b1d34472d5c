//! `limit_rate`: what has been sent never exceeds rate x time (nginx: `ngx_http_write_filter`).

use base::clock;
use http_engine::Request;
use std::time::Duration;

/// The pace of one response.
pub struct Pace {
    rate: u64,
    after: u64,
    started: clock::Instant,
    /// Bytes that were sent at this pace.
    pub sent: u64,
}

impl Pace {
    /// `None`: the response is not paced.
    pub fn new(r: &mut Request) -> Option<Pace> {
        let core = r.loc().core.clone();
        let rate = match r.limit_rate {
            Some(rate) => rate,
            None => core.conf.limit_rate.get(r),
        };
        let after = core.conf.limit_rate_after.get(r);
        clock::update();
        (rate > 0).then(|| Pace { rate, after, started: clock::now(), sent: 0 })
    }
    /// How many bytes may be sent now.
    ///
    /// # Errors
    /// None: how long to wait until there are some.
    pub fn allowed(&self) -> Result<u64, Duration> {
        clock::update();
        let passed_ms = clock::now().millis_since(self.started);
        match allowed(self.rate, self.after, passed_ms / 1000 + 1, self.sent) {
            // Until the second in which there is something again.
            0 => {
                let next_ms = (self.sent.saturating_sub(self.after) / self.rate).saturating_mul(1000);
                Err(Duration::from_millis(next_ms.saturating_sub(passed_ms).max(1)))
            }
            allowed => Ok(allowed),
        }
    }
}

/// Bytes that may be sent in a second of the response, beyond those that were. Numbers of servers (`X-Accel-Limit-Rate`) may be
/// as large as they like.
fn allowed(rate: u64, after: u64, seconds: u64, sent: u64) -> u64 {
    rate.saturating_mul(seconds).saturating_add(after).saturating_sub(sent)
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn rates_have_no_end() {
        assert_eq!(allowed(10, 5, 3, 20), 15);
        assert_eq!(allowed(10, 0, 1, 20), 0);
        // It wrapped to a number below what was sent, and the connection's task ran without end.
        for (rate, after) in [(u64::MAX, 100), (u64::MAX - 1, u64::MAX), (1 << 63, 1 << 63)] {
            assert!(allowed(rate, after, 1, 50) > 1 << 62);
        }
    }
}
