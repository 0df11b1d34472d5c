//! Numbers, times and sizes for people.

/// With thin spaces between thousands.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 * 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Writes a number with three significant digits at most, as far as they are behind the point.
pub fn format_decimal(value: f64) -> String {
    match value {
        v if v >= 100.0 => format_count(v.round() as u64),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v > 0.0 && v < 0.01 => "<0.01".into(),
        v => {
            let text = format!("{v:.2}");
            text.strip_suffix(".00").map_or(text.clone(), ToString::to_string)
        }
    }
}

/// Writes a count with its noun: `one` for 1, `many` for all other counts.
pub fn format_counted(number: u64, one: &str, many: &str) -> String {
    format!("{}\u{a0}{}", format_count(number), if number == 1 { one } else { many })
}

/// Returns the noun for a number that [`format_decimal`] shows as 1, or for all others.
pub fn choose_noun(value: Option<f64>, one: &'static str, many: &'static str) -> &'static str {
    if value.is_some_and(|value| format_decimal(value) == "1") { one } else { many }
}

pub fn format_bytes(bytes: u64) -> String {
    let (number, unit) = scale_bytes(bytes as f64);
    if unit == "B" { format!("{bytes}\u{a0}B") } else { format!("{number}\u{a0}{unit}") }
}

pub fn scale_bytes(bytes: f64) -> (String, &'static str) {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    (format_decimal(value), UNITS.get(unit).copied().unwrap_or_default())
}

pub fn format_millis(ms: f64) -> String {
    if ms >= 1000.0 {
        format!("{}\u{a0}s", format_decimal(ms / 1000.0))
    } else {
        format!("{}\u{a0}ms", format_decimal(ms))
    }
}

/// In its two largest units.
pub fn format_duration(seconds: u64) -> String {
    let parts = [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let first = parts.iter().position(|(n, _)| *n > 0).unwrap_or(3);
    let shown = parts.iter().skip(first).take(2).filter(|(n, _)| *n > 0 || seconds == 0);
    shown.map(|(n, unit)| format!("{n}\u{a0}{unit}")).collect::<Vec<_>>().join(" ")
}

/// In milliseconds.
pub fn format_ago(at: u64, now: u64) -> String {
    match now.saturating_sub(at) / 1000 {
        0 => "now".into(),
        seconds if seconds < 60 => format!("{seconds}\u{a0}s ago"),
        seconds if seconds < 3600 => format!("{}\u{a0}min ago", seconds / 60),
        seconds if seconds < 172_800 => format!("{}\u{a0}h ago", seconds / 3600),
        seconds => format!("{}\u{a0}d ago", seconds / 86_400),
    }
}

/// As UTC, to the second.
pub fn format_time(ms: u64) -> String {
    let text = observe::clock::iso8601(i64::try_from(ms / 1000).unwrap_or(0), 0);
    let text = String::from_utf8_lossy(&text);
    format!("{} UTC", text.get(..19).unwrap_or_default().replace('T', " "))
}

pub fn format_percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.1 => "<0.1\u{a0}%".into(),
        p if p >= 99.95 || p == 0.0 => format!("{p:.0}\u{a0}%"),
        p => format!("{p:.1}\u{a0}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [format_count(0), format_count(999), format_count(1_234_567)],
            ["0", "999", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!(
            [0.0, 0.001, 0.25, 3.0, 12.34, 1234.5].map(format_decimal),
            ["0", "<0.01", "0.25", "3", "12.3", "1\u{202f}235"]
        );
        assert_eq!(
            [format_bytes(0), format_bytes(999), format_bytes(1536), format_bytes(5 << 30)],
            ["0\u{a0}B", "999\u{a0}B", "1.50\u{a0}KiB", "5\u{a0}GiB"]
        );
        assert_eq!([format_millis(7.0), format_millis(1500.0)], ["7\u{a0}ms", "1.50\u{a0}s"]);
        assert_eq!(
            [format_duration(0), format_duration(61), format_duration(90_000)],
            ["0\u{a0}s", "1\u{a0}min 1\u{a0}s", "1\u{a0}d 1\u{a0}h"]
        );
        assert_eq!(
            [format_ago(5, 10), format_ago(0, 59_000), format_ago(0, 200_000_000)],
            ["now", "59\u{a0}s ago", "2\u{a0}d ago"]
        );
        assert_eq!(
            [format_percent(0.0), format_percent(0.0001), format_percent(0.5), format_percent(1.0)],
            ["0\u{a0}%", "<0.1\u{a0}%", "50.0\u{a0}%", "100\u{a0}%"]
        );
        let turns = |number| format_counted(number, "turn", "turns");
        assert_eq!([turns(0), turns(1), turns(1000)], ["0\u{a0}turns", "1\u{a0}turn", "1\u{202f}000\u{a0}turns"]);
        assert_eq!([1.0, 1.001, 0.5].map(|value| choose_noun(Some(value), "turn", "turns")), ["turn", "turn", "turns"]);
        assert_eq!(format_time(1_656_415_544_067), "2022-06-28 11:25:44 UTC");
    }
}
