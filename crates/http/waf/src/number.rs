//! Numbers in values, as C's `stoi` reads them.

use crate::transform::is_space;

/// The integer at the beginning of a text, behind white space and a sign; 0 if there is none or it exceeds 64 bits.
pub(crate) fn leading_integer(text: &[u8]) -> i64 {
    let blanks = text.iter().take_while(|byte| is_space(**byte)).count();
    let text = text.get(blanks..).unwrap_or_default();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let mut value: i64 = 0;
    for byte in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        let next = value.checked_mul(10).and_then(|value| value.checked_add(i64::from(byte - b'0')));
        match next {
            Some(next) => value = next,
            None => return 0,
        }
    }
    if negative { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_up_to_the_first_other_byte() {
        for (text, number) in [("12", 12), (" -3x", -3), ("\x0b\t5", 5), ("x", 0), ("", 0), ("99999999999999999999", 0)]
        {
            assert_eq!(leading_integer(text.as_bytes()), number, "{text}");
        }
    }
}
