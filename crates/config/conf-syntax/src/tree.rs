//! The tree: directives with the position of every word.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

impl FileId {
    /// Of directives that no file has.
    pub const NONE: FileId = FileId(u32::MAX);
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceSpan {
    pub file: FileId,
    pub start: u32,
    pub end: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    pub bytes: Vec<u8>,
    pub span: SourceSpan,
    /// Written in quotes (`""` is a word, too).
    pub quoted: bool,
}

impl Word {
    /// The word as text, with U+FFFD for invalid UTF-8; [`Word::bytes`] is exact.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// `name arguments ... ;` or `name arguments ... { items }`.
#[derive(Clone, Debug, Default)]
pub struct Directive {
    pub name: Word,
    pub args: Vec<Word>,
    /// Items between `{` and `}`; `None` for a directive ended by `;`.
    pub block: Option<Vec<TreeItem>>,
    /// From the name's first byte to the terminating `;` or `{`, inclusive.
    pub span: SourceSpan,
    /// Line of the terminator, from 1: nginx reports errors there.
    pub line: u32,
    /// Line of the closing `}`; 0 without a block.
    pub block_end_line: u32,
    pub included: Vec<IncludedFile>,
}

impl Directive {
    /// Tells whether no file has the directive: it is a default.
    pub fn is_synthetic(&self) -> bool {
        self.span.file == FileId::NONE
    }
}

#[derive(Clone, Debug)]
pub struct IncludedFile {
    pub file: FileId,
    pub items: Vec<TreeItem>,
}

#[derive(Clone, Debug)]
pub enum TreeItem {
    Directive(Directive),
    Comment(SourceSpan),
    /// Parsing of this file stops here.
    Error(SyntaxError),
}

/// An error of lexer, parser or include, in nginx's wording without the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    pub text: String,
    pub span: SourceSpan,
    pub line: u32,
    pub hint: Option<String>,
}

#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Name in nginx's messages: absolute, or joined to the prefix.
    pub path: PathBuf,
    pub text: Vec<u8>,
}

/// In the order of their first reading.
#[derive(Clone, Debug, Default)]
pub struct SourceFiles {
    pub all: Vec<SourceFile>,
}

impl SourceFiles {
    pub fn get(&self, id: FileId) -> Option<&SourceFile> {
        self.all.get(id.0 as usize)
    }
    pub fn path(&self, id: FileId) -> &Path {
        self.get(id).map_or(Path::new(""), |f| f.path.as_path())
    }
    /// Line and column (both from 1; columns count bytes) of an offset.
    pub fn line_column(&self, file: FileId, offset: u32) -> (u32, u32) {
        let Some(f) = self.get(file) else {
            return (0, 0);
        };
        let before = &f.text[..(offset as usize).min(f.text.len())];
        let line = before.iter().filter(|b| **b == b'\n').count() as u32 + 1;
        let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
        (line, (before.len() - start) as u32 + 1)
    }
    pub fn text(&self, span: SourceSpan) -> &[u8] {
        self.get(span.file).and_then(|f| f.text.get(span.start as usize..span.end as usize)).unwrap_or(b"")
    }
    pub fn line_text(&self, file: FileId, offset: u32) -> &[u8] {
        let Some(f) = self.get(file) else { return b"" };
        let at = (offset as usize).min(f.text.len());
        let start = f.text[..at].iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
        let end = f.text[at..].iter().position(|b| *b == b'\n').map_or(f.text.len(), |p| at + p);
        f.text[start..end].strip_suffix(b"\r").unwrap_or(&f.text[start..end])
    }
}

/// The first error of a block's own lines and of the files that they include.
pub fn first_error(items: &[TreeItem]) -> Option<&SyntaxError> {
    items.iter().find_map(|item| match item {
        TreeItem::Error(error) => Some(error),
        TreeItem::Directive(d) => d.included.iter().find_map(|inner| first_error(&inner.items)),
        TreeItem::Comment(_) => None,
    })
}

/// Directives in order, including those of included files, without errors and comments.
pub fn list_directives(items: &[TreeItem]) -> Vec<&Directive> {
    let mut out = Vec::new();
    collect(items, &mut out);
    out
}

/// Returns the first `include` of a block, for blocks in which nginx does not know it.
pub fn include_of(items: &[TreeItem]) -> Option<&Directive> {
    items.iter().find_map(|item| match item {
        TreeItem::Directive(d) if d.name.bytes == b"include" => Some(d),
        _ => None,
    })
}

/// Tells whether a directive is an `include` that was read: a pattern may match no file.
fn is_read(d: &Directive) -> bool {
    let is_pattern = || matches!(d.args.as_slice(), [path] if crate::is_pattern(&path.text()));
    d.name.bytes == b"include" && (!d.included.is_empty() || is_pattern())
}

fn collect<'a>(items: &'a [TreeItem], out: &mut Vec<&'a Directive>) {
    for item in items {
        if let TreeItem::Directive(d) = item {
            if !is_read(d) {
                out.push(d);
            }
            for inner in &d.included {
                collect(&inner.items, out);
            }
        }
    }
}
