//! RFC 9111 mode (`proxy_cache_rfc9111 on`): lists, ages, targeted directives (RFC 9213), estimated lifetimes, request
//! directives.

use crate::entry::Meta;
use crate::freshness::{FreshnessVerdict, IgnoredFields, judge_fields, number};
use observe::clock::parse_http_time;

/// Largest estimated lifetime in seconds; it is a tenth of the time since the last change.
pub const HEURISTIC_MAX: i64 = 86_400;
/// Statuses with estimated lifetimes (RFC 9110, 15.1); 206 is not stored without its range in the key.
const CACHEABLE: [u16; 12] = [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501];
const UNDERSTOOD: [u16; 16] = [200, 203, 204, 206, 300, 301, 302, 303, 304, 307, 308, 404, 405, 410, 414, 501];

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub now: i64,
    pub asked: i64,
    pub status: u16,
    /// The request had an `Authorization`.
    pub credentials: bool,
    /// Stale responses are revalidated, so that even `no-cache` responses are useful.
    pub revalidates: bool,
}

pub fn list_items(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let list = rest?;
        let (mut quoted, mut escaped) = (false, false);
        let end = list.iter().position(|c| {
            match c {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b',' => return !quoted,
                _ => {}
            }
            false
        });
        rest = end.map(|end| &list[end + 1..]);
        Some(list[..end.unwrap_or(list.len())].trim_ascii())
    })
    .filter(|item| !item.is_empty())
}

#[derive(Debug, Default)]
struct Directives<'a>(Vec<(&'a [u8], Option<&'a [u8]>)>);

impl<'a> Directives<'a> {
    fn read(values: impl Iterator<Item = &'a [u8]>) -> Self {
        Directives(
            values
                .flat_map(list_items)
                .map(|item| match item.iter().position(|c| *c == b'=') {
                    Some(at) => (&item[..at], Some(&item[at + 1..])),
                    None => (item, None),
                })
                .collect(),
        )
    }
    fn get(&self, name: &str) -> Option<Option<&'a [u8]>> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())).map(|(_, argument)| *argument)
    }
    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
    /// Seconds; an invalid number counts as the shortest, 0 (RFC 9111, 4.2.1).
    fn seconds(&self, name: &str) -> Option<i64> {
        let argument = self.get(name)?.unwrap_or_default();
        let bare = argument.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(argument);
        Some(delta(bare).unwrap_or(0))
    }
}

fn delta(text: &[u8]) -> Option<i64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| number(text).unwrap_or(i64::from(u32::MAX)).min(i64::from(u32::MAX)))
}

/// Accepts HTTP's three date formats.
fn time(text: &[u8]) -> Option<i64> {
    let asctime = !text.contains(&b',');
    let gmt = text.len() > 3 && text[text.len() - 3..].eq_ignore_ascii_case(b"gmt");
    if asctime || gmt { parse_http_time(text) } else { None }
}

/// A targeted field is a structured dictionary, ignored entirely if invalid (RFC 9213, 2.1).
fn dictionary<'a>(values: &[&'a [u8]]) -> Option<Directives<'a>> {
    let key = |key: &[u8]| {
        matches!(key.first(), Some(b'a'..=b'z' | b'*'))
            && key.iter().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'))
    };
    let bare = |value: &[u8]| match value.first() {
        Some(b'"') => value.len() > 1 && value.ends_with(b"\"") && value.iter().all(|c| matches!(c, b' '..=b'~')),
        Some(b'?') => matches!(value, b"?0" | b"?1"),
        Some(b'0'..=b'9' | b'-') => value[1..].iter().all(|c| c.is_ascii_digit() || *c == b'.'),
        Some(b'a'..=b'z' | b'A'..=b'Z' | b'*') => value.iter().all(u8::is_ascii_graphic),
        _ => false,
    };
    let mut found = Directives::default();
    for item in values.iter().flat_map(|value| list_items(value)) {
        let item = item.split(|c| *c == b';').next().unwrap_or_default().trim_ascii();
        let (name, value) = match item.iter().position(|c| *c == b'=') {
            Some(at) => (&item[..at], Some(&item[at + 1..])),
            None => (item, None),
        };
        if !key(name) || !value.is_none_or(bare) {
            return None;
        }
        if matches!(name, b"max-age" | b"s-maxage") && value.and_then(delta).is_none() {
            return None;
        }
        // The last of a name wins; lookups start at the front.
        if value != Some(b"?0") {
            found.0.insert(0, (name, value));
        }
    }
    (!found.0.is_empty()).then_some(found)
}

/// RFC 9111, 4.2.3.
fn age(date: Option<&[u8]>, age: Option<&[u8]>, setting: &Setting) -> i64 {
    let said = age.and_then(|value| list_items(value).next()).and_then(delta).unwrap_or(0);
    let apparent = date.and_then(time).map_or(0, |date| setting.now - date);
    apparent.max(said + (setting.now - setting.asked).max(0)).max(0)
}

/// Judges a response by its fields. `valid_sec` is the last fresh second.
pub fn judge_strictly<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ignored: IgnoredFields,
    setting: &Setting,
) -> FreshnessVerdict {
    let all = |wanted: &'static str| {
        fields.clone().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes())).map(|(_, value)| value)
    };
    let now = setting.now;
    // Uses nginx's rules for all but freshness.
    let mut v = judge_fields(fields.clone(), IgnoredFields { cache_control: true, expires: true, ..ignored }, now);
    let date = all("date").next();
    let came = date.and_then(time).unwrap_or(now);
    v.age = age(date, all("age").next(), setting);
    v.forbidden |= !ignored.vary && list_items(&v.vary).any(|name| name == b"*");
    let accel = v.valid_sec != 0;
    let targeted = dictionary(&all("cdn-cache-control").collect::<Vec<_>>());
    let expires = if ignored.expires || targeted.is_some() { None } else { all("expires").next() };
    let directives = match targeted {
        Some(targeted) => targeted,
        None if ignored.cache_control => Directives::default(),
        None => Directives::read(all("cache-control")),
    };
    let validators = setting.revalidates && (v.last_modified >= 0 || !v.etag.is_empty());
    v.must_revalidate = ["must-revalidate", "proxy-revalidate", "s-maxage"].iter().any(|n| directives.has(n))
        || (!accel && directives.has("no-cache"));
    v.updating_sec = directives.seconds("stale-while-revalidate").unwrap_or(0);
    v.error_sec = directives.seconds("stale-if-error").unwrap_or(v.updating_sec);
    if v.must_revalidate {
        (v.updating_sec, v.error_sec) = (0, 0);
    }
    if accel {
        return v;
    }
    let understood = UNDERSTOOD.contains(&setting.status);
    v.forbidden |= match directives.has("must-understand") {
        true => !understood,
        false => directives.has("no-store"),
    };
    // `private="field"` would allow storing the other fields; not supported.
    v.forbidden |= directives.has("private");
    let lifetime = match directives.seconds("s-maxage").or_else(|| directives.seconds("max-age")) {
        // "0" and other invalid times have passed.
        None => expires.map(|text| time(text).map_or(0, |until| until - came)),
        lifetime => lifetime,
    };
    // Treats `no-cache="field"` as `no-cache`.
    let lifetime = if directives.has("no-cache") { Some(i64::MIN) } else { lifetime };
    match lifetime.map(|n| n.saturating_sub(v.age)) {
        Some(left) if left > 0 => v.valid_sec = now.saturating_add(left - 1),
        // Still useful with validators, or as a stale response.
        Some(_) if validators || v.error_sec > 0 || v.updating_sec > 0 => v.valid_sec = now - 1,
        Some(_) => v.forbidden = true,
        None if CACHEABLE.contains(&setting.status) || directives.has("public") => {
            let since = if v.last_modified >= 0 { came - v.last_modified } else { 0 };
            let left = (since / 10).min(HEURISTIC_MAX) - v.age;
            if left > 0 {
                v.estimated_sec = now.saturating_add(left - 1);
            }
        }
        None => {}
    }
    v.forbidden |= setting.credentials && !["public", "must-revalidate", "s-maxage"].iter().any(|n| directives.has(n));
    v
}

/// RFC 9111, 5.2.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    pub no_cache: bool,
    /// Does not store the fetched response; may serve a stored one.
    pub no_store: bool,
    pub only_if_cached: bool,
    pub max_age: Option<i64>,
    pub min_fresh: Option<i64>,
    /// `i64::MAX`: any staleness.
    pub max_stale: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Fresh,
    Stale,
    /// Needs revalidation; `may_be_stale`: only because of its age.
    No {
        may_be_stale: bool,
    },
}

impl RequestDirectives {
    pub fn read<'a>(values: impl Iterator<Item = &'a [u8]>) -> RequestDirectives {
        let said = Directives::read(values);
        RequestDirectives {
            no_cache: said.has("no-cache"),
            no_store: said.has("no-store"),
            only_if_cached: said.has("only-if-cached"),
            max_age: said.seconds("max-age"),
            min_fresh: said.seconds("min-fresh"),
            max_stale: match said.get("max-stale") {
                Some(None) => Some(i64::MAX),
                Some(Some(_)) => said.seconds("max-stale"),
                None => None,
            },
        }
    }
    pub fn of(&self, meta: &Meta, now: i64) -> Use {
        let age = (now - meta.date).max(0).saturating_add(meta.age);
        // The last fresh second counts.
        let left = meta.valid_sec.saturating_add(1) - now;
        if self.no_cache || self.max_age.is_some_and(|max| age > max) || self.min_fresh.is_some_and(|min| left < min) {
            return Use::No { may_be_stale: false };
        }
        if meta.valid_sec >= now {
            return Use::Fresh;
        }
        if !meta.must_revalidate && self.max_stale.is_some_and(|max| now - meta.valid_sec <= max) {
            return Use::Stale;
        }
        Use::No { may_be_stale: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000_000;
    const SETTING: Setting = Setting { now: NOW, asked: NOW, status: 200, credentials: false, revalidates: false };

    fn with(text: &str, setting: Setting) -> FreshnessVerdict {
        let fields: Vec<_> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(n, v)| (n.trim().as_bytes(), v.trim().as_bytes()))
            .collect();
        judge_strictly(fields.iter().copied(), IgnoredFields::default(), &setting)
    }
    /// Seconds of freshness; 0: stored and never fresh; `None`: stored only by status.
    fn fresh(v: &FreshnessVerdict) -> Option<i64> {
        match v {
            FreshnessVerdict { forbidden: true, .. } => None,
            FreshnessVerdict { valid_sec: 0, estimated_sec: 0, .. } => None,
            FreshnessVerdict { valid_sec: 0, estimated_sec, .. } => Some(estimated_sec - NOW + 1),
            v => Some(v.valid_sec - NOW + 1),
        }
    }

    #[test]
    fn the_table_of_lifetimes() {
        for (text, want) in [
            ("", None),
            ("Cache-Control: max-age=100", Some(100)),
            ("Cache-Control: MAX-AGE=100, x-private=1", Some(100)),
            ("Cache-Control: max-age=\"100\"", Some(100)),
            ("Cache-Control: max-age=100\nCache-Control: max-age=5", Some(100)),
            ("Cache-Control: max-age=1, s-maxage=100", Some(100)),
            ("Cache-Control: max-age=99999999999999999999", Some(i64::from(u32::MAX))),
            ("Cache-Control: max-age=-1", None),
            ("Cache-Control: max-age=1.5", None),
            ("Cache-Control: max-age = 100", None),
            ("Cache-Control: x=\"a, max-age=100\"", None),
            ("Cache-Control: x=\"a\\\", no-store\", max-age=100", Some(100)),
            ("Cache-Control: no-store, max-age=100", None),
            ("Cache-Control: private=\"x\", max-age=100", None),
            ("Cache-Control: no-store, must-understand, max-age=100", Some(100)),
            ("Cache-Control: max-age=100\nAge: 40", Some(60)),
            ("Cache-Control: max-age=100\nAge: 100", None),
            ("Cache-Control: max-age=100\nAge: 40, 1", Some(60)),
            ("Cache-Control: max-age=100\nAge: x", Some(100)),
            ("Cache-Control: max-age=100\nAge: 99999999999999999999", None),
            ("Cache-Control: max-age=100\nDate: Sun, 09 Sep 2001 01:46:10 GMT", Some(70)),
            ("Cache-Control: max-age=100\nDate: Sun, 09 Sep 2001 01:46:10 GMT\nAge: 40", Some(60)),
            ("Cache-Control: max-age=100\nDate: Sun, 09 Sep 2001 01:56:10 GMT", Some(100)),
            ("Date: Sun, 09 Sep 2001 01:46:40 GMT\nExpires: Sun, 09 Sep 2001 01:47:40 GMT", Some(60)),
            ("Date: Sun, 09 Sep 2001 01:46:30 GMT\nExpires: Sun, 09 Sep 2001 01:47:40 GMT", Some(60)),
            ("Expires: Sunday, 09-Sep-01 01:47:40 GMT", Some(60)),
            ("Expires: Sun Sep  9 01:47:40 2001", Some(60)),
            ("Expires: Sun, 09 Sep 2001 01:47:40 UTC", None),
            ("Expires: 0", None),
            ("Cache-Control: max-age=5\nExpires: 0", Some(5)),
            ("Cache-Control: no-store\nCDN-Cache-Control: max-age=30", Some(30)),
            ("Cache-Control: max-age=30\nCDN-Cache-Control: no-store", None),
            ("Cache-Control: max-age=30\nCDN-Cache-Control: max-age=5, max-age=6", Some(6)),
            ("Expires: Sun, 09 Sep 2001 01:47:40 GMT\nCDN-Cache-Control: stale-if-error=5", None),
            ("Cache-Control: no-store\nCDN-Cache-Control: max-age=30, &&&&", None),
            ("Cache-Control: no-store\nCDN-Cache-Control: max-age=\"30\"", None),
            ("Cache-Control: no-store\nCDN-Cache-Control: max-age=30;a=b, x=?1, y=\"z\", w=a/b", Some(30)),
            ("X-Accel-Expires: 7\nCache-Control: no-store", Some(8)),
            ("X-Accel-Expires: 0\nCache-Control: max-age=100", None),
            ("Vary: a, *\nCache-Control: max-age=5", None),
            ("Vary: *, *\nCache-Control: max-age=5", None),
            ("Set-Cookie: a=b\nCache-Control: max-age=5", None),
            ("Last-Modified: Sun, 09 Sep 2001 01:30:00 GMT", Some(100)),
            ("Last-Modified: Sun, 09 Sep 2001 01:30:00 GMT\nAge: 40", Some(60)),
            ("Last-Modified: Sun, 09 Sep 1990 01:30:00 GMT", Some(HEURISTIC_MAX)),
            ("Last-Modified: Sun, 09 Sep 2001 01:50:00 GMT", None),
            ("Last-Modified: Sun, 09 Sep 2001 01:30:00 GMT\nExpires: 0", None),
        ] {
            assert_eq!(fresh(&with(text, SETTING)), want, "{text}");
        }
    }

    #[test]
    fn stale_entries_may_be_revalidated() {
        let asks = Setting { revalidates: true, ..SETTING };
        for (text, want) in [
            ("Cache-Control: no-cache\nETag: \"e\"", Some(0)),
            ("Cache-Control: no-cache=\"x\", max-age=100\nETag: \"e\"", Some(0)),
            ("Cache-Control: max-age=0\nLast-Modified: Sun, 09 Sep 2001 01:30:00 GMT", Some(0)),
            ("Cache-Control: max-age=10\nAge: 20\nETag: \"e\"", Some(0)),
            ("Cache-Control: no-cache", None),
            ("Cache-Control: no-store\nETag: \"e\"", None),
            ("Cache-Control: max-age=0, stale-if-error=5", Some(0)),
        ] {
            assert_eq!(fresh(&with(text, asks)), want, "{text}");
        }
        assert!(with("Cache-Control: no-cache\nETag: \"e\"", asks).must_revalidate);
        assert_eq!(fresh(&with("Cache-Control: no-cache\nETag: \"e\"", SETTING)), None);
    }

    #[test]
    fn stale_and_shared_use_follow_the_fields() {
        let v = with("Cache-Control: max-age=5, must-revalidate, stale-if-error=60", SETTING);
        assert!(v.must_revalidate && v.error_sec == 0);
        assert_eq!(with("Cache-Control: max-age=5, stale-while-revalidate=9", SETTING).error_sec, 9);
        for name in ["proxy-revalidate", "s-maxage=1"] {
            assert!(with(&format!("Cache-Control: max-age=5, {name}"), SETTING).must_revalidate);
        }
        let credentials = Setting { credentials: true, ..SETTING };
        assert!(with("Cache-Control: max-age=5", credentials).forbidden);
        for name in ["public", "must-revalidate", "s-maxage=5"] {
            assert!(!with(&format!("Cache-Control: max-age=5, {name}"), credentials).forbidden);
        }
        let other = Setting { status: 599, ..SETTING };
        assert!(with("Cache-Control: must-understand, max-age=5", other).forbidden);
        assert_eq!(fresh(&with("Last-Modified: Sun, 09 Sep 2001 01:30:00 GMT", other)), None);
        let public = "Cache-Control: public\nLast-Modified: Sun, 09 Sep 2001 01:30:00 GMT";
        assert_eq!(fresh(&with(public, other)), Some(100));
        let slow = Setting { asked: NOW - 10, ..SETTING };
        assert_eq!(fresh(&with("Cache-Control: max-age=100\nAge: 5", slow)), Some(85), "the answer took its time");
    }

    #[test]
    fn request_directives_are_parsed() {
        let meta = Meta { date: NOW - 50, age: 10, valid_sec: NOW + 39, ..Meta::default() };
        let stale = Meta { valid_sec: NOW - 20, ..meta.clone() };
        let must = Meta { must_revalidate: true, ..stale.clone() };
        let no = |may_be_stale| Use::No { may_be_stale };
        for (text, fresh, old, strict) in [
            ("", Use::Fresh, no(true), no(true)),
            ("no-cache", no(false), no(false), no(false)),
            ("max-age=60", Use::Fresh, no(true), no(true)),
            ("max-age=59", no(false), no(false), no(false)),
            ("max-age=0", no(false), no(false), no(false)),
            ("max-age=x", no(false), no(false), no(false)),
            ("min-fresh=40", Use::Fresh, no(false), no(false)),
            ("min-fresh=41", no(false), no(false), no(false)),
            ("max-stale", Use::Fresh, Use::Stale, no(true)),
            ("max-stale=20", Use::Fresh, Use::Stale, no(true)),
            ("max-stale=19", Use::Fresh, no(true), no(true)),
            ("max-stale, max-age=59", no(false), no(false), no(false)),
            ("no-store, only-if-cached", Use::Fresh, no(true), no(true)),
        ] {
            let wish = RequestDirectives::read([text.as_bytes()].into_iter());
            let got = [&meta, &stale, &must].map(|meta| wish.of(meta, NOW));
            assert_eq!(got, [fresh, old, strict], "{text}");
        }
    }
}
