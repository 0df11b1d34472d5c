//! The tree: what was written, with the place of every word.

use std::path::{Path, PathBuf};

/// Index of a file in [`Files`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// A byte range of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub file: FileId,
    pub start: u32,
    pub end: u32,
}

/// One word of a directive: its value after quotes and escapes are resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    pub bytes: Vec<u8>,
    pub span: Span,
    /// It was written in quotes (`""` is a word, too).
    pub quoted: bool,
}

impl Word {
    /// The word as text; bytes that are not UTF-8 become U+FFFD. Use [`Word::bytes`] where bytes matter.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// `name arguments ... ;` or `name arguments ... { items }`.
#[derive(Clone, Debug, Default)]
pub struct Directive {
    pub name: Word,
    pub args: Vec<Word>,
    /// `Some` when the directive was ended by `{`; the items up to the matching `}`.
    pub block: Option<Vec<Item>>,
    /// From the name's first byte to the terminating `;` or `{`, both included.
    pub span: Span,
    /// Line of the terminator, from 1: nginx reports errors there.
    pub line: u32,
    /// Line of the closing `}` when there is a block (0 otherwise).
    pub block_end_line: u32,
    /// For `include`: the files it brought in, in order.
    pub included: Vec<Included>,
}

/// One file that an `include` brought in.
#[derive(Clone, Debug)]
pub struct Included {
    pub file: FileId,
    pub items: Vec<Item>,
}

#[derive(Clone, Debug)]
pub enum Item {
    Directive(Directive),
    /// `# ...` up to the end of the line, which is not part of it.
    Comment(Span),
    /// The text cannot be read further in this file.
    Error(SyntaxError),
}

/// What the lexer, the parser or the reader of an include has to say. `text` is nginx's wording, without the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    pub text: String,
    pub span: Span,
    pub line: u32,
    /// What the operator could do about it.
    pub hint: Option<String>,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// As nginx names it in messages: absolute, or as joined to the prefix.
    pub path: PathBuf,
    pub text: Vec<u8>,
}

/// All files of one configuration, in the order in which they were first read.
#[derive(Clone, Debug, Default)]
pub struct Files {
    pub all: Vec<SourceFile>,
}

impl Files {
    pub fn get(&self, id: FileId) -> Option<&SourceFile> {
        self.all.get(id.0 as usize)
    }
    pub fn path(&self, id: FileId) -> &Path {
        self.get(id).map_or(Path::new(""), |f| f.path.as_path())
    }
    /// Line and column (both from 1; the column counts bytes) of a position.
    pub fn line_column(&self, file: FileId, offset: u32) -> (u32, u32) {
        let Some(f) = self.get(file) else {
            return (0, 0);
        };
        let before = &f.text[..(offset as usize).min(f.text.len())];
        let line = before.iter().filter(|b| **b == b'\n').count() as u32 + 1;
        let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
        (line, (before.len() - start) as u32 + 1)
    }
    /// The text of a span.
    pub fn text(&self, span: Span) -> &[u8] {
        self.get(span.file).and_then(|f| f.text.get(span.start as usize..span.end as usize)).unwrap_or(b"")
    }
    /// The line that holds a position, without its line end.
    pub fn line_text(&self, file: FileId, offset: u32) -> &[u8] {
        let Some(f) = self.get(file) else { return b"" };
        let at = (offset as usize).min(f.text.len());
        let start = f.text[..at].iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
        let end = f.text[at..].iter().position(|b| *b == b'\n').map_or(f.text.len(), |p| at + p);
        f.text[start..end].strip_suffix(b"\r").unwrap_or(&f.text[start..end])
    }
}

/// The directives of a list of items with includes taken in, in order; errors and comments are left out.
pub fn directives(items: &[Item]) -> Vec<&Directive> {
    let mut out = Vec::new();
    collect(items, &mut out);
    out
}

fn collect<'a>(items: &'a [Item], out: &mut Vec<&'a Directive>) {
    for item in items {
        if let Item::Directive(d) = item {
            if d.included.is_empty() || d.name.bytes != b"include" {
                out.push(d);
            }
            for inner in &d.included {
                collect(&inner.items, out);
            }
        }
    }
}
