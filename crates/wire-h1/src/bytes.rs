//! Byte classes: one table, a bit for each class.

/// `A`–`Z`, `_`, `-`: what nginx takes in a method.
pub(crate) const METHOD: u8 = 1;
/// Letters, digits and `-`: what nginx takes in a field name without more ado.
pub(crate) const NAME: u8 = 2;
/// Space, controls and DEL: what ends a request target, well or badly.
pub(crate) const TARGET_END: u8 = 4;
/// tchar (RFC 9110, 5.6.2).
pub(crate) const TOKEN: u8 = 8;
/// Letters, digits, `.` and `-`: a registered name in the authority of a request line.
pub(crate) const HOST: u8 = 16;
/// Unreserved, sub-delims and `:`: what may stand between the brackets of an IP literal.
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

/// Is `b` in one of `classes`?
#[inline]
#[expect(clippy::indexing_slicing, reason = "a u8 cannot leave a table of 256")]
pub(crate) fn is(b: u8, classes: u8) -> bool {
    CLASSES[b as usize] & classes != 0
}

/// How many bytes at the start of `bytes` are in `classes`.
#[inline]
pub(crate) fn run(bytes: &[u8], classes: u8) -> usize {
    bytes.iter().position(|&b| !is(b, classes)).unwrap_or(bytes.len())
}

/// Is `bytes` a token (RFC 9110, 5.6.2): a method or field name that any peer accepts?
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| is(b, TOKEN))
}

/// Can `bytes` be written as a field value without changing the framing (RFC 9110, 5.5): no CR, LF or NUL?
pub fn is_field_value(bytes: &[u8]) -> bool {
    memchr::memchr3(b'\r', b'\n', 0, bytes).is_none()
}
