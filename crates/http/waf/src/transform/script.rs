//! Escapes of JavaScript, CSS, C strings and HTML.

use super::unicode::narrow_full_width;
use super::{byte_at, hex_pair, hex_value, is_space};

/// Octal digits at `index`, at most three: their value and number.
fn octal(input: &[u8], index: usize) -> (u32, usize) {
    let digits = input.iter().skip(index).take(3).take_while(|byte| matches!(byte, b'0'..=b'7'));
    digits.fold((0, 0), |(value, count), byte| (value * 8 + u32::from(byte - b'0'), count + 1))
}

/// The control character of a letter behind a backslash.
fn control(letter: u8) -> Option<u8> {
    Some(match letter {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        _ => return None,
    })
}

/// Decodes `\uHHHH` (the lower byte; full-width ASCII becomes ASCII), `\xHH`, `\OOO` up to one byte, and `\C`.
pub fn js_decode(input: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'\\', input)?;
    let mut out = Vec::with_capacity(input.len());
    let mut index = 0;
    while let Some(&byte) = input.get(index) {
        let Some(&next) = input.get(index + 1).filter(|_| byte == b'\\') else {
            out.push(byte);
            index += 1;
            continue;
        };
        let wide = (next == b'u').then(|| Some((hex_pair(input, index + 2)?, hex_pair(input, index + 4)?))).flatten();
        let pair = (next == b'x').then(|| hex_pair(input, index + 2)).flatten();
        let (value, digits) = octal(input, index + 1);
        if let Some((high, low)) = wide {
            out.push(narrow_full_width(u16::from(high) << 8 | u16::from(low)));
            index += 6;
        } else if let Some(decoded) = pair {
            out.push(decoded);
            index += 4;
        } else if digits > 0 {
            // Three digits may exceed a byte: then only two count.
            let (value, digits) = if value > 0xff { (value >> 3, 2) } else { (value, digits) };
            out.push(value as u8);
            index += 1 + digits;
        } else {
            out.push(control(next).unwrap_or(next));
            index += 2;
        }
    }
    (out != input).then_some(out)
}

/// Decodes the escapes of ANSI C: letters, `\xHH`, `\OOO`; of other escapes the character stays.
pub fn escape_seq_decode(input: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'\\', input)?;
    let mut out = Vec::with_capacity(input.len());
    let mut index = 0;
    while let Some(&byte) = input.get(index) {
        let Some(&next) = input.get(index + 1).filter(|_| byte == b'\\') else {
            out.push(byte);
            index += 1;
            continue;
        };
        let pair = matches!(next, b'x' | b'X').then(|| hex_pair(input, index + 2)).flatten();
        let (value, digits) = octal(input, index + 1);
        if let Some(decoded) = pair {
            out.push(decoded);
            index += 4;
        } else if digits > 0 {
            out.push(value as u8);
            index += 1 + digits;
        } else {
            out.push(control(next).unwrap_or(next));
            index += 2;
        }
    }
    (out != input).then_some(out)
}

/// Decodes CSS's escapes of one to six digits (the lower byte; full-width ASCII becomes ASCII); a newline behind a
/// backslash disappears, and so does a last backslash.
pub fn css_decode(input: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'\\', input)?;
    let mut out = Vec::with_capacity(input.len());
    let mut index = 0;
    while let Some(&byte) = input.get(index) {
        index += 1;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let rest = input.get(index..).unwrap_or_default();
        let digits = rest.iter().take(6).take_while(|byte| hex_value(**byte).is_some()).count();
        if digits > 0 {
            let code = rest.iter().take(digits).filter_map(|byte| hex_value(*byte));
            let code = code.fold(0_u32, |code, digit| code << 4 | u32::from(digit));
            let is_full_width = digits >= 4 && code >> 16 == 0;
            out.push(if is_full_width { narrow_full_width(code as u16) } else { code as u8 });
            index += digits;
            // One white space ends an escape.
            if input.get(index).is_some_and(|byte| is_space(*byte)) {
                index += 1;
            }
        } else if let Some(&next) = rest.first() {
            if next != b'\n' {
                out.push(next);
            }
            index += 1;
        }
    }
    (out != input).then_some(out)
}

/// Character references by name, and their byte. As in ModSecurity, a longer name with such a beginning also counts.
const ENTITIES: [(&[u8], u8); 5] = [(b"quot", b'"'), (b"amp", b'&'), (b"lt", b'<'), (b"gt", b'>'), (b"nbsp", 0xa0)];

/// Decodes one reference behind `&`: its byte and length without the `&`.
fn entity(rest: &[u8]) -> Option<(u8, usize)> {
    let (value, length) = if rest.first() == Some(&b'#') {
        let is_hex = matches!(byte_at(rest, 1), b'x' | b'X');
        let (start, radix) = if is_hex { (2, 16) } else { (1, 10) };
        let digits = rest.iter().skip(start).map_while(|byte| (*byte as char).to_digit(radix));
        // As C's strtol: any number of digits, and the lower byte of the largest number if they are too many.
        let (value, count) = digits.fold((0_u64, 0), |(value, count), digit| {
            (value.saturating_mul(u64::from(radix)).saturating_add(u64::from(digit)), count + 1)
        });
        if count == 0 {
            return None;
        }
        (value as u8, start + count)
    } else {
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        let name = rest.get(..length)?;
        let known = |known: &[u8]| name.get(..known.len()).is_some_and(|head| head.eq_ignore_ascii_case(known));
        let (_, byte) = ENTITIES.iter().find(|(entity, _)| known(entity))?;
        (*byte, length)
    };
    let semicolon = usize::from(rest.get(length) == Some(&b';'));
    Some((value, length + semicolon))
}

/// Decodes character references of one byte: `&#60;`, `&#x3c;`, `&lt;`, also without the semicolon.
pub fn html_entity_decode(input: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'&', input)?;
    let mut out = Vec::with_capacity(input.len());
    let mut index = 0;
    while let Some(&byte) = input.get(index) {
        index += 1;
        let found = (byte == b'&').then(|| entity(input.get(index..).unwrap_or_default())).flatten();
        match found {
            Some((decoded, length)) => {
                out.push(decoded);
                index += length;
            }
            None => out.push(byte),
        }
    }
    (out != input).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javascript_escapes_are_decoded() {
        assert_eq!(js_decode(b"\\x61\\u0062\\143\\uff1c\\n\\q").as_deref(), Some(&b"abc<\nq"[..]));
        assert_eq!(js_decode(b"\\777\\").as_deref(), Some(&b"?7\\"[..]));
    }

    #[test]
    fn c_escapes_are_decoded() {
        assert_eq!(escape_seq_decode(b"\\a\\x41\\101\\u0").as_deref(), Some(&b"\x07AAu0"[..]));
    }

    #[test]
    fn css_escapes_are_decoded() {
        assert_eq!(css_decode(b"\\6a\\61 v\\\nx\\").as_deref(), Some(&b"javx"[..]));
        assert_eq!(css_decode(b"j\\61vascript").as_deref(), Some(&b"javascript"[..]));
        assert_eq!(css_decode(b"\\ff21\\00ff22\\1ff23").as_deref(), Some(&b"AB#"[..]));
    }

    #[test]
    fn character_references_are_decoded() {
        assert_eq!(html_entity_decode(b"&lt;&#x3c&#0060;&amp;&Quotx&bogus;&").as_deref(), Some(&b"<<<&\"&bogus;&"[..]));
    }
}
