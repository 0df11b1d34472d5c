//! Time as text: formats of headers and logs, and the parser of header dates (nginx: `ngx_times.c`,
//! `ngx_parse_http_time.c`).
//! [`with_cached`] renders each format once per second and thread, without allocation; all else but [`now`] is a pure
//! function.

use chrono::{Offset, TimeZone};
use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

const WEEK: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Maximum time with a year of four digits; later times are clamped.
const SECONDS_MAX: i64 = 253_402_300_799;

pub fn now() -> (i64, u32) {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, since.subsec_millis()),
        Err(_) => (0, 0),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    pub year: i32,
    /// 1 to 12.
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    /// 0 is Sunday.
    pub weekday: u8,
}

pub fn civil_time(seconds: i64) -> Civil {
    let seconds = seconds.clamp(-62_135_596_800, SECONDS_MAX);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days of a calendar whose years begin in March, so that a leap day ends its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    Civil {
        year: (year_of_era + era * 400 + i64::from(month <= 2)) as i32,
        month: month as u8,
        day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
        hour: (rest / 3600) as u8,
        minute: (rest / 60 % 60) as u8,
        second: (rest % 60) as u8,
        weekday: (days + 4).rem_euclid(7) as u8,
    }
}

fn seconds_of(year: i64, month: i64, day: i64, hour: i64, minute: i64, second: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era - 719_468) * 86_400 + hour * 3600 + minute * 60 + second
}

struct DateWriter<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl DateWriter<'_> {
    fn text(&mut self, text: &[u8]) -> &mut Self {
        if let Some(slot) = self.out.get_mut(self.at..self.at + text.len()) {
            slot.copy_from_slice(text);
        }
        self.at += text.len();
        self
    }
    fn two(&mut self, n: u8) -> &mut Self {
        self.text(&[b'0' + n / 10 % 10, b'0' + n % 10])
    }
    fn four(&mut self, n: i32) -> &mut Self {
        let n = n.clamp(0, 9999);
        self.two((n / 100) as u8).two((n % 100) as u8)
    }
    fn clock(&mut self, t: &Civil) -> &mut Self {
        self.two(t.hour).text(b":").two(t.minute).text(b":").two(t.second)
    }
    fn zone(&mut self, offset: i32, colon: &[u8]) -> &mut Self {
        let minutes = offset.unsigned_abs() / 60;
        self.text(if offset < 0 { b"-" } else { b"+" });
        self.two((minutes / 60) as u8).text(colon).two((minutes % 60) as u8)
    }
}

fn name<'a>(names: &[&'a [u8; 3]], index: u8) -> &'a [u8] {
    names.get(usize::from(index)).map_or(b"???", |n| n.as_slice())
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn http_time(seconds: i64) -> [u8; 29] {
    let t = civil_time(seconds);
    let mut out = [0; 29];
    let mut pen = DateWriter { out: &mut out, at: 0 };
    pen.text(name(&WEEK, t.weekday)).text(b", ").two(t.day).text(b" ").text(name(&MONTHS, t.month - 1));
    pen.text(b" ").four(t.year).text(b" ").clock(&t).text(b" GMT");
    out
}

/// `Sun, 06-Nov-94 08:49:37 GMT`, the form in cookies; years after 2037 are written with four digits.
pub fn cookie_time(seconds: i64) -> ([u8; 31], usize) {
    let t = civil_time(seconds);
    let mut out = [0; 31];
    let mut pen = DateWriter { out: &mut out, at: 0 };
    pen.text(name(&WEEK, t.weekday)).text(b", ").two(t.day).text(b"-").text(name(&MONTHS, t.month - 1)).text(b"-");
    if t.year > 2037 {
        pen.four(t.year)
    } else {
        pen.two((t.year % 100) as u8)
    };
    pen.text(b" ").clock(&t).text(b" GMT");
    let length = pen.at;
    (out, length)
}

/// `06/Nov/1994:08:49:37 +0000`, as `$time_local`; `offset` is the local time's distance from UTC in seconds.
pub fn log_time(seconds: i64, offset: i32) -> [u8; 26] {
    let t = civil_time(seconds + i64::from(offset));
    let mut out = [0; 26];
    let mut pen = DateWriter { out: &mut out, at: 0 };
    pen.two(t.day).text(b"/").text(name(&MONTHS, t.month - 1)).text(b"/").four(t.year).text(b":").clock(&t);
    pen.text(b" ").zone(offset, b"");
    out
}

/// `1994-11-06T08:49:37+00:00`, as `$time_iso8601`.
pub fn iso8601(seconds: i64, offset: i32) -> [u8; 25] {
    let t = civil_time(seconds + i64::from(offset));
    let mut out = [0; 25];
    let mut pen = DateWriter { out: &mut out, at: 0 };
    pen.four(t.year).text(b"-").two(t.month).text(b"-").two(t.day).text(b"T").clock(&t).zone(offset, b":");
    out
}

/// `1994/11/06 08:49:37`, as in the error log.
pub fn error_log_time(seconds: i64, offset: i32) -> [u8; 19] {
    let t = civil_time(seconds + i64::from(offset));
    let mut out = [0; 19];
    let mut pen = DateWriter { out: &mut out, at: 0 };
    pen.four(t.year).text(b"/").two(t.month).text(b"/").two(t.day).text(b" ").clock(&t);
    out
}

/// `Nov  6 08:49:37`, as in syslog messages (RFC 3164, 4.1.2).
pub fn syslog_time(seconds: i64, offset: i32) -> [u8; 15] {
    let t = civil_time(seconds + i64::from(offset));
    let mut out = [0; 15];
    let mut pen = DateWriter { out: &mut out, at: 0 };
    let tens = if t.day < 10 { b' ' } else { b'0' + t.day / 10 };
    pen.text(name(&MONTHS, t.month - 1)).text(&[b' ', tens, b'0' + t.day % 10, b' ']).clock(&t);
    out
}

/// In seconds.
pub fn local_offset(seconds: i64) -> i32 {
    match chrono::Local.timestamp_opt(seconds, 0).earliest() {
        Some(time) => time.offset().fix().local_minus_utc(),
        None => 0,
    }
}

/// Formats a time by `strftime`; `None` for an invalid format. The zone's name is "GMT", or the local offset.
pub fn format_time(seconds: i64, local: bool, form: &str) -> Option<String> {
    use chrono::format::{Item, StrftimeItems};
    use std::fmt::Write;
    let offset = if local { local_offset(seconds) } else { 0 };
    let zone = match offset {
        0 if local => "UTC".to_string(),
        0 => "GMT".to_string(),
        _ => format!("{}{:02}{:02}", if offset < 0 { '-' } else { '+' }, offset.abs() / 3600, offset.abs() / 60 % 60),
    };
    let form = form.replace("%Z", &zone);
    let items: Vec<Item<'_>> = StrftimeItems::new(&form).collect();
    if items.contains(&Item::Error) {
        return None;
    }
    let time = chrono::FixedOffset::east_opt(offset)?.timestamp_opt(seconds, 0).earliest()?;
    let mut out = String::new();
    write!(out, "{}", time.format_with_items(items.iter())).ok()?;
    Some(out)
}

#[derive(Clone, Copy, Debug)]
pub struct Strings {
    pub seconds: i64,
    pub offset: i32,
    pub http: [u8; 29],
    pub log: [u8; 26],
    pub iso8601: [u8; 25],
    pub error_log: [u8; 19],
    pub syslog: [u8; 15],
}

impl Strings {
    pub fn new(seconds: i64, offset: i32) -> Strings {
        Strings {
            seconds,
            offset,
            http: http_time(seconds),
            log: log_time(seconds, offset),
            iso8601: iso8601(seconds, offset),
            error_log: error_log_time(seconds, offset),
            syslog: syslog_time(seconds, offset),
        }
    }
}

thread_local! {
    static CACHE: RefCell<Option<Strings>> = const { RefCell::new(None) };
}

/// Passes the formats of the current second.
pub fn with_cached<R>(read: impl FnOnce(&Strings) -> R) -> R {
    cached_at(now().0, read)
}

/// Passes the formats of a given second; fast if it equals that of the last call.
pub fn cached_at<R>(seconds: i64, read: impl FnOnce(&Strings) -> R) -> R {
    CACHE.with(|cache| {
        if let Ok(cell) = cache.try_borrow()
            && let Some(strings) = &*cell
            && strings.seconds == seconds
        {
            return read(strings);
        }
        // `read` may log and re-enter: the inner call then renders for itself.
        let Ok(mut cell) = cache.try_borrow_mut() else {
            return read(&Strings::new(seconds, local_offset(seconds)));
        };
        let strings = match &*cell {
            Some(strings) if strings.seconds == seconds => *strings,
            // Offsets change only at quarters of an hour.
            Some(strings) if strings.seconds.div_euclid(900) == seconds.div_euclid(900) => {
                Strings::new(seconds, strings.offset)
            }
            _ => Strings::new(seconds, local_offset(seconds)),
        };
        *cell = Some(strings);
        drop(cell);
        read(&strings)
    })
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or `Sun Nov  6 08:49:37 1994` (RFC 9110,
/// 5.6.7); as nginx, ignores the weekday and trailing text.
pub fn parse_http_time(text: &[u8]) -> Option<i64> {
    let comma = text.iter().position(|c| *c == b',');
    let (head, mut rest) = match comma {
        Some(at) => (text.get(..at)?, text.get(at + 1..)?),
        None => (text, text),
    };
    while let [b' ', tail @ ..] = rest {
        rest = tail;
    }
    let (day, month, year, clock);
    match comma {
        Some(_) if rest.len() >= 18 && rest.get(2) == Some(&b' ') => {
            (day, month, year, clock) = (rest.get(..2)?, rest.get(3..6)?, number(rest.get(7..11)?)?, rest.get(12..)?);
        }
        Some(_) if rest.get(2) == Some(&b'-') => {
            let two = number(rest.get(7..9)?)?;
            let century = if two < 70 { 2000 } else { 1900 };
            (day, month, year, clock) = (rest.get(..2)?, rest.get(3..6)?, two + century, rest.get(10..)?);
        }
        None if text.get(3) == Some(&b' ') => {
            let digits = head.get(8..10)?;
            let digits = if digits.first() == Some(&b' ') { digits.get(1..)? } else { digits };
            (day, month, year, clock) = (digits, head.get(4..7)?, number(head.get(20..24)?)?, head.get(11..)?);
        }
        _ => return None,
    }
    let day = number(day)?;
    let month = month_of(month)?;
    if clock.get(2) != Some(&b':') || clock.get(5) != Some(&b':') {
        return None;
    }
    let (hour, minute) = (number(clock.get(..2)?)?, number(clock.get(3..5)?)?);
    let second = number(clock.get(6..8)?)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if hour > 23 || minute > 59 || second > 59 || day == 0 || day > days {
        return None;
    }
    Some(seconds_of(year, month, day, hour, minute, second))
}

/// Compares only the letters that distinguish the months, as nginx does.
fn month_of(name: &[u8]) -> Option<i64> {
    Some(match *name {
        [b'J', b'a', _] => 1,
        [b'J', _, b'n'] => 6,
        [b'J', ..] => 7,
        [b'F', ..] => 2,
        [b'M', _, b'r'] => 3,
        [b'M', ..] => 5,
        [b'A', b'p', _] => 4,
        [b'A', ..] => 8,
        [b'S', ..] => 9,
        [b'O', ..] => 10,
        [b'N', ..] => 11,
        [b'D', ..] => 12,
        _ => return None,
    })
}

fn number(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0i64, |n, c| c.is_ascii_digit().then(|| n * 10 + i64::from(c - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: i64 = 784_111_777;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).expect("ASCII")
    }

    #[test]
    fn every_form_of_the_example_of_rfc_9110() {
        assert_eq!(text(&http_time(EXAMPLE)), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(&log_time(EXAMPLE, 0)), "06/Nov/1994:08:49:37 +0000");
        assert_eq!(text(&log_time(EXAMPLE, -12_600)), "06/Nov/1994:05:19:37 -0330");
        assert_eq!(text(&iso8601(EXAMPLE, 3600)), "1994-11-06T09:49:37+01:00");
        assert_eq!(text(&error_log_time(EXAMPLE, 0)), "1994/11/06 08:49:37");
        assert_eq!(text(&syslog_time(EXAMPLE, 0)), "Nov  6 08:49:37");
        assert_eq!(text(&syslog_time(EXAMPLE + 10 * 86_400, 0)), "Nov 16 08:49:37");
        let (bytes, length) = cookie_time(EXAMPLE);
        assert_eq!(text(&bytes[..length]), "Sun, 06-Nov-94 08:49:37 GMT");
        let (bytes, length) = cookie_time(2_145_916_800);
        assert_eq!(text(&bytes[..length]), "Fri, 01-Jan-2038 00:00:00 GMT");
        assert_eq!(text(&http_time(i64::MAX)), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn the_three_forms_are_read() {
        for form in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse_http_time(form.as_bytes()), Some(EXAMPLE), "{form}");
        }
        for wrong in [
            "",
            "Sun",
            "Sun, ",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Xoo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08-49-37 GMT",
            "Sun, 06 Nov 19x4 08:49:37 GMT",
            "784111777",
        ] {
            assert_eq!(parse_http_time(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn reading_undoes_writing() {
        let mut seconds: i64 = 0;
        while seconds < SECONDS_MAX {
            assert_eq!(parse_http_time(&http_time(seconds)), Some(seconds));
            seconds += 86_400 * 13 + 12_347;
            if seconds > 8_000_000_000 {
                seconds += 86_400 * 977;
            }
        }
    }

    #[test]
    fn the_cache_follows_the_second() {
        assert_eq!(cached_at(EXAMPLE, |s| s.http), http_time(EXAMPLE));
        assert_eq!(cached_at(EXAMPLE + 1, |s| s.http), http_time(EXAMPLE + 1));
        let inner = cached_at(EXAMPLE, |_| cached_at(EXAMPLE + 5, |s| s.http));
        assert_eq!(inner, http_time(EXAMPLE + 5));
    }
}
