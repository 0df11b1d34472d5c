//! Finds commands (`<!--#name key="value" -->`) in text that arrives in arbitrary pieces.

use bytes::{Buf, Bytes};
use std::ops::Range;

/// As in nginx.
const NAME_MAX: usize = 32;
const PARAMS_MAX: usize = 64;

/// A command with raw values (backslashes kept).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SsiCommand {
    pub name: Vec<u8>,
    pub params: Vec<(Vec<u8>, Vec<u8>)>,
}

impl SsiCommand {
    pub fn text(&self) -> Vec<u8> {
        let mut out = [b"<!--#", self.name.as_slice()].concat();
        for (key, value) in &self.params {
            out.extend_from_slice(&[b" ", key.as_slice(), b"=\"", value, b"\""].concat());
        }
        out.extend_from_slice(b" -->");
        out
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum SsiToken {
    /// Range of the input that is text.
    Text(Range<usize>),
    /// Earlier input that proved to be text.
    Held(&'static [u8]),
    Command(SsiCommand),
    /// Message about a malformed command, at the faulty byte.
    Fault(String),
    /// End of a malformed command.
    Broken,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParserState {
    #[default]
    Text,
    /// Matched bytes of `<!--`.
    Start(usize),
    BeforeName,
    Name,
    BeforeKey,
    Key,
    BeforeEqual,
    BeforeValue,
    Value(u8),
    /// After a backslash in a value with this quote.
    Escaped(u8),
    AfterValue,
    /// Matched bytes of `-->`.
    End(u8),
    /// Skips a broken command; matched bytes of `-->`.
    Broken(u8),
}

const OPENING: &[u8] = b"<!--";
const COMMAND: &[u8] = b"<!--#";

#[derive(Debug, Default)]
pub struct SsiParser {
    state: ParserState,
    command: SsiCommand,
    words: String,
    value_max: usize,
}

/// Octets before the first command, or before an end that may begin one. Other tags are text, so that a page has few
/// tokens.
fn text_length(input: &[u8]) -> usize {
    let begins = |at: &usize| {
        let rest = input.get(*at..).unwrap_or_default();
        let length = rest.len().min(COMMAND.len());
        rest.get(..length) == COMMAND.get(..length)
    };
    memchr::memchr_iter(b'<', input).find(begins).unwrap_or(input.len())
}

fn space(c: u8) -> bool {
    matches!(c, b' ' | b'\r' | b'\n' | b'\t')
}

fn shown(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}

impl SsiParser {
    pub fn new(value_max: usize) -> SsiParser {
        SsiParser { value_max, ..SsiParser::default() }
    }
    /// Returns an unfinished opening at the end of the body, as text.
    pub fn rest(&mut self) -> &'static [u8] {
        match std::mem::take(&mut self.state) {
            ParserState::Start(n) => OPENING.get(..n).unwrap_or_default(),
            _ => b"",
        }
    }
    /// `None` once all input is consumed.
    pub fn next(&mut self, input: &mut Bytes) -> Option<SsiToken> {
        let mut at = 0;
        while let Some(&c) = input.get(at) {
            match self.state {
                ParserState::Text => {
                    let end = at + text_length(input.get(at..).unwrap_or_default());
                    if end > at {
                        input.advance(end);
                        return Some(SsiToken::Text(at..end));
                    }
                    self.state = ParserState::Start(1);
                }
                ParserState::Start(n) => {
                    if n == OPENING.len() && c == b'#' {
                        self.command = SsiCommand::default();
                        self.state = ParserState::BeforeName;
                    } else if OPENING.get(n) == Some(&c) {
                        self.state = ParserState::Start(n + 1);
                    } else {
                        // It was text; the byte itself may start a command.
                        self.state = ParserState::Text;
                        input.advance(at);
                        return Some(SsiToken::Held(OPENING.get(..n).unwrap_or_default()));
                    }
                }
                ParserState::End(2) if c == b'>' => {
                    self.state = ParserState::Text;
                    input.advance(at + 1);
                    return Some(SsiToken::Command(std::mem::take(&mut self.command)));
                }
                ParserState::Broken(2) if c == b'>' => {
                    self.state = ParserState::Text;
                    input.advance(at + 1);
                    return Some(SsiToken::Broken);
                }
                _ => {
                    self.state = self.inside(c);
                    if !self.words.is_empty() {
                        input.advance(at + 1);
                        return Some(SsiToken::Fault(std::mem::take(&mut self.words)));
                    }
                }
            }
            at += 1;
        }
        input.clear();
        None
    }
    fn inside(&mut self, c: u8) -> ParserState {
        match self.state {
            ParserState::BeforeName if space(c) => ParserState::BeforeName,
            ParserState::BeforeName => {
                self.command.name.push(c);
                ParserState::Name
            }
            ParserState::Name | ParserState::BeforeKey | ParserState::AfterValue if space(c) => ParserState::BeforeKey,
            ParserState::Name | ParserState::BeforeKey | ParserState::AfterValue if c == b'-' => ParserState::End(1),
            ParserState::Name if self.command.name.len() == NAME_MAX => {
                self.broken(c, format!("the \"{}{}...\" SSI command is too long", self.name(), c as char))
            }
            ParserState::Name => {
                self.command.name.push(c);
                ParserState::Name
            }
            ParserState::BeforeKey if self.command.params.len() == PARAMS_MAX => {
                self.broken(c, format!("too many SSI command parameters: \"{}\"", self.name()))
            }
            ParserState::BeforeKey => {
                self.command.params.push((vec![c], Vec::new()));
                ParserState::Key
            }
            ParserState::Key | ParserState::BeforeEqual if space(c) => ParserState::BeforeEqual,
            ParserState::Key | ParserState::BeforeEqual if c == b'=' => ParserState::BeforeValue,
            ParserState::Key if c != b'-' => match self.command.params.last_mut() {
                Some((key, _)) if key.len() < NAME_MAX => {
                    key.push(c);
                    ParserState::Key
                }
                _ => {
                    let (c, key, name) = (c as char, self.key(), self.name());
                    self.broken(0, format!("too long \"{key}{c}...\" parameter in \"{name}\" SSI command"))
                }
            },
            ParserState::Key | ParserState::BeforeEqual => {
                let (key, name) = (self.key(), self.name());
                let words = format!("unexpected \"{}\" symbol after \"{key}\" parameter", c as char);
                self.broken(c, format!("{words} in \"{name}\" SSI command"))
            }
            ParserState::BeforeValue if space(c) => ParserState::BeforeValue,
            ParserState::BeforeValue if matches!(c, b'"' | b'\'') => ParserState::Value(c),
            ParserState::BeforeValue => {
                let (key, name) = (self.key(), self.name());
                let words = format!("unexpected \"{}\" symbol before value of \"{key}\" parameter", c as char);
                self.broken(c, format!("{words} in \"{name}\" SSI command"))
            }
            ParserState::Value(quote) if c == quote => ParserState::AfterValue,
            ParserState::Value(quote) | ParserState::Escaped(quote) => {
                let value_max = self.value_max;
                let Some((_, value)) = self.command.params.last_mut() else { return ParserState::Broken(0) };
                if value.len() >= value_max {
                    let value = format!("too long \"{}{}...\" value of", shown(value), c as char);
                    let (key, name) = (self.key(), self.name());
                    return self.broken(0, format!("{value} \"{key}\" parameter in \"{name}\" SSI command"));
                }
                value.push(c);
                if c == b'\\' && self.state == ParserState::Value(quote) {
                    ParserState::Escaped(quote)
                } else {
                    ParserState::Value(quote)
                }
            }
            ParserState::AfterValue => {
                let value = self.command.params.last().map(|(_, v)| shown(v).into_owned()).unwrap_or_default();
                let (key, name) = (self.key(), self.name());
                let words = format!("unexpected \"{}\" symbol after \"{value}\" value of \"{key}\"", c as char);
                self.broken(0, format!("{words} parameter in \"{name}\" SSI command"))
            }
            ParserState::End(1) if c == b'-' => ParserState::End(2),
            ParserState::End(_) => {
                self.broken(0, format!("unexpected \"{}\" symbol in \"{}\" SSI command", c as char, self.name()))
            }
            ParserState::Broken(0 | 1) if c == b'-' => match self.state {
                ParserState::Broken(0) => ParserState::Broken(1),
                _ => ParserState::Broken(2),
            },
            ParserState::Broken(_) => ParserState::Broken(0),
            // Handled with text.
            ParserState::Text | ParserState::Start(_) => self.state,
        }
    }
    fn name(&self) -> String {
        shown(&self.command.name).into_owned()
    }
    fn key(&self) -> String {
        self.command.params.last().map(|(key, _)| shown(key).into_owned()).unwrap_or_default()
    }
    fn broken(&mut self, c: u8, words: String) -> ParserState {
        self.words = words;
        ParserState::Broken(u8::from(c == b'-'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&str]) -> Vec<String> {
        let mut parser = SsiParser::new(20);
        let mut out: Vec<String> = Vec::new();
        let mut text = String::new();
        for piece in pieces {
            let whole = Bytes::copy_from_slice(piece.as_bytes());
            let mut input = whole.clone();
            loop {
                let before = whole.len() - input.len();
                match parser.next(&mut input) {
                    None => break,
                    Some(SsiToken::Text(range)) => {
                        text += &shown(&whole[before + range.start..before + range.end]);
                    }
                    Some(SsiToken::Held(held)) => text += &shown(held),
                    Some(SsiToken::Command(command)) => {
                        out.push(std::mem::take(&mut text));
                        out.push(shown(&command.text()).into_owned());
                    }
                    Some(SsiToken::Fault(words)) => {
                        out.push(std::mem::take(&mut text));
                        out.push(words);
                    }
                    Some(SsiToken::Broken) => {}
                }
            }
        }
        text += &shown(parser.rest());
        out.push(text);
        out
    }

    #[test]
    fn commands_are_found_however_they_are_cut() {
        let page = "a<!--#echo var='x' default=\"a\\\"b\" -->b<<!-- no --><!-<!--# if\nexpr = \"1\"-->c<!-";
        let want =
            ["a", "<!--#echo var=\"x\" default=\"a\\\"b\" -->", "b<<!-- no --><!-", "<!--#if expr=\"1\" -->", "c<!-"];
        assert_eq!(all(&[page]), want);
        for cut in 0..page.len() {
            assert_eq!(all(&[&page[..cut], &page[cut..]]), want, "cut at {cut}");
        }
        let bytes: Vec<&str> = page.split_inclusive(|_| true).collect();
        assert_eq!(all(&bytes), want);
    }

    #[test]
    fn text_with_tags_is_one_token() {
        let page = "<p><<b>!<!-- no --><!-".repeat(1000);
        let (mut parser, mut input) = (SsiParser::new(20), Bytes::from(page.clone() + "<!-"));
        assert_eq!(parser.next(&mut input), Some(SsiToken::Text(0..page.len())));
        assert_eq!((parser.next(&mut input), parser.rest()), (None, &b"<!-"[..]));
    }

    #[test]
    fn random_pages_mean_the_same_however_they_are_cut() {
        let words = ["<", "!", "-", "#", "<!--#", "-->", " ", "a", "=", "\"", "'", "\\", "<!--#a b=\"c\" -->", "text"];
        let mut seed = testkit::Random::new(0x9e37_79b9_7f4a_7c15);
        let mut random = move |below: usize| seed.below(below);
        for _ in 0..2000 {
            let page: String = (0..random(24)).map(|_| words[random(words.len())]).collect();
            let whole = all(&[&page]);
            let (first, second) = (random(page.len() + 1), random(page.len() + 1));
            let (first, second) = (first.min(second), first.max(second));
            assert_eq!(all(&[&page[..first], &page[first..second], &page[second..]]), whole, "{page}");
        }
    }

    #[test]
    fn broken_commands_end_with_their_mark() {
        for (page, words) in [
            (
                "<!--#echo var=x -->",
                "unexpected \"x\" symbol before value of \"var\" parameter in \"echo\" SSI command",
            ),
            ("<!--#echo var-->", "unexpected \"-\" symbol after \"var\" parameter in \"echo\" SSI command"),
            (
                "<!--#echo var=\"x\"y -->",
                "unexpected \"y\" symbol after \"x\" value of \"var\" parameter in \"echo\" SSI command",
            ),
            ("<!--#echo -x -->", "unexpected \"x\" symbol in \"echo\" SSI command"),
            (
                "<!--#a b=\"123456789012345678901\" -->",
                "too long \"123456789012345678901...\" value of \"b\" parameter in \"a\" SSI command",
            ),
        ] {
            assert_eq!(all(&[page, "rest"]), ["", words, "rest"], "{page}");
            let unfinished = page.trim_end_matches('>');
            assert_eq!(all(&[unfinished, "rest"]), ["", words, ""], "{unfinished}");
        }
    }
}
