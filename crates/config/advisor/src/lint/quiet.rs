//! Comments that disable checks: `# tidegate-lint: off alias-traversal`.
//! A comment applies to the directive that it follows, or on its own line to the next directive, including its block.
//! Without names it disables every check.

use conf_syntax::{Directive, FileId, SourceFiles, SourceSpan, TreeItem};

const MARK: &str = "tidegate-lint:";

#[derive(Default)]
pub struct Quiet {
    parts: Vec<CommentPart>,
}

struct CommentPart {
    file: FileId,
    from: u32,
    to: u32,
    /// Empty: all.
    ids: Vec<String>,
}

/// Checks that a comment disables; `None` for other comments.
pub fn disabled_checks(text: &str) -> Option<Vec<String>> {
    let words = text.trim_start_matches('#').trim().strip_prefix(MARK)?.trim().strip_prefix("off")?;
    Some(words.split([' ', ',', '\t']).filter(|id| !id.is_empty()).map(str::to_string).collect())
}

/// All checks named in comments, with positions.
pub fn named_checks(files: &SourceFiles, items: &[TreeItem]) -> Vec<(SourceSpan, String)> {
    let mut out = Vec::new();
    for item in items {
        match item {
            TreeItem::Comment(span) => {
                let ids = disabled_checks(&String::from_utf8_lossy(files.text(*span))).unwrap_or_default();
                out.extend(ids.into_iter().map(|id| (*span, id)));
            }
            TreeItem::Directive(d) => {
                out.extend(d.block.iter().flat_map(|block| named_checks(files, block)));
                out.extend(d.included.iter().flat_map(|inner| named_checks(files, &inner.items)));
            }
            TreeItem::Error(_) => {}
        }
    }
    out
}

impl Quiet {
    pub fn of(files: &SourceFiles, items: &[TreeItem]) -> Quiet {
        let mut quiet = Quiet::default();
        quiet.items(files, items);
        quiet
    }
    pub fn covers(&self, id: &str, span: SourceSpan) -> bool {
        self.parts.iter().any(|part| {
            part.file == span.file
                && (part.from..=part.to).contains(&span.start)
                && (part.ids.is_empty() || part.ids.iter().any(|own| own == id))
        })
    }

    fn items(&mut self, files: &SourceFiles, items: &[TreeItem]) {
        let mut waiting: Vec<Vec<String>> = Vec::new();
        let mut before: Option<&Directive> = None;
        for item in items {
            match item {
                TreeItem::Comment(span) => {
                    let Some(ids) = disabled_checks(&String::from_utf8_lossy(files.text(*span))) else { continue };
                    let line = files.line_column(span.file, span.start).0;
                    match before.filter(|d| d.line == line || d.block_end_line == line) {
                        Some(d) => self.cover(d, &ids),
                        None => waiting.push(ids),
                    }
                }
                TreeItem::Directive(d) => {
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
                TreeItem::Error(_) => {}
            }
        }
    }

    /// A comment behind an opening brace belongs to the block.
    fn first_line(&mut self, files: &SourceFiles, d: &Directive, block: &[TreeItem]) {
        if let Some(TreeItem::Comment(span)) = block.first()
            && files.line_column(span.file, span.start).0 == d.line
            && let Some(ids) = disabled_checks(&String::from_utf8_lossy(files.text(*span)))
        {
            self.cover(d, &ids);
        }
    }

    fn cover(&mut self, d: &Directive, ids: &[String]) {
        let (from, to) = extent(d);
        self.parts.push(CommentPart { file: d.span.file, from, to, ids: ids.to_vec() });
        // Includes are nested, too.
        for item in d.block.iter().flatten().chain(d.included.iter().flat_map(|inner| &inner.items)) {
            if let TreeItem::Directive(inner) = item
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
        TreeItem::Directive(inner) => extent(inner).1,
        TreeItem::Comment(span) => span.end,
        TreeItem::Error(error) => error.span.end,
    });
    (d.span.start, inner.chain([d.span.end]).max().unwrap_or(d.span.end))
}
