//! Parses tokens into a tree of directives.

use crate::lexer::{Lexer, TokenKind};
use crate::tree::{Directive, FileId, SourceSpan, SyntaxError, TreeItem, Word};

/// Nested blocks at most; real configurations stay below 10.
pub const BLOCK_DEPTH_MAX: usize = 128;

/// Parses one file. Never fails: errors stand in the tree.
pub fn parse_file(file: FileId, text: &[u8]) -> Vec<TreeItem> {
    let mut lexer = Lexer::new(text);
    let mut stack: Vec<(Vec<TreeItem>, Option<Directive>)> = Vec::new();
    let mut items: Vec<TreeItem> = Vec::new();
    let mut owner: Option<Directive> = None;
    let mut words: Vec<Word> = Vec::new();
    let span = |start: usize, end: usize| SourceSpan { file, start: start as u32, end: end as u32 };
    let error = |text: &str, at: SourceSpan, line: u32, hint: Option<&str>| {
        TreeItem::Error(SyntaxError { text: text.into(), span: at, line, hint: hint.map(Into::into) })
    };
    loop {
        let token = lexer.next_token();
        let at = span(token.start, token.end);
        match token.kind {
            TokenKind::Word { bytes, quoted } => words.push(Word { bytes, span: at, quoted }),
            TokenKind::Comment => {
                if words.is_empty() {
                    items.push(TreeItem::Comment(at));
                }
            }
            TokenKind::Semicolon | TokenKind::Open if words.is_empty() => {
                let what = if token.kind == TokenKind::Open { "unexpected \"{\"" } else { "unexpected \";\"" };
                items.push(error(what, at, token.line, Some("a directive's name is missing before it")));
                break;
            }
            TokenKind::Semicolon => {
                items.push(TreeItem::Directive(directive(&mut words, at.end, token.line)));
            }
            TokenKind::Open => {
                if stack.len() >= BLOCK_DEPTH_MAX {
                    items.push(error("too many nested blocks", at, token.line, None));
                    break;
                }
                let opened = directive(&mut words, at.end, token.line);
                stack.push((std::mem::take(&mut items), owner.replace(opened)));
            }
            TokenKind::Close => {
                if !words.is_empty() {
                    items.push(error("unexpected \"}\"", at, token.line, Some("is a \";\" missing before it?")));
                    break;
                }
                let (Some((outer, outer_owner)), Some(mut done)) = (stack.pop(), owner.take()) else {
                    items.push(error("unexpected \"}\"", at, token.line, Some("no block is open")));
                    break;
                };
                done.block = Some(std::mem::replace(&mut items, outer));
                done.block_end_line = token.line;
                owner = outer_owner;
                items.push(TreeItem::Directive(done));
            }
            TokenKind::Error(text) => {
                items.push(error(&text, at, token.line, None));
                break;
            }
            TokenKind::End => {
                if let Some(first) = words.first() {
                    let what = "unexpected end of file, expecting \";\" or \"}\"";
                    items.push(error(what, first.span, token.line, Some("is a \";\" missing?")));
                } else if let Some(open) = &owner {
                    let hint = format!("the block \"{}\" of line {} is not closed", open.name.text(), open.line);
                    items.push(error("unexpected end of file, expecting \"}\"", at, token.line, Some(&hint)));
                }
                break;
            }
        }
    }
    // Closes blocks left open by an error, so that everything before it is still checked in order.
    while let (Some((outer, outer_owner)), Some(mut open)) = (stack.pop(), owner.take()) {
        open.block = Some(std::mem::replace(&mut items, outer));
        items.push(TreeItem::Directive(open));
        owner = outer_owner;
    }
    items
}

fn directive(words: &mut Vec<Word>, end: u32, line: u32) -> Directive {
    let mut all = words.drain(..);
    let name = all.next().unwrap_or_default();
    let span = SourceSpan { end, ..name.span };
    Directive { args: all.collect(), name, span, line, ..Directive::default() }
}
