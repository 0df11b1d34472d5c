//! Numbers and their texts, as in libxml2: 15 significant digits, and exponents below 1e-5 and above 1e9.

/// Number at the start of a text, and its length in bytes.
pub(crate) fn literal(text: &str) -> (f64, usize) {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes.iter().skip(from).take_while(|b| b.is_ascii_digit()).count();
    let whole = digits(0);
    let mut value = bytes.iter().take(whole).fold(0.0, |sum, b| sum * 10.0 + f64::from(b - b'0'));
    let mut at = whole;
    if bytes.get(at) == Some(&b'.') {
        at += 1;
        let length = digits(at);
        let zeros = bytes.iter().skip(at).take(length).take_while(|b| **b == b'0').count();
        let used = length.min(zeros + 20);
        let fraction = bytes.iter().skip(at).take(used).fold(0.0, |sum, b| sum * 10.0 + f64::from(b - b'0'));
        if used > 0 {
            value += fraction / 10f64.powi(used as i32);
        }
        at += length;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let negative = bytes.get(at + 1) == Some(&b'-');
        let signed = usize::from(negative || bytes.get(at + 1) == Some(&b'+'));
        let length = digits(at + 1 + signed);
        let exponent = bytes
            .iter()
            .skip(at + 1 + signed)
            .take(length)
            .fold(0i32, |sum, b| sum.saturating_mul(10).saturating_add(i32::from(b - b'0')).min(1_000_000));
        at += 1 + signed + length;
        value *= 10f64.powf(f64::from(if negative { -exponent } else { exponent }));
    }
    (value, at)
}

/// The function `number` of a string (XPath 1.0, section 4.4).
pub(crate) fn parse(text: &str) -> f64 {
    let space = [' ', '\t', '\n', '\r'];
    let text = text.trim_matches(space);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let bytes = digits.as_bytes();
    let starts = matches!(bytes, [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..]);
    if !starts {
        return f64::NAN;
    }
    let (value, length) = literal(digits);
    match length == digits.len() {
        true if negative => -value,
        true => value,
        false => f64::NAN,
    }
}

/// The function `string` of a number.
pub(crate) fn text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    if number == 0.0 {
        return "0".into();
    }
    if number.fract() == 0.0 && number > -2_147_483_648.0 && number < 2_147_483_647.0 {
        return format!("{}", number as i64);
    }
    let size = number.abs();
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if !(1e-5..=1e9).contains(&size) {
        let shown = format!("{number:.14e}");
        let (mantissa, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let place = size.log10().trunc() as i32;
    let decimals = if place > 0 { 15 - place - 1 } else { 15 - place };
    trim(&format!("{number:.*}", decimals.max(0) as usize))
}

/// The function `round`: halves go up.
pub(crate) fn round(number: f64) -> f64 {
    if (-0.5..0.5).contains(&number) {
        return number * 0.0;
    }
    let floor = number.floor();
    if number - floor >= 0.5 { floor + 1.0 } else { floor }
}
