//! Finds commands in text: `<!--#name key="value" -->`. Text comes in pieces; a command may be cut anywhere.

use bytes::{Buf, Bytes};
use std::ops::Range;

/// The longest name of a command and of a parameter, as in nginx.
const NAME_MAX: usize = 32;
/// Parameters that a command may have; more are an error of whoever runs it.
const PARAMS_MAX: usize = 64;

/// A command as it stands: values keep their backslashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    pub name: Vec<u8>,
    pub params: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Command {
    /// The command's text, for a block that is run later.
    pub fn text(&self) -> Vec<u8> {
        let mut out = [b"<!--#", self.name.as_slice()].concat();
        for (key, value) in &self.params {
            out.extend_from_slice(&[b" ", key.as_slice(), b"=\"", value, b"\""].concat());
        }
        out.extend_from_slice(b" -->");
        out
    }
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A part of the input, as offsets into what was given.
    Text(Range<usize>),
    /// The beginning of something that turned out to be text, from earlier input.
    Held(&'static [u8]),
    Command(Command),
    /// A command that is none: words for the log.
    Broken(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// So much of `<!--` was seen.
    Start(usize),
    BeforeName,
    Name,
    BeforeKey,
    Key,
    BeforeEqual,
    BeforeValue,
    Value(u8),
    /// Behind a backslash in a value with this quote.
    Escaped(u8),
    AfterValue,
    /// So many of `-->` were seen.
    End(u8),
    /// To the end of a broken command; so much of `-->` was seen.
    Broken(u8),
}

const OPENING: &[u8] = b"<!--";

/// The state between pieces.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    command: Command,
    words: String,
    /// `ssi_value_length`
    value_max: usize,
}

fn space(c: u8) -> bool {
    matches!(c, b' ' | b'\r' | b'\n' | b'\t')
}

fn shown(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}

impl Parser {
    pub fn new(value_max: usize) -> Parser {
        Parser { value_max, ..Parser::default() }
    }
    /// What the end of the body leaves: an opening that was none.
    pub fn rest(&mut self) -> &'static [u8] {
        match std::mem::take(&mut self.state) {
            State::Start(n) => OPENING.get(..n).unwrap_or_default(),
            _ => b"",
        }
    }
    /// Takes the next thing off the input; `None`: all of it was used up.
    pub fn next(&mut self, input: &mut Bytes) -> Option<Found> {
        let mut at = 0;
        while let Some(&c) = input.get(at) {
            match self.state {
                State::Text => {
                    let end = memchr::memchr(b'<', input.get(at..).unwrap_or_default()).map_or(input.len(), |n| at + n);
                    if end > at {
                        input.advance(end);
                        return Some(Found::Text(at..end));
                    }
                    self.state = State::Start(1);
                }
                State::Start(n) => {
                    if n == OPENING.len() && c == b'#' {
                        self.command = Command::default();
                        self.state = State::BeforeName;
                    } else if OPENING.get(n) == Some(&c) {
                        self.state = State::Start(n + 1);
                    } else {
                        // It was text; the character itself may begin anew.
                        self.state = State::Text;
                        input.advance(at);
                        return Some(Found::Held(OPENING.get(..n).unwrap_or_default()));
                    }
                }
                State::End(2) if c == b'>' => {
                    self.state = State::Text;
                    input.advance(at + 1);
                    return Some(Found::Command(std::mem::take(&mut self.command)));
                }
                State::Broken(2) if c == b'>' => {
                    self.state = State::Text;
                    input.advance(at + 1);
                    return Some(Found::Broken(std::mem::take(&mut self.words)));
                }
                _ => self.state = self.inside(c),
            }
            at += 1;
        }
        input.clear();
        None
    }
    /// A character within a command.
    fn inside(&mut self, c: u8) -> State {
        match self.state {
            State::BeforeName if space(c) => State::BeforeName,
            State::BeforeName => {
                self.command.name.push(c);
                State::Name
            }
            State::Name | State::BeforeKey | State::AfterValue if space(c) => State::BeforeKey,
            State::Name | State::BeforeKey | State::AfterValue if c == b'-' => State::End(1),
            State::Name if self.command.name.len() == NAME_MAX => {
                self.broken(c, format!("the \"{}{}...\" SSI command is too long", self.name(), c as char))
            }
            State::Name => {
                self.command.name.push(c);
                State::Name
            }
            State::BeforeKey if self.command.params.len() == PARAMS_MAX => {
                self.broken(c, format!("too many SSI command parameters: \"{}\"", self.name()))
            }
            State::BeforeKey => {
                self.command.params.push((vec![c], Vec::new()));
                State::Key
            }
            State::Key | State::BeforeEqual if space(c) => State::BeforeEqual,
            State::Key | State::BeforeEqual if c == b'=' => State::BeforeValue,
            State::Key if c != b'-' => match self.command.params.last_mut() {
                Some((key, _)) if key.len() < NAME_MAX => {
                    key.push(c);
                    State::Key
                }
                _ => {
                    let (c, key, name) = (c as char, self.key(), self.name());
                    self.broken(0, format!("too long \"{key}{c}...\" parameter in \"{name}\" SSI command"))
                }
            },
            State::Key | State::BeforeEqual => {
                let (key, name) = (self.key(), self.name());
                let words = format!("unexpected \"{}\" symbol after \"{key}\" parameter", c as char);
                self.broken(c, format!("{words} in \"{name}\" SSI command"))
            }
            State::BeforeValue if space(c) => State::BeforeValue,
            State::BeforeValue if matches!(c, b'"' | b'\'') => State::Value(c),
            State::BeforeValue => {
                let (key, name) = (self.key(), self.name());
                let words = format!("unexpected \"{}\" symbol before value of \"{key}\" parameter", c as char);
                self.broken(c, format!("{words} in \"{name}\" SSI command"))
            }
            State::Value(quote) if c == quote => State::AfterValue,
            State::Value(quote) | State::Escaped(quote) => {
                let value_max = self.value_max;
                let Some((_, value)) = self.command.params.last_mut() else { return State::Broken(0) };
                if value.len() >= value_max {
                    let value = format!("too long \"{}{}...\" value of", shown(value), c as char);
                    let (key, name) = (self.key(), self.name());
                    return self.broken(0, format!("{value} \"{key}\" parameter in \"{name}\" SSI command"));
                }
                value.push(c);
                if c == b'\\' && self.state == State::Value(quote) {
                    State::Escaped(quote)
                } else {
                    State::Value(quote)
                }
            }
            State::AfterValue => {
                let value = self.command.params.last().map(|(_, v)| shown(v).into_owned()).unwrap_or_default();
                let (key, name) = (self.key(), self.name());
                let words = format!("unexpected \"{}\" symbol after \"{value}\" value of \"{key}\"", c as char);
                self.broken(0, format!("{words} parameter in \"{name}\" SSI command"))
            }
            State::End(1) if c == b'-' => State::End(2),
            State::End(_) => {
                self.broken(0, format!("unexpected \"{}\" symbol in \"{}\" SSI command", c as char, self.name()))
            }
            State::Broken(0 | 1) if c == b'-' => match self.state {
                State::Broken(0) => State::Broken(1),
                _ => State::Broken(2),
            },
            State::Broken(_) => State::Broken(0),
            // These are dealt with where text is.
            State::Text | State::Start(_) => self.state,
        }
    }
    fn name(&self) -> String {
        shown(&self.command.name).into_owned()
    }
    fn key(&self) -> String {
        self.command.params.last().map(|(key, _)| shown(key).into_owned()).unwrap_or_default()
    }
    fn broken(&mut self, c: u8, words: String) -> State {
        self.words = words;
        State::Broken(u8::from(c == b'-'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything found, with text joined.
    fn all(pieces: &[&str]) -> Vec<String> {
        let mut parser = Parser::new(20);
        let mut out: Vec<String> = Vec::new();
        let mut text = String::new();
        for piece in pieces {
            let whole = Bytes::copy_from_slice(piece.as_bytes());
            let mut input = whole.clone();
            loop {
                let before = whole.len() - input.len();
                match parser.next(&mut input) {
                    None => break,
                    Some(Found::Text(range)) => {
                        text += &shown(&whole[before + range.start..before + range.end]);
                    }
                    Some(Found::Held(held)) => text += &shown(held),
                    Some(Found::Command(command)) => {
                        out.push(std::mem::take(&mut text));
                        out.push(shown(&command.text()).into_owned());
                    }
                    Some(Found::Broken(words)) => {
                        out.push(std::mem::take(&mut text));
                        out.push(words);
                    }
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
    fn random_pages_mean_the_same_however_they_are_cut() {
        let words = ["<", "!", "-", "#", "<!--#", "-->", " ", "a", "=", "\"", "'", "\\", "<!--#a b=\"c\" -->", "text"];
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
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
        }
    }
}
