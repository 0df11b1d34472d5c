//! Matches, and the lines of the error log in libmodsecurity's form.

use crate::operator::Operator;
use crate::rule::{Link, Rule};
use std::sync::Arc;

/// Characters of values in messages, as in libmodsecurity.
const PARAMETER_SHOWN: usize = 200;
const VALUE_SHOWN: usize = 100;
const FIELD_SHOWN: usize = 200;

/// Facts of a transaction that each message repeats.
pub(crate) struct MessageContext<'c> {
    pub hostname: &'c str,
    pub uri: &'c [u8],
    pub unique_id: &'c str,
}

/// A rule that matched, for the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleMatch {
    /// The rule's id; 0 for the end of a budget.
    pub id: u64,
    pub phase: u8,
    pub file: Arc<str>,
    pub line: u32,
    /// Texts with their macros expanded; bytes that are not printable ASCII are written as `\xHH`.
    pub message: String,
    pub data: String,
    pub tags: Vec<String>,
    pub severity: Option<u8>,
    pub revision: Box<str>,
    pub version: Box<str>,
    pub maturity: u32,
    pub accuracy: u32,
    /// The cause of the match, as `Matched "Operator ...`.
    pub cause: String,
    /// Offsets in the request, as `o0,5v12,9t:lowercase`.
    pub reference: String,
    /// The rule decided about the request, with this status.
    pub denied: Option<u16>,
    /// The match belongs into the error log.
    pub logged: bool,
    /// The match makes the transaction relevant for the audit log.
    pub audited: bool,
    hostname: Box<str>,
    uri: Box<str>,
    unique_id: Box<str>,
}

/// Writes bytes that are not printable ASCII as `\xHH`, and quotes and backslashes as well if `all` holds.
pub(crate) fn printable(bytes: &[u8], all: bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'"' | b'\\' if all => text.push_str(&format!("\\x{byte:02x}")),
            32..=126 => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

/// The first bytes of a text; `(N characters omitted)` stands for the rest.
fn limited(bytes: &[u8], most: usize) -> Vec<u8> {
    match bytes.get(..most) {
        Some(head) if bytes.len() > most => {
            [head, format!(" ({} characters omitted)", bytes.len() - most).as_bytes()].concat()
        }
        _ => bytes.to_vec(),
    }
}

/// The operator's name in messages: `Rx` for `@rx`.
fn shown_operator(name: &str) -> String {
    match name {
        "streq" => "StrEq".into(),
        "strmatch" => "StrMatch".into(),
        "pmf" => "PmFromFile".into(),
        "ipMatchF" => "IpMatchFromFile".into(),
        _ => {
            let mut letters = name.chars();
            let first = letters.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(letters).collect()
        }
    }
}

/// The name, value, expanded parameter and reference of what matched.
pub(crate) type MatchDetail = (Arc<[u8]>, Arc<[u8]>, Vec<u8>, String);

impl RuleMatch {
    pub(crate) fn new(
        rule: &Rule,
        head: &Link,
        matched: Option<MatchDetail>,
        (message, data, tags): (Vec<u8>, Vec<u8>, Vec<Vec<u8>>),
        denied: Option<u16>,
        (logged, audited): (bool, bool),
        context: &MessageContext,
    ) -> RuleMatch {
        let condition = rule.links.last().and_then(|link| link.condition.as_ref());
        let (cause, reference) = match (condition, matched) {
            (Some(condition), Some((name, value, parameter, reference))) => {
                let cause = match condition.operator {
                    Operator::DetectSqli if !condition.negated => "detected SQLi using libinjection.".to_string(),
                    Operator::DetectXss if !condition.negated => "detected XSS using libinjection.".to_string(),
                    _ => format!(
                        "Matched \"Operator `{}' with parameter `{}' against variable `{}' (Value: `{}' )",
                        shown_operator(condition.name),
                        printable(&limited(&parameter, PARAMETER_SHOWN), false),
                        printable(&name, false),
                        printable(&limited(&value, VALUE_SHOWN), false),
                    ),
                };
                (cause, reference)
            }
            _ => ("Unconditional match in SecAction.".to_string(), String::new()),
        };
        let labels = &head.labels;
        let severity = rule.links.iter().find_map(|link| link.labels.severity);
        RuleMatch {
            id: rule.id,
            phase: rule.phase,
            file: rule.place.file.clone(),
            line: head.line,
            message: printable(&message, false),
            data: printable(&limited(&data, FIELD_SHOWN), true),
            tags: tags.iter().map(|tag| printable(tag, true)).collect(),
            severity,
            revision: labels.revision.clone(),
            version: labels.version.clone(),
            maturity: labels.maturity,
            accuracy: labels.accuracy,
            cause,
            reference,
            denied,
            logged,
            audited,
            hostname: context.hostname.into(),
            uri: printable(&limited(context.uri, FIELD_SHOWN), false).into(),
            unique_id: context.unique_id.into(),
        }
    }

    /// A match without a rule: the budget of the transaction ended before `rule` was done.
    pub(crate) fn exhausted(
        what: &str,
        rule: &Rule,
        phase: u8,
        denied: Option<u16>,
        context: &MessageContext,
    ) -> RuleMatch {
        RuleMatch {
            id: 0,
            phase,
            file: rule.place.file.clone(),
            line: rule.links.first().map_or(0, |link| link.line),
            message: format!("the budget of the transaction ended ({what}); the remaining rules were left out"),
            data: String::new(),
            tags: Vec::new(),
            severity: Some(1),
            revision: Box::default(),
            version: Box::default(),
            maturity: 0,
            accuracy: 0,
            cause: format!("Budget exhausted at rule {}.", rule.id),
            reference: String::new(),
            denied,
            logged: true,
            audited: true,
            hostname: context.hostname.into(),
            uri: printable(&limited(context.uri, FIELD_SHOWN), false).into(),
            unique_id: context.unique_id.into(),
        }
    }

    /// The line of the error log without the server's prefix: `ModSecurity: Warning. Matched ...`.
    pub fn log_line(&self) -> String {
        let head = match self.denied {
            Some(status) => format!("Access denied with code {status} (phase {}). ", self.phase),
            None => "Warning. ".to_string(),
        };
        let mut line = format!(
            "ModSecurity: {head}{} [file \"{}\"] [line \"{}\"] [id \"{}\"] [rev \"{}\"] [msg \"{}\"] [data \"{}\"] \
             [severity \"{}\"] [ver \"{}\"] [maturity \"{}\"] [accuracy \"{}\"]",
            self.cause,
            self.file,
            self.line,
            self.id,
            printable(self.revision.as_bytes(), true),
            self.message,
            self.data,
            self.severity.unwrap_or(0),
            printable(self.version.as_bytes(), true),
            self.maturity,
            self.accuracy,
        );
        for tag in &self.tags {
            line.push_str(&format!(" [tag \"{tag}\"]"));
        }
        line.push_str(&format!(
            " [hostname \"{}\"] [uri \"{}\"] [unique_id \"{}\"] [ref \"{}\"]",
            self.hostname,
            self.uri,
            self.unique_id,
            printable(&limited(self.reference.as_bytes(), FIELD_SHOWN), false),
        ));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_printable_text() {
        assert_eq!(printable(b"a\"\n", false), "a\"\\x0a");
        assert_eq!(printable(b"a\"\\", true), "a\\x22\\x5c");
        assert_eq!(limited(b"abcdef", 4), b"abcd (2 characters omitted)");
    }

    #[test]
    fn operators_are_shown_by_the_names_of_libmodsecurity() {
        assert_eq!(shown_operator("rx"), "Rx");
        assert_eq!(shown_operator("streq"), "StrEq");
        assert_eq!(shown_operator("validateByteRange"), "ValidateByteRange");
    }
}
