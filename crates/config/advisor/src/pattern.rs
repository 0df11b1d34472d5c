//! Parses regular expressions to judge their structure: anchors, dots, groups, ambiguous repetition.
//! Covers PCRE's common subset; [`RegexPattern::parse`] returns `None` beyond it, and no check judges such a pattern.

/// Nested groups at most.
const DEPTH_MAX: u32 = 64;
/// Sequences of one expression that are searched for a nested repetition; more of them are passed over.
const JOINED_MAX: u32 = 10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CharSet([u64; 4]);

impl CharSet {
    pub fn one(byte: u8) -> CharSet {
        let mut set = CharSet::default();
        set.add(byte, byte);
        set
    }
    fn add(&mut self, from: u8, to: u8) {
        for byte in from..=to {
            if let Some(word) = self.0.get_mut(usize::from(byte >> 6)) {
                *word |= 1 << (byte & 63);
            }
        }
    }
    pub fn has(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte >> 6)).is_some_and(|word| word & (1 << (byte & 63)) != 0)
    }
    fn not(self) -> CharSet {
        CharSet(self.0.map(|word| !word))
    }
    fn or(self, other: CharSet) -> CharSet {
        let mut out = self;
        for (word, more) in out.0.iter_mut().zip(other.0) {
            *word |= more;
        }
        out
    }
    fn meets(self, other: CharSet) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| a & b != 0)
    }
    pub fn single(&self) -> Option<u8> {
        let count: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        (count == 1).then(|| (0..=255).find(|byte| self.has(*byte))).flatten()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternNode {
    /// A byte of a set; `dot` when written as `.`.
    Byte {
        set: CharSet,
        dot: bool,
    },
    Group {
        index: Option<u32>,
        name: Option<String>,
        alternatives: Vec<Vec<PatternItem>>,
    },
    Start,
    End,
    /// Matches without consuming bytes: `\b`, look-arounds.
    Nothing,
    Back,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternItem {
    pub node: PatternNode,
    pub min: u32,
    /// `None`: unbounded.
    pub max: Option<u32>,
    /// Never backtracks: `a++`, or an atomic group.
    pub possessive: bool,
    pub at: usize,
}

impl PatternItem {
    fn once(&self) -> bool {
        self.min == 1 && self.max == Some(1)
    }
    pub fn once_or_not(&self) -> bool {
        self.max == Some(1)
    }
    pub fn literal(&self) -> Option<u8> {
        match &self.node {
            PatternNode::Byte { set, dot: false } if self.once() => set.single(),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegexPattern {
    pub alternatives: Vec<Vec<PatternItem>>,
    pub ignore_case: bool,
}

struct PatternParser<'a> {
    text: &'a [u8],
    at: usize,
    groups: u32,
    depth: u32,
}

impl RegexPattern {
    pub fn parse(text: &str, ignore_case: bool) -> Option<RegexPattern> {
        let mut parser = PatternParser { text: text.as_bytes(), at: 0, groups: 0, depth: 0 };
        let mut ignore_case = ignore_case;
        if text.starts_with("(?i)") {
            parser.at = 4;
            ignore_case = true;
        }
        let alternatives = parser.alternatives()?;
        (parser.at == parser.text.len()).then_some(RegexPattern { alternatives, ignore_case })
    }
    /// Every alternative is anchored at the start.
    pub fn anchored_start(&self) -> bool {
        self.alternatives.iter().all(|items| begins(items, &PatternNode::Start))
    }
    pub fn matches_all(&self) -> bool {
        self.alternatives.iter().any(|items| {
            let mut slashes = 0;
            items.iter().all(|item| match &item.node {
                PatternNode::Start => true,
                PatternNode::Byte { set, dot } => {
                    if item.literal() == Some(b'/') {
                        slashes += 1;
                        return slashes == 1;
                    }
                    (*dot || *set == CharSet::default().not()) && (item.min == 0 || slashes == 0 && item.min == 1)
                }
                PatternNode::End => true,
                PatternNode::Group { alternatives, .. } => {
                    let inner = RegexPattern { alternatives: alternatives.clone(), ignore_case: false };
                    item.min == 0 || inner.matches_all()
                }
                _ => false,
            }) && (!items.iter().any(|item| item.node == PatternNode::End)
                || items.iter().any(|item| item.max.is_none() || has_endless(item)))
        })
    }
    /// Matching bytes; `None` where unknown (look-arounds, back references).
    pub fn sample(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        sample(self.alternatives.first()?, &mut out)?;
        Some(out)
    }
    /// Tells whether a group (by number or name) can contain a byte.
    pub fn group_can_hold(&self, name: &str, byte: u8) -> bool {
        find(&self.alternatives, name).is_some_and(|alternatives| can_hold(alternatives, byte))
    }
    pub fn has_group(&self, name: &str) -> bool {
        find(&self.alternatives, name).is_some()
    }
    /// Offset of a nested repetition that can match the same bytes in exponentially many ways.
    pub fn catastrophic(&self) -> Option<usize> {
        let mut steps = JOINED_MAX;
        self.alternatives.iter().find_map(|items| catastrophic(items, &mut steps))
    }
    pub fn sequences(&self) -> Vec<&[PatternItem]> {
        let mut out = Vec::new();
        collect(&self.alternatives, &mut out);
        out
    }
}

fn has_endless(item: &PatternItem) -> bool {
    match &item.node {
        PatternNode::Group { alternatives, .. } => {
            alternatives.iter().flatten().any(|inner| inner.max.is_none() || has_endless(inner))
        }
        _ => item.max.is_none(),
    }
}

fn collect<'a>(alternatives: &'a [Vec<PatternItem>], out: &mut Vec<&'a [PatternItem]>) {
    for items in alternatives {
        out.push(items);
        for item in items {
            if let PatternNode::Group { alternatives, .. } = &item.node {
                collect(alternatives, out);
            }
        }
    }
}

fn begins(items: &[PatternItem], node: &PatternNode) -> bool {
    match items.first() {
        Some(item) if item.node == *node => true,
        Some(PatternItem { node: PatternNode::Group { alternatives, .. }, min: 1.., .. }) => {
            alternatives.iter().all(|inner| begins(inner, node))
        }
        _ => false,
    }
}

fn sample(items: &[PatternItem], out: &mut Vec<u8>) -> Option<()> {
    for item in items {
        for _ in 0..item.min {
            match &item.node {
                PatternNode::Byte { set, .. } => {
                    let usual = (b'a'..=b'z').chain(b'0'..=b'9').chain(0x21..0x7f);
                    out.push(usual.into_iter().find(|byte| set.has(*byte))?);
                }
                PatternNode::Group { alternatives, .. } => sample(alternatives.first()?, out)?,
                PatternNode::Start | PatternNode::End => {}
                PatternNode::Nothing | PatternNode::Back => return None,
            }
        }
    }
    Some(())
}

fn find<'a>(alternatives: &'a [Vec<PatternItem>], wanted: &str) -> Option<&'a [Vec<PatternItem>]> {
    for item in alternatives.iter().flatten() {
        if let PatternNode::Group { index, name, alternatives } = &item.node {
            let is = index.is_some_and(|index| index.to_string() == wanted)
                || name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
            if is {
                return Some(alternatives);
            }
            if let Some(found) = find(alternatives, wanted) {
                return Some(found);
            }
        }
    }
    None
}

fn can_hold(alternatives: &[Vec<PatternItem>], byte: u8) -> bool {
    alternatives.iter().flatten().any(|item| match &item.node {
        PatternNode::Byte { set, .. } => item.max != Some(0) && set.has(byte),
        PatternNode::Group { alternatives, .. } => can_hold(alternatives, byte),
        PatternNode::Back => true,
        _ => false,
    })
}

fn bytes_of(node: &PatternNode) -> CharSet {
    match node {
        PatternNode::Byte { set, .. } => *set,
        PatternNode::Group { alternatives, .. } => {
            alternatives.iter().flatten().fold(CharSet::default(), |all, item| all.or(bytes_of(&item.node)))
        }
        _ => CharSet::default(),
    }
}

fn catastrophic(items: &[PatternItem], steps: &mut u32) -> Option<usize> {
    for item in items {
        let PatternNode::Group { alternatives, .. } = &item.node else { continue };
        let many = item.max.is_none_or(|max| max > 20) && !item.possessive;
        if many && alternatives.iter().any(|inner| splits_in_many_ways(inner, steps)) {
            return Some(item.at);
        }
        if many && overlapping(alternatives) {
            return Some(item.at);
        }
        if !item.possessive
            && let Some(at) = alternatives.iter().find_map(|inner| catastrophic(inner, steps))
        {
            return Some(at);
        }
    }
    None
}

/// Detects a repeated sequence with an unbounded part that nothing mandatory delimits. `steps`: sequences that may still be looked at;
/// groups with alternatives multiply them.
fn splits_in_many_ways(items: &[PatternItem], steps: &mut u32) -> bool {
    let Some(left) = steps.checked_sub(1) else { return false };
    *steps = left;
    let plain = |item: &PatternItem| matches!(item.node, PatternNode::Group { .. }) && item.once() && !item.possessive;
    if let Some(at) = items.iter().position(plain)
        && let Some(PatternItem { node: PatternNode::Group { alternatives, .. }, .. }) = items.get(at)
    {
        let (before, after) = (items.iter().take(at), items.iter().skip(at + 1));
        let joined =
            |inner: &Vec<PatternItem>| before.clone().chain(inner).chain(after.clone()).cloned().collect::<Vec<_>>();
        return alternatives.iter().any(|inner| splits_in_many_ways(&joined(inner), steps));
    }
    items.iter().enumerate().any(|(index, part)| {
        if part.max.is_some() || part.possessive {
            return false;
        }
        let own = bytes_of(&part.node);
        own != CharSet::default()
            && items.iter().enumerate().all(|(other, item)| {
                other == index
                    || item.min == 0
                    || match &item.node {
                        PatternNode::Byte { set, .. } => set.meets(own),
                        PatternNode::Group { .. } => bytes_of(&item.node).meets(own),
                        PatternNode::Back | PatternNode::Nothing => true,
                        PatternNode::Start | PatternNode::End => false,
                    }
            })
    })
}

/// Two single-byte alternatives that overlap: `(a|.)*`.
fn overlapping(alternatives: &[Vec<PatternItem>]) -> bool {
    let single = |items: &Vec<PatternItem>| match items.as_slice() {
        [item] if item.min == 1 => match &item.node {
            PatternNode::Byte { set, .. } => Some(*set),
            _ => None,
        },
        _ => None,
    };
    let sets: Vec<CharSet> = alternatives.iter().filter_map(single).collect();
    sets.iter().enumerate().any(|(index, set)| sets.iter().skip(index + 1).any(|other| set.meets(*other)))
}

impl PatternParser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }
    fn eat(&mut self, text: &[u8]) -> bool {
        let found = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(text));
        if found {
            self.at += text.len();
        }
        found
    }

    fn alternatives(&mut self) -> Option<Vec<Vec<PatternItem>>> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let mut all = vec![Vec::new()];
        loop {
            match self.peek() {
                None | Some(b')') => break,
                Some(b'|') => {
                    self.at += 1;
                    all.push(Vec::new());
                }
                Some(_) => {
                    let at = self.at;
                    let (node, atomic) = self.node()?;
                    let (min, max, possessive) = self.quantifier()?;
                    all.last_mut()?.push(PatternItem { node, min, max, possessive: possessive || atomic, at });
                }
            }
        }
        self.depth -= 1;
        Some(all)
    }

    fn quantifier(&mut self) -> Option<(u32, Option<u32>, bool)> {
        let (min, max) = match self.peek() {
            Some(b'*') => (0, None),
            Some(b'+') => (1, None),
            Some(b'?') => (0, Some(1)),
            Some(b'{') => match self.counts() {
                Some(counts) => counts,
                None => return Some((1, Some(1), false)),
            },
            _ => return Some((1, Some(1), false)),
        };
        self.at += 1;
        let possessive = self.eat(b"+");
        if !possessive {
            self.eat(b"?");
        }
        Some((min, max, possessive))
    }

    /// Parses `{2}`, `{2,}`, `{2,4}`, up to the closing brace. Any other brace is literal.
    fn counts(&mut self) -> Option<(u32, Option<u32>)> {
        let rest = self.text.get(self.at + 1..)?;
        let end = rest.iter().position(|c| *c == b'}')?;
        let words = std::str::from_utf8(rest.get(..end)?).ok()?;
        let (min, max) = match words.split_once(',') {
            None => (words.parse().ok()?, Some(words.parse().ok()?)),
            Some((min, "")) => (min.parse().ok()?, None),
            Some((min, max)) => (min.parse().ok()?, Some(max.parse().ok()?)),
        };
        self.at += end + 1;
        Some((min, max))
    }

    fn node(&mut self) -> Option<(PatternNode, bool)> {
        let byte = |set| (PatternNode::Byte { set, dot: false }, false);
        Some(match self.next()? {
            b'^' => (PatternNode::Start, false),
            b'$' => (PatternNode::End, false),
            b'.' => {
                let mut set = CharSet::default().not();
                set.0[0] &= !(1 << b'\n');
                (PatternNode::Byte { set, dot: true }, false)
            }
            b'[' => byte(self.class()?),
            b'(' => return self.group(),
            b'\\' => match self.next()? {
                b'A' => (PatternNode::Start, false),
                b'z' | b'Z' => (PatternNode::End, false),
                b'b' | b'B' | b'K' | b'G' => (PatternNode::Nothing, false),
                b'1'..=b'9' => (PatternNode::Back, false),
                other => byte(self.escape(other)?),
            },
            b'*' | b'+' | b'?' => return None,
            other => byte(CharSet::one(other)),
        })
    }

    fn group(&mut self) -> Option<(PatternNode, bool)> {
        let (mut index, mut name, mut nothing, mut atomic) = (None, None, false, false);
        if self.eat(b"?") {
            if self.eat(b":") {
            } else if self.eat(b">") {
                atomic = true;
            } else if self.eat(b"=") || self.eat(b"!") || self.eat(b"<=") || self.eat(b"<!") {
                nothing = true;
            } else if self.eat(b"P<") || self.eat(b"<") || self.eat(b"'") {
                let start = self.at;
                while !matches!(self.next()?, b'>' | b'\'') {}
                name = Some(String::from_utf8_lossy(self.text.get(start..self.at - 1)?).into_owned());
                self.groups += 1;
                index = Some(self.groups);
            } else {
                return None;
            }
        } else {
            self.groups += 1;
            index = Some(self.groups);
        }
        let alternatives = self.alternatives()?;
        if !self.eat(b")") {
            return None;
        }
        if nothing {
            return Some((PatternNode::Nothing, false));
        }
        Some((PatternNode::Group { index, name, alternatives }, atomic))
    }

    fn escape(&mut self, byte: u8) -> Option<CharSet> {
        let mut set = CharSet::default();
        match byte {
            b'd' | b'D' => set.add(b'0', b'9'),
            b'w' | b'W' => {
                set.add(b'0', b'9');
                set.add(b'a', b'z');
                set.add(b'A', b'Z');
                set.add(b'_', b'_');
            }
            b's' | b'S' => {
                set.add(9, 13);
                set.add(b' ', b' ');
            }
            b'n' => set.add(b'\n', b'\n'),
            b'r' => set.add(b'\r', b'\r'),
            b't' => set.add(b'\t', b'\t'),
            b'h' => {
                set.add(b' ', b' ');
                set.add(b'\t', b'\t');
            }
            b'x' => {
                let digits = self.text.get(self.at..self.at + 2)?;
                let value = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
                self.at += 2;
                set.add(value, value);
            }
            other if other.is_ascii_alphanumeric() => return None,
            other => set.add(other, other),
        }
        Some(if matches!(byte, b'D' | b'W' | b'S') { set.not() } else { set })
    }

    fn class(&mut self) -> Option<CharSet> {
        let negated = self.eat(b"^");
        let mut set = CharSet::default();
        let mut first = true;
        loop {
            let mut low = self.next()?;
            if low == b']' && !first {
                break;
            }
            first = false;
            if low == b'[' && self.eat(b":") {
                let start = self.at;
                while self.next()? != b']' {}
                set = set.or(posix(self.text.get(start..self.at.checked_sub(2)?)?)?);
                continue;
            }
            if low == b'\\' {
                let escaped = self.next()?;
                let inner = if escaped == b'b' { CharSet::one(8) } else { self.escape(escaped)? };
                match inner.single() {
                    Some(one) => low = one,
                    None => {
                        set = set.or(inner);
                        continue;
                    }
                }
            }
            let is_range = self.peek() == Some(b'-') && self.text.get(self.at + 1).is_some_and(|c| *c != b']');
            if !is_range {
                set.add(low, low);
                continue;
            }
            self.at += 1;
            let mut high = self.next()?;
            if high == b'\\' {
                let escaped = self.next()?;
                high = self.escape(escaped)?.single()?;
            }
            if low > high {
                return None;
            }
            set.add(low, high);
        }
        Some(if negated { set.not() } else { set })
    }
}

fn posix(name: &[u8]) -> Option<CharSet> {
    let mut set = CharSet::default();
    let ranges: &[(u8, u8)] = match name {
        b"alpha" => &[(b'a', b'z'), (b'A', b'Z')],
        b"digit" => &[(b'0', b'9')],
        b"alnum" => &[(b'a', b'z'), (b'A', b'Z'), (b'0', b'9')],
        b"lower" => &[(b'a', b'z')],
        b"upper" => &[(b'A', b'Z')],
        b"xdigit" => &[(b'a', b'f'), (b'A', b'F'), (b'0', b'9')],
        b"space" => &[(9, 13), (b' ', b' ')],
        _ => return None,
    };
    ranges.iter().for_each(|(from, to)| set.add(*from, *to));
    Some(set)
}

impl RegexPattern {
    /// File name extensions of a pattern `\.(a|b)$`, with its case sensitivity.
    pub fn extensions(&self) -> Option<Vec<String>> {
        let [items] = self.alternatives.as_slice() else { return None };
        let (dot, rest) = items.split_first()?;
        let (end, middle) = rest.split_last()?;
        if dot.literal() != Some(b'.') || end.node != PatternNode::End {
            return None;
        }
        let mut out = Vec::new();
        words(middle, String::new(), self.ignore_case, &mut out)?;
        out.sort();
        Some(out)
    }
}

/// Words of a sequence of letters, optional letters and groups of them.
fn words(items: &[PatternItem], before: String, ignore_case: bool, out: &mut Vec<String>) -> Option<()> {
    const WORDS_MAX: usize = 500;
    if out.len() > WORDS_MAX {
        return None;
    }
    let Some((item, rest)) = items.split_first() else {
        out.push(if ignore_case { before.to_ascii_lowercase() } else { before });
        return Some(());
    };
    if item.max != Some(1) {
        return None;
    }
    if item.min == 0 {
        words(rest, before.clone(), ignore_case, out)?;
    }
    match &item.node {
        PatternNode::Byte { set, .. } => {
            let letters: Vec<u8> = (0..=255).filter(|byte| set.has(*byte)).collect();
            if letters.len() > 10 {
                return None;
            }
            for letter in letters {
                words(rest, format!("{before}{}", char::from(letter)), ignore_case, out)?;
            }
            Some(())
        }
        PatternNode::Group { alternatives, .. } => {
            for inner in alternatives {
                let joined: Vec<PatternItem> = inner.iter().chain(rest).cloned().collect();
                words(&joined, before.clone(), ignore_case, out)?;
            }
            Some(())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_multiply_are_searched_within_a_limit() {
        // Each group doubles the sequences: 2^40 of them.
        let pattern = parse(&format!("({})+", "(a|b)".repeat(40)));
        assert_eq!(pattern.catastrophic(), None);
        let mut steps = 100;
        assert_eq!(catastrophic(&pattern.alternatives[0], &mut steps), None);
        assert_eq!(steps, 0);
    }

    fn parse(text: &str) -> RegexPattern {
        RegexPattern::parse(text, false).unwrap_or_else(|| panic!("{text} is read"))
    }

    #[test]
    fn patterns_are_read_or_left_alone() {
        for text in ["^/a(b|c)*[^/]+\\.php$", "(?<x>\\d{2,4})", "[a-z\\]x]", "a{x", "(?:)", "[[:alpha:]_]", "(?!x)a"] {
            parse(text);
        }
        for text in ["(", "a)", "*a", "[a", "\\p{L}", "(?R)"] {
            assert!(RegexPattern::parse(text, false).is_none(), "{text}");
        }
    }

    #[test]
    fn ambiguous_patterns_are_found() {
        for text in ["^(a+)+$", "(.*a)*b", "^/(x|[a-z])*$", "(\\w+\\s?)*$", "((a+)b?)+c"] {
            assert!(parse(text).catastrophic().is_some(), "{text}");
        }
        for text in ["^(?:[a-z]+/)*x$", "\\.(php|html)$", "(a|b)*", "^(.+)\\.php(/.*)?$", "(?>a+)+", "(\\d+,)*\\d+"] {
            assert!(parse(text).catastrophic().is_none(), "{text}");
        }
    }

    #[test]
    fn patterns_that_match_every_text_are_found() {
        for text in ["/", "^/", ".*", "^/.*$", "^(.*)$", "^", "."] {
            assert!(parse(text).matches_all(), "{text}");
        }
        for text in ["^/a", "^/$", "\\.php$", "^/.$", "//", "^$", "^/[^.]*$"] {
            assert!(!parse(text).matches_all(), "{text}");
        }
    }

    #[test]
    fn extensions_and_samples() {
        let want = ["gif", "jpeg", "jpg"].map(String::from).to_vec();
        assert_eq!(parse("\\.(jpe?g|gif)$").extensions(), Some(want));
        assert_eq!(parse("\\.php").extensions(), None);
        assert_eq!(parse("^/a(b|c)+\\.php$").sample().as_deref(), Some(&b"/ab.php"[..]));
        assert!(parse("^/(?<rest>[^/]*)").group_can_hold("rest", b'\n'));
        assert!(!parse("^/(.*)$").group_can_hold("1", b'\n'));
    }
}
