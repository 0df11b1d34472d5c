//! Colours examples: comments, strings, variables, and the directives of nginx's language, which become links.

use std::fmt::Write;

/// Safe inside elements and attributes.
pub fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// `link` gives the address of a directive's page.
pub fn highlight_html(code: &str, language: &str, link: impl Fn(&str) -> Option<String>) -> String {
    match language {
        "nginx" => nginx(code, link),
        "sh" | "toml" | "yaml" | "dockerfile" | "python" => with_comments(code),
        _ => escape_html(code),
    }
}

/// A comment begins at a word's start.
fn with_comments(code: &str) -> String {
    let mut out = String::new();
    for line in code.split_inclusive('\n') {
        let at = if line.starts_with('#') { Some(0) } else { line.find(" #").map(|at| at + 1) };
        let (before, comment) = line.split_at(at.unwrap_or(line.len()));
        out.push_str(&escape_html(before));
        if !comment.is_empty() {
            let _ = write!(out, "<i>{}</i>", escape_html(comment));
        }
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CodeToken {
    Blank,
    Comment,
    String,
    Word,
    /// A directive begins behind `;`, `{` and `}`.
    End,
}

fn nginx(code: &str, link: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = code;
    let mut begins = true;
    while let Some((token, length)) = next_token(rest) {
        let (piece, after) = rest.split_at(length);
        rest = after;
        match token {
            CodeToken::Blank => out.push_str(piece),
            CodeToken::Comment => {
                let _ = write!(out, "<i>{}</i>", escape_html(piece));
            }
            CodeToken::String => {
                let _ = write!(out, "<s>{}</s>", variables(piece));
            }
            CodeToken::Word if begins => match link(piece) {
                Some(address) => {
                    let _ = write!(out, "<a href=\"{address}\">{}</a>", escape_html(piece));
                }
                None => {
                    let _ = write!(out, "<b>{}</b>", escape_html(piece));
                }
            },
            CodeToken::Word => out.push_str(&variables(piece)),
            CodeToken::End => out.push_str(piece),
        }
        begins = match token {
            CodeToken::Blank | CodeToken::Comment => begins,
            CodeToken::End => true,
            CodeToken::String | CodeToken::Word => false,
        };
    }
    out
}

/// `None` at the end.
fn next_token(text: &str) -> Option<(CodeToken, usize)> {
    let first = text.chars().next()?;
    let until = |stop: fn(char) -> bool| text.find(stop).unwrap_or(text.len());
    Some(match first {
        c if c.is_whitespace() => (CodeToken::Blank, until(|c| !c.is_whitespace())),
        '#' => (CodeToken::Comment, until(|c| c == '\n')),
        ';' | '{' | '}' => (CodeToken::End, 1),
        '"' | '\'' => (CodeToken::String, quoted(text, first)),
        _ => (CodeToken::Word, word(text)),
    })
}

/// Includes the quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// Returns the length of a word. Braces of a pattern (`\d{3}`) and of a variable (`${name}`) belong to it.
fn word(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' if at > 0 => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ';' | '}' => return at,
            c if c.is_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}

fn variables(piece: &str) -> String {
    let mut out = String::new();
    let mut rest = piece;
    while let Some(at) = rest.find('$') {
        out.push_str(&escape_html(&rest[..at]));
        let name = &rest[at + 1..];
        let length = match name.strip_prefix('{').and_then(|inside| inside.find('}')) {
            Some(end) => end + 2,
            None => name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len()),
        };
        let (variable, after) = rest[at..].split_at(length + 1);
        if length == 0 {
            out.push('$');
        } else {
            let _ = write!(out, "<u>{}</u>", escape_html(variable));
        }
        rest = after;
    }
    out.push_str(&escape_html(rest));
    out
}
