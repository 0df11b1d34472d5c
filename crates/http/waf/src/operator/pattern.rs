//! Regular expressions: linear matching where the pattern allows it, PCRE2 with a limit of steps otherwise.
//!
//! ModSecurity compiles patterns by PCRE2 with "dotall" and "multi-line", over bytes, without Unicode. [`translate`]
//! writes them in the syntax of `regex-automata`, or gives up; then PCRE2 matches. Matching in linear time needs no
//! limit.

use super::requirement::{Requirement, required_by};
use super::translate::{Translation, translate};
use pcre2::bytes::{Regex as BacktrackingRegex, RegexBuilder};
use regex_automata::meta::Regex as LinearRegex;
use regex_automata::util::syntax;
use regex_syntax::hir::{Class, Hir, HirKind};
use std::sync::OnceLock;

/// Steps of PCRE2 for a match, unless `SecPcreMatchLimit` says otherwise.
pub const MATCH_STEPS_MAX: u32 = 100_000;
/// Bytes of a compiled pattern; a larger one is left to PCRE2.
const PROGRAM_MAX: usize = 16 << 20;
/// Bytes of a state and its transitions, from above.
const STATE_BYTES: usize = 64;
/// Bytes of the cache of states of a pattern for each thread that matches at the same time.
const STATES_MAX: usize = 512 << 10;

/// A match that PCRE2 gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchFailure {
    /// The limit of steps.
    Limit,
    Other,
}

/// Start and end of each group that took part; the group's number is the first field.
pub(crate) type Groups = Vec<(usize, usize, usize)>;

/// A compiled pattern; shared by threads.
pub(crate) struct Pattern {
    /// Compiled for the first value, since most patterns of a rule set never see one: the screen knows better.
    linear: OnceLock<Option<LinearRegex>>,
    /// Tells whether the pattern has `^`: at the end of a value behind a newline, PCRE2 and `regex-automata` differ.
    line_starts: bool,
    backtracking: OnceLock<Option<BacktrackingRegex>>,
    /// The pattern in the syntax of `regex-automata`, if matching is linear.
    translated: Option<Box<str>>,
    text: Box<str>,
    caseless: bool,
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}/", self.text)
    }
}

impl Pattern {
    /// Compiles a pattern; `steps` limits PCRE2. Fails with PCRE2's message and the offset of the error.
    pub fn new(text: &str, caseless: bool, steps: u32) -> Result<Pattern, (String, usize)> {
        let translation = translate(text);
        let line_starts = matches!(translation, Translation::Linear { line_starts: true, .. });
        let translated = match translation {
            Translation::Linear { pattern, .. } => Some(pattern.into_boxed_str()),
            Translation::Backtracking => None,
        };
        let translated = translated.filter(|pattern| can_be_linear(pattern, caseless));
        let limited = format!("(*LIMIT_MATCH={steps}){text}").into_boxed_str();
        let added = limited.len() - text.len();
        let (linear, backtracking) = (OnceLock::new(), OnceLock::new());
        let pattern = Pattern { linear, line_starts, backtracking, translated, text: limited, caseless };
        if pattern.translated.is_none() {
            let compiled = pattern.build().map_err(|error| {
                let words = error.to_string();
                let words = words.split(": ").last().unwrap_or("error").to_string();
                (words, error.offset().unwrap_or(added).saturating_sub(added))
            })?;
            let _ = pattern.backtracking.set(Some(compiled));
        }
        Ok(pattern)
    }

    /// Returns whether matching takes linear time.
    #[cfg(test)]
    pub fn is_linear(&self) -> bool {
        self.linear().is_some()
    }

    /// Returns whether a value has needed the pattern.
    #[cfg(test)]
    pub fn is_compiled(&self) -> bool {
        self.linear.get().is_some()
    }

    /// Returns what a value must contain to match. `None` for patterns that PCRE2 matches: their failures count.
    pub fn requirement(&self) -> Option<Requirement> {
        self.translated.as_ref().map(|pattern| required_by(pattern))
    }

    fn linear(&self) -> Option<&LinearRegex> {
        let make = || linear_regex(self.translated.as_ref()?, self.caseless);
        self.linear.get_or_init(make).as_ref()
    }

    fn build(&self) -> Result<BacktrackingRegex, pcre2::Error> {
        let mut builder = RegexBuilder::new();
        builder.dotall(true).multi_line(true).caseless(self.caseless).jit_if_available(true).build(&self.text)
    }

    fn backtracking(&self) -> Result<&BacktrackingRegex, MatchFailure> {
        self.backtracking.get_or_init(|| self.build().ok()).as_ref().ok_or(MatchFailure::Other)
    }

    /// Returns whether the pattern matches anywhere.
    pub fn is_match(&self, input: &[u8]) -> Result<bool, MatchFailure> {
        match self.linear() {
            Some(linear) if !(self.line_starts && input.last() == Some(&b'\n')) => Ok(linear.is_match(input)),
            _ => self.backtracking()?.is_match(input).map_err(|error| failure_of(&error)),
        }
    }

    /// The groups of the first match that begins at `start` or later, or an empty list. Group 0 is the match.
    pub fn groups_from(&self, input: &[u8], start: usize) -> Result<Groups, MatchFailure> {
        match self.linear() {
            Some(linear) if !(self.line_starts && input.last() == Some(&b'\n')) => {
                let mut captures = linear.create_captures();
                let search = regex_automata::Input::new(input).range(start.min(input.len())..);
                linear.search_captures(&search, &mut captures);
                let groups = (0..captures.group_len()).filter_map(|group| {
                    let span = captures.get_group(group)?;
                    Some((group, span.start, span.end))
                });
                Ok(groups.collect())
            }
            _ => {
                let regex = self.backtracking()?;
                let mut locations = regex.capture_locations();
                let found = regex.captures_read_at(&mut locations, input, start);
                let found = found.map_err(|error| failure_of(&error))?;
                let groups = (0..locations.len()).filter_map(|group| {
                    let (start, end) = locations.get(group)?;
                    Some((group, start, end))
                });
                Ok(if found.is_some() { groups.collect() } else { Groups::new() })
            }
        }
    }
}

/// Returns whether a pattern has the syntax of `regex-automata` and surely fits into [`PROGRAM_MAX`]; a pattern that may
/// be larger is compiled to know it.
fn can_be_linear(pattern: &str, caseless: bool) -> bool {
    let mut parser = regex_syntax::ParserBuilder::new();
    parser.unicode(false).utf8(false).multi_line(true).dot_matches_new_line(true).case_insensitive(caseless);
    match parser.build().parse(pattern) {
        Ok(hir) => program_size(&hir) < PROGRAM_MAX || linear_regex(pattern, caseless).is_some(),
        Err(_) => false,
    }
}

/// Bytes of a compiled pattern, estimated from above.
fn program_size(hir: &Hir) -> usize {
    let parts = |parts: &[Hir]| parts.iter().map(program_size).fold(STATE_BYTES, usize::saturating_add);
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => STATE_BYTES,
        HirKind::Literal(literal) => literal.0.len().saturating_mul(STATE_BYTES),
        HirKind::Class(Class::Bytes(class)) => class.ranges().len().saturating_add(1).saturating_mul(STATE_BYTES),
        HirKind::Class(Class::Unicode(class)) => class.ranges().len().saturating_add(1).saturating_mul(8 * STATE_BYTES),
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or(repetition.min).max(repetition.min).saturating_add(2);
            let copy = program_size(&repetition.sub).saturating_add(STATE_BYTES);
            copy.saturating_mul(copies as usize)
        }
        HirKind::Capture(capture) => program_size(&capture.sub).saturating_add(2 * STATE_BYTES),
        HirKind::Concat(list) | HirKind::Alternation(list) => parts(list),
    }
}

fn linear_regex(pattern: &str, caseless: bool) -> Option<LinearRegex> {
    let syntax = syntax::Config::new()
        .unicode(false)
        .utf8(false)
        .multi_line(true)
        .dot_matches_new_line(true)
        .case_insensitive(caseless);
    let config = LinearRegex::config()
        .utf8_empty(false)
        .nfa_size_limit(Some(PROGRAM_MAX))
        .hybrid_cache_capacity(STATES_MAX)
        .onepass(false)
        .dfa(false);
    LinearRegex::builder().configure(config).syntax(syntax).build(pattern).ok()
}

fn failure_of(error: &pcre2::Error) -> MatchFailure {
    /// PCRE2_ERROR_MATCHLIMIT
    const MATCH_LIMIT: i32 = -47;
    match error.code() {
        MATCH_LIMIT => MatchFailure::Limit,
        _ => MatchFailure::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text, false, MATCH_STEPS_MAX).expect(text)
    }

    #[test]
    fn linear_and_backtracking_patterns_agree_at_line_ends() {
        for (text, input, matches) in [
            ("^$", &b"a\n"[..], false),
            ("^\\d*$", b"abc\n", false),
            ("^b", b"a\nb", true),
            ("a$", b"a\nb", true),
            ("a.b", b"a\nb", true),
            ("^$", b"", true),
        ] {
            assert_eq!(pattern(text).is_match(input), Ok(matches), "{text}");
        }
    }

    #[test]
    fn look_around_and_back_references_are_left_to_pcre2() {
        assert!(!pattern("a(?!b)").is_linear());
        assert!(!pattern("(a)\\1").is_linear());
        assert!(!pattern("a++b").is_linear());
        assert_eq!(pattern("(a)\\1").is_match(b"xaa"), Ok(true));
    }

    #[test]
    fn a_pattern_too_large_for_a_program_is_left_to_pcre2() {
        let large = "(?:[a-z]{1,500}x){1,900}";
        assert!(!pattern(large).is_linear());
        assert_eq!(pattern(large).is_match(b"-abx-"), Ok(true));
        assert!(pattern("(?:[a-z]{1,50}x){1,90}").is_linear());
    }

    #[test]
    fn an_exhausted_limit_is_an_error_and_no_match() {
        let costly = Pattern::new("^(a+)+\\1$", false, 1000).expect("pattern");
        assert_eq!(costly.is_match(b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"), Err(MatchFailure::Limit));
    }

    #[test]
    fn groups_that_took_no_part_are_left_out() {
        assert_eq!(pattern("(a)|(b)").groups_from(b"xb", 0), Ok(vec![(0, 1, 2), (2, 1, 2)]));
        assert_eq!(pattern("(?=b)(b)").groups_from(b"xb", 0), Ok(vec![(0, 1, 2), (1, 1, 2)]));
        assert_eq!(pattern("z").groups_from(b"xb", 0), Ok(vec![]));
    }

    #[test]
    fn an_invalid_pattern_names_the_offset() {
        let (words, offset) = Pattern::new("a(b", false, 1).expect_err("an error");
        assert!(words.contains("parenthesis"), "{words}");
        assert_eq!(offset, 3);
    }
}
