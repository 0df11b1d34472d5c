//! Unicode: code pages for `urlDecodeUni`, UTF-8 as `%uHHHH`, and a UTF-8 reader that names its errors.

use super::byte_at;

/// One code page of a Unicode map: Unicode's code points up to U+FFFF with their byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnicodeMap {
    pairs: Vec<(u16, u8)>,
}

impl UnicodeMap {
    /// Reads the code page `number` from the text of a `unicode.mapping` file: a line with the page's number and name,
    /// then lines with pairs `HHHH:HH`. Returns `None` if the page is absent or has no pairs.
    pub fn parse(text: &str, number: u32) -> Option<UnicodeMap> {
        let mut lines = text.lines().map(str::trim);
        let is_head = |line: &&str| {
            let head = line.split_whitespace().next().unwrap_or_default();
            !line.contains(':') && head.parse() == Ok(number)
        };
        lines.find(is_head)?;
        let mut pairs: Vec<(u16, u8)> = lines
            .take_while(|line| line.is_empty() || line.contains(':'))
            .flat_map(str::split_whitespace)
            .filter_map(|pair| {
                let (code, byte) = pair.split_once(':')?;
                Some((u16::from_str_radix(code, 16).ok()?, u8::from_str_radix(byte, 16).ok()?))
            })
            .collect();
        pairs.sort_unstable();
        (!pairs.is_empty()).then_some(UnicodeMap { pairs })
    }
    /// The byte of a code point.
    pub fn get(&self, code: u16) -> Option<u8> {
        let index = self.pairs.binary_search_by_key(&code, |(known, _)| *known).ok()?;
        self.pairs.get(index).map(|(_, byte)| *byte)
    }
}

/// The lower byte of a code point; full-width ASCII (U+FF01 to U+FF5E) becomes ASCII.
pub(crate) fn narrow_full_width(code: u16) -> u8 {
    let low = code as u8;
    match code >> 8 {
        0xff if (0x01..0x5f).contains(&low) => low + 0x20,
        _ => low,
    }
}

/// A reason why bytes are no UTF-8 (RFC 3629).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Utf8Fault {
    Missing,
    Invalid,
    Overlong,
    Restricted,
}

/// Reads a character at `index`: its code point and length in bytes.
pub(crate) fn read_utf8(input: &[u8], index: usize) -> Result<(u32, usize), Utf8Fault> {
    let first = byte_at(input, index);
    let (length, mut code) = match first {
        0..=0x7f => return Ok((u32::from(first), 1)),
        0xc0..=0xdf => (2, u32::from(first & 0x1f)),
        0xe0..=0xef => (3, u32::from(first & 0x0f)),
        0xf0..=0xf4 => (4, u32::from(first & 0x07)),
        0xf5..=0xf7 => return Err(Utf8Fault::Restricted),
        _ => return Err(Utf8Fault::Invalid),
    };
    let tail = input.get(index + 1..index + length).ok_or(Utf8Fault::Missing)?;
    for byte in tail {
        if byte & 0xc0 != 0x80 {
            return Err(Utf8Fault::Invalid);
        }
        code = code << 6 | u32::from(byte & 0x3f);
    }
    let least = [0, 0, 0x80, 0x800, 0x10000].get(length).copied().unwrap_or(0);
    match code {
        0xd800..=0xdfff => Err(Utf8Fault::Restricted),
        _ if code < least => Err(Utf8Fault::Overlong),
        _ => Ok((code, length)),
    }
}

/// Writes characters beyond ASCII as `%uHHHH`; bytes that are no UTF-8 stay.
pub fn utf8_to_unicode(input: &[u8]) -> Option<Vec<u8>> {
    if input.is_ascii() {
        return None;
    }
    let mut out = Vec::with_capacity(input.len() * 2);
    let mut index = 0;
    while let Some(&byte) = input.get(index) {
        match read_utf8(input, index) {
            Ok((_, 1)) | Err(_) => {
                out.push(byte);
                index += 1;
            }
            Ok((code, length)) => {
                out.extend_from_slice(format!("%u{code:04x}").as_bytes());
                index += length;
            }
        }
    }
    (out != input).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_beyond_ascii_become_percent_u() {
        assert_eq!(utf8_to_unicode("aé漢".as_bytes()).as_deref(), Some(&b"a%u00e9%u6f22"[..]));
        assert_eq!(utf8_to_unicode(b"\xff\xc3"), None);
    }

    #[test]
    fn invalid_utf8_is_named() {
        assert_eq!(read_utf8(b"\xc0\x80", 0), Err(Utf8Fault::Overlong));
        assert_eq!(read_utf8(b"\xe2\x82", 0), Err(Utf8Fault::Missing));
        assert_eq!(read_utf8(b"\xed\xa0\x80", 0), Err(Utf8Fault::Restricted));
        assert_eq!(read_utf8(b"\xf5\x80\x80\x80", 0), Err(Utf8Fault::Restricted));
        assert_eq!(read_utf8(b"\x80", 0), Err(Utf8Fault::Invalid));
    }

    #[test]
    fn a_code_page_is_read_from_a_mapping_file() {
        let text = "(a comment)\n\n1250  (ANSI)\n00a1:21 00a2:63\n\n20127 (US-ASCII)\n00a0:20 00a1:22\n0100:41\n";
        let map = UnicodeMap::parse(text, 20127).expect("the page");
        assert_eq!((map.get(0x100), map.get(0xa1), map.get(5)), (Some(0x41), Some(0x22), None));
        assert_eq!(UnicodeMap::parse(text, 1), None);
    }
}
