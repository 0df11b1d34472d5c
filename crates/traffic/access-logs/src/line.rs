//! Escaping of values in log lines.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// `\xXX` for bytes that could end or forge a line; `-` for missing values.
    Default,
    Json,
    None,
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn is_plain(c: u8) -> bool {
    (0x20..0x7f).contains(&c) && c != b'"' && c != b'\\'
}

fn is_plain_json(c: u8) -> bool {
    c >= 0x20 && c != b'"' && c != b'\\'
}

impl Escape {
    pub fn missing(self, out: &mut Vec<u8>) {
        if self == Escape::Default {
            out.push(b'-');
        }
    }
    #[inline]
    pub fn needed(self, value: &[u8]) -> bool {
        match self {
            Escape::Default => !value.iter().all(|c| is_plain(*c)),
            Escape::Json => !value.iter().all(|c| is_plain_json(*c)),
            Escape::None => false,
        }
    }
    pub fn write(self, value: &[u8], out: &mut Vec<u8>) {
        for &c in value {
            let [high, low] = [c >> 4, c & 15].map(|n| HEX.get(usize::from(n)).copied().unwrap_or_default());
            match self {
                Escape::Default if !is_plain(c) => out.extend_from_slice(&[b'\\', b'x', high, low]),
                Escape::Json if !is_plain_json(c) => match c {
                    b'"' | b'\\' => out.extend_from_slice(&[b'\\', c]),
                    b'\n' => out.extend_from_slice(b"\\n"),
                    b'\r' => out.extend_from_slice(b"\\r"),
                    b'\t' => out.extend_from_slice(b"\\t"),
                    8 => out.extend_from_slice(b"\\b"),
                    12 => out.extend_from_slice(b"\\f"),
                    _ => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]),
                },
                _ => out.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(escape: Escape, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        escape.write(value, &mut out);
        assert_eq!(escape.needed(value), out != value);
        out
    }

    #[test]
    fn ways_of_escaping() {
        let raw = b"a \"\\\n\x00\x1f\x7f\xff";
        assert_eq!(escaped(Escape::Default, raw), b"a \\x22\\x5C\\x0A\\x00\\x1F\\x7F\\xFF");
        assert_eq!(escaped(Escape::Json, raw), b"a \\\"\\\\\\n\\u0000\\u001F\x7f\xff");
        assert_eq!(escaped(Escape::None, raw), raw);
        assert_eq!(escaped(Escape::Json, b"\r\t\x08\x0c"), b"\\r\\t\\b\\f");
        assert_eq!(escaped(Escape::Default, b"plain"), b"plain");
    }
}
