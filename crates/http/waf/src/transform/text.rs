//! Case, white space, NUL bytes, parity and command lines.

use super::is_space;

/// Bytes that ModSecurity's `removeWhitespace` also drops: those of NO-BREAK SPACE in UTF-8, of which the second is that of Latin-1.
const NO_BREAK_SPACE: [u8; 2] = [0xc2, 0xa0];

pub fn lowercase(input: &[u8]) -> Option<Vec<u8>> {
    input.iter().any(u8::is_ascii_uppercase).then(|| input.to_ascii_lowercase())
}

pub fn uppercase(input: &[u8]) -> Option<Vec<u8>> {
    input.iter().any(u8::is_ascii_lowercase).then(|| input.to_ascii_uppercase())
}

pub fn remove_nulls(input: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(0, input)?;
    Some(input.iter().copied().filter(|byte| *byte != 0).collect())
}

pub fn replace_nulls(input: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(0, input)?;
    Some(input.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }).collect())
}

pub fn remove_whitespace(input: &[u8]) -> Option<Vec<u8>> {
    let blank = |byte: &u8| is_space(*byte) || NO_BREAK_SPACE.contains(byte);
    input.iter().any(blank).then(|| input.iter().copied().filter(|byte| !blank(byte)).collect())
}

/// Replaces each run of white space with one space.
pub fn compress_whitespace(input: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(input.len());
    let mut in_run = false;
    for &byte in input {
        match is_space(byte) {
            true if in_run => {}
            true => out.push(b' '),
            false => out.push(byte),
        }
        in_run = is_space(byte);
    }
    (out != input).then_some(out)
}

pub fn trim(input: &[u8], left: bool, right: bool) -> Option<Vec<u8>> {
    let mut rest = input;
    while let [first, tail @ ..] = rest
        && left
        && is_space(*first)
    {
        rest = tail;
    }
    while let [head @ .., last] = rest
        && right
        && is_space(*last)
    {
        rest = head;
    }
    (rest.len() != input.len()).then(|| rest.to_vec())
}

/// Sets the eighth bit of each byte if `sets` holds for the number of its ones, as ModSecurity counts them: with the eighth bit that the byte had.
pub fn parity(input: &[u8], sets: impl Fn(u32) -> bool) -> Option<Vec<u8>> {
    let bit = |byte: u8| if sets(byte.count_ones()) { 0x80 } else { 0 };
    let out: Vec<u8> = input.iter().map(|byte| byte & 0x7f | bit(*byte)).collect();
    (out != input).then_some(out)
}

/// Undoes the ways in which shells allow to write a command: quotes, carets and backslashes disappear, separators
/// become one space, a space before `/` or `(` goes, letters become lower case.
pub fn cmd_line(input: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(input.len());
    let mut space = false;
    for &byte in input {
        match byte {
            b'"' | b'\'' | b'\\' | b'^' => {}
            b' ' | b',' | b';' | b'\t' | b'\r' | b'\n' => {
                if !space {
                    out.push(b' ');
                    space = true;
                }
            }
            b'/' | b'(' => {
                if space {
                    out.pop();
                }
                space = false;
                out.push(byte);
            }
            _ => {
                space = false;
                out.push(byte.to_ascii_lowercase());
            }
        }
    }
    (out != input).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_loses_its_disguise() {
        assert_eq!(cmd_line(b"C^OMMAND /C \"dir\"").as_deref(), Some(&b"command/c dir"[..]));
        assert_eq!(cmd_line(b"net,;\t user").as_deref(), Some(&b"net user"[..]));
        assert_eq!(cmd_line(b"ls"), None);
    }

    #[test]
    fn white_space_is_removed_compressed_or_trimmed() {
        assert_eq!(compress_whitespace(b"a \t\x0bb").as_deref(), Some(&b"a b"[..]));
        // A byte of many letters in UTF-8.
        assert_eq!(compress_whitespace("à".as_bytes()), None);
        assert_eq!(remove_whitespace("a\u{a0}b".as_bytes()).as_deref(), Some(&b"ab"[..]));
        assert_eq!(compress_whitespace(b"a b"), None);
        assert_eq!(remove_whitespace(b" a b\n").as_deref(), Some(&b"ab"[..]));
        assert_eq!(trim(b"  a ", true, false).as_deref(), Some(&b"a "[..]));
        assert_eq!(trim(b"  ", true, true).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn parity_bits_follow_the_ones() {
        assert_eq!(parity(b"a", |ones| ones % 2 == 1).as_deref(), Some(&[0xe1][..]));
        assert_eq!(parity(b"c", |ones| ones % 2 == 1), None);
        // The bit that is set anew counts as well, as in ModSecurity.
        assert_eq!(parity(&[0xff], |ones| ones % 2 == 1).as_deref(), Some(&[0x7f][..]));
        assert_eq!(parity(&[0xe1], |_| false).as_deref(), Some(&b"a"[..]));
    }
}
