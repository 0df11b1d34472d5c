//! Domain names: labels in wire form, compared without regard to case (RFC 1035, section 2.3.3).

use std::fmt;

/// Bytes of a name in wire form (RFC 1035, section 3.1).
pub const NAME_BYTES_MAX: usize = 255;
const LABEL_BYTES_MAX: usize = 63;

/// A name in wire form and lower case: labels with their lengths, and the root's zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DomainName(Box<[u8]>);

/// Reason why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    /// Sentence without a subject: "has an empty label".
    pub reason: &'static str,
    /// Suggestion for the operator; empty without one.
    pub hint: &'static str,
}

const fn error(reason: &'static str, hint: &'static str) -> NameError {
    NameError { reason, hint }
}

impl DomainName {
    /// Parses a name as zone files write it: `@` is the origin, a name without a final dot is relative to it. Without an
    /// origin, names are absolute with and without a final dot.
    ///
    /// # Errors
    /// Empty labels, labels of more than 63 bytes, names of more than 255 bytes, and bytes other than those of
    /// printable ASCII without quotes and backslashes.
    pub fn parse(text: &str, origin: Option<&DomainName>) -> Result<DomainName, NameError> {
        if let ("@", Some(origin)) = (text, origin) {
            return Ok(origin.clone());
        }
        let mut wire = Vec::with_capacity(text.len() + 2);
        let (labels, is_absolute) = match text.strip_suffix('.') {
            Some(labels) => (labels, true),
            None => (text, false),
        };
        if labels.is_empty() && !is_absolute {
            return Err(error("is empty", "\"@\" is the zone's own name"));
        }
        for label in labels.split('.').filter(|_| !labels.is_empty()) {
            if label.is_empty() {
                return Err(error("has an empty label", "one dot stands between two labels"));
            }
            let length = u8::try_from(label.len()).ok().filter(|length| usize::from(*length) <= LABEL_BYTES_MAX);
            let Some(length) = length else {
                return Err(error("has a label of more than 63 bytes", ""));
            };
            if !label.is_ascii() {
                return Err(error(
                    "has characters beyond ASCII",
                    "write it in its ASCII form, which begins with \"xn--\"",
                ));
            }
            if !label.bytes().all(|c| c.is_ascii_graphic() && !matches!(c, b'\\' | b'"' | b'@' | b';' | b'(' | b')')) {
                return Err(error(
                    "has an invalid character",
                    "letters, digits, \"-\" and \"_\"; \"*\" as the first label",
                ));
            }
            wire.push(length);
            wire.extend(label.bytes().map(|c| c.to_ascii_lowercase()));
        }
        match origin.filter(|_| !is_absolute) {
            Some(origin) => wire.extend_from_slice(&origin.0),
            None => wire.push(0),
        }
        if wire.len() > NAME_BYTES_MAX {
            return Err(error("has more than 255 bytes", ""));
        }
        Ok(DomainName(wire.into()))
    }

    /// Takes bytes that a reader has verified; `None` if they are no whole name.
    pub(crate) fn from_wire(wire: &[u8]) -> Option<DomainName> {
        let mut labels = Labels { rest: wire };
        while labels.next().is_some() {}
        (labels.rest == [0] && wire.len() <= NAME_BYTES_MAX).then(|| DomainName(wire.to_ascii_lowercase().into()))
    }

    /// Returns the labels with their lengths, in lower case, and the final zero.
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// Tells whether the name is `zone` or lies below it.
    pub fn is_within(&self, zone: &DomainName) -> bool {
        suffixes(&self.0).any(|suffix| suffix == zone.wire())
    }

    /// Tells whether the first label is `*` (RFC 4592, section 2.1.1).
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with(b"\x01*")
    }
}

impl fmt::Display for DomainName {
    /// Writes the name without a final dot; the root as a dot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(&self.0, f)
    }
}

/// Writes a name in wire form as text; bytes other than printable ASCII as `\DDD` (RFC 1035, section 5.1).
pub(crate) fn write_text(wire: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    let mut is_first = true;
    for label in (Labels { rest: wire }) {
        if !std::mem::take(&mut is_first) {
            f.write_char('.')?;
        }
        for c in label {
            match c {
                b'.' | b'\\' => write!(f, "\\{}", char::from(*c))?,
                c if c.is_ascii_graphic() => f.write_char(char::from(*c))?,
                c => write!(f, "\\{c:03}")?,
            }
        }
    }
    if is_first { f.write_char('.') } else { Ok(()) }
}

/// Labels of a name in wire form, without the root.
struct Labels<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.rest.split_first()?;
        if *length == 0 || usize::from(*length) > LABEL_BYTES_MAX {
            return None;
        }
        let (label, rest) = rest.split_at_checked(usize::from(*length))?;
        self.rest = rest;
        Some(label)
    }
}

/// Returns a name and its parents up to the root, in wire form.
pub(crate) fn suffixes(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(wire), |name| {
        let length = usize::from(*name.first()?);
        if length == 0 { None } else { name.get(1 + length..) }
    })
}

/// Returns the end of the uncompressed name that begins at `at`. `None`: it is no name, or its length is invalid.
pub(crate) fn end_of_name(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    loop {
        let length = usize::from(*bytes.get(end)?);
        if length > LABEL_BYTES_MAX {
            return None;
        }
        end += 1 + length;
        if end - at > NAME_BYTES_MAX {
            return None;
        }
        if length == 0 {
            return Some(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DomainName {
        DomainName::parse(text, None).expect("a name")
    }

    #[test]
    fn names_are_relative_without_a_final_dot() {
        let origin = name("Example.org");
        let parse = |text: &str| DomainName::parse(text, Some(&origin)).map(|name| name.to_string());
        assert_eq!(parse("@").as_deref(), Ok("example.org"));
        assert_eq!(parse("WWW").as_deref(), Ok("www.example.org"));
        assert_eq!(parse("*.a").as_deref(), Ok("*.a.example.org"));
        assert_eq!(parse("mail.example.net.").as_deref(), Ok("mail.example.net"));
        assert_eq!(parse(".").as_deref(), Ok("."));
        for (text, reason) in [
            ("", "is empty"),
            ("a..b", "has an empty label"),
            (".a", "has an empty label"),
            (&"a".repeat(64), "has a label of more than 63 bytes"),
            (&["a".repeat(63).as_str(); 4].join("."), "has more than 255 bytes"),
            ("bücher", "has characters beyond ASCII"),
            ("a\\.b", "has an invalid character"),
        ] {
            assert_eq!(parse(text).map_err(|e| e.reason), Err(reason), "{text}");
        }
    }

    #[test]
    fn a_name_lies_within_itself_and_its_parents() {
        let zone = name("example.org");
        assert!(name("example.org").is_within(&zone) && name("a.b.Example.Org").is_within(&zone));
        assert!(!name("anexample.org").is_within(&zone) && !name("org").is_within(&zone));
        assert!(name("a").is_within(&name(".")));
    }

    #[test]
    fn ends_of_names_in_messages() {
        assert_eq!(end_of_name(b"x\x01a\x02bc\0y", 1), Some(7));
        for wrong in [&b"\x01"[..], b"", b"\x01a", b"\xc0\x0c\0", b"\x40a\0"] {
            assert_eq!(end_of_name(wrong, 0), None, "{wrong:?}");
        }
        let long = [&[1, b'a'][..]; 127].concat();
        assert_eq!(end_of_name(&[&long[..], b"\0"].concat(), 0), Some(255));
        assert_eq!(end_of_name(&[&long[..], b"\x01a\0"].concat(), 0), None);
    }
}
