//! Percent-encoding, with IIS's `%uHHHH`.

use super::unicode::{UnicodeMap, narrow_full_width};
use super::{byte_at, hex_pair};

/// Decodes `%HH` and `+`; invalid sequences stay. Also returns the number of invalid sequences.
pub fn decode_counted(input: &[u8]) -> (Vec<u8>, u32) {
    let mut out = Vec::with_capacity(input.len());
    let mut invalid = 0;
    let mut index = 0;
    while let Some(&byte) = input.get(index) {
        index += 1;
        match byte {
            b'+' => out.push(b' '),
            b'%' => match hex_pair(input, index) {
                Some(decoded) => {
                    out.push(decoded);
                    index += 2;
                }
                None => {
                    invalid += 1;
                    out.push(b'%');
                }
            },
            _ => out.push(byte),
        }
    }
    (out, invalid)
}

pub fn decode(input: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr2(b'%', b'+', input)?;
    let (out, _) = decode_counted(input);
    (out != input).then_some(out)
}

/// Decodes a path: `%HH` only, `+` stays.
pub fn decode_path(input: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(input.len());
    let mut index = 0;
    while let Some(&byte) = input.get(index) {
        match hex_pair(input, index + 1) {
            Some(decoded) if byte == b'%' => {
                out.push(decoded);
                index += 3;
            }
            _ => {
                out.push(byte);
                index += 1;
            }
        }
    }
    out
}

/// Decodes `%HH`, `%uHHHH` and `+`. A mapped code point of `map` becomes its byte; others keep their lower byte, and
/// full-width ASCII becomes ASCII.
pub fn decode_unicode(input: &[u8], map: Option<&UnicodeMap>) -> Option<Vec<u8>> {
    memchr::memchr2(b'%', b'+', input)?;
    let mut out = Vec::with_capacity(input.len());
    let mut index = 0;
    while let Some(&byte) = input.get(index) {
        if byte != b'%' {
            out.push(if byte == b'+' { b' ' } else { byte });
            index += 1;
        } else if matches!(byte_at(input, index + 1), b'u' | b'U') {
            match (hex_pair(input, index + 2), hex_pair(input, index + 4)) {
                (Some(high), Some(low)) => {
                    let code = u16::from(high) << 8 | u16::from(low);
                    out.push(map.and_then(|map| map.get(code)).unwrap_or_else(|| narrow_full_width(code)));
                    index += 6;
                }
                _ => {
                    out.extend_from_slice(input.get(index..index + 2).unwrap_or_default());
                    index += 2;
                }
            }
        } else if let Some(decoded) = hex_pair(input, index + 1) {
            out.push(decoded);
            index += 3;
        } else {
            out.push(byte);
            index += 1;
        }
    }
    (out != input).then_some(out)
}

/// Encodes all bytes but letters, digits and `*`; a space becomes `+`.
pub fn encode(input: &[u8]) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| DIGITS.get(usize::from(value & 15)).copied().unwrap_or(b'0');
    let mut out = Vec::with_capacity(input.len() + 16);
    for &byte in input {
        match byte {
            b' ' => out.push(b'+'),
            b'*' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => out.push(byte),
            _ => out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]),
        }
    }
    (out != input).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_sequences_are_decoded_and_invalid_ones_stay() {
        assert_eq!(decode(b"a%20b+c%zz%4").as_deref(), Some(&b"a b c%zz%4"[..]));
        assert_eq!(decode_counted(b"%zz%4").1, 2);
        assert_eq!(decode(b"plain"), None);
    }

    #[test]
    fn full_width_letters_become_ascii() {
        assert_eq!(decode_unicode(b"%uff1cscript%u003e%u00", None).as_deref(), Some(&b"<script>%u00"[..]));
        assert_eq!(decode_unicode(b"%U0041", None).as_deref(), Some(&b"A"[..]));
    }

    #[test]
    fn encoding_keeps_letters_and_digits() {
        assert_eq!(encode(b"a b/*\xff").as_deref(), Some(&b"a+b%2f*%ff"[..]));
    }
}
