//! Byte classes: a table with a bit per class.

/// Bytes of a method in nginx: `A`–`Z`, `_`, `-`.
pub(crate) const METHOD: u8 = 1;
/// Bytes of a field name that nginx always accepts: letters, digits and `-`.
pub(crate) const NAME: u8 = 2;
/// Space, controls and DEL, which end a request target.
pub(crate) const TARGET_END: u8 = 4;
/// tchar (RFC 9110, 5.6.2).
pub(crate) const TOKEN: u8 = 8;
/// Bytes of a registered name: letters, digits, `.` and `-`.
pub(crate) const HOST: u8 = 16;
/// Bytes of an IP literal: unreserved, sub-delims and `:`.
pub(crate) const LITERAL: u8 = 32;

static CLASSES: [u8; 256] = classes();

#[expect(clippy::indexing_slicing, reason = "runs at compile time")]
const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        let alnum = b.is_ascii_alphanumeric();
        let mut class = 0;
        if b.is_ascii_uppercase() || b == b'_' || b == b'-' {
            class |= METHOD;
        }
        if alnum || b == b'-' {
            class |= NAME;
        }
        if b <= b' ' || b == 0x7f {
            class |= TARGET_END;
        }
        if alnum
            || matches!(
                b,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            )
        {
            class |= TOKEN;
        }
        if alnum || b == b'.' || b == b'-' {
            class |= HOST;
        }
        if alnum
            || matches!(
                b,
                b'-' | b'.'
                    | b'_'
                    | b'~'
                    | b'!'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b'+'
                    | b','
                    | b';'
                    | b'='
                    | b':'
            )
        {
            class |= LITERAL;
        }
        table[i] = class;
        i += 1;
    }
    table
}

#[inline]
#[expect(clippy::indexing_slicing, reason = "a u8 cannot leave a table of 256")]
pub(crate) fn is(b: u8, classes: u8) -> bool {
    CLASSES[b as usize] & classes != 0
}

/// Number of leading bytes in `classes`.
#[inline]
pub(crate) fn run(bytes: &[u8], classes: u8) -> usize {
    bytes.iter().position(|&b| !is(b, classes)).unwrap_or(bytes.len())
}

/// Tells whether `bytes` is a token (RFC 9110, 5.6.2).
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| is(b, TOKEN))
}

/// Tells whether a field value preserves the framing: no CR, LF or NUL (RFC 9110, 5.5).
pub fn is_field_value(bytes: &[u8]) -> bool {
    memchr::memchr3(b'\r', b'\n', 0, bytes).is_none()
}
