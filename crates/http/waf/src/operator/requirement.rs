//! Conditions that a value must meet for a pattern to match, from the pattern's syntax: texts, and sets of bytes.

use super::byte_clauses::byte_clauses;
use crate::byte_set::ByteSet;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Conditions that every matching value meets, without regard to ASCII case. Texts are in lower case, sets have both
/// cases of their letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// The value contains one of these texts, if there are any.
    pub texts: Vec<Vec<u8>>,
    /// The value has a byte of each of these sets.
    pub bytes: Vec<ByteSet>,
}

/// Texts of a requirement at most, and of a part of a pattern in progress.
const TEXTS_MAX: usize = 2000;
const PRODUCT_MAX: usize = 64;
/// Bytes of a class that count as texts of one byte.
const CLASS_MAX: usize = 24;
/// Bytes of a text of a requirement; the rest of a longer one is left out.
const TEXT_BYTES_MAX: usize = 24;
/// Copies of a part with a fixed number of repetitions.
const COPIES_MAX: u32 = 4;

type Texts = Vec<Vec<u8>>;

/// Requirements of a part of a pattern.
#[derive(Default)]
struct PartNeed {
    /// All texts that the part can match, if they are few.
    exact: Option<Texts>,
    /// Texts of which a match contains one.
    any: Option<Texts>,
}

impl Requirement {
    /// The requirement of a list of texts of which a value must contain one.
    pub fn of_texts(texts: Texts) -> Requirement {
        if !is_useful(&texts) {
            return Requirement::default();
        }
        if texts.iter().all(|text| text.len() == 1) {
            let set = texts.iter().flatten().fold(ByteSet::default(), |set, byte| set.joined(ByteSet::of(&[*byte])));
            return Requirement { texts: Vec::new(), bytes: vec![set.without_case()] };
        }
        let texts = texts.iter().map(|text| lower(text)).collect();
        Requirement { texts, bytes: Vec::new() }
    }
    /// The requirement of a byte of a set.
    pub fn of_bytes(set: ByteSet) -> Requirement {
        Requirement { texts: Vec::new(), bytes: vec![set.without_case()] }
    }
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.bytes.is_empty()
    }
}

/// Returns the requirement of a pattern in the syntax of `regex-automata`; it is empty if none is worth a look.
pub(crate) fn required_by(pattern: &str) -> Requirement {
    let mut parser = ParserBuilder::new();
    parser.unicode(false).utf8(false).multi_line(true).dot_matches_new_line(true);
    let Ok(hir) = parser.build().parse(pattern) else { return Requirement::default() };
    let texts = need_of(&hir).any.filter(|texts| score(texts) >= COMMON_SCORE && texts.len() <= TEXTS_MAX);
    let mut requirement = texts.map(Requirement::of_texts).unwrap_or_default();
    for clause in byte_clauses(&hir) {
        if !requirement.bytes.contains(&clause) {
            requirement.bytes.push(clause);
        }
    }
    requirement
}

/// The least score of a requirement that ordinary values do not meet all the time.
const COMMON_SCORE: i32 = 50;

/// Rates a list of texts: long texts are rare, and so are single bytes of punctuation.
fn score(texts: &Texts) -> i32 {
    let Some(shortest) = texts.iter().map(Vec::len).min() else { return 0 };
    let base = match shortest {
        0 => return 0,
        1 => {
            let singles = texts.iter().filter(|text| text.len() == 1).flatten();
            let is_common = |byte: &u8| byte.is_ascii_alphanumeric() || b" ._-/:=,".contains(byte);
            return if singles.into_iter().any(is_common) { 10 } else { 90 };
        }
        2 => 60,
        longer => 100 + 10 * longer.min(8) as i32,
    };
    base - (texts.len() as i32 / 8).min(30)
}

fn better(one: Option<Texts>, other: Option<Texts>) -> Option<Texts> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if score(&other) > score(&one) { other } else { one }),
        (one, other) => one.or(other),
    }
}

fn lower(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().take(TEXT_BYTES_MAX).map(u8::to_ascii_lowercase).collect()
}

/// All texts of one list followed by one of the other; `None` if they are too many or too long.
fn product(heads: &Texts, tails: &Texts) -> Option<Texts> {
    if heads.len().saturating_mul(tails.len()) > PRODUCT_MAX {
        return None;
    }
    let mut all = Vec::with_capacity(heads.len() * tails.len());
    for head in heads {
        for tail in tails {
            if head.len() + tail.len() > TEXT_BYTES_MAX {
                return None;
            }
            all.push([head.as_slice(), tail].concat());
        }
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

fn is_useful(texts: &Texts) -> bool {
    !texts.is_empty() && texts.iter().all(|text| !text.is_empty())
}

fn need_of(hir: &Hir) -> PartNeed {
    let of_nothing = || PartNeed { exact: Some(vec![Vec::new()]), any: None };
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => of_nothing(),
        HirKind::Literal(literal) => {
            let text = lower(&literal.0);
            let is_whole = literal.0.len() <= TEXT_BYTES_MAX;
            PartNeed { exact: is_whole.then(|| vec![text.clone()]), any: Some(vec![text]) }
        }
        HirKind::Class(class) => class_need(class),
        HirKind::Capture(capture) => need_of(&capture.sub),
        HirKind::Repetition(repetition) => {
            let sub = need_of(&repetition.sub);
            match (repetition.min, repetition.max) {
                (0, Some(1)) => {
                    let exact = sub.exact.filter(|texts| texts.len() < PRODUCT_MAX).map(|mut texts| {
                        texts.push(Vec::new());
                        texts
                    });
                    PartNeed { exact, any: None }
                }
                (0, _) => PartNeed::default(),
                (least, most) => {
                    let is_fixed = most == Some(least) && least <= COPIES_MAX;
                    let exact = sub
                        .exact
                        .as_ref()
                        .filter(|_| is_fixed)
                        .and_then(|texts| (1..least).try_fold(texts.clone(), |all, _| product(&all, texts)));
                    PartNeed { any: better(sub.any, exact.clone().filter(is_useful)), exact }
                }
            }
        }
        HirKind::Alternation(parts) => {
            let mut exact: Option<Texts> = Some(Vec::new());
            let mut any: Option<Texts> = Some(Vec::new());
            for part in parts {
                let need = need_of(part);
                join(&mut exact, need.exact.clone(), PRODUCT_MAX);
                join(&mut any, need.any.or(need.exact).filter(is_useful), TEXTS_MAX);
            }
            PartNeed { exact, any }
        }
        HirKind::Concat(parts) => concat_need(parts),
    }
}

/// Adds the texts of a branch; a branch without any, or too many texts, leave no list.
fn join(all: &mut Option<Texts>, more: Option<Texts>, most: usize) {
    match (all.as_mut(), more) {
        (Some(texts), Some(more)) if texts.len() + more.len() <= most => {
            texts.extend(more);
            texts.sort_unstable();
            texts.dedup();
        }
        _ => *all = None,
    }
}

fn class_need(class: &Class) -> PartNeed {
    let Class::Bytes(class) = class else { return PartNeed::default() };
    let mut bytes: Vec<u8> = Vec::new();
    for range in class.ranges() {
        for byte in range.start()..=range.end() {
            let byte = byte.to_ascii_lowercase();
            if !bytes.contains(&byte) {
                bytes.push(byte);
            }
            if bytes.len() > CLASS_MAX {
                return PartNeed::default();
            }
        }
    }
    if bytes.is_empty() {
        return PartNeed::default();
    }
    let texts: Texts = bytes.into_iter().map(|byte| vec![byte]).collect();
    PartNeed { exact: (texts.len() <= 8).then(|| texts.clone()), any: Some(texts) }
}

fn concat_need(parts: &[Hir]) -> PartNeed {
    let mut run: Texts = vec![Vec::new()];
    let mut is_exact = true;
    let mut best: Option<Texts> = None;
    for part in parts {
        let need = need_of(part);
        let longer = need.exact.as_ref().and_then(|texts| product(&run, texts));
        match longer {
            Some(longer) => run = longer,
            None => {
                is_exact = false;
                best = better(best, Some(std::mem::take(&mut run)).filter(is_useful));
                run = need.exact.unwrap_or_else(|| vec![Vec::new()]);
            }
        }
        best = better(best, need.any);
    }
    let any = better(best, Some(run.clone()).filter(is_useful));
    PartNeed { exact: is_exact.then_some(run), any }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pattern: &str) -> Vec<String> {
        let requirement = required_by(pattern);
        requirement.texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    fn sets(pattern: &str) -> Vec<String> {
        let requirement = required_by(pattern);
        requirement.bytes.iter().map(|set| set.bytes().map(char::from).collect()).collect()
    }

    #[test]
    fn the_rarest_part_of_a_pattern_is_required() {
        assert_eq!(texts("union\\s+select"), ["select"]);
        assert_eq!(texts("(?i)select"), ["select"]);
        assert_eq!(texts("a?bcd"), ["bcd"]);
        assert_eq!(texts("(?:foo|bar)baz"), ["barbaz", "foobaz"]);
        assert_eq!(texts("x(?:foo.*|bar)"), ["bar", "foo"]);
        assert_eq!(texts("(?:abc){2}"), ["abcabc"]);
    }

    #[test]
    fn bytes_of_every_match_are_required() {
        assert_eq!(sets("[<>]\\w+"), ["<>"]);
        assert_eq!(sets("7=.*;"), [";", "7", "="]);
        assert_eq!(sets("(?:<|=x)")[0], "<=");
        assert_eq!(sets("(?:;|\\w)"), [""; 0]);
        assert_eq!(sets("\\d+"), ["0123456789"]);
    }

    #[test]
    fn patterns_that_ordinary_values_meet_have_no_requirement() {
        for pattern in ["^a*$", "(?:foo|\\w)", "(?:foo)?", "", "\\w"] {
            assert!(required_by(pattern).is_empty(), "{pattern}");
        }
    }

    /// Every match of a pattern meets the requirement.
    #[test]
    fn a_matching_value_meets_the_requirement() {
        let parts = [
            "foo",
            "ba[rz]",
            "(?i)Qux",
            "x?",
            "[;|]",
            "(?:one|two|three)",
            "\\s+",
            "a{2}",
            "(?:ab)+",
            ".",
            "(?:;|<x)",
            "[^a-z]",
            "(?:=\\d|\\|z)",
            "\\b",
            "\\d*",
            "(?:one;|two)?",
        ];
        let words = [
            "foo", "bar", "baz", "QUX", "qux", "x", ";", "|", "one", "two", "three", " ", "aa", "ab", "abab", "z", "<",
            "=", "1", "A",
        ];
        let mut random = testkit::Random::new(168);
        let mut matches = 0;
        for _ in 0..3000 {
            let count = 1 + random.below(4);
            let pattern: String = (0..count).map(|_| parts[random.below(parts.len())]).collect();
            let requirement = required_by(&pattern);
            let regex = super::super::Pattern::new(&pattern, false, 100_000).expect("a pattern");
            for _ in 0..20 {
                let count = random.below(6);
                let value: String = (0..count).map(|_| words[random.below(words.len())]).collect();
                if regex.is_match(value.as_bytes()) == Ok(true) {
                    matches += 1;
                    let low = value.to_ascii_lowercase();
                    let has = |text: &Vec<u8>| memchr::memmem::find(low.as_bytes(), text).is_some();
                    let texts = &requirement.texts;
                    assert!(texts.is_empty() || texts.iter().any(has), "{pattern} matches {value} without {texts:?}");
                    for set in &requirement.bytes {
                        assert!(value.bytes().any(|byte| set.has(byte)), "{pattern} matches {value} without {set:?}");
                    }
                }
            }
        }
        assert!(matches > 1000, "{matches}");
    }
}
