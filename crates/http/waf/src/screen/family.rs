//! The look at one value: signature, sets of bytes, texts.

use crate::byte_set::ByteSet;
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, MatchKind};
use hashbrown::HashMap;

/// Bits of a signature, each for a class of bytes that the family's sets do not tell apart.
const CLASSES_MAX: usize = 64;
/// Signatures whose results are kept for a transaction.
const SIGNATURES_MAX: usize = 1024;
/// Texts up to which the search is a table of all states: fast, but some kilobytes for each text.
const TABLE_TEXTS_MAX: usize = 100;

/// Returns whether a set has a bit.
pub(crate) fn has_bit(set: &[u64], bit: u32) -> bool {
    set.get((bit / 64) as usize).is_some_and(|word| word & (1 << (bit % 64)) != 0)
}

/// Adds the bits of `more` to `set`.
pub(crate) fn join_bits(set: &mut [u64], more: &[u64]) {
    set.iter_mut().zip(more).for_each(|(word, more)| *word |= more);
}

pub(super) fn add_bit(set: &mut [u64], bit: u32) {
    if let Some(word) = set.get_mut((bit / 64) as usize) {
        *word |= 1 << (bit % 64);
    }
}

/// Links whose variables some rule names together.
#[derive(Debug)]
pub(crate) struct ScreenFamily {
    /// Words of a set of links.
    pub words: usize,
    /// The signature of each byte: one bit.
    byte_bits: Box<[u64; 256]>,
    /// Bits of which a value has one, or these links cannot match.
    clauses: Vec<(u64, Box<[u64]>)>,
    texts: Option<AhoCorasick>,
    /// The links of each text.
    owners: Vec<Box<[u32]>>,
    /// Links that need none of the texts.
    textless: Box<[u64]>,
    /// Links with `@detectSQLi`.
    sqli: Box<[u64]>,
}

/// Conditions of links, for [`ScreenFamily::new`].
#[derive(Default)]
pub(super) struct FamilyDraft {
    pub links: u32,
    pub texts: HashMap<Vec<u8>, Vec<u32>>,
    pub with_texts: Vec<u32>,
    pub clauses: HashMap<ByteSet, Vec<u32>>,
    pub sqli: Vec<u32>,
    /// Sets of bytes of the transformations.
    pub touched: Vec<ByteSet>,
}

/// Results by signature: links that cannot match.
pub(crate) type DeadLinks = HashMap<u64, Box<[u64]>>;

fn bits_of(links: &[u32], words: usize) -> Box<[u64]> {
    let mut set = vec![0; words];
    links.iter().for_each(|bit| add_bit(&mut set, *bit));
    set.into()
}

/// Divides the bytes into classes that the sets do not tell apart; a set that would need too many classes is left out,
/// and stands for more bytes than it has.
fn byte_classes<'s>(sets: impl Iterator<Item = &'s ByteSet>) -> [u8; 256] {
    let mut classes = [0_u8; 256];
    let mut count = 1;
    for set in sets {
        let mut numbers: HashMap<(u8, bool), u8> = HashMap::new();
        let mut divided = [0_u8; 256];
        for ((byte, class), slot) in (0..=u8::MAX).zip(&classes).zip(&mut divided) {
            let next = numbers.len();
            *slot = *numbers.entry((*class, set.has(byte))).or_insert(next.min(255) as u8);
        }
        if numbers.len() <= CLASSES_MAX && numbers.len() > count {
            count = numbers.len();
            classes = divided;
        }
    }
    classes
}

impl ScreenFamily {
    pub(super) fn new(draft: FamilyDraft) -> ScreenFamily {
        let words = (draft.links as usize).div_ceil(64);
        let mut clauses: Vec<(ByteSet, Vec<u32>)> = draft.clauses.into_iter().collect();
        // Sets of many links get their classes first; the bytes decide between equals, for equal screens of equal rules.
        clauses.sort_by_key(|(set, links)| (usize::MAX - links.len(), set.bytes().collect::<Vec<_>>()));
        let classes = byte_classes(draft.touched.iter().chain(clauses.iter().map(|(set, _)| set)));
        let byte_bits = Box::new(classes.map(|class| 1_u64 << class));
        let mut texts: Vec<(Vec<u8>, Vec<u32>)> = draft.texts.into_iter().collect();
        texts.sort_unstable();
        let mut builder = AhoCorasickBuilder::new();
        builder.ascii_case_insensitive(true).match_kind(MatchKind::Standard);
        builder.kind(Some(match texts.len() {
            0..=TABLE_TEXTS_MAX => AhoCorasickKind::DFA,
            _ => AhoCorasickKind::ContiguousNFA,
        }));
        let automaton = match texts.is_empty() {
            true => None,
            false => builder.build(texts.iter().map(|(text, _)| text)).ok(),
        };
        // Without a search, a text may be anywhere.
        let with_texts = if automaton.is_some() { draft.with_texts.as_slice() } else { &[] };
        let textless = bits_of(with_texts, words).iter().map(|word| !word).collect();
        let mut family = ScreenFamily {
            words,
            byte_bits,
            clauses: Vec::new(),
            texts: automaton,
            owners: texts.into_iter().map(|(_, links)| links.into()).collect(),
            textless,
            sqli: bits_of(&draft.sqli, words),
        };
        family.clauses =
            clauses.iter().map(|(set, links)| (family.signature_of(*set), bits_of(links, words))).collect();
        family
    }

    /// The signature bits of a set of bytes.
    pub(super) fn signature_of(&self, set: ByteSet) -> u64 {
        set.bytes().fold(0, |bits, byte| bits | self.byte_bits.get(usize::from(byte)).copied().unwrap_or(0))
    }

    /// The signature of a value: the classes of its bytes.
    pub fn signature(&self, value: &[u8]) -> u64 {
        value.iter().fold(0, |bits, byte| bits | self.byte_bits.get(usize::from(*byte)).copied().unwrap_or(0))
    }

    fn dead_links(&self, signature: u64) -> Box<[u64]> {
        let mut dead = vec![0; self.words];
        self.clauses
            .iter()
            .filter(|(bits, _)| bits & signature == 0)
            .for_each(|(_, links)| join_bits(&mut dead, links));
        dead.into()
    }

    /// Writes the links that could match a value with this signature to `set`, which has [`ScreenFamily::words`] words.
    pub fn look(&self, value: &[u8], signature: u64, known: &mut DeadLinks, set: &mut [u64]) {
        set.copy_from_slice(&self.textless);
        if let Some(texts) = &self.texts {
            for found in texts.find_overlapping_iter(value) {
                let owners = self.owners.get(found.pattern().as_usize());
                owners.into_iter().flatten().for_each(|bit| add_bit(set, *bit));
            }
        }
        if known.len() >= SIGNATURES_MAX {
            known.clear();
        }
        let dead = known.entry(signature).or_insert_with(|| self.dead_links(signature));
        set.iter_mut().zip(dead.iter()).for_each(|(word, dead)| *word &= !dead);
        let asks_for_sqli = set.iter().zip(self.sqli.iter()).any(|(word, sqli)| word & sqli != 0);
        if asks_for_sqli && !crate::operator::could_be_sqli(value) {
            set.iter_mut().zip(self.sqli.iter()).for_each(|(word, sqli)| *word &= !sqli);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_told_apart_as_long_as_there_are_classes() {
        let sets: Vec<ByteSet> = (0..100).map(|byte| ByteSet::of(&[byte])).collect();
        let draft = FamilyDraft {
            links: 100,
            clauses: sets.iter().copied().zip((0..).map(|link| vec![link])).collect(),
            ..FamilyDraft::default()
        };
        let family = ScreenFamily::new(draft);
        let mut set = vec![0; family.words];
        for byte in 0..100_u8 {
            let value = [byte];
            family.look(&value, family.signature(&value), &mut DeadLinks::new(), &mut set);
            // Links of other bytes may be in the set, its own must.
            assert!(has_bit(&set, u32::from(byte)));
        }
        let value = [200];
        family.look(&value, family.signature(&value), &mut DeadLinks::new(), &mut set);
        assert!(!has_bit(&set, 0));
    }

    #[test]
    fn a_link_needs_its_texts_and_its_bytes() {
        let draft = FamilyDraft {
            links: 2,
            texts: [(b"foo".to_vec(), vec![0])].into_iter().collect(),
            with_texts: vec![0],
            clauses: [(ByteSet::of(b";"), vec![0, 1])].into_iter().collect(),
            ..FamilyDraft::default()
        };
        let family = ScreenFamily::new(draft);
        for (value, expected) in [("a FOO;", 3), ("foo", 0), (";", 2), ("", 0)] {
            let mut set = [0];
            family.look(value.as_bytes(), family.signature(value.as_bytes()), &mut DeadLinks::new(), &mut set);
            assert_eq!(set[0] & 3, expected, "{value}");
        }
    }
}
