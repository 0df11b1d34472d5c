//! PCRE2's syntax to that of `regex-syntax`, for patterns that mean the same in both.
//!
//! Both agree on most of Perl's syntax, but not in brackets (`[a[b]` nests, `&&` intersects), not about `\<`, `\v` and
//! possessive quantifiers. The translation writes literals as `\xHH` and gives up at constructs that only PCRE2 has.

/// A pattern's matcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Translation {
    /// A pattern for `regex-automata`; `line_starts` if it has `^`.
    Linear { pattern: String, line_starts: bool },
    /// Only PCRE2 understands the pattern.
    Backtracking,
}

/// Translates a pattern.
pub(crate) fn translate(pattern: &str) -> Translation {
    let mut translator = Translator { rest: pattern.as_bytes(), out: String::new(), line_starts: false };
    match translator.run() {
        Some(()) => Translation::Linear { pattern: translator.out, line_starts: translator.line_starts },
        None => Translation::Backtracking,
    }
}

/// An element of brackets.
enum Member {
    Byte(u8),
    /// A class such as `\d`, written as in the output.
    Class(&'static str),
    Posix(String),
}

struct Translator<'p> {
    rest: &'p [u8],
    out: String,
    line_starts: bool,
}

impl Translator<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }
    fn eat(&mut self, text: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(text);
        if let Some(rest) = rest {
            self.rest = rest;
        }
        rest.is_some()
    }
    fn literal(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.out.push(byte as char),
            _ => self.out.push_str(&format!("\\x{byte:02X}")),
        }
    }

    /// Translates everything, or returns `None` for PCRE2.
    fn run(&mut self) -> Option<()> {
        while let Some(byte) = self.next() {
            match byte {
                b'\\' => self.escape()?,
                b'[' => self.brackets()?,
                b'(' => self.group()?,
                b'*' | b'+' | b'?' => {
                    self.out.push(byte as char);
                    self.greed()?;
                }
                b'{' => match self.repetition()? {
                    Some(words) => {
                        self.out.push_str(&words);
                        self.greed()?;
                    }
                    None => self.literal(b'{'),
                },
                b'^' => {
                    self.line_starts = true;
                    self.out.push('^');
                }
                b'$' | b'.' | b'|' | b')' => self.out.push(byte as char),
                _ => self.literal(byte),
            }
        }
        Some(())
    }

    /// The sign behind a quantifier: `?` is lazy, `+` possessive.
    fn greed(&mut self) -> Option<()> {
        match self.peek() {
            Some(b'+') => None,
            Some(b'?') => {
                self.next();
                self.out.push('?');
                Some(())
            }
            _ => Some(()),
        }
    }

    /// `{2}`, `{2,}`, `{2,3}` behind the brace; `Some(None)` if the brace is literal.
    fn repetition(&mut self) -> Option<Option<String>> {
        let Some(end) = self.rest.iter().position(|byte| *byte == b'}') else { return Some(None) };
        let inside = self.rest.get(..end)?;
        let is_digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
        let mut parts = inside.splitn(2, |byte| *byte == b',');
        let least = parts.next().unwrap_or_default();
        let most = parts.next();
        if !is_digits(least) || !most.is_none_or(is_digits) {
            return Some(None);
        }
        if least.is_empty() {
            // PCRE2 10.43 made "{,3}" a quantifier.
            return if inside.is_empty() { Some(None) } else { None };
        }
        let words = format!("{{{}}}", std::str::from_utf8(inside).ok()?);
        self.rest = self.rest.get(end + 1..)?;
        Some(Some(words))
    }

    /// The head of a group, behind `(`.
    fn group(&mut self) -> Option<()> {
        if self.peek() == Some(b'*') {
            return None;
        }
        self.out.push('(');
        if !self.eat(b"?") {
            return Some(());
        }
        self.out.push('?');
        let head_end = self.rest.iter().position(|byte| matches!(byte, b':' | b')' | b'>'))?;
        let head = self.rest.get(..=head_end)?;
        let (last, letters) = head.split_last()?;
        let is_name =
            |name: &[u8]| !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let name = letters.strip_prefix(b"P<").or(letters.strip_prefix(b"<"));
        let allowed = match (last, name) {
            (b'>', Some(name)) => is_name(name),
            (b':' | b')', None) => letters.iter().all(|byte| matches!(byte, b'i' | b's' | b'm' | b'-')),
            _ => false,
        };
        // "(?)" is valid in PCRE2 only.
        if !allowed || (letters.is_empty() && *last == b')') || letters.last() == Some(&b'-') {
            return None;
        }
        self.out.push_str(std::str::from_utf8(head).ok()?);
        self.rest = self.rest.get(head_end + 1..)?;
        Some(())
    }

    /// Two hexadecimal digits at most, or `{...}`, behind `\x`.
    fn hexadecimal(&mut self) -> Option<u8> {
        if self.eat(b"{") {
            let end = self.rest.iter().position(|byte| *byte == b'}')?;
            let digits = std::str::from_utf8(self.rest.get(..end)?).ok()?;
            let value = u8::from_str_radix(digits, 16).ok()?;
            self.rest = self.rest.get(end + 1..)?;
            return Some(value);
        }
        let mut value = 0;
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|byte| (byte as char).to_digit(16)) else { break };
            value = value << 4 | digit as u8;
            self.next();
        }
        Some(value)
    }

    /// Up to two octal digits behind `\0`.
    fn octal(&mut self) -> u8 {
        let mut value = 0;
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|byte| (byte as char).to_digit(8)) else { break };
            value = value << 3 | digit as u8;
            self.next();
        }
        value
    }

    /// An escape that stands for bytes, in brackets or outside.
    fn member(&mut self, byte: u8) -> Option<Member> {
        Some(match byte {
            b'd' => Member::Class("\\d"),
            b'D' => Member::Class("\\D"),
            b'w' => Member::Class("\\w"),
            b'W' => Member::Class("\\W"),
            b's' => Member::Class("\\s"),
            b'S' => Member::Class("\\S"),
            b'h' => Member::Class("\\t\\x20\\xA0"),
            b'v' => Member::Class("\\n\\x0B\\x0C\\r\\x85"),
            b'n' => Member::Byte(b'\n'),
            b'r' => Member::Byte(b'\r'),
            b't' => Member::Byte(b'\t'),
            b'f' => Member::Byte(0x0c),
            b'a' => Member::Byte(0x07),
            b'e' => Member::Byte(0x1b),
            b'x' => Member::Byte(self.hexadecimal()?),
            b'0' => Member::Byte(self.octal()),
            _ if byte.is_ascii_alphanumeric() => return None,
            _ => Member::Byte(byte),
        })
    }

    fn escape(&mut self) -> Option<()> {
        let byte = self.next()?;
        match byte {
            b'b' | b'B' | b'A' | b'z' => {
                self.out.push('\\');
                self.out.push(byte as char);
                return (self.peek() != Some(b'{')).then_some(());
            }
            _ => {}
        }
        match self.member(byte)? {
            Member::Byte(byte) => self.literal(byte),
            Member::Class(words) if words.len() == 2 => self.out.push_str(words),
            Member::Class(words) => {
                self.out.push('[');
                self.out.push_str(words);
                self.out.push(']');
            }
            Member::Posix(_) => return None,
        }
        Some(())
    }

    /// The next element of brackets.
    fn bracket_member(&mut self) -> Option<Member> {
        let byte = self.next()?;
        match byte {
            b'\\' => match self.next()? {
                b'b' => Some(Member::Byte(8)),
                escaped => self.member(escaped),
            },
            b'[' if matches!(self.peek(), Some(b':' | b'.' | b'=')) => {
                let end = self.rest.windows(2).position(|pair| pair == b":]");
                let Some(inside) = end.and_then(|end| self.rest.get(1..end)) else {
                    return matches!(self.peek(), Some(b':')).then_some(Member::Byte(b'['));
                };
                let name = inside.strip_prefix(b"^").unwrap_or(inside);
                if self.peek() != Some(b':') {
                    return None;
                }
                if name.is_empty() || !name.iter().all(u8::is_ascii_lowercase) {
                    return Some(Member::Byte(b'['));
                }
                let posix = format!("[:{}:]", std::str::from_utf8(inside).ok()?);
                self.rest = self.rest.get(inside.len() + 3..)?;
                Some(Member::Posix(posix))
            }
            _ => Some(Member::Byte(byte)),
        }
    }

    fn brackets(&mut self) -> Option<()> {
        self.out.push('[');
        if self.eat(b"^") {
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            if self.peek()? == b']' && !is_first {
                self.next();
                self.out.push(']');
                return Some(());
            }
            is_first = false;
            match self.bracket_member()? {
                Member::Class(words) => self.out.push_str(words),
                Member::Posix(words) => self.out.push_str(&words),
                Member::Byte(start) => {
                    self.literal(start);
                    if let [b'-', next, ..] = self.rest
                        && *next != b']'
                    {
                        self.next();
                        match self.bracket_member()? {
                            Member::Byte(end) if end < start => return None,
                            Member::Byte(end) => {
                                self.out.push('-');
                                self.literal(end);
                            }
                            Member::Class(words) => {
                                self.literal(b'-');
                                self.out.push_str(words);
                            }
                            Member::Posix(words) => {
                                self.literal(b'-');
                                self.out.push_str(&words);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(pattern: &str) -> Option<String> {
        match translate(pattern) {
            Translation::Linear { pattern, .. } => Some(pattern),
            Translation::Backtracking => None,
        }
    }

    #[test]
    fn brackets_are_written_without_set_operators() {
        assert_eq!(linear("[a[b&&c]").as_deref(), Some("[a\\x5Bb\\x26\\x26c]"));
        assert_eq!(linear("[]a-c-]").as_deref(), Some("[\\x5Da-c\\x2D]"));
        assert_eq!(linear("[\\w-.[:alpha:]]").as_deref(), Some("[\\w\\x2D\\x2E[:alpha:]]"));
        assert_eq!(linear("[^\\b\\x5c]").as_deref(), Some("[^\\x08\\x5C]"));
    }

    #[test]
    fn escapes_mean_what_pcre2_means() {
        assert_eq!(linear("\\<a\\/\\e\\0").as_deref(), Some("\\x3Ca\\x2F\\x1B\\x00"));
        assert_eq!(linear("\\v").as_deref(), Some("[\\n\\x0B\\x0C\\r\\x85]"));
        assert_eq!(linear("a{b{2}").as_deref(), Some("a\\x7Bb{2}"));
    }

    #[test]
    fn constructs_of_pcre2_alone_are_not_translated() {
        for pattern in
            ["(?=a)", "(?<!a)b", "a*+", "a{2}+", "(?>a)", "\\1", "(?x) a", "(*ANY)a", "\\Ra", "(?|a)", "a{,3}"]
        {
            assert_eq!(linear(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn groups_and_flags_are_kept() {
        assert_eq!(linear("(?i)a(?:b)(?<n>c)(?s-i:d)").as_deref(), Some("(?i)a(?:b)(?<n>c)(?s-i:d)"));
    }
}
