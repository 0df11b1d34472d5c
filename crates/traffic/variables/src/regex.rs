//! Regular expressions in nginx's dialect (PCRE2 with JIT), with a match limit.

use pcre2::bytes::{CaptureLocations, Regex, RegexBuilder};

pub use crate::session::Captures;
use crate::session::VarId;
use crate::variable::VariableTable;
use crate::{AreaTypes, Session};
use conf_schema::{Cx, Problem};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

/// Match steps at most: `(a+)+$` must not block a thread. Exceeding it is an error, so that expensive input cannot pass
/// an access rule.
pub const MATCH_STEPS_MAX: u32 = 1_000_000;

/// A failed match, with nginx's message, which names the pattern's file and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchFailed(pub String);

/// Compiled patterns of a configuration by text and case sensitivity; servers share many.
#[derive(Default)]
struct CompiledPatterns(HashMap<(Box<[u8]>, bool), Arc<Expression>>);

/// An expression, translated to machine code before its first match: that costs more than the rest of its compilation,
/// and the master process matches none.
struct Expression {
    checked: Regex,
    text: Box<str>,
    caseless: bool,
    fast: OnceLock<Option<Regex>>,
}

impl Expression {
    fn new(text: String, caseless: bool) -> Result<Expression, pcre2::Error> {
        let checked = RegexBuilder::new().caseless(caseless).build(&text)?;
        Ok(Expression { checked, text: text.into(), caseless, fast: OnceLock::new() })
    }
    fn for_matching(&self) -> &Regex {
        let fast = self.fast.get_or_init(|| {
            let mut builder = RegexBuilder::new();
            builder.caseless(self.caseless).jit_if_available(true).build(&self.text).ok()
        });
        fast.as_ref().unwrap_or(&self.checked)
    }
}

/// A compiled pattern; named groups set variables.
pub struct Pattern<A> {
    regex: Arc<Expression>,
    text: Box<[u8]>,
    /// `FILE:LINE` in the configuration; empty for patterns of requests.
    place: Box<str>,
    /// Group number and variable of every named group.
    names: Vec<(usize, VarId)>,
    of: PhantomData<fn(A)>,
}

impl<A> std::fmt::Debug for Pattern<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}/", String::from_utf8_lossy(&self.text))
    }
}

/// Compiles a pattern with the limit of steps; fails with nginx's message.
fn compiled(text: &str, caseless: bool) -> Result<Expression, String> {
    let limited = format!("(*LIMIT_MATCH={MATCH_STEPS_MAX}){text}");
    let added = limited.len() - text.len();
    Expression::new(limited, caseless).map_err(|e| {
        let words = e.to_string();
        let words = words.split(": ").last().unwrap_or("error");
        let rest = e.offset().and_then(|offset| text.get(offset.saturating_sub(added)..)).unwrap_or(text);
        match rest {
            "" => format!("pcre2_compile() failed: {words} in \"{text}\""),
            _ => format!("pcre2_compile() failed: {words} in \"{text}\" at \"{rest}\""),
        }
    })
}

impl<A: AreaTypes> Pattern<A> {
    /// Compiles a pattern of a request (SSI); returns its named groups.
    pub fn at_run_time(text: &[u8]) -> Result<(Self, Vec<(usize, String)>), String> {
        let regex = compiled(&String::from_utf8_lossy(text), false)?;
        let names = regex.checked.capture_names().iter().enumerate();
        let names = names.filter_map(|(group, name)| Some((group, name.clone()?))).collect();
        let regex = Arc::new(regex);
        Ok((Pattern { regex, text: text.into(), place: Box::default(), names: Vec::new(), of: PhantomData }, names))
    }
    /// Compiles a pattern and declares its named groups' variables; fails with nginx's message.
    pub fn new(cx: &mut Cx, text: &[u8], caseless: bool) -> Result<Self, Problem> {
        let key = (Box::from(text), caseless);
        if let Some(known) = cx.get::<CompiledPatterns>().0.get(&key).cloned() {
            return Pattern::of(cx, known, text);
        }
        let shown = String::from_utf8_lossy(text).into_owned();
        let regex = compiled(&shown, caseless).map_err(Problem::says)?;
        let regex = Arc::new(regex);
        cx.get::<CompiledPatterns>().0.insert(key, regex.clone());
        Pattern::of(cx, regex, text)
    }
    /// Returns the pattern for this position of the configuration, with the variables of its named groups.
    fn of(cx: &mut Cx, regex: Arc<Expression>, text: &[u8]) -> Result<Self, Problem> {
        let place = cx.place().into_boxed_str();
        let variables = cx.get::<VariableTable<A>>();
        let mut names = Vec::new();
        for (group, name) in regex.checked.capture_names().iter().enumerate() {
            if let Some(name) = name {
                names.push((group, variables.group(name)?));
            }
        }
        Ok(Pattern { regex, text: text.into(), place, names, of: PhantomData })
    }
    pub fn text(&self) -> &[u8] {
        &self.text
    }
    pub fn groups(&self) -> usize {
        self.regex.checked.captures_len() - 1
    }
    /// Fails beyond the limit.
    pub fn is_match(&self, subject: &[u8]) -> Result<bool, MatchFailed> {
        self.regex.for_matching().is_match(subject).map_err(|e| self.failed(subject, &e))
    }
    /// Fails beyond the limit.
    pub fn captures(&self, subject: &[u8], into: &mut Captures) -> Result<bool, MatchFailed> {
        let regex = self.regex.for_matching();
        let mut places: CaptureLocations = regex.capture_locations();
        if regex.captures_read(&mut places, subject).map_err(|e| self.failed(subject, &e))?.is_none() {
            return Ok(false);
        }
        into.subject.clear();
        into.subject.extend_from_slice(subject);
        into.groups.clear();
        into.groups.extend((0..places.len()).map(|i| match places.get(i) {
            Some((start, end)) => (start as u32, end as u32),
            None => (u32::MAX, u32::MAX),
        }));
        Ok(true)
    }
    /// Matches for a session and sets `$1`... and named groups. Fails, logged, beyond the limit.
    pub fn run(&self, r: &mut A::Session, subject: &[u8]) -> Result<bool, MatchFailed> {
        self.try_run(r, subject)
            .inspect_err(|MatchFailed(words)| r.log(observe::Severity::Error, format_args!("{words}")))
    }
    fn try_run(&self, r: &mut A::Session, subject: &[u8]) -> Result<bool, MatchFailed> {
        // Skips captures that no variable refers to.
        if self.names.is_empty() && (self.groups() == 0 || !r.groups_used()) {
            let matched = self.is_match(subject)?;
            if matched {
                r.captures().clear();
            }
            return Ok(matched);
        }
        if !self.is_match(subject)? {
            // Most patterns of locations do not match, which is cheaper to detect without captures.
            return Ok(false);
        }
        let mut captures = std::mem::take(r.captures());
        let matched = self.captures(subject, &mut captures);
        if matched == Ok(true) {
            for (group, id) in &self.names {
                r.set_slot(*id, captures.get(*group).unwrap_or(b"").into());
            }
        }
        *r.captures() = captures;
        matched
    }
    #[cold]
    fn failed(&self, subject: &[u8], e: &pcre2::Error) -> MatchFailed {
        let (subject, pattern) = (String::from_utf8_lossy(subject), String::from_utf8_lossy(&self.text));
        let place = if self.place.is_empty() { String::new() } else { format!(" in {}", self.place) };
        MatchFailed(format!("pcre2_match() failed: {} on \"{subject}\" using \"{pattern}\"{place}", e.code()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_patterns_are_compiled_once() {
        let mut cx = Cx::default();
        let mut pattern = |text: &[u8], caseless| {
            Pattern::<crate::testing::TestArea>::new(&mut cx, text, caseless).expect("a pattern")
        };
        let (one, other, caseless) =
            (pattern(b"^/(?<a>x)$", false), pattern(b"^/(?<a>x)$", false), pattern(b"^/(?<a>x)$", true));
        assert!(Arc::ptr_eq(&one.regex, &other.regex) && !Arc::ptr_eq(&one.regex, &caseless.regex));
        assert_eq!(one.names, other.names, "each sets its variables");
        assert_eq!([&one, &caseless].map(|p| p.is_match(b"/X")), [Ok(false), Ok(true)]);
    }

    #[test]
    fn a_pattern_that_explodes_is_cut_off() {
        let (pattern, _) = Pattern::<crate::testing::TestArea>::at_run_time(br"^(a+)+$").expect("a pattern");
        assert_eq!(pattern.is_match(b"aaaa"), Ok(true));
        assert_eq!(pattern.is_match(b"b"), Ok(false));
        // 2^60 ways to fail: without a limit this test would not end.
        let subject = [&[b'a'; 60][..], b"!"].concat();
        let MatchFailed(words) = pattern.is_match(&subject).expect_err("neither a match nor none");
        // PCRE2_ERROR_MATCHLIMIT
        assert!(
            words.starts_with("pcre2_match() failed: -47 on \"aaaa") && words.contains("using \"^(a+)+$\""),
            "{words}"
        );
        assert!(pattern.captures(&subject, &mut Captures::default()).is_err());
    }
}
