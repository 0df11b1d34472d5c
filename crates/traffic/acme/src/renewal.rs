//! Times of renewal: two thirds of a certificate's life, half of a short one, or the window that the authority suggests
//! (RFC 9773).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::time::Duration;
use tls::x509::Certificate;

/// Certificates with shorter lives are renewed at half of them, in seconds.
const SHORT_LIFE: i64 = 10 * 86_400;
/// The part of a certificate's life, a twentieth, that no window of the authority can take from its renewal: tries may fail.
const RESERVE_PART: i64 = 20;

/// Returns the identifier of a certificate in renewal information (RFC 9773, section 4.1).
pub fn certificate_id(leaf: &Certificate) -> Option<String> {
    let authority = leaf.extensions.authority_key_id.as_ref()?;
    Some(format!("{}.{}", URL_SAFE_NO_PAD.encode(authority), URL_SAFE_NO_PAD.encode(leaf.serial())))
}

/// Time of a renewal, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub at: i64,
}

impl Schedule {
    /// By the certificate alone. `random`: 0 to 1; spreads the renewals of many certificates over a fiftieth of the life.
    pub fn of(not_before: i64, not_after: i64, random: f64) -> Schedule {
        let life = not_after.saturating_sub(not_before).max(0);
        let share = if life < SHORT_LIFE { 0.5 } else { 2.0 / 3.0 };
        Schedule { at: not_before.saturating_add((life as f64 * (share - 0.02 * random)) as i64) }
    }

    /// By a window that the authority suggests: a random time in it, but not in the last part of the certificate's life; now
    /// if that time is past. `None`: the window begins after the certificate's end.
    pub fn within(window: &RenewalWindow, not_before: i64, not_after: i64, now: i64, random: f64) -> Option<Schedule> {
        if window.start >= not_after {
            return None;
        }
        let reserve = not_after.saturating_sub(not_before).max(0) / RESERVE_PART;
        let latest = not_after.saturating_sub(reserve);
        let span = window.end.min(latest).saturating_sub(window.start).max(0);
        let at = window.start.saturating_add((span as f64 * random) as i64);
        Some(Schedule { at: at.min(latest).max(now) })
    }
}

/// Renewal information of a certificate (RFC 9773, section 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalWindow {
    /// Seconds since 1970; `start` is before `end`.
    pub start: i64,
    pub end: i64,
    /// Time until the next question, as the server requests it.
    pub again: Option<Duration>,
    /// URL of a page for operators, fit for a line of a log.
    pub explanation: Option<String>,
}

/// Seconds since 1970 of a time of RFC 3339.
pub(crate) fn seconds(text: &str) -> Option<i64> {
    chrono::DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_come_before_the_end() {
        assert_eq!(Schedule::of(0, 90 * 86_400, 0.0).at, 60 * 86_400);
        assert_eq!(Schedule::of(0, 60, 0.0).at, 30);
        assert!(Schedule::of(100, 90 * 86_400, 1.0).at < 60 * 86_400);
        assert_eq!(Schedule::of(10, 5, 0.5).at, 10);
    }

    #[test]
    fn windows_are_followed_within_the_life_of_the_certificate() {
        // Of a certificate from 0 to 1000: the last twentieth begins at 950.
        for (start, end, now, random, want) in [
            (100, 200, 0, 0.5, Some(150)),
            (100, 200, 160, 0.5, Some(160)),
            (-500, -400, 10, 0.5, Some(10)),
            (900, 1000, 0, 1.0, Some(950)),
            (990, 2000, 0, 0.0, Some(950)),
            (990, 2000, 970, 0.0, Some(970)),
            (i64::MIN, i64::MAX, 0, 1.0, Some(0)),
            (1000, 1001, 0, 0.0, None),
            (i64::MAX - 1, i64::MAX, 0, 0.0, None),
        ] {
            let window = RenewalWindow { start, end, again: None, explanation: None };
            let at = Schedule::within(&window, 0, 1000, now, random).map(|schedule| schedule.at);
            assert_eq!(at, want, "{start} {end} {now}");
        }
    }

    #[test]
    fn times_of_servers() {
        assert_eq!(seconds("2021-01-03T00:00:00Z"), Some(1_609_632_000));
        assert_eq!(seconds("2021-01-03T01:00:00.5+01:00"), Some(1_609_632_000));
        assert_eq!(seconds("tomorrow"), None);
    }
}
