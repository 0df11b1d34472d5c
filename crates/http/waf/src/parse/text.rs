//! Lines of a rules file: continuations, comments, words and quotes, with the position of each byte.

use crate::failure::{Place, Refusal, RuleError};
use std::sync::Arc;

/// Bytes of a directive with its continuations.
pub(super) const DIRECTIVE_BYTES_MAX: usize = 1 << 20;

/// A directive: the bytes of its lines without the continuations.
pub(super) struct Directive {
    text: String,
    /// (start in `text`, line, column) of each piece.
    pieces: Vec<(usize, u32, u32)>,
}

/// A word of a directive.
pub(super) struct Word {
    pub text: String,
    /// Start in the directive's text, behind a quote.
    pub start: usize,
}

impl Directive {
    /// The position of a byte of the directive.
    pub fn place(&self, file: &Arc<str>, offset: usize) -> Place {
        let piece = self.pieces.iter().rev().find(|(start, ..)| *start <= offset);
        let (start, line, column) = piece.copied().unwrap_or((0, 1, 1));
        Place { file: file.clone(), line, column: column + (offset - start) as u32 }
    }

    /// The line of the first byte.
    pub fn line(&self) -> u32 {
        self.pieces.first().map_or(1, |(_, line, _)| *line)
    }

    /// Adds the position to a refusal of `word`.
    pub fn error(&self, file: &Arc<str>, word: usize, refusal: Refusal) -> RuleError {
        let place = self.place(file, word + refusal.offset);
        RuleError { place, reason: refusal.reason, suggestion: refusal.suggestion }
    }

    /// Divides the directive into words. Within double quotes, `\"` is a quote and other backslashes stay; single
    /// quotes enclose a word in the same way.
    pub fn words(&self) -> Result<Vec<Word>, Refusal> {
        let mut words = Vec::new();
        let mut characters = self.text.char_indices().peekable();
        while let Some((at, first)) = characters.next() {
            if first.is_ascii_whitespace() {
                continue;
            }
            let mut text = String::new();
            if !matches!(first, '"' | '\'') {
                text.push(first);
                while let Some((_, next)) = characters.next_if(|(_, next)| !next.is_ascii_whitespace()) {
                    text.push(next);
                }
                words.push(Word { text, start: at });
                continue;
            }
            let mut closed = false;
            while let Some((_, next)) = characters.next() {
                if next == first {
                    closed = true;
                    break;
                }
                if next == '\\' && characters.next_if(|(_, escaped)| *escaped == first).is_some() {
                    text.push(first);
                } else {
                    text.push(next);
                }
            }
            if !closed {
                let refusal = Refusal::new(format!("the quote {first} is not closed")).at(at);
                return Err(refusal.suggest("close it, or end the line with \"\\\" if the directive continues"));
            }
            if let Some((behind, next)) = characters.peek()
                && !next.is_ascii_whitespace()
            {
                let refusal = Refusal::new(format!("\"{next}\" follows a closing quote")).at(*behind);
                return Err(refusal.suggest(format!("write \\{first} for a quote inside of quotes")));
            }
            words.push(Word { text, start: at + 1 });
        }
        Ok(words)
    }
}

/// Divides a file into directives; comments and empty lines are left out.
pub(super) fn directives(file: &Arc<str>, text: &str) -> Result<Vec<Directive>, RuleError> {
    let mut found = Vec::new();
    let mut lines = text.lines().zip(1_u32..);
    while let Some((line, number)) = lines.next() {
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let mut directive = Directive { text: String::new(), pieces: Vec::new() };
        let indent = line.len() - trimmed.len();
        directive.pieces.push((0, number, indent as u32 + 1));
        let mut rest = trimmed.trim_end();
        loop {
            let Some(continued) = rest.strip_suffix('\\') else {
                directive.text.push_str(rest);
                break;
            };
            directive.text.push_str(continued);
            if directive.text.len() > DIRECTIVE_BYTES_MAX {
                let refusal = Refusal::new(format!("a directive has more than {DIRECTIVE_BYTES_MAX} bytes"));
                return Err(directive.error(file, 0, refusal));
            }
            let Some((next, number)) = lines.next() else { break };
            directive.pieces.push((directive.text.len(), number, 1));
            rest = next.trim_end();
        }
        found.push(directive);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let file = Arc::from("a.conf");
        let found = directives(&file, text).expect("directives");
        let words = found.iter().flat_map(|directive| directive.words().expect("words"));
        words.map(|word| word.text).collect()
    }

    #[test]
    fn continued_lines_are_one_directive() {
        assert_eq!(
            words("# c\n\n  SecRule ARGS \\\n  \"@rx \\\"a\\s\" \\\n  'id:1'\n"),
            ["SecRule", "ARGS", "@rx \"a\\s", "id:1"]
        );
    }

    #[test]
    fn positions_survive_continuations() {
        let file = Arc::from("a.conf");
        let found = directives(&file, "SecRule ARGS \\\n   \"@rx a\"").expect("directives");
        let directive = found.first().expect("a directive");
        let words = directive.words().expect("words");
        let place = directive.place(&file, words.last().expect("a word").start);
        assert_eq!((place.line, place.column), (2, 5));
    }

    #[test]
    fn an_open_quote_is_an_error_at_the_quote() {
        let file = Arc::from("a.conf");
        let found = directives(&file, "SecAction \"id:1").expect("directives");
        let refusal = found.first().expect("a directive").words().err().expect("an error");
        assert_eq!(refusal.offset, 10);
    }
}
