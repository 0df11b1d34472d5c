//! `tidegate lint`: known traps of nginx's language, each with a reason, a fix and a place.
//!
//! A check is a row ([`Check`]): its documentation, an example that it finds and one that it leaves alone (tests run both), and
//! the function that looks. Checks look at the tree with inheritance and at patterns taken apart, never at text.

mod checks;
mod quiet;
mod report;

pub use report::{json, manual, sarif, text};

use crate::scope::{ScopeId, Scopes};
use crate::values::Sources;
use conf_schema::Schema;
use conf_syntax::{Directive, Files, Item, Span, Word};
use std::cell::RefCell;

/// How bad it is. The order counts: `--level` is a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A matter of taste or of circumstances.
    Note,
    /// It hardly does what was meant.
    Warning,
    /// It opens something, or cannot work.
    Error,
}

impl Level {
    pub const ALL: [Level; 3] = [Level::Note, Level::Warning, Level::Error];

    /// As options and reports write it; SARIF has the same words.
    pub fn word(self) -> &'static str {
        match self {
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// One check.
pub struct Check {
    /// Lower case, with hyphens; never changes once released.
    pub id: &'static str,
    pub level: Level,
    /// What is wrong, in one line.
    pub title: &'static str,
    /// Why it is a trap.
    pub why: &'static str,
    pub fix: &'static str,
    /// The inside of an http block that it finds, and one that it leaves alone.
    pub bad: &'static str,
    pub good: &'static str,
    run: fn(&Run<'_>),
}

/// What was found.
#[derive(Clone)]
pub struct Finding {
    pub check: &'static Check,
    /// What is wrong here, in one line.
    pub message: String,
    pub span: Span,
    /// Other places that matter.
    pub also: Vec<(Span, String)>,
}

/// What a check sees of a configuration.
pub struct Run<'t> {
    pub scopes: &'t Scopes<'t>,
    pub sources: Sources,
    pub items: &'t [Item],
    check: std::cell::Cell<Option<&'static Check>>,
    findings: RefCell<Vec<Finding>>,
}

impl<'t> Run<'t> {
    /// A finding at a directive.
    fn at(&self, d: &Directive, message: String) {
        self.add(d.name.span, message, Vec::new());
    }
    /// At one of its words.
    fn word(&self, word: &Word, message: String) {
        self.add(word.span, message, Vec::new());
    }
    fn add(&self, span: Span, message: String, also: Vec<(Span, String)>) {
        if let Some(check) = self.check.get() {
            let mut findings = self.findings.borrow_mut();
            // A file that is included twice is one place.
            if !findings.iter().any(|f| f.check.id == check.id && f.span == span) {
                findings.push(Finding { check, message, span, also });
            }
        }
    }
    /// Every directive with the block that it stands in.
    fn directives(&self) -> impl Iterator<Item = (ScopeId, &'t Directive)> + '_ {
        self.scopes.all.iter().enumerate().flat_map(|(id, scope)| scope.own.iter().map(move |d| (id, *d)))
    }
    /// Those of a name.
    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (ScopeId, &'t Directive)> + 'a {
        self.directives().filter(move |(_, d)| d.name.bytes == name.as_bytes())
    }
}

/// All checks, in the order of the manual.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    checks::ALL.iter().flat_map(|group| group.iter())
}

/// Looks for everything; what comments in the configuration or `off` switch off is left out. Sorted by place.
pub fn lint(schema: &Schema, files: &Files, items: &[Item], off: &[String]) -> Vec<Finding> {
    let scopes = Scopes::new(schema, files, items);
    let sources = Sources::of(&scopes);
    let run = Run { scopes: &scopes, sources, items, check: None.into(), findings: RefCell::default() };
    for check in checks().filter(|check| !off.iter().any(|id| id == check.id)) {
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
