//! Limit of responses over UDP per network: addresses of datagrams may be forged, and their responses may hit others.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Networks that are told apart; two that share a place share its rate.
const PLACES: usize = 1 << 16;
/// Bits of an address that count: clients of one site share a limit.
const V4_BITS: u32 = 24;
const V6_BITS: u32 = 56;

/// Verdict on a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateVerdict {
    /// The response may be sent.
    Send,
    /// Only a truncated response may be sent: it is not longer than the query, and the client may ask over TCP.
    Truncate,
    /// No response may be sent.
    Drop,
}

/// Generic cell rate algorithm per network (/24 of IPv4, /56 of IPv6), in 512 KB.
#[derive(Debug)]
pub struct ResponseRate {
    /// Microseconds of the clock at which a network's bucket is empty again.
    empty_at: Box<[AtomicU64]>,
    /// Microseconds per response.
    interval_us: u64,
    /// Microseconds that a bucket holds.
    depth_us: u64,
    refused: AtomicU64,
    hasher: RandomState,
}

impl ResponseRate {
    /// `thousandths`: of responses per second; `burst`: responses at once.
    pub fn new(thousandths: u64, burst: u64) -> ResponseRate {
        let interval_us = 1_000_000_000u64.checked_div(thousandths).unwrap_or(u64::MAX).max(1);
        ResponseRate {
            empty_at: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            interval_us,
            depth_us: interval_us.saturating_mul(burst.max(1)),
            refused: AtomicU64::new(0),
            hasher: RandomState::new(),
        }
    }

    /// Counts a response to `client` at `now_us`, microseconds of a clock that does not go back. Every second refused
    /// response may be sent truncated.
    pub fn take(&self, client: IpAddr, now_us: u64) -> RateVerdict {
        let place = (self.hasher.hash_one(network(client)) as usize) % PLACES;
        let Some(empty_at) = self.empty_at.get(place) else { return RateVerdict::Send };
        let next = |empty: u64| {
            let empty = empty.max(now_us);
            let next = empty.saturating_add(self.interval_us);
            (next - now_us <= self.depth_us).then_some(next)
        };
        match empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => RateVerdict::Send,
            Err(_) if self.refused.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => RateVerdict::Truncate,
            Err(_) => RateVerdict::Drop,
        }
    }
}

fn network(address: IpAddr) -> (bool, u128) {
    match address.to_canonical() {
        IpAddr::V4(ip) => (false, u128::from(ip.to_bits() >> (32 - V4_BITS))),
        IpAddr::V6(ip) => (true, ip.to_bits() >> (128 - V6_BITS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_gets_its_burst_and_then_its_rate() {
        let rate = ResponseRate::new(2000, 3);
        let client = |text: &str| text.parse::<IpAddr>().expect("an address");
        let now = 1_000_000;
        let sent = |count: usize, text: &str, now: u64| {
            (0..count).filter(|_| rate.take(client(text), now) == RateVerdict::Send).count()
        };
        assert_eq!(sent(10, "192.0.2.1", now), 3);
        assert_eq!(sent(10, "192.0.2.200", now + 1000), 0, "one network");
        assert_eq!(sent(1, "198.51.100.1", now), 1, "another network");
        assert_eq!(sent(10, "192.0.2.1", now + 500_000), 1, "two a second");
        assert_eq!(sent(10, "192.0.2.1", now + 60_000_000), 3, "no more than the burst");
        assert_eq!(sent(9, "2001:db8::1", now), 3);
        assert_eq!(sent(9, "2001:db8:0:ff::1", now), 0, "one /56");
        assert_eq!(sent(9, "2001:db8:0:100::1", now), 3);
    }

    #[test]
    fn every_second_refused_response_asks_for_tcp() {
        let rate = ResponseRate::new(1000, 1);
        let client = IpAddr::from([127, 0, 0, 1]);
        let verdicts: Vec<RateVerdict> = (0..5).map(|_| rate.take(client, 7)).collect();
        use RateVerdict::{Drop, Send, Truncate};
        assert_eq!(verdicts, [Send, Truncate, Drop, Truncate, Drop]);
    }
}
