//! `tidegate lint`: known traps of nginx's language, each with a reason, a fix and a position.
//! A check is a row ([`LintCheck`]) with documentation, a bad and a good example (tests run both), and its function, which
//! works on the inherited tree and on parsed patterns, never on text.

mod checks;
mod quiet;
mod report;

pub use report::{checks_manual, findings_json, findings_sarif, findings_text};

use crate::scope::{ScopeId, Scopes};
use crate::values::Sources;
use conf_schema::Schema;
use conf_syntax::{Directive, SourceFiles, SourceSpan, TreeItem, Word};
use std::cell::RefCell;

/// `--level` is a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LintLevel {
    /// A matter of taste or circumstances.
    Note,
    /// Hardly works as intended.
    Warning,
    /// Opens a resource, or cannot work.
    Error,
}

impl LintLevel {
    pub const ALL: [LintLevel; 3] = [LintLevel::Note, LintLevel::Warning, LintLevel::Error];

    /// Name in options and reports, equal to SARIF's.
    pub fn word(self) -> &'static str {
        match self {
            LintLevel::Note => "note",
            LintLevel::Warning => "warning",
            LintLevel::Error => "error",
        }
    }
}

pub struct LintCheck {
    /// Lower case with hyphens; stable once released.
    pub id: &'static str,
    pub level: LintLevel,
    pub title: &'static str,
    pub why: &'static str,
    pub fix: &'static str,
    /// Contents of an http block that is reported, and of one that is not.
    pub bad: &'static str,
    pub good: &'static str,
    run: fn(&LintRun<'_>),
}

#[derive(Clone)]
pub struct Finding {
    pub check: &'static LintCheck,
    pub message: String,
    pub span: SourceSpan,
    pub also: Vec<(SourceSpan, String)>,
}

pub struct LintRun<'t> {
    pub scopes: &'t Scopes<'t>,
    pub sources: Sources,
    pub items: &'t [TreeItem],
    check: std::cell::Cell<Option<&'static LintCheck>>,
    findings: RefCell<Vec<Finding>>,
}

impl<'t> LintRun<'t> {
    fn at(&self, d: &Directive, message: String) {
        self.add(d.name.span, message, Vec::new());
    }
    fn word(&self, word: &Word, message: String) {
        self.add(word.span, message, Vec::new());
    }
    fn add(&self, span: SourceSpan, message: String, also: Vec<(SourceSpan, String)>) {
        if let Some(check) = self.check.get() {
            let mut findings = self.findings.borrow_mut();
            // A file that is included twice is reported once.
            if !findings.iter().any(|f| f.check.id == check.id && f.span == span) {
                findings.push(Finding { check, message, span, also });
            }
        }
    }
    fn directives(&self) -> impl Iterator<Item = (ScopeId, &'t Directive)> + '_ {
        self.scopes.all.iter().enumerate().flat_map(|(id, scope)| scope.own.iter().map(move |d| (id, *d)))
    }
    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (ScopeId, &'t Directive)> + 'a {
        self.directives().filter(move |(_, d)| d.name.bytes == name.as_bytes())
    }
}

pub fn all_checks() -> impl Iterator<Item = &'static LintCheck> {
    checks::ALL.iter().flat_map(|group| group.iter())
}

/// Runs all checks except those disabled by comments or `off`; sorted by position.
pub fn lint_config(schema: &Schema, files: &SourceFiles, items: &[TreeItem], off: &[String]) -> Vec<Finding> {
    let scopes = Scopes::new(schema, files, items);
    let sources = Sources::of(&scopes);
    let run = LintRun { scopes: &scopes, sources, items, check: None.into(), findings: RefCell::default() };
    for check in all_checks().filter(|check| !off.iter().any(|id| id == check.id)) {
        run.check.set(Some(check));
        (check.run)(&run);
    }
    let quiet = quiet::Quiet::of(files, items);
    let mut findings = run.findings.into_inner();
    findings.retain(|finding| !quiet.covers(finding.check.id, finding.span));
    findings.sort_by_key(|f| (f.span.file.0, f.span.start, f.check.id));
    findings
}

#[cfg(test)]
mod tests;
