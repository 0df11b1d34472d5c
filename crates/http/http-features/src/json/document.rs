//! Extracts values from a JSON document (RFC 8259) in one pass. The document is checked whole; parts without a target
//! are not stored. Octets outside of ASCII are not checked, as in nginx.

use super::path::PathPart;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// A value with targets, or with parts that have some.
#[derive(Debug, Default)]
pub struct TargetNode {
    targets: Vec<usize>,
    parts: HashMap<PathPart, TargetNode>,
}

impl TargetNode {
    /// Adds a target, a number below the length of [`extract_values`]'s result.
    pub fn add(&mut self, path: Vec<PathPart>, target: usize) {
        let end = path.into_iter().fold(self, |node, part| node.parts.entry(part).or_default());
        end.targets.push(target);
    }
}

/// Where the document has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue {
    /// A string, without its quotes and with its escape sequences.
    String(Range<usize>),
    /// Another value, as written.
    Text(Range<usize>),
}

impl JsonValue {
    /// Returns the value in the document in which it was found.
    pub fn value<'a>(&self, document: &'a [u8]) -> Cow<'a, [u8]> {
        match self {
            JsonValue::String(range) => unescape_string(document.get(range.clone()).unwrap_or_default()),
            JsonValue::Text(range) => Cow::Borrowed(document.get(range.clone()).unwrap_or_default()),
        }
    }
}

/// Returns the values of `count` targets. Of members with one name the last counts. `None`: the document is invalid, or
/// objects and arrays are nested deeper than `depth_max`.
pub fn extract_values(
    root: &TargetNode,
    document: &[u8],
    depth_max: usize,
    count: usize,
) -> Option<Vec<Option<JsonValue>>> {
    let mut scanner = Scanner::new(document, depth_max);
    scanner.found = vec![None; count];
    scanner.space();
    scanner.value(Some(root))?;
    scanner.space();
    (scanner.at == document.len()).then_some(scanner.found)
}

pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// Levels of nesting that are left.
    depth: usize,
    found: Vec<Option<JsonValue>>,
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a [u8], depth: usize) -> Scanner<'a> {
        Scanner { text, at: 0, depth, found: Vec::new() }
    }
    pub fn at(&self) -> usize {
        self.at
    }
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
    fn take(&mut self, expected: u8) -> bool {
        let is_there = self.peek() == Some(expected);
        self.at += usize::from(is_there);
        is_there
    }
    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Reads a value, and stores it for the node's targets.
    fn value(&mut self, node: Option<&TargetNode>) -> Option<()> {
        let start = self.at;
        let found = match self.peek()? {
            b'"' => JsonValue::String(self.string()?),
            first => {
                match first {
                    b'{' => self.nested(|scanner| scanner.object(node))?,
                    b'[' => self.nested(|scanner| scanner.array(node))?,
                    b't' => self.literal(b"true")?,
                    b'f' => self.literal(b"false")?,
                    b'n' => self.literal(b"null")?,
                    _ => self.number()?,
                }
                JsonValue::Text(start..self.at)
            }
        };
        for target in node.iter().flat_map(|node| &node.targets) {
            if let Some(place) = self.found.get_mut(*target) {
                *place = Some(found.clone());
            }
        }
        Some(())
    }

    /// Reads an object or an array, from its opening bracket on.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.depth = self.depth.checked_sub(1)?;
        self.at += 1;
        self.space();
        read(self)?;
        self.depth += 1;
        Some(())
    }
    fn object(&mut self, node: Option<&TargetNode>) -> Option<()> {
        if self.take(b'}') {
            return Some(());
        }
        // Names need not be read where no member is wanted.
        let node = node.filter(|node| !node.parts.is_empty());
        loop {
            let name = self.string()?;
            self.space();
            if !self.take(b':') {
                return None;
            }
            self.space();
            let member = node.and_then(|node| {
                let name = unescape_string(self.text.get(name)?).into_owned();
                node.parts.get(&PathPart::Member(name))
            });
            self.value(member)?;
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
            self.space();
        }
        self.at += 1;
        Some(())
    }
    fn array(&mut self, node: Option<&TargetNode>) -> Option<()> {
        if self.take(b']') {
            return Some(());
        }
        let node = node.filter(|node| !node.parts.is_empty());
        for index in 0.. {
            self.value(node.and_then(|node| node.parts.get(&PathPart::Element(index))))?;
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b']' => break,
                _ => return None,
            }
            self.space();
        }
        self.at += 1;
        Some(())
    }

    /// Reads a string, from its opening quote on, and returns the range between the quotes. Surrogates come in pairs.
    pub fn string(&mut self) -> Option<Range<usize>> {
        if !self.take(b'"') {
            return None;
        }
        let start = self.at;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    match self.peek()? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                        b'u' => self.unicode()?,
                        _ => return None,
                    }
                }
                ..0x20 => return None,
                _ => self.at += 1,
            }
        }
        let end = self.at;
        self.at += 1;
        Some(start..end)
    }
    /// Reads the rest of `\uXXXX`, from the letter on, and the second half of a pair.
    fn unicode(&mut self) -> Option<()> {
        match self.unit()? {
            0xDC00..=0xDFFF => None,
            0xD800..=0xDBFF if self.take(b'\\') => match self.unit()? {
                0xDC00..=0xDFFF => Some(()),
                _ => None,
            },
            0xD800..=0xDBFF => None,
            _ => Some(()),
        }
    }
    fn unit(&mut self) -> Option<u16> {
        let digits = self.text.get(self.at..)?.strip_prefix(b"u")?.get(..4)?;
        self.at += 5;
        hex(digits)
    }

    fn literal(&mut self, word: &[u8]) -> Option<()> {
        let is_there = self.text.get(self.at..)?.starts_with(word);
        self.at += word.len();
        is_there.then_some(())
    }
    fn number(&mut self) -> Option<()> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Some(())
    }
    /// Reads one digit at least.
    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

fn hex(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0, |sum, digit| Some(sum << 4 | char::from(*digit).to_digit(16)? as u16))
}

/// Decodes the escape sequences of a string that [`Scanner::string`] has accepted.
pub fn unescape_string(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'\\') {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((first, behind)) = rest.split_first() {
        let (letter, behind) = match (first, behind.split_first()) {
            (b'\\', Some(pair)) => pair,
            _ => {
                out.push(*first);
                rest = behind;
                continue;
            }
        };
        rest = behind;
        match letter {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let mut units = Vec::with_capacity(2);
                while let Some(unit) = rest.get(..4).and_then(hex) {
                    units.push(unit);
                    rest = rest.get(4..).unwrap_or_default();
                    match rest.strip_prefix(b"\\u") {
                        Some(second) if units.len() == 1 && (0xD800..0xDC00).contains(&unit) => rest = second,
                        _ => break,
                    }
                }
                let mut octets = [0; 4];
                for decoded in char::decode_utf16(units).flatten() {
                    out.extend_from_slice(decoded.encode_utf8(&mut octets).as_bytes());
                }
            }
            other => out.push(*other),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::super::path;
    use super::*;

    /// Extracts values, shown as text; `None`: the document is invalid.
    fn values(document: &str, depth: usize, paths: &[&str]) -> Option<Vec<Option<String>>> {
        let mut root = TargetNode::default();
        for (target, text) in paths.iter().enumerate() {
            root.add(path::parse_path(text.as_bytes()).expect("a valid path"), target);
        }
        let found = extract_values(&root, document.as_bytes(), depth, paths.len())?;
        let shown = |found: JsonValue| String::from_utf8_lossy(&found.value(document.as_bytes())).into_owned();
        Some(found.into_iter().map(|found| found.map(shown)).collect())
    }
    fn value(document: &str, text: &str) -> Option<String> {
        values(document, 32, &[text]).and_then(|mut all| all.remove(0))
    }

    #[test]
    fn values_are_found_in_one_pass() {
        let document =
            r#" { "name" : "John", "n":-1.50e+3, "t":true,"z":null, "tags":[ "a", {"b":[1, 2]} ], "o":{} } "#;
        let paths = ["name", "n", "t", "z", "tags[0]", "tags[1].b[1]", "tags[1]", "o", "none", "tags.x", "name[0]"];
        let expected = [
            Some("John"),
            Some("-1.50e+3"),
            Some("true"),
            Some("null"),
            Some("a"),
            Some("2"),
            Some(r#"{"b":[1, 2]}"#),
            Some("{}"),
            None,
            None,
            None,
        ];
        assert_eq!(values(document, 4, &paths), Some(expected.map(|text| text.map(String::from)).to_vec()));
    }

    #[test]
    fn strings_are_decoded() {
        assert_eq!(value(r#"{"a":"\"\\\/\b\f\n\r\t"}"#, "a").as_deref(), Some("\"\\/\u{8}\u{c}\n\r\t"));
        assert_eq!(value(r#"{"a":"\u8898\ud83d\ude00x\u0000"}"#, "a").as_deref(), Some("\u{8898}\u{1f600}x\0"));
        assert_eq!(value(r#"{"\u0061":1}"#, "a").as_deref(), Some("1"));
        assert_eq!(value(r#"[""]"#, "[0]").as_deref(), Some(""));
    }

    #[test]
    fn the_last_of_equal_names_counts() {
        assert_eq!(value(r#"{"a":1,"a":"2"}"#, "a").as_deref(), Some("2"));
        assert_eq!(value(r#"{"a":{"b":1},"a":2}"#, "a.b").as_deref(), Some("1"));
    }

    #[test]
    fn nesting_is_bounded() {
        assert!(values("[[[]]]", 3, &["a"]).is_some() && values("[[[]],[]]", 3, &["a"]).is_some());
        assert!(values("[[[[]]]]", 3, &["a"]).is_none());
        assert!(values(&"[".repeat(100_000), 256, &["a"]).is_none());
    }

    #[test]
    fn documents_are_checked_whole() {
        let all = [
            "",
            " ",
            "{",
            "}",
            "{bad",
            r#"{"a":1"#,
            r#"{"a":1}x"#,
            r#"{"a":1,}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a"}"#,
            "[1,]",
            "[,1]",
            "[1 2]",
            "[01]",
            "[-]",
            "[1.]",
            "[.5]",
            "[1e]",
            "[+1]",
            "[tru]",
            "[nul",
            r#"["\x"]"#,
            r#"["\u12g4"]"#,
            r#"["\ud83d"]"#,
            r#"["\ud83dx"]"#,
            r#"["\ud83d\u0041"]"#,
            r#"["\ude00"]"#,
            "[\"\n\"]",
            "[\"",
            r#"{"a":1,"b":"\uDEAD"}"#,
        ];
        for document in all {
            assert_eq!(values(document, 32, &["a"]), None, "{document}");
        }
        for document in ["0", "\"a\"", "null", "[ ]", "{ }", "[0.0e-0]", "[\"\u{7f}\u{fc}\"]"] {
            assert_eq!(values(document, 32, &["a"]), Some(vec![None]), "{document}");
        }
    }

    /// A generator of numbers below `n` (splitmix64).
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            (mixed >> 33) as usize % n
        }
    }

    #[test]
    fn another_parser_agrees() {
        const TOKENS: &[&str] = &[
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "{\"a\":",
            ",\"b\":",
            "[1,",
            "]}",
            "\"a\"",
            "\"\\u0061\"",
            "\"\\ud83d\\ude00\"",
            "\"\\ude00\"",
            "\"\\n\\x\"",
            "-",
            "0",
            "7",
            ".5",
            "e-3",
            "true",
            "null",
            "nul",
            " ",
            "\n",
        ];
        let (mut random, mut valid) = (Random(1), 0);
        for _ in 0..200_000 {
            let document: String = (0..=random.below(8)).map(|_| TOKENS[random.below(TOKENS.len())]).collect();
            let ours = values(&document, 100, &["a", "[1]"]);
            let theirs = serde_json::from_str::<serde_json::Value>(&document).ok();
            assert_eq!(ours.is_some(), theirs.is_some(), "{document}");
            let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
            valid += 1;
            for (ours, theirs) in ours.iter().zip([theirs.get("a"), theirs.get(1)]) {
                match (ours, theirs) {
                    (Some(ours), Some(serde_json::Value::String(theirs))) => assert_eq!(ours, theirs, "{document}"),
                    (Some(ours), Some(theirs)) => {
                        assert_eq!(
                            serde_json::from_str::<serde_json::Value>(ours).ok().as_ref(),
                            Some(theirs),
                            "{document}"
                        );
                    }
                    (ours, theirs) => assert_eq!(ours.is_some(), theirs.is_some(), "{document}"),
                }
            }
        }
        assert!(valid > 1000, "{valid} valid documents");
    }
}
