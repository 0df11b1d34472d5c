//! The files of rules, which the caller reads.

use std::sync::Arc;

/// The text of a file with rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleText {
    /// The name that messages show; `Include` and data files are relative to it.
    pub name: Arc<str>,
    pub text: String,
}

/// Reads the files that rules refer to. The crate itself reads none.
pub trait RuleFiles {
    /// Returns the files of `Include`: `pattern` can have `*`, `?` and brackets, and is relative to the file `from`.
    /// An empty list is an error of the rules. Fails with the reason.
    fn include(&self, pattern: &str, from: &str) -> Result<Vec<RuleText>, String>;
    /// Returns the content of a data file (`@pmFromFile`, `@ipMatchFromFile`, `SecUnicodeMapFile`). Fails with the
    /// reason.
    fn data(&self, name: &str, from: &str) -> Result<Vec<u8>, String>;
}

/// A reader for rules that refer to no files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl RuleFiles for NoFiles {
    fn include(&self, _: &str, _: &str) -> Result<Vec<RuleText>, String> {
        Err("files cannot be included here".into())
    }
    fn data(&self, _: &str, _: &str) -> Result<Vec<u8>, String> {
        Err("files cannot be read here".into())
    }
}
