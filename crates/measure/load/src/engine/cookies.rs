//! Cookies of one user of a run (`--cookies`): storage and selection by RFC 6265. A jar belongs to one server, whose
//! host its methods are given.

/// Cookies of a jar; further ones are ignored, as RFC 6265, 6.1 lets a user agent.
const COOKIES_MAX: usize = 180;
/// Octets of name, value and path together.
const COOKIE_MAX: usize = 8192;

#[derive(Clone, Debug, PartialEq, Eq)]
struct JarCookie {
    name: Vec<u8>,
    value: Vec<u8>,
    path: Vec<u8>,
    secure: bool,
    /// Seconds since 1970; `None` until the end of the session.
    expires: Option<u64>,
}

/// Cookies that a server has set. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieJar {
    /// Oldest first.
    cookies: Vec<JarCookie>,
    now: u64,
}

impl CookieJar {
    /// Sets the time of later calls, and drops expired cookies.
    pub fn set_time(&mut self, now: u64) {
        self.now = now;
        self.cookies.retain(|cookie| cookie.expires.is_none_or(|at| at > now));
    }

    /// Stores the value of one `Set-Cookie` field of an answer of `host` to a request for `target` (RFC 6265, 5.2 and
    /// 5.3). Ignores cookies without a name, for other hosts, and beyond the limits.
    pub fn store_cookie(&mut self, field: &[u8], host: &str, target: &[u8]) {
        let mut parts = field.split(|b| *b == b';');
        let pair = parts.next().unwrap_or_default();
        let Some(at) = pair.iter().position(|b| *b == b'=') else { return };
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        if name.is_empty() || field.iter().any(|b| *b < b' ' && *b != b'\t' || *b == 0x7f) {
            return;
        }
        let mut cookie = JarCookie {
            name: name.to_vec(),
            value: value.to_vec(),
            path: default_path(target).to_vec(),
            secure: false,
            expires: None,
        };
        let mut max_age = None;
        for part in parts {
            let (key, value) = match part.iter().position(|b| *b == b'=') {
                Some(at) => (part[..at].trim_ascii(), part[at + 1..].trim_ascii()),
                None => (part.trim_ascii(), &b""[..]),
            };
            match key.to_ascii_lowercase().as_slice() {
                b"secure" => cookie.secure = true,
                b"path" if value.starts_with(b"/") => cookie.path = value.to_vec(),
                b"path" => cookie.path = default_path(target).to_vec(),
                b"expires" => cookie.expires = cookie_date(value).or(cookie.expires),
                b"max-age" => max_age = age(value).or(max_age),
                b"domain" if !value.is_empty() && !matches_domain(host, value) => return,
                _ => {}
            }
        }
        if let Some(age) = max_age {
            cookie.expires = Some(if age <= 0 { 0 } else { self.now.saturating_add(age as u64) });
        }
        let same = |other: &JarCookie| other.name == cookie.name && other.path == cookie.path;
        let found = self.cookies.iter().position(same);
        if cookie.expires.is_some_and(|at| at <= self.now) {
            found.map(|at| self.cookies.remove(at));
            return;
        }
        if cookie.name.len() + cookie.value.len() + cookie.path.len() > COOKIE_MAX {
            return;
        }
        match found {
            // The replacement keeps its place in the order of creation (RFC 6265, 5.3, step 11).
            Some(at) => self.cookies[at] = cookie,
            None if self.cookies.len() < COOKIES_MAX => self.cookies.push(cookie),
            None => {}
        }
    }

    /// Appends the value of the `Cookie` field of a request for `target`; nothing if no cookie applies (RFC 6265, 5.4).
    /// `secure` tells whether the request goes over TLS.
    pub fn write_cookies(&self, target: &[u8], secure: bool, out: &mut Vec<u8>) {
        let path = target.split(|b| *b == b'?').next().unwrap_or_default();
        let applies = |cookie: &&JarCookie| (secure || !cookie.secure) && matches_path(path, &cookie.path);
        let mut sent: Vec<&JarCookie> = self.cookies.iter().filter(applies).collect();
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        for cookie in sent {
            if !out.is_empty() {
                out.extend_from_slice(b"; ");
            }
            out.extend_from_slice(&cookie.name);
            out.push(b'=');
            out.extend_from_slice(&cookie.value);
        }
    }
}

/// Directory of a request's path (RFC 6265, 5.1.4).
fn default_path(target: &[u8]) -> &[u8] {
    let path = target.split(|b| *b == b'?').next().unwrap_or_default();
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) if at > 0 && path.starts_with(b"/") => &path[..at],
        _ => b"/",
    }
}

fn matches_path(path: &[u8], of_cookie: &[u8]) -> bool {
    path.strip_prefix(of_cookie)
        .is_some_and(|rest| rest.is_empty() || of_cookie.ends_with(b"/") || rest.starts_with(b"/"))
}

/// Domain match (RFC 6265, 5.1.3). An address matches only itself.
fn matches_domain(host: &str, domain: &[u8]) -> bool {
    let host = host.to_ascii_lowercase();
    let domain = domain.strip_prefix(b".").unwrap_or(domain).to_ascii_lowercase();
    if host.as_bytes() == domain {
        return true;
    }
    let below = host.as_bytes().strip_suffix(domain.as_slice()).is_some_and(|rest| rest.ends_with(b"."));
    below && host.parse::<std::net::IpAddr>().is_err()
}

/// Value of `Max-Age` in seconds.
fn age(value: &[u8]) -> Option<i64> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?;
    Some(text.parse().unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX }))
}

/// Parses a date by the rules of RFC 6265, 5.1.1, which take any order and most separators. Seconds since 1970; 0 for
/// earlier dates.
fn cookie_date(value: &[u8]) -> Option<u64> {
    const MONTHS: [&[u8]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    let separates = |b: &u8| !(b.is_ascii_alphanumeric() || *b == b':' || *b >= 0x7f);
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in value.split(separates).filter(|token| !token.is_empty()) {
        let lower = token.to_ascii_lowercase();
        if let (None, Some(found)) = (time, clock_time(token)) {
            time = Some(found);
        } else if let (None, Some(found)) = (day, number(token, 1..=2)) {
            day = Some(found);
        } else if let (None, Some(found)) = (month, MONTHS.iter().position(|name| lower.starts_with(name))) {
            month = Some(found as i64 + 1);
        } else if let (None, Some(found)) = (year, number(token, 2..=4)) {
            year = Some(match found {
                70..=99 => found + 1900,
                0..=69 => found + 2000,
                _ => found,
            });
        }
    }
    let ((hour, minute, second), day, month, year) = (time?, day?, month?, year?);
    if !(1..=31).contains(&day) || year < 1601 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = calendar_days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(seconds.max(0) as u64)
}

fn clock_time(token: &[u8]) -> Option<(i64, i64, i64)> {
    let mut parts = token.splitn(3, |b| *b == b':').map(|part| number(part, 1..=2));
    Some((parts.next()??, parts.next()??, parts.next()??))
}

/// Leading digits of a token, if there are as many as `lengths` allows.
fn number(token: &[u8], lengths: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let digits = token.iter().take_while(|b| b.is_ascii_digit()).count();
    let text = std::str::from_utf8(&token[..digits]).ok()?;
    if lengths.contains(&digits) { text.parse().ok() } else { None }
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar.
pub fn calendar_days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jar(fields: &[&str]) -> CookieJar {
        let mut jar = CookieJar::default();
        jar.set_time(1_000_000_000);
        fields.iter().for_each(|field| jar.store_cookie(field.as_bytes(), "www.example.org", b"/shop/cart?x=/y"));
        jar
    }

    fn sent(jar: &CookieJar, target: &str, secure: bool) -> String {
        let mut out = Vec::new();
        jar.write_cookies(target.as_bytes(), secure, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cookies_follow_path_domain_and_secure() {
        let jar = jar(&[
            "a=1",
            "b=2; Path=/",
            "c=3; path=/shop/cart; Secure",
            "d=4; Domain=.example.org; Path=/",
            "e=5; Domain=other.org",
            "f=6; Domain=ample.org",
            "=7",
            "nothing",
        ]);
        assert_eq!(sent(&jar, "/shop/cart", true), "c=3; a=1; b=2; d=4");
        assert_eq!(sent(&jar, "/shop/other?q", false), "a=1; b=2; d=4");
        assert_eq!(sent(&jar, "/shopping", false), "b=2; d=4");
    }

    #[test]
    fn a_later_cookie_replaces_and_an_expired_one_removes() {
        let mut jar =
            jar(&["a=1; Path=/", "b=2; Path=/", "a=3; Path=/", "b=; Path=/; Max-Age=0", "c=4; Path=/; Max-Age=10"]);
        assert_eq!(sent(&jar, "/", false), "a=3; c=4");
        jar.set_time(1_000_000_010);
        assert_eq!(sent(&jar, "/", false), "a=3");
        // Max-Age has precedence (RFC 6265, 4.1.2.2).
        jar.store_cookie(b"a=5; Path=/; Max-Age=99; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "www.example.org", b"/");
        jar.store_cookie(b"d=6; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "www.example.org", b"/");
        assert_eq!(sent(&jar, "/", false), "a=5");
    }

    #[test]
    fn dates_are_read_in_all_usual_forms() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06-Nov-1994 08:49:37 GMT",
        ] {
            assert_eq!(cookie_date(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(cookie_date(b"Tue, 29 Feb 2028 00:00:00 GMT"), Some(1_835_395_200));
        for text in
            ["", "Sun, 06 Nov 1994", "Sun, 32 Nov 1994 08:49:37", "Sun, 06 Nov 1994 24:49:37", "06 Nov 1500 08:49:37"]
        {
            assert_eq!(cookie_date(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_jar_is_bounded() {
        let mut jar = CookieJar::default();
        (0..1000).for_each(|i| jar.store_cookie(format!("n{i}=1; Path=/").as_bytes(), "h", b"/"));
        jar.store_cookie(format!("n1={}; Path=/", "x".repeat(9000)).as_bytes(), "h", b"/");
        assert_eq!(sent(&jar, "/", false).matches("=1").count(), COOKIES_MAX);
        // A control character would inject a field.
        jar.set_time(1);
        let before = jar.clone();
        jar.store_cookie(b"n2=a\rb; Path=/", "h", b"/");
        assert_eq!(jar, before);
        assert!(!matches_domain("10.0.0.1", b"0.0.1") && matches_domain("10.0.0.1", b"10.0.0.1"));
    }
}
