//! Command lines of POP3 and SMTP: a word and its arguments.

use crate::login::fits_command;

#[derive(Debug, PartialEq, Eq)]
pub struct CommandLine<'a> {
    pub text: &'a [u8],
    /// Length in bytes, with the line break.
    pub length: usize,
}

/// Returns `None` for an incomplete line.
pub fn first_line(input: &[u8]) -> Option<CommandLine<'_>> {
    let end = memchr::memchr(b'\n', input)?;
    let text = input.get(..end).unwrap_or_default();
    Some(CommandLine { text: text.strip_suffix(b"\r").unwrap_or(text), length: end + 1 })
}

/// Splits a line into its first word in upper case and the arguments; `None`: not a command. `letters_max`: longest
/// known command.
pub fn split_command(text: &[u8], letters_max: usize) -> Option<(Vec<u8>, &[u8])> {
    let end = memchr::memchr(b' ', text).unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(end)?;
    let known = (1..=letters_max).contains(&word.len()) && word.iter().all(u8::is_ascii_alphabetic);
    (known && fits_command(rest)).then(|| (word.to_ascii_uppercase(), trim_start(rest)))
}

/// Splits a line into at most `most` words; `None`: too many, or an invalid byte.
pub fn split_words(text: &[u8], most: usize) -> Option<Vec<&[u8]>> {
    let words: Vec<&[u8]> = text.split(|c| *c == b' ').filter(|word| !word.is_empty()).take(most + 1).collect();
    (words.len() <= most && fits_command(text)).then_some(words)
}

pub fn trim_start(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|c| **c == b' ').count();
    text.get(spaces..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_a_line_feed() {
        assert_eq!(first_line(b"NOOP\r\nx"), Some(CommandLine { text: b"NOOP", length: 6 }));
        assert_eq!(first_line(b"NOOP\nx"), Some(CommandLine { text: b"NOOP", length: 5 }));
        assert_eq!(first_line(b"NOOP\r"), None);
        assert_eq!(first_line(b""), None);
    }

    #[test]
    fn a_command_is_letters() {
        let read = |text: &'static [u8]| split_command(text, 8);
        assert_eq!(read(b"user  a b "), Some((b"USER".to_vec(), &b"a b "[..])));
        assert_eq!(read(b"QUIT"), Some((b"QUIT".to_vec(), &b""[..])));
        for text in [&b""[..], b" NOOP", b"NO1P", b"NOOP\0", b"NOOP a\rb", b"NOOP a\0b", b"ABCDEFGHI"] {
            assert_eq!(split_command(text, 8), None, "{text:?}");
        }
    }

    #[test]
    fn so_many_words_and_no_more() {
        assert_eq!(split_words(b" a  b ", 2), Some(vec![&b"a"[..], b"b"]));
        assert_eq!(split_words(b"", 2), Some(vec![]));
        assert_eq!(split_words(b"a b c", 2), None);
        assert_eq!(split_words(b"a\rb", 2), None);
    }
}
