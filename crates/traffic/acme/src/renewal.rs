//! Times of renewal: two thirds of a certificate's life, half of a short one, or the window that the authority suggests
//! (RFC 9773).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tls::x509::Certificate;

/// Certificates with shorter lives are renewed at half of them, in seconds.
const SHORT_LIFE: i64 = 10 * 86_400;

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

    /// By a window that the authority suggests: a random time in it, now if it is past.
    pub fn within(start: i64, end: i64, now: i64, random: f64) -> Schedule {
        let span = end.saturating_sub(start).max(0);
        Schedule { at: start.saturating_add((span as f64 * random) as i64).max(now) }
    }
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
        assert_eq!(Schedule::within(100, 200, 0, 0.5).at, 150);
        assert_eq!(Schedule::within(100, 200, 1000, 0.5).at, 1000);
    }

    #[test]
    fn times_of_servers() {
        assert_eq!(seconds("2021-01-03T00:00:00Z"), Some(1_609_632_000));
        assert_eq!(seconds("2021-01-03T01:00:00.5+01:00"), Some(1_609_632_000));
        assert_eq!(seconds("tomorrow"), None);
    }
}
