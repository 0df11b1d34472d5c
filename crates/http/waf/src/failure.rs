//! Errors and warnings about rules: file, line, column, reason and suggestion.

use std::fmt;
use std::sync::Arc;

/// A position in a rules file. Lines and columns (in bytes) count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
}

/// A rule that cannot be honoured. [`crate::RuleSet::compile`] returns the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    pub place: Place,
    pub reason: String,
    /// A way to repair the rule, if the compiler knows one.
    pub suggestion: Option<String>,
}

/// A directive that is accepted but not honoured in full; the caller shows it to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleWarning {
    pub place: Place,
    pub reason: String,
}

/// A reason with an optional suggestion, before the compiler adds the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub reason: String,
    pub suggestion: Option<String>,
    /// Bytes between the start of the word and the offending byte.
    pub offset: usize,
}

impl Refusal {
    pub fn new(reason: impl Into<String>) -> Refusal {
        Refusal { reason: reason.into(), suggestion: None, offset: 0 }
    }
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Refusal {
        self.suggestion = Some(suggestion.into());
        self
    }
    pub fn at(mut self, offset: usize) -> Refusal {
        self.offset += offset;
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)?;
        match &self.suggestion {
            Some(words) => write!(f, "; {words}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for RuleError {}

impl fmt::Display for RuleWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// Returns the candidate with the smallest edit distance to `word`, if the distance is at most a third of the length.
pub(crate) fn nearest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let lower = word.to_ascii_lowercase();
    let scored = candidates.map(|candidate| (distance(&lower, &candidate.to_ascii_lowercase()), candidate));
    let (steps, candidate) = scored.min_by_key(|(steps, _)| *steps)?;
    (steps <= word.len().max(3) / 3).then_some(candidate)
}

/// Levenshtein's distance over bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (y, &above) in b.bytes().zip(row.get(1..).unwrap_or_default()) {
            let value = (left + 1).min(above + 1).min(diagonal + usize::from(x != y));
            diagonal = above;
            left = value;
            next.push(value);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_gets_a_suggestion() {
        assert_eq!(nearest("REQUEST_HEADRS", ["REQUEST_HEADERS", "ARGS"].into_iter()), Some("REQUEST_HEADERS"));
        assert_eq!(nearest("zzz", ["REQUEST_HEADERS", "ARGS"].into_iter()), None);
    }

    #[test]
    fn an_error_names_place_reason_and_suggestion() {
        let place = Place { file: "a.conf".into(), line: 3, column: 9 };
        let error = RuleError { place, reason: "no".into(), suggestion: Some("try yes".into()) };
        assert_eq!(error.to_string(), "a.conf:3:9: no; try yes");
    }
}
