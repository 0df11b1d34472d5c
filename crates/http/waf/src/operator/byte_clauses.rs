//! Sets of bytes of which every match of a pattern has a member: a value without one cannot match.

use crate::byte_set::ByteSet;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Sets of a part of a pattern in progress, and of a pattern.
const PART_SETS_MAX: usize = 6;
const SETS_MAX: usize = 3;
/// The weight of a set that ordinary values meet nearly always.
const COMMON_WEIGHT: u32 = 150;

/// Rates a byte by its frequency in ordinary values.
fn byte_weight(byte: u8) -> u32 {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' => 30,
        b'0'..=b'9' => 10,
        b' ' => 60,
        b'.' | b'-' | b'_' | b'/' | b':' | b'=' | b',' => 15,
        _ => 1,
    }
}

/// Rates a set: the lower, the fewer values meet it.
fn set_weight(set: ByteSet) -> u32 {
    set.bytes().map(byte_weight).sum()
}

/// Returns the sets of a pattern, with both cases of their letters; those that ordinary values meet are left out.
pub(super) fn byte_clauses(hir: &Hir) -> Vec<ByteSet> {
    let mut sets = clauses_of(hir);
    sets.truncate(SETS_MAX);
    sets
}

/// Sorts sets by weight, and leaves out common ones and those that another one implies.
fn rarest(sets: impl IntoIterator<Item = ByteSet>) -> Vec<ByteSet> {
    let mut rated: Vec<(u32, ByteSet)> = sets.into_iter().map(|set| (set_weight(set), set)).collect();
    rated.retain(|(weight, set)| *weight < COMMON_WEIGHT && !set.is_empty());
    rated.sort_by_key(|(weight, _)| *weight);
    let mut kept: Vec<ByteSet> = Vec::new();
    for (_, set) in rated {
        if kept.len() < PART_SETS_MAX && !kept.iter().any(|known| set.includes(*known)) {
            kept.push(set);
        }
    }
    kept
}

fn clauses_of(hir: &Hir) -> Vec<ByteSet> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Vec::new(),
        HirKind::Literal(literal) => rarest(literal.0.iter().map(|byte| ByteSet::of(&[*byte]).without_case())),
        HirKind::Class(Class::Bytes(class)) => {
            let mut set = ByteSet::default();
            for range in class.ranges() {
                set = set.joined(ByteSet::range(range.start(), range.end()));
            }
            rarest([set.without_case()])
        }
        HirKind::Class(Class::Unicode(_)) => Vec::new(),
        HirKind::Capture(capture) => clauses_of(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => clauses_of(&repetition.sub),
        HirKind::Repetition(_) => Vec::new(),
        HirKind::Concat(parts) => rarest(parts.iter().flat_map(clauses_of)),
        HirKind::Alternation(parts) => {
            let branches: Vec<Vec<ByteSet>> = parts.iter().map(clauses_of).collect();
            // The rarest sets of the branches together, and the next ones.
            let joined = (0..PART_SETS_MAX).filter_map(|rank| {
                let choices = branches.iter().map(|sets| sets.get(rank).or(sets.last()).copied());
                choices.collect::<Option<Vec<_>>>()
            });
            let joined: Vec<ByteSet> =
                joined.map(|sets| sets.into_iter().fold(ByteSet::default(), ByteSet::joined)).collect();
            rarest(joined)
        }
    }
}
