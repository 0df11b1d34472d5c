//! Operators: conditions on a value.

mod block_list;
mod byte_clauses;
mod identity;
mod injection;
mod networks;
mod pattern;
mod phrases;
mod requirement;
mod translate;

use crate::byte_set::ByteSet;
use crate::failure::{Refusal, nearest};
use crate::number::leading_integer;
use crate::places::GeoDatabase;
use crate::source::RuleFiles;
use crate::template::Template;
use crate::transform::{byte_at, hex_pair, read_utf8};
pub(crate) use block_list::BlockList;
pub(crate) use injection::could_be_sqli;
pub use pattern::MATCH_STEPS_MAX;
pub(crate) use pattern::{MatchFailure, Pattern};
pub(crate) use requirement::Requirement;

use identity::IdentityScheme;
use injection::could_be_xss;
use networks::Networks;
use phrases::Phrases;
use std::sync::Arc;

/// Matches of `@rxGlobal` at most.
const GLOBAL_MATCHES_MAX: usize = 1000;

/// Texts that `@verifyCC` and its kind check in a value at most.
const IDENTITY_CANDIDATES_MAX: usize = 10_000;

/// A compiled operator.
#[derive(Debug)]
pub(crate) enum Operator {
    /// `@rx`; `None` if the pattern has macros and is compiled for each evaluation.
    Pattern {
        compiled: Option<Arc<Pattern>>,
        global: bool,
    },
    Phrases(Arc<Phrases>),
    Number(fn(i64, i64) -> bool),
    Text(TextTest),
    Networks(Networks),
    DetectSqli,
    DetectXss,
    ByteRange(Box<[bool; 256]>),
    UrlEncoding,
    Utf8Encoding,
    Identity(IdentityScheme, Pattern),
    GeoLookup,
    /// `@rbl`: a transaction evaluates it with the answers of DNS.
    BlockList(BlockList),
    Never,
    Always,
}

/// A comparison of a value with the parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTest {
    BeginsWith,
    Contains,
    ContainsWord,
    EndsWith,
    Equals,
    /// `@within`: the parameter contains the value.
    Within,
}

/// The result of an operator for a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evaluation {
    pub matches: bool,
    /// Texts for `TX.n`: the number and the text.
    pub captures: Vec<(usize, Vec<u8>)>,
    /// Start and length of what matched, for the `ref` of messages.
    pub offsets: Vec<(usize, usize)>,
    pub failure: Option<MatchFailure>,
    /// `GEO` of a successful `@geoLookup`.
    pub place: Option<Vec<(String, String)>>,
}

/// Facts of a compilation that operators need.
pub(crate) struct OperatorContext<'c> {
    pub files: &'c dyn RuleFiles,
    pub file: &'c str,
    pub match_steps: u32,
}

type Make = fn(&str, &Template, &OperatorContext) -> Result<Operator, Refusal>;

/// Names as messages show them, and constructors.
const OPERATORS: &[(&str, Make)] = &[
    ("beginsWith", |_, _, _| Ok(Operator::Text(TextTest::BeginsWith))),
    ("contains", |_, _, _| Ok(Operator::Text(TextTest::Contains))),
    ("containsWord", |_, _, _| Ok(Operator::Text(TextTest::ContainsWord))),
    ("detectSQLi", |_, _, _| Ok(Operator::DetectSqli)),
    ("detectXSS", |_, _, _| Ok(Operator::DetectXss)),
    ("endsWith", |_, _, _| Ok(Operator::Text(TextTest::EndsWith))),
    ("eq", |_, _, _| Ok(Operator::Number(|value, parameter| value == parameter))),
    ("ge", |_, _, _| Ok(Operator::Number(|value, parameter| value >= parameter))),
    ("geoLookup", |_, _, _| Ok(Operator::GeoLookup)),
    ("gt", |_, _, _| Ok(Operator::Number(|value, parameter| value > parameter))),
    ("ipMatch", |text, _, _| Networks::parse(text).map(Operator::Networks).map_err(Refusal::new)),
    ("ipMatchF", networks_of_file),
    ("ipMatchFromFile", networks_of_file),
    ("le", |_, _, _| Ok(Operator::Number(|value, parameter| value <= parameter))),
    ("lt", |_, _, _| Ok(Operator::Number(|value, parameter| value < parameter))),
    ("noMatch", |_, _, _| Ok(Operator::Never)),
    ("pm", |text, _, _| Phrases::parse(text).map(|phrases| Operator::Phrases(Arc::new(phrases))).map_err(Refusal::new)),
    ("pmf", phrases_of_file),
    ("pmFromFile", phrases_of_file),
    ("rbl", |text, _, _| BlockList::parse(text).map(Operator::BlockList)),
    ("rx", |text, template, cx| pattern_operator(text, template, cx, false)),
    ("rxGlobal", |text, template, cx| pattern_operator(text, template, cx, true)),
    ("streq", |_, _, _| Ok(Operator::Text(TextTest::Equals))),
    ("strmatch", |_, _, _| Ok(Operator::Text(TextTest::Contains))),
    ("unconditionalMatch", |_, _, _| Ok(Operator::Always)),
    ("validateByteRange", |text, _, _| byte_range(text)),
    ("validateUrlEncoding", |_, _, _| Ok(Operator::UrlEncoding)),
    ("validateUtf8Encoding", |_, _, _| Ok(Operator::Utf8Encoding)),
    ("verifyCC", |text, _, cx| identity(text, cx, IdentityScheme::PaymentCard)),
    ("verifyCPF", |text, _, cx| identity(text, cx, IdentityScheme::Cpf)),
    ("verifySSN", |text, _, cx| identity(text, cx, IdentityScheme::SocialSecurity)),
    ("verifySVNR", |text, _, cx| identity(text, cx, IdentityScheme::Svnr)),
    ("within", |_, _, _| Ok(Operator::Text(TextTest::Within))),
];

/// Operators of ModSecurity that are refused, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("fuzzyHash", "fuzzy hashes need libfuzzy"),
    ("gsbLookup", "Google withdrew the list that the operator reads"),
    ("inspectFile", "a rule must not start a program; uploads are not written to files"),
    ("rsub", "a rule must not change the request"),
    ("validateDTD", "documents are not validated against a DTD"),
    ("validateHash", "responses are not rewritten with hashes"),
    ("validateSchema", "documents are not validated against a schema"),
];

fn pattern_operator(text: &str, template: &Template, cx: &OperatorContext, global: bool) -> Result<Operator, Refusal> {
    if template.as_literal().is_none() {
        return Ok(Operator::Pattern { compiled: None, global });
    }
    let compiled = Pattern::new(text, false, cx.match_steps)
        .map_err(|(words, offset)| Refusal::new(format!("invalid pattern: {words}")).at(offset))?;
    Ok(Operator::Pattern { compiled: Some(Arc::new(compiled)), global })
}

fn phrases_of_file(text: &str, _: &Template, cx: &OperatorContext) -> Result<Operator, Refusal> {
    let content = cx.files.data(text, cx.file).map_err(|reason| unreadable(text, &reason))?;
    Phrases::from_file(&content).map(|phrases| Operator::Phrases(Arc::new(phrases))).map_err(Refusal::new)
}

fn networks_of_file(text: &str, _: &Template, cx: &OperatorContext) -> Result<Operator, Refusal> {
    let content = cx.files.data(text, cx.file).map_err(|reason| unreadable(text, &reason))?;
    Networks::from_file(&content).map(Operator::Networks).map_err(|reason| Refusal::new(format!("{text}: {reason}")))
}

fn unreadable(name: &str, reason: &str) -> Refusal {
    Refusal::new(format!("cannot read \"{name}\": {reason}"))
        .suggest("a relative name is looked up beside the file of the rule")
}

fn identity(text: &str, cx: &OperatorContext, scheme: IdentityScheme) -> Result<Operator, Refusal> {
    let pattern = Pattern::new(text, false, cx.match_steps)
        .map_err(|(words, offset)| Refusal::new(format!("invalid pattern: {words}")).at(offset))?;
    Ok(Operator::Identity(scheme, pattern))
}

/// Parses `1-255,9`.
fn byte_range(text: &str) -> Result<Operator, Refusal> {
    let mut allowed = Box::new([false; 256]);
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u8>().ok();
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => {
                allowed.iter_mut().take(usize::from(last) + 1).skip(usize::from(first)).for_each(|slot| *slot = true);
            }
            _ => {
                let refusal = Refusal::new(format!("\"{part}\" is no range of bytes"));
                return Err(refusal.suggest("write numbers from 0 to 255, as \"9,32-126\""));
            }
        }
    }
    Ok(Operator::ByteRange(allowed))
}

/// Makes the operator `name` with its parameter, which stands `offset` bytes behind the name's begin; returns it with the name
/// for messages. Offsets of refusals count from the name.
pub(crate) fn make_operator(
    name: &str,
    (text, offset): (&str, usize),
    template: &Template,
    cx: &OperatorContext,
) -> Result<(Operator, &'static str), Refusal> {
    if let Some((known, make)) = OPERATORS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Ok((make(text, template, cx).map_err(|refusal| refusal.at(offset))?, known));
    }
    if let Some((known, reason)) = REFUSED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Err(Refusal::new(format!("operator @{known} is not supported: {reason}")));
    }
    let refusal = Refusal::new(format!("unknown operator @{name}"));
    Err(match nearest(name, OPERATORS.iter().map(|(known, _)| *known)) {
        Some(known) => refusal.suggest(format!("did you mean @{known}?")),
        None => refusal.suggest("to match a text that begins with \"@\", write \"@rx @...\""),
    })
}

/// Evaluates the operator `name` (without `@`) once, for tools; macros in `parameter` are not expanded. Fails with the
/// reason why the operator cannot be made.
pub fn evaluate_operator(name: &str, parameter: &str, input: &[u8], files: &dyn RuleFiles) -> Result<bool, String> {
    let template = Template::literal(parameter.as_bytes());
    let cx = OperatorContext { files, file: "", match_steps: MATCH_STEPS_MAX };
    let made = make_operator(name, (parameter, 0), &template, &cx).map_err(|refusal| refusal.reason)?;
    Ok(made.0.evaluate(input, parameter.as_bytes(), false, MATCH_STEPS_MAX, None).matches)
}

impl Operator {
    /// Returns what a value must contain for the operator to match without negation; `None` if there is no such
    /// condition that is worth a look, or if an evaluation without a match has an effect.
    pub fn requirement(&self, parameter: &Template) -> Option<Requirement> {
        let requirement = match self {
            Operator::Pattern { compiled: Some(pattern), .. } => pattern.requirement()?,
            Operator::Identity(_, pattern) => pattern.requirement()?,
            Operator::Phrases(phrases) => phrases.requirement(),
            Operator::Text(TextTest::Within) => return None,
            Operator::Text(_) => Requirement::of_texts(vec![parameter.as_literal()?.to_vec()]),
            Operator::DetectXss => Requirement::of_bytes(ByteSet::of(b"<=")),
            Operator::ByteRange(allowed) => {
                let mut refused = ByteSet::default();
                let bytes = (0..=u8::MAX).zip(allowed.iter());
                bytes.filter(|(_, is_allowed)| !**is_allowed).for_each(|(byte, _)| refused.add(byte));
                Requirement::of_bytes(refused)
            }
            Operator::UrlEncoding => Requirement::of_bytes(ByteSet::of(b"%")),
            Operator::Utf8Encoding => Requirement::of_bytes(ByteSet::range(0x80, u8::MAX)),
            _ => return None,
        };
        (!requirement.is_empty()).then_some(requirement)
    }

    /// Evaluates the operator without negation. `parameter` is the expanded parameter; `captures` asks for the texts
    /// of `TX.n`.
    pub fn evaluate(
        &self,
        input: &[u8],
        parameter: &[u8],
        captures: bool,
        match_steps: u32,
        places: Option<&dyn GeoDatabase>,
    ) -> Evaluation {
        match self {
            Operator::Pattern { compiled: Some(pattern), global } => {
                evaluate_pattern(pattern, input, captures, *global)
            }
            Operator::Pattern { compiled: None, global } => {
                let text = String::from_utf8_lossy(parameter);
                match Pattern::new(&text, false, match_steps) {
                    Ok(pattern) => evaluate_pattern(&pattern, input, captures, *global),
                    Err(_) => Evaluation { failure: Some(MatchFailure::Other), ..Evaluation::default() },
                }
            }
            Operator::Phrases(phrases) => match phrases.find(input) {
                Some((phrase, start, end)) => found(start, end - start, captures.then(|| phrase.to_vec())),
                None => Evaluation::default(),
            },
            Operator::Number(test) => holds(test(leading_integer(input), leading_integer(parameter))),
            Operator::Text(test) => evaluate_text(*test, input, parameter),
            Operator::Networks(networks) => holds(networks.contains(input)),
            Operator::DetectSqli if !could_be_sqli(input) => Evaluation::default(),
            Operator::DetectSqli => {
                let result = libinjectionrs::detect_sqli(input);
                match result.is_injection() {
                    true => {
                        let fingerprint = result.fingerprint.filter(|_| captures);
                        let text = fingerprint.map(|text| text.as_str().as_bytes().to_vec());
                        Evaluation { matches: true, captures: numbered(text), ..Evaluation::default() }
                    }
                    false => Evaluation::default(),
                }
            }
            Operator::DetectXss if !could_be_xss(input) => Evaluation::default(),
            Operator::DetectXss => match libinjectionrs::detect_xss(input).is_injection() {
                true => {
                    let text = captures.then(|| input.to_vec());
                    Evaluation { matches: true, captures: numbered(text), ..Evaluation::default() }
                }
                false => Evaluation::default(),
            },
            Operator::ByteRange(allowed) => {
                let is_allowed = |byte: &u8| allowed.get(usize::from(*byte)).copied().unwrap_or(false);
                let offsets: Vec<(usize, usize)> = input
                    .iter()
                    .enumerate()
                    .filter(|(_, byte)| !is_allowed(byte))
                    .map(|(at, _)| (at, 1))
                    .take(64)
                    .collect();
                Evaluation { matches: !offsets.is_empty(), offsets, ..Evaluation::default() }
            }
            Operator::UrlEncoding => {
                let invalid = memchr::memchr_iter(b'%', input).find(|at| hex_pair(input, at + 1).is_none());
                invalid.map_or_else(Evaluation::default, |at| found(at, input.len(), None))
            }
            Operator::Utf8Encoding => {
                let mut at = 0;
                while at < input.len() {
                    match read_utf8(input, at) {
                        Ok((_, length)) => at += length,
                        Err(_) => return found(at, input.len(), None),
                    }
                }
                Evaluation::default()
            }
            Operator::Identity(scheme, pattern) => evaluate_identity(*scheme, pattern, input, captures),
            Operator::GeoLookup => {
                let address = std::str::from_utf8(input).ok().and_then(|text| text.trim().parse().ok());
                let place = places.zip(address).and_then(|(places, address)| places.place_of(address));
                Evaluation { matches: place.is_some(), place, ..Evaluation::default() }
            }
            // Without answers.
            Operator::BlockList(_) | Operator::Never => Evaluation::default(),
            Operator::Always => holds(true),
        }
    }
}

fn holds(matches: bool) -> Evaluation {
    Evaluation { matches, ..Evaluation::default() }
}

fn numbered(text: Option<Vec<u8>>) -> Vec<(usize, Vec<u8>)> {
    text.into_iter().map(|text| (0, text)).collect()
}

fn found(start: usize, length: usize, text: Option<Vec<u8>>) -> Evaluation {
    Evaluation { matches: true, captures: numbered(text), offsets: vec![(start, length)], ..Evaluation::default() }
}

fn evaluate_pattern(pattern: &Pattern, input: &[u8], captures: bool, global: bool) -> Evaluation {
    match pattern.is_match(input) {
        Ok(true) => {}
        Ok(false) => return Evaluation::default(),
        Err(failure) => return Evaluation { failure: Some(failure), ..Evaluation::default() },
    }
    let mut evaluation = Evaluation { matches: true, ..Evaluation::default() };
    let mut at = 0;
    let mut first_number = 0;
    for _ in 0..if global { GLOBAL_MATCHES_MAX } else { 1 } {
        let groups = match pattern.groups_from(input, at) {
            Ok(groups) => groups,
            Err(failure) => {
                evaluation.failure = Some(failure);
                break;
            }
        };
        let Some((_, start, end)) = groups.first().copied() else { break };
        for (group, start, end) in &groups {
            evaluation.offsets.push((*start, end - start));
            if captures {
                let text = input.get(*start..*end).unwrap_or_default().to_vec();
                evaluation.captures.push((first_number + group, text));
            }
        }
        first_number += groups.len();
        at = if end > start { end } else { end + 1 };
        if at > input.len() {
            break;
        }
    }
    evaluation
}

fn evaluate_text(test: TextTest, input: &[u8], parameter: &[u8]) -> Evaluation {
    let at = match test {
        TextTest::BeginsWith => input.starts_with(parameter).then_some(0),
        TextTest::EndsWith => input.ends_with(parameter).then(|| input.len() - parameter.len()),
        TextTest::Equals => (input == parameter).then_some(0),
        TextTest::Contains => memchr::memmem::find(input, parameter),
        TextTest::Within => {
            return match memchr::memmem::find(parameter, input) {
                Some(at) => found(at, input.len(), None),
                None => Evaluation::default(),
            };
        }
        TextTest::ContainsWord if parameter.is_empty() => Some(0),
        TextTest::ContainsWord => {
            let is_edge = |at: Option<usize>| !at.is_some_and(|at| byte_at(input, at).is_ascii_alphabetic());
            let mut places = memchr::memmem::find_iter(input, parameter);
            places.find(|at| is_edge(at.checked_sub(1)) && is_edge(Some(at + parameter.len())))
        }
    };
    at.map_or_else(Evaluation::default, |at| found(at, parameter.len(), None))
}

/// Looks for a valid number in each text that the pattern matches, from every start.
fn evaluate_identity(scheme: IdentityScheme, pattern: &Pattern, input: &[u8], captures: bool) -> Evaluation {
    let mut at = 0;
    for _ in 0..IDENTITY_CANDIDATES_MAX {
        let groups = match pattern.groups_from(input, at) {
            Ok(groups) => groups,
            Err(failure) => return Evaluation { failure: Some(failure), ..Evaluation::default() },
        };
        let Some((_, start, end)) = groups.first().copied() else { break };
        let text = input.get(start..end).unwrap_or_default();
        if scheme.is_valid(text) {
            return found(start, end - start, captures.then(|| text.to_vec()));
        }
        at = start + 1;
    }
    Evaluation::default()
}

#[cfg(test)]
mod tests;
