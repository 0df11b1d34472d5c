//! Errors of a configuration and their wording: nginx's line, then the caret, the reason and a suggestion.

use conf_syntax::{SourceFiles, SourceSpan};
use std::borrow::Cow;
use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComplaintLevel {
    Warn,
    Emerg,
}

/// Error of a value's parser. The engine adds the directive's name, file and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub words: ProblemWords,
    pub arg: Option<usize>,
    pub hint: Option<String>,
    /// Offending line, if inside the directive's block.
    pub inner: Option<crate::At>,
    /// Offending directive, when a problem shows only in the plan of a block.
    pub of: Option<Cow<'static, str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemWords {
    /// Worded `"name" directive {0}`.
    Directive(Cow<'static, str>),
    Says(String),
}

impl Problem {
    pub fn directive(words: impl Into<Cow<'static, str>>) -> Self {
        Problem { words: ProblemWords::Directive(words.into()), arg: None, hint: None, inner: None, of: None }
    }
    pub fn says(words: impl Into<String>) -> Self {
        Problem { words: ProblemWords::Says(words.into()), arg: None, hint: None, inner: None, of: None }
    }
    pub fn duplicate() -> Self {
        Self::directive("is duplicate")
    }
    pub fn invalid() -> Self {
        Self::directive("invalid value")
    }
    #[must_use]
    pub fn at(mut self, arg: usize) -> Self {
        self.arg = Some(arg);
        self
    }
    #[must_use]
    pub fn on(mut self, line: &conf_syntax::Directive) -> Self {
        self.inner = Some(crate::At { span: line.span, line: line.line });
        self
    }
    /// Attributes the problem to another directive of the planned block, unless one is set.
    #[must_use]
    pub fn of(mut self, directive: impl Into<Cow<'static, str>>) -> Self {
        self.of.get_or_insert_with(|| directive.into());
        self
    }
    /// Position of [`Problem::of`]'s directive in the block's input.
    pub fn place(&self, table: &crate::FeatureTable, input: &dyn std::any::Any) -> Option<crate::At> {
        let name = self.of.as_deref()?;
        (table.given)(input).into_iter().find(|(given, _)| *given == name).map(|(_, at)| at).filter(|at| at.line > 0)
    }
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    pub level: ComplaintLevel,
    pub text: String,
    pub span: Option<SourceSpan>,
    /// Line that nginx names (the directive's end); 0 without a position.
    pub line: u32,
    pub hint: Option<String>,
}

impl Complaint {
    pub fn emerg(text: impl Into<String>) -> Self {
        Complaint { level: ComplaintLevel::Emerg, text: text.into(), span: None, line: 0, hint: None }
    }
    /// `[emerg] text in FILE:LINE`, nginx's first line.
    pub fn first_line(&self, files: &SourceFiles) -> String {
        let level = if self.level == ComplaintLevel::Emerg { "emerg" } else { "warn" };
        match self.span {
            Some(span) if self.line > 0 => {
                format!("[{level}] {} in {}:{}", self.text, files.path(span.file).display(), self.line)
            }
            _ => format!("[{level}] {}", self.text),
        }
    }
    /// Lines after the first: source line with a caret, and suggestion; `colour` adds ANSI codes.
    pub fn explain(&self, files: &SourceFiles, colour: bool) -> String {
        let mut out = String::new();
        let (dim, bold, reset) = if colour { ("\x1b[2m", "\x1b[1;31m", "\x1b[0m") } else { ("", "", "") };
        if let Some(span) = self.span {
            let (line, column) = files.line_column(span.file, span.start);
            let text = String::from_utf8_lossy(files.line_text(span.file, span.start)).replace('\t', " ");
            let number = line.to_string();
            let gap = " ".repeat(number.len());
            let before =
                text.as_bytes().get(..column as usize - 1).map_or(0, |b| String::from_utf8_lossy(b).chars().count());
            let rest = text.chars().count().saturating_sub(before).max(1);
            let length = String::from_utf8_lossy(files.text(span)).chars().take_while(|c| *c != '\n').count();
            let carets = "^".repeat(length.clamp(1, rest));
            let _ = writeln!(out, "{dim}{gap} --> {}:{line}:{column}{reset}", files.path(span.file).display());
            let _ = writeln!(out, "{dim}{number} |{reset} {text}");
            let _ = writeln!(out, "{dim}{gap} |{reset} {}{bold}{carets}{reset}", " ".repeat(before));
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(out, "  = {hint}");
        }
        out
    }
}
