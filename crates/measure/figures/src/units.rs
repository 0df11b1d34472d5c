//! Number formats of reports (counts, rates, times, sizes, shares, money), and their parsers for command lines.

use std::sync::atomic::{AtomicBool, Ordering};

/// Unit of a number: times in seconds, sizes in bytes, shares from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    PerSecond,
    Seconds,
    Bytes,
    Share,
    Dollars,
    Plain,
}

impl Unit {
    pub fn write(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".into();
        }
        match self {
            Unit::Count => format_count(value),
            Unit::PerSecond => format!("{}/s", format_count(value)),
            Unit::Seconds => format_seconds(value),
            Unit::Bytes => format_bytes(value),
            Unit::Share => format!("{} %", format_significant(value * 100.0)),
            Unit::Dollars => format_dollars(value),
            Unit::Plain => format_significant(value),
        }
    }
}

/// Three significant digits without trailing zeros: 0.0123, 1.23, 12.3, 123, 12300.
pub fn format_significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { "–".into() };
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// 950, 12.3k, 4.56M, 7.89G.
pub fn format_count(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T"])
}

/// 950 B, 12.3 kB, 4.56 MB (powers of 1,000).
pub fn format_bytes(value: f64) -> String {
    scaled(value, 1000.0, &[" B", " kB", " MB", " GB", " TB"])
}

static MILLISECONDS: AtomicBool = AtomicBool::new(false);

/// Makes [`format_seconds`] write milliseconds throughout, so that columns compare without reading units.
pub fn times_in_milliseconds(on: bool) {
    MILLISECONDS.store(on, Ordering::Relaxed);
}

/// 1.23 µs, 45.6 ms, 7.89 s, 2 min.
pub fn format_seconds(value: f64) -> String {
    let v = value.abs();
    if MILLISECONDS.load(Ordering::Relaxed) {
        return format!("{:.3} ms", value * 1e3);
    }
    match () {
        () if v == 0.0 => "0 s".into(),
        () if v < 999.5e-9 => format!("{} ns", format_significant(value * 1e9)),
        () if v < 999.5e-6 => format!("{} µs", format_significant(value * 1e6)),
        () if v < 0.9995 => format!("{} ms", format_significant(value * 1e3)),
        () if v < 600.0 => format!("{} s", format_significant(value)),
        () if v < 36_000.0 => format!("{} min", format_significant(value / 60.0)),
        () => format!("{} h", format_significant(value / 3600.0)),
    }
}

/// $0.153, $12.40, $1,234.
pub fn format_dollars(value: f64) -> String {
    let v = value.abs();
    let text = if v >= 1000.0 {
        format_grouped(value.round() as i64)
    } else if v >= 10.0 || v == 0.0 {
        format!("{value:.2}")
    } else if v >= 0.1 {
        format!("{value:.3}")
    } else {
        format_significant(value)
    };
    format!("${text}")
}

/// 1,234,567.
pub fn format_grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if value < 0 { format!("-{out}") } else { out }
}

/// 1 server, 2 servers, 1,234 servers.
pub fn format_counted(number: u64, one: &str, more: &str) -> String {
    format!("{} {}", format_grouped(number.min(i64::MAX as u64) as i64), if number == 1 { one } else { more })
}

fn scaled(value: f64, base: f64, names: &[&str]) -> String {
    let (mut v, mut i) = (value, 0);
    while v.abs() >= base * 0.9995 && i + 1 < names.len() {
        v /= base;
        i += 1;
    }
    format!("{}{}", format_significant(v), names[i])
}

/// Reads a time such as `500ms`, `1.5s`, `2m`, `1h`, `250us`; a bare number is seconds. Refuses negative times.
pub fn parse_seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let cut = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..cut].parse().ok()?;
    let factor = match text[cut..].trim() {
        "" | "s" | "sec" => 1.0,
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Some(number * factor).filter(|v| v.is_finite())
}

/// Reads a count such as `200`, `20k`, `1.5M`, `10_000`.
pub fn parse_count(text: &str) -> Option<f64> {
    let text = text.trim().replace(['_', ','], "");
    let (number, factor) = match text.char_indices().last()? {
        (i, 'k' | 'K') => (&text[..i], 1e3),
        (i, 'M' | 'm') => (&text[..i], 1e6),
        (i, 'G' | 'g') => (&text[..i], 1e9),
        _ => (&text[..], 1.0),
    };
    number.parse::<f64>().ok().map(|n| n * factor).filter(|v| v.is_finite() && *v >= 0.0)
}

/// Reads a share: `66%`, `0.66`.
pub fn parse_share(text: &str) -> Option<f64> {
    match text.trim().strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().ok().map(|v| v / 100.0),
        None => text.trim().parse().ok(),
    }
    .filter(|v: &f64| v.is_finite() && *v >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_words() {
        assert_eq!(format_count(0.0), "0");
        assert_eq!(format_count(999.9), "1k");
        assert_eq!(format_count(12_345.0), "12.3k");
        assert_eq!(Unit::PerSecond.write(500_000.0), "500k/s");
        assert_eq!(format_seconds(0.0011), "1.1 ms");
        assert_eq!(format_seconds(999.6e-6), "1 ms");
        assert_eq!(format_seconds(80.0), "80 s");
        assert_eq!(format_bytes(17_000_000.0), "17 MB");
        assert_eq!(format_dollars(0.153), "$0.153");
        assert_eq!(format_dollars(1_234_567.0), "$1,234,567");
        assert_eq!(Unit::Share.write(0.661), "66.1 %");
        assert_eq!(Unit::Count.write(f64::NAN), "–");
        assert_eq!(format_grouped(-1234), "-1,234");
        assert_eq!(format_counted(1, "process", "processes"), "1 process");
        assert_eq!(format_counted(1234, "process", "processes"), "1,234 processes");
    }

    #[test]
    fn words_into_numbers() {
        assert_eq!(parse_seconds("500ms"), Some(0.5));
        assert_eq!(parse_seconds("2m"), Some(120.0));
        assert_eq!(parse_seconds("5"), Some(5.0));
        assert_eq!(parse_seconds("5 parsecs"), None);
        assert_eq!(parse_seconds("-1s"), None);
        assert_eq!(parse_count("20k"), Some(20_000.0));
        assert_eq!(parse_count("10_000"), Some(10_000.0));
        assert_eq!(parse_count("k"), None);
        assert_eq!(parse_share("66%"), Some(0.66));
    }
}
