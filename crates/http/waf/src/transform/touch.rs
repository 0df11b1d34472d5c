//! Bytes without which a transformation leaves a value as it is.

use super::Transformation as T;
use crate::byte_set::ByteSet;

/// C's white space, and the bytes of NO-BREAK SPACE, which some transformations treat alike.
const BLANKS: &[u8] = b" \t\n\x0b\x0c\r\xc2\xa0";

impl super::Transformation {
    /// Returns bytes of which a value of two bytes or more has one, if the transformation changes more than the case of
    /// its ASCII letters. The set has both cases of its letters. `None` if the transformation can change every value.
    pub(crate) fn touched_bytes(self) -> Option<ByteSet> {
        let bytes: &[u8] = match self {
            T::Base64Decode | T::Base64DecodeExt | T::Base64Encode | T::HexDecode | T::HexEncode => return None,
            T::Length | T::Md5 | T::Sha1 | T::ParityEven7Bit | T::ParityOdd7Bit | T::ParityZero7Bit => return None,
            T::CmdLine => b"\"'\\^ ,;\t\r\n",
            T::CompressWhitespace | T::RemoveWhitespace => BLANKS,
            T::CssDecode | T::EscapeSeqDecode | T::JsDecode => b"\\",
            T::HtmlEntityDecode => b"&",
            T::Lowercase | T::Uppercase => b"",
            // A value of one byte could be ".".
            T::NormalisePath => b"/",
            T::NormalisePathWin => b"/\\",
            // "/*", "*/", "--", "<!--", "-->" and "#".
            T::RemoveComments | T::RemoveCommentsChar => b"*-#",
            T::ReplaceComments => b"*",
            T::RemoveNulls | T::ReplaceNulls => b"\0",
            T::SqlHexDecode => b"xX",
            T::Trim | T::TrimLeft | T::TrimRight => BLANKS,
            T::UrlDecode | T::UrlDecodeUni => b"%+",
            T::UrlEncode => {
                let letters = ByteSet::range(b'a', b'z').without_case();
                return Some(letters.joined(ByteSet::range(b'0', b'9')).joined(ByteSet::of(b"*")).complement());
            }
            T::Utf8ToUnicode => return Some(ByteSet::range(0x80, u8::MAX)),
        };
        Some(ByteSet::of(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Transformation;

    #[test]
    fn values_without_touched_bytes_keep_all_but_their_case() {
        let parts: [&[u8]; 24] = [
            b".",
            b"..",
            b"/",
            b"\\",
            b"%41",
            b"+",
            b"&lt;",
            b"0x41",
            b"--",
            b"/*",
            b"*/",
            b"#",
            b" ",
            b"\xa0",
            b"\0",
            b"A",
            b"b",
            b"7",
            b"\xc3\xa4",
            b"'",
            b"<!--",
            b",",
            b"=",
            b"\x0b",
        ];
        let mut random = testkit::Random::new(77);
        for _ in 0..20_000 {
            let count = 1 + random.below(6);
            let value: Vec<u8> =
                (0..count).flat_map(|_| parts[random.below(parts.len() as u64) as usize].to_vec()).collect();
            for name in Transformation::names() {
                let transformation = Transformation::named(name).expect(name);
                let Some(touched) = transformation.touched_bytes() else { continue };
                if value.len() >= 2 && !value.iter().any(|byte| touched.has(*byte)) {
                    let after = transformation.apply(&value, None).unwrap_or_else(|| value.clone());
                    assert!(after.eq_ignore_ascii_case(&value), "{name} changes {value:?} to {after:?}");
                }
            }
        }
    }

    #[test]
    fn touched_letters_have_both_cases() {
        for name in Transformation::names() {
            let touched = Transformation::named(name).and_then(Transformation::touched_bytes).unwrap_or_default();
            assert_eq!(touched, touched.without_case(), "{name}");
        }
    }
}
