//! Numbers, sizes and times (nginx: `ngx_parse.c`, `ngx_conf_set_*_slot`).

use super::word_at;
use crate::complaint::Problem;
use crate::context::Contexts;
use crate::cx::Cx;
use crate::table::ValueKind;
use conf_syntax::Directive;
use std::str::FromStr;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(pub u64);

/// Size of one of nginx's hash tables. 0 is an error in the blocks in which nginx always builds the table: a location
/// may share the one of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HashSize(pub u64);

impl ValueKind for HashSize {
    const SYNTAX: &'static str = Number::SYNTAX;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Number(size) = Number::parse(cx, d)?;
        if size == 0 && (cx.context == Contexts::http || cx.context == Contexts::stream) {
            let name = d.name.text();
            let table = name.trim_end_matches("_max_size").trim_end_matches("_bucket_size");
            return Err(Problem::says(format!("could not build {table}, you should increase {name}: 0")).at(0));
        }
        Ok(HashSize(size))
    }
}

/// Bytes: `512`, `8k`, `1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Value of a `send_lowat` directive, which Linux does not support: a warning, as in nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SendLowat(pub u64);

impl ValueKind for SendLowat {
    const SYNTAX: &'static str = Size::SYNTAX;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Size(bytes) = Size::parse(cx, d)?;
        // Not for the default.
        if !d.is_synthetic() {
            cx.warn(d, format!("\"{}\" is not supported, ignored", d.name.text()));
        }
        Ok(SendLowat(bytes))
    }
}

/// Bytes of a file: as [`Size`], and `g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(pub u64);

/// Time in milliseconds: `500ms`, `30s`, `1m 30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Msec(pub u64);

/// Time in seconds: `30`, `1h`, `30d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sec(pub u64);

impl Msec {
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl Sec {
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

/// `ngx_atoi`: nothing but digits. Rust's `parse` accepts a sign, too.
pub fn parse_decimal<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok().filter(|n| *n <= i64::MAX as u64)
}

fn scaled(text: &[u8], units: &[(u8, u64)]) -> Option<u64> {
    let (last, head) = text.split_last()?;
    match units.iter().find(|(unit, _)| *unit == last.to_ascii_lowercase()) {
        Some((_, factor)) => digits(head)?.checked_mul(*factor).filter(|n| *n <= i64::MAX as u64),
        None => digits(text),
    }
}

/// `ngx_parse_size`: digits, then nothing, `k` or `m`.
pub fn parse_size(text: &[u8]) -> Option<u64> {
    scaled(text, &[(b'k', 1 << 10), (b'm', 1 << 20)])
}

/// `ngx_parse_offset`: as a size, and `g`.
pub fn parse_offset(text: &[u8]) -> Option<u64> {
    scaled(text, &[(b'k', 1 << 10), (b'm', 1 << 20), (b'g', 1 << 30)])
}

/// Milliseconds; a bare number is seconds.
pub fn parse_msec(text: &[u8]) -> Option<u64> {
    parse_time(text, false)
}

pub fn parse_sec(text: &[u8]) -> Option<u64> {
    parse_time(text, true)
}

/// `ngx_parse_time`: descending units, each once: `y M w d h m s ms`. Times in milliseconds have no years and months.
fn parse_time(text: &[u8], seconds: bool) -> Option<u64> {
    const UNITS: [(&[u8], u64); 8] = [
        (b"y", 365 * 86_400),
        (b"M", 30 * 86_400),
        (b"w", 7 * 86_400),
        (b"d", 86_400),
        (b"h", 3_600),
        (b"m", 60),
        (b"s", 1),
        (b"ms", 0),
    ];
    let factor: u64 = if seconds { 1 } else { 1000 };
    let mut total: u64 = 0;
    let mut next_unit = if seconds { 0 } else { 2 };
    let mut rest = text;
    let mut any = false;
    while !rest.is_empty() {
        if rest[0] == b' ' && any {
            rest = &rest[1..];
            continue;
        }
        let end = rest.iter().position(|c| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = digits(&rest[..end])?;
        rest = &rest[end..];
        let (unit, length) = match rest {
            [] => (6, 0),
            [b' ', ..] => (6, 1),
            [b'm', b's', ..] => (7, 2),
            [c, ..] => (UNITS.iter().position(|(u, _)| *u == [*c])?, 1),
        };
        rest = &rest[length..];
        if unit < next_unit || (unit == 7 && seconds) {
            return None;
        }
        next_unit = unit + 1;
        let add = if unit == 7 { number } else { number.checked_mul(UNITS[unit].1)?.checked_mul(factor)? };
        total = total.checked_add(add)?;
        any = true;
    }
    any.then_some(total).filter(|n| *n <= i64::MAX as u64)
}

macro_rules! scalar {
    ($Name:ident, $syntax:literal, $parse:expr, $wrong:expr) => {
        impl ValueKind for $Name {
            const SYNTAX: &'static str = $syntax;
            fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
                $parse(&word_at(d, 0)?.bytes).map($Name).ok_or_else(|| $wrong.at(0))
            }
        }
    };
}

scalar!(Number, "number", digits, Problem::directive("invalid number").hint("write a whole number, 0 or more"));
scalar!(Size, "size", parse_size, Problem::invalid().hint("write a size such as 512, 8k or 1m"));
scalar!(Offset, "size", parse_offset, Problem::invalid().hint("write a size such as 512, 8k, 1m or 2g"));
scalar!(Msec, "time", parse_msec, Problem::invalid().hint("write a time such as 500ms, 30s, 5m or 1h30m"));
scalar!(Sec, "time", parse_sec, Problem::invalid().hint("write a time such as 30s, 5m, 1h or 30d"));

/// A number with bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between<const LOW: u64, const HIGH: u64>(pub u64);

impl<const LOW: u64, const HIGH: u64> ValueKind for Between<LOW, HIGH> {
    const SYNTAX: &'static str = "number";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        match digits(&word_at(d, 0)?.bytes) {
            Some(n) if (LOW..=HIGH).contains(&n) => Ok(Between(n)),
            Some(_) if HIGH == u64::MAX => {
                Err(Problem::says(format!("value must be equal to or greater than {LOW}")).at(0))
            }
            Some(_) => Err(Problem::says(format!("value must be between {LOW} and {HIGH}")).at(0)),
            None => Err(Problem::directive("invalid number").at(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_nginx_reads_them() {
        for (text, want) in [
            ("0", Some(0)),
            ("10", Some(10_000)),
            ("1ms", Some(1)),
            ("1s500ms", Some(1500)),
            ("1m 30s", Some(90_000)),
            ("1h", Some(3_600_000)),
            ("4w", Some(28 * 86_400_000)),
            ("1M", None),
            ("1y", None),
            ("30s1m", None),
            ("1x", None),
            ("", None),
            ("-1", None),
            ("s", None),
            ("1m1m", None),
        ] {
            assert_eq!(parse_msec(text.as_bytes()), want, "{text}");
        }
        assert_eq!(parse_sec(b"1d"), Some(86_400));
        assert_eq!(parse_sec(b"1y1M"), Some(395 * 86_400));
        assert_eq!(parse_sec(b"1ms"), None);
    }

    #[test]
    fn sizes_have_units() {
        for (text, want) in
            [("8k", Some(8192)), ("1M", Some(1 << 20)), ("1g", None), ("k", None), ("99999999999999999999", None)]
        {
            assert_eq!(parse_size(text.as_bytes()), want, "{text}");
        }
        assert_eq!(parse_offset(b"2G"), Some(2 << 30));
    }
}
