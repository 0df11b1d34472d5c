//! Formats of numbers: `xsl:number` and `format-number` (sections 7.7.1 and 12.3), as libxslt writes them.

use crate::sheet::DecimalFormat;

/// Longest number in digits: wider formats are cut.
const WIDTH_MAX: usize = 400;

struct PictureToken {
    separator: String,
    kind: char,
    width: usize,
}

/// Formats the numbers of `xsl:number`.
pub(crate) fn number_list(numbers: &[f64], format: &str, separator: &str, group: usize) -> String {
    let mut tokens: Vec<PictureToken> = Vec::new();
    let (mut start, mut gap) = (String::new(), String::new());
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if !c.is_alphanumeric() {
            gap.push(c);
            continue;
        }
        let mut word = vec![c];
        while let Some(c) = chars.next_if(|c| c.is_alphanumeric()) {
            word.push(c);
        }
        let digits = word.iter().take_while(|c| **c == '0').count();
        let token = match word.as_slice() {
            [kind @ ('a' | 'A' | 'i' | 'I')] => (*kind, 1),
            _ if word.get(digits) == Some(&'1') && digits + 1 == word.len() => ('1', (digits + 1).min(WIDTH_MAX)),
            _ => ('1', 1),
        };
        let separator = std::mem::take(&mut gap);
        if tokens.is_empty() {
            start = separator.clone();
        }
        tokens.push(PictureToken { separator, kind: token.0, width: token.1 });
    }
    // A format without a token is a prefix.
    let (mut out, end) = if tokens.is_empty() { (gap, String::new()) } else { (start, gap) };
    for (at, number) in numbers.iter().enumerate() {
        let token = tokens.get(at).or(tokens.last());
        if at > 0 {
            // The first token has no separator of its own.
            let separator = token.filter(|_| tokens.len() > 1 || at < tokens.len()).map_or(".", |t| &t.separator);
            out.push_str(if separator.is_empty() { "." } else { separator });
        }
        let (kind, width) = token.map_or(('1', 1), |token| (token.kind, token.width));
        let number = (number + 0.5).floor();
        if number.is_nan() {
            out.push_str("NaN");
        } else if number.is_infinite() {
            out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
        } else {
            match kind {
                'a' | 'A' if number >= 1.0 => alphabetic(&mut out, number, kind),
                'i' | 'I' if (1.0..=5000.0).contains(&number) => roman(&mut out, number as u32, kind),
                _ => decimal(&mut out, number, '0', width, group, separator),
            }
        }
    }
    out.push_str(&end);
    out
}

fn alphabetic(out: &mut String, number: f64, first: char) {
    let mut letters = Vec::new();
    let mut rest = number;
    while rest >= 1.0 && letters.len() < 32 {
        rest -= 1.0;
        letters.push((first as u8 + (rest % 26.0) as u8) as char);
        rest = (rest / 26.0).floor();
    }
    out.extend(letters.into_iter().rev());
}

fn roman(out: &mut String, mut number: u32, kind: char) {
    const SIGNS: &[(u32, &str)] = &[
        (1000, "m"),
        (900, "cm"),
        (500, "d"),
        (400, "cd"),
        (100, "c"),
        (90, "xc"),
        (50, "l"),
        (40, "xl"),
        (10, "x"),
        (9, "ix"),
        (5, "v"),
        (4, "iv"),
        (1, "i"),
    ];
    for (value, sign) in SIGNS {
        while number >= *value {
            number -= value;
            match kind {
                'I' => out.push_str(&sign.to_uppercase()),
                _ => out.push_str(sign),
            }
        }
    }
}

/// Digits of a whole number, at least `width` of them, in groups.
fn decimal(out: &mut String, number: f64, zero: char, width: usize, group: usize, separator: &str) {
    let text = format!("{:.0}", number.abs());
    let digits = if number.abs() < 1.0 { "" } else { text.as_str() };
    let padded = format!("{}{digits}", "0".repeat(width.saturating_sub(digits.len())));
    if number <= -1.0 {
        out.push('-');
    }
    let count = padded.len();
    for (at, digit) in padded.bytes().enumerate() {
        if at > 0 && group > 0 && (count - at) % group == 0 {
            out.push_str(separator);
        }
        out.push(char::from_u32(zero as u32 + u32::from(digit - b'0')).unwrap_or('0'));
    }
}

/// Parsed half of a picture.
#[derive(Default)]
struct Picture {
    prefix: String,
    suffix: String,
    hashes: usize,
    digits: usize,
    fraction_digits: usize,
    fraction_hashes: usize,
    group: Option<usize>,
    multiplier: f64,
}

/// `format-number`.
pub(crate) fn format_number(number: f64, picture: &str, format: &DecimalFormat) -> String {
    if number.is_nan() {
        return format.nan.clone();
    }
    if number.is_infinite() {
        let sign = if number < 0.0 { format.minus.to_string() } else { String::new() };
        return sign + &format.infinity;
    }
    let (mut parsed, rest) = match parse(picture, format) {
        Some(parsed) => parsed,
        None => {
            let fallback =
                Picture { digits: 1, fraction_digits: 1, fraction_hashes: 4, multiplier: 1.0, ..Picture::default() };
            (fallback, "")
        }
    };
    let mut sign = false;
    if number < 0.0 {
        sign = true;
        if let Some((negative, _)) = rest.strip_prefix(format.separator).and_then(|rest| parse(rest, format))
            && (negative.prefix != parsed.prefix || negative.suffix != parsed.suffix)
        {
            sign = false;
            (parsed.prefix, parsed.suffix) = (negative.prefix, negative.suffix);
        }
    }
    if parsed.digits + parsed.fraction_digits == 0 {
        match parsed.fraction_hashes {
            // As Java does: ".#" is ".0".
            hashes if parsed.hashes == 0 && hashes > 0 => {
                (parsed.fraction_digits, parsed.fraction_hashes) = (1, hashes - 1);
            }
            _ => parsed.digits = 1,
        }
    }
    let mut out = String::new();
    let value = number.abs() * parsed.multiplier;
    let places = parsed.fraction_digits + parsed.fraction_hashes;
    let scale = 10f64.powi(places.min(300) as i32);
    let scaled = value * scale;
    let value = if scaled.is_finite() && scaled < 1e15 { (scaled + 0.5).floor() / scale } else { value };
    let whole = value.floor();
    decimal(&mut out, whole, format.zero, parsed.digits, parsed.group.unwrap_or(0), &format.grouping.to_string());
    let fraction = value - whole;
    if fraction != 0.0 || parsed.fraction_digits > 0 {
        let mut digits = ((fraction * scale) + 0.5).floor();
        let mut kept = parsed.fraction_hashes;
        while kept > 0 && digits % 10.0 < 1.0 {
            digits = (digits / 10.0).floor();
            kept -= 1;
        }
        out.push(format.decimal);
        decimal(&mut out, digits, format.zero, parsed.fraction_digits + kept, 0, "");
    }
    let sign = if sign { format.minus.to_string() } else { String::new() };
    format!("{sign}{}{out}{}", parsed.prefix, parsed.suffix)
}

/// Parses a picture up to its separator. `None`: it is not valid.
fn parse<'t>(text: &'t str, format: &DecimalFormat) -> Option<(Picture, &'t str)> {
    let mut picture = Picture { multiplier: 1.0, ..Picture::default() };
    let mut rest = text;
    (picture.prefix, rest) = affix(rest, format, &mut picture.multiplier, true)?;
    let next = |rest: &str| rest.chars().next();
    while let Some(c) = next(rest) {
        if c == format.digit {
            if picture.digits > 0 {
                return None;
            }
            picture.hashes += 1;
            picture.group = picture.group.map(|n| n + 1);
        } else if c == format.zero {
            picture.digits += 1;
            picture.group = picture.group.map(|n| n + 1);
        } else if c == format.grouping {
            picture.group = Some(0);
        } else {
            break;
        }
        rest = rest.get(c.len_utf8()..)?;
    }
    if let Some(after) = rest.strip_prefix(format.decimal) {
        rest = after;
        while let Some(c) = next(rest) {
            if c == format.zero {
                if picture.fraction_hashes > 0 {
                    return None;
                }
                picture.fraction_digits += 1;
            } else if c == format.digit {
                picture.fraction_hashes += 1;
            } else if c != format.grouping {
                break;
            }
            rest = rest.get(c.len_utf8()..)?;
        }
    }
    if picture.digits.max(picture.fraction_digits) > WIDTH_MAX {
        return None;
    }
    (picture.suffix, rest) = affix(rest, format, &mut picture.multiplier, false)?;
    Some((picture, rest))
}

/// Text in front of, or behind, the digits.
fn affix<'t>(
    text: &'t str,
    format: &DecimalFormat,
    multiplier: &mut f64,
    is_prefix: bool,
) -> Option<(String, &'t str)> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        let special = [format.digit, format.zero, format.grouping, format.decimal].contains(&c);
        if c == format.separator || (is_prefix && special) {
            break;
        }
        rest = rest.get(c.len_utf8()..)?;
        if c == '\'' {
            match rest.chars().next() {
                Some(quoted) => {
                    out.push(quoted);
                    rest = rest.get(quoted.len_utf8()..)?;
                    rest = rest.strip_prefix('\'').unwrap_or(rest);
                    continue;
                }
                None => return None,
            }
        }
        if special {
            return None;
        }
        if c == format.percent || c == format.per_mille {
            if *multiplier != 1.0 {
                return None;
            }
            *multiplier = if c == format.percent { 100.0 } else { 1000.0 };
        }
        out.push(c);
    }
    Some((out, rest))
}
