//! Comments that disable checks: `# tidegate-lint: off alias-traversal`.
//! A comment applies to the directive that it follows, or on its own line to the next directive, including its block.
//! Without names it disables every check.

use conf_syntax::{Directive, FileId, Files, Item, Span};

const MARK: &str = "tidegate-lint:";

#[derive(Default)]
pub struct Quiet {
    parts: Vec<Part>,
}

struct Part {
    file: FileId,
    from: u32,
    to: u32,
    /// Empty: all.
    ids: Vec<String>,
}

/// Checks that a comment disables; `None` for other comments.
pub fn said(text: &str) -> Option<Vec<String>> {
    let words = text.trim_start_matches('#').trim().strip_prefix(MARK)?.trim().strip_prefix("off")?;
    Some(words.split([' ', ',', '\t']).filter(|id| !id.is_empty()).map(str::to_string).collect())
}

/// All checks named in comments, with positions.
pub fn named(files: &Files, items: &[Item]) -> Vec<(Span, String)> {
    let mut out = Vec::new();
    for item in items {
        match item {
            Item::Comment(span) => {
                let ids = said(&String::from_utf8_lossy(files.text(*span))).unwrap_or_default();
                out.extend(ids.into_iter().map(|id| (*span, id)));
            }
            Item::Directive(d) => {
                out.extend(d.block.iter().flat_map(|block| named(files, block)));
                out.extend(d.included.iter().flat_map(|inner| named(files, &inner.items)));
            }
            Item::Error(_) => {}
        }
    }
    out
}

impl Quiet {
    pub fn of(files: &Files, items: &[Item]) -> Quiet {
        let mut quiet = Quiet::default();
        quiet.items(files, items);
        quiet
    }
    pub fn covers(&self, id: &str, span: Span) -> bool {
        self.parts.iter().any(|part| {
            part.file == span.file
                && (part.from..=part.to).contains(&span.start)
                && (part.ids.is_empty() || part.ids.iter().any(|own| own == id))
        })
    }

    fn items(&mut self, files: &Files, items: &[Item]) {
        let mut waiting: Vec<Vec<String>> = Vec::new();
        let mut before: Option<&Directive> = None;
        for item in items {
            match item {
                Item::Comment(span) => {
                    let Some(ids) = said(&String::from_utf8_lossy(files.text(*span))) else { continue };
                    let line = files.line_column(span.file, span.start).0;
                    match before.filter(|d| d.line == line || d.block_end_line == line) {
                        Some(d) => self.cover(d, &ids),
                        None => waiting.push(ids),
                    }
                }
                Item::Directive(d) => {
                    for ids in waiting.drain(..) {
                        self.cover(d, &ids);
                    }
                    if let Some(block) = &d.block {
                        self.first_line(files, d, block);
                        self.items(files, block);
                    }
                    for inner in &d.included {
                        self.items(files, &inner.items);
                    }
                    before = Some(d);
                }
                Item::Error(_) => {}
            }
        }
    }

    /// A comment behind an opening brace belongs to the block.
    fn first_line(&mut self, files: &Files, d: &Directive, block: &[Item]) {
        if let Some(Item::Comment(span)) = block.first()
            && files.line_column(span.file, span.start).0 == d.line
            && let Some(ids) = said(&String::from_utf8_lossy(files.text(*span)))
        {
            self.cover(d, &ids);
        }
    }

    fn cover(&mut self, d: &Directive, ids: &[String]) {
        let (from, to) = extent(d);
        self.parts.push(Part { file: d.span.file, from, to, ids: ids.to_vec() });
        // Includes are nested, too.
        for item in d.block.iter().flatten().chain(d.included.iter().flat_map(|inner| &inner.items)) {
            if let Item::Directive(inner) = item
                && (inner.span.file != d.span.file || !inner.included.is_empty() || inner.block.is_some())
            {
                self.cover(inner, ids);
            }
        }
    }
}

/// Returns the bytes from a directive's start to the end of its block.
fn extent(d: &Directive) -> (u32, u32) {
    let inner = d.block.iter().flatten().map(|item| match item {
        Item::Directive(inner) => extent(inner).1,
        Item::Comment(span) => span.end,
        Item::Error(error) => error.span.end,
    });
    (d.span.start, inner.chain([d.span.end]).max().unwrap_or(d.span.end))
}
