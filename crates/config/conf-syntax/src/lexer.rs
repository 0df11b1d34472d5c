//! Tokens, by nginx's exact rules for quotes, escapes, comments and `${name}`.

/// Longest word (nginx: `NGX_CONF_BUFFER`).
pub const WORD_BYTES_MAX: usize = 4096;

/// Bytes that end a word or have a meaning in it.
const MEANS_IN_WORDS: [bool; 256] = {
    let mut means = [false; 256];
    let mut rest: &[u8] = b" \t\r\n;{\\$";
    while let [byte, behind @ ..] = rest {
        means[*byte as usize] = true;
        rest = behind;
    }
    means
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Word { bytes: Vec<u8>, quoted: bool },
    Semicolon,
    Open,
    Close,
    Comment,
    Error(String),
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LexerToken {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
    /// Line of the token's last byte, from 1.
    pub line: u32,
}

pub struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
    /// After a quoted word only white space, `;`, `{` or `)` may follow.
    after_quote: bool,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Lexer { text, at, line: 1, after_quote: false }
    }

    fn token(&self, kind: TokenKind, start: usize) -> LexerToken {
        LexerToken { kind, start, end: self.at, line: self.line }
    }

    pub fn next_token(&mut self) -> LexerToken {
        if std::mem::take(&mut self.after_quote)
            && let Some(&c) = self.text.get(self.at)
            && !matches!(c, b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{')
        {
            if c == b')' {
                // `if ($a = "b")`: the parenthesis starts its own word.
                return self.word();
            }
            let start = self.at;
            self.at = self.text.len();
            return LexerToken {
                kind: TokenKind::Error(format!("unexpected \"{}\"", c as char)),
                start,
                end: start + 1,
                line: self.line,
            };
        }
        while let Some(&c) = self.text.get(self.at) {
            match c {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => {}
                _ => break,
            }
            self.at += 1;
        }
        let start = self.at;
        let Some(&c) = self.text.get(self.at) else {
            return self.token(TokenKind::End, start);
        };
        match c {
            b';' | b'{' | b'}' => {
                self.at += 1;
                let kind = match c {
                    b';' => TokenKind::Semicolon,
                    b'{' => TokenKind::Open,
                    _ => TokenKind::Close,
                };
                self.token(kind, start)
            }
            b'#' => {
                while self.text.get(self.at).is_some_and(|c| *c != b'\n') {
                    self.at += 1;
                }
                self.token(TokenKind::Comment, start)
            }
            b'"' | b'\'' => self.quoted(c),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> LexerToken {
        let start = self.at;
        let mut bytes = self.plain(|c| MEANS_IN_WORDS[usize::from(c)]);
        let mut variable = false;
        while let Some(&c) = self.text.get(self.at) {
            if c == b'{' && variable {
                variable = false;
                bytes.push(c);
                self.at += 1;
                continue;
            }
            variable = false;
            match c {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' => break,
                b'\\' => self.escape(&mut bytes),
                _ => {
                    variable = c == b'$';
                    bytes.push(c);
                    self.at += 1;
                }
            }
            if self.at - start > WORD_BYTES_MAX {
                return self.too_long(start, None);
            }
        }
        if self.at >= self.text.len() {
            // At the file's end the parser sees the word, then the end.
            return self.token(TokenKind::Word { bytes, quoted: false }, start);
        }
        self.token(TokenKind::Word { bytes, quoted: false }, start)
    }

    #[inline(always)]
    fn plain(&mut self, means: impl Fn(u8) -> bool) -> Vec<u8> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        // Longer words are counted byte by byte, with the quote.
        let rest = rest.get(..WORD_BYTES_MAX - 1).unwrap_or(rest);
        let plain = rest.iter().position(|c| means(*c)).map_or(rest, |end| &rest[..end]);
        self.at += plain.len();
        plain.to_vec()
    }

    fn quoted(&mut self, quote: u8) -> LexerToken {
        let start = self.at;
        self.at += 1;
        let mut bytes = self.plain(|c| matches!(c, b'\n' | b'\\') || c == quote);
        while let Some(&c) = self.text.get(self.at) {
            if c == quote {
                self.at += 1;
                self.after_quote = true;
                return self.token(TokenKind::Word { bytes, quoted: true }, start);
            }
            if c == b'\\' {
                self.escape(&mut bytes);
            } else {
                if c == b'\n' {
                    self.line += 1;
                }
                bytes.push(c);
                self.at += 1;
            }
            if self.at - start > WORD_BYTES_MAX {
                return self.too_long(start, Some(quote));
            }
        }
        let kind = TokenKind::Error("unexpected end of file, expecting \";\" or \"}\"".into());
        self.token(kind, start)
    }

    /// Resolves `\"`, `\'`, `\\`, `\t`, `\r`, `\n`; any other backslash stays, with its byte.
    fn escape(&mut self, bytes: &mut Vec<u8>) {
        let next = self.text.get(self.at + 1).copied();
        match next {
            Some(c @ (b'"' | b'\'' | b'\\')) => bytes.push(c),
            Some(b't') => bytes.push(b'\t'),
            Some(b'r') => bytes.push(b'\r'),
            Some(b'n') => bytes.push(b'\n'),
            Some(c) => {
                if c == b'\n' {
                    self.line += 1;
                }
                bytes.extend_from_slice(&[b'\\', c]);
            }
            None => bytes.push(b'\\'),
        }
        self.at = (self.at + 2).min(self.text.len());
    }

    fn too_long(&mut self, start: usize, quote: Option<u8>) -> LexerToken {
        let words = match quote {
            Some(q) => format!("too long parameter, probably missing terminating \"{}\" character", q as char),
            None => {
                let head = String::from_utf8_lossy(&self.text[start..(start + 10).min(self.text.len())]).into_owned();
                format!("too long parameter \"{head}...\" started")
            }
        };
        let line = self.line;
        self.at = self.text.len();
        LexerToken { kind: TokenKind::Error(words), start, end: start + 1, line }
    }
}
