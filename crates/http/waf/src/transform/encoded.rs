//! Base64, hexadecimal and digests.

use super::hex_pair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Digest as _;

/// Position of a letter in Base64's alphabet.
fn letter(byte: u8) -> Option<u32> {
    Some(match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// Decodes letters up to the first byte that is no letter; one left-over letter carries no byte.
fn decode_letters(letters: impl Iterator<Item = u32>, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(length / 4 * 3 + 2);
    let (mut bits, mut held) = (0_u32, 0);
    for value in letters {
        held = held << 6 | value;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    out
}

/// Decodes up to the first byte outside of the alphabet.
pub fn base64_decode(input: &[u8]) -> Option<Vec<u8>> {
    let out = decode_letters(input.iter().map_while(|byte| letter(*byte)), input.len());
    (out != input).then_some(out)
}

/// Decodes and skips bytes outside of the alphabet, as PHP does.
pub fn base64_decode_ext(input: &[u8]) -> Option<Vec<u8>> {
    let out = decode_letters(input.iter().filter_map(|byte| letter(*byte)), input.len());
    (out != input).then_some(out)
}

pub fn base64_encode(input: &[u8]) -> Option<Vec<u8>> {
    (!input.is_empty()).then(|| STANDARD.encode(input).into_bytes())
}

/// Decodes pairs of digits; an odd last digit is dropped, and other bytes count as ModSecurity's arithmetic has it.
pub fn hex_decode(input: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=u8::MAX => ((byte & 0xdf).wrapping_sub(b'A')).wrapping_add(10),
        _ => byte.wrapping_sub(b'0'),
    };
    let pairs = input.chunks_exact(2);
    let out: Vec<u8> = pairs
        .filter_map(|pair| match pair {
            [high, low] => Some(digit(*high).wrapping_mul(16).wrapping_add(digit(*low))),
            _ => None,
        })
        .collect();
    (!input.is_empty()).then_some(out)
}

pub fn hex_encode(input: &[u8]) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| DIGITS.get(usize::from(value & 15)).copied().unwrap_or(b'0');
    (!input.is_empty()).then(|| input.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect())
}

/// Decodes MySQL's hexadecimal literals: `0x414243` becomes `ABC`.
pub fn sql_hex_decode(input: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(input.len());
    let mut rest = input;
    let mut changed = false;
    while let Some((&first, tail)) = rest.split_first() {
        let is_literal = first == b'0' && matches!(tail.first(), Some(b'x' | b'X')) && hex_pair(tail, 1).is_some();
        if !is_literal {
            out.push(first);
            rest = tail;
            continue;
        }
        rest = tail.get(1..).unwrap_or_default();
        while let Some(byte) = hex_pair(rest, 0) {
            out.push(byte);
            rest = rest.get(2..).unwrap_or_default();
        }
        changed = true;
    }
    changed.then_some(out)
}

pub fn md5(input: &[u8]) -> Option<Vec<u8>> {
    Some(md5::Md5::digest(input).to_vec())
}

pub fn sha1(input: &[u8]) -> Option<Vec<u8>> {
    Some(sha1::Sha1::digest(input).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_stops_or_skips_at_other_bytes() {
        assert_eq!(base64_decode(b"VGVzdENhc2U=VGVz").as_deref(), Some(&b"TestCase"[..]));
        assert_eq!(base64_decode_ext(b"PFR.FU1Q-").as_deref(), Some(&b"<TEST"[..]));
        assert_eq!(base64_encode(b"TestCase").as_deref(), Some(&b"VGVzdENhc2U="[..]));
    }

    #[test]
    fn hexadecimal_text_is_decoded_and_encoded() {
        assert_eq!(hex_decode(b"546573740").as_deref(), Some(&b"Test"[..]));
        assert_eq!(hex_encode(b"Te").as_deref(), Some(&b"5465"[..]));
        assert_eq!(sql_hex_decode(b"a=0x4142 0xZ").as_deref(), Some(&b"a=AB 0xZ"[..]));
        assert_eq!(sql_hex_decode(b"0x"), None);
    }

    #[test]
    fn digests_are_raw_bytes() {
        assert_eq!(md5(b"").map(|digest| digest.len()), Some(16));
        assert_eq!(sha1(b"").and_then(|digest| digest.first().copied()), Some(0xda));
    }
}
