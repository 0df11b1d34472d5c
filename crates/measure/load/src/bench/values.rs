//! Values of options: numbers with units, times, shares, addresses.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use figures::units::{parse_count, parse_seconds, parse_share};

pub(super) fn window(text: &str) -> Result<u32, String> {
    let value = parse_plain(text)?;
    if (65_535.0..=2_147_483_647.0).contains(&value) { Ok(value as u32) } else { Err("65535 to 2147483647".into()) }
}

/// Priority field: urgency 0 to 7 and the incremental flag (RFC 9218, 4).
pub(super) fn priority(text: &str) -> Result<String, String> {
    let is_part = |part: &str| match part.split_once('=') {
        Some(("u", urgency)) => matches!(urgency.as_bytes(), [b'0'..=b'7']),
        Some(("i", incremental)) => matches!(incremental, "?0" | "?1"),
        Some(_) => false,
        None => part == "i",
    };
    let all = text.split(',').all(|part| is_part(part.trim()));
    if all { Ok(text.into()) } else { Err("`u=0` to `u=7`, `i`, or both".into()) }
}

pub fn parse_plain(text: &str) -> Result<f64, String> {
    parse_count(text)
        .filter(|v| *v > 0.0)
        .ok_or_else(|| format!("`{text}` is not a positive number such as 200, 20k or 1.5M"))
}

/// Number of redirects to follow.
pub(super) fn redirects(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|n| (1..=100).contains(n)).ok_or_else(|| format!("`{text}` is not a number from 1 to 100"))
}

/// Rate of a schedule.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_prefix('-').unwrap_or(text);
    match parse_count(number) {
        Some(value) if value == 0.0 || number != text => Err("the rate must be above 0".into()),
        _ => parse_plain(text),
    }
}

pub(super) fn factor(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0).ok_or_else(|| format!("`{text}` is not above 0"))
}

pub fn parse_number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 on"))
}

pub(super) fn table_size(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|n| *n <= 65_536).ok_or_else(|| format!("`{text}` is not a number from 0 to 65536"))
}

pub fn parse_cpu(text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not the number of a CPU"))
}

pub fn parse_pid(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not the number of a process"))
}

/// A status code, a range of them (`200-399`) or a class (`2xx`).
pub(super) fn statuses(text: &str) -> Result<RangeInclusive<u16>, String> {
    let text = text.trim();
    let code = |text: &str| text.parse().ok().filter(|status: &u16| text.len() == 3 && (100..600).contains(status));
    let range = match (text.strip_suffix("xx"), text.split_once('-')) {
        (Some(class), _) => code(&format!("{class}00")).map(|first| first..=first + 99),
        (None, Some((first, last))) => code(first).zip(code(last)).map(|(first, last)| first..=last),
        (None, None) => code(text).map(|status| status..=status),
    };
    let range = range.ok_or_else(|| {
        format!("`{text}` is not a status code from 100 to 599, a range such as 200-399, or a class such as 2xx")
    })?;
    if range.is_empty() { Err(format!("the range `{text}` contains no status code")) } else { Ok(range) }
}

pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is not an IP address with a port, such as 127.0.0.1:8080"))
}

pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not an IP address"))
}

pub(super) fn whole(text: &str) -> Result<usize, String> {
    let value = parse_count(text).filter(|v| v.fract() == 0.0 && *v < 1e15);
    value.map(|v| v as usize).ok_or_else(|| format!("`{text}` is not a whole number"))
}

pub fn parse_positive(text: &str) -> Result<usize, String> {
    whole(text).and_then(|n| if n > 0 { Ok(n) } else { Err(format!("`{text}` is not positive")) })
}

pub fn parse_time(text: &str) -> Result<f64, String> {
    parse_seconds(text).ok_or_else(|| format!("`{text}` is not a time such as 500ms, 10s or 2m"))
}

pub fn positive_time(text: &str) -> Result<f64, String> {
    parse_time(text).and_then(|t| if t > 0.0 { Ok(t) } else { Err("the time must be above 0".into()) })
}

/// Parses a share such as `2%`.
pub fn parse_degradation(text: &str) -> Result<f64, String> {
    parse_share(text).ok_or_else(|| format!("`{text}` is not a share such as 2%"))
}
