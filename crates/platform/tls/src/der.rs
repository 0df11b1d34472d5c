//! DER reader (X.690) without copies or recursion: definite lengths up to four octets and one-octet tags, as in X.509,
//! PKCS#8 and CRLs.

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

pub(crate) const fn context(n: u8) -> u8 {
    0xa0 | n
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    pub tag: u8,
    pub body: &'a [u8],
    pub whole: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[cfg(test)]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Returns `None` for an element that is truncated or not DER.
    pub fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, after) = self.rest.split_first()?;
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (&first, after) = after.split_first()?;
        let (length, header) = if first < 0x80 {
            (usize::from(first), 2)
        } else {
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 {
                return None;
            }
            let digits = after.get(..count)?;
            let length = digits.iter().fold(0_usize, |sum, d| (sum << 8) | usize::from(*d));
            (length, 2 + count)
        };
        let end = header.checked_add(length)?;
        let whole = self.rest.get(..end)?;
        let element = Element { tag, body: whole.get(header..)?, whole };
        self.rest = self.rest.get(end..)?;
        Some(element)
    }

    pub fn take(&mut self, tag: u8) -> Option<Element<'a>> {
        if self.peek() != Some(tag) {
            return None;
        }
        self.next()
    }

    /// Expects this tag.
    pub fn body(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.take(tag).map(|e| e.body)
    }

    pub fn enter(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.body(tag).map(Reader::new)
    }
}

/// Octets of a BIT STRING without unused bits.
pub(crate) fn bits(body: &[u8]) -> Option<&[u8]> {
    match body.split_first()? {
        (0, octets) => Some(octets),
        _ => None,
    }
}

pub(crate) fn small(body: &[u8]) -> Option<u64> {
    if body.is_empty() || body.len() > 8 || body.first()? & 0x80 != 0 {
        return None;
    }
    Some(body.iter().fold(0, |sum, b| (sum << 8) | u64::from(*b)))
}

pub(crate) fn dotted(oid: &[u8]) -> String {
    let mut text = String::new();
    let mut value: u64 = 0;
    let mut first = true;
    for byte in oid {
        value = (value << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if first {
            let head = (value / 40).min(2);
            text.push_str(&format!("{head}.{}", value - head * 40));
            first = false;
        } else {
            text.push_str(&format!(".{value}"));
        }
        value = 0;
    }
    text
}

pub(crate) fn encode(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = body.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let digits: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|b| *b == 0).collect();
        out.push(0x80 | digits.len() as u8);
        out.extend(digits);
    }
    out.extend_from_slice(body);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_whole_or_not_at_all() {
        let bytes = [0x30, 0x06, 0x02, 0x01, 0x05, 0x04, 0x01, 0xff, 0x05, 0x00];
        let mut reader = Reader::new(&bytes);
        let mut inner = reader.enter(SEQUENCE).expect("a sequence");
        assert_eq!(inner.body(INTEGER).and_then(small), Some(5));
        assert_eq!(inner.body(OCTET_STRING), Some(&[0xff][..]));
        assert!(inner.is_empty());
        assert_eq!(reader.rest(), [0x05, 0x00]);
        for cut in 0..8 {
            assert!(Reader::new(&bytes[..cut]).next().is_none(), "{cut}");
        }
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for bytes in [
            &[0x30, 0x80, 0x00, 0x00][..],
            &[0x30, 0x85, 1, 1, 1, 1, 1],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0],
            &[0x1f, 0x01, 0x00],
        ] {
            assert!(Reader::new(bytes).next().is_none(), "{bytes:?}");
        }
    }

    #[test]
    fn encoded_values_are_read_back() {
        for length in [0_usize, 1, 127, 128, 255, 256, 70_000] {
            let body = vec![7_u8; length];
            let whole = encode(SEQUENCE, &body);
            let element = Reader::new(&whole).next().expect("an element");
            assert_eq!((element.body, element.whole), (&body[..], &whole[..]), "{length}");
        }
    }

    #[test]
    fn object_identifiers_are_written_with_dots() {
        assert_eq!(dotted(&[0x55, 0x04, 0x03]), "2.5.4.3");
        assert_eq!(dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01]), "1.2.840.113549.1.9.1");
    }
}
