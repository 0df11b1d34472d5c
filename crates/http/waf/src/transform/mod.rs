//! Transformations of values before an operator sees them (`t:lowercase`), with the semantics of ModSecurity v3.
//!
//! Each returns `None` if it leaves the value as it is, so that unchanged values are neither copied nor cached again.

mod comments;
mod encoded;
mod path;
mod script;
mod text;
mod touch;
mod unicode;
mod url;

pub use unicode::UnicodeMap;
pub(crate) use unicode::read_utf8;
pub(crate) use url::{decode_counted, decode_path};

use crate::byte_set::ByteSet;
use std::sync::Arc;

/// A transformation by its name in the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transformation {
    Base64Decode,
    Base64DecodeExt,
    Base64Encode,
    CmdLine,
    CompressWhitespace,
    CssDecode,
    EscapeSeqDecode,
    HexDecode,
    HexEncode,
    HtmlEntityDecode,
    JsDecode,
    Length,
    Lowercase,
    Md5,
    NormalisePath,
    NormalisePathWin,
    ParityEven7Bit,
    ParityOdd7Bit,
    ParityZero7Bit,
    RemoveComments,
    RemoveCommentsChar,
    RemoveNulls,
    RemoveWhitespace,
    ReplaceComments,
    ReplaceNulls,
    Sha1,
    SqlHexDecode,
    Trim,
    TrimLeft,
    TrimRight,
    Uppercase,
    UrlDecode,
    UrlDecodeUni,
    UrlEncode,
    Utf8ToUnicode,
}

use Transformation as T;

/// Names as messages show them, and the transformation. The first row of a transformation is its canonical name.
const NAMES: &[(&str, Transformation)] = &[
    ("base64Decode", T::Base64Decode),
    ("base64DecodeExt", T::Base64DecodeExt),
    ("base64Encode", T::Base64Encode),
    ("cmdLine", T::CmdLine),
    ("compressWhitespace", T::CompressWhitespace),
    ("cssDecode", T::CssDecode),
    ("escapeSeqDecode", T::EscapeSeqDecode),
    ("hexDecode", T::HexDecode),
    ("hexEncode", T::HexEncode),
    ("htmlEntityDecode", T::HtmlEntityDecode),
    ("jsDecode", T::JsDecode),
    ("length", T::Length),
    ("lowercase", T::Lowercase),
    ("md5", T::Md5),
    ("normalisePath", T::NormalisePath),
    ("normalizePath", T::NormalisePath),
    ("normalisePathWin", T::NormalisePathWin),
    ("normalizePathWin", T::NormalisePathWin),
    ("parityEven7bit", T::ParityEven7Bit),
    ("parityOdd7bit", T::ParityOdd7Bit),
    ("parityZero7bit", T::ParityZero7Bit),
    ("removeComments", T::RemoveComments),
    ("removeCommentsChar", T::RemoveCommentsChar),
    ("removeNulls", T::RemoveNulls),
    ("removeWhitespace", T::RemoveWhitespace),
    ("replaceComments", T::ReplaceComments),
    ("replaceNulls", T::ReplaceNulls),
    ("sha1", T::Sha1),
    ("sqlHexDecode", T::SqlHexDecode),
    ("trim", T::Trim),
    ("trimLeft", T::TrimLeft),
    ("trimRight", T::TrimRight),
    ("uppercase", T::Uppercase),
    ("urlDecode", T::UrlDecode),
    ("urlDecodeUni", T::UrlDecodeUni),
    ("urlEncode", T::UrlEncode),
    ("utf8toUnicode", T::Utf8ToUnicode),
];

impl Transformation {
    /// Finds a transformation by name without regard to case; `none` is not one.
    pub fn named(name: &str) -> Option<Transformation> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, found)| *found)
    }

    /// All names, for suggestions.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// The canonical name, as in the `ref` field of messages.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Returns the transformed value, or `None` if it equals `input`. `map` is the code page of `SecUnicodeMapFile`,
    /// which only `urlDecodeUni` uses.
    pub fn apply(self, input: &[u8], map: Option<&UnicodeMap>) -> Option<Vec<u8>> {
        match self {
            T::Base64Decode => encoded::base64_decode(input),
            T::Base64DecodeExt => encoded::base64_decode_ext(input),
            T::Base64Encode => encoded::base64_encode(input),
            T::CmdLine => text::cmd_line(input),
            T::CompressWhitespace => text::compress_whitespace(input),
            T::CssDecode => script::css_decode(input),
            T::EscapeSeqDecode => script::escape_seq_decode(input),
            T::HexDecode => encoded::hex_decode(input),
            T::HexEncode => encoded::hex_encode(input),
            T::HtmlEntityDecode => script::html_entity_decode(input),
            T::JsDecode => script::js_decode(input),
            T::Length => Some(input.len().to_string().into_bytes()),
            T::Lowercase => text::lowercase(input),
            T::Md5 => encoded::md5(input),
            T::NormalisePath => path::normalise(input, false),
            T::NormalisePathWin => path::normalise(input, true),
            T::ParityEven7Bit => text::parity(input, |ones| ones % 2 == 1),
            T::ParityOdd7Bit => text::parity(input, |ones| ones % 2 == 0),
            T::ParityZero7Bit => text::parity(input, |_| false),
            T::RemoveComments => comments::remove(input),
            T::RemoveCommentsChar => comments::remove_marks(input),
            T::RemoveNulls => text::remove_nulls(input),
            T::RemoveWhitespace => text::remove_whitespace(input),
            T::ReplaceComments => comments::replace(input),
            T::ReplaceNulls => text::replace_nulls(input),
            T::Sha1 => encoded::sha1(input),
            T::SqlHexDecode => encoded::sql_hex_decode(input),
            T::Trim => text::trim(input, true, true),
            T::TrimLeft => text::trim(input, true, false),
            T::TrimRight => text::trim(input, false, true),
            T::Uppercase => text::uppercase(input),
            T::UrlDecode => url::decode(input),
            T::UrlDecodeUni => url::decode_unicode(input, map),
            T::UrlEncode => url::encode(input),
            T::Utf8ToUnicode => unicode::utf8_to_unicode(input),
        }
    }
}

/// A node of the tree of all sequences of transformations in a rule set. Node 0 is the value itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainNode {
    pub parent: u32,
    pub step: Transformation,
    /// Transformations from the root.
    pub depth: u32,
}

/// The tree of sequences, shared by rules: two rules that begin with the same transformations share their results.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChainTree {
    /// Node `n` is at `n - 1`.
    nodes: Vec<ChainNode>,
}

impl ChainTree {
    /// Returns the node of `parent` followed by `step`, and adds it if it is new.
    pub fn extend(&mut self, parent: u32, step: Transformation) -> u32 {
        let known = self.nodes.iter().position(|node| node.parent == parent && node.step == step);
        if let Some(index) = known {
            return index as u32 + 1;
        }
        let depth = self.node(parent).map_or(0, |node| node.depth) + 1;
        self.nodes.push(ChainNode { parent, step, depth });
        self.nodes.len() as u32
    }
    /// Returns node `index`, or `None` for the root.
    pub fn node(&self, index: u32) -> Option<ChainNode> {
        self.nodes.get((index as usize).checked_sub(1)?).copied()
    }
    /// The node for these transformations.
    pub fn sequence(&mut self, steps: &[Transformation]) -> u32 {
        steps.iter().fold(0, |node, step| self.extend(node, *step))
    }
    /// Returns bytes as [`Transformation::touched_bytes`] does, for all transformations of a node; `None` if one can
    /// change every value.
    pub fn touched_bytes(&self, mut index: u32) -> Option<ByteSet> {
        let mut set = ByteSet::default();
        while let Some(node) = self.node(index) {
            set = set.joined(node.step.touched_bytes()?);
            index = node.parent;
        }
        Some(set)
    }
    /// Returns the nodes from `index` up to the first transformation, without the root.
    pub fn path_of(&self, index: u32) -> impl Iterator<Item = u32> {
        let parent = |index: &u32| self.node(*index).map(|node| node.parent).filter(|parent| *parent > 0);
        std::iter::successors(Some(index).filter(|index| *index > 0), parent)
    }
    /// `t:a,t:b`, as messages show it.
    pub fn shown(&self, mut index: u32) -> String {
        let mut names = Vec::new();
        while let Some(node) = self.node(index) {
            names.push(format!("t:{}", node.step.name()));
            index = node.parent;
        }
        names.reverse();
        names.join(",")
    }
}

/// Returns the byte at `index`, or 0 behind the end, as a C string would have it.
pub(crate) fn byte_at(input: &[u8], index: usize) -> u8 {
    input.get(index).copied().unwrap_or(0)
}

/// The value of a hexadecimal digit.
pub(crate) fn hex_value(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|value| value as u8)
}

/// The byte of two hexadecimal digits at `index`.
pub(crate) fn hex_pair(input: &[u8], index: usize) -> Option<u8> {
    let high = hex_value(*input.get(index)?)?;
    let low = hex_value(*input.get(index + 1)?)?;
    Some(high << 4 | low)
}

/// White space of C's `isspace` in the locale "C".
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Applies a sequence and returns the value of each step that changed it, for `multiMatch`: (value, node).
pub(crate) fn each_change(
    tree: &ChainTree,
    node: u32,
    input: &Arc<[u8]>,
    map: Option<&UnicodeMap>,
) -> Vec<(Arc<[u8]>, u32)> {
    let mut path = Vec::new();
    let mut index = node;
    while let Some(found) = tree.node(index) {
        path.push((index, found.step));
        index = found.parent;
    }
    let mut values = vec![(input.clone(), 0)];
    let mut value = input.clone();
    for (index, step) in path.into_iter().rev() {
        if let Some(next) = step.apply(&value, map) {
            value = next.into();
            values.push((value.clone(), index));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_share_the_nodes_of_equal_sequences() {
        let mut tree = ChainTree::default();
        let one = tree.sequence(&[T::UrlDecodeUni, T::Lowercase]);
        let two = tree.sequence(&[T::UrlDecodeUni, T::Trim]);
        assert_eq!(tree.node(one).map(|node| node.parent), tree.node(two).map(|node| node.parent));
        assert_eq!(tree.nodes.len(), 3);
        assert_eq!(tree.shown(two), "t:urlDecodeUni,t:trim");
    }

    #[test]
    fn names_are_found_without_case_and_shown_canonically() {
        assert_eq!(Transformation::named("NORMALIZEPATH").map(Transformation::name), Some("normalisePath"));
        assert_eq!(Transformation::named("none"), None);
    }

    /// Facts of ModSecurity's own tests and manual; an output that equals the input stands for `None`.
    #[test]
    fn each_transformation_has_the_results_of_modsecurity() {
        let table: &[(&str, &[u8], &[u8])] = &[
            ("base64Decode", b"VGVzdENhc2U=", b"TestCase"),
            ("base64Decode", b"VGVzdABDYXNl", b"Test\0Case"),
            ("base64DecodeExt", b"VG.Vz-dENh c2U=", b"TestCase"),
            ("base64Encode", b"Test\0Case", b"VGVzdABDYXNl"),
            ("cmdLine", b"C^OMMAND /C DIR", b"command/c dir"),
            ("cmdLine", b"\"command\" ,; /c", b"command/c"),
            ("compressWhitespace", b"This is  a\t\ttest\n\r\x0b\x0cx", b"This is a test x"),
            ("cssDecode", b"\\1A\\1 A\\1234567", b"\x1a\x01AV7"),
            ("cssDecode", b"test\\", b"test"),
            (
                "escapeSeqDecode",
                b"\\a\\b\\f\\n\\r\\t\\v\\?\\'\\\"\\0\\12\\123\\x00\\xff",
                b"\x07\x08\x0c\n\r\t\x0b?'\"\0\nS\0\xff",
            ),
            ("hexDecode", b"5465737400436173", b"Test\0Cas"),
            ("hexEncode", b"Test\0", b"5465737400"),
            (
                "htmlEntityDecode",
                b"&#x0;&#X20;&#0;&#32;&#49;&quot;&amp;&lt;&gt;&nbsp;&xAA;&#;&",
                b"\0 \0 1\"&<>\xa0&xAA;&#;&",
            ),
            ("jsDecode", b"\\a\\b\\f\\n\\u0000\\u0020\\uff01\\x41\\0\\60\\377", b"\x07\x08\x0c\n\0 !A\x000\xff"),
            ("length", b"", b"0"),
            ("length", b"0123456789\tabcdef", b"17"),
            ("lowercase", b"TestCase\xc4", b"testcase\xc4"),
            ("md5", b"", b"\xd4\x1d\x8c\xd9\x8f\x00\xb2\x04\xe9\x80\x09\x98\xec\xf8\x42\x7e"),
            ("normalisePath", b"/foo/../foo/bar/./baz//x/", b"/foo/bar/baz/x/"),
            ("normalisePath", b"../../foo", b"../../foo"),
            ("normalisePathWin", b"\\foo\\..\\bar\\.\\baz", b"/bar/baz"),
            ("parityEven7bit", b"abc", b"\xe1\xe2c"),
            ("parityOdd7bit", b"abc", b"ab\xe3"),
            ("parityZero7bit", b"\xe1\xe2c", b"abc"),
            ("removeComments", b"Before/* x */After", b"BeforeAfter"),
            ("removeCommentsChar", b"a/*b*/c<!--d-->e--f#g", b"abcdefg"),
            ("removeNulls", b"\0Test\0\0Case\0", b"TestCase"),
            ("removeWhitespace", b" \t\nTest \x0b\x0c\rCase\xa0", b"TestCase"),
            ("replaceComments", b"Before/* x */After", b"Before After"),
            ("replaceComments", b"Before/* open", b"Before "),
            ("replaceNulls", b"\0Test\0", b" Test "),
            ("sha1", b"abc", b"\xa9\x99\x3e\x36\x47\x06\x81\x6a\xba\x3e\x25\x71\x78\x50\xc2\x6c\x9c\xd0\xd8\x9d"),
            ("sqlHexDecode", b"0x414243 0X64 x", b"ABC d x"),
            ("trim", b" \t\nTest Case\r\n ", b"Test Case"),
            ("trimLeft", b"  Test ", b"Test "),
            ("trimRight", b"  Test ", b"  Test"),
            ("uppercase", b"Test\xe4", b"TEST\xe4"),
            ("urlDecode", b"Test+Case%20%41%zz%4", b"Test Case A%zz%4"),
            ("urlDecodeUni", b"+%uff1c%u0041%20%u1234%u12", b" <A 4%u12"),
            ("urlEncode", b"Test Case*\xe4", b"Test+Case*%e4"),
            ("utf8toUnicode", "a\u{e9}\u{20ac}".as_bytes(), b"a%u00e9%u20ac"),
        ];
        for (name, input, output) in table {
            let transformation = Transformation::named(name).expect(name);
            let result = transformation.apply(input, None);
            assert_eq!(result.as_deref().unwrap_or(input), *output, "{name} of {input:?}");
            assert!(result.is_none() || input != output, "{name} of {input:?} is a copy");
        }
        let untested: Vec<&str> = Transformation::names()
            .filter(|name| Transformation::named(name).map(Transformation::name) == Some(name))
            .filter(|name| !table.iter().any(|(known, ..)| known == name))
            .collect();
        assert_eq!(untested, [""; 0]);
    }

    #[test]
    fn multi_match_sees_the_value_and_every_change() {
        let mut tree = ChainTree::default();
        let node = tree.sequence(&[T::Lowercase, T::Trim, T::RemoveNulls]);
        let values = each_change(&tree, node, &Arc::from(&b" A "[..]), None);
        let shown: Vec<&[u8]> = values.iter().map(|(value, _)| &**value).collect();
        assert_eq!(shown, [&b" A "[..], b" a ", b"a"]);
    }
}
