//! Texts that must not end a line: detection and percent-encoding of CR, LF and NUL (see `clean.rs`).

use std::borrow::Cow;

/// Tells whether a text contains CR, LF or NUL. The folded lines of `$ssl_client_cert` are permitted.
#[inline]
pub fn ends_line(text: &[u8]) -> bool {
    has_low::<b'\r'>(text) && looks_like_an_end(text)
}

/// Searches for a byte up to `MAX`, eight at a time: most texts are too short for memchr.
#[inline]
fn has_low<const MAX: u8>(text: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = text.as_chunks::<8>();
    let low = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        word.wrapping_sub(ONES * (MAX as u64 + 1)) & !word & (ONES << 7) != 0
    };
    words.iter().any(low) || rest.iter().any(|c| *c <= MAX)
}

#[cold]
fn looks_like_an_end(text: &[u8]) -> bool {
    match memchr::memchr3(b'\r', b'\n', 0, text) {
        None => false,
        Some(at) => !is_folded_certificate(text, at),
    }
}

/// Accepts the folded `$ssl_client_cert`, whose later lines begin with a tab and cannot be taken for fields.
#[cold]
fn is_folded_certificate(text: &[u8], at: usize) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    const END: &[u8] = b"\t-----END CERTIFICATE-----";
    let Some((before, mut rest)) = text.split_at_checked(at) else { return false };
    if !before.ends_with(BEGIN) {
        return false;
    }
    while let Some(line) = rest.strip_prefix(b"\n") {
        if let Some(after) = line.strip_prefix(END) {
            return !ends_line(after);
        }
        let Some(line) = line.strip_prefix(b"\t") else { return false };
        let n = line.iter().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'=')).count();
        rest = line.get(n..).unwrap_or_default();
    }
    false
}

/// Percent-encodes CR, LF and NUL of a text that [`ends_line`].
pub fn encode_line_ends(text: &[u8]) -> Cow<'_, [u8]> {
    if !ends_line(text) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    for &c in text {
        match c {
            b'\r' => out.extend_from_slice(b"%0D"),
            b'\n' => out.extend_from_slice(b"%0A"),
            0 => out.extend_from_slice(b"%00"),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Percent-encodes controls and spaces of a request target (nginx sends spaces, which strict servers reject).
pub fn encode_target(text: &[u8]) -> Cow<'_, [u8]> {
    if !has_low::<b' '>(text) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    for &c in text {
        match c {
            0..=b' ' => out.extend_from_slice(format!("%{c:02X}").as_bytes()),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Joins a text of the configuration into one line: each line end, with surrounding blanks, becomes one space.
pub fn one_line(text: &[u8]) -> Cow<'_, [u8]> {
    if !ends_line(text) {
        return Cow::Borrowed(text);
    }
    let lines = text.split(|c| matches!(c, b'\r' | b'\n')).map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    Cow::Owned(lines.collect::<Vec<_>>().join(&b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_end_no_line() {
        assert_eq!(encode_line_ends(b"/a\r\nb\0"), &b"/a%0D%0Ab%00"[..]);
        assert_eq!(encode_line_ends(b"/a%0d\t b"), &b"/a%0d\t b"[..]);
        assert_eq!(encode_target(b"/a%20b?c=d\xff"), &b"/a%20b?c=d\xff"[..]);
        assert_eq!(encode_target(b"/a b\t\r\n\0"), &b"/a%20b%09%0D%0A%00"[..]);
        assert_eq!(one_line(b"default-src 'self';\r\n    img-src *;\n"), &b"default-src 'self'; img-src *;"[..]);
        assert_eq!(one_line(b" a  b "), &b" a  b "[..]);
        let certificate = b"x:-----BEGIN CERTIFICATE-----\n\tMII/+\n\tAA==\n\t-----END CERTIFICATE-----x";
        assert!(!ends_line(certificate));
        assert!(ends_line(&[&certificate[..], b"\n"].concat()));
        assert!(ends_line(b"-----BEGIN CERTIFICATE-----\n\tMII\n\tA: b\n\t-----END CERTIFICATE-----"));
        for (length, c) in (1..20).flat_map(|length| (0..=255).map(move |c| (length, c))) {
            for at in 0..length {
                for around in [b'x', 0x80, 0xff] {
                    let mut text = vec![around; length];
                    text[at] = c;
                    assert_eq!(ends_line(&text), matches!(c, b'\r' | b'\n' | 0), "{text:?}");
                }
            }
        }
        assert!(ends_line(b"-----BEGIN CERTIFICATE-----\n\tMII") && ends_line(b"-----BEGIN CERTIFICATE-----\nMII"));
        assert!(ends_line(b"a\n\tb"));
        assert!(ends_line(b"a\0") && ends_line(b"\r") && !ends_line(b"a\tb"));
    }
}
