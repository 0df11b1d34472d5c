//! Escapes and encodings; `None` stands for an invalid argument.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
/// Standard alphabet, padded; padding is optional on reading.
pub const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
pub const BASE64URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT.with_encode_padding(false));

/// Decodes up to the first `=`; invalid input gives nothing.
pub fn base64_decoded(engine: &GeneralPurpose, value: &[u8], out: &mut Vec<u8>) {
    let end = value.iter().position(|c| *c == b'=').unwrap_or(value.len());
    if let Ok(decoded) = engine.decode(value.get(..end).unwrap_or_default()) {
        out.extend(decoded);
    }
}

pub fn escape_uri(value: &[u8], out: &mut Vec<u8>) {
    for c in value {
        match c {
            0..=b' ' | b'"' | b'#' | b'%' | b'&' | b'+' | b'/' | b':'..=b'?' | b'['..=b'^' | b'{' | b'}' | 0x7f.. => {
                out.push(b'%');
                out.extend(format!("{c:02X}").bytes());
            }
            _ => out.push(*c),
        }
    }
}

/// Unescapes a part of a query: `+` is a space, and invalid escapes lose their `%`.
pub fn unescape_uri(value: &[u8], out: &mut Vec<u8>) {
    let hex = |c: u8| char::from(c).to_digit(16).map(|n| n as u8);
    let mut rest = value;
    while let Some((c, after)) = rest.split_first() {
        rest = after;
        match c {
            b'+' => out.push(b' '),
            b'%' => {
                let Some((first, after)) = rest.split_first() else { return };
                rest = after;
                let Some(high) = hex(*first) else {
                    out.push(*first);
                    continue;
                };
                let Some((second, after)) = rest.split_first() else { return };
                rest = after;
                if let Some(low) = hex(*second) {
                    out.push(high << 4 | low);
                }
            }
            c => out.push(*c),
        }
    }
}

pub fn quote_sql(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    for c in value {
        let escaped = match c {
            0 => b'0',
            8 => b'b',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            26 => b'Z',
            b'\\' | b'\'' | b'"' | b'$' => *c,
            c => {
                out.push(*c);
                continue;
            }
        };
        out.extend([b'\\', escaped]);
    }
    out.push(b'\'');
}

/// Quotes for PostgreSQL with `E`; invalid UTF-8 becomes octal escapes.
pub fn quote_pgsql(value: &[u8], out: &mut Vec<u8>) {
    if value.is_empty() {
        return out.extend_from_slice(b"''");
    }
    let mut quoted = vec![b'E'];
    quote_sql(value, &mut quoted);
    if std::str::from_utf8(&quoted).is_ok() {
        return out.append(&mut quoted);
    }
    for c in quoted {
        if c.is_ascii() {
            out.push(c);
        } else {
            out.extend([b'\\', b'\\', b'0' + (c >> 6), b'0' + (c >> 3 & 7), b'0' + (c & 7)]);
        }
    }
}

/// An empty value is `null`.
pub fn quote_json(value: &[u8], out: &mut Vec<u8>) {
    if value.is_empty() {
        return out.extend_from_slice(b"null");
    }
    out.push(b'"');
    for c in value {
        match c {
            b'\r' => out.extend(b"\\r"),
            b'\n' => out.extend(b"\\n"),
            b'\t' => out.extend(b"\\t"),
            12 => out.extend(b"\\f"),
            8 => out.extend(b"\\b"),
            b'\\' | b'"' => out.extend([b'\\', *c]),
            0..=31 => out.extend(format!("\\u{c:04x}").bytes()),
            c => out.push(*c),
        }
    }
    out.push(b'"');
}

pub fn write_hex(value: &[u8], out: &mut Vec<u8>) {
    for c in value {
        out.extend(format!("{c:02x}").bytes());
    }
}

pub fn write_unhex(value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (pairs, rest) = value.as_chunks::<2>();
    let digit = |c: u8| char::from(c).to_digit(16).map(|n| n as u8);
    for [high, low] in pairs {
        out.push(digit(*high)? << 4 | digit(*low)?);
    }
    rest.is_empty().then_some(())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base32 {
    pub alphabet: [u8; 32],
    pub padding: bool,
}

impl Base32 {
    pub fn encode(&self, value: &[u8], out: &mut Vec<u8>) {
        for chunk in value.chunks(5) {
            let number = (0..5).fold(0u64, |sum, at| sum << 8 | u64::from(chunk.get(at).copied().unwrap_or(0)));
            let letters = (chunk.len() * 8).div_ceil(5);
            let digits = (0..letters).map(|at| (number >> (35 - 5 * at) & 31) as usize);
            out.extend(digits.filter_map(|digit| self.alphabet.get(digit)));
            if self.padding {
                out.extend(std::iter::repeat_n(b'=', 8 - letters));
            }
        }
    }
    /// Decodes up to the first `=`; invalid input gives nothing.
    pub fn decode(&self, value: &[u8], out: &mut Vec<u8>) {
        let end = value.iter().position(|c| *c == b'=').unwrap_or(value.len());
        let digit = |c: &u8| self.alphabet.iter().position(|known| known == c).map(|at| at as u64);
        let Some(digits) = value.iter().take(end).map(digit).collect::<Option<Vec<u64>>>() else { return };
        if matches!(digits.len() % 8, 1 | 3 | 6) {
            return;
        }
        for chunk in digits.chunks(8) {
            let number = chunk.iter().enumerate().fold(0, |sum, (at, digit)| sum | digit << (35 - 5 * at));
            out.extend(number.to_be_bytes().iter().skip(3).take(chunk.len() * 5 / 8));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(compute: impl Fn(&[u8], &mut Vec<u8>), value: &[u8]) -> String {
        let mut out = Vec::new();
        compute(value, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn escapes_are_written_and_read() {
        assert_eq!(run(escape_uri, b"a b/c?d=\xe4~_.'"), "a%20b%2Fc%3Fd%3D%E4~_.'");
        assert_eq!(run(unescape_uri, b"hello+world%21%zz%4"), "hello world!zz");
        assert_eq!(run(quote_sql, b"hello\n\r'\"\\$"), "'hello\\n\\r\\'\\\"\\\\\\$'");
        assert_eq!(run(quote_sql, b"\0\x08\t\x1a\x1b"), "'\\0\\b\\t\\Z\x1b'");
        assert_eq!(run(quote_pgsql, b"a'\xff"), "E'a\\'\\\\377'");
        assert_eq!(run(quote_json, b"a\n\"\x01\xc3\xa4"), "\"a\\n\\\"\\u0001\u{e4}\"");
        assert_eq!(
            (run(quote_json, b""), run(quote_pgsql, b""), run(quote_sql, b"")),
            ("null".into(), "''".into(), "''".into())
        );
    }

    #[test]
    fn encodings_come_back() {
        let hex32 = Base32 { alphabet: *b"0123456789abcdefghijklmnopqrstuv", padding: true };
        // RFC 4648 section 10, in lower case.
        for (text, encoded) in [
            ("", ""),
            ("f", "co======"),
            ("fo", "cpng===="),
            ("foo", "cpnmu==="),
            ("foob", "cpnmuog="),
            ("fooba", "cpnmuoj1"),
            ("foobar", "cpnmuoj1e8======"),
        ] {
            assert_eq!(run(|v, o| hex32.encode(v, o), text.as_bytes()), encoded);
            assert_eq!(run(|v, o| hex32.decode(v, o), encoded.as_bytes()), text);
        }
        assert_eq!(run(|v, o| hex32.decode(v, o), b"c!"), "");
        assert_eq!(run(write_hex, b"\x00\xfe"), "00fe");
        let mut out = Vec::new();
        assert_eq!((write_unhex(b"00FE", &mut out), out.as_slice()), (Some(()), &[0, 0xfe][..]));
        assert_eq!(write_unhex(b"0", &mut Vec::new()).or(write_unhex(b"zz", &mut Vec::new())), None);
        assert_eq!(run(|v, o| base64_decoded(&BASE64, v, o), b"YWJjZGU="), "abcde");
        assert_eq!(run(|v, o| base64_decoded(&BASE64, v, o), b"%"), "");
    }
}
