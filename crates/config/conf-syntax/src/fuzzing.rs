//! Bodies of the fuzz targets: each takes arbitrary text and panics if an invariant fails. They run under libFuzzer
//! (`fuzz/`), and with a seeded generator in `cargo test`.

use crate::{
    BLOCK_DEPTH_MAX, Directive, FileId, Lexer, SourceFile, SourceFiles, SourceSpan, TokenKind, TreeItem,
    WORD_BYTES_MAX, parse_file,
};

/// Checks that tokens are in order, cover the text together with white space and comments, and end where the text ends.
pub fn tokens(text: &[u8]) {
    let mut lexer = Lexer::new(text);
    let (mut at, mut line) = (if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 }, 1);
    // Every token except the last contains at least one byte.
    for _ in 0..=text.len() {
        let token = lexer.next_token();
        assert!(at <= token.start && token.start <= token.end && token.end <= text.len(), "a token out of order");
        assert!(token.line >= line, "lines go forward");
        line = token.line;
        let between = text.get(at..token.start).unwrap_or(b"");
        match token.kind {
            TokenKind::End => return,
            TokenKind::Error(words) => {
                assert!(!words.is_empty());
                return;
            }
            _ => assert!(between.iter().all(u8::is_ascii_whitespace), "skipped: {}", between.escape_ascii()),
        }
        assert!(token.end > at, "a token without a byte");
        at = token.end;
    }
    panic!("more tokens than bytes");
}

/// Checks that spans cover the text and nest, and that a printed tree parses to an equal tree.
pub fn tree(text: &[u8]) {
    let items = parse_file(FileId(0), text);
    let file = SourceFile { path: "fuzz.conf".into(), text: text.to_vec() };
    let files = SourceFiles { all: vec![file] };
    let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
    check(&items, &files, SourceSpan { file: FileId(0), start: 0, end }, 0);
    let mut printed = Vec::new();
    if print(&items, &mut printed) {
        let again = parse_file(FileId(0), &printed);
        assert!(same(&items, &again), "printed as {}", printed.escape_ascii());
        let mut twice = Vec::new();
        assert!(print(&again, &mut twice) && printed == twice, "printing is not stable");
    }
}

fn check(items: &[TreeItem], files: &SourceFiles, within: SourceSpan, depth: usize) {
    assert!(depth <= BLOCK_DEPTH_MAX);
    let inside =
        |span: SourceSpan| assert!(within.start <= span.start && span.start <= span.end && span.end <= within.end);
    let mut at = within.start;
    for (index, item) in items.iter().enumerate() {
        match item {
            TreeItem::Comment(span) => {
                inside(*span);
                assert!(span.start >= at && files.text(*span).starts_with(b"#"));
                at = span.end;
            }
            TreeItem::Error(error) => {
                inside(error.span);
                assert_eq!(index, items.len() - 1, "nothing is read after an error");
                assert!(!error.text.is_empty() && error.line > 0);
            }
            TreeItem::Directive(d) => {
                inside(d.span);
                assert!(d.span.start >= at && d.name.span.start == d.span.start);
                let mut word_end = d.span.start;
                for word in std::iter::once(&d.name).chain(&d.args) {
                    assert!(word.span.start >= word_end && word.span.end <= d.span.end);
                    assert!(word.bytes.len() <= files.text(word.span).len(), "a word grows by being read");
                    word_end = word.span.end;
                }
                let last = files.text(d.span).last().copied();
                assert_eq!(last, Some(if d.block.is_some() { b'{' } else { b';' }));
                at = d.span.end;
                if let Some(block) = &d.block {
                    check(block, files, SourceSpan { start: at, ..within }, depth + 1);
                }
            }
        }
    }
}

/// Writes directives as text. Returns `false` if the tree contains an error, or if a word is too long when escaped.
fn print(items: &[TreeItem], out: &mut Vec<u8>) -> bool {
    items.iter().all(|item| match item {
        TreeItem::Comment(_) => true,
        TreeItem::Error(_) => false,
        TreeItem::Directive(d) => {
            for word in std::iter::once(&d.name).chain(&d.args) {
                let start = out.len();
                quote(&word.bytes, out);
                if out.len() - start > WORD_BYTES_MAX {
                    return false;
                }
                out.push(b' ');
            }
            match &d.block {
                None => out.extend_from_slice(b";\n"),
                Some(block) => {
                    out.extend_from_slice(b"{\n");
                    if !print(block, out) {
                        return false;
                    }
                    out.extend_from_slice(b"}\n");
                }
            }
            true
        }
    })
}

fn quote(word: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &c in word {
        if matches!(c, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(c);
    }
    out.push(b'"');
}

fn same(a: &[TreeItem], b: &[TreeItem]) -> bool {
    fn only(items: &[TreeItem]) -> impl Iterator<Item = &Directive> {
        items.iter().filter_map(|item| match item {
            TreeItem::Directive(d) => Some(d),
            _ => None,
        })
    }
    fn words(d: &Directive) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&d.name).chain(&d.args).map(|word| word.bytes.as_slice())
    }
    let (mut a, mut b) = (only(a), only(b));
    loop {
        let (x, y) = match (a.next(), b.next()) {
            (Some(x), Some(y)) => (x, y),
            (None, None) => return true,
            _ => return false,
        };
        let blocks = match (&x.block, &y.block) {
            (Some(x), Some(y)) => same(x, y),
            (None, None) => true,
            _ => false,
        };
        if !blocks || !words(x).eq(words(y)) {
            return false;
        }
    }
}
