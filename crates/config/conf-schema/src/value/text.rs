//! Strings and paths.

use super::word_at;
use crate::complaint::Problem;
use crate::cx::Cx;
use crate::table::ValueKind;
use conf_syntax::Directive;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub Vec<u8>);

impl Text {
    pub fn str(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl ValueKind for Text {
    const SYNTAX: &'static str = "string";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(Text(word_at(d, 0)?.bytes.clone()))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath(pub PathBuf);

/// An empty path counts as unset.
impl ValueKind for Option<FilePath> {
    const SYNTAX: &'static str = "path";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = word_at(d, 0)?;
        Ok((!word.bytes.is_empty()).then(|| FilePath(cx.full_name(&word.text()))))
    }
}

impl ValueKind for FilePath {
    const SYNTAX: &'static str = "path";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(FilePath(cx.full_name(&word_at(d, 0)?.text())))
    }
}
