//! Storability and freshness as in nginx (the header handlers of `ngx_http_upstream.c`); `strict.rs` has RFC 9111's
//! rules.

use crate::vary::VARY_MAX;
use observe::clock::parse_http_time;

/// Bits of `proxy_ignore_headers`.
#[derive(Clone, Copy, Debug, Default)]
pub struct IgnoredFields {
    pub x_accel_expires: bool,
    pub expires: bool,
    pub cache_control: bool,
    pub set_cookie: bool,
    pub vary: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreshnessVerdict {
    pub forbidden: bool,
    /// Fresh until, in Unix seconds; 0: the status decides.
    pub valid_sec: i64,
    /// Seconds after that in which it may be served while updating, and on errors.
    pub updating_sec: i64,
    pub error_sec: i64,
    /// Request fields named by `Vary`.
    pub vary: Vec<u8>,
    pub last_modified: i64,
    pub etag: Vec<u8>,
    /// RFC 9111 only: estimated end of freshness; 0: none.
    pub estimated_sec: i64,
    /// RFC 9111 only: never served stale.
    pub must_revalidate: bool,
    /// RFC 9111 only: age on arrival.
    pub age: i64,
}

/// Longest kept ETag in bytes (nginx: `NGX_HTTP_CACHE_ETAG_LEN`).
pub const ETAG_MAX: usize = 128;

/// Evaluates fields in their order, which affects precedence, as in nginx.
pub fn judge_fields<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ignored: IgnoredFields,
    now: i64,
) -> FreshnessVerdict {
    let mut v = FreshnessVerdict { last_modified: -1, ..FreshnessVerdict::default() };
    let (mut no_cache, mut expired) = (false, false);
    let (mut seen_accel, mut seen_expires, mut vary_seen) = (false, false, false);
    for (name, value) in fields {
        let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
        if is("set-cookie") {
            v.forbidden |= !ignored.set_cookie;
        } else if is("cache-control") {
            if !ignored.cache_control {
                cache_control(&mut v, value, now, seen_accel, &mut no_cache, &mut expired);
            }
        } else if is("expires") {
            if !std::mem::replace(&mut seen_expires, true) && !ignored.expires && v.valid_sec == 0 {
                match parse_http_time(value).filter(|at| *at >= now) {
                    Some(at) => v.valid_sec = at,
                    None => expired = true,
                }
            }
        } else if is("x-accel-expires") {
            if !std::mem::replace(&mut seen_accel, true) && !ignored.x_accel_expires {
                let (at, digits) = value.strip_prefix(b"@").map_or((false, value), |rest| (true, rest));
                match (number(digits), at) {
                    (Some(0), false) => v.forbidden = true,
                    (Some(n), at) => {
                        v.valid_sec = if at { n } else { now.saturating_add(n) };
                        (no_cache, expired) = (false, false);
                    }
                    (None, _) => {}
                }
            }
        } else if is("vary") {
            if !ignored.vary {
                if value == b"*" {
                    v.forbidden = true;
                }
                if std::mem::replace(&mut vary_seen, true) {
                    v.vary.extend_from_slice(b", ");
                }
                v.vary.extend_from_slice(value);
            }
        } else if is("last-modified") {
            if v.last_modified < 0 {
                v.last_modified = parse_http_time(value).unwrap_or(-1);
            }
        } else if is("etag") && v.etag.is_empty() && value.len() <= ETAG_MAX {
            v.etag = value.to_vec();
        }
    }
    v.forbidden |= no_cache || expired || v.vary.len() > VARY_MAX;
    v
}

fn cache_control(
    v: &mut FreshnessVerdict,
    value: &[u8],
    now: i64,
    accel: bool,
    no_cache: &mut bool,
    expired: &mut bool,
) {
    if !(v.valid_sec != 0 && accel) {
        if ["no-cache", "no-store", "private"].iter().any(|word| find(value, word).is_some()) {
            *no_cache = true;
            return;
        }
        let age = find(value, "s-maxage=").or_else(|| find(value, "max-age="));
        if let Some(rest) = age {
            match delta_seconds(rest) {
                None => {
                    v.forbidden = true;
                    return;
                }
                Some(0) => {
                    *no_cache = true;
                    return;
                }
                Some(n) => {
                    v.valid_sec = now.saturating_add(n);
                    *expired = false;
                }
            }
        }
    }
    if let Some(rest) = find(value, "stale-while-revalidate=") {
        let Some(n) = delta_seconds(rest) else {
            v.forbidden = true;
            return;
        };
        (v.updating_sec, v.error_sec) = (n, n);
    }
    if let Some(rest) = find(value, "stale-if-error=") {
        match delta_seconds(rest) {
            Some(n) => v.error_sec = n,
            None => v.forbidden = true,
        }
    }
}

/// Text after a word at any position: nginx does not split the list.
fn find<'a>(value: &'a [u8], word: &str) -> Option<&'a [u8]> {
    let at = value.windows(word.len()).position(|w| w.eq_ignore_ascii_case(word.as_bytes()))?;
    Some(&value[at + word.len()..])
}

/// Up to the next comma, saturating.
fn delta_seconds(text: &[u8]) -> Option<i64> {
    let mut n: i64 = 0;
    for c in text {
        match c {
            b',' | b';' | b' ' => break,
            b'0'..=b'9' => n = n.saturating_mul(10).saturating_add(i64::from(c - b'0')),
            _ => return None,
        }
    }
    Some(n)
}

pub(crate) fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok().filter(|t| !t.is_empty() && t.bytes().all(|c| c.is_ascii_digit()))?.parse().ok()
}

/// One `proxy_cache_valid`: status (0: any) and seconds.
pub type Valid = (u16, i64);

/// 0: not stored.
pub fn by_status(valid: &[Valid], status: u16) -> i64 {
    valid.iter().find(|(s, _)| *s == 0 || *s == status).map_or(0, |(_, seconds)| *seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000_000;

    fn read(text: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(n, v)| (n.trim().as_bytes().to_vec(), v.trim().as_bytes().to_vec()))
            .collect()
    }

    fn of(text: &str) -> FreshnessVerdict {
        let fields = read(text);
        judge_fields(fields.iter().map(|(n, v)| (n.as_slice(), v.as_slice())), IgnoredFields::default(), NOW)
    }

    /// Seconds of freshness; 0: by status; -1: not stored.
    fn fresh(v: &FreshnessVerdict) -> i64 {
        match v {
            FreshnessVerdict { forbidden: true, .. } => -1,
            FreshnessVerdict { valid_sec: 0, .. } => 0,
            v => v.valid_sec - NOW,
        }
    }

    #[test]
    fn the_table_of_lifetimes() {
        for (text, want) in [
            ("", 0),
            ("Cache-Control: max-age=100", 100),
            ("Cache-Control: public, MAX-AGE=100", 100),
            ("Cache-Control: max-age=100, s-maxage=5", 5),
            ("Cache-Control: max-age=0", -1),
            ("Cache-Control: max-age=x", -1),
            ("Cache-Control: max-age=", -1),
            ("Cache-Control: max-age=99999999999999999999", i64::MAX - NOW),
            ("Cache-Control: no-store", -1),
            ("Cache-Control: no-cache=\"x\"", -1),
            ("Cache-Control: private", -1),
            ("Cache-Control: max-age=100\nCache-Control: no-cache", -1),
            ("Expires: Sun, 09 Sep 2001 01:47:40 GMT", 60),
            ("Expires: Sun, 09 Sep 2001 01:46:39 GMT", -1),
            ("Expires: 0", -1),
            // The first of the two wins, but Cache-Control overrides a past Expires.
            ("Expires: Sun, 09 Sep 2001 01:47:40 GMT\nCache-Control: max-age=5", 5),
            ("Cache-Control: max-age=5\nExpires: Sun, 09 Sep 2001 01:47:40 GMT", 5),
            ("Expires: 0\nCache-Control: max-age=5", 5),
            ("Cache-Control: no-cache\nExpires: Sun, 09 Sep 2001 01:47:40 GMT", -1),
            // X-Accel-Expires wins at any position.
            ("X-Accel-Expires: 7", 7),
            ("X-Accel-Expires: @1000000009", 9),
            ("X-Accel-Expires: 0", -1),
            ("X-Accel-Expires: x", 0),
            ("X-Accel-Expires: 7\nCache-Control: no-cache", 7),
            ("Cache-Control: no-cache\nX-Accel-Expires: 7", 7),
            ("Expires: 0\nX-Accel-Expires: 7", 7),
            ("Cache-Control: max-age=5\nX-Accel-Expires: 7", 7),
            ("X-Accel-Expires: 7\nX-Accel-Expires: 0", 7),
            ("Set-Cookie: a=b\nX-Accel-Expires: 7", -1),
            ("Vary: *\nCache-Control: max-age=5", -1),
            ("Vary: a\nCache-Control: max-age=5", 5),
        ] {
            assert_eq!(fresh(&of(text)), want, "{text}");
        }
    }

    #[test]
    fn stale_is_allowed_for() {
        let both = |text: &str| {
            let v = of(text);
            (fresh(&v), v.updating_sec, v.error_sec)
        };
        assert_eq!(both("Cache-Control: max-age=1, stale-while-revalidate=10"), (1, 10, 10));
        assert_eq!(both("Cache-Control: max-age=1, stale-while-revalidate=10, stale-if-error=20"), (1, 10, 20));
        assert_eq!(both("Cache-Control: stale-if-error=5"), (0, 0, 5));
        assert_eq!(both("X-Accel-Expires: 3\nCache-Control: no-cache, stale-if-error=5"), (3, 0, 5));
        assert_eq!(both("Cache-Control: stale-while-revalidate=a").0, -1);
    }

    #[test]
    fn fields_that_are_kept() {
        let v = of("Vary: A\nVary: b\nETag: \"x\"\nLast-Modified: Sun, 09 Sep 2001 01:46:40 GMT");
        assert_eq!((v.vary.as_slice(), v.etag.as_slice(), v.last_modified), (&b"A, b"[..], &b"\"x\""[..], NOW));
        assert!(of(&format!("Vary: {}", "x".repeat(VARY_MAX + 1))).forbidden);
        assert!(of(&format!("ETag: \"{}\"", "x".repeat(ETAG_MAX))).etag.is_empty());
    }

    #[test]
    fn ignored_fields_have_no_effect() {
        let all =
            IgnoredFields { x_accel_expires: true, expires: true, cache_control: true, set_cookie: true, vary: true };
        let fields = read("X-Accel-Expires: 5\nExpires: 0\nCache-Control: private\nSet-Cookie: a=b\nVary: *");
        let v = judge_fields(fields.iter().map(|(n, v)| (n.as_slice(), v.as_slice())), all, NOW);
        assert_eq!((fresh(&v), v.vary.as_slice()), (0, &b""[..]));
    }

    #[test]
    fn by_status_the_first_match_counts() {
        let valid = [(200, 5), (301, 6), (0, 7), (404, 8)];
        assert_eq!([200, 301, 404, 500].map(|s| by_status(&valid, s)), [5, 6, 7, 7]);
        assert_eq!(by_status(&[(200, 5)], 404), 0);
    }
}
