//! Parser of IMAP commands (nginx: `ngx_mail_imap_parse_command`): a tag, a word, and up to three arguments: atoms,
//! quoted strings, or literals (RFC 9051, 4.3).

const TAG_MAX: usize = 32;
const ARGUMENTS_MAX: usize = 3;
const WORD_MAX: usize = 12;
const KNOWN: &[&[u8]] = &[b"NOOP", b"LOGIN", b"LOGOUT", b"STARTTLS", b"CAPABILITY", b"AUTHENTICATE"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedCommand {
    More,
    /// `tag` includes the following space, or is empty if unreadable. `lost`: the next bytes may be a literal and must
    /// not be parsed as commands.
    Invalid {
        tag: Vec<u8>,
        length: usize,
        lost: bool,
    },
    /// `word` in upper case, `tag` with the following space.
    Command {
        tag: Vec<u8>,
        word: Vec<u8>,
        arguments: Vec<Vec<u8>>,
        length: usize,
    },
}

struct CommandReader<'a> {
    input: &'a [u8],
    at: usize,
    literals: usize,
}

enum CommandFault {
    More,
    Invalid,
}

/// Returns the tag with the following space at the start of an incomplete command; empty if there is none.
pub fn command_tag(input: &[u8]) -> &[u8] {
    let end = input.iter().take(TAG_MAX + 1).take_while(|c| is_of_tag(**c)).count();
    let space = input.get(end) == Some(&b' ') && (1..=TAG_MAX).contains(&end);
    input.get(..=end).filter(|_| space).unwrap_or_default()
}

fn is_of_tag(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_')
}

/// Parses one command; also returns the number of literals that need a continuation request, sent or not.
pub fn parse_command(input: &[u8]) -> (ParsedCommand, usize) {
    let mut reader = CommandReader { input, at: 0, literals: 0 };
    let mut tag = Vec::new();
    let parsed = match reader.command(&mut tag) {
        Ok((word, arguments)) => ParsedCommand::Command { tag, word, arguments, length: reader.at },
        Err(CommandFault::More) => ParsedCommand::More,
        Err(CommandFault::Invalid) => {
            // Skips the rest of the line.
            let from = reader.at;
            let end = input.get(from..).and_then(|rest| memchr::memchr(b'\n', rest));
            let Some(end) = end else { return (ParsedCommand::More, reader.literals) };
            let length = from + end + 1;
            let line = input.get(..length - 1).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            ParsedCommand::Invalid { tag, length, lost: line.ends_with(b"+}") }
        }
    };
    (parsed, reader.literals)
}

impl CommandReader<'_> {
    fn peek(&self) -> Result<u8, CommandFault> {
        self.input.get(self.at).copied().ok_or(CommandFault::More)
    }
    fn spaces(&mut self) -> Result<usize, CommandFault> {
        let before = self.at;
        while self.peek()? == b' ' {
            self.at += 1;
        }
        Ok(self.at - before)
    }
    fn run(&mut self, most: usize, fits: impl Fn(u8) -> bool) -> Result<&[u8], CommandFault> {
        let start = self.at;
        while fits(self.peek()?) {
            if self.at - start == most {
                return Err(CommandFault::Invalid);
            }
            self.at += 1;
        }
        Ok(self.input.get(start..self.at).unwrap_or_default())
    }
    fn line_end(&mut self) -> Result<bool, CommandFault> {
        match self.peek()? {
            b'\n' => self.at += 1,
            b'\r' => match self.input.get(self.at + 1) {
                None => return Err(CommandFault::More),
                Some(b'\n') => self.at += 2,
                Some(_) => {
                    self.at += 1;
                    return Err(CommandFault::Invalid);
                }
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn command(&mut self, tag: &mut Vec<u8>) -> Result<(Vec<u8>, Vec<Vec<u8>>), CommandFault> {
        let name = self.run(TAG_MAX, is_of_tag)?.to_vec();
        if name.is_empty() || self.spaces()? == 0 {
            return Err(CommandFault::Invalid);
        }
        *tag = name;
        tag.push(b' ');
        let word = self.run(WORD_MAX, |c| c.is_ascii_alphabetic())?.to_ascii_uppercase();
        if !KNOWN.contains(&word.as_slice()) {
            return Err(CommandFault::Invalid);
        }
        let mut arguments = Vec::new();
        if !matches!(self.peek()?, b' ' | b'\r' | b'\n') {
            return Err(CommandFault::Invalid);
        }
        loop {
            self.spaces()?;
            if self.line_end()? {
                return Ok((word, arguments));
            }
            if arguments.len() == ARGUMENTS_MAX {
                return Err(CommandFault::Invalid);
            }
            let argument = match self.peek()? {
                b'"' => self.quoted()?,
                b'{' => {
                    let literal = self.literal()?;
                    if !matches!(self.peek()?, b' ' | b'\r' | b'\n') {
                        return Err(CommandFault::Invalid);
                    }
                    literal
                }
                _ => self.run(usize::MAX, |c| !matches!(c, b' ' | b'\r' | b'\n'))?.to_vec(),
            };
            arguments.push(argument);
        }
    }

    fn quoted(&mut self) -> Result<Vec<u8>, CommandFault> {
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let c = self.peek()?;
            match c {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                b'\r' | b'\n' => return Err(CommandFault::Invalid),
                b'\\' => {
                    self.at += 1;
                    match self.peek()? {
                        b'\r' | b'\n' => return Err(CommandFault::Invalid),
                        c => out.push(c),
                    }
                }
                c => out.push(c),
            }
            self.at += 1;
        }
    }

    /// Parses `{5}` or `{5+}`, a line break, and the bytes.
    fn literal(&mut self) -> Result<Vec<u8>, CommandFault> {
        self.at += 1;
        let digits = self.run(usize::MAX, |c| c.is_ascii_digit())?;
        let length = digits
            .iter()
            .try_fold(0_usize, |n, digit| n.checked_mul(10).and_then(|n| n.checked_add(usize::from(digit - b'0'))));
        let length = length.filter(|_| !digits.is_empty()).ok_or(CommandFault::Invalid)?;
        let asked = self.peek()? != b'+';
        if !asked {
            self.at += 1;
        }
        if self.peek()? != b'}' {
            return Err(CommandFault::Invalid);
        }
        self.at += 1;
        if !self.line_end()? {
            return Err(CommandFault::Invalid);
        }
        self.literals += usize::from(asked);
        let end = self.at.checked_add(length).ok_or(CommandFault::More)?;
        let octets = self.input.get(self.at..end).ok_or(CommandFault::More)?.to_vec();
        self.at = end;
        Ok(octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(input: &str) -> Option<Vec<String>> {
        match parse_command(input.as_bytes()).0 {
            ParsedCommand::Command { word, arguments, length, .. } => {
                assert_eq!(length, input.len());
                let all = std::iter::once(word).chain(arguments);
                Some(all.map(|w| String::from_utf8_lossy(&w).into_owned()).collect())
            }
            _ => None,
        }
    }

    #[test]
    fn arguments_of_all_kinds() {
        for (input, want) in [
            ("a1 noop\r\n", vec!["NOOP"]),
            ("a1  NOOP  \n", vec!["NOOP"]),
            ("a1 LOGIN user pass\r\n", vec!["LOGIN", "user", "pass"]),
            (r#"a1 LOGIN "us er" "p\"\\x""#, vec![]),
            ("a1 LOGIN \"us er\" \"p\\\"\\\\x\"\r\n", vec!["LOGIN", "us er", "p\"\\x"]),
            ("a1 LOGIN {4}\r\nuser {2+}\r\nab\r\n", vec!["LOGIN", "user", "ab"]),
            ("a1 LOGIN {0}\r\n {1}\r\nx\r\n", vec!["LOGIN", "", "x"]),
            ("a1 LOGIN us\"er\" x\r\n", vec!["LOGIN", "us\"er\"", "x"]),
            ("a1 LOGIN {2}\r\n\r\n x\r\n", vec!["LOGIN", "\r\n", "x"]),
        ] {
            let want = (!want.is_empty()).then(|| want.iter().map(ToString::to_string).collect());
            assert_eq!(words(input), want, "{input:?}");
        }
    }

    #[test]
    fn malformed_commands_are_refused() {
        for (input, tag, lost) in [
            ("NOOP\r\n", "", false),
            ("\r\n", "", false),
            ("a* NOOP\r\n", "", false),
            ("a FETCH 1\r\n", "a ", false),
            ("a NOOP1\r\n", "a ", false),
            ("a LOGIN a b c d\r\n", "a ", false),
            ("a LOGIN \"a\r\n", "a ", false),
            ("a LOGIN {x}\r\n", "a ", false),
            ("a LOGIN {}\r\n", "a ", false),
            ("a LOGIN {99999999999999999999999}\r\n", "a ", false),
            ("a LOGIN {1}x\r\n", "a ", false),
            ("a LOGIN {1}\r\nab c\r\n", "a ", false),
            ("a LOGIN x\ry\r\n", "a ", false),
            ("a FETCH {10+}\r\n", "a ", true),
        ] {
            let want = ParsedCommand::Invalid { tag: tag.into(), length: input.len(), lost };
            assert_eq!(parse_command(input.as_bytes()).0, want, "{input:?}");
        }
        let long = format!("{} NOOP\r\n", "a".repeat(33));
        assert!(matches!(parse_command(long.as_bytes()).0, ParsedCommand::Invalid { .. }));
        let fits = format!("{} NOOP\r\n", "a".repeat(32));
        assert!(matches!(parse_command(fits.as_bytes()).0, ParsedCommand::Command { .. }));
    }

    #[test]
    fn a_tag_is_known_before_the_end_of_its_line() {
        let long = "a".repeat(33) + " ";
        for (input, want) in [
            ("a1 LOGIN x", "a1 "),
            ("a1", ""),
            (" a", ""),
            ("a+ x", ""),
            ("", ""),
            (&long, ""),
            (&long[1..], &long[1..]),
        ] {
            assert_eq!(command_tag(input.as_bytes()), want.as_bytes(), "{input:?}");
        }
    }

    #[test]
    fn a_literal_is_waited_for() {
        assert_eq!(parse_command(b"a LOGIN {4}\r"), (ParsedCommand::More, 0));
        assert_eq!(parse_command(b"a LOGIN {4}\r\n"), (ParsedCommand::More, 1));
        assert_eq!(parse_command(b"a LOGIN {4+}\r\nus"), (ParsedCommand::More, 0));
        assert_eq!(parse_command(b"a LOGIN {4}\r\nuser {4}\r\n"), (ParsedCommand::More, 2));
        let most = format!("a LOGIN {{{}+}}\r\nx", usize::MAX);
        assert_eq!(parse_command(most.as_bytes()), (ParsedCommand::More, 0));
    }
}
