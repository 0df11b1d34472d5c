//! `@pm` and `@pmFromFile`: many phrases in one pass, without regard to ASCII case.

use super::requirement::Requirement;
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, MatchKind};

/// Phrases up to which the search is a table of all states.
const TABLE_PHRASES_MAX: usize = 8;

/// A compiled list of phrases.
#[derive(Debug)]
pub(crate) struct Phrases {
    /// `None` for an empty list, which matches nothing.
    automaton: Option<AhoCorasick>,
    phrases: Vec<Box<[u8]>>,
}

impl Phrases {
    /// Compiles the phrases of a rule, divided by spaces, with Snort's `|41 42|` for bytes.
    pub fn parse(text: &str) -> Result<Phrases, String> {
        let trimmed = text.trim_start_matches([' ', '\t']);
        let inside = trimmed.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(trimmed);
        let content = snort_bytes(inside.as_bytes()).unwrap_or_else(|| text.as_bytes().to_vec());
        Phrases::new(content.split(|byte| *byte == b' ').filter(|phrase| !phrase.is_empty()).map(Box::from))
    }

    /// Compiles the phrases of a file: one a line; empty lines and lines that begin with `#` are left out.
    pub fn from_file(content: &[u8]) -> Result<Phrases, String> {
        let lines = content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        Phrases::new(lines.filter(|line| !line.is_empty() && line.first() != Some(&b'#')).map(Box::from))
    }

    fn new(phrases: impl Iterator<Item = Box<[u8]>>) -> Result<Phrases, String> {
        let phrases: Vec<Box<[u8]>> = phrases.collect();
        if phrases.is_empty() {
            return Ok(Phrases { automaton: None, phrases });
        }
        let mut builder = AhoCorasickBuilder::new();
        builder.ascii_case_insensitive(true).match_kind(MatchKind::Standard);
        // A table of all states would take some kilobytes for each phrase, and the screen leaves few values to search.
        if phrases.len() > TABLE_PHRASES_MAX {
            builder.kind(Some(AhoCorasickKind::ContiguousNFA));
        }
        let automaton = builder.build(&phrases).map_err(|error| error.to_string())?;
        Ok(Phrases { automaton: Some(automaton), phrases })
    }

    /// Returns what a value must contain to match.
    pub fn requirement(&self) -> Requirement {
        Requirement::of_texts(self.phrases.iter().map(|phrase| phrase.to_vec()).collect())
    }

    /// The phrase that ends first in `input`, and its start and end.
    pub fn find(&self, input: &[u8]) -> Option<(&[u8], usize, usize)> {
        let found = self.automaton.as_ref()?.find(input)?;
        let phrase = self.phrases.get(found.pattern().as_usize())?;
        Some((phrase, found.start(), found.end()))
    }
}

/// Decodes `|HH HH|` and the escapes `\:`, `\;`, `\\` and `\"`; `None` if the text is in another form.
fn snort_bytes(text: &[u8]) -> Option<Vec<u8>> {
    if memchr::memchr2(b'|', b'\\', text).is_none() {
        return Some(text.to_vec());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut in_bytes = false;
    let mut half: Option<u8> = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'|' => in_bytes = !in_bytes,
            b'\\' => match bytes.next()? {
                escaped @ (b':' | b';' | b'\\' | b'"') => out.push(escaped),
                _ => return None,
            },
            b' ' if in_bytes => {}
            _ if in_bytes => {
                let digit = (byte as char).to_digit(16)? as u8;
                match half.take() {
                    Some(high) => out.push(high << 4 | digit),
                    None => half = Some(digit),
                }
            }
            _ => out.push(byte),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_match_without_case() {
        let phrases = Phrases::parse("WebZIP webcopier").expect("phrases");
        assert_eq!(phrases.find(b"x WEBZIP y").map(|(phrase, ..)| phrase), Some(&b"WebZIP"[..]));
        assert!(phrases.find(b"web").is_none());
    }

    #[test]
    fn bytes_are_written_between_bars() {
        let phrases = Phrases::parse("A|42 43|D").expect("phrases");
        assert!(phrases.find(b"xABCDx").is_some());
    }

    #[test]
    fn comments_and_empty_lines_of_a_file_are_left_out() {
        let phrases = Phrases::from_file(b"# all\n\n etc/passwd \r\n").expect("phrases");
        assert!(phrases.find(b"/ETC/passwd").is_some());
        assert!(phrases.find(b"# all").is_none());
        assert!(Phrases::from_file(b"").expect("phrases").find(b"a").is_none());
    }
}
